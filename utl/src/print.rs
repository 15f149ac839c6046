//! Output forms: simple, json, fields, table. One answer is one row of named values.

use crate::call::{Call, Failure};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Simple,
    Json,
    Fields,
    Table,
}

/// A value under its names in the forms.
pub struct Column {
    pub json: &'static str,
    pub fields: &'static str,
    pub table: &'static str,
    pub value: Value,
    /// How simple and table show it.
    pub shown: String,
}

impl Form {
    pub fn of(call: &Call) -> Result<Form, Failure> {
        let refused = |text: &str| Err(Failure::Plain { status: 4, text: text.to_string() });
        match call.text("write-out") {
            "simple" => Ok(Form::Simple),
            "json" => Ok(Form::Json),
            "fields" => Ok(Form::Fields),
            "table" => Ok(Form::Table),
            "protobuf" => refused("protobuf not supported as output format"),
            _ => refused("unsupported output format"),
        }
    }

    pub fn render(self, row: &[Column]) -> String {
        match self {
            Form::Simple => {
                let shown: Vec<&str> = row.iter().map(|column| column.shown.as_str()).collect();
                format!("{}\n", shown.join(", "))
            }
            Form::Json => {
                let pairs: Vec<String> =
                    row.iter().map(|column| format!("{}:{}", Value::from(column.json), column.value)).collect();
                format!("{{{}}}\n", pairs.join(","))
            }
            Form::Fields => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
                row.iter().map(|column| format!("\"{}\" : {}\n", column.fields, text(&column.value))).collect()
            }
            Form::Table => table(row),
        }
    }
}

/// Headers in the middle, values to the right.
fn table(row: &[Column]) -> String {
    let width = |column: &Column| column.table.chars().count().max(column.shown.chars().count());
    let rule = |left: &str, middle: &str, right: &str| {
        let dashes: Vec<String> = row.iter().map(|column| "─".repeat(width(column) + 2)).collect();
        format!("{left}{}{right}\n", dashes.join(middle))
    };
    let line = |cells: Vec<String>| format!("│{}│\n", cells.join("│"));
    let heads = row.iter().map(|column| format!(" {:^1$} ", column.table.to_uppercase(), width(column))).collect();
    let cells = row.iter().map(|column| format!(" {:>1$} ", column.shown, width(column))).collect();
    [rule("┌", "┬", "┐"), line(heads), rule("├", "┼", "┤"), line(cells), rule("└", "┴", "┘")].concat()
}

/// Bytes as `29 kB`, in powers of 1,000.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let unit = (bytes.ilog10() / 3) as usize;
    let value = (bytes as f64 / 1000f64.powi(unit as i32) * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A line of the stock tool's log, on standard error: time, level, place, message, fields.
pub fn log(level: &str, place: &str, message: &str, fields: &[(&str, Value)]) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}: {}", Value::from(*name), spaced(value))).collect();
    let fields = if fields.is_empty() { String::new() } else { format!("\t{{{}}}", fields.join(", ")) };
    eprintln!("{now}\t{level}\t{place}\t{message}{fields}");
}

fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        let table = [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (9949, "9.9 kB"),
            (28672, "29 kB"),
            (1_234_567, "1.2 MB"),
            (10_737_418_240, "11 GB"),
        ];
        for (bytes, text) in table {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((count(7), count(1000), count(1_234_567)), ("7".into(), "1,000".into(), "1,234,567".into()));
    }

    #[test]
    fn one_row_in_every_form() {
        let column = |json, fields, table, value: Value, shown: &str| Column {
            json,
            fields,
            table,
            value,
            shown: shown.to_string(),
        };
        let row = [
            column("hash", "Hash", "hash", 1_951_303_606u32.into(), "744e87b6"),
            column("version", "Version", "version", "3.7.0".into(), "3.7.0"),
        ];
        // As etcdutl 3.7.3 prints them.
        assert_eq!(Form::Simple.render(&row), "744e87b6, 3.7.0\n");
        assert_eq!(Form::Json.render(&row), "{\"hash\":1951303606,\"version\":\"3.7.0\"}\n");
        assert_eq!(Form::Fields.render(&row), "\"Hash\" : 1951303606\n\"Version\" : 3.7.0\n");
        assert_eq!(
            Form::Table.render(&row),
            "┌──────────┬─────────┐\n│   HASH   │ VERSION │\n├──────────┼─────────┤\n\
             │ 744e87b6 │   3.7.0 │\n└──────────┴─────────┘\n"
        );
    }
}
