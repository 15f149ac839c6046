//! All of them by name, and what each is done to.

use super::super::target::Target;
use super::{calls, http1, http2, limits, peers, storms};

/// One way to do harm.
pub(in crate::attack) struct Attack {
    pub(in crate::attack) name: &'static str,
    pub(in crate::attack) what: &'static str,
    pub(in crate::attack) threads: usize,
    pub(in crate::attack) run: fn(&Target, usize),
    pub(in crate::attack) on: On,
}

/// The member that is attacked.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::attack) struct On {
    /// Descriptors that it may have; 0: as many as it likes.
    pub(in crate::attack) files: u32,
    /// MiB that it may have; 0: as much as it likes.
    pub(in crate::attack) memory: u64,
    /// It serves TLS beside.
    pub(in crate::attack) tls: bool,
    /// It has users, and the honest client is one.
    pub(in crate::attack) users: bool,
    /// It has two others, and one of them is started again during the attack.
    pub(in crate::attack) cluster: bool,
}

const ALONE: On = On { files: 0, memory: 0, tls: false, users: false, cluster: false };
const TLS: On = On { tls: true, ..ALONE };
const CLUSTER: On = On { cluster: true, ..ALONE };

const fn on(on: On, name: &'static str, what: &'static str, threads: usize, run: fn(&Target, usize)) -> Attack {
    Attack { name, what, threads, run, on }
}

const fn attack(name: &'static str, what: &'static str, threads: usize, run: fn(&Target, usize)) -> Attack {
    on(ALONE, name, what, threads, run)
}

pub(in crate::attack) const ALL: &[Attack] = &[
    attack("rapid-reset", "calls begun and reset at once", 2, http2::rapid_reset),
    attack("continuation", "a header block that never ends", 2, http2::continuation),
    attack("settings", "SETTINGS, no acknowledgement read", 4, http2::settings),
    attack("ping", "PING, no answer read", 4, http2::ping),
    attack("frames", "HTTP/2 frames of any kind, length and stream", 2, http2::frames),
    attack("slow-h1", "400 requests whose head comes byte by byte", 1, http1::slow),
    attack("slow-h2", "400 prefaces that come byte by byte", 1, http2::slow),
    on(TLS, "half-handshakes", "connections that begin TLS and say no more", 1, limits::half_handshakes),
    on(TLS, "hellos", "whole ClientHellos: the member draws a key and signs", 4, limits::hellos),
    attack("huge-headers", "header lists of 1 MiB, on HTTP/2 and HTTP/1.1", 2, http1::huge_headers),
    attack("smuggling", "HTTP/1.1 requests of which two lengths can be read", 1, http1::smuggling),
    attack("trickled-json", "four JSON strings of 3 MB, in pieces of 1 KiB", 4, http1::trickled_json),
    attack("trickled-calls", "5,000 puts of 1 MB whose bodies come byte by byte", 1, calls::trickled),
    attack("stalled-bodies", "10,000 puts of 1 MB whose body stops", 1, calls::stalled_bodies),
    attack("unfinished-calls", "200,000 calls without a message", 1, calls::unfinished),
    attack("unread-ranges", "200 connections that read nothing of large ranges", 1, calls::unread_ranges),
    attack("unread-watches", "1,000 watches from revision 1, unread", 1, calls::unread_watches),
    attack("watch-burst", "20,000 watches created at once on one stream", 1, storms::watch_burst),
    attack("watch-storm", "watches created and cancelled", 2, storms::watches),
    attack("lease-storm", "leases granted without end", 2, storms::leases),
    attack("snapshot-storm", "16 backups at once, hardly read", 1, storms::snapshots),
    attack("large-puts", "64 clients that put 1.5 MB, again and again", 1, storms::large_puts),
    on(On { users: true, ..ALONE }, "passwords", "64 clients that try passwords", 16, storms::passwords),
    attack("garbage", "random bytes on both ports", 2, peers::garbage),
    on(CLUSTER, "garbage-peers", "frames of garbage behind the first words of a member", 2, peers::frames),
    on(CLUSTER, "silent-peers", "600 silent connections to each peer port", 1, peers::silent),
    on(CLUSTER, "unread-peers", "300 clients of the peer port that read nothing", 1, peers::unread),
    on(On { files: 1024, ..ALONE }, "descriptors", "1,500 connections at ulimit -n 1024", 1, limits::descriptors),
    on(
        On { memory: 512, ..ALONE },
        "memory",
        "large puts, stalled bodies, unread ranges and watches in 512 MiB",
        4,
        limits::memory,
    ),
];

/// Those whose names are or begin so; all, if no name is given.
///
/// # Errors
/// A name that is none.
pub(in crate::attack) fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Attack>> {
    let of = |name: &str| -> Vec<&'static Attack> {
        let exact = ALL.iter().find(|attack| attack.name == name);
        exact.map_or_else(|| ALL.iter().filter(|attack| attack.name.starts_with(name)).collect(), |attack| vec![attack])
    };
    if let Some(wrong) = names.iter().find(|name| name.is_empty() || of(name).is_empty()) {
        anyhow::bail!("no attack is called {wrong:?}: `cargo xtask attack --list` names them");
    }
    let wanted = |attack: &&Attack| {
        names.is_empty() || names.iter().any(|name| of(name).iter().any(|one| one.name == attack.name))
    };
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_attacks_and_wrong_ones_are_told() {
        let names = |names: &[&str]| -> anyhow::Result<Vec<&str>> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Ok(chosen(&names)?.iter().map(|attack| attack.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), ALL.len());
        assert_eq!(names(&["watch"]).unwrap(), ["watch-burst", "watch-storm"]);
        assert_eq!(names(&["ping", "settings"]).unwrap(), ["settings", "ping"]);
        // A whole name is no beginning.
        assert_eq!(names(&["garbage"]).unwrap(), ["garbage"]);
        assert!(names(&["ping", "pong"]).unwrap_err().to_string().contains("\"pong\""));
        assert!(names(&[""]).is_err());
    }

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let mut names: Vec<&str> = ALL.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
