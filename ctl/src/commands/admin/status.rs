//! `endpoint status`.

use client::wire::etcdserverpb::{DowngradeInfo, StatusResponse};

use super::{
    each::{asked, json_list, reason, single},
    gofmt,
};
use crate::{
    call::Call,
    exit::{ERROR, Failure, Outcome},
    print::{
        Answer, Out, fields, json,
        look::Paint,
        quote,
        table::{self, Cell},
    },
};

/// Asks one endpoint after the other.
pub fn run(call: &Call) -> Outcome {
    let endpoints = asked(call)?;
    if endpoints.is_empty() {
        return call.print(&Statuses(Vec::new()));
    }
    let client = call.connect()?;
    let (mut answers, mut failed) = (Vec::new(), None);
    for endpoint in endpoints {
        let one = single(&client, &endpoint);
        match call.timed(async { one?.status().await }) {
            Ok(response) => answers.push(Status { endpoint, response }),
            // There is no use in asking the others as somebody who is none.
            Err(failure @ Failure::Text { code, .. }) if code != ERROR => return Err(failure),
            Err(failure) => {
                complain!("Failed to get the status of endpoint {endpoint} ({})", reason(&failure));
                failed = Some(failure);
            }
        }
    }
    call.print(&Statuses(answers))?;
    failed.map_or(Ok(()), |failure| Err(Failure::told(ERROR, failure)))
}

struct Status {
    endpoint: String,
    response: StatusResponse,
}

struct Statuses(Vec<Status>);

const COLUMNS: [&str; 16] = [
    "endpoint",
    "ID",
    "version",
    "storage version",
    "db size",
    "in use",
    "percentage not in use",
    "quota",
    "is leader",
    "is learner",
    "raft term",
    "raft index",
    "raft applied index",
    "errors",
    "downgrade target version",
    "downgrade enabled",
];

/// Entries not yet applied that are worth a colour.
const SLOW: u64 = 1_000;

/// How much of a database is free, in percent; a part in use is rounded down.
fn free(size: i64, in_use: i64) -> i64 {
    let used = in_use.checked_mul(100).and_then(|percents| percents.checked_div(size)).unwrap_or(100);
    100_i64.saturating_sub(used)
}

fn size(bytes: i64) -> String {
    gofmt::size(u64::try_from(bytes).unwrap_or(0))
}

impl Status {
    fn downgrade(&self) -> DowngradeInfo {
        self.response.downgrade_info.clone().unwrap_or_default()
    }

    fn row(&self) -> Vec<String> {
        let response = &self.response;
        let id = response.header.as_ref().map_or(0, |h| h.member_id);
        let downgrade = self.downgrade();
        vec![
            self.endpoint.clone(),
            format!("{id:x}"),
            response.version.clone(),
            response.storage_version.clone(),
            size(response.db_size),
            size(response.db_size_in_use),
            format!("{}%", free(response.db_size, response.db_size_in_use)),
            size(response.db_size_quota),
            (response.leader == id).to_string(),
            response.is_learner.to_string(),
            response.raft_term.to_string(),
            response.raft_index.to_string(),
            response.raft_applied_index.to_string(),
            response.errors.join(", "),
            downgrade.target_version,
            downgrade.enabled.to_string(),
        ]
    }

    /// The row with what its colours say.
    fn cells(&self) -> Vec<Cell> {
        let response = &self.response;
        let share = |bytes: i64, percent: i128| {
            let quota = i128::from(response.db_size_quota);
            quota > 0 && i128::from(bytes) * 100 >= quota * percent
        };
        let behind = response.raft_index.saturating_sub(response.raft_applied_index);
        let mut cells: Vec<Cell> = self.row().into_iter().map(Cell::from).collect();
        let mut paint = |column: &str, paint: Paint, if_so: bool| {
            let at = COLUMNS.iter().position(|name| *name == column).expect("there is this column");
            if if_so {
                cells[at].paint = Some(paint);
            }
        };
        paint("db size", Paint::Warn, share(response.db_size, 80));
        paint("in use", Paint::Warn, share(response.db_size_in_use, 80));
        paint("in use", Paint::Bad, share(response.db_size_in_use, 95));
        paint("is leader", Paint::Good, response.header.as_ref().is_some_and(|h| h.member_id == response.leader));
        paint("is leader", Paint::Bad, response.leader == 0);
        paint("is learner", Paint::Note, response.is_learner);
        paint("raft applied index", Paint::Warn, behind >= SLOW);
        paint("errors", Paint::Bad, true);
        paint("downgrade enabled", Paint::Warn, self.downgrade().enabled);
        cells
    }

    fn fields(&self, out: &mut Out) {
        let response = &self.response;
        let downgrade = self.downgrade();
        fields::header(out, response.header.as_ref());
        fields::field(out, "Version", quote(response.version.as_bytes()));
        fields::field(out, "StorageVersion", quote(response.storage_version.as_bytes()));
        fields::field(out, "DBSize", response.db_size);
        fields::field(out, "DBSizeInUse", response.db_size_in_use);
        fields::field(out, "DBSizeQuota", response.db_size_quota);
        fields::field(out, "Leader", response.leader);
        fields::field(out, "IsLearner", response.is_learner);
        fields::field(out, "RaftIndex", response.raft_index);
        fields::field(out, "RaftAppliedIndex", response.raft_applied_index);
        fields::field(out, "Errors", format!("[{}]", response.errors.join(" ")));
        fields::field(out, "Endpoint", quote(self.endpoint.as_bytes()));
        fields::field(out, "DowngradeTargetVersion", quote(downgrade.target_version.as_bytes()));
        fields::field(out, "DowngradeEnabled", downgrade.enabled);
        out.line("");
    }

    fn json(&self) -> String {
        let response = &self.response;
        let downgrade = response.downgrade_info.as_ref().map(|info| {
            json::Object::new()
                .some_switch("enabled", info.enabled)
                .some_text("targetVersion", &info.target_version)
                .finish()
        });
        let status = json::Object::new()
            .header(response.header.as_ref())
            .some_text("version", &response.version)
            .some_number("dbSize", response.db_size)
            .some_number("leader", response.leader)
            .some_number("raftIndex", response.raft_index)
            .some_number("raftTerm", response.raft_term)
            .some_number("raftAppliedIndex", response.raft_applied_index)
            .some_texts("errors", &response.errors)
            .some_number("dbSizeInUse", response.db_size_in_use)
            .some_switch("isLearner", response.is_learner)
            .some_text("storageVersion", &response.storage_version)
            .some_number("dbSizeQuota", response.db_size_quota)
            .some_raw("downgradeInfo", downgrade)
            .finish();
        json::Object::new().text("Endpoint", &self.endpoint).raw("Status", &status).finish()
    }
}

impl Answer for Statuses {
    fn simple(&self, out: &mut Out) -> Outcome {
        self.0.iter().for_each(|status| out.line(status.row().join(", ")));
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        self.0.iter().for_each(|status| status.fields(out));
        Ok(())
    }

    fn table(&self, out: &mut Out) -> Outcome {
        table::draw_cells(out, &COLUMNS, &self.0.iter().map(Status::cells).collect::<Vec<_>>());
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json_list(self.0.iter().map(Status::json).collect()))
    }
}

#[cfg(test)]
mod tests {
    use client::wire::etcdserverpb::ResponseHeader;

    use super::*;
    use crate::print::{Format, Printer, look::Look};

    #[test]
    fn free_space_is_a_whole_percentage() {
        for (size, in_use, percent) in
            [(20_480, 16_384, 20), (262_144, 258_048, 2), (0, 0, 0), (7, 7, 0), (i64::MAX, 1, 100)]
        {
            let percent = if size == i64::MAX { 100 } else { percent };
            assert_eq!(free(size, in_use), percent, "{in_use} of {size}");
        }
    }

    fn statuses() -> Statuses {
        let header = ResponseHeader { cluster_id: 7, member_id: 0xab, revision: 5, raft_term: 2 };
        Statuses(vec![Status {
            endpoint: "127.0.0.1:2379".to_owned(),
            response: StatusResponse {
                header: Some(header),
                version: "3.7.3".to_owned(),
                db_size: 262_144,
                leader: 0xab,
                raft_index: 16,
                raft_term: 2,
                raft_applied_index: 15,
                errors: vec!["memberID:171  alarm:NOSPACE".to_owned()],
                db_size_in_use: 258_048,
                storage_version: "3.7.0".to_owned(),
                db_size_quota: 2_147_483_648,
                downgrade_info: Some(DowngradeInfo { enabled: true, target_version: "3.6.0".to_owned() }),
                ..StatusResponse::default()
            },
        }])
    }

    fn shown(answer: &Statuses, format: Format) -> String {
        String::from_utf8(Printer { format, hex: false, look: Look::default() }.render(answer).unwrap()).unwrap()
    }

    #[test]
    fn every_form_says_the_same() {
        assert_eq!(
            shown(&statuses(), Format::Simple),
            "127.0.0.1:2379, ab, 3.7.3, 3.7.0, 262 kB, 258 kB, 2%, 2.1 GB, true, false, 2, 16, 15, \
             memberID:171  alarm:NOSPACE, 3.6.0, true\n"
        );
        assert_eq!(
            shown(&statuses(), Format::Json),
            "[{\"Endpoint\":\"127.0.0.1:2379\",\"Status\":{\"header\":{\"cluster_id\":7,\"member_id\":171,\
             \"revision\":5,\"raft_term\":2},\"version\":\"3.7.3\",\"dbSize\":262144,\"leader\":171,\"raftIndex\":16,\
             \"raftTerm\":2,\"raftAppliedIndex\":15,\"errors\":[\"memberID:171  alarm:NOSPACE\"],\
             \"dbSizeInUse\":258048,\"storageVersion\":\"3.7.0\",\"dbSizeQuota\":2147483648,\
             \"downgradeInfo\":{\"enabled\":true,\"targetVersion\":\"3.6.0\"}}}]\n"
        );
        assert!(
            shown(&statuses(), Format::Fields).contains("\"Errors\" : [memberID:171  alarm:NOSPACE]\n\"Endpoint\"")
        );
    }

    #[test]
    fn nobody_s_answer_is_null() {
        assert_eq!(shown(&Statuses(Vec::new()), Format::Json), "null\n");
    }
}
