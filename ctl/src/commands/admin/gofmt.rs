//! Numbers as Go's standard library and its usual companions write them.

pub use cobra::go::duration;

/// A size in units of a thousand: `20 kB`, `2.1 GB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog10() / 3) as usize;
    let value = bytes as f64 / 1000_f64.powi(i32::try_from(power).expect("at most 6"));
    let value = (value * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {}", UNITS[power]) } else { format!("{value:.0} {}", UNITS[power]) }
}

/// A number in hexadecimal digits, as `strconv.ParseUint` reads it.
///
/// # Errors
/// Go's words.
pub fn hexadecimal(text: &str) -> Result<u64, String> {
    let bad = |reason: &str| format!("strconv.ParseUint: parsing {}: {reason}", cobra::quote(text));
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(bad("invalid syntax"));
    }
    u64::from_str_radix(text, 16).map_err(|_| bad("value out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_people() {
        let cases = [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (12_288, "12 kB"),
            (20_480, "20 kB"),
            (262_144, "262 kB"),
            (2_147_483_648, "2.1 GB"),
            (u64::MAX, "18 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn ids_are_hexadecimal_and_have_no_sign() {
        assert_eq!(hexadecimal("8e9e05c52164694d"), Ok(0x8e9e_05c5_2164_694d));
        assert_eq!(hexadecimal("zz"), Err("strconv.ParseUint: parsing \"zz\": invalid syntax".to_owned()));
        assert_eq!(hexadecimal("+1"), Err("strconv.ParseUint: parsing \"+1\": invalid syntax".to_owned()));
        assert_eq!(hexadecimal(""), Err("strconv.ParseUint: parsing \"\": invalid syntax".to_owned()));
        let long = "fffffffffffffffff";
        assert_eq!(hexadecimal(long), Err(format!("strconv.ParseUint: parsing \"{long}\": value out of range")));
    }
}
