//! The same requests by JSON.

use wire::{
    Method, Rpc,
    etcdserverpb::{self as pb, request_op},
    json::request_to_json,
};

use super::{generate::Generator, pages, side::Side, step::Step};

/// The step over the gateway, if it can go that way and its answer can be compared as text.
pub fn as_json(step: Step) -> Step {
    let mut step = step;
    match &mut step {
        Step::Range(r) => r.sort_target = 0,
        Step::Txn(txn) => unsorted(txn),
        // Keys in any order, and an id that the server chooses.
        Step::TimeToLive(r) => r.keys = false,
        Step::Grant(r) if r.id == 0 => return step,
        _ => {}
    }
    match step.request() {
        Some(_) => Step::Json(Box::new(step)),
        None => step,
    }
}

/// More than twelve equal keys have no order.
fn unsorted(txn: &mut pb::TxnRequest) {
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        match &mut op.request {
            Some(request_op::Request::RequestRange(r)) => r.sort_target = 0,
            Some(request_op::Request::RequestTxn(txn)) => unsorted(txn),
            _ => {}
        }
    }
}

impl Generator {
    /// A phase of JSON.
    pub fn gateway(&mut self, steps: usize) -> Vec<Step> {
        let mut script = Vec::new();
        while script.len() < steps {
            let step = match self.rng.below(100) {
                0..60 => as_json(self.step()),
                60..68 => as_json(self.recipe()),
                68..76 => as_json(self.upkeep()),
                76..84 => as_json(Step::Call(self.management())),
                84..86 => as_json(Step::Login { user: "ann", password: "a" }),
                _ => pages::page(&mut self.rng),
            };
            script.push(step);
        }
        script
    }
}

impl Side {
    /// Posts the request of a step.
    pub async fn post(&mut self, step: &Step) -> String {
        let mut step = step.clone();
        if let Step::Call(call) = &mut step {
            self.prove(call).await;
        }
        let Some((rpc, bytes)) = step.request() else { return "no call of JSON".to_owned() };
        let method = Method::of(rpc);
        let body = match request_to_json(method, &bytes) {
            Ok(body) => body,
            Err(error) => return error.to_string(),
        };
        let reply = match self.fetch("POST", method.json[0], pages::JSON, &body).await {
            Ok(reply) => reply,
            Err(error) => return format!("{error:#}"),
        };
        let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let mut text = self.own.body(&reply.body);
        match &step {
            Step::Compact(r) if reply.status == 200 => self.compacted_to(r.revision),
            Step::Login { user, .. } => {
                if let Some(token) = json["token"].as_str() {
                    self.keep_token(user, token);
                    text = text.replace(token, "some");
                }
            }
            Step::TimeToLive(_) => text = without_seconds(text, &json),
            _ => {}
        }
        if rpc == Rpc::MemberAdd
            && let Some(id) = json["member"]["ID"].as_str().and_then(|id| id.parse().ok())
        {
            self.own.members.push(id);
            text = self.own.body(&reply.body);
        }
        format!("{} {} {text}", reply.status, reply.content_type)
    }
}

/// As [`super::normal::Own::time_to_live`].
fn without_seconds(text: String, json: &serde_json::Value) -> String {
    let number = |name: &str| json[name].as_str().and_then(|n| n.parse::<i64>().ok()).unwrap_or(0);
    let (left, granted) = (number("TTL"), number("grantedTTL"));
    if left > 0 && left <= granted && granted - left < 600 {
        return text.replace(&format!("\"TTL\":\"{left}\""), &format!("\"TTL\":\"{granted}\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_have_passed_are_not_compared() {
        let seconds = |text: &str| without_seconds(text.to_owned(), &serde_json::from_str(text).unwrap());
        let gone = r#"{"TTL":"4990","grantedTTL":"5000"}"#;
        assert_eq!(seconds(gone), r#"{"TTL":"5000","grantedTTL":"5000"}"#);
        for other in [r#"{"TTL":"10","grantedTTL":"5000"}"#, r#"{"TTL":"-1"}"#] {
            assert_eq!(seconds(other), other);
        }
    }
}
