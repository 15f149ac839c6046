//! What commands have in common that ask each endpoint by itself.

use client::{Client, wire::etcdserverpb::MemberListResponse};
use cobra::Flag;

use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
    print::json,
};

/// `--cluster`.
pub const ALL_MEMBERS: Flag = Flag::switch("cluster", "ask every member of the cluster");

/// The endpoints to ask: those given, or with `--cluster` those of all
/// members.
///
/// # Errors
/// If the members cannot be listed; if no endpoint is given, except to the
/// stock tool.
pub fn asked(call: &Call) -> Outcome<Vec<String>> {
    call.prepare()?;
    if !call.switch("cluster") {
        // The stock tool asks nobody, and is content, if nobody is named.
        let as_typed = !call.is_ours() && call.text("discovery-srv").is_empty();
        return if as_typed { Ok(call.list("endpoints")) } else { Ok(call.options()?.endpoints) };
    }
    let ask_again = !call.is_ours() && call.options().is_ok();
    if ask_again {
        call.forget_options();
    }
    let client = call.connect().map_err(|failure| failure.with_code(ERROR))?;
    let prefix = "failed to fetch endpoints from etcd cluster member list: ";
    let listed: MemberListResponse = call.timed(client.member_list()).map_err(|failure| match failure {
        Failure::Text { text, cause, .. } => Failure::Text { code: ERROR, text: format!("{prefix}{text}"), cause },
        other => other,
    })?;
    Ok(listed.members.into_iter().flat_map(|member| member.client_urls).collect())
}

/// A client of one endpoint. One that is no address is like one that does not
/// answer.
///
/// # Errors
/// If the address is none.
pub fn single(client: &Client, endpoint: &str) -> Result<Client, client::Error> {
    client.single(endpoint)
}

/// The reason in a failure.
pub fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Text { text, .. } | Failure::Usage(text) => text.clone(),
        Failure::Silent(code) => format!("exit code {code}"),
        Failure::Told { reason: first, .. } => reason(first),
    }
}

/// A list of one member's answers each; Go has a word of its own for none.
pub fn json_list(items: Vec<String>) -> String {
    if items.is_empty() { "null".to_owned() } else { json::array(&items) }
}
