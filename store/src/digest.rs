//! A running digest of what entries *did*: index, keys, revisions, values, leases, alarms, members.
//! Equal on all members at the same applied index, whatever their files look like. It guards
//! against divergence and bad memory, not against an adversary.

use crate::Rev;

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// What kind of effect follows; part of the digest.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Effect {
    Entry = 1,
    Put,
    Delete,
    Compact,
    LeaseGrant,
    LeaseEnd,
    LeaseCheckpoint,
    Alarm,
    Disarm,
    Member,
    MemberGone,
    Conf,
    ClusterVersion,
    Auth,
    Founding,
}

/// Chained: each effect is mixed into everything before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    a: u64,
    b: u64,
}

/// High and low half of the product, folded.
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Digest {
    pub(crate) fn from_value(value: u128) -> Digest {
        Digest { a: value as u64, b: (value >> 64) as u64 }
    }

    pub(crate) fn value(&self) -> u128 {
        u128::from(self.a) | u128::from(self.b) << 64
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.a = fold(self.a ^ word ^ K0, K1 | 1).wrapping_add(self.b);
        self.b = fold(self.b.rotate_left(29) ^ word ^ K1, K0 | 1) ^ self.a.rotate_left(17);
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.word(value as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.word(effect as u64);
    }

    pub(crate) fn put(&mut self, rev: Rev, key: &[u8], value: &[u8], lease: i64) {
        self.effect(Effect::Put);
        self.int(rev.main);
        self.int(rev.sub);
        self.bytes(key);
        self.bytes(value);
        self.int(lease);
    }

    pub(crate) fn delete(&mut self, rev: Rev, key: &[u8]) {
        self.effect(Effect::Delete);
        self.int(rev.main);
        self.int(rev.sub);
        self.bytes(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nearby_inputs_differ_in_both_halves() {
        let (mut low, mut high) = (BTreeSet::new(), BTreeSet::new());
        for len in 0..40 {
            for fill in 0..20u8 {
                let mut digest = Digest::default();
                digest.bytes(&vec![fill; len]);
                low.insert(digest.value() as u64);
                high.insert((digest.value() >> 64) as u64);
            }
        }
        // 20 fills of 40 lengths; the empty string counts once
        assert_eq!((low.len(), high.len()), (781, 781));
    }

    #[test]
    fn order_counts_and_the_value_survives_storing() {
        let (mut one, mut two) = (Digest::default(), Digest::default());
        one.word(1);
        one.word(2);
        two.word(2);
        two.word(1);
        assert_ne!(one, two);
        assert_eq!(Digest::from_value(one.value()), one);
    }
}
