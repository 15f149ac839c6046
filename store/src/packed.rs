//! A version of a key in 24 bytes.
//!
//! Most versions need few of the bits that a [`Version`] has room for: a key was written once, or
//! has no lease, or its change was the first of its transaction. Each such shape is a form of its
//! own; a version that fits none of them lies in a box. Every form gives back exactly what was put
//! in.

use crate::Handle;
use crate::index::Version;

/// An unsigned number of `N` bytes, little endian.
#[derive(Clone, Copy, Debug)]
struct Short<const N: usize>([u8; N]);

impl<const N: usize> Short<N> {
    /// None if the number needs more bytes.
    fn new(number: u64) -> Option<Short<N>> {
        let bytes = number.to_le_bytes();
        let (low, high) = bytes.split_first_chunk()?;
        high.iter().all(|byte| *byte == 0).then_some(Short(*low))
    }

    /// None if it is negative, or needs more bytes.
    fn signed(number: i64) -> Option<Short<N>> {
        Short::new(u64::try_from(number).ok()?)
    }

    fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }

    /// Of a number shorter than 64 bits.
    fn get_signed(self) -> i64 {
        const { assert!(N < 8) };
        self.get() as i64
    }

    /// Of a number of at most 32 bits.
    fn get_u32(self) -> u32 {
        const { assert!(N <= 4) };
        self.get() as u32
    }
}

/// A handle in ten bytes: 31 bits of the segment (ids have gaps between them), 27 of the offset
/// (segments up to 128 MiB), 22 of the length (records below 4 MiB).
#[derive(Clone, Copy, Debug)]
struct Place([u8; 10]);

const SEGMENT_BITS: u32 = 31;
const OFFSET_BITS: u32 = 27;
const LEN_BITS: u32 = 22;
const _: () = assert!(SEGMENT_BITS + OFFSET_BITS + LEN_BITS == 80);

impl Place {
    fn new(handle: Handle) -> Option<Place> {
        let Handle { segment, offset, len } = handle;
        if segment >> SEGMENT_BITS != 0 || offset >> OFFSET_BITS != 0 || len >> LEN_BITS != 0 {
            return None;
        }
        let above = u128::from(segment) << OFFSET_BITS | u128::from(offset);
        let bytes = (above << LEN_BITS | u128::from(len)).to_le_bytes();
        let (low, _) = bytes.split_first_chunk().expect("16 bytes");
        Some(Place(*low))
    }

    fn handle(self) -> Handle {
        let mut bytes = [0; 16];
        bytes[..10].copy_from_slice(&self.0);
        let bits = u128::from_le_bytes(bytes);
        let field = |at: u32, width: u32| (bits >> at) as u32 & ((1 << width) - 1);
        Handle {
            segment: field(OFFSET_BITS + LEN_BITS, SEGMENT_BITS),
            offset: field(LEN_BITS, OFFSET_BITS),
            len: field(0, LEN_BITS),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Packed(Form);

#[derive(Clone, Debug)]
enum Form {
    /// The first version of a key since it was created, without a lease.
    First {
        main: Short<6>,
        sub: Short<3>,
        place: Place,
    },
    /// The same on a lease, first of its transaction.
    Leased {
        main: Short<5>,
        lease: [u8; 8],
        place: Place,
    },
    /// A later version, created `back` revisions ago; no lease, first of its transaction.
    Later {
        main: Short<6>,
        back: Short<4>,
        version: Short<3>,
        place: Place,
    },
    Tombstone {
        main: Short<6>,
        sub: Short<3>,
        place: Place,
    },
    Wide(Box<Version>),
}

const _: () = assert!(size_of::<Packed>() == 24);

impl Form {
    fn tombstone(version: &Version) -> Option<Form> {
        let (main, sub) = (Short::signed(version.main)?, Short::new(version.sub.into())?);
        let bare = version.create == 0 && version.lease == 0;
        bare.then_some(Form::Tombstone { main, sub, place: Place::new(version.handle)? })
    }

    fn first(version: &Version) -> Option<Form> {
        let (main, sub) = (Short::signed(version.main)?, Short::new(version.sub.into())?);
        Some(Form::First { main, sub, place: Place::new(version.handle)? })
    }

    fn leased(version: &Version) -> Option<Form> {
        let (main, lease) = (Short::signed(version.main)?, version.lease.to_le_bytes());
        let place = Place::new(version.handle)?;
        (version.sub == 0).then_some(Form::Leased { main, lease, place })
    }

    fn later(version: &Version) -> Option<Form> {
        let (main, number) = (Short::signed(version.main)?, Short::signed(version.version)?);
        let back = Short::signed(version.main.checked_sub(version.create)?)?;
        let place = Place::new(version.handle)?;
        let plain = version.sub == 0 && version.lease == 0;
        plain.then_some(Form::Later { main, back, version: number, place })
    }
}

impl Packed {
    pub(crate) fn new(version: Version) -> Packed {
        let first = version.version == 1 && version.create == version.main;
        let form = if version.is_tombstone() {
            Form::tombstone(&version)
        } else if first && version.lease == 0 {
            Form::first(&version)
        } else if first {
            Form::leased(&version)
        } else {
            Form::later(&version)
        };
        Packed(form.unwrap_or_else(|| Form::Wide(Box::new(version))))
    }

    pub(crate) fn main(&self) -> i64 {
        match &self.0 {
            Form::First { main, .. } | Form::Later { main, .. } | Form::Tombstone { main, .. } => main.get_signed(),
            Form::Leased { main, .. } => main.get_signed(),
            Form::Wide(version) => version.main,
        }
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        match &self.0 {
            Form::Tombstone { .. } => true,
            Form::Wide(version) => version.is_tombstone(),
            Form::First { .. } | Form::Leased { .. } | Form::Later { .. } => false,
        }
    }

    pub(crate) fn get(&self) -> Version {
        match self.0 {
            Form::First { main, sub, place } => {
                let (main, sub, handle) = (main.get_signed(), sub.get_u32(), place.handle());
                Version { main, create: main, version: 1, lease: 0, sub, handle }
            }
            Form::Leased { main, lease, place } => {
                let (main, lease) = (main.get_signed(), i64::from_le_bytes(lease));
                Version { main, create: main, version: 1, lease, sub: 0, handle: place.handle() }
            }
            Form::Later { main, back, version, place } => {
                let (main, version) = (main.get_signed(), version.get_signed());
                let create = main - back.get_signed();
                Version { main, create, version, lease: 0, sub: 0, handle: place.handle() }
            }
            Form::Tombstone { main, sub, place } => {
                let (main, sub, handle) = (main.get_signed(), sub.get_u32(), place.handle());
                Version { main, create: 0, version: 0, lease: 0, sub, handle }
            }
            Form::Wide(ref version) => **version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: Handle = Handle { segment: 40_000, offset: 64 << 20, len: 2 << 20 };
    const MAIN: i64 = 1 << 39;

    /// What every day brings, one of each form.
    fn common() -> [Version; 4] {
        let first = Version { main: MAIN, create: MAIN, version: 1, lease: 0, sub: 127, handle: HANDLE };
        let leased = Version { lease: 0x7587_1a2b_3c4d_5e6f, sub: 0, ..first };
        let later = Version { create: MAIN - (1 << 31), version: 16_000_000, sub: 0, ..first };
        let tombstone = Version { create: 0, version: 0, ..first };
        [first, leased, later, tombstone]
    }

    fn is_wide(packed: &Packed) -> bool {
        matches!(packed.0, Form::Wide(_))
    }

    #[test]
    fn the_common_ones_are_not_wide() {
        for version in common() {
            assert!(!is_wide(&Packed::new(version)), "{version:?}");
        }
    }

    #[test]
    fn each_limit_has_its_way_out() {
        let handle = Handle { segment: 1, offset: 4096, len: 100 };
        let first = Version { main: 9, create: 9, version: 1, lease: 0, sub: 0, handle };
        let rare = [
            Version { main: 1 << 48, create: 1 << 48, ..first },
            Version { main: 1 << 40, create: 1 << 40, lease: 7, ..first },
            Version { sub: 1, lease: 7, ..first },
            Version { sub: 1 << 24, ..first },
            Version { main: 1 << 33, version: 2, ..first },
            Version { version: 1 << 24, ..first },
            Version { version: 2, lease: 7, ..first },
            Version { version: 2, sub: 1, ..first },
            Version { handle: Handle { segment: 1 << 31, ..handle }, ..first },
            Version { handle: Handle { offset: 1 << 27, ..handle }, ..first },
            Version { handle: Handle { len: 1 << 22, ..handle }, ..first },
        ];
        for version in rare {
            let packed = Packed::new(version);
            assert!(is_wide(&packed), "{version:?}");
            assert_eq!(packed.get(), version);
        }
    }

    /// Changes the version so that its field of this number is `value`, cut to the field's width.
    fn set(version: &mut Version, field: usize, value: u64) {
        let small = value as u32;
        match field {
            0 => version.main = value as i64,
            1 => version.create = value as i64,
            2 => version.version = value as i64,
            3 => version.lease = value as i64,
            4 => version.sub = small,
            5 => version.handle.segment = small,
            6 => version.handle.offset = small,
            7 => version.handle.len = small,
            // the distance to its creation
            _ => version.create = version.main.wrapping_sub(value as i64),
        }
    }

    /// Every two fields, each at the edges of every width.
    #[test]
    fn what_is_put_in_comes_out() {
        let edges = (0..8).flat_map(|bytes| [-1i64, 0, 1].map(|more| (1u64 << (8 * bytes)).wrapping_add_signed(more)));
        let edges: Vec<u64> = edges.chain([i64::MAX as u64, i64::MIN as u64, u64::MAX]).collect();
        let fields = || (0..9).flat_map(|field| edges.iter().map(move |value| (field, *value)));
        let mut narrow = 0;
        for (a, b) in fields().flat_map(|a| fields().map(move |b| (a, b))) {
            for mut version in common() {
                set(&mut version, a.0, a.1);
                set(&mut version, b.0, b.1);
                let packed = Packed::new(version);
                assert_eq!(packed.get(), version);
                assert_eq!((packed.main(), packed.is_tombstone()), (version.main, version.is_tombstone()));
                narrow += u64::from(!is_wide(&packed));
            }
        }
        assert!(narrow > 10_000, "{narrow} of them were packed");
    }
}
