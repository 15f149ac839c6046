//! A started member tells the cluster its name and client URLs, through the log. It serves
//! clients only after that: then it has joined, and knows a leader.

use crate::core::Core;
use crate::log::{self, hex, json};
use node::{Answer, Request};
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(100);

/// Tries until it is applied. False: the member began to stop before.
pub async fn publish(core: &Core, client_urls: &[String]) -> bool {
    let timeout = core.settings().request_timeout();
    let body = store::command::encode_member_attr(core.member(), &core.settings().name, client_urls);
    let mut stopping = core.stopping();
    loop {
        let request = Request::Propose { body: body.clone(), cost: 0 };
        let asked = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return false,
            asked = core.ask(request, timeout) => asked,
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
            other => log::warn(
                "failed to publish local member to cluster through raft",
                &[("local-member-id", hex(core.member())), ("error", json!(format!("{other:?}")))],
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}
