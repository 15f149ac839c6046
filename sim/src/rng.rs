//! Seeded generators, one per purpose: a draw added in one place does not shift another.

/// xoshiro256**: small, fast, the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

fn splitmix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator for one purpose of one seed.
    pub fn new(seed: u64, purpose: &str) -> Rng {
        let mut x = seed ^ 0x5851_f42d_4c95_7f2d;
        for byte in purpose.bytes() {
            x = splitmix(&mut x) ^ u64::from(byte);
        }
        Rng { s: std::array::from_fn(|_| splitmix(&mut x)) }
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..n`; `n` > 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0);
        self.draw() % n
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in `n` of 10,000 draws.
    pub fn per_myriad(&mut self, n: u64) -> bool {
        self.below(10_000) < n
    }

    /// Mostly near `mean`, sometimes far above: the shape of real delays.
    pub fn delay(&mut self, mean: u64) -> u64 {
        let base = mean / 2 + self.below(mean.max(1));
        match self.below(1000) {
            0 => base * 50,
            1..=9 => base * 10,
            10..=99 => base * 3,
            _ => base,
        }
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for i in (1..of.len()).rev() {
            of.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_independent_and_repeatable() {
        let draw = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draw(7, "net"), draw(7, "net"));
        assert_ne!(draw(7, "net"), draw(7, "disk"));
        assert_ne!(draw(7, "net"), draw(8, "net"));
    }
}
