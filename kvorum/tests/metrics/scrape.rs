//! What a member shows on `/metrics`, taken apart.

use crate::live::{Member, http};
use std::collections::{BTreeMap, BTreeSet};

/// One family of series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub kind: String,
    pub help: String,
    pub labels: BTreeSet<String>,
    /// The first two bounds of its buckets and the last one.
    pub buckets: String,
    /// By series; of histograms the sums and counts alone.
    pub values: BTreeMap<String, f64>,
}

pub type Families = BTreeMap<String, Family>;

/// Series of all members that answer, each under its member's name.
pub fn of(members: &[Member]) -> Families {
    let mut all = Families::new();
    for member in members {
        let Ok(page) = http::get(member.spec.client_port, "/metrics") else { continue };
        for (name, family) in parse(&page.body) {
            let into = all.entry(name).or_insert_with(|| Family { values: BTreeMap::new(), ..family.clone() });
            into.labels.extend(family.labels);
            let values = family.values.into_iter();
            into.values.extend(values.map(|(series, value)| (format!("{} {series}", member.spec.name), value)));
        }
    }
    all
}

pub fn parse(page: &str) -> Families {
    let mut families = Families::new();
    let mut bounds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => {
                families.entry(name.into()).or_default().help = help.unwrap_or_default().into();
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                families.entry(name.into()).or_default().kind = kind.into();
            }
            _ => sample(line, &mut families, &mut bounds),
        }
    }
    for (name, bounds) in bounds {
        let [first, second, .., last, _infinite] = &bounds[..] else { panic!("{name}: {bounds:?}") };
        families.get_mut(&name).expect("named before").buckets = format!("{first},{second},..,{last}");
    }
    families
}

fn sample(line: &str, families: &mut Families, bounds: &mut BTreeMap<String, Vec<String>>) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
        let base = name.strip_suffix(end)?;
        families.get(base).filter(|family| family.kind == "histogram").map(|_| (base, *end))
    });
    let (base, end) = of_histogram.unwrap_or((name, ""));
    let family = families.get_mut(base).unwrap_or_else(|| panic!("{base} has no TYPE"));
    let mut bound = None;
    for pair in labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty()) {
        let (label, value) = pair.split_once('=').unwrap_or_else(|| panic!("no label: {line}"));
        match label {
            "le" => bound = Some(value.trim_matches('"').to_owned()),
            label => drop(family.labels.insert(label.to_owned())),
        }
    }
    if end != "_bucket" {
        family.values.insert(series.to_owned(), value.parse().expect("a number"));
    }
    let known = bounds.entry(base.to_owned()).or_default();
    match bound.filter(|bound| !known.contains(bound)) {
        Some(bound) => known.push(bound),
        None if known.is_empty() => drop(bounds.remove(base)),
        None => {}
    }
}

/// The families that show another value, or a new series.
pub fn moved(before: &Families, after: &Families) -> BTreeSet<String> {
    let values = |families: &Families, name: &str| families.get(name).map(|family| family.values.clone());
    after.keys().filter(|name| values(before, name) != values(after, name)).cloned().collect()
}
