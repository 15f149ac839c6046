//! The HTML page: one file, no script, no other file needed; light and dark.

use super::result::Journal;
use super::table::Summary;

pub fn page(_summary: &Summary, _journal: &Journal) -> String {
    String::new()
}
