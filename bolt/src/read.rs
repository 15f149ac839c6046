//! Opening a file and finding buckets, keys and values in it.

use crate::cursor::{Cursor, Element, Pairs};
use crate::layout::*;
use bytes::Bytes;
use std::io;

/// A page with its overflow may have so many bytes. etcd's largest page holds one request
/// (1.5 MiB unless configured otherwise); bbolt itself would go to 2 GiB.
pub const MAX_PAGE_BYTES: u64 = 256 << 20;

/// Levels of branch pages that are followed. A tree of 4 KiB pages needs 8 for 2^40 keys.
pub(crate) const MAX_DEPTH: usize = 48;

/// Where the bytes of a file come from.
pub trait Source {
    /// Bytes.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The bytes cannot be read, or fewer than asked for are there.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Source for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let bytes = from.and_then(|rest| rest.get(..buffer.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither meta page is whole.
    #[error("no valid meta page: page 0: {first}; page 1: {second} (is this a bbolt file?)")]
    NoMeta {
        /// What is wrong with page 0.
        first: &'static str,
        /// What is wrong with page 1.
        second: &'static str,
    },
    /// The meta page counts pages that the file does not have.
    #[error("the file is cut short: {size} bytes, its meta page counts {needed}")]
    Truncated {
        /// Bytes of the file.
        size: u64,
        /// Bytes of the pages that are counted.
        needed: u64,
    },
    /// A page is not what the page that names it says, or cannot be read as a page.
    #[error("page {page} (offset {offset}): {reason}")]
    Page {
        /// Number of the page.
        page: u64,
        /// Where it lies in the file, bytes.
        offset: u64,
        /// What is wrong with it, for a person.
        reason: String,
    },
    /// The source did not give the bytes.
    #[error("reading {length} bytes at offset {offset}: {source}")]
    Io {
        /// Where they lie in the file, bytes.
        offset: u64,
        /// How many were asked for.
        length: usize,
        /// What the source said.
        source: io::Error,
    },
}

/// An open file.
#[derive(Debug)]
pub struct Db<S> {
    source: S,
    meta: Meta,
}

/// A branch, leaf or freelist page with its overflow, bounds of the element table checked.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub id: u64,
    pub offset: u64,
    pub flags: u16,
    pub count: usize,
    pub overflow: u32,
    pub bytes: Bytes,
}

/// Where the tree of a bucket begins.
#[derive(Clone, Debug)]
pub(crate) enum Root {
    Page(u64),
    /// The leaf page inside the bucket's value.
    Inline(Page),
}

/// One bucket of an open file.
#[derive(Debug)]
pub struct Bucket<'a, S> {
    db: &'a Db<S>,
    root: Root,
    sequence: u64,
}

impl<S: Source> Db<S> {
    /// Takes the newer of the two meta pages that is whole. `source` must not change while the file
    /// is open, and must not have the 32 bytes of digest behind it (see [`crate::digest_follows`]).
    ///
    /// # Errors
    /// [`Error::NoMeta`], [`Error::Truncated`] and [`Error::Io`]; pages are not looked at yet.
    pub fn open(source: S) -> Result<Db<S>, Error> {
        let first = meta_at(&source, 0)?;
        // page 1 lies one page size in; if page 0 does not tell it, bbolt tries them all
        let second = match first {
            Ok(Meta { page_size, .. }) => meta_at(&source, u64::from(page_size))?,
            Err(_) => second_meta(&source)?,
        };
        let meta = match (first, second) {
            (Ok(first), Ok(second)) if second.txid > first.txid => second,
            (Ok(first), _) => first,
            (Err(_), Ok(second)) => second,
            (Err(first), Err(second)) => return Err(Error::NoMeta { first, second }),
        };
        let db = Db { source, meta };
        db.believe_meta()?;
        Ok(db)
    }

    fn believe_meta(&self) -> Result<(), Error> {
        let Meta { page_size, root, freelist, high_water, txid, .. } = self.meta;
        let page = txid % 2;
        let offset = page * u64::from(page_size);
        let wrong = |reason| Err(Error::Page { page, offset, reason });
        if !page_size.is_power_of_two() || !(1 << 10..=1 << 16).contains(&page_size) {
            return wrong(format!("a page size of {page_size}"));
        }
        let size = self.source.size();
        match high_water.checked_mul(u64::from(page_size)) {
            Some(needed) if needed <= size => {}
            needed => return Err(Error::Truncated { size, needed: needed.unwrap_or(u64::MAX) }),
        }
        if !(2..high_water).contains(&root) {
            return wrong(format!("the root page {root} is not among the {high_water} pages"));
        }
        if freelist != NO_FREELIST && !(2..high_water).contains(&freelist) {
            return wrong(format!("the freelist page {freelist} is not among the {high_water} pages"));
        }
        Ok(())
    }

    /// The meta page in force.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Bytes of the file that its meta page counts.
    pub fn bytes(&self) -> u64 {
        self.meta.high_water * u64::from(self.meta.page_size)
    }

    /// The bucket of all buckets. It has no pairs of its own.
    pub fn root(&self) -> Bucket<'_, S> {
        Bucket { db: self, root: Root::Page(self.meta.root), sequence: self.meta.sequence }
    }

    /// A bucket of the top level; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of the pages on the way to it.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_, S>>, Error> {
        self.root().bucket(name)
    }

    /// Names of the buckets of the top level, ascending.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of any page of the top level.
    pub fn buckets(&self) -> Result<Vec<Bytes>, Error> {
        self.root().buckets()
    }

    pub(crate) fn offset(&self, page: u64) -> u64 {
        page.saturating_mul(u64::from(self.meta.page_size))
    }

    pub(crate) fn wrong(&self, page: u64, reason: impl Into<String>) -> Error {
        Error::Page { page, offset: self.offset(page), reason: reason.into() }
    }

    pub(crate) fn page(&self, id: u64) -> Result<Page, Error> {
        let Meta { page_size, high_water, .. } = self.meta;
        if !(2..high_water).contains(&id) {
            return Err(self.wrong(id, format!("out of bounds: the file has {high_water} pages")));
        }
        let offset = self.offset(id);
        let mut bytes = vec![0; page_size as usize];
        self.read(offset, &mut bytes)?;
        let found = u64_at(&bytes, 0);
        if found != id {
            return Err(self.wrong(id, format!("says that it is page {found}")));
        }
        let overflow = u32_at(&bytes, 12);
        if u64::from(overflow) >= high_water - id {
            return Err(self.wrong(id, format!("{overflow} overflow pages go beyond the file's {high_water} pages")));
        }
        let length = (u64::from(overflow) + 1) * u64::from(page_size);
        if length > MAX_PAGE_BYTES {
            return Err(self.wrong(id, format!("{length} bytes in one page, more than {MAX_PAGE_BYTES}")));
        }
        if overflow > 0 {
            bytes.resize(usize::try_from(length).expect("bounded"), 0);
            self.read(offset + u64::from(page_size), &mut bytes[page_size as usize..])?;
        }
        Page::parse(id, offset, bytes.into()).map_err(|reason| self.wrong(id, reason))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let length = buffer.len();
        self.source.read_at(offset, buffer).map_err(|source| Error::Io { offset, length, source })
    }
}

/// Page 1 of a file whose page 0 does not tell the page size.
fn second_meta<S: Source>(source: &S) -> Result<Result<Meta, &'static str>, Error> {
    for size in (10..=16).map(|shift| 1u32 << shift) {
        if let Ok(meta) = meta_at(source, u64::from(size))?
            && meta.page_size == size
        {
            return Ok(Ok(meta));
        }
    }
    Ok(Err("not found at any page size"))
}

fn meta_at<S: Source>(source: &S, offset: u64) -> Result<Result<Meta, &'static str>, Error> {
    if offset.checked_add(META as u64).is_none_or(|end| end > source.size()) {
        return Ok(Err("the file is too short for it"));
    }
    let mut bytes = [0; META];
    source.read_at(offset, &mut bytes).map_err(|source| Error::Io { offset, length: META, source })?;
    Ok(Meta::decode(&bytes))
}

impl Page {
    /// `bytes` has a header at least.
    pub(crate) fn parse(id: u64, offset: u64, bytes: Bytes) -> Result<Page, String> {
        let flags = u16_at(&bytes, 8);
        let count = usize::from(u16_at(&bytes, 10));
        let overflow = u32_at(&bytes, 12);
        match flags {
            BRANCH | LEAF if HEADER + count * ELEMENT > bytes.len() => {
                Err(format!("{count} elements in {} bytes", bytes.len()))
            }
            BRANCH | LEAF | FREELIST => Ok(Page { id, offset, flags, count, overflow, bytes }),
            flags => Err(format!("of an unknown kind (flags {flags:#x})")),
        }
    }

    /// Only branch and leaf pages can stand in a tree.
    pub(crate) fn in_tree(&self) -> Result<(), String> {
        if self.flags == FREELIST { Err("a freelist page in a tree".into()) } else { Ok(()) }
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.flags == LEAF
    }

    /// Key of element `at` of a leaf or branch page.
    pub(crate) fn key(&self, at: usize) -> Result<Bytes, String> {
        let element = HEADER + at * ELEMENT;
        let (pos, ksize) = if self.is_leaf() {
            (u32_at(&self.bytes, element + 4), u32_at(&self.bytes, element + 8))
        } else {
            (u32_at(&self.bytes, element), u32_at(&self.bytes, element + 4))
        };
        self.slice(at, element as u64 + u64::from(pos), ksize)
    }

    /// Child page of element `at` of a branch page.
    pub(crate) fn child(&self, at: usize) -> u64 {
        u64_at(&self.bytes, HEADER + at * ELEMENT + 8)
    }

    /// Element `at` of a leaf page.
    pub(crate) fn element(&self, at: usize) -> Result<Element, String> {
        let element = HEADER + at * ELEMENT;
        let [flags, pos, ksize, vsize] = [0, 4, 8, 12].map(|field| u32_at(&self.bytes, element + field));
        let start = element as u64 + u64::from(pos);
        let key = self.slice(at, start, ksize)?;
        let value = self.slice(at, start + u64::from(ksize), vsize)?;
        Ok(Element { key, value, bucket: flags & IS_BUCKET != 0 })
    }

    fn slice(&self, at: usize, start: u64, length: u32) -> Result<Bytes, String> {
        let end = start + u64::from(length);
        if end > self.bytes.len() as u64 {
            return Err(format!("element {at} ends at byte {end} of a page of {} bytes", self.bytes.len()));
        }
        Ok(self.bytes.slice(start as usize..end as usize))
    }
}

/// What a bucket's value says.
pub(crate) fn bucket_root(value: &Bytes, page: u64, offset: u64) -> Result<(Root, u64), String> {
    if value.len() < BUCKET {
        return Err(format!("a bucket in {} bytes", value.len()));
    }
    let (root, sequence) = (u64_at(value, 0), u64_at(value, 8));
    if root != 0 {
        return Ok((Root::Page(root), sequence));
    }
    if value.len() < BUCKET + HEADER {
        return Err(format!("an inline bucket in {} bytes", value.len()));
    }
    let inline = Page::parse(page, offset, value.slice(BUCKET..))?;
    if !inline.is_leaf() {
        return Err("an inline bucket that is no leaf".into());
    }
    Ok((Root::Inline(inline), sequence))
}

impl<'a, S: Source> Bucket<'a, S> {
    /// A counter that bbolt keeps for the bucket; etcd does not use it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A bucket in this one; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of the pages on the way to it.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'a, S>>, Error> {
        let mut cursor = self.cursor();
        match cursor.seek(name)? {
            Some(element) if element.key == name && element.bucket => {
                let (page, offset) = cursor.place();
                let (root, sequence) =
                    bucket_root(&element.value, page, offset).map_err(|reason| self.db.wrong(page, reason))?;
                Ok(Some(Bucket { db: self.db, root, sequence }))
            }
            _ => Ok(None),
        }
    }

    /// Names of the buckets in this one, ascending.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of any page of this bucket.
    pub fn buckets(&self) -> Result<Vec<Bytes>, Error> {
        let mut names = Vec::new();
        let mut cursor = self.cursor();
        while let Some(element) = cursor.next()? {
            if element.bucket {
                names.push(element.key);
            }
        }
        Ok(names)
    }

    /// The value of a key; `None` also if the key names a bucket.
    ///
    /// # Errors
    /// [`Error::Page`] and [`Error::Io`], of the pages on the way to it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.cursor().seek(key)?;
        Ok(found.filter(|element| element.key == key && !element.bucket).map(|element| element.value))
    }

    /// Every (key, value), ascending by key; buckets in this bucket are passed over.
    pub fn pairs(&self) -> Pairs<'a, S> {
        Pairs::new(self.cursor(), None)
    }

    /// The pairs whose keys are not below `key`.
    pub fn pairs_from(&self, key: &[u8]) -> Pairs<'a, S> {
        Pairs::new(self.cursor(), Some(key.to_vec()))
    }

    pub(crate) fn cursor(&self) -> Cursor<'a, S> {
        Cursor::new(self.db, self.root.clone())
    }
}
