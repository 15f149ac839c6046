//! The model: every version in one list, everything done the slow, obvious way.

use std::collections::BTreeSet;
use store::command::{Compare, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use store::{Error, KeyRange};

#[derive(Clone, Debug)]
pub struct Version {
    pub key: Vec<u8>,
    pub main: i64,
    pub create: i64,
    pub version: i64,
    pub lease: i64,
    pub value: Option<Vec<u8>>,
}

/// (key, create, mod, version, lease, value)
pub type Row = (Vec<u8>, i64, i64, i64, i64, Vec<u8>);

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub revision: i64,
    pub compacted: i64,
    pub versions: Vec<Version>,
    pub leases: BTreeSet<i64>,
}

/// What a reply says, values included.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Put(Option<Row>),
    Delete(i64, Vec<Row>),
    Range(Vec<Row>, i64, bool),
    Txn(bool, Vec<(i64, Said)>),
    Other,
}

impl Model {
    pub fn new() -> Model {
        Model { revision: 1, compacted: -1, ..Model::default() }
    }

    pub fn at(&self, key: &[u8], revision: i64) -> Option<&Version> {
        let last = self.versions.iter().rfind(|v| v.key == key && v.main <= revision)?;
        last.value.is_some().then_some(last)
    }

    pub fn live(&self, range: &KeyRange, revision: i64) -> Vec<Version> {
        let keys: BTreeSet<&Vec<u8>> = self.versions.iter().map(|v| &v.key).filter(|k| range.contains(k)).collect();
        keys.into_iter().filter_map(|key| self.at(key, revision).cloned()).collect()
    }

    pub fn range(&self, r: &RangeRequest<'_>) -> Result<Said, Error> {
        let revision = if r.revision <= 0 { self.revision } else { r.revision };
        if revision > self.revision {
            return Err(Error::FutureRev);
        }
        if revision < self.compacted {
            return Err(Error::Compacted);
        }
        let mut all = self.live(&KeyRange::new(r.key, r.range_end), revision);
        let count = all.len() as i64;
        if r.count_only {
            return Ok(Said::Range(Vec::new(), count, false));
        }
        let filters = r.min_mod != 0 || r.max_mod != 0 || r.min_create != 0 || r.max_create != 0;
        if r.limit > 0 && r.sort_order == 0 && !filters {
            all.truncate(r.limit as usize + 1);
        }
        all.retain(|v| r.max_mod == 0 || v.main <= r.max_mod);
        all.retain(|v| r.min_mod == 0 || v.main >= r.min_mod);
        all.retain(|v| r.max_create == 0 || v.create <= r.max_create);
        all.retain(|v| r.min_create == 0 || v.create >= r.min_create);
        match r.sort_target {
            0 => {}
            1 => all.sort_by_key(|v| v.version),
            2 => all.sort_by_key(|v| v.create),
            3 => all.sort_by_key(|v| v.main),
            _ => all.sort_by_key(|v| v.value.clone()),
        }
        if r.sort_order == 2 {
            // descending, but ties stay in key order
            all.sort_by(|a, b| a.key.cmp(&b.key));
            match r.sort_target {
                0 => all.reverse(),
                1 => all.sort_by_key(|v| -v.version),
                2 => all.sort_by_key(|v| -v.create),
                3 => all.sort_by_key(|v| -v.main),
                _ => all.sort_by_key(|v| std::cmp::Reverse(v.value.clone())),
            }
        }
        let more = r.limit > 0 && all.len() > r.limit as usize;
        if more {
            all.truncate(r.limit as usize);
        }
        let mut rows: Vec<Row> = all.iter().map(row).collect();
        if r.keys_only {
            for row in &mut rows {
                row.5.clear();
                if r.sort_target != 4 {
                    row.4 = 0;
                }
            }
        }
        Ok(Said::Range(rows, count, more))
    }

    pub fn check_put(&self, p: &PutRequest<'_>) -> Result<(), Error> {
        if p.lease != 0 && !self.leases.contains(&p.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (p.ignore_value || p.ignore_lease) && self.at(p.key, self.revision).is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    pub fn put(&mut self, p: &PutRequest<'_>, main: i64) -> Said {
        let before = self.at(p.key, i64::MAX).cloned();
        let value = if p.ignore_value { before.clone().unwrap().value.unwrap() } else { p.value.to_vec() };
        self.versions.push(Version {
            key: p.key.to_vec(),
            main,
            create: before.as_ref().map_or(main, |b| b.create),
            version: before.as_ref().map_or(1, |b| b.version + 1),
            lease: if p.ignore_lease { before.as_ref().unwrap().lease } else { p.lease },
            value: Some(value),
        });
        Said::Put(before.filter(|_| p.prev_kv).as_ref().map(row))
    }

    pub fn delete(&mut self, range: &KeyRange, prev_kv: bool, main: i64) -> Said {
        let gone = self.live(range, i64::MAX);
        for v in &gone {
            let tombstone = Version { main, create: 0, version: 0, lease: 0, value: None, ..v.clone() };
            self.versions.push(tombstone);
        }
        Said::Delete(gone.len() as i64, if prev_kv { gone.iter().map(row).collect() } else { Vec::new() })
    }

    pub fn holds(&self, c: &Compare<'_>) -> bool {
        let one = |v: Option<&Version>| {
            let zero = Version { key: vec![], main: 0, create: 0, version: 0, lease: 0, value: Some(vec![]) };
            let v = v.unwrap_or(&zero);
            let ordering = match (c.target, c.operand) {
                (0, o) => v.version.cmp(&if let Operand::Version(n) = o { n } else { 0 }),
                (1, o) => v.create.cmp(&if let Operand::Create(n) = o { n } else { 0 }),
                (2, o) => v.main.cmp(&if let Operand::Mod(n) = o { n } else { 0 }),
                (3, o) => v.value.as_deref().unwrap().cmp(if let Operand::Value(b) = o { b } else { b"" }),
                (_, o) => v.lease.cmp(&if let Operand::Lease(n) = o { n } else { 0 }),
            };
            match c.result {
                0 => ordering.is_eq(),
                1 => ordering.is_gt(),
                2 => ordering.is_lt(),
                _ => ordering.is_ne(),
            }
        };
        let live = self.live(&c.range(), self.revision);
        if live.is_empty() { c.target != 3 && one(None) } else { live.iter().all(|v| one(Some(v))) }
    }

    pub fn txn(&mut self, t: &TxnRequest<'_>) -> Result<Said, Error> {
        let before = self.clone();
        before.check_branch(t)?;
        let main = self.revision + 1;
        let said = self.run(t, &before, main);
        if self.versions.len() > before.versions.len() {
            self.revision = main;
        }
        Ok(said.1)
    }

    pub fn branch<'r, 'a>(&self, t: &'r TxnRequest<'a>) -> (bool, &'r [RequestOp<'a>]) {
        let yes = t.compare.iter().all(|c| self.holds(c));
        (yes, if yes { &t.success } else { &t.failure })
    }

    pub fn check_branch(&self, t: &TxnRequest<'_>) -> Result<(), Error> {
        for op in self.branch(t).1 {
            match op {
                RequestOp::Range(r) => drop(self.range(r)?),
                RequestOp::Put(p) => self.check_put(p)?,
                RequestOp::Txn(t) => self.check_branch(t)?,
                _ => {}
            }
        }
        Ok(())
    }

    pub fn run(&mut self, t: &TxnRequest<'_>, before: &Model, main: i64) -> (i64, Said) {
        let (yes, ops) = before.branch(t);
        let mut said = Vec::new();
        for op in ops {
            let told = match op {
                RequestOp::Put(p) => self.put(p, main),
                RequestOp::DeleteRange(d) => self.delete(&d.range(), d.prev_kv, main),
                RequestOp::Range(r) => {
                    let mut now = self.clone();
                    now.revision = now.newest(before);
                    now.range(r).expect("checked")
                }
                RequestOp::Txn(t) => {
                    said.push(self.run(t, before, main));
                    continue;
                }
                RequestOp::None => unreachable!(),
            };
            said.push((self.newest(before), told));
        }
        (0, Said::Txn(yes, said))
    }

    pub fn newest(&self, before: &Model) -> i64 {
        before.revision + i64::from(self.versions.len() > before.versions.len())
    }

    pub fn end_lease(&mut self, lease: i64) {
        let main = self.revision + 1;
        let all = self.live(&KeyRange::all(), self.revision);
        let mut any = false;
        for v in all.iter().filter(|v| v.lease == lease) {
            self.delete(&KeyRange::new(&v.key, b""), false, main);
            any = true;
        }
        self.revision += i64::from(any);
        self.leases.remove(&lease);
    }
}

pub fn row(v: &Version) -> Row {
    (v.key.clone(), v.create, v.main, v.version, v.lease, v.value.clone().unwrap())
}
