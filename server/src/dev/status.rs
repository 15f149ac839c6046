//! What the members say of themselves, and the table of it.

use super::running::{self, Running};
use super::trouble::{Trouble, Why};
use super::{Dev, absolute};
use disk::urls::Url;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// What one member answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) leads: bool,
    pub(super) knows_leader: bool,
    pub(super) term: u64,
    pub(super) revision: u64,
    pub(super) bytes: u64,
}

/// `/v3/maintenance/status` of one member, over plain HTTP/1.1.
pub(super) fn ask(endpoint: &str) -> Option<Said> {
    const WITHIN: Duration = Duration::from_millis(300);
    let url = Url::parse(&format!("http://{endpoint}")).ok()?;
    let address: SocketAddr = url.address().parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, WITHIN).ok()?;
    stream.set_read_timeout(Some(WITHIN)).ok()?;
    stream
        .write_all(
            format!(
                "POST /v3/maintenance/status HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
                 Content-Length: 2\r\nConnection: close\r\n\r\n{{}}",
                url.address()
            )
            .as_bytes(),
        )
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let json: Value = serde_json::from_str(&answer[answer.find('{')?..=answer.rfind('}')?]).ok()?;
    said(&json)
}

/// None: it is an error, and no status.
fn said(json: &Value) -> Option<Said> {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let member = number(&json["header"]["member_id"])?;
    let leader = number(&json["leader"]).unwrap_or(0);
    Some(Said {
        leads: leader == member,
        knows_leader: leader != 0,
        term: number(&json["raftTerm"]).unwrap_or(0),
        revision: number(&json["header"]["revision"]).unwrap_or(0),
        bytes: number(&json["dbSize"]).unwrap_or(0),
    })
}

/// Name and term of the leader, as the members say; the highest term wins.
pub(super) fn leader(members: &[(String, Option<Said>)]) -> Option<(String, u64)> {
    let leads = |(name, said): &(String, Option<Said>)| {
        said.as_ref().filter(|said| said.leads).map(|said| (name.clone(), said.term))
    };
    members.iter().filter_map(leads).max_by_key(|(_, term)| *term)
}

/// What `kvorum dev status` prints, and whether a leader is known.
///
/// # Errors
/// Nothing runs in this directory; what the file system says.
pub fn status(dev: &Dev, as_json: bool) -> Result<(String, bool), Trouble> {
    let (dir, running) = (absolute(&dev.data_dir), running(dev)?);
    let asked: Vec<(String, Option<Said>)> =
        running.members.iter().map(|member| (member.name.clone(), ask(&member.endpoint))).collect();
    let leads = leader(&asked);
    let text = if as_json { as_json_text(&running, &asked, &dir) } else { table(&running, &asked, &dir) };
    Ok((text, leads.is_some()))
}

/// What runs in this directory.
///
/// # Errors
/// Nothing does; what the file system says.
pub(super) fn running(dev: &Dev) -> Result<Running, Trouble> {
    let dir = absolute(&dev.data_dir);
    let runs = dir.exists() && running::lock(&dir).map_err(Trouble::of(&dir))?.is_none();
    if !runs {
        return Err(Why::Nothing { dir, called: dev.called.clone(), folder: super::folder(dev) }.into());
    }
    Ok(Running::read(&dir).ok_or(Why::Starting(dir))?)
}

fn state(said: Option<&Said>, process: Option<u32>) -> &'static str {
    match (said, process) {
        (_, None) => "down",
        (None, _) => "does not answer",
        (Some(said), _) if said.leads => "leader",
        (Some(said), _) if said.knows_leader => "follower",
        (Some(_), _) => "knows no leader",
    }
}

fn table(running: &Running, asked: &[(String, Option<Said>)], dir: &Path) -> String {
    let leader = match leader(asked) {
        Some((name, term)) => format!("{name} leads (term {term})"),
        None => "nobody leads".to_string(),
    };
    let mut text = format!("{}: {leader}; kvorum dev is process {}\n\n", dir.display(), running.process);
    let mut row = |cells: [&str; 6]| {
        let [name, endpoint, process, state, revision, size] = cells;
        let line = format!("{name:<6} {endpoint:<22} {process:<9} {state:<16} {revision:>9}  {size:>9}");
        let _ = writeln!(text, "{}", line.trim_end());
    };
    row(["NAME", "ENDPOINT", "PROCESS", "STATE", "REVISION", "SIZE"]);
    for (member, (_, said)) in running.members.iter().zip(asked) {
        let process = member.process.map_or("-".to_string(), |process| process.to_string());
        let number = |of: fn(&Said) -> String| said.as_ref().map_or("-".to_string(), of);
        row([
            &member.name,
            &member.endpoint,
            &process,
            state(said.as_ref(), member.process),
            &number(|said| said.revision.to_string()),
            &number(|said| format!("{} kB", said.bytes.div_ceil(1000))),
        ]);
    }
    text
}

fn as_json_text(running: &Running, asked: &[(String, Option<Said>)], dir: &Path) -> String {
    let members: Vec<Value> = running
        .members
        .iter()
        .zip(asked)
        .map(|(member, (_, said))| {
            json!({
                "name": member.name,
                "endpoint": member.endpoint,
                "process": member.process,
                "state": state(said.as_ref(), member.process),
                "term": said.as_ref().map(|said| said.term),
                "revision": said.as_ref().map(|said| said.revision),
                "dbSize": said.as_ref().map(|said| said.bytes),
            })
        })
        .collect();
    let leader = leader(asked).map(|(name, _)| name);
    let all = json!({ "dataDir": dir, "process": running.process, "leader": leader, "members": members });
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests {
    use super::super::running::Member;
    use super::*;

    fn member(name: &str, process: Option<u32>) -> Member {
        Member { name: name.into(), endpoint: "127.0.0.1:2379".into(), process }
    }

    #[test]
    fn the_table_says_who_leads_and_who_is_down() {
        let leads = Said { leads: true, knows_leader: true, term: 3, revision: 12, bytes: 20_480 };
        let follows = Said { leads: false, ..leads.clone() };
        let running =
            Running { process: 7, members: vec![member("m1", Some(8)), member("m2", Some(9)), member("m3", None)] };
        let asked = [("m1".into(), Some(follows)), ("m2".into(), Some(leads)), ("m3".into(), None)];
        let text = table(&running, &asked, Path::new("/d"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/d: m2 leads (term 3); kvorum dev is process 7");
        assert_eq!(lines[2], "NAME   ENDPOINT               PROCESS   STATE             REVISION       SIZE");
        assert_eq!(lines[4], "m2     127.0.0.1:2379         9         leader                  12      21 kB");
        assert_eq!(lines[5], "m3     127.0.0.1:2379         -         down                     -          -");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let json: Value = serde_json::from_str(&as_json_text(&running, &asked, Path::new("/d"))).expect("JSON");
        assert_eq!((json["leader"].as_str(), json["members"][2]["state"].as_str()), (Some("m2"), Some("down")));
    }

    #[test]
    fn the_leader_of_the_highest_term_is_believed() {
        let said = |term| Some(Said { leads: true, knows_leader: true, term, revision: 1, bytes: 0 });
        let asked = [("m1".to_string(), said(2)), ("m2".to_string(), said(4)), ("m3".to_string(), None)];
        assert_eq!(leader(&asked), Some(("m2".to_string(), 4)));
    }
}
