//! Machines that are namespaces: each has its own network, processes, name, files and a real
//! systemd, and sees nothing of the others but their addresses.
//!
//! Files are those of this machine with a layer over them: what a machine writes, the others do not
//! see, and it is gone at the end. Made inside [`crate::inside`], so that they end with the run.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// What is called.
pub const TOOLS: [&str; 8] = ["unshare", "nsenter", "mount", "ip", "pivot_root", "timeout", "sshd", "curl"];

/// The machines that there are, their addresses, and other names: those of the set-ups of deploy/.
pub const HOSTS: [(&str, &str, &str); 6] = [
    ("m1", "10.0.0.1", "etcd1 kvorum-0.kvorum-peers"),
    ("m2", "10.0.0.2", "etcd2 kvorum-1.kvorum-peers"),
    ("m3", "10.0.0.3", "etcd3 kvorum-2.kvorum-peers"),
    ("m4", "10.0.0.4", ""),
    ("desk", "10.0.0.9", ""),
    ("lb", "10.0.0.100", "haproxy"),
];

/// Where the checkout of this repository is on every machine: commands are run there.
pub const HOME: &str = "/srv/kvorum";
/// systemd is up within this time, a command ends within that.
const BOOT: Duration = Duration::from_secs(30);
const COMMAND_SECONDS: u64 = 90;

/// Units that a machine of namespaces has no use for.
const MASKED: [&str; 11] = [
    "console-getty",
    "dbus",
    "systemd-remount-fs",
    "systemd-udevd",
    "systemd-timesyncd",
    "systemd-logind",
    "systemd-resolved",
    "systemd-networkd",
    "systemd-networkd-wait-online",
    "systemd-tmpfiles-setup-dev",
    "systemd-sysctl",
];

/// Goes into a control group ($0) and becomes the first process of a machine (of the script $1).
const BECOME: &str = "echo $$ > $0 && \
                      exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child bash $1";

/// The layer that all machines have: the program and the checkout.
pub struct Shelf {
    /// A file system in memory.
    folder: PathBuf,
}

impl Shelf {
    /// Puts the program and the checkout there, and makes the network.
    ///
    /// # Errors
    /// If the kernel refuses, or a file is missing.
    pub fn new(folder: &Path, program: &Path) -> Result<Shelf> {
        run("mount -t tmpfs none", &[folder])?;
        let folder = folder.to_owned();
        let home = folder.join("layer").join(HOME.trim_start_matches('/'));
        let bin = folder.join("layer/usr/local/bin");
        for made in [&bin, &home.join("target/release"), &folder.join("layer/opt/etcd")] {
            fs::create_dir_all(made)?;
        }
        let there = home.join("target/release/kvorum");
        fs::copy(program, &there).with_context(|| program.display().to_string())?;
        fs::hard_link(&there, bin.join("kvorum"))?;
        let workspace = crate::peers::workspace();
        run("cp -r", &[&workspace.join("deploy"), &home.join("deploy")])?;
        let etcd = folder.join("layer/opt/etcd");
        for (stock, to) in [("etcd", &etcd), ("etcdctl", &etcd), ("etcdutl", &etcd), ("kubeadm", &bin)] {
            let built = workspace.join("tests/peers/.cache/bin").join(stock);
            // A how-to that needs one which is not built fails where it calls it.
            if built.is_file() {
                fs::copy(&built, to.join(stock))?;
            }
        }
        keys(&folder.join("layer/root").join(".ssh"))?;
        run("mkdir -p /run/netns", &[])?;
        // Names of namespaces are files: nobody else is to see them.
        run("mount -t tmpfs none /run/netns", &[])?;
        run("ip link set lo up", &[])?;
        run("ip link add machines type bridge", &[])?;
        run("ip link set machines up", &[])?;
        Ok(Shelf { folder })
    }
}

/// One machine.
pub struct Machine {
    /// As in [`HOSTS`].
    pub name: &'static str,
    folder: PathBuf,
    /// Where its systemd keeps its own.
    cgroup: PathBuf,
    init: Child,
    /// systemd, as this process sees it.
    pid: u32,
    jobs: u32,
}

impl Machine {
    /// Boots the machine of this name.
    ///
    /// # Errors
    /// If there is none, or systemd does not come up.
    pub fn boot(shelf: &Shelf, name: &str) -> Result<Machine> {
        let (name, address, _) =
            *HOSTS.iter().find(|host| host.0 == name).with_context(|| format!("no machine {name}"))?;
        let folder = shelf.folder.join(name);
        for made in ["over", "work", "root"] {
            fs::create_dir_all(folder.join(made))?;
        }
        let layers = format!(
            "lowerdir={}:/,upperdir={},workdir={}",
            shelf.folder.join("layer").display(),
            folder.join("over").display(),
            folder.join("work").display()
        );
        run(&format!("mount -t overlay overlay -o {layers}"), &[&folder.join("root")])?;
        plug(name, address)?;
        // The folder's name is of this run alone; the process ids inside are not.
        let run_of = shelf.folder.display().to_string().replace('/', "-");
        let cgroup = cgroups()?.join(format!("kvorum{run_of}-{name}"));
        fs::create_dir(&cgroup).with_context(|| cgroup.display().to_string())?;
        let script = folder.join("boot.sh");
        fs::write(&script, boot_script(&folder.join("root"), name))?;
        let log = File::create(folder.join("boot.log"))?;
        let init = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{name}"))
            .args(["bash", "-c", BECOME])
            .args([&cgroup.join("cgroup.procs"), &script])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut machine = Machine { name, folder, cgroup, init, pid: 0, jobs: 0 };
        machine.comes_up()?;
        Ok(machine)
    }

    fn comes_up(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < BOOT {
            ensure!(self.init.try_wait()?.is_none(), "{} ends at boot: {}", self.name, self.boot_log());
            // The child of unshare is the first process of the machine.
            let children = format!("/proc/{0}/task/{0}/children", self.init.id());
            let child = fs::read_to_string(children).unwrap_or_default();
            if let Some(pid) = child.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
                self.pid = pid;
                if self
                    .run("/", "systemctl is-active --quiet multi-user.target ssh", 5)
                    .is_ok_and(|o| o.status.success())
                {
                    return Ok(());
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("{} does not boot: {}", self.name, self.boot_log())
    }

    fn boot_log(&self) -> String {
        fs::read_to_string(self.folder.join("boot.log")).unwrap_or_default()
    }

    /// Runs a script in the checkout, as root at a shell that stops at the first failure.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn does(&self, script: &str) -> Result<Output> {
        self.run(HOME, script, COMMAND_SECONDS)
    }

    fn run(&self, at: &str, script: &str, seconds: u64) -> Result<Output> {
        let mut command = self.inside(at);
        command.args([&seconds.to_string(), "bash", "-euo", "pipefail", "-c", script]);
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Starts a script that goes on; gives the file of what it writes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begins(&mut self, script: &str) -> Result<PathBuf> {
        self.jobs += 1;
        let path = self.folder.join(format!("job{}.log", self.jobs));
        let log = File::create(&path)?;
        let mut command = self.inside(HOME);
        command.args(["infinity", "bash", "-euo", "pipefail", "-c", script]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(path)
    }

    /// A command inside; what follows is for `timeout`.
    fn inside(&self, at: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.pid.to_string());
        command.args(["--mount", "--pid", "--net", "--uts", "--ipc", "--root"]).arg(format!("--wdns={at}"));
        command.env_clear().env("HOME", "/root").env("TERM", "dumb").env("LANG", "C.UTF-8");
        command.env("PATH", "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin");
        command.arg("timeout");
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Whatever fails here ends with the namespaces of the run.
        let _ = run("kill -9", &[Path::new(&self.pid.to_string())]);
        let _ = self.init.wait();
        let _ = run(&format!("ip netns del {}", self.name), &[]);
        let _ = run("umount --recursive --lazy", &[&self.folder.join("root")]);
        let _ =
            Command::new("find").arg(&self.cgroup).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]).output();
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = run("ip link del machines", &[]);
        let _ = run("umount --lazy /run/netns", &[]);
        let _ = run("umount --lazy", &[&self.folder]);
    }
}

/// Where the second version of control groups is mounted: systemd needs a part of it.
fn cgroups() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mut words = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.find(|words| words.get(2) == Some(&"cgroup2")).context("no cgroup2 is mounted")?;
    Ok(PathBuf::from(found[1]))
}

/// A key with which root of one machine may work on another.
fn keys(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let key = folder.join("id_ed25519");
    run("ssh-keygen -q -t ed25519 -N", &[Path::new(""), Path::new("-f"), &key])?;
    fs::copy(key.with_extension("pub"), folder.join("authorized_keys"))?;
    fs::write(folder.join("config"), "StrictHostKeyChecking accept-new\nLogLevel ERROR\n")?;
    Ok(())
}

/// A cable from the machine to the bridge.
fn plug(name: &str, address: &str) -> Result<()> {
    run(&format!("ip netns add {name}"), &[])?;
    run(&format!("ip link add v-{name} type veth peer name eth0 netns {name}"), &[])?;
    run(&format!("ip link set v-{name} master machines up"), &[])?;
    run(&format!("ip -n {name} addr add {address}/24 dev eth0"), &[])?;
    run(&format!("ip -n {name} link set eth0 up"), &[])?;
    run(&format!("ip -n {name} link set lo up"), &[])
}

/// What makes a machine of the folder and becomes its systemd.
fn boot_script(root: &Path, name: &str) -> String {
    let hosts: String = HOSTS.iter().map(|(name, address, others)| format!("{address} {name} {others}\\n")).collect();
    let masked: String = MASKED.map(|unit| format!("ln -sf /dev/null etc/systemd/system/{unit}.service\n")).concat();
    format!(
        "set -e
cd {root}
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs none run
mount -t tmpfs none tmp
mount --rbind /dev dev
mount --make-rslave dev
hostname {name}
printf '127.0.0.1 localhost\\n{hosts}' > etc/hosts
echo {name} > etc/hostname
rm -f etc/machine-id && touch etc/machine-id
rm -rf etc/systemd/system/*.wants etc/systemd/system/*.requires
mkdir -p etc/systemd/system/multi-user.target.wants
ln -s /lib/systemd/system/ssh.service etc/systemd/system/multi-user.target.wants/
{masked}export container=namespaces
# Not chroot: it forbids user namespaces (PrivateUsers= of a unit).
mkdir -p mnt/before && pivot_root . mnt/before && umount --lazy /mnt/before
exec chroot . /lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=journal
",
        root = root.display()
    )
}

/// Runs a line of words, and paths behind them.
fn run(line: &str, paths: &[&Path]) -> Result<()> {
    let mut words = line.split_whitespace();
    let program = words.next().context("a line without a program")?;
    let output = Command::new(program).args(words).args(paths).output().with_context(|| line.to_owned())?;
    ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
