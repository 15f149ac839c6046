//! The ports of the members. They are remembered in the directory: the next start finds everything
//! again.

use super::Dev;
use super::trouble::{Trouble, Why};
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Client port of the first member where nothing else is asked for: etcd's.
pub(super) const FIRST: u16 = 2379;
/// Where ports for all others are sought.
const OTHERS: std::ops::Range<u16> = 23790..24790;
/// Members of a run before end by themselves when it was killed; so long they have for it.
const LEFT_WITHIN: Duration = Duration::from_secs(5);

/// Of one member, on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) peer: u16,
}

/// The remembered ports, or new ones. All are free now.
///
/// # Errors
/// One is taken; the directory holds a cluster of another size; what the file system says.
pub(super) fn ports(dev: &Dev) -> Result<Vec<Ports>, Trouble> {
    let file = dev.data_dir.join("ports");
    let mut ports = match fs::read_to_string(&file) {
        Ok(text) => parse(&text).ok_or_else(|| Why::Damaged(file.clone()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => choose(dev.members.unwrap_or(3), dev.port)?,
        Err(error) => return Err(Trouble::of(&file)(error)),
    };
    if let Some(wanted) = dev.members.filter(|wanted| usize::from(*wanted) != ports.len()) {
        return Err(Why::Size { dir: dev.data_dir.clone(), has: ports.len(), wanted }.into());
    }
    if let Some(port) = dev.port {
        ports[0].client = port;
    }
    wait_free(&ports)?;
    let text: String = ports.iter().map(|p| format!("{} {}\n", p.client, p.peer)).collect();
    fs::write(&file, text).map_err(Trouble::of(&file))?;
    Ok(ports)
}

fn parse(text: &str) -> Option<Vec<Ports>> {
    let ports: Option<Vec<Ports>> = text
        .lines()
        .map(|line| {
            let (client, peer) = line.split_once(' ')?;
            Some(Ports { client: client.parse().ok()?, peer: peer.parse().ok()? })
        })
        .collect();
    ports.filter(|ports| !ports.is_empty())
}

fn is_free(port: u16) -> bool {
    // A listener on every address would take the port from under us without an error.
    TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpStream::connect(("127.0.0.1", port)).is_err()
}

fn choose(members: u16, first: Option<u16>) -> Result<Vec<Ports>, Trouble> {
    let first = first.unwrap_or(FIRST);
    let mut free = OTHERS.filter(|port| *port != first && is_free(*port));
    let mut next = || free.next().ok_or(Why::NoPort);
    (0..members)
        .map(|n| {
            let client = if n == 0 { first } else { next()? };
            Ok(Ports { client, peer: next()? })
        })
        .collect()
}

fn wait_free(ports: &[Ports]) -> Result<(), Trouble> {
    let until = Instant::now() + LEFT_WITHIN;
    for (member, Ports { client, peer }) in ports.iter().enumerate() {
        for (port, whose) in [(*client, "clients"), (*peer, "peers")] {
            while !is_free(port) {
                if Instant::now() > until {
                    return Err(Why::Taken { port, member, whose }.into());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev(dir: &tempfile::TempDir, members: Option<u16>, port: Option<u16>) -> Dev {
        Dev { members, data_dir: dir.path().to_path_buf(), port, called: "kvorum".into() }
    }

    #[test]
    fn ports_do_not_collide_and_are_remembered() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let free = OTHERS.rev().find(|port| is_free(*port));
        let first = ports(&dev(&dir, Some(3), free)).expect("finds ports");
        let mut all: Vec<u16> = first.iter().flat_map(|p| [p.client, p.peer]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), Some(first[0].client)), (6, free));
        assert_eq!(ports(&dev(&dir, None, None)).expect("remembers"), first);
        let error = ports(&dev(&dir, Some(1), None)).expect_err("another size").to_string();
        assert!(error.contains("a cluster of 3 members, not of 1"), "{error}");
        let other = OTHERS.rev().skip(1).find(|port| Some(*port) != free && is_free(*port));
        assert_eq!(Some(ports(&dev(&dir, None, other)).expect("another port")[0].client), other);
    }

    #[test]
    fn a_port_that_is_taken_is_said_and_nothing_is_remembered() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let holder = TcpListener::bind("127.0.0.1:0").expect("binds");
        let held = holder.local_addr().expect("bound").port();
        let error = ports(&dev(&dir, Some(1), Some(held))).expect_err("taken").to_string();
        assert!(error.contains(&format!("port {held} on 127.0.0.1, for clients of m1, is taken")), "{error}");
        assert!(!dir.path().join("ports").exists());
    }

    #[test]
    fn a_damaged_list_of_ports_is_refused() {
        assert_eq!(parse("1 2\n"), Some(vec![Ports { client: 1, peer: 2 }]));
        for text in ["", "1\n", "1 x\n", "70000 1\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
