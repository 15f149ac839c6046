//! A started member tells the cluster its name and client URLs, through the log. It serves clients
//! only after that: then it has joined, and knows a leader. It also waits a while for its doubt to
//! end: whoever restarts the members one after the other goes on once this one is ready, and until
//! then it may not count for the majority that is left.

use crate::core::Core;
use crate::log::{self, hex, json};
use node::{Answer, Request};
use std::time::Duration;
use tokio::time::Instant;

const RETRY: Duration = Duration::from_millis(100);
/// Some doubts end only when a member that is down is back. Clients are served meanwhile.
const DOUBT_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tries until it is applied. False: the member began to stop before.
pub(crate) async fn publish(core: &Core, client_urls: &[String]) -> bool {
    let timeout = core.settings().request_timeout();
    let body = store::command::encode_member_attr(core.member(), &core.settings().name, client_urls);
    let mut stopping = core.stopping();
    let said = log::Seldom::default();
    loop {
        let request = Request::Propose { body: body.clone(), cost: 0 };
        let asked = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return false,
            asked = core.ask(node::Who::Member, request, timeout) => asked,
        };
        match asked.answer {
            Answer::Applied { result: Ok(_), .. } => {
                log::info(
                    "published local member to cluster through raft",
                    &[
                        ("local-member-id", hex(core.member())),
                        (
                            "local-member-attributes",
                            json!(format!("{{Name:{} ClientURLs:{client_urls:?}}}", core.settings().name)),
                        ),
                        ("cluster-id", hex(core.cluster())),
                        ("publish-timeout", json!(format!("{}s", timeout.as_secs()))),
                    ],
                );
                return true;
            }
            // No leader yet is the usual state of a starting cluster: not worth a line each time.
            Answer::Refused(node::Refusal::NoLeader) => {}
            // It joins, and its state has not come yet; or its state is lost.
            Answer::Refused(node::Refusal::User(store::Error::Corrupt)) => {
                if said.due("state".into()) {
                    let text = "waiting for the state of the cluster before this member publishes itself";
                    log::info(text, &[("local-member-id", hex(core.member()))]);
                }
            }
            other => log::warn(
                "failed to publish local member to cluster through raft",
                &[("local-member-id", hex(core.member())), ("error", json!(format!("{other:?}")))],
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Waits until nothing is missing that this member promised, but not for ever. False: the member
/// began to stop before.
pub(crate) async fn doubt_over(core: &Core) -> bool {
    let mut stopping = core.stopping();
    let until = Instant::now() + DOUBT_PATIENCE;
    loop {
        let asked = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return false,
            asked = core.ask(node::Who::Member, Request::Status, DOUBT_PATIENCE) => asked,
        };
        match asked.answer {
            Answer::Status(status) if status.doubt && Instant::now() < until => {}
            Answer::Status(status) => {
                if status.doubt {
                    log::warn(
                        "serving clients, though this member may have lost what it promised: until the other members \
                         have answered it may count for no election",
                        &[("local-member-id", hex(core.member())), ("waited", json!(format!("{DOUBT_PATIENCE:?}")))],
                    );
                }
                return true;
            }
            _ => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
