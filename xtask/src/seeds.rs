//! `7`, or `1..30` with both ends.

use std::str::FromStr;

/// A first and a last seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    pub fn iter(self) -> impl Iterator<Item = u64> {
        self.first..=self.last
    }

    pub fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        if first > last {
            return Err(format!("{text:?} ends before it begins"));
        }
        Ok(Seeds { first, last })
    }
}
