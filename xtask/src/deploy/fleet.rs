//! Members as a set-up starts them: its command lines, on machines that have its names; and the
//! compose file with its HAProxy.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::place::{Place, does, files};
use crate::machines::{Machine, Shelf};

/// A cluster is up within this time.
const UP: Duration = Duration::from_secs(60);
/// Who the members run as: the user of the image.
const USER: &str = "setpriv --reuid 65532 --regid 65532 --clear-groups env -i PATH=/usr/local/bin";

/// One member of a set-up.
#[derive(Debug)]
pub struct Service {
    /// Its name there.
    pub name: String,
    /// How it is started.
    pub command: Vec<String>,
    /// What says that it is well, inside.
    pub check: Vec<String>,
}

impl Service {
    /// Where its data are.
    fn data(&self) -> Result<&str> {
        let dir = self.command.iter().find_map(|word| word.strip_prefix("--data-dir="));
        dir.with_context(|| format!("{} names no --data-dir", self.name))
    }
}

/// Starts the members on m1, m2, … and waits until each says that it is well.
///
/// # Errors
/// With the member that is not.
pub fn start(shelf: &Shelf, services: &[Service]) -> Result<Vec<Machine>> {
    let mut machines = Vec::new();
    for (at, service) in services.iter().enumerate() {
        let mut machine = Machine::boot(shelf, &format!("m{}", at + 1))?;
        let data = service.data()?;
        let links = "for name in etcd etcdctl etcdutl; do ln -s kvorum /usr/local/bin/$name; done";
        does(&machine, &format!("{links}; install -d -m 700 -o 65532 -g 65532 /etcd-data {data}"))?;
        // The names of a set-up are of its own network.
        machine.begins(&format!("exec {USER} {}", quoted(&service.command)))?;
        machines.push(machine);
    }
    for (machine, service) in machines.iter().zip(services) {
        well(machine, &service.check).with_context(|| service.name.clone())?;
    }
    Ok(machines)
}

/// Waits until the check of a member says that it is well.
fn well(machine: &Machine, check: &[String]) -> Result<()> {
    let script = format!("{USER} {}", quoted(check));
    let begun = Instant::now();
    loop {
        match does(machine, &script) {
            Ok(_) => return Ok(()),
            Err(error) => ensure!(begun.elapsed() < UP, "not well: {error:#}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// The members of the compose file.
///
/// # Errors
/// If it is not as it is written here.
pub fn services() -> Result<Vec<Service>> {
    let text = std::fs::read_to_string(files().join("compose/compose.yaml"))?;
    let file: Value = serde_saphyr::from_str(&text).context("compose.yaml")?;
    let all = file["services"].as_object().context("compose.yaml has no services")?;
    let mut members = Vec::new();
    for (name, service) in all.iter().filter(|(name, _)| *name != "haproxy") {
        let merged = |key: &str| if service[key].is_null() { &service["<<"][key] } else { &service[key] };
        let mut check = words(&merged("healthcheck")["test"])?;
        ensure!(check.remove(0) == "CMD", "{name}: a health check that wants a shell, and there is none");
        ensure!(merged("image") == "kvorum", "{name}: another image");
        members.push(Service { name: name.clone(), command: words(&service["command"])?, check });
    }
    Ok(members)
}

/// A list of texts.
///
/// # Errors
/// If it is something else.
pub fn words(list: &Value) -> Result<Vec<String>> {
    let list = list.as_array().context("a list of words")?;
    list.iter().map(|word| Ok(word.as_str().context("a word")?.to_owned())).collect()
}

/// The compose file: members, HAProxy in front, and a member that ends.
pub fn compose(place: &Place) -> Result<()> {
    let shelf = place.shelf("compose")?;
    let services = services()?;
    let machines = start(&shelf, &services)?;
    let mut lb = Machine::boot(&shelf, "lb")?;
    does(&lb, "haproxy -c -f deploy/compose/haproxy.cfg")?;
    lb.begins("exec haproxy -f deploy/compose/haproxy.cfg")?;
    let desk = Machine::boot(&shelf, "desk")?;
    let put = "kvorum ctl --endpoints http://haproxy:2379 put k";
    let soon = |script: &str| does(&desk, &format!("timeout 60 sh -c 'until {script}; do sleep 0.2; done'"));
    soon(&format!("{put} one"))?;
    // Its last word is that it goes: HAProxy looks each two seconds.
    does(&machines[1], "pkill -TERM -x etcd")?;
    soon(&format!("{put} two"))?;
    for _ in 0..20 {
        does(&desk, &format!("{put} three"))?;
    }
    let got = does(&desk, "kvorum ctl --endpoints http://haproxy:2379 get k")?;
    ensure!(got.contains("three"), "{got}");
    Ok(())
}
