//! Words of the command line that are not text. Keys and values may be any
//! bytes, and most words are read as text; so a word is a `String` in which a
//! byte that is not UTF-8 has a character of its own, from the end of the last
//! private plane. It is the same in both directions: where these characters
//! are typed themselves, their bytes are such bytes.

/// What byte 0 would be; only 0x80 and above can be no text.
const BASE: u32 = 0x10_ff00;

/// Bytes as a word.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match marked(letter) {
                None => text.push(letter),
                Some(_) => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push(mark(byte))),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push(mark(*byte)));
    }
    text
}

/// The bytes of a word.
pub fn bytes(word: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    for letter in word.chars() {
        match marked(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Whether a word is text through and through.
pub fn is_text(word: &str) -> bool {
    word.chars().all(|letter| marked(letter).is_none())
}

/// A word as the system takes it: a file's name, an argument.
pub fn os(word: &str) -> std::ffi::OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes(word))
}

/// The byte that a character stands for.
pub fn marked(letter: char) -> Option<u8> {
    u32::from(letter).checked_sub(BASE).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| *byte >= 0x80)
}

fn mark(byte: u8) -> char {
    char::from_u32(BASE + u32::from(byte)).expect("no surrogates are up there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive() {
        let cases: [&[u8]; 6] = [
            b"",
            b"plain",
            "Straße \u{fffd}".as_bytes(),
            b"k\xff\x80",
            b"\xf0\x9f",
            "\u{10ff80}x\u{10ffff}".as_bytes(),
        ];
        for case in cases {
            assert_eq!(bytes(&text(case)), case, "{case:?}");
        }
        assert!(is_text(&text("Straße".as_bytes())));
        assert!(!is_text(&text(b"k\xff")) && !is_text(&text("\u{10ff80}".as_bytes())));
    }

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(text(b"put --lease=0 a"), "put --lease=0 a");
        assert_eq!(text(b"a\xffb").chars().count(), 3);
    }
}
