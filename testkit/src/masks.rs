//! What differs from run to run is put out of a text before it is compared.

/// The text with `name` for `own` wherever `own` stands alone. The digits of a port may also be a
/// part of an id: those stay.
pub fn alone(text: &str, own: &str, name: &str) -> String {
    let joins = |one: Option<char>, other: Option<char>| {
        one.is_some_and(|c| c.is_ascii_alphanumeric()) && other.is_some_and(|c| c.is_ascii_alphanumeric())
    };
    let (mut named, mut rest, mut previous) = (String::new(), text, None);
    while let Some(at) = rest.find(own).filter(|_| !own.is_empty()) {
        let (before, behind) = (&rest[..at], &rest[at + own.len()..]);
        previous = before.chars().next_back().or(previous);
        let part = joins(previous, own.chars().next()) || joins(own.chars().next_back(), behind.chars().next());
        named += before;
        named += if part { own } else { name };
        previous = own.chars().next_back();
        rest = behind;
    }
    named + rest
}

#[cfg(test)]
mod tests {
    use super::alone;

    #[test]
    fn only_what_stands_alone_is_named() {
        let masked = |text| alone(text, "4013", "PORT");
        assert_eq!(masked("http://127.0.0.1:4013, 4013"), "http://127.0.0.1:PORT, PORT");
        assert_eq!(masked("id 1840139 and 40134013, at 4013"), "id 1840139 and 40134013, at PORT");
        assert_eq!(alone("ID              ab, c", "              ab", "$L"), "ID$L, c");
        assert_eq!(alone("nothing", "", "x"), "nothing");
    }
}
