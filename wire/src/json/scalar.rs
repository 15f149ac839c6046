//! How numbers and bytes may be written.

/// The digits of a number that is whole, however it is written: `5`, `5.0`,
/// `50e-1`; the sign in front.
pub(super) fn whole(number: &str) -> Option<String> {
    let (negative, rest) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // Neither a leading nor a trailing zero counts.
    let integer = if integer == "0" { "" } else { integer };
    let fraction = fraction.trim_end_matches('0');
    if integer.is_empty() && fraction.is_empty() {
        return Some("0".to_owned());
    }
    let exponent: i32 = if exponent.is_empty() { 0 } else { exponent.parse().ok()? };
    let shift = usize::try_from(exponent.unsigned_abs()).ok()?;

    let mut digits = integer.to_owned();
    if exponent >= 0 {
        // Twenty digits hold every u64: more need not be spelled out.
        if fraction.len() > shift || integer.len() + shift > 20 {
            return None;
        }
        digits.push_str(fraction);
        digits.extend(std::iter::repeat_n('0', shift - fraction.len()));
    } else {
        let kept = integer.len().checked_sub(shift)?;
        if !fraction.is_empty() || integer[kept..].contains(|c| c != '0') {
            return None;
        }
        digits.truncate(kept);
    }
    Some(if negative { format!("-{digits}") } else { digits })
}

/// The number that a quoted number begins with. Blanks around it are refused;
/// what follows after a delimiter is not looked at, as in the original.
pub(super) fn quoted(text: &str) -> Option<&str> {
    if text.trim() != text {
        return None;
    }
    let bytes = text.as_bytes();
    let digits_from = |at: usize| at + bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at = match bytes.get(at)? {
        b'0' => at + 1,
        b'1'..=b'9' => digits_from(at),
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at = digits_from(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) && at + 1 < bytes.len() {
        at += 1;
        if matches!(bytes[at], b'+' | b'-') {
            at += 1;
            if at == bytes.len() {
                return None;
            }
        }
        at = digits_from(at);
    }
    let delimited = match bytes.get(at) {
        Some(b) => !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.' | b'_')),
        None => true,
    };
    delimited.then(|| &text[..at])
}

/// Bytes in base64: standard or URL-safe, padded or not. Line breaks and stray
/// bits in the last digit are accepted.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let url = text.contains(['-', '_']);
    let padded = text.len().is_multiple_of(4);
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let mut chars = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n'));
    let (mut bits, mut held) = (0_u32, 0);
    let mut flush = |bits: u32, held: u32| {
        let whole = bits << (6 * (4 - held));
        out.extend_from_slice(&whole.to_be_bytes()[1..][..held as usize - 1]);
    };
    while let Some(c) = chars.next() {
        if c == b'=' && padded {
            // Padding only completes the last group.
            let complete = match held {
                2 => chars.next() == Some(b'='),
                3 => true,
                _ => false,
            };
            if !complete || chars.next().is_some() {
                return None;
            }
            flush(bits, held);
            return Some(out);
        }
        bits = bits << 6 | sextet(c, url)?;
        held += 1;
        if held == 4 {
            flush(bits, held);
            (bits, held) = (0, 0);
        }
    }
    match held {
        0 => {}
        2 | 3 if !padded => flush(bits, held),
        _ => return None,
    }
    Some(out)
}

fn sextet(c: u8, url: bool) -> Option<u32> {
    Some(match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' if !url => 62,
        b'/' if !url => 63,
        b'-' if url => 62,
        b'_' if url => 63,
        _ => return None,
    })
}

/// Appends bytes in standard base64 with padding.
pub(super) fn push_base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            if place > group.len() {
                out.push('=');
            } else {
                let digit = bits >> (18 - 6 * place) & 63;
                out.push(char::from(DIGITS[digit as usize]));
            }
        }
    }
}
