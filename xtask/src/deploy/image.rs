//! The image: its last stage made by buildah, and run as its own user in its own tree.
//!
//! The first stage compiles for a C library that is linked in, which wants a toolchain of the
//! network. The program of this machine stands in for what it makes, with the libraries it needs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::fleet::words;
use super::place::{Place, files};

const USER: u32 = 65532;
const UP: Duration = Duration::from_secs(60);

/// What the Dockerfile says behind the compilation.
///
/// # Errors
/// If there is no such part.
pub fn last_stage() -> Result<String> {
    let text = fs::read_to_string(files().join("docker/Dockerfile"))?;
    let at = text.find("FROM scratch").context("the Dockerfile has no stage from scratch")?;
    Ok(text[at..].to_owned())
}

/// Makes the image, runs its member, and asks its health check.
///
/// # Errors
/// With what is wrong.
pub fn check(place: &Place) -> Result<()> {
    let folder = place.folder.join("docker");
    let context = folder.join("context");
    tree(&context, &place.program)?;
    let stage =
        last_stage()?.replace("--from=build ", "").replace(" /image/ ", " image/ ").replace(" /owned/ ", " owned/ ");
    fs::write(context.join("Dockerfile"), stage)?;
    let buildah = |words: &str| {
        let mut command = Command::new("buildah");
        command.args(["--storage-driver", "vfs", "--root"]).arg(folder.join("root"));
        command.arg("--runroot").arg(folder.join("run")).args(words.split_whitespace());
        said(&mut command)
    };
    let context = context.display().to_string();
    buildah(&format!("bud --isolation chroot --format docker -t kvorum {context}"))?;
    let image: Value = serde_json::from_str(&buildah("inspect --type image kvorum")?)?;
    let config = &image["Docker"]["config"];
    ensure!(config["User"] == "65532:65532", "it runs as {}", config["User"]);
    let mut health = words(&config["Healthcheck"]["Test"])?;
    ensure!(health.remove(0) == "CMD", "its health check wants a shell");
    let container = buildah("from kvorum")?;
    let root = buildah(&format!("mount {}", container.trim()))?;
    run(root.trim(), &words(&config["Cmd"])?, &health)
}

/// Runs the member of the image, and asks the image's own health check.
fn run(root: &str, command: &[String], health: &[String]) -> Result<()> {
    said(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    // A container's runtime puts it there.
    fs::create_dir_all(Path::new(root).join("etc"))?;
    fs::write(Path::new(root).join("etc/hosts"), "127.0.0.1 localhost\n")?;
    let log = Path::new(root).with_extension("log");
    let mut member = inside(root, command);
    member.args(["--data-dir", "/etcd-data/m1"]).stderr(fs::File::create(&log)?);
    let mut member = Ended(member.spawn()?);
    let begun = Instant::now();
    while said(&mut inside(root, health)).is_err() {
        ensure!(member.0.try_wait()?.is_none(), "the member ends: {}", fs::read_to_string(&log)?);
        ensure!(begun.elapsed() < UP, "the member of the image does not get well");
        std::thread::sleep(Duration::from_millis(200));
    }
    member.0.kill()?;
    member.0.wait()?;
    ensure!(said(&mut inside(root, health)).is_err(), "a dead member is well");
    Ok(())
}

/// A process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn inside(root: &str, words: &[String]) -> Command {
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={USER}:{USER}")).arg("--groups=").arg(root).args(words);
    // The last two are for finding chroot; the image has no such folders.
    command.env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// What the first stage leaves, and the libraries of the program.
fn tree(context: &Path, program: &Path) -> Result<()> {
    let image = context.join("image");
    let bin = image.join("usr/local/bin");
    fs::create_dir_all(&bin)?;
    fs::copy(program, bin.join("kvorum"))?;
    for name in ["etcd", "etcdctl", "etcdutl"] {
        symlink("kvorum", bin.join(name))?;
    }
    for folder in ["etcd-data", "tmp"] {
        fs::create_dir_all(context.join("owned").join(folder))?;
    }
    let libraries = said(Command::new("ldd").arg(program))?;
    for path in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        let at = image.join(path.trim_start_matches('/'));
        fs::create_dir_all(at.parent().context("a file is in a folder")?)?;
        fs::copy(path, at)?;
    }
    Ok(())
}

/// What a command wrote; its failure with that.
fn said(command: &mut Command) -> Result<String> {
    let output = command.stdout(Stdio::piped()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
