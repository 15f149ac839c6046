//! The page of statistics: what HAProxy's page shows, for a browser without scripts.

use super::config::Stats;
use super::state::State;
use super::table::{Kind, Row};
use std::fmt::Write;
use std::time::Duration;

/// What a browser may load: nothing but the page's own style.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8886;--up:#1a7f37;--down:#cf222e;--wait:#9a6700;--off:#6e7781}\
@media(prefers-color-scheme:dark){:root{--up:#3fb950;--down:#f85149;--wait:#d29922;--off:#9198a1}}\
body{font:15px/1.45 system-ui,sans-serif;margin:1rem;max-width:80rem}\
h1{font-size:1.3rem;margin:0 0 .2rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;min-width:100%}\
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}\
th{font-weight:600}th:first-child,td:first-child,.l{text-align:left}\
.up{color:var(--up)}.down{color:var(--down)}.wait{color:var(--wait)}.off{color:var(--off)}\
fieldset{border:1px solid var(--line);margin:.5rem 0;padding:.4rem .8rem}button,select{font:inherit;padding:.15rem .6rem}\
.told{border:1px solid var(--line);padding:.3rem .8rem;display:inline-block}";

/// A column: its head, what the head means, and the column of the table.
const COLUMNS: [(&str, &str, &str); 14] = [
    ("Status", "state, and how long it has been so", "status"),
    ("Last check", "what the last check found", "last_chk"),
    ("Sessions", "connections now", "scur"),
    ("Max", "connections at most", "smax"),
    ("Total", "connections since the start", "stot"),
    ("Per s", "new connections in the last second", "rate"),
    ("Queue", "connections that wait for a place", "qcur"),
    ("In", "bytes from clients", "bin"),
    ("Out", "bytes to clients", "bout"),
    ("Errors", "connections that could not be made", "econ"),
    ("Retries", "tries at the same server", "wretr"),
    ("Redisp", "tries at another server", "wredis"),
    ("Weight", "weight", "weight"),
    ("Downtime", "time that it was not up", "downtime"),
];

/// The page. `told`: what became of the last form.
pub(crate) fn html(state: &State, rows: &[Row], stats: &Stats, now: Duration, told: Option<&str>) -> String {
    let mut page = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    if let Some(refresh) = stats.refresh {
        let _ = write!(page, "<meta http-equiv=\"refresh\" content=\"{}\">", refresh.0.as_secs().max(1));
    }
    let _ = write!(page, "<title>kvorum proxy</title><style>{STYLE}</style></head><body><h1>kvorum proxy</h1><p>");
    if !stats.hide_version {
        let _ = write!(page, "version {}, ", env!("CARGO_PKG_VERSION"));
    }
    let all = &state.connections;
    let _ = write!(
        page,
        "up for {}; {} of {} connections, {} since the start; {} new in the last second</p>",
        span(now.as_secs()),
        all.current,
        state.maxconn(),
        all.total,
        all.rate.read(now)
    );
    match told {
        Some("DONE") => page.push_str("<p class=told role=status>It is done.</p>"),
        Some("NONE") => page.push_str("<p class=told role=status>No server was chosen.</p>"),
        Some(_) => page.push_str("<p class=told role=status>It could not be done.</p>"),
        None => {}
    }
    let fronts: Vec<&Row> = rows.iter().filter(|row| row.kind == Kind::Frontend).collect();
    page.push_str("<h2>Frontends</h2>");
    table(&mut page, &fronts, false);
    for back in &state.config.backends {
        let own: Vec<&Row> =
            rows.iter().filter(|row| row.kind != Kind::Frontend && row.get("pxname") == back.name).collect();
        let _ = write!(page, "<h2>Backend {}</h2>", escaped(&back.name));
        if stats.admin {
            let _ = write!(page, "<form method=post action=\"{}\">", escaped(&stats.uri));
        }
        table(&mut page, &own, stats.admin);
        if stats.admin {
            let _ = write!(
                page,
                "<fieldset><legend>Chosen servers of {0}</legend><input type=hidden name=b value=\"{0}\">\
                 <label>what becomes of them <select name=action><option value=drain>drain: nothing new</option>\
                 <option value=maint>maintenance</option><option value=ready>ready</option>\
                 <option value=shutdown>end their connections</option></select></label> \
                 <button>Do it</button></fieldset></form>",
                escaped(&back.name)
            );
        }
    }
    let _ = write!(
        page,
        "<p><a href=\"{}\">as CSV</a> <a href=\"{}\">metrics</a></p></body></html>",
        escaped(&format!("{};csv", stats.uri)),
        escaped(&stats.metrics)
    );
    page
}

fn table(page: &mut String, rows: &[&Row], choose: bool) {
    page.push_str("<div class=scroll tabindex=0 role=group aria-label=\"table\"><table><thead><tr><th scope=col>Name");
    for (head, meaning, _) in COLUMNS {
        let class = if ["Status", "Last check"].contains(&head) { " class=l" } else { "" };
        let _ = write!(page, "<th scope=col{class} title=\"{meaning}\">{head}");
    }
    page.push_str("</thead><tbody>");
    for row in rows {
        let name = match row.kind {
            Kind::Frontend => row.get("pxname"),
            Kind::Backend => "together",
            Kind::Server => row.get("svname"),
        };
        let name = escaped(name);
        let cell = if choose && row.kind == Kind::Server {
            format!("<label><input type=checkbox name=s value=\"{name}\"> {name}</label>")
        } else {
            name
        };
        let backup = if row.kind == Kind::Server && row.get("bck") == "1" { " (backup)" } else { "" };
        let _ = write!(page, "<tr><td>{cell}{backup}");
        for (head, _, column) in COLUMNS {
            let value = row.get(column);
            match head {
                "Status" => {
                    let lasts = row.get("lastchg").parse().map_or_else(|_| String::new(), |s| format!(" {}", span(s)));
                    let _ = write!(page, "<td class=\"l {}\">{}{lasts}", class(value), escaped(value));
                }
                "Last check" => {
                    let found = row.get("check_status");
                    let took = row.get("check_duration");
                    let took = if took.is_empty() { String::new() } else { format!(" in {took} ms") };
                    let _ = write!(page, "<td class=l title=\"{}\">{found}{took}", escaped(value));
                }
                "In" | "Out" => {
                    let _ = write!(page, "<td>{}", value.parse().map_or_else(|_| String::new(), size));
                }
                "Downtime" => {
                    let _ = write!(page, "<td>{}", value.parse().map_or_else(|_| String::new(), span));
                }
                _ => {
                    let _ = write!(page, "<td>{}", escaped(value));
                }
            }
        }
    }
    page.push_str("</tbody></table></div>");
}

/// How a state looks; the word itself is always there too.
fn class(status: &str) -> &'static str {
    match status.split(' ').next().unwrap_or_default() {
        "UP" | "OPEN" if !status.contains('/') => "up",
        "DOWN" if !status.contains('/') => "down",
        "UP" | "DOWN" => "wait",
        _ => "off",
    }
}

fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let at = (bytes.max(1).ilog2() / 10) as usize;
    if at == 0 { format!("{bytes} B") } else { format!("{:.1} {}", bytes as f64 / 1024_f64.powi(at as i32), units[at]) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}
