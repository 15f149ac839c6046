//! Keys, values, chance: the same at each run.

use crate::args::{Load, Order};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Bytes of the time that a value begins with.
pub const STAMP: usize = 8;

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Now, for the beginning of a value: nanoseconds since this program's first stamp.
pub fn stamp() -> [u8; STAMP] {
    (epoch().elapsed().as_nanos() as u64).to_be_bytes()
}

/// When a value with this beginning was sent, if it is one of ours.
pub fn stamped(value: &[u8]) -> Option<Instant> {
    let nanos = u64::from_be_bytes(*value.first_chunk::<STAMP>()?);
    epoch().checked_add(std::time::Duration::from_nanos(nanos)).filter(|at| *at <= Instant::now())
}

/// Chance that repeats: the same numbers at each run.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

/// Bytes that do not compress, the same at each run.
pub fn noise(len: usize) -> Vec<u8> {
    let mut chance = Chance::new(7);
    (0..len).map(|_| chance.below(256) as u8).collect()
}

/// Appends the key of a number: all keys of a prefix are equally long and sort as their numbers.
pub fn key(out: &mut Vec<u8>, prefix: &str, number: u64) {
    out.extend_from_slice(prefix.as_bytes());
    let mut digits = [b'0'; 12];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

/// The number of a key that [`key`] made; 0 for others.
pub fn number_of(key: &[u8]) -> u64 {
    let digits = key.last_chunk::<12>().and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The first key behind all that begin with `prefix`.
pub fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 255 {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Draws numbers of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Arc<str>,
    order: Order,
    count: u64,
    chance: Chance,
    next: u64,
    step: u64,
}

impl Keys {
    /// The share of thread `thread` of `threads`.
    pub fn new(load: &Load, thread: usize) -> Keys {
        Keys {
            prefix: load.target.prefix.as_str().into(),
            order: load.order,
            count: load.keys,
            chance: Chance::new(thread as u64 + 1),
            next: thread as u64,
            step: load.target.threads as u64,
        }
    }

    pub fn draw(&mut self, out: &mut Vec<u8>) {
        let number = match self.order {
            Order::Random => self.chance.below(self.count),
            Order::Sequential => {
                let number = self.next % self.count;
                self.next += self.step;
                number
            }
        };
        key(out, &self.prefix, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        let text = |number| {
            let mut out = Vec::new();
            key(&mut out, "/p/", number);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(text(1_234), "/p/000000001234");
        assert_eq!(number_of(text(1_234).as_bytes()), 1_234);
        assert_eq!(number_of(b"short"), 0);
        assert_eq!(text(0).len(), text(u64::from(u32::MAX)).len());
        assert_eq!(end_of("/p/"), b"/p0");
        assert_eq!(end_of("\u{7f}"), [0x80]);
    }

    #[test]
    fn chance_repeats_and_keeps_its_limit() {
        let draw =
            |seed| (0..1000).map(|_| 0).scan(Chance::new(seed), |c, _: i32| Some(c.below(10))).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut counts = [0; 10];
        draw(3).into_iter().for_each(|n| counts[n as usize] += 1);
        assert!(counts.iter().all(|n| (60..140).contains(n)), "{counts:?}");
    }
}
