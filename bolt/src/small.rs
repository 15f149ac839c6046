//! A whole file at once.

use crate::write::{Diverged, Planner, Writer};

/// A bucket for [`write_all`]: its name and its pairs, ascending by key.
pub(crate) type Pairs<'a> = (&'a [u8], Vec<(Vec<u8>, Vec<u8>)>);

/// The bytes of a file with these buckets, ascending by name. For little input: everything is in
/// memory.
///
/// # Errors
/// Names or keys do not ascend, or a key or value has a size that bbolt does not take.
pub fn write_all(buckets: &[Pairs<'_>]) -> Result<Vec<u8>, Diverged> {
    let mut planner = Planner::new();
    for (name, pairs) in buckets {
        planner.bucket(name)?;
        for (key, value) in pairs {
            planner.pair(key.len(), value.len())?;
        }
    }
    let mut writer = Writer::new(planner.finish());
    for (name, pairs) in buckets {
        writer.bucket(name)?;
        for (key, value) in pairs {
            writer.pair(key, value)?;
        }
    }
    let mut file = writer.take();
    file.extend(writer.finish()?);
    Ok(file)
}
