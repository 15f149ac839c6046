//! Which member is meant: by its id, and for people by its name or a peer URL too.

use client::{Client, wire::etcdserverpb::Member};

use super::gofmt;
use crate::{
    call::Call,
    exit::{BAD_ARGS, ERROR, Failure, Outcome},
};

/// A member as it was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Whom {
    /// An id: the stock tool knows nothing else.
    Id(u64),
    /// An id, a name or a peer URL, to be looked for among the members.
    Any(String),
}

/// Why a text means no member.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfound {
    /// No member has it as its id, name or peer URL.
    Unknown,
    /// More than one has.
    Ambiguous,
}

impl Whom {
    /// What was typed. `misread` words what the stock tool says of a text that is no id.
    ///
    /// # Errors
    /// As the stock tool, if the text is no id.
    pub fn read(call: &Call, text: &str, misread: impl FnOnce(String) -> Failure) -> Outcome<Whom> {
        if call.is_ours() {
            return Ok(Whom::Any(text.to_owned()));
        }
        gofmt::hexadecimal(text).map(Whom::Id).map_err(misread)
    }

    /// The id, asked of the cluster if need be.
    ///
    /// # Errors
    /// The text means no member, or more than one; the members cannot be listed.
    pub fn id(self, call: &Call, client: &Client) -> Outcome<u64> {
        let text = match self {
            Whom::Id(id) => return Ok(id),
            Whom::Any(text) => text,
        };
        match call.timed(client.member_list()) {
            Ok(listed) => match among(&listed.members, &text) {
                Ok(member) => Ok(member.id),
                Err(why) => Err(unfound(&listed.members, &text, &why)),
            },
            // An id needs no list.
            Err(failure) => gofmt::hexadecimal(&text).map_err(|_| failure),
        }
    }
}

/// The one member whose id, name or peer URL this is.
///
/// # Errors
/// There is none, or more than one.
pub fn among<'m>(members: &'m [Member], text: &str) -> Result<&'m Member, Unfound> {
    let id = gofmt::hexadecimal(text).ok();
    let is_meant =
        |member: &&Member| Some(member.id) == id || (!text.is_empty() && member.name == text) || has_url(member, text);
    let mut meant = members.iter().filter(is_meant);
    match (meant.next(), meant.next()) {
        (Some(member), None) => Ok(member),
        (None, _) => Err(Unfound::Unknown),
        (Some(_), Some(_)) => Err(Unfound::Ambiguous),
    }
}

/// Whether the others reach the member there.
pub fn has_url(member: &Member, url: &str) -> bool {
    member.peer_urls.iter().any(|own| own.trim_end_matches('/') == url.trim_end_matches('/'))
}

/// The failure for a text that means none of the members.
pub fn unfound(members: &[Member], text: &str, why: &Unfound) -> Failure {
    let quoted = cobra::quote(text);
    let list = listed(members);
    match why {
        Unfound::Ambiguous => {
            Failure::new(BAD_ARGS, format!("more than one member is meant by {quoted}: name it by its id; {list}"))
        }
        Unfound::Unknown if gofmt::hexadecimal(text).is_ok() => {
            let text = format!("etcdserver: member not found: none has the id or the name {quoted}; {list}");
            Failure::new(ERROR, text)
        }
        Unfound::Unknown => Failure::new(BAD_ARGS, format!("no member has the name {quoted}; {list}")),
    }
}

/// `the members are m1 (8e9e05c52164694d), …`.
fn listed(members: &[Member]) -> String {
    let one = |member: &Member| match &member.name[..] {
        "" => format!("{:x} (not started, {})", member.id, member.peer_urls.join(",")),
        name => format!("{name} ({:x})", member.id),
    };
    format!("the members are {}", members.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, url: &str) -> Member {
        Member { id, name: name.to_owned(), peer_urls: vec![url.to_owned()], ..Member::default() }
    }

    #[test]
    fn a_member_is_meant_by_id_name_or_url() {
        let members = [
            member(0xab, "m1", "http://a:1"),
            member(0xcd, "m2", "http://b:1"),
            member(0xef, "m2", "http://c:1"),
            member(0x12, "", "http://d:1"),
            member(0x34, "ab", "http://e:1"),
        ];
        let meant = |text: &str| among(&members, text).map(|member| member.id);
        for (text, id) in [
            ("m1", Ok(0xab)),
            ("cd", Ok(0xcd)),
            ("00CD", Ok(0xcd)),
            ("http://d:1", Ok(0x12)),
            ("http://d:1/", Ok(0x12)),
            ("m2", Err(Unfound::Ambiguous)),
            // One's name is another's id.
            ("ab", Err(Unfound::Ambiguous)),
            ("m3", Err(Unfound::Unknown)),
            ("ff", Err(Unfound::Unknown)),
            ("", Err(Unfound::Unknown)),
        ] {
            assert_eq!(meant(text), id, "{text}");
        }
    }

    #[test]
    fn whoever_is_not_meant_is_listed() {
        let members = [member(0xab, "m1", "http://a:1"), member(0x12, "", "http://d:1")];
        let failure = |text: &str| unfound(&members, text, &among(&members, text).expect_err("means none"));
        let text = "no member has the name \"m3\"; the members are m1 (ab), 12 (not started, http://d:1)";
        assert_eq!(failure("m3"), Failure::bad_args(text));
        let text = "etcdserver: member not found: none has the id or the name \"ff\"; the members are m1 (ab), \
                    12 (not started, http://d:1)";
        assert_eq!(failure("ff"), Failure::new(ERROR, text));
    }
}
