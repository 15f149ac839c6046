//! `completion`: scripts for four shells, made from the table of commands.

use crate::cobra::{Call, Command, Failure, Flag, GLOBAL, Kind, Seen};
use clap_complete::Shell;

pub fn run(call: &Call) -> Result<(), Failure> {
    let shell = match call.words[0].as_str() {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        "powershell" => Shell::PowerShell,
        other => {
            return Err(Failure::Usage(format!("invalid argument {other:?} for \"{} completion\"", call.program)));
        }
    };
    let ours = call.program != "etcdutl";
    let mut tree = clap_tree(call.root, ours).args(GLOBAL.iter().map(|flag| clap_flag(flag).global(true)));
    let mut name = "etcdutl";
    if ours {
        name = "kvorum";
        tree = clap::Command::new(name).subcommand(tree.name("utl"));
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree, name, &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(())
}

fn clap_tree(command: &Command, ours: bool) -> clap::Command {
    let shown = |child: &&Command| ours || child.seen == Seen::Always;
    let mut out = clap::Command::new(command.name)
        .about(command.short)
        .disable_help_subcommand(true)
        .args(command.flags.iter().filter(|flag| ours || !flag.ours).map(clap_flag))
        .subcommands(command.children.iter().filter(shown).map(|child| clap_tree(child, ours)));
    match command.name {
        "completion" => {
            let shells = ["bash", "zsh", "fish", "powershell"];
            out = out.arg(clap::Arg::new("shell").value_parser(shells));
        }
        "hashkv" | "status" | "restore" | "check" => {
            out = out.arg(clap::Arg::new("filename").value_hint(clap::ValueHint::FilePath));
        }
        "verify" => out = out.arg(clap::Arg::new("directory").value_hint(clap::ValueHint::DirPath)),
        _ => {}
    }
    out
}

fn clap_flag(flag: &Flag) -> clap::Arg {
    let mut arg = clap::Arg::new(flag.name).long(flag.name).help(flag.help);
    if let Some(short) = flag.short {
        arg = arg.short(short);
    }
    match (flag.kind, flag.name) {
        (Kind::Bool, _) => arg.action(clap::ArgAction::SetTrue),
        (_, "write-out") => arg.value_parser(["fields", "json", "protobuf", "simple", "table"]),
        (_, "data-dir" | "wal-dir") => arg.value_hint(clap::ValueHint::DirPath),
        _ => arg,
    }
}
