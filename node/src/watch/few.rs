//! A map by number that most often holds one thing: that one lies in the map itself. A tree's first
//! node has room for eleven.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) enum Few<V> {
    None,
    One(i64, V),
    Many(BTreeMap<i64, V>),
}

impl<V> Few<V> {
    /// What stood under the key is replaced.
    pub(super) fn insert(&mut self, key: i64, value: V) {
        match std::mem::replace(self, Few::None) {
            Few::One(other, held) if other != key => {
                *self = Few::Many(BTreeMap::from([(other, held), (key, value)]));
            }
            Few::None | Few::One(..) => *self = Few::One(key, value),
            Few::Many(mut map) => {
                map.insert(key, value);
                *self = Few::Many(map);
            }
        }
    }

    /// What stood under the key.
    pub(super) fn remove(&mut self, key: &i64) -> Option<V> {
        match self {
            Few::One(held, _) if held == key => match std::mem::replace(self, Few::None) {
                Few::One(_, value) => Some(value),
                _ => unreachable!("just seen"),
            },
            Few::None | Few::One(..) => None,
            Few::Many(map) => {
                let value = map.remove(key);
                if map.len() == 1
                    && let Some((key, value)) = map.pop_first()
                {
                    *self = Few::One(key, value);
                }
                value
            }
        }
    }

    /// What stands under the key.
    pub(super) fn get(&self, key: &i64) -> Option<&V> {
        match self {
            Few::One(held, value) if held == key => Some(value),
            Few::None | Few::One(..) => None,
            Few::Many(map) => map.get(key),
        }
    }

    /// What stands under the key.
    pub(super) fn get_mut(&mut self, key: &i64) -> Option<&mut V> {
        match self {
            Few::One(held, value) if held == key => Some(value),
            Few::None | Few::One(..) => None,
            Few::Many(map) => map.get_mut(key),
        }
    }

    /// Whether anything stands under the key.
    pub(super) fn contains_key(&self, key: &i64) -> bool {
        self.get(key).is_some()
    }

    /// Nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Few::None)
    }

    /// In the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&i64, &V)> {
        let (one, many) = match self {
            Few::None => (None, None),
            Few::One(key, value) => (Some((key, value)), None),
            Few::Many(map) => (None, Some(map)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// In the order of their numbers.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// In the order of their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&i64, &mut V)> {
        let (one, many) = match self {
            Few::None => (None, None),
            Few::One(key, value) => (Some((&*key, value)), None),
            Few::Many(map) => (None, Some(map)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<V> std::ops::Index<&i64> for Few<V> {
    type Output = V;

    fn index(&self, key: &i64) -> &V {
        self.get(key).expect("few: no such number")
    }
}

#[cfg(test)]
mod tests {
    use super::Few;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map() {
        let (mut few, mut map) = (Few::None, BTreeMap::new());
        let mut chance = 1u64;
        for step in 0..4000 {
            chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (key, insert) = (i64::from((chance >> 33) as u8 % 5) - 2, (chance >> 45) % 5 < 2);
            match insert {
                true => {
                    few.insert(key, step);
                    map.insert(key, step);
                }
                false => assert_eq!(few.remove(&key), map.remove(&key)),
            }
            assert!(few.iter().eq(map.iter()) && few.values().eq(map.values()));
            assert!(few.iter_mut().eq(map.iter_mut()));
            assert_eq!(few.is_empty(), map.is_empty());
            for key in -3..4 {
                assert_eq!(few.get(&key), map.get(&key));
                assert_eq!(few.get_mut(&key), map.get_mut(&key));
                assert_eq!(few.contains_key(&key), map.contains_key(&key));
            }
            assert_eq!(matches!(few, Few::Many(_)), map.len() > 1, "a tree for two or more");
        }
    }
}
