//! Limits in which a member is started.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::server::Program;

const MIB: u64 = 1 << 20;

/// An attacker has more connections than a shell allows.
pub(super) fn raise_own_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What cannot be had is missed by the attacks, which count what they did.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The program behind a script, which ends with `exec "$0" "$@"`.
fn behind(program: &Program, script: &str) -> Program {
    let inner = [program.path.display().to_string()].into_iter().chain(program.first.clone());
    let script = format!("{script}; exec \"$0\" \"$@\"");
    let first = ["-c".to_owned(), script].into_iter().chain(inner).collect();
    Program { path: "/bin/sh".into(), first, own_group: program.own_group }
}

/// The program, with so few descriptors.
fn descriptors(program: &Program, files: u32) -> Program {
    behind(program, &format!("ulimit -n {files}"))
}

/// A control group with a bound of memory; it goes with this value.
pub(super) struct Group(PathBuf);

impl Group {
    /// # Errors
    /// There is no controller of memory, or this user may not make a group.
    pub(super) fn new(mib: u64) -> Result<Group> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let (above, file) = parent(&mounts, |path| fs::read_to_string(path).ok())
            .context("no control group of memory: leave out the attack `memory` with --except memory")?;
        let folder = above.join(format!("kvorum-attack-{}", std::process::id()));
        let group = Group(folder);
        let made = fs::create_dir(&group.0).and_then(|()| fs::write(group.0.join(file), (mib * MIB).to_string()));
        made.with_context(|| {
            format!("{}: the attack `memory` needs root; --except memory leaves it out", group.0.display())
        })?;
        Ok(group)
    }

    fn of(&self, program: &Program) -> Program {
        behind(program, &format!("echo $$ > {}", self.0.join("cgroup.procs").display()))
    }

    /// Whether the kernel ended somebody in it for want of memory.
    pub(super) fn has_ended_one(&self) -> bool {
        let read = |file: &str| fs::read_to_string(self.0.join(file)).unwrap_or_default();
        let told = [read("memory.events"), read("memory.oom_control")].concat();
        told.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The member has ended, and with it what held the group.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Where a group can be made, and the file that bounds its memory.
fn parent(mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Option<(PathBuf, &'static str)> {
    let mounts = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut second = None;
    for words in mounts {
        let [_, at, kind, options, ..] = words.as_slice() else { continue };
        let at = PathBuf::from(at);
        match *kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => {
                return Some((at, "memory.limit_in_bytes"));
            }
            "cgroup2" => {
                let passed_on = read(&at.join("cgroup.subtree_control")).unwrap_or_default();
                if passed_on.split_whitespace().any(|one| one == "memory") {
                    second = Some((at, "memory.max"));
                }
            }
            _ => {}
        }
    }
    second
}

/// The program in its limits; 0 files: as many as it likes.
pub(super) fn of(program: &Program, files: u32, group: Option<&Group>) -> Program {
    match group {
        Some(group) => group.of(program),
        None if files > 0 => descriptors(program, files),
        None => program.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_versions() {
        let first = "tmpfs /sys tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = parent(first, |_| Some("cpu".into()));
        assert_eq!(found, Some(("/sys/fs/cgroup/memory".into(), "memory.limit_in_bytes")));
        let second = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(parent(second, |_| Some("cpu memory pids".into())), Some(("/sys/fs/cgroup".into(), "memory.max")));
        assert_eq!(parent(second, |_| Some("cpu".into())), None);
        assert_eq!(parent("", |_| None), None);
    }

    #[test]
    fn the_program_stands_behind_its_limit() {
        let program = Program { path: "/bin/kvorum".into(), first: vec!["server".into()], own_group: false };
        let limited = descriptors(&program, 64);
        assert_eq!(limited.first, ["-c", "ulimit -n 64; exec \"$0\" \"$@\"", "/bin/kvorum", "server"]);
    }
}
