//! What a run costs the servers and their disk, read from `/proc`: CPU seconds, memory, bytes
//! written, context switches, flushes of the device.

use crate::failure::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Counters of one process at one moment; those that cannot be read are 0.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    /// Seconds of user and system time.
    pub cpu: f64,
    /// Bytes of the pages that the process made dirty: where the file system has large pages, far
    /// more than reaches the device.
    pub written: u64,
    /// Write system calls.
    pub write_calls: u64,
    pub switches: u64,
    pub threads: u64,
    /// Bytes resident, bytes of it that no file stands behind, and the most that was resident.
    pub rss: u64,
    pub anonymous: u64,
    pub peak: u64,
}

/// Cost of one process over a window; memory is as it was at its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessCost {
    pub pid: u32,
    pub name: String,
    pub cpu_seconds: f64,
    pub written_bytes: u64,
    pub write_calls: u64,
    pub context_switches: u64,
    pub threads: u64,
    pub rss_bytes: u64,
    pub anonymous_bytes: u64,
    pub peak_rss_bytes: u64,
}

/// Work of the device below the data over a window, all processes together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiskCost {
    pub device: String,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    processes: Vec<Process>,
    disk: Option<(String, [u64; 3])>,
    machine: Machine,
}

/// CPU seconds of the machine up to one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    busy: f64,
    stolen: f64,
    /// Of them, by this process and by those that only spin.
    own: f64,
}

/// CPU seconds of everybody else over a window: what makes a run worth less.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Others {
    /// By processes that are neither watched nor this one, kernel threads included.
    pub cpu_seconds: f64,
    /// Taken by other machines on the same host.
    pub stolen_seconds: f64,
}

/// All that a window cost.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    pub servers: Vec<ProcessCost>,
    pub disk: Option<DiskCost>,
    pub others: Others,
}

/// What is watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    pub pids: Vec<u32>,
    /// A path on the disk of the servers.
    pub disk: Option<PathBuf>,
    /// Processes that only keep the CPUs from halting: their time is not counted as anybody's.
    pub spinners: Vec<u32>,
}

impl Watched {
    /// Counters now.
    ///
    /// # Errors
    /// Names the process that does not run.
    pub fn sample(&self) -> Result<Sample, Failure> {
        let processes = self.pids.iter().map(|pid| process(*pid)).collect::<Result<_, _>>()?;
        let disk = self.disk.as_deref().and_then(device);
        Ok(Sample { processes, disk, machine: machine(&self.spinners) })
    }
}

impl Sample {
    /// Bytes without a file behind them, of all watched processes.
    pub fn anonymous(&self) -> f64 {
        self.processes.iter().map(|process| process.anonymous as f64).sum()
    }

    /// CPU seconds of all watched processes.
    pub fn cpu(&self) -> f64 {
        self.processes.iter().map(|process| process.cpu).sum()
    }

    /// Bytes resident of all watched processes.
    pub fn resident(&self) -> u64 {
        self.processes.iter().map(|process| process.rss).sum()
    }

    /// What happened between `before` and this.
    pub fn since(&self, before: &Sample) -> Costs {
        let servers: Vec<ProcessCost> = self
            .processes
            .iter()
            .zip(&before.processes)
            .map(|(now, then)| ProcessCost {
                pid: now.pid,
                name: now.name.clone(),
                cpu_seconds: now.cpu - then.cpu,
                written_bytes: now.written.saturating_sub(then.written),
                write_calls: now.write_calls.saturating_sub(then.write_calls),
                context_switches: now.switches.saturating_sub(then.switches),
                threads: now.threads,
                rss_bytes: now.rss,
                anonymous_bytes: now.anonymous,
                peak_rss_bytes: now.peak,
            })
            .collect();
        let disk = match (&self.disk, &before.disk) {
            (Some((device, now)), Some((_, then))) => {
                let [writes, sectors, flushes] = std::array::from_fn(|i| now[i].saturating_sub(then[i]));
                Some(DiskCost { device: device.clone(), writes, written_bytes: sectors * 512, flushes })
            }
            _ => None,
        };
        let watched: f64 = servers.iter().map(|server| server.cpu_seconds).sum();
        let (now, then) = (self.machine, before.machine);
        let others = Others {
            cpu_seconds: (now.busy - then.busy - watched - (now.own - then.own)).max(0.0),
            stolen_seconds: now.stolen - then.stolen,
        };
        Costs { servers, disk, others }
    }
}

fn machine(spinners: &[u32]) -> Machine {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    // cpu user nice system idle iowait irq softirq steal …
    let words: Vec<f64> =
        stat.lines().next().unwrap_or("").split_ascii_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
    let at = |i: usize| words.get(i).copied().unwrap_or(0.0) / per_second;
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Machine {
        busy: at(0) + at(1) + at(2) + at(5) + at(6),
        stolen: at(7),
        own: own.tv_sec as f64
            + own.tv_nsec as f64 / 1e9
            + spinners.iter().filter_map(|pid| process(*pid).ok()).map(|spinner| spinner.cpu).sum::<f64>(),
    }
}

/// Counters of a process.
///
/// # Errors
/// If it does not run or belongs to somebody else.
pub fn process(pid: u32) -> Result<Process, Failure> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    let stat = read("stat").map_err(|e| Failure::of(format!("process {pid}"), e))?;
    // The name stands in parentheses and may hold anything; the numbers follow the last one.
    let (head, numbers) = stat.rsplit_once(')').ok_or_else(|| format!("/proc/{pid}/stat is not as expected"))?;
    let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
    let ticks = |at: usize| numbers.get(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let status = fields(&read("status").unwrap_or_default());
    let io = fields(&read("io").unwrap_or_default());
    let memory = fields(&read("smaps_rollup").unwrap_or_default());
    let of = |map: &BTreeMap<String, u64>, name: &str| map.get(name).copied().unwrap_or(0);
    Ok(Process {
        pid,
        name: head.split_once('(').map_or_else(String::new, |(_, name)| name.to_owned()),
        cpu: (ticks(11) + ticks(12)) as f64 / per_second,
        written: of(&io, "write_bytes"),
        write_calls: of(&io, "syscw"),
        switches: switches(pid),
        threads: of(&status, "Threads"),
        rss: of(&memory, "Rss") << 10,
        anonymous: of(&memory, "Anonymous") << 10,
        peak: of(&status, "VmHWM") << 10,
    })
}

impl Watched {
    /// Bytes resident of all watched processes, cheaply: what cannot be read is 0.
    pub fn resident(&self) -> u64 {
        let page = rustix::param::page_size() as u64;
        self.pids
            .iter()
            .filter_map(|pid| {
                let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
                Some(statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * page)
            })
            .sum()
    }
}

/// Bytes that a folder with all below it occupies on its disk; nothing if it is none, or holds more
/// files than a server's does. Files may vanish meanwhile.
pub fn folder_bytes(folder: &Path) -> Option<u64> {
    const MOST: usize = 100_000;
    let (mut folders, mut files, mut sum) = (vec![folder.to_owned()], 0, 0);
    if !fs::metadata(folder).ok()?.is_dir() {
        return None;
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            files += 1;
            match entry.metadata() {
                _ if files > MOST => return None,
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => sum += meta.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    Some(sum)
}

/// Makes the peak of a process's resident memory start anew; whether that was allowed.
pub fn reset_peak(pid: u32) -> bool {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
}

/// Context switches of all threads that live (those of threads that ended are not known).
fn switches(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    tasks
        .flatten()
        .map(|task| {
            let status = fields(&fs::read_to_string(task.path().join("status")).unwrap_or_default());
            ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"].iter().filter_map(|n| status.get(*n)).sum::<u64>()
        })
        .sum()
}

/// `Name: number …` per line.
fn fields(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.split_ascii_whitespace().next()?.parse().ok()?))
        })
        .collect()
}

/// The block device below a path and its counters: writes, sectors written, flushes.
fn device(path: &Path) -> Option<(String, [u64; 3])> {
    let dev = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    counters(&fs::read_to_string("/proc/diskstats").ok()?, major, minor)
}

fn counters(stats: &str, major: u32, minor: u32) -> Option<(String, [u64; 3])> {
    stats.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.len() < 14 || words[0].parse() != Ok(major) || words[1].parse() != Ok(minor) {
            return None;
        }
        let number = |at: usize| words.get(at).and_then(|w| w.parse().ok()).unwrap_or(0);
        Some((words[2].to_owned(), [number(7), number(9), number(18)]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_device_is_read() {
        let stats = "   7   0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n 254   0 vda 1722803 72531 67503474 6160782 \
                     4261934 467807 212377440 2307874 0 876128 8984682 141141 26 271320344 35597 1576056 480427\n";
        assert_eq!(counters(stats, 254, 0), Some(("vda".into(), [4_261_934, 212_377_440, 1_576_056])));
        assert_eq!(counters(stats, 9, 0), None);
    }

    #[test]
    fn this_process_has_costs() {
        let before = process(std::process::id()).expect("we run");
        assert!(before.rss > 1 << 20 && before.threads >= 1 && before.peak > 1 << 20, "{before:?}");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let watched = Watched { pids: vec![std::process::id()], disk: Some(file.path().into()), ..Watched::default() };
        let first = watched.sample().expect("we run");
        fs::write(file.path(), vec![1; 1 << 20]).expect("written");
        let costs = watched.sample().expect("we run").since(&first).servers;
        assert!(costs[0].write_calls >= 1, "{costs:?}");
        assert!(Watched { pids: vec![u32::MAX], ..Watched::default() }.sample().is_err(), "no such process");
    }
}
