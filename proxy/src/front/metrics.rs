//! Metrics in the names of HAProxy's exporter, and a few of our own.

use super::state::State;
use super::table::{Kind, Row};
use std::fmt::Write;
use std::time::Duration;

/// One family: its name behind `haproxy_KIND_`, its type, the column, what the value is divided by,
/// and what it says.
type Family = (&'static str, &'static str, &'static str, f64, &'static str);

const FRONTEND: [Family; 13] = [
    ("current_sessions", "gauge", "scur", 1.0, "Number of current sessions on the frontend."),
    ("max_sessions", "gauge", "smax", 1.0, "Highest number of current sessions since the start."),
    ("limit_sessions", "gauge", "slim", 1.0, "Sessions that may be at once."),
    ("sessions_total", "counter", "stot", 1.0, "Total number of sessions."),
    ("limit_session_rate", "gauge", "rate_lim", 1.0, "New sessions that may be in a second."),
    ("max_session_rate", "gauge", "rate_max", 1.0, "Highest number of new sessions in a second."),
    ("connections_rate_max", "gauge", "conn_rate_max", 1.0, "Highest number of new connections in a second."),
    ("connections_total", "counter", "conn_tot", 1.0, "Total number of connections."),
    ("bytes_in_total", "counter", "bin", 1.0, "Bytes that came from clients."),
    ("bytes_out_total", "counter", "bout", 1.0, "Bytes that went to clients."),
    ("requests_denied_total", "counter", "dreq", 1.0, "Connections that a limit closed."),
    ("request_errors_total", "counter", "ereq", 1.0, "Connections that began with nothing that can be used."),
    ("denied_sessions_total", "counter", "dses", 1.0, "Sessions that a limit closed."),
];

const BACKEND: [Family; 27] = [
    ("current_sessions", "gauge", "scur", 1.0, "Number of current sessions."),
    ("max_sessions", "gauge", "smax", 1.0, "Highest number of current sessions since the start."),
    ("sessions_total", "counter", "stot", 1.0, "Total number of sessions."),
    ("max_session_rate", "gauge", "rate_max", 1.0, "Highest number of new sessions in a second."),
    ("last_session_seconds", "gauge", "lastsess", 1.0, "Seconds since the last session began."),
    ("current_queue", "gauge", "qcur", 1.0, "Sessions that wait for a place."),
    ("max_queue", "gauge", "qmax", 1.0, "Highest number of sessions that waited."),
    ("connection_attempts_total", "counter", "connect", 1.0, "Tries to connect to a server."),
    ("connection_errors_total", "counter", "econ", 1.0, "Tries that failed."),
    ("retry_warnings_total", "counter", "wretr", 1.0, "Tries at the same server after the first."),
    ("redispatch_warnings_total", "counter", "wredis", 1.0, "Tries that went to another server."),
    ("loadbalanced_total", "counter", "lbtot", 1.0, "How often the choice fell here."),
    ("bytes_in_total", "counter", "bin", 1.0, "Bytes that came from clients."),
    ("bytes_out_total", "counter", "bout", 1.0, "Bytes that went to clients."),
    ("client_aborts_total", "counter", "cli_abrt", 1.0, "Connections that broke on the side of the client."),
    ("server_aborts_total", "counter", "srv_abrt", 1.0, "Connections that broke on the side of the server."),
    ("queue_time_average_seconds", "gauge", "qtime", 1_000.0, "Mean wait for a place, of the last sessions."),
    ("connect_time_average_seconds", "gauge", "ctime", 1_000.0, "Mean time to connect, of the last sessions."),
    ("total_time_average_seconds", "gauge", "ttime", 1_000.0, "Mean length of the last sessions."),
    ("max_queue_time_seconds", "gauge", "qtime_max", 1_000.0, "Longest wait for a place."),
    ("max_connect_time_seconds", "gauge", "ctime_max", 1_000.0, "Longest time to connect."),
    ("max_total_time_seconds", "gauge", "ttime_max", 1_000.0, "Longest session."),
    ("check_up_down_total", "counter", "chkdown", 1.0, "How often it went down."),
    ("check_last_change_seconds", "gauge", "lastchg", 1.0, "Seconds since it last went up or down."),
    ("downtime_seconds_total", "counter", "downtime", 1.0, "Seconds that it was down."),
    ("weight", "gauge", "weight", 1.0, "Weight."),
    ("limit_sessions", "gauge", "slim", 1.0, "Sessions that may be at once; 0: no limit."),
];

/// What a server has beyond what a backend has.
const SERVER: [Family; 5] = [
    ("check_failures_total", "counter", "chkfail", 1.0, "Checks that failed while it was up."),
    ("check_duration_seconds", "gauge", "check_duration", 1_000.0, "How long the last check took."),
    ("check_code", "gauge", "check_code", 1.0, "Code of HTTP of the last check."),
    ("queue_limit", "gauge", "qlimit", 1.0, "Sessions that may wait for it alone."),
    ("uweight", "gauge", "uweight", 1.0, "Weight that was set."),
];

const CHECKS: [&str; 9] = ["L4OK", "L4TOUT", "L4CON", "L6RSP", "L7OK", "L7TOUT", "L7RSP", "L7STS", "SOCKERR"];

/// All of them, as Prometheus reads them.
pub(crate) fn text(state: &State, rows: &[Row], uptime: Duration) -> String {
    let mut text = String::new();
    for (kind, name, families) in [
        (Kind::Frontend, "frontend", FRONTEND.to_vec()),
        (
            Kind::Backend,
            "backend",
            [
                &BACKEND[..],
                &[
                    ("active_servers", "gauge", "act", 1.0, "Active servers that are up."),
                    ("backup_servers", "gauge", "bck", 1.0, "Backup servers that are up."),
                ],
            ]
            .concat(),
        ),
        (Kind::Server, "server", [&BACKEND[..], &SERVER].concat()),
    ] {
        let of_kind: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
        for family in families {
            one(&mut text, name, &family, &of_kind);
        }
        states(&mut text, name, &of_kind);
    }
    for (name, kind, value, help) in process(state, uptime) {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

fn labels(row: &Row) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    match row.kind {
        Kind::Server => format!("proxy=\"{}\",server=\"{}\"", escaped(row.get("pxname")), escaped(row.get("svname"))),
        _ => format!("proxy=\"{}\"", escaped(row.get("pxname"))),
    }
}

fn one(text: &mut String, of: &str, (name, kind, column, divisor, help): &Family, rows: &[&Row]) {
    let name = format!("haproxy_{of}_{name}");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for row in rows {
        // What does not apply is not there, as HAProxy has it.
        if let Ok(value) = row.get(column).parse::<f64>() {
            let _ = writeln!(text, "{name}{{{}}} {}", labels(row), value / divisor);
        }
    }
}

fn states(text: &mut String, of: &str, rows: &[&Row]) {
    let name = format!("haproxy_{of}_status");
    let _ = writeln!(text, "# HELP {name} Current status, 1 at the one that holds.\n# TYPE {name} gauge");
    for row in rows {
        let status = row.get("status");
        let (now, all): (&str, &[&str]) = match row.kind {
            Kind::Frontend => (if status == "OPEN" { "UP" } else { "DOWN" }, &["DOWN", "UP"]),
            Kind::Backend => (status, &["DOWN", "UP"]),
            Kind::Server => {
                let first = status.split(' ').next().unwrap_or_default();
                (if first == "no" { "UP" } else { first }, &["DOWN", "UP", "MAINT", "DRAIN", "NOLB"])
            }
        };
        for state in all {
            let _ = writeln!(text, "{name}{{{},state=\"{state}\"}} {}", labels(row), u8::from(*state == now));
        }
    }
    if of == "server" {
        let name = "haproxy_server_check_status";
        let _ =
            writeln!(text, "# HELP {name} What the last check found, 1 at the one that holds.\n# TYPE {name} gauge");
        for row in rows.iter().filter(|row| !row.get("check_status").is_empty()) {
            for state in CHECKS {
                let value = u8::from(row.get("check_status") == state);
                let _ = writeln!(text, "{name}{{{},state=\"{state}\"}} {value}", labels(row));
            }
        }
    }
}

/// Of the program as a whole.
fn process(state: &State, uptime: Duration) -> Vec<(&'static str, &'static str, u64, &'static str)> {
    let all = &state.connections;
    vec![
        ("haproxy_process_current_connections", "gauge", u64::from(all.current), "Connections of clients."),
        ("haproxy_process_max_connections", "gauge", u64::from(state.maxconn()), "Connections that may be at once."),
        ("haproxy_process_connections_total", "counter", all.total, "Total number of connections."),
        ("haproxy_process_uptime_seconds", "gauge", uptime.as_secs(), "Seconds since the start."),
        ("kvorum_proxy_files_taken_total", "counter", state.reloads, "Files that were taken, the first one included."),
    ]
}
