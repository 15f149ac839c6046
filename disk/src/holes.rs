//! A disk that refuses to read. A few pages that cannot be read are damage like wrong bytes are,
//! and the other members, or an older checkpoint, have what was there. A disk that reads nothing is
//! none of that.
//!
//! At a start [`Patient`] stands before the files: it reads again what was refused, and then says
//! which page it is ([`Fault::io`] makes damage of that). [`Holes`] goes on where the other pages
//! are needed too.

use crate::{Fault, File, Files, How, PAGE};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How often a read is tried.
const TRIES: usize = 5;
/// What stands in for a page of the log that cannot be read. Zeros would say that nothing was
/// written there, and what a client can know might be what it wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoleMark([u8; 16]);

impl HoleMark {
    /// `salt`: drawn for this start.
    pub(crate) fn new(salt: u64) -> HoleMark {
        let mut mark = *b"unread: ........";
        mark[8..].copy_from_slice(&salt.to_le_bytes());
        HoleMark(mark)
    }

    /// True if these bytes, from the beginning of a sector on, are of a page that could not be
    /// read.
    pub(crate) fn is_hole(self, bytes: &[u8]) -> bool {
        !bytes.is_empty() && bytes.chunks(self.0.len()).all(|part| *part == self.0[..part.len()])
    }
}

/// What a system says when the medium does not give the bytes, rather than that it lacks something
/// itself: EIO, ENODATA, EBADMSG, EILSEQ, EUCLEAN, EREMOTEIO.
const OF_THE_MEDIUM: [i32; 6] = [5, 61, 74, 84, 117, 121];

fn is_of_the_medium(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| OF_THE_MEDIUM.contains(&errno))
}

/// A page that the disk does not give, again and again.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) offset: u64,
    error: io::Error,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk cannot read this place: {}", self.error)
    }
}

impl std::error::Error for Unreadable {}

impl Unreadable {
    fn at(offset: u64, error: io::Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Unreadable { offset, error })
    }

    pub(crate) fn of(error: &io::Error) -> Option<&Unreadable> {
        error.get_ref()?.downcast_ref()
    }
}

/// True if the disk refused to read a place, and others may be readable.
pub(crate) fn is_unreadable(fault: &Fault) -> bool {
    matches!(fault, Fault::Io { error, .. } if is_of_the_medium(error))
}

/// The bytes of `offset..offset + len`, page by page.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = Range<usize>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let to_end = (PAGE - (offset + done as u64) % PAGE) as usize;
        let page = done..len.min(done + to_end);
        done = page.end;
        (!page.is_empty()).then_some(page)
    })
}

fn try_often(file: &dyn File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut result = file.read_at(offset, into);
    for _ in 1..TRIES {
        if result.is_ok() {
            break;
        }
        result = file.read_at(offset, into);
    }
    result
}

/// Files for a start: reads that are refused are tried again, and what stays refused is damaged.
/// Only where the disk reads something else.
pub struct Patient(Arc<dyn Files>);

impl Patient {
    pub fn before(files: &Arc<dyn Files>) -> Arc<dyn Files> {
        Arc::new(Patient(Arc::clone(files)))
    }
}

/// A disk that does not give the first page of any other file is not one with a few bad places.
fn reads_anything(files: &dyn Files, but: &str) -> bool {
    let mut byte = [0];
    ["log", "state", "incoming", ""].into_iter().any(|dir| {
        let names = files.list(dir).unwrap_or_default();
        let paths = names.into_iter().map(|name| if dir.is_empty() { name } else { format!("{dir}/{name}") });
        paths.filter(|path| path != but).any(|path| {
            let read = files.open(&path, How::Read).and_then(|file| file.read_at(0, &mut byte));
            read.is_ok_and(|got| got > 0)
        })
    })
}

/// A file that is read in a way of its own.
struct ReadBy<R> {
    file: Arc<dyn File>,
    read: R,
}

impl<R: Fn(&dyn File, u64, &mut [u8]) -> io::Result<usize> + Send + Sync> File for ReadBy<R> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        (self.read)(&*self.file, offset, into)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.file.write_at(offset, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
}

impl Files for Patient {
    fn open(&self, path: &str, how: How) -> io::Result<Arc<dyn File>> {
        let files = Arc::clone(&self.0);
        let file = match files.open(path, how) {
            Err(error) if is_of_the_medium(&error) && how != How::Create && reads_anything(&*files, path) => {
                return Err(Unreadable::at(0, error));
            }
            other => other?,
        };
        let path = path.to_string();
        let read = move |file: &dyn File, offset: u64, into: &mut [u8]| {
            read_patiently(file, offset, into, || reads_anything(&*files, &path))
        };
        Ok(Arc::new(ReadBy { file, read }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.0.make_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
}

/// `others`: the disk reads other files.
fn read_patiently(file: &dyn File, offset: u64, into: &mut [u8], others: impl Fn() -> bool) -> io::Result<usize> {
    match try_often(file, offset, into) {
        Err(error) if is_of_the_medium(&error) && others() => {}
        other => return other,
    }
    let mut done = 0;
    for page in pages(offset, into.len()) {
        let (at, len) = (offset + page.start as u64, page.len());
        let got = match try_often(file, at, &mut into[page]) {
            Err(error) if is_of_the_medium(&error) => return Err(Unreadable::at(at, error)),
            other => other?,
        };
        done += got;
        if got < len {
            break;
        }
    }
    Ok(done)
}

/// A file of which some pages cannot be read: something else stands in for them.
pub(crate) struct Holes;

impl Holes {
    /// Zeros stand in for them.
    pub(crate) fn blank(file: Arc<dyn File>) -> Arc<dyn File> {
        let read = |file: &dyn File, offset: u64, into: &mut [u8]| read_around(file, offset, into, &[0; 16], |_| true);
        Arc::new(ReadBy { file, read })
    }

    /// What stands in for them is known as such ([`HoleMark::is_hole`]). A disk that reads nothing
    /// is told apart by [`Patient`], if that stands before it.
    pub(crate) fn marked(file: Arc<dyn File>, mark: HoleMark) -> Arc<dyn File> {
        let unread = |error: &io::Error| Unreadable::of(error).is_some();
        let read =
            move |file: &dyn File, offset: u64, into: &mut [u8]| read_around(file, offset, into, &mark.0, unread);
        Arc::new(ReadBy { file, read })
    }
}

/// `fill` stands in for pages that fail with an error for which `is_hole` is true.
fn read_around(
    file: &dyn File,
    offset: u64,
    into: &mut [u8],
    fill: &[u8; 16],
    is_hole: impl Fn(&io::Error) -> bool,
) -> io::Result<usize> {
    match file.read_at(offset, into) {
        Err(error) if is_hole(&error) => {}
        other => return other,
    }
    let there = file.len()?.saturating_sub(offset).min(into.len() as u64) as usize;
    for page in pages(offset, there) {
        let (at, len) = (offset + page.start as u64, page.len());
        match file.read_at(at, &mut into[page.clone()]) {
            Ok(got) if got == len => continue,
            Err(error) if !is_hole(&error) => return Err(error),
            _ => {}
        }
        let fill = fill.iter().cycle().skip(at as usize % fill.len());
        into[page].iter_mut().zip(fill).for_each(|(byte, fill)| *byte = *fill);
    }
    Ok(there)
}
