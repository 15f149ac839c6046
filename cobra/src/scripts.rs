//! The scripts for the shells. `@BINARY@` is the program, `@SUBS@` the words
//! after it that choose one which can be asked, `@WORDS@` all words that can
//! stand there (both empty for a link with the stock name), `@NAME@` the
//! program as part of a name.
//!
//! Each hands over the words before the cursor and offers what comes back: the
//! scripts know nothing but how to ask `__complete`.

/// The programs behind `kvorum`, and those of them that answer `__complete`.
const PROGRAMS: &str = "bench completion ctl dev gateway man proxy server utl version";
const ASKED: &str = "bench completion ctl dev gateway man proxy server utl";

/// The shells that there is a script for.
pub const SHELLS: &[&str] = &["bash", "zsh", "fish", "powershell"];

/// The script with which a shell completes for a program; none for other shells.
pub fn script(shell: &str, program: &str) -> Option<String> {
    let script = match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        "powershell" => POWERSHELL,
        _ => return None,
    };
    // `kvorum ctl` is two words: the shell completes for the first, whatever
    // program the second one chooses.
    let (binary, subs, words) = match program.split_once(' ') {
        Some((binary, _)) => (binary, ASKED, PROGRAMS),
        None => (program, "", ""),
    };
    let script = script.replace("@BINARY@", binary).replace("@NAME@", &binary.replace('-', "_"));
    Some(script.replace("@SUBS@", subs).replace("@WORDS@", words))
}

/// For bash, 3.2 and later.
const BASH: &str = r#"# bash completion of @BINARY@

__@NAME@_complete() {
    local sub="" first=1 rest="${COMP_LINE:0:COMP_POINT}" words=() i part trimmed cur cut breaks=""
    local line answer directive candidate raw
    COMPREPLY=()
    # bash cuts words at : and = as well; here they stay whole.
    for (( i = 0; i <= COMP_CWORD; i++ )); do
        trimmed="${rest#"${rest%%[![:space:]]*}"}"
        part="${COMP_WORDS[i]}"
        (( i == COMP_CWORD )) && part="$trimmed"
        if (( ${#words[@]} > 0 )) && [[ $trimmed == "$rest" ]]; then
            words[${#words[@]}-1]+="$part"
        else
            words+=("$part")
        fi
        rest="${trimmed#"$part"}"
    done
    raw="${words[${#words[@]}-1]}"
    for (( i = 0; i < ${#words[@]}; i++ )); do
        words[i]="${words[i]//[\"\'\\]/}"
    done
    cur="${words[${#words[@]}-1]}"
    if [[ -n "@SUBS@" ]]; then
        sub="${words[1]}"
        if (( ${#words[@]} < 3 )); then
            COMPREPLY=($(compgen -W "@WORDS@" -- "$cur"))
            return
        fi
        [[ " @SUBS@ " == *" $sub "* ]] || return
        first=2
    fi
    answer=$("${words[0]/#\~/$HOME}" $sub __completeNoDesc "${words[@]:first}" 2>/dev/null) || return
    directive=${answer##*:}
    [[ $cur == --*=* ]] && cur="${cur#*=}"
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=":"
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+="="
    [[ -n $breaks ]] && cut="${cur%"${cur##*[$breaks]}"}"
    while IFS= read -r line; do
        [[ $line == :* || -z $line ]] && continue
        candidate="${line#"$cut"}"
        # What is not plain is quoted, unless the person has begun to.
        if [[ $raw != [\"\']* && $candidate == *[^[:alnum:]_./:=,@%+~-]* ]]; then
            printf -v candidate '%q' "$candidate"
        fi
        COMPREPLY+=("$candidate")
    done <<< "$answer"
    if (( directive & 4 )); then
        compopt +o default 2>/dev/null
    fi
    if (( directive & 2 )); then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F __@NAME@_complete @BINARY@
"#;

/// For zsh, with `compinit`.
const ZSH: &str = r#"#compdef @BINARY@

_@NAME@() {
    local sub="" line directive name about
    local -a candidates ask options
    ask=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
    if [[ -n "@SUBS@" ]]; then
        if (( CURRENT == 2 )); then
            compadd -- @WORDS@
            return
        fi
        sub=${words[2]}
        if [[ " @SUBS@ " != *" $sub "* ]]; then
            _files
            return
        fi
        ask=("${(@)ask[2,-1]}")
    fi
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            *)
                name=${line%%$'\t'*}
                about=${line#*$'\t'}
                [[ $about == "$line" ]] && about=""
                # A colon would end the name.
                name=${name//\\/\\\\}
                candidates+=("${name//:/\\:}${about:+:$about}")
                ;;
        esac
    done < <("${(Q)words[1]/#\~/$HOME}" ${sub:+"$sub"} __complete "${ask[@]}" 2>/dev/null)
    # `--flag=value`: the candidates are values.
    [[ $PREFIX == --*=* ]] && compset -P '*='
    (( directive & 2 )) && options=(-S '')
    if (( ${#candidates} )); then
        _describe '@BINARY@' candidates "${options[@]}"
    elif (( ! (directive & 4) )); then
        _files
    fi
}

compdef _@NAME@ @BINARY@
"#;

/// For fish, 3.0 and later.
const FISH: &str = r#"# fish completion of @BINARY@

function __@NAME@_complete
    set -l subs @SUBS@
    set -l words (commandline -opc)
    # Half a word may have half its quotes.
    set -l token (commandline -ct | string trim --left --chars='"\'' | string replace -a '\\' '')
    set -l program $words[1]
    set -e words[1]
    set -l ask __complete
    if test (count $subs) -gt 0
        if test (count $words) -eq 0
            string split ' ' -- "@WORDS@"
            return
        end
        if not contains -- "$words[1]" $subs
            __fish_complete_path "$token"
            return
        end
        set ask $words[1] $ask
        set -e words[1]
    end
    set -l answer ($program $ask $words "$token" 2>/dev/null)
    set -l candidates (string match -v -r '^:' -- $answer)
    set -l directive (string replace ':' '' -- $answer[-1])
    # `--flag=value`: the candidates are values.
    set -l flag (string match -r -- '^--[^=]*=' "$token")
    if test (count $candidates) -gt 0
        for candidate in $candidates
            echo "$flag$candidate"
        end
    else if test "$directive" = 0
        __fish_complete_path "$token"
    end
end

complete -c @BINARY@ -f -a '(__@NAME@_complete)'
"#;

/// For PowerShell, 5.1 and later.
const POWERSHELL: &str = r#"# PowerShell completion of @BINARY@

Register-ArgumentCompleter -Native -CommandName '@BINARY@' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $subs = @('@SUBS@' -split ' ' | Where-Object { $_ })
    $sub = ''
    $words = @($commandAst.CommandElements | ForEach-Object { $_.Extent.Text })
    $program = $words[0]
    $words = @($words | Select-Object -Skip 1)
    if ($wordToComplete -and $words.Count -gt 0) { $words = @($words | Select-Object -SkipLast 1) }
    if ($subs) {
        if ($words.Count -eq 0) {
            '@WORDS@' -split ' ' | Where-Object { $_ -like "$wordToComplete*" } | ForEach-Object {
                [System.Management.Automation.CompletionResult]::new($_)
            }
            return
        }
        $sub = $words[0]
        if ($subs -notcontains $sub) { return }
    }
    # Newer versions hand over an empty word as it is.
    $version = [version]"$($PSVersionTable.PSVersion.Major).$($PSVersionTable.PSVersion.Minor)"
    $empty = if ($version -ge [version]'7.3' -and $PSNativeCommandArgumentPassing -ne 'Legacy') { '' } else { '""' }
    $before = @($words | Select-Object -Skip ([int][bool]$sub))
    $ask = @($sub | Where-Object { $_ }) + '__complete' + $before + $(if ($wordToComplete) { $wordToComplete } else { $empty })
    # `--flag=value`: the candidates are values.
    $flag = if ($wordToComplete -match '^(--[^=]*=)') { $Matches[1] } else { '' }
    & $program @ask 2>$null | Where-Object { $_ -notmatch '^:' } | ForEach-Object {
        $candidate, $about = $_ -split "`t", 2
        if (-not $about) { $about = $candidate }
        $typed = "$flag$candidate"
        if ($typed -match '[\s''"`$;&|(){}<>@,#]') { $typed = "'" + $typed.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($typed, $candidate, 'ParameterValue', $about)
    }
}
"#;
