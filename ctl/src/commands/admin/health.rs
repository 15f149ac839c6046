//! `endpoint health`: whether a linearisable read comes back, and no alarm.

use std::time::{Duration, Instant};

use client::{Client, wire::etcdserverpb::AlarmResponse};
use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{alarm, auth, each, gofmt};
use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome, error_text},
    print::{
        Answer, Format, Out, fields, json,
        look::Paint,
        quote,
        table::{self, Cell},
    },
};

/// Asks all endpoints at once; they stand in the order in which they answered.
pub fn run(call: &Call) -> Outcome {
    let endpoints = each::asked(call)?;
    if endpoints.is_empty() {
        return call.print(&Checks(Vec::new()));
    }
    // Each endpoint is signed in to by itself.
    let client = call.client()?;
    let limit = call.duration("command-timeout");
    let checks: FuturesUnordered<_> = endpoints.into_iter().map(|endpoint| check(&client, endpoint, limit)).collect();
    let answers = Checks(call.block_on(checks.collect::<Vec<Check>>()));
    if call.printer()?.format == Format::Simple {
        answers.0.iter().for_each(Check::say);
    } else {
        call.print(&answers)?;
    }
    if answers.0.iter().all(|c| c.error.is_empty()) {
        return Ok(());
    }
    Err(Failure::new(ERROR, "unhealthy cluster"))
}

struct Check {
    endpoint: String,
    took: String,
    /// Empty if it is well.
    error: String,
}

struct Checks(Vec<Check>);

async fn check(client: &Client, endpoint: String, limit: Duration) -> Check {
    let begin = Instant::now();
    let asked = async {
        let one = each::single(client, &endpoint)?;
        match one.get("health").await {
            // Who may not read this key has been told so by agreement, too.
            Err(error) if !auth::denied(&error) => Err(error),
            _ => Ok(one),
        }
    };
    let answer = match tokio::time::timeout(limit, asked).await {
        Ok(Ok(one)) => Ok(one),
        Ok(Err(error)) => Err(error_text(&error)),
        Err(_) => Err("context deadline exceeded".to_owned()),
    };
    let took = gofmt::duration(begin.elapsed());
    let error = match answer {
        Err(error) => error,
        Ok(one) => match tokio::time::timeout(limit, one.alarm_list()).await {
            Ok(Ok(alarms)) => active(&alarms),
            _ => "Unable to fetch the alarm list".to_owned(),
        },
    };
    Check { endpoint, took, error }
}

fn active(alarms: &AlarmResponse) -> String {
    let names: String = alarms.alarms.iter().map(|a| format!("{} ", alarm::name(a.alarm))).collect();
    if names.is_empty() { names } else { format!("Active Alarm(s): {names}") }
}

impl Check {
    fn well(&self) -> bool {
        self.error.is_empty()
    }

    fn say(&self) {
        let Check { endpoint, took, error } = self;
        if self.well() {
            println!("{endpoint} is healthy: successfully committed proposal: took = {took}");
        } else {
            complain!("{endpoint} is unhealthy: failed to commit proposal: {error}");
        }
    }
}

impl Answer for Checks {
    fn simple(&self, _out: &mut Out) -> Outcome {
        self.0.iter().for_each(Check::say);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        for check in &self.0 {
            fields::field(out, "Endpoint", quote(check.endpoint.as_bytes()));
            fields::field(out, "Health", check.well());
            fields::field(out, "Took", &check.took);
            fields::field(out, "Error", &check.error);
            out.line("");
        }
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        let row = |c: &Check| {
            let health = if c.well() { Paint::Good } else { Paint::Bad };
            vec![
                c.endpoint.clone().into(),
                Cell::painted(c.well().to_string(), health, true),
                c.took.clone().into(),
                Cell::painted(c.error.clone(), Paint::Bad, true),
            ]
        };
        table::draw_cells(out, &["endpoint", "health", "took", "error"], &self.0.iter().map(row).collect::<Vec<_>>());
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        let one = |check: &Check| {
            json::Object::new()
                .text("endpoint", &check.endpoint)
                .switch("health", check.well())
                .text("took", &check.took)
                .some_text("error", &check.error)
                .finish()
        };
        Ok(each::json_list(self.0.iter().map(one).collect()))
    }
}

#[cfg(test)]
mod tests {
    use client::wire::etcdserverpb::AlarmMember;

    use super::*;

    #[test]
    fn alarms_are_named() {
        assert_eq!(active(&AlarmResponse::default()), "");
        let alarms = [1, 2].map(|alarm| AlarmMember { member_id: 7, alarm }).to_vec();
        assert_eq!(active(&AlarmResponse { alarms, header: None }), "Active Alarm(s): NOSPACE CORRUPT ");
    }
}
