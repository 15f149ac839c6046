//! Locks and elections. Who has to wait does so until those before it are gone, and these go as
//! soon as it stands in the queue: both sides do the same in the same order.

use bytes::Bytes;
use prost::Message;
use wire::{
    Method, Rpc,
    etcdserverpb::{self as pb},
    mvccpb, v3electionpb as election, v3lockpb as lock,
};

use super::{
    calls::Call,
    generate::Generator,
    marks::{CREATED, CURRENT},
    normal::{decode, shorten, show},
    side::Side,
    step::Step,
};
use crate::raw::{Failure, PATIENCE};

/// Names of locks and elections; the second lies below the first, the third among other keys.
const NAMES: [&str; 5] = ["l", "l/1", "a", "", "e"];
const LEASES: [i64; 5] = [1, 2, 3, 4, 77];

impl Side {
    /// Waits for a lock.
    pub async fn lock(&mut self, r: &lock::LockRequest) -> String {
        let answer = self.stand_in_line(Rpc::Lock, &r.name, r.lease, r.encode_to_vec().into()).await;
        let Some(answer) = answer else { return "it waits already".to_owned() };
        let answer = answer.and_then(decode::<lock::LockResponse>);
        self.saw(&answer, |m| m.header.as_ref());
        show(answer, |m| {
            self.own.header(&mut m.header);
            m.key = self.own.place(&m.key);
        })
    }

    /// Waits to be elected.
    pub async fn campaign(&mut self, r: &election::CampaignRequest) -> String {
        let answer = self.stand_in_line(Rpc::Campaign, &r.name, r.lease, r.encode_to_vec().into()).await;
        let Some(answer) = answer else { return "it waits already".to_owned() };
        let answer = answer.and_then(decode::<election::CampaignResponse>);
        self.saw(&answer, |m| m.header.as_ref());
        show(answer, |m| {
            self.own.header(&mut m.header);
            if let Some(leader) = &mut m.leader {
                leader.key = self.own.place(&leader.key);
                self.own.lease(&mut leader.lease);
            }
        })
    }

    /// What an observer is told first, of an election that somebody leads.
    pub async fn observe(&mut self, r: &election::LeaderRequest) -> String {
        if self.line(&r.name).await.is_empty() {
            return "nobody leads".to_owned();
        }
        let first = self.raw().first(Method::of(Rpc::Observe).path, r.encode_to_vec().into()).await;
        match first.map_err(|failure| self.failed(failure)) {
            Ok(None) => "the end".to_owned(),
            Ok(Some(bytes)) => show(decode::<election::LeaderResponse>(bytes), |m| {
                self.own.header(&mut m.header);
                m.kv.iter_mut().for_each(shorten);
            }),
            Err(failure) => failure.to_string(),
        }
    }

    /// Fills in the revision at which a key was created.
    pub async fn prove(&mut self, call: &mut Call) {
        let leader = match call {
            Call::Proclaim(r) => r.leader.as_mut(),
            Call::Resign(r) => r.leader.as_mut(),
            _ => None,
        };
        let Some(leader) = leader.filter(|leader| leader.rev == CREATED) else { return };
        let range = pb::RangeRequest { key: leader.key.clone(), ..Default::default() };
        let found = self.trusted::<_, pb::RangeResponse>(Rpc::Range, &range).await.unwrap_or_default();
        leader.rev = found.kvs.first().map_or(0, |kv| kv.create_revision);
    }

    /// The answer of a call that waits its turn; `None` if this caller waits already and is not
    /// the first.
    async fn stand_in_line(
        &mut self,
        rpc: Rpc,
        name: &Bytes,
        lease: i64,
        request: Bytes,
    ) -> Option<Result<Bytes, Failure>> {
        let own: Bytes = place(name, lease);
        let line = self.line(name).await;
        let mine = line.iter().find(|kv| kv.key == own).map(|kv| kv.create_revision);
        let before: Vec<Bytes> =
            line.into_iter().filter(|kv| mine.is_none_or(|mine| kv.create_revision < mine)).map(|kv| kv.key).collect();
        if mine.is_some() && !before.is_empty() {
            return None;
        }
        let (raw, path) = (self.raw(), Method::of(rpc).path);
        let call = tokio::spawn(async move { raw.unary(path, request).await });
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !before.is_empty() && !call.is_finished() && tokio::time::Instant::now() < deadline {
            if self.line(name).await.iter().any(|kv| kv.key == own) {
                for key in &before {
                    let delete = pb::DeleteRangeRequest { key: key.clone(), ..Default::default() };
                    let gone = self.trusted::<_, pb::DeleteRangeResponse>(Rpc::DeleteRange, &delete).await;
                    self.saw(&gone, |m| m.header.as_ref());
                }
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let answer = call.await.unwrap_or_else(|e| Err(Failure { code: -4, text: e.to_string() }));
        if let Some(id) = answer.as_ref().ok().filter(|_| lease == 0).and_then(|bytes| chosen(rpc, bytes)) {
            self.own.leases.push(id);
        }
        Some(answer.map_err(|failure| self.failed(failure)))
    }

    /// Everybody who stands in line under a name, the first one first.
    async fn line(&mut self, name: &[u8]) -> Vec<mvccpb::KeyValue> {
        let (from, to) = ([name, b"/"].concat(), [name, b"0"].concat());
        let range = pb::RangeRequest {
            key: from.into(),
            range_end: to.into(),
            keys_only: true,
            sort_target: pb::range_request::SortTarget::Create as i32,
            sort_order: pb::range_request::SortOrder::Ascend as i32,
            ..Default::default()
        };
        self.trusted::<_, pb::RangeResponse>(Rpc::Range, &range).await.unwrap_or_default().kvs
    }
}

/// The key of whoever stands in line under a lease: its id as Go writes it.
fn place(name: &[u8], lease: i64) -> Bytes {
    let minus = if lease < 0 { "-" } else { "" };
    [name, format!("/{minus}{:x}", lease.unsigned_abs()).as_bytes()].concat().into()
}

/// The id of the lease that the server chose, by the key of the answer.
fn chosen(rpc: Rpc, answer: &Bytes) -> Option<i64> {
    let key = match rpc {
        Rpc::Lock => decode::<lock::LockResponse>(answer.clone()).ok()?.key,
        _ => decode::<election::CampaignResponse>(answer.clone()).ok()?.leader?.key,
    };
    let key = String::from_utf8(key.into()).ok()?;
    i64::from_str_radix(key.rsplit('/').next()?, 16).ok()
}

impl Generator {
    /// A phase of locks and elections, with other steps in between.
    pub fn recipes(&mut self, steps: usize) -> Vec<Step> {
        let grants = LEASES.map(|id| Step::Grant(pb::LeaseGrantRequest { ttl: 5000, id }));
        let mut script = grants.to_vec();
        while script.len() < steps {
            let step = if self.rng.percent(70) { self.recipe() } else { self.step() };
            script.push(step);
        }
        script
    }

    /// A call of Lock or Election.
    pub fn recipe(&mut self) -> Step {
        let (name, lease) = (self.name(), self.holder());
        match self.rng.below(100) {
            0..25 => Step::Lock(lock::LockRequest { name, lease }),
            25..40 => Step::Call(Call::Unlock(lock::UnlockRequest { key: self.place(&name) })),
            40..58 => {
                let value = format!("c{}", self.rng.below(5)).into();
                Step::Campaign(election::CampaignRequest { name, lease, value })
            }
            58..72 => {
                let value = format!("p{}", self.rng.below(5)).into();
                Step::Call(Call::Proclaim(election::ProclaimRequest { leader: self.leader(name), value }))
            }
            72..82 => Step::Call(Call::Leader(election::LeaderRequest { name })),
            82..90 => Step::Observe(election::LeaderRequest { name }),
            _ => Step::Call(Call::Resign(election::ResignRequest { leader: self.leader(name) })),
        }
    }

    fn name(&mut self) -> Bytes {
        self.rng.pick(&NAMES).into()
    }

    fn holder(&mut self) -> i64 {
        if self.rng.percent(90) { self.rng.pick(&LEASES) } else { self.rng.pick(&[-5, -1, 12_345, i64::MAX]) }
    }

    /// The key of somebody who may hold it.
    fn place(&mut self, name: &Bytes) -> Bytes {
        match self.rng.below(20) {
            0 => Bytes::new(),
            1 => self.key(),
            _ => place(name, self.holder()),
        }
    }

    fn leader(&mut self, name: Bytes) -> Option<election::LeaderKey> {
        match self.rng.below(30) {
            0 => None,
            // Without a lease the server grants one: see `under_own_leases`.
            1 => Some(election::LeaderKey { lease: self.holder(), ..Default::default() }),
            _ => {
                let lease = self.holder();
                let key = place(&name, lease);
                let rev = if self.rng.percent(85) { CREATED } else { self.rng.pick(&[0, 1, -1, CURRENT]) };
                let lease = if self.rng.percent(95) { lease } else { self.holder() };
                Some(election::LeaderKey { name, key, rev, lease })
            }
        }
    }
}

/// Locks and elections under leases that the servers choose. Their ids stand in keys, so nothing
/// that hashes keys may follow.
pub fn under_own_leases() -> Vec<Step> {
    let (name, key, value) = (Bytes::from_static(b"own/e"), Bytes::from_static(b"own/e/1"), Bytes::from_static(b"v"));
    let leader = Some(election::LeaderKey { name: name.clone(), key, rev: CREATED, lease: 0 });
    vec![
        Step::Lock(lock::LockRequest { name: "own/l".into(), lease: 0 }),
        Step::Campaign(election::CampaignRequest { name: name.clone(), lease: 0, value: value.clone() }),
        Step::Call(Call::Proclaim(election::ProclaimRequest { leader: leader.clone(), value })),
        Step::Call(Call::Proclaim(election::ProclaimRequest::default())),
        Step::HowManyLeases,
        Step::Call(Call::Resign(election::ResignRequest { leader })),
        Step::Call(Call::Resign(election::ResignRequest { leader: Some(Default::default()) })),
    ]
}
