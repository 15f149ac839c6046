//! Verifies the rows of an image without building anything of them.

use crate::image::{END, Varints, open_block, whole_block};
use crate::protobuf::Malformed;
use crate::record::Damage;

/// Takes whole blocks in their order, then says whether they are all.
#[derive(Debug, Default)]
pub struct RowsCheck {
    keys: u64,
    ended: bool,
}

impl RowsCheck {
    /// The next blocks, at least one: nobody writes none.
    ///
    /// # Errors
    /// Anything but whole blocks. The offset counts in `bytes`.
    pub fn blocks(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut at = 0;
        loop {
            let wrong = |Malformed { what, .. }| Damage::new(at as u64, what);
            let block = whole_block(&bytes[at..]).map_err(wrong)?;
            let block = block.ok_or_else(|| wrong(Malformed::new("a block is cut short")))?;
            self.block(block).map_err(wrong)?;
            at += block.len();
            if at == bytes.len() {
                return Ok(());
            }
        }
    }

    fn block(&mut self, block: &[u8]) -> Result<(), Malformed> {
        if self.ended {
            return Err(Malformed::new("a block behind the end"));
        }
        let (keys, payload) = open_block(block)?;
        if keys != END {
            self.keys += u64::from(keys);
            return Ok(());
        }
        self.ended = true;
        match Varints::new(payload).next()? {
            total if total == self.keys => Ok(()),
            total => Err(Malformed::new(format!("{} keys where the end says {total}", self.keys))),
        }
    }

    /// Every block was given.
    ///
    /// # Errors
    /// If the last one is not there.
    pub fn finish(self) -> Result<(), Damage> {
        match self.ended {
            true => Ok(()),
            false => Err(Damage::new(0, "rows are cut short")),
        }
    }
}
