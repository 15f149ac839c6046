//! A how-to, read: its code blocks in their order.
//!
//! The word behind the language says where a block is run:
//!
//! | fence | what is done |
//! |---|---|
//! | `sh m1` | run on that machine; `sh m1 m2` on each in turn |
//! | `sh m1 background` | started there, and goes on; a member of the block serves before the next |
//! | `sh skip: REASON` | not run here; it must be a script that a shell can read |
//! | `text` | behind a block that was run: each line was written by it, `…` stands for anything |
//! | another language | an example of a file; not looked at |
//!
//! `<!-- after: NAME -->` at the beginning: the blocks of that how-to are run first.

use anyhow::{Context, Result, bail, ensure};

/// One how-to.
#[derive(Debug)]
pub struct Howto {
    /// The how-to whose blocks are run first.
    pub after: Option<String>,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// One block of code.
#[derive(Debug)]
pub struct Step {
    /// Its first line in the file.
    pub line: usize,
    /// What it is.
    pub deed: Deed,
    /// The text.
    pub script: String,
    /// What it writes, if that is shown.
    pub shows: Vec<String>,
}

/// What is done with a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Deed {
    /// Run on each of these.
    Run(Vec<String>),
    /// Started on each of these.
    Begin(Vec<String>),
    /// Only read, for this reason.
    Skip(String),
}

impl Deed {
    /// The machines that it is done on.
    pub fn machines(&self) -> &[String] {
        match self {
            Deed::Run(machines) | Deed::Begin(machines) => machines,
            Deed::Skip(_) => &[],
        }
    }
}

/// Reads a how-to.
///
/// # Errors
/// With the line that makes no sense.
pub fn read(text: &str) -> Result<Howto> {
    let after =
        text.lines().find_map(|line| line.strip_prefix("<!-- after: ")?.strip_suffix(" -->")).map(str::to_owned);
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut body = String::new();
        loop {
            let (_, line) = lines.next().with_context(|| format!("line {}: the block has no end", at + 1))?;
            if line == "```" {
                break;
            }
            body += line;
            body.push('\n');
        }
        let (language, where_) = info.split_once(' ').unwrap_or((info, ""));
        match language {
            "sh" => {
                let deed = deed(where_).with_context(|| format!("line {}", at + 1))?;
                steps.push(Step { line: at + 1, deed, script: body, shows: Vec::new() });
            }
            "text" => {
                let step = steps.last_mut().with_context(|| format!("line {}: no block wrote that", at + 1))?;
                ensure!(matches!(step.deed, Deed::Run(_)), "line {}: the block before is not run", at + 1);
                step.shows = body.lines().map(str::to_owned).filter(|line| !line.trim().is_empty()).collect();
            }
            "" => bail!("line {}: a block without a language", at + 1),
            _ => {}
        }
    }
    ensure!(!steps.is_empty(), "there is nothing to run");
    Ok(Howto { after, steps })
}

fn deed(words: &str) -> Result<Deed> {
    if let Some(reason) = words.strip_prefix("skip: ") {
        return Ok(Deed::Skip(reason.to_owned()));
    }
    let mut machines: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let begins = machines.last().is_some_and(|word| word == "background");
    if begins {
        machines.pop();
    }
    ensure!(!machines.is_empty(), "`sh` names no machine, and no `skip: REASON`");
    for name in &machines {
        ensure!(crate::machines::HOSTS.iter().any(|host| host.0 == name), "there is no machine {name}");
    }
    Ok(if begins { Deed::Begin(machines) } else { Deed::Run(machines) })
}

/// The first line of what is shown that was not written.
pub fn missing<'s>(shows: &'s [String], wrote: &str) -> Option<&'s str> {
    let fits = |shown: &str, line: &str| {
        let mut rest = line;
        shown.split('…').map(str::trim).all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    };
    shows.iter().map(String::as_str).find(|shown| !wrote.lines().any(|line| fits(shown, line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# X\n<!-- after: three-machines -->\n```sh m1 m2\na\nb\n```\n```text\none … three\n```\n\
                        ```sh m1 background\nc\n```\n```sh skip: needs docker\nd\n```\n```yaml\ne: 1\n```\n";

    #[test]
    fn blocks_are_read_with_their_places() {
        let howto = read(TEXT).expect("it reads");
        assert_eq!(howto.after.as_deref(), Some("three-machines"));
        let deeds: Vec<&Deed> = howto.steps.iter().map(|step| &step.deed).collect();
        let both = Deed::Run(vec!["m1".into(), "m2".into()]);
        assert_eq!(deeds, [&both, &Deed::Begin(vec!["m1".into()]), &Deed::Skip("needs docker".into())]);
        assert_eq!(howto.steps[0].script, "a\nb\n");
        assert_eq!(missing(&howto.steps[0].shows, "zero\none two three\n"), None);
        assert_eq!(missing(&howto.steps[0].shows, "three two one\n"), Some("one … three"));
    }

    #[test]
    fn a_block_that_says_nothing_of_its_place_is_refused() {
        for text in ["```sh\na\n```\n", "```sh m77\na\n```\n", "```\na\n```\n", "```sh m1\na\n", "nothing\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    /// Every how-to can be read, is linked from the list, and names one that there is.
    #[test]
    fn the_how_tos_are_read() {
        let folder = crate::howto::folder();
        let list = std::fs::read_to_string(folder.join("README.md")).expect("the list");
        for name in crate::howto::names().expect("the folder") {
            let text = std::fs::read_to_string(folder.join(format!("{name}.md"))).expect("a how-to");
            let howto = read(&text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(list.contains(&format!("({name}.md)")), "README.md does not name {name}");
            let after = howto.after.map(|after| folder.join(format!("{after}.md")));
            assert!(after.is_none_or(|path| path.is_file()), "{name} comes after one that is not there");
        }
    }
}
