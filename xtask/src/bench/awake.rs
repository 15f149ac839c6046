//! CPUs that do not halt while it is measured (`--awake`).
//!
//! A virtual CPU without work halts, and the hypervisor takes tens of microseconds and more to wake
//! it: a lone client's latency is then mostly that. A process of the lowest priority on each CPU
//! keeps them from halting and gives way to whoever has work: policy `SCHED_IDLE` and niceness 19.
//! The host sees a machine that is never idle, which may slow down what it does for it, flushes
//! above all.

use anyhow::{Context, Result};
use rustix::process::{nice, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// How a mode is called in the JSON, the table's head and the page.
pub fn mode(awake: bool) -> &'static str {
    if awake { "kept awake by a spinning process of the lowest priority each" } else { "free to halt when idle" }
}

/// Processes that spin, one for each CPU; they end with this value, and with this program.
#[derive(Debug)]
pub struct Spinners(Vec<Child>);

impl Spinners {
    /// One for each CPU that this program may use.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start() -> Result<Spinners> {
        let own = std::env::current_exe().context("this program's own file")?;
        let set = sched_getaffinity(None)?;
        let mut spinners = Spinners(Vec::new());
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
            let mut command = Command::new(&own);
            command.args(["spin", &cpu.to_string(), &std::process::id().to_string()]).stdin(Stdio::null());
            spinners.0.push(command.spawn().with_context(|| format!("a process that keeps CPU {cpu} awake"))?);
        }
        Ok(spinners)
    }

    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It fails only for a process that has ended, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Spins on one CPU with the lowest priority until the program that started it is gone, however
/// that ended.
///
/// # Errors
/// If the CPU or the priority is refused.
pub fn spin(cpu: usize, parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    nice(19).context("lowering the own priority")?;
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle)
        .map_err(|error| anyhow::anyhow!("a policy below all others: {error:?}"))?;
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("staying on CPU {cpu}"))?;
    // The signal comes only if the parent still lived when it was asked for.
    while std::os::unix::process::parent_id() == parent {
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            (0..10_000).for_each(|_| std::hint::spin_loop());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spinner whose parent is another one (or has ended) leaves at once.
    #[test]
    fn it_does_not_outlive_its_parent() {
        assert_ne!(std::os::unix::process::parent_id(), u32::MAX);
        let mut set = CpuSet::new();
        assert!(!set.is_set(0));
        set.set(0);
        assert!(set.is_set(0));
        // In a thread of its own: niceness and CPU are those of the thread that asks.
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).expect("a mask").is_set(*cpu));
        let cpu = cpu.expect("we run on some CPU");
        std::thread::spawn(move || spin(cpu, u32::MAX)).join().expect("no panic").expect("it may lower itself");
    }
}
