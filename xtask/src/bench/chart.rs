//! Line charts as inline SVG.

use super::result::number;
use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 24.0;
const RIGHT: f64 = 12.0;
const BOTTOM: f64 = 26.0;

/// One line; `side` chooses its colour.
#[derive(Clone, Debug)]
pub struct Series {
    pub side: usize,
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub log_x: bool,
    pub log_y: bool,
    /// Where the x axis has marks, and what stands there; empty: chosen.
    pub x_names: Vec<(f64, String)>,
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    /// A linear axis begins at 0.
    fn over(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Option<Axis> {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && (!log || *v > 0.0)).collect();
        let most = values.iter().copied().reduce(f64::max)?;
        let least = values.iter().copied().reduce(f64::min)?;
        let from = if log || !from_zero { least } else { least.min(0.0) };
        let to = if most > from { most } else { from + 1.0 };
        Some(if log { Axis { from: from.log10(), to: to.log10(), log } } else { Axis { from, to, log } })
    }

    fn at(self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-12).log10() } else { value };
        ((value - self.from) / (self.to - self.from).max(1e-9)).clamp(0.0, 1.0)
    }

    /// Marks: powers of ten on a logarithmic axis that has two of them, four steps otherwise.
    fn marks(self) -> Vec<f64> {
        if self.log {
            let powers: Vec<f64> =
                (self.from.ceil() as i32..=self.to.floor() as i32).map(|power| 10_f64.powi(power)).collect();
            if powers.len() >= 2 {
                return powers;
            }
            return (0..=3).map(|i| 10_f64.powf(self.from + (self.to - self.from) * f64::from(i) / 3.0)).collect();
        }
        let rough = (self.to - self.from) / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
        (0..12).map(|i| (self.from / step).ceil() * step + step * f64::from(i)).take_while(|m| *m <= self.to).collect()
    }
}

impl Chart {
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let (Some(x), Some(y)) =
            (Axis::over(points().map(|p| p.0), self.log_x, false), Axis::over(points().map(|p| p.1), self.log_y, true))
        else {
            return String::new();
        };
        let px = |value: f64| LEFT + x.at(value) * (WIDTH - LEFT - RIGHT);
        let py = |value: f64| HEIGHT - BOTTOM - y.at(value) * (HEIGHT - TOP - BOTTOM);
        let mut out =
            format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        let _ = write!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"14\">{}</text>", escape(&self.title));
        for mark in y.marks() {
            let at = py(mark);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 5.0,
                at + 4.0,
                short(mark)
            );
        }
        let x_marks = match self.x_names.as_slice() {
            [] => x.marks().into_iter().map(|mark| (mark, short(mark))).collect(),
            names => names.to_vec(),
        };
        for (mark, name) in x_marks {
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                px(mark),
                HEIGHT - 8.0,
                escape(&name)
            );
        }
        for series in &self.series {
            let places: Vec<String> =
                series.points.iter().map(|(a, b)| format!("{:.1},{:.1}", px(*a), py(*b))).collect();
            let _ = write!(out, "<polyline class=\"s{}\" points=\"{}\"/>", series.side, places.join(" "));
            if series.points.len() <= 20 {
                for (a, b) in &series.points {
                    let _ = write!(
                        out,
                        "<circle class=\"f{}\" r=\"2.5\" cx=\"{:.1}\" cy=\"{:.1}\"><title>{}</title></circle>",
                        series.side,
                        px(*a),
                        py(*b),
                        number(*b)
                    );
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        a if a >= 1e6 => format!("{} M", trimmed(value / 1e6)),
        a if a >= 1e4 => format!("{} k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Text as HTML has it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_inside() {
        let axis = |from, to, log| Axis { from, to, log };
        assert_eq!(axis(0.0, 37.0, false).marks(), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(axis(0.0, 3.0, true).marks(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(short(25_000.0), "25 k");
        assert_eq!(short(0.5), "0.5");
    }

    #[test]
    fn a_chart_is_whole_and_an_empty_one_is_nothing() {
        let chart = |points: &[(f64, f64)]| Chart {
            title: "a < b".into(),
            log_x: true,
            log_y: false,
            x_names: Vec::new(),
            series: vec![Series { side: 0, points: points.to_vec() }],
        };
        assert_eq!(chart(&[]).svg(), "");
        let svg = chart(&[(1.0, 10.0), (1000.0, 20.0)]).svg();
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("points=\"58.0,109.0 468.0,24.0\""), "{svg}");
    }
}
