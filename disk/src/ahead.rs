//! A file that is read from front to back: large pieces, one buffer.

use crate::header::read_full;
use crate::{Fault, File};

/// Bytes of one read.
const PIECE: usize = 256 << 10;

/// Looks into a file at ascending offsets without a call for each.
pub(crate) struct Ahead<'a> {
    file: &'a dyn File,
    path: &'a str,
    /// Nothing is read from here on.
    end: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins, and how much of it is filled.
    at: u64,
    filled: usize,
}

impl<'a> Ahead<'a> {
    /// The first `end` bytes of `file`. `path` is for faults.
    pub(crate) fn new(file: &'a dyn File, path: &'a str, end: u64) -> Ahead<'a> {
        Ahead { file, path, end, buffer: Vec::new(), at: 0, filled: 0 }
    }

    /// `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if the file, or what of it is to be read, ends before.
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> Result<&[u8], Fault> {
        if let Some(from) = self.place(offset, len) {
            return Ok(&self.buffer[from..from + len]);
        }
        self.read(offset, len)?;
        if self.filled < len {
            let what = format!("the file ends after {} of {len} bytes", self.filled);
            return Err(Fault::damaged(self.path, offset, what));
        }
        Ok(&self.buffer[..len])
    }

    /// Where the buffer has these bytes, if it has all of them.
    fn place(&self, offset: u64, len: usize) -> Option<usize> {
        let from = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        (from.checked_add(len)? <= self.filled).then_some(from)
    }

    /// Begins the buffer anew at `offset`; of what it holds already nothing is read again.
    fn read(&mut self, offset: u64, len: usize) -> Result<(), Fault> {
        let there = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let want = len.max(PIECE).min(there);
        let kept = match self.place(offset, 0) {
            Some(from) => {
                self.buffer.copy_within(from..self.filled, 0);
                self.filled - from
            }
            None => 0,
        };
        (self.at, self.filled) = (offset, kept);
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        if kept < want {
            let from = offset + kept as u64;
            self.filled += read_full(self.file, self.path, from, &mut self.buffer[kept..want])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Byte n is n modulo 251. Gives no more than 100,000 bytes a call.
    struct Numbers(u64, AtomicUsize);

    impl File for Numbers {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let there = self.0.saturating_sub(offset).min(into.len().min(100_000) as u64) as usize;
            for (n, byte) in (offset..).zip(&mut into[..there]) {
                *byte = (n % 251) as u8;
            }
            Ok(there)
        }

        fn write_at(&self, _: u64, _: &[&[u8]]) -> io::Result<()> {
            unreachable!()
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!()
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
    }

    #[test]
    fn every_byte_is_there_and_the_file_is_read_once() {
        let end = 3_000_000;
        let file = Numbers(end + 500, AtomicUsize::new(0));
        let mut ahead = Ahead::new(&file, "f", end);
        let (mut offset, mut len) = (17, 1);
        while offset + len as u64 <= end {
            let bytes = ahead.get(offset, len).expect("there");
            assert!(bytes.len() == len && (offset..).zip(bytes).all(|(n, byte)| *byte == (n % 251) as u8));
            // A look at the front of what follows, as a header is.
            offset += len as u64 / 2 + 1;
            len = (len * 7 + 3) % 700_000;
        }
        let calls = file.1.load(Ordering::Relaxed);
        assert!(calls < 2 * 3_000_000 / 100_000, "{calls} calls");
        let fault = ahead.get(end - 10, 11).expect_err("the end is the end");
        assert!(fault.to_string().contains("10 of 11 bytes"), "{fault}");
        assert_eq!(ahead.get(end - 10, 10).expect("there").len(), 10);
        assert_eq!(ahead.get(100, 5).expect("going back costs a read, no more")[0], 100);
    }
}
