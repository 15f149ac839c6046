//! The HTML page: one file, no script, nothing fetched; readable in light and dark.

use super::chart::{Chart, Series, escape};
use super::result::{Journal, number};
use super::table::{Part, Spread, Summary};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #8a929c; --line: #d5dae0; --paper: #ffffff; --good: #1a7f37; --bad: #b42318; --s0: #b35c00; --s1: #0b69c7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7eb; --faint: #8b949e; --line: #343b44; --paper: #14181d; --good: #4cc36b; --bad: #ff7b72; --s0: #f0a24b; --s1: #62b0ff; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.1em; margin-top: 2.2em; border-top: 1px solid var(--line); padding-top: .8em; }
table { border-collapse: collapse; margin: .6em 0; } th, td { text-align: right; padding: .15em .8em; font-variant-numeric: tabular-nums; } th:first-child, td:first-child { text-align: left; }
th { color: var(--faint); font-weight: normal; border-bottom: 1px solid var(--line); } small, .faint { color: var(--faint); } .good { color: var(--good); } .bad { color: var(--bad); }
svg { max-width: 100%; height: auto; margin: .4em 1em .4em 0; } svg text { fill: var(--faint); font: 11px system-ui, sans-serif; } svg .grid { stroke: var(--line); } svg .title { fill: var(--ink); font-size: 12px; }
.s0 { stroke: var(--s0); fill: none; } .s1 { stroke: var(--s1); fill: none; } .f0 { fill: var(--s0); } .f1 { fill: var(--s1); } svg polyline { stroke-width: 1.8; } .key { display: inline-block; width: 1em; height: .25em; vertical-align: middle; margin: 0 .4em 0 1em; }
";

/// The whole page. `machine`: where and how it was measured.
pub fn page(summary: &Summary, journal: &Journal, machine: &str) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>kvorum: measurements</title><style>{STYLE}</style>\n<h1>{}</h1>\n<p>{}.</p>",
        escape(&summary.sides.join(" and ")),
        escape(machine)
    );
    if summary.others > 0.2 {
        let _ = write!(
            out,
            "<p class=\"bad\">A busy machine: others used up to {:.1} CPUs while this was measured. Compare within a row; distrust latencies.</p>",
            summary.others
        );
    }
    out.push_str("<p class=\"faint\">Medians, with the smallest and the largest run; “better” is how many times.");
    for (at, side) in summary.sides.iter().enumerate() {
        let _ = write!(out, "<span class=\"key\" style=\"background:var(--s{at})\"></span>{}", escape(side));
    }
    out.push_str("</p>\n");
    if summary.sides.len() == 2 {
        overview(&mut out, summary);
    }
    scaling(&mut out, summary);
    for part in &summary.parts {
        row(&mut out, summary, part, journal);
    }
    out.push_str("</html>\n");
    out
}

fn overview(out: &mut String, summary: &Summary) {
    out.push_str("<h2>Times better, first figure and server CPU of each row</h2><table><tr><th>row<th>members<th>figure<th>better<th>server us/op better</tr>\n");
    for part in &summary.parts {
        let Some(first) = part.lines.first() else { continue };
        let cpu = part.lines.iter().find(|line| line.figure == "server us/op").and_then(|line| line.ratio());
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{0}-{1}\">{0}</a><td>{1}<td>{2}<td>{3}<td>{4}</tr>",
            part.row.name,
            part.members,
            escape(&first.figure),
            ratio(first.ratio()),
            ratio(cpu)
        );
    }
    out.push_str("</table>\n");
}

fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        Some(r) if r >= 1.0 => format!("<span class=\"good\">{r:.2}</span>"),
        Some(r) => format!("<span class=\"bad\">{r:.2}</span>"),
        None => "<span class=\"faint\">–</span>".into(),
    }
}

/// Rows of a family against what grows.
fn scaling(out: &mut String, summary: &Summary) {
    let mut families: BTreeMap<(&str, usize), Vec<(f64, &Part)>> = BTreeMap::new();
    for part in &summary.parts {
        if let Some((what, much)) = part.row.scale {
            families.entry((what, part.members)).or_default().push((much, part));
        }
    }
    families.retain(|_, parts| parts.len() > 1);
    let mut sizes: BTreeMap<&str, Vec<(f64, &Part)>> = BTreeMap::new();
    for part in &summary.parts {
        sizes.entry(part.row.name).or_default().push((part.members as f64, part));
    }
    sizes.retain(|_, parts| parts.len() > 1);
    if !families.is_empty() || !sizes.is_empty() {
        out.push_str("<h2>Scaling</h2>\n");
    }
    for ((what, members), parts) in families {
        let title = format!("{what}, {members} member(s)");
        for figure in [parts[0].1.row.figures[0], "server us/op"] {
            scaled(out, summary, &title, figure, &parts, true);
        }
    }
    for (name, parts) in sizes {
        scaled(out, summary, &format!("{name}: members"), parts[0].1.row.figures[0], &parts, false);
    }
}

fn scaled(out: &mut String, summary: &Summary, title: &str, figure: &str, parts: &[(f64, &Part)], log: bool) {
    let series = (0..summary.sides.len())
        .map(|side| Series {
            side,
            points: parts
                .iter()
                .filter_map(|(x, part)| {
                    let line = part.lines.iter().find(|line| line.figure == figure)?;
                    Some((*x, line.spreads[side]?.median))
                })
                .collect(),
        })
        .collect();
    let chart = Chart { title: format!("{title}: {figure}"), log_x: log, log_y: false, x_names: Vec::new(), series };
    out.push_str(&chart.svg());
}

fn row(out: &mut String, summary: &Summary, part: &Part, journal: &Journal) {
    let _ = writeln!(
        out,
        "<h2 id=\"{0}-{1}\">{0} <small>{2}; {1} member(s)</small></h2>",
        part.row.name,
        part.members,
        escape(part.row.what)
    );
    out.push_str("<table><tr><th>figure");
    summary.sides.iter().for_each(|side| {
        let _ = write!(out, "<th>{}<th>min..max", escape(side));
    });
    out.push_str("<th>better</tr>\n");
    let (main, rest): (Vec<_>, Vec<_>) =
        part.lines.iter().partition(|line| part.row.figures.contains(&line.figure.as_str()));
    let write = |out: &mut String, line: &super::table::Line| {
        let _ = write!(out, "<tr><td>{}", escape(&line.figure));
        for spread in &line.spreads {
            let text = spread.map_or(("–".into(), String::new()), |s: Spread| {
                (number(s.median), format!("{}..{}", number(s.least), number(s.most)))
            });
            let _ = write!(out, "<td>{}<td class=\"faint\">{}", text.0, text.1);
        }
        let _ = writeln!(out, "<td>{}</tr>", ratio(line.ratio()));
    };
    main.iter().for_each(|line| write(out, line));
    out.push_str("</table>\n");
    for error in &part.errors {
        let _ = writeln!(out, "<p class=\"bad\">{}</p>", escape(error));
    }
    charts(out, summary, part, journal);
    out.push_str("<details><summary class=\"faint\">all other figures</summary><table>");
    rest.iter().for_each(|line| write(out, line));
    out.push_str("</table></details>\n");
}

/// Latency curves, lag curves, the course of a run, memory over time.
fn charts(out: &mut String, summary: &Summary, part: &Part, journal: &Journal) {
    let reports = |side: &String| -> Vec<&Value> {
        let of = |e: &&super::result::Entry| {
            e.key.row == part.row.name && e.key.members == part.members && e.key.side == *side
        };
        journal.entries.iter().filter(of).map(|e| &e.report).collect()
    };
    for (field, title) in [("latency", "latency, ms"), ("lag", "lag of events, ms")] {
        let curve = |side: usize| Series { side, points: median_curve(&reports(&summary.sides[side]), field) };
        let series: Vec<Series> = (0..summary.sides.len()).map(curve).collect();
        if series.iter().any(|s| s.points.len() > 2) {
            let x_names =
                ["50", "90", "99", "99.9", "99.99"].map(|p| (nines(p.parse().expect("a number")), format!("{p} %")));
            let chart = Chart { title: title.into(), log_x: false, log_y: true, x_names: x_names.to_vec(), series };
            out.push_str(&chart.svg());
        }
    }
    // Of single runs: the last of each side.
    let last = |side: usize| reports(&summary.sides[side]).last().copied();
    let tenths = |side: usize| {
        let line = last(side).and_then(|report| report["line_tenths"].as_array());
        let points = line.into_iter().flatten().enumerate();
        let points = points.filter_map(|(at, tenth)| Some((at as f64 / 10.0, tenth[0].as_f64()? * 10.0))).collect();
        Series { side, points }
    };
    let memory = |side: usize| {
        let line = last(side).and_then(|report| report["rss_line"].as_array());
        let points = line.into_iter().flatten().enumerate();
        Series { side, points: points.filter_map(|(at, b)| Some((at as f64 + 1.0, b.as_f64()? / 1e6))).collect() }
    };
    let soak = |side: usize, field: &str, scale: f64| {
        let line = last(side).and_then(|report| report["soak"]["points"].as_array());
        let point = |point: &Value| Some((point["seconds"].as_f64()? / 60.0, point[field].as_f64()? / scale));
        Series { side, points: line.into_iter().flatten().filter_map(point).collect() }
    };
    let anonymous = |side: usize| soak(side, "anonymous_bytes", 1e6);
    let disk = |side: usize| soak(side, "disk_bytes", 1e6);
    let late = |side: usize| soak(side, "p99_us", 1e3);
    type Line<'a> = &'a dyn Fn(usize) -> Series;
    let lines: [(&str, Line<'_>); 5] = [
        ("calls/s, over seconds (one run)", &tenths),
        ("resident MB, over seconds (one run)", &memory),
        ("anonymous MB, over minutes (one run)", &anonymous),
        ("MB on the disk, over minutes (one run)", &disk),
        ("p99 of all calls, ms, over minutes (one run)", &late),
    ];
    for (title, line) in lines {
        let series: Vec<Series> = (0..summary.sides.len()).map(line).collect();
        if series.iter().any(|s| s.points.len() > 2) {
            let chart = Chart { title: title.into(), log_x: false, log_y: false, x_names: Vec::new(), series };
            out.push_str(&chart.svg());
        }
    }
}

/// Percentiles on an axis on which each further nine takes the same room.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}

/// Per percentile the median of all runs, in milliseconds.
fn median_curve(reports: &[&Value], field: &str) -> Vec<(f64, f64)> {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for report in reports {
        for point in report[field]["curve"].as_array().into_iter().flatten() {
            if let (Some(percent), Some(us)) = (point[0].as_f64(), point[1].as_f64())
                && percent < 100.0
                && us > 0.0
            {
                at.entry((percent * 1000.0).round() as u64).or_default().push(us / 1e3);
            }
        }
    }
    let median =
        |(percent, values): (u64, Vec<f64>)| Some((nines(percent as f64 / 1000.0), Spread::of(values)?.median));
    at.into_iter().filter_map(median).collect()
}
