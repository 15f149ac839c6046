//! The write-ahead log beside an etcd's file: how far it goes. An etcd that was killed has entries
//! there that its file does not have yet; whoever takes the file alone must know.
//!
//! ```text
//! frame   length u64 (low 56 bits; of the top byte the low 3 bits count padding), record, padding
//! record  protobuf {type=1, crc=2, data=3}; type 2: Entry {type=1, term=2, index=3, data=4}
//! ```

use prost::Message;
use std::fs;
use std::io;
use std::path::Path;

const ENTRY: i64 = 2;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(bytes = "vec", tag = "3")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(uint64, tag = "3")]
    index: u64,
}

/// Index of the last entry of the log in `dir`; 0 if there is none. What cannot be read ends the
/// search: it is a torn tail, or for etcd to judge.
pub fn last_entry(dir: &Path) -> io::Result<u64> {
    let mut files: Vec<_> = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "wal"));
    files.sort();
    for path in files.iter().rev() {
        let last = last_entry_in(&fs::read(path)?);
        if last > 0 {
            return Ok(last);
        }
    }
    Ok(0)
}

fn last_entry_in(bytes: &[u8]) -> u64 {
    let (mut rest, mut last) = (bytes, 0);
    while let Some((field, tail)) = rest.split_at_checked(8) {
        let field = u64::from_le_bytes(field.try_into().expect("eight bytes"));
        let padding = if field >> 63 == 1 { field >> 56 & 7 } else { 0 };
        let len = field & ((1 << 56) - 1);
        let (Ok(len), Ok(whole)) = (usize::try_from(len), usize::try_from(len + padding)) else { break };
        let Some(frame) = tail.get(..whole).filter(|_| len > 0) else { break };
        let Ok(record) = Record::decode(&frame[..len]) else { break };
        if record.kind == ENTRY {
            last = Entry::decode(&record.data[..]).map_or(last, |entry| entry.index);
        }
        rest = &tail[whole..];
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: i64, data: Vec<u8>) -> Vec<u8> {
        let record = Record { kind, data }.encode_to_vec();
        let padding = (8 - record.len() % 8) % 8;
        let mut field = record.len() as u64;
        if padding > 0 {
            field |= (0x80 | padding as u64) << 56;
        }
        [&field.to_le_bytes()[..], &record, &vec![0; padding]].concat()
    }

    #[test]
    fn the_last_entry_counts_and_a_torn_tail_ends_it() {
        let entry = |index| frame(ENTRY, Entry { index }.encode_to_vec());
        let whole = [frame(1, b"who".to_vec()), entry(4), frame(3, vec![7; 100]), entry(9)].concat();
        assert_eq!(last_entry_in(&[whole.clone(), vec![0; 64]].concat()), 9);
        let torn = whole.len() - entry(9).len() + 5;
        assert_eq!(last_entry_in(&whole[..torn]), 4);
        assert_eq!(last_entry_in(b""), 0);
        assert_eq!(last_entry_in(&[0xff; 40]), 0);
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0xff;
            last_entry_in(&bad);
        }
    }

    #[test]
    fn the_last_file_with_an_entry_counts() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |index| frame(ENTRY, Entry { index }.encode_to_vec());
        for (name, index) in [("0-0.wal", 50), ("1-5.wal", 70), ("2-9.wal", 0), ("3.tmp", 99)] {
            fs::write(dir.path().join(name), entry(index)).unwrap();
        }
        assert_eq!(last_entry(dir.path()).unwrap(), 70);
        assert!(last_entry(&dir.path().join("absent")).is_err());
    }
}
