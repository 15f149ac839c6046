//! The servers over the run: memory, disk, CPU for each operation; what grows and how fast.

use super::mix::{SLICES, Shared, Slice};
use crate::cost::{Watched, folder_bytes};
use crate::drive::latencies;
use crate::report::Point;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The samples of a run.
#[derive(Debug)]
pub struct Course<'a> {
    watched: &'a Watched,
    from: Instant,
    every: Duration,
    taken: u32,
    points: Vec<Point>,
    missing: Option<String>,
}

impl<'a> Course<'a> {
    pub fn new(watched: &'a Watched, from: Instant, every: Duration) -> Course<'a> {
        Course { watched, from, every, taken: 0, points: Vec::new(), missing: None }
    }

    /// When the next sample is due.
    pub fn next(&self) -> Instant {
        self.from + self.every * self.taken
    }

    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next()
    }

    /// Takes one. A server that is gone leaves a remark instead.
    pub fn sample(&mut self, shared: &Mutex<Shared>) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.from);
        self.taken = self.taken.max((elapsed.as_secs_f64() / self.every.as_secs_f64().max(1e-6)) as u32 + 1);
        let operations = shared.lock().expect("no holder panics").done;
        match self.watched.sample() {
            Ok(sample) => self.points.push(Point {
                seconds: elapsed.as_secs_f64(),
                operations,
                cpu_seconds: sample.cpu(),
                rss_bytes: sample.resident(),
                anonymous_bytes: sample.anonymous() as u64,
                disk_bytes: self.watched.disk.as_deref().and_then(folder_bytes),
                ..Point::default()
            }),
            Err(error) => self.missing = Some(format!("no samples from {:.0} s on: {error}", elapsed.as_secs_f64())),
        }
    }

    pub fn remark(&self) -> Option<String> {
        self.missing.clone()
    }

    /// The samples, with the latencies of the slices before them.
    pub fn points(&self, slices: &[Slice]) -> Vec<Point> {
        let mut points = self.points.clone();
        for point in &mut points {
            let at = (point.seconds / self.every.as_secs_f64().max(1e-6)).round() as usize;
            if let Some(slice) = at.checked_sub(1).and_then(|at| slices.get(at)).filter(|slice| !slice.is_empty()) {
                (point.p99_us, point.max_us) = (slice.value_at_quantile(0.99), slice.max());
            }
        }
        points
    }

    pub fn figures(&self, figures: &mut BTreeMap<String, f64>, slices: &[Slice]) {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return };
        let mut add = |name: &str, value: f64| figures.insert(name.to_owned(), value);
        if !self.watched.pids.is_empty() {
            for (name, of) in MEMORY {
                add(&format!("{name} MB at the beginning"), of(first) / 1e6);
                add(&format!("{name} MB at the end"), of(last) / 1e6);
                add(&format!("{name} MB grown per hour"), growth(&self.points, of) / 1e6);
            }
            let [early, late] = self.tenths().map(cpu_for_each);
            add("us/op first tenth", early);
            add("us/op last tenth", late);
            if early > 0.0 {
                add("us/op last/first tenth", late / early);
            }
        }
        if let (Some(begin), Some(end)) = (first.disk_bytes, last.disk_bytes) {
            add("disk MB at the beginning", begin as f64 / 1e6);
            add("disk MB at the end", end as f64 / 1e6);
            add("disk MB grown per hour", growth(&self.points, |p| p.disk_bytes.unwrap_or(0) as f64) / 1e6);
        }
        let tenth = slices.len().div_ceil(10);
        for (name, slices) in [("first", &slices[..tenth]), ("last", &slices[slices.len() - tenth..])] {
            let mut all = latencies();
            slices.iter().for_each(|slice| all.add(slice).expect("bounds within those of latencies"));
            if !all.is_empty() {
                add(&format!("p99 ms {name} tenth"), all.value_at_quantile(0.99) as f64 / 1e3);
            }
        }
    }

    /// The samples of the first and the last tenth of what was run.
    fn tenths(&self) -> [&[Point]; 2] {
        let (len, tenth) = (self.points.len(), self.points.len().div_ceil(10).max(2));
        [&self.points[..tenth.min(len)], &self.points[len.saturating_sub(tenth)..]]
    }
}

const MEMORY: [(&str, fn(&Point) -> f64); 2] =
    [("anonymous", |point| point.anonymous_bytes as f64), ("RSS", |point| point.rss_bytes as f64)];

/// Microseconds of server CPU for each call between the first and the last of these.
fn cpu_for_each(points: &[Point]) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let calls = last.operations.saturating_sub(first.operations);
    if calls == 0 { 0.0 } else { (last.cpu_seconds - first.cpu_seconds) * 1e6 / calls as f64 }
}

/// Slope per hour of the line closest to the samples after the first tenth; 0 for fewer than two.
fn growth(points: &[Point], of: impl Fn(&Point) -> f64) -> f64 {
    let points = &points[points.len() / 10..];
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(&mut points.iter().map(|p| p.seconds)), mean(&mut points.iter().map(&of)));
    let across: f64 = points.iter().map(|p| (p.seconds - x) * (of(p) - y)).sum();
    let spread: f64 = points.iter().map(|p| (p.seconds - x).powi(2)).sum();
    if spread > 0.0 { across / spread * 3600.0 } else { 0.0 }
}

const _: () = assert!(SLICES >= 20, "a tenth of the run has samples");

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that grows by 1 kB a second behind a first tenth that grows by a hundred times that,
    /// calls that cost twice as much at the end.
    #[test]
    fn growth_and_slowness_are_found() {
        let point = |second: u32| Point {
            seconds: f64::from(second),
            operations: u64::from(second) * 500,
            cpu_seconds: if second < 50 { 0.05 * f64::from(second) } else { 2.5 + 0.1 * f64::from(second - 50) },
            anonymous_bytes: if second < 10 { u64::from(second) * 100_000 } else { 900_000 + u64::from(second) * 1000 },
            ..Point::default()
        };
        let watched = Watched { pids: vec![std::process::id()], ..Watched::default() };
        let mut course = Course::new(&watched, Instant::now(), Duration::from_secs(1));
        course.points = (0..100).map(point).collect();
        let mut figures = BTreeMap::new();
        course.figures(&mut figures, &[]);
        for (name, expected) in [
            ("anonymous MB grown per hour", 3.6),
            ("us/op first tenth", 100.0),
            ("us/op last tenth", 200.0),
            ("us/op last/first tenth", 2.0),
            ("RSS MB grown per hour", 0.0),
        ] {
            assert!((figures[name] - expected).abs() < 1e-6, "{name}: {}", figures[name]);
        }
        assert!(!figures.contains_key("disk MB at the end"), "no folder, no figure");
    }
}
