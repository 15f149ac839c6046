//! Pages of bbolt files, read and written.
