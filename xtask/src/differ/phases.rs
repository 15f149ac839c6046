//! A script is a row of phases, each with its subject; the servers are restarted between some.

use std::time::Duration;

use anyhow::{Context, Result};
use wire::{
    Rpc,
    etcdserverpb::{self as pb},
};

use super::{
    generate::{Generator, LEASES},
    locks,
    side::Side,
    step::Step,
};
use crate::{raw::Raw, rng::Rng};

/// What a phase is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// Keys, leases, watches.
    Kv,
    /// Users, roles and tokens.
    Auth,
    /// Lock and Election.
    Locks,
    /// Alarms, members, downgrades.
    Maintenance,
    /// The JSON gateway.
    Gateway,
}

/// Phases of a script.
const PHASES: usize = 8;
const MIX: [Subject; 8] = [
    Subject::Kv,
    Subject::Kv,
    Subject::Kv,
    Subject::Auth,
    Subject::Auth,
    Subject::Locks,
    Subject::Maintenance,
    Subject::Gateway,
];

/// The script of a seed. It ends with a look at everything.
pub fn script(seed: u64, steps: usize, only: Option<Subject>) -> Vec<Step> {
    let mut script = Generator { rng: Rng::new(seed), urls: 0 }.phases(steps, only);
    script.push(Step::Settle);
    let all =
        pb::RangeRequest { key: b"\0".as_slice().into(), range_end: b"\0".as_slice().into(), ..Default::default() };
    script.push(Step::RangeStream(all.clone()));
    script.push(Step::Range(all));
    script.push(Step::HashKv(pb::HashKvRequest::default()));
    script.push(Step::Leases);
    script.extend(LEASES.map(|id| Step::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys: true })));
    script.extend(locks::under_own_leases());
    script
}

impl Generator {
    /// All phases: of one subject, or of any.
    pub fn phases(&mut self, steps: usize, only: Option<Subject>) -> Vec<Step> {
        let mut script = Vec::new();
        let restarts = [self.rng.below(PHASES as u64), self.rng.below(PHASES as u64)];
        for phase in 0..PHASES {
            if phase > 0 && restarts.contains(&(phase as u64)) {
                script.push(self.restart());
            }
            let subject = only.unwrap_or_else(|| if phase == 0 { Subject::Kv } else { self.rng.pick(&MIX) });
            // What is left is spread over what is to come.
            let steps = steps.saturating_sub(script.len()) / (PHASES - phase);
            script.extend(match subject {
                Subject::Kv => (0..steps).map(|_| self.step()).collect(),
                Subject::Auth => self.users(steps),
                Subject::Locks => self.recipes(steps),
                Subject::Maintenance => self.operator(steps),
                Subject::Gateway => self.gateway(steps),
            });
        }
        script
    }

    /// A stop and a start.
    pub fn restart(&mut self) -> Step {
        Step::Restart { kill: self.rng.percent(50) }
    }
}

impl Side {
    /// Stops the server and starts it again on what it has.
    pub async fn restart(&mut self, kill: bool) -> Result<()> {
        self.streams.clear();
        if kill {
            self.server.kill();
            // Of a killed etcd, the newest are good again: what it had not yet written to its store
            // it does again from its log.
            self.tokens.clear();
            self.trusted = None;
        } else {
            self.server.terminate().await;
        }
        self.server.restart()?;
        self.server.ready(Duration::from_secs(60)).await?;
        let raw = Raw::connect(&self.server.endpoint()).await?;
        let status: pb::AuthStatusResponse =
            raw.call(Rpc::AuthStatus, &pb::AuthStatusRequest {}).await.context("asking whether users are asked for")?;
        self.own.term = status.header.context("an answer without a header")?.raft_term;
        self.connected(raw);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_one_script_of_every_subject() {
        assert_eq!(format!("{:?}", script(7, 300, None)), format!("{:?}", script(7, 300, None)));
        let kinds = |only| {
            let name = |step: &Step| format!("{:?}", step.bare()).split(['(', ' ']).next().map(str::to_owned);
            (1..=5).flat_map(|seed| script(seed, 1100, only)).filter_map(|step| name(&step)).collect::<BTreeSet<_>>()
        };
        // The seeds and steps of `cargo xtask ci`.
        let any = kinds(None);
        for kind in ["Put", "Watch", "Page", "Call", "Login", "Lock", "Campaign", "Observe", "Alarms", "Restart"] {
            assert!(any.contains(kind), "{kind} is in no script: {any:?}");
        }
        assert!(!kinds(Some(Subject::Kv)).contains("Login"));
    }

    #[test]
    fn a_script_is_about_as_long_as_it_is_asked_to_be() {
        for seed in 1..20 {
            for only in [None, Some(Subject::Auth), Some(Subject::Maintenance)] {
                let steps = script(seed, 2000, only).len();
                assert!((2000..2100).contains(&steps), "seed {seed}, {only:?}: {steps} steps");
            }
        }
    }
}
