//! `completion`: scripts for shells, and `__complete`, which they ask.
//!
//! The scripts know nothing but how to ask: what can follow is decided here,
//! from the table of commands. Answers have cobra's form, a candidate and its
//! description on each line, then `:` and a number.

use super::{Command, UTILITY};
use crate::{
    call::Call,
    exit::{Failure, Outcome},
    flags::{self, Flag, Kind},
};

/// Files may follow.
const DEFAULT: u8 = 0;
/// Nothing but what is listed can follow.
const NO_FILES: u8 = 4;

/// The shells that there is a script for.
const SHELLS: &[&str] = &["bash", "zsh", "fish", "powershell"];
const FORMATS: &[&str] = &["fields", "json", "protobuf", "simple", "table"];

/// The row of the table.
pub const COMPLETION: Command = Command {
    name: "completion",
    usage: "completion [bash|zsh|fish|powershell]",
    bare_usage: true,
    group: UTILITY,
    short: "Writes a completion script for a shell",
    long: "Writes a script with which a shell completes commands and flags.

bash, for this session and for all:
  $ source <(etcdctl completion bash)
  $ etcdctl completion bash > /etc/bash_completion.d/etcdctl

zsh, with compinit loaded, for all sessions:
  $ etcdctl completion zsh > \"${fpath[1]}/_etcdctl\"

fish:
  $ etcdctl completion fish > ~/.config/fish/completions/etcdctl.fish

PowerShell, in the profile:
  PS> etcdctl completion powershell | Out-String | Invoke-Expression",
    run: Some(run),
    ..Command::NONE
};

fn run(call: &Call) -> Outcome {
    let [shell] = call.args.as_slice() else {
        return Err(Failure::Usage(format!("accepts 1 arg(s), received {}", call.args.len())));
    };
    let script = match shell.as_str() {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "powershell" => POWERSHELL,
        other => {
            let path = crate::help::path_words(&call.path);
            return Err(Failure::Usage(format!("invalid argument {} for \"{path}\"", flags::quote(other))));
        }
    };
    // `kvorum ctl` is two words: the shell completes for the first.
    let (binary, sub) = call.program().split_once(' ').unwrap_or((call.program(), ""));
    crate::say(&script.replace("@BINARY@", binary).replace("@SUB@", sub).replace("@NAME@", &binary.replace('-', "_")))
}

/// Answers a script: the words so far, the last of them unfinished.
pub fn complete(root: &'static Command, words: &[String], describe: bool) -> Outcome {
    let (candidates, directive) = candidates(root, words);
    let mut text = String::new();
    for (candidate, about) in candidates {
        text += &candidate;
        if describe && !about.is_empty() {
            text += &format!("\t{about}");
        }
        text.push('\n');
    }
    crate::say(&format!("{text}:{directive}\n"))?;
    let name = if directive == NO_FILES { "ShellCompDirectiveNoFileComp" } else { "ShellCompDirectiveDefault" };
    complain!("Completion ended with directive: {name}");
    Ok(())
}

type Candidates = Vec<(String, &'static str)>;

fn candidates(root: &'static Command, words: &[String]) -> (Candidates, u8) {
    let Some((unfinished, before)) = words.split_last() else { return (Vec::new(), NO_FILES) };
    let Ok(parsed) = flags::parse_lenient(root, before) else { return (Vec::new(), DEFAULT) };
    let known = flags::known(&parsed.path);
    if let Some(flag) = before.last().and_then(|word| awaits_value(word, &known)) {
        return values(flag, unfinished);
    }
    if unfinished.starts_with('-') && parsed.before_dash.is_none() {
        return match unfinished.split_once('=') {
            Some((name, value)) => match known.iter().find(|f| name.strip_prefix("--") == Some(f.name)) {
                Some(flag) => values(flag, value),
                None => (Vec::new(), DEFAULT),
            },
            None => (flag_candidates(&parsed, unfinished), NO_FILES),
        };
    }
    words_of(&parsed, unfinished)
}

fn words_of(parsed: &flags::Parsed, unfinished: &str) -> (Candidates, u8) {
    let command = parsed.command();
    let fixed = |words: &[&'static str]| {
        let fitting = words.iter().filter(|word| word.starts_with(unfinished));
        (fitting.map(|word| ((*word).to_owned(), "")).collect(), NO_FILES)
    };
    let subs = |of: &Command| {
        let mut subs: Vec<&Command> = of.all_subs().filter(|c| c.name.starts_with(unfinished)).collect();
        subs.sort_by_key(|c| c.name);
        (subs.into_iter().map(|c| (c.name.to_owned(), c.short)).collect(), NO_FILES)
    };
    if command.has_subs() && parsed.args.is_empty() {
        return subs(command);
    }
    match command.name {
        "completion" if parsed.args.is_empty() => fixed(SHELLS),
        "help" => {
            let mut here = parsed.path[0];
            for word in &parsed.args {
                match here.sub(word) {
                    Some(sub) => here = sub,
                    None => return (Vec::new(), NO_FILES),
                }
            }
            subs(here)
        }
        _ => (Vec::new(), DEFAULT),
    }
}

fn flag_candidates(parsed: &flags::Parsed, unfinished: &str) -> Candidates {
    // The flags of the program itself only if they are asked for by name.
    let own = flags::known(&parsed.path);
    let mut fitting: Vec<&Flag> = own
        .into_iter()
        .filter(|flag| format!("--{}", flag.name).starts_with(unfinished))
        .filter(|flag| !parsed.values.changed(flag.name) || flag.kind == Kind::List)
        .collect();
    fitting.sort_by_key(|flag| flag.name);
    let mut list: Candidates = fitting.iter().map(|flag| (format!("--{}", flag.name), flag.text)).collect();
    if unfinished == "-" {
        list.extend(fitting.iter().filter_map(|flag| Some((format!("-{}", flag.short?), flag.text))));
    }
    list
}

/// The flag that the word after this one will be the value of.
fn awaits_value<'f>(word: &str, known: &[&'f Flag]) -> Option<&'f Flag> {
    let flag = match word.strip_prefix("--") {
        Some(name) => known.iter().find(|f| f.name == name),
        None => word.strip_prefix('-').and_then(|letters| {
            let letter = letters.chars().last()?;
            known.iter().find(|f| f.short == Some(letter))
        }),
    };
    flag.copied().filter(|f| f.kind != Kind::Bool)
}

fn values(flag: &Flag, unfinished: &str) -> (Candidates, u8) {
    let words: &[&str] = match flag.name {
        "write-out" => FORMATS,
        "order" => &["ASCEND", "DESCEND"],
        "sort-by" => &["CREATE", "KEY", "MODIFY", "VALUE", "VERSION"],
        "consistency" => &["l", "s"],
        _ => return (Vec::new(), DEFAULT),
    };
    (words.iter().filter(|w| w.starts_with(unfinished)).map(|w| ((*w).to_owned(), "")).collect(), NO_FILES)
}

const BASH: &str = r#"# bash completion of @BINARY@ @SUB@

__@NAME@_@SUB@_complete() {
    local cur="${COMP_WORDS[COMP_CWORD]}" sub="@SUB@" first=1 line answer directive
    COMPREPLY=()
    if [[ -n $sub ]]; then
        if (( COMP_CWORD < 2 )) || [[ ${COMP_WORDS[1]} != "$sub" ]]; then
            (( COMP_CWORD == 1 )) && COMPREPLY=($(compgen -W "$sub" -- "$cur"))
            return
        fi
        first=2
    fi
    answer=$("${COMP_WORDS[0]}" $sub __completeNoDesc "${COMP_WORDS[@]:first:COMP_CWORD-first}" "$cur" 2>/dev/null) || return
    directive=${answer##*:}
    while IFS= read -r line; do
        [[ $line == :* || -z $line ]] || COMPREPLY+=("$line")
    done <<< "$answer"
    if [[ $directive == 4 ]]; then
        compopt +o default 2>/dev/null
    fi
}

complete -o default -F __@NAME@_@SUB@_complete @BINARY@
"#;

const ZSH: &str = r#"#compdef @BINARY@

_@NAME@_@SUB@() {
    local sub="@SUB@" line directive
    local -a candidates ask
    ask=("${(@)words[2,CURRENT]}")
    if [[ -n $sub ]]; then
        if [[ ${words[2]} != "$sub" ]]; then
            (( CURRENT == 2 )) && compadd -- "$sub"
            return
        fi
        ask=("${(@)words[3,CURRENT]}")
    fi
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *) candidates+=("${line%%$'\t'*}:${line#*$'\t'}") ;;
        esac
    done < <("${words[1]}" ${sub:+"$sub"} __complete "${ask[@]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe '@BINARY@' candidates
    elif [[ $directive != 4 ]]; then
        _files
    fi
}

compdef _@NAME@_@SUB@ @BINARY@
"#;

const FISH: &str = r#"# fish completion of @BINARY@ @SUB@

function __@NAME@_@SUB@_complete
    set -l sub "@SUB@"
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    if test -n "$sub"
        if test "$words[1]" != "$sub"
            test (count $words) -eq 0; and echo $sub
            return
        end
        set -e words[1]
    end
    $program $sub __complete $words (commandline -ct) 2>/dev/null | string match -v -r '^:'
end

complete -c @BINARY@ -a '(__@NAME@_@SUB@_complete)'
"#;

const POWERSHELL: &str = r#"# PowerShell completion of @BINARY@ @SUB@

Register-ArgumentCompleter -Native -CommandName '@BINARY@' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $sub = '@SUB@'
    $words = @($commandAst.CommandElements | ForEach-Object { $_.Extent.Text })
    $program = $words[0]
    $words = @($words | Select-Object -Skip 1)
    if ($wordToComplete -and $words.Count -gt 0) { $words = @($words | Select-Object -SkipLast 1) }
    if ($sub) {
        if ($words.Count -eq 0 -or $words[0] -ne $sub) {
            if ($words.Count -eq 0) { [System.Management.Automation.CompletionResult]::new($sub) }
            return
        }
    }
    $before = @($words | Select-Object -Skip ([int][bool]$sub))
    $ask = @($sub | Where-Object { $_ }) + '__complete' + $before + $(if ($wordToComplete) { $wordToComplete } else { '""' })
    & $program @ask 2>$null | Where-Object { $_ -notmatch '^:' } | ForEach-Object {
        $candidate, $about = $_ -split "`t", 2
        if (-not $about) { $about = $candidate }
        [System.Management.Automation.CompletionResult]::new($candidate, $candidate, 'ParameterValue', $about)
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_follow_comes_from_the_table() {
        let root = crate::commands::root(crate::STOCK);
        let ask = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (list, directive) = candidates(root, &words);
            (list.into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(" "), directive)
        };
        let cases = [
            ("lease ", "grant keep-alive list revoke timetolive", NO_FILES),
            ("le", "lease", NO_FILES),
            ("get --li", "--limit", NO_FILES),
            ("put a --p", "--password --prev-kv", NO_FILES),
            ("-w ", "fields json protobuf simple table", NO_FILES),
            ("get --write-out=j", "json", NO_FILES),
            ("completion ", "bash zsh fish powershell", NO_FILES),
            ("help lease g", "grant", NO_FILES),
            ("put key ", "", DEFAULT),
        ];
        for (line, expected, directive) in cases {
            assert_eq!(ask(line), (expected.to_owned(), directive), "{line}");
        }
    }
}
