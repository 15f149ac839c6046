//! Alarms, members, downgrades and whatever else an operator asks for.

use wire::etcdserverpb::{self as pb};

use super::{
    calls::Call,
    generate::Generator,
    marks::{MEMBER, PEER, SELF},
    step::Step,
};

const VERSIONS: [&str; 13] =
    ["", "x", "3", "3.7", "3.7.0", "3.7.3", "v3.7.0", "3.5.0", "3.8.0", "4.0.0", "2.3.0", "3.6.0-rc.1", "-1.0.0"];

impl Generator {
    /// A phase of an operator's work, with other steps in between.
    pub fn operator(&mut self, steps: usize) -> Vec<Step> {
        let mut script = Vec::new();
        while script.len() < steps {
            let step = match self.rng.below(100) {
                0..60 => self.upkeep(),
                60..65 => super::gateway::as_json(self.upkeep()),
                _ => self.step(),
            };
            script.push(step);
        }
        script.extend(clean());
        script
    }

    /// Something an operator asks for.
    pub fn upkeep(&mut self) -> Step {
        match self.rng.below(100) {
            0..28 => self.alarm(),
            28..36 => Step::HashKv(pb::HashKvRequest { revision: self.revision() }),
            36..40 => Step::Compact(self.compaction()),
            40..43 => Step::Hash,
            43..48 => Step::Status,
            48..51 => Step::Defragment,
            51..56 => {
                let target_id = self.rng.pick(&[0, 5, SELF, MEMBER]);
                Step::MoveLeader(pb::MoveLeaderRequest { target_id })
            }
            56..64 => Step::Call(self.downgrade()),
            64..72 => Step::Members(pb::MemberListRequest { linearizable: self.rng.percent(50) }),
            _ => Step::Call(self.change()),
        }
    }

    fn alarm(&mut self) -> Step {
        Step::Alarms(pb::AlarmRequest {
            action: self.rng.pick(&[0, 0, 1, 2, 2]),
            member_id: self.rng.pick(&[0, 5, SELF, SELF]),
            alarm: self.rng.pick(&[0, 1, 1, 2, 7]),
        })
    }

    fn downgrade(&mut self) -> Call {
        let mut action = self.rng.below(3) as i32;
        let version = self.rng.pick(&VERSIONS).to_owned();
        // To begin with one is not compared: there is one version of kvorum to run.
        if action == 1 && version.starts_with("3.6") {
            action = 0;
        }
        if self.rng.percent(4) {
            action = self.rng.pick(&[3, -1]);
        }
        Call::Downgrade(pb::DowngradeRequest { action, version })
    }

    /// A change of the members that the one of them survives: others join without a vote.
    fn change(&mut self) -> Call {
        let id = self.rng.pick(&[0, 5, SELF, MEMBER, MEMBER, MEMBER, MEMBER + 1]);
        match self.rng.below(100) {
            0..24 => self.learner(),
            24..40 => {
                let peer_urls = self.bad_urls();
                // With a vote, one that is taken after all would be the end of the majority.
                let is_bad = |url: &String| url != PEER && !url.contains("//");
                let is_learner = !peer_urls.iter().all(is_bad) || self.rng.percent(50);
                Call::MemberAdd(pb::MemberAddRequest { peer_urls, is_learner })
            }
            40..66 => Call::MemberRemove(pb::MemberRemoveRequest { id }),
            66..82 => Call::MemberPromote(pb::MemberPromoteRequest { id }),
            _ => {
                // No URL of another one: etcd refuses, and takes it from the log at its next start.
                let peer_urls = match self.rng.below(4) {
                    1 if id == SELF => vec![PEER.to_owned(), self.free_url()],
                    2 | 3 if id == SELF => vec![PEER.to_owned()],
                    _ => vec![self.free_url()],
                };
                Call::MemberUpdate(pb::MemberUpdateRequest { id, peer_urls })
            }
        }
    }

    fn learner(&mut self) -> Call {
        let mut peer_urls = vec![self.free_url()];
        if self.rng.percent(15) {
            peer_urls.push(self.free_url());
        }
        Call::MemberAdd(pb::MemberAddRequest { peer_urls, is_learner: true })
    }

    /// One that nobody had before: ids are made of URLs and the second.
    fn free_url(&mut self) -> String {
        self.urls += 1;
        format!("http://127.{}.{}.{}:1", self.rng.between(1, 250), self.urls >> 8, self.urls & 255)
    }

    fn bad_urls(&mut self) -> Vec<String> {
        let bad = [
            "",
            "x",
            "127.0.0.1:1",
            "http://127.0.0.1",
            "http://127.0.0.1:1/path",
            "ftp://127.0.0.1:1",
            "http://:1",
            "http://[::1",
            "http://127.0.0.1:1 ",
            "unix",
            PEER,
            PEER,
        ];
        match self.rng.below(10) {
            0 => vec![],
            1 => vec![self.free_url(), self.rng.pick(&bad).to_owned()],
            2 => vec![PEER.to_owned(), self.free_url()],
            _ => vec![self.rng.pick(&bad).to_owned()],
        }
    }
}

/// No alarm and no second member is left.
fn clean() -> Vec<Step> {
    let mut script = Vec::new();
    for member_id in [SELF, 0, 5] {
        for alarm in [1, 2, 7] {
            script.push(Step::Alarms(pb::AlarmRequest { action: 2, member_id, alarm }));
        }
    }
    for id in [MEMBER, MEMBER + 1, MEMBER + 2] {
        script.push(Step::Call(Call::MemberRemove(pb::MemberRemoveRequest { id })));
    }
    let peer_urls = vec![PEER.to_owned()];
    script.push(Step::Call(Call::MemberUpdate(pb::MemberUpdateRequest { id: SELF, peer_urls })));
    script.push(Step::Members(pb::MemberListRequest { linearizable: true }));
    script
}
