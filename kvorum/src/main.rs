//! The one binary: which program it is, by the name it was started as or by its first word.
//! No logic of its own.
//!
//! | file | what it does |
//! |---|---|
//! | `words` | the words that the binary reads itself |
//! | `tree` | all programs as one table of commands |
//! | `pages` | manual pages and completion, made from that table |
//! | `signpost` | words that belong to another program |

mod pages;
mod signpost;
mod tree;
mod words;

use clap::Parser;
use server::dev::Dev;
use std::path::Path;
use words::{Cli, DevCommand, DevWords, Program};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let raw: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let args: Vec<String> = raw.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    std::process::exit(match name {
        Some("etcd") => etcd(&args[1..]),
        Some("etcdctl") => ctl::run("etcdctl", &raw[1..]),
        Some("etcdutl") => utl::run("etcdutl", &args[1..]),
        _ => kvorum(&args[1..], &raw[1..]),
    });
}

/// Under its own name. What reads its own words gets them past clap untouched.
fn kvorum(args: &[String], raw: &[std::ffi::OsString]) -> i32 {
    let first = args.first().map(String::as_str).unwrap_or_default();
    if let Some(code) = pages::asked(args).or_else(|| signpost::instead(args)) {
        return code;
    }
    match first {
        "server" => server::process::serve(&args[1..]),
        "gateway" => proxy::run("kvorum gateway", &args[1..]),
        "proxy" => proxy::run("kvorum proxy", &args[1..]),
        "ctl" => ctl::run("kvorum ctl", &raw[1..]),
        "utl" => utl::run("kvorum utl", &args[1..]),
        "bench" => bench::run(&args[1..]),
        _ => run(Cli::parse()),
    }
}

/// As the stock program: a member, unless the first word names another program.
fn etcd(args: &[String]) -> i32 {
    match args.first().map(String::as_str) {
        Some("gateway") => proxy::run("etcd gateway", &args[1..]),
        Some("grpc-proxy") => {
            eprintln!("grpc-proxy is not built yet; `etcd gateway start` passes connections on");
            1
        }
        _ => server::process::serve(args),
    }
}

fn run(cli: Cli) -> i32 {
    match cli.command {
        Program::Server(own) => server::process::serve(&own.words),
        Program::Ctl(own) => ctl::run("kvorum ctl", &own.words.iter().map(Into::into).collect::<Vec<_>>()),
        Program::Utl(own) => utl::run("kvorum utl", &own.words),
        Program::Gateway(own) => proxy::run("kvorum gateway", &own.words),
        Program::Proxy(own) => proxy::run("kvorum proxy", &own.words),
        Program::Bench(own) => bench::run(&own.words),
        Program::Completion { shell } => pages::script(&shell),
        Program::Man { out, words } => pages::manual(out.as_deref(), &words),
        Program::Dev(words) => dev(words),
        Program::Version => {
            print!("{}", server::process::version_text());
            0
        }
    }
}

fn dev(words: DevWords) -> i32 {
    let called = std::env::args().next().unwrap_or_else(|| "kvorum".into());
    let wanted = Dev { members: words.members, data_dir: words.data_dir, port: words.port, called };
    let done = match words.what {
        None => server::dev::run(&wanted).map(|()| (String::new(), true)),
        Some(DevCommand::Status { json }) => server::dev::status(&wanted, json),
        Some(DevCommand::Stop) => server::dev::stop(&wanted).map(|text| (text, true)),
    };
    match done {
        Ok((text, good)) => {
            print!("{text}");
            i32::from(!good)
        }
        Err(error) => {
            eprintln!("kvorum dev: {error}");
            1
        }
    }
}
