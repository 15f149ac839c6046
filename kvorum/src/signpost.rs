//! Words that were typed to the wrong program: `kvorum put`, `kvorum ctl bbolt`, `kvorum utl get`.
//!
//! Only words that the program itself does not know, and that name a command of another one to the
//! letter. Under the stock names nothing is said: there the programs are the stock ones.

use crate::tree::{self, Part};
use cobra::Command;

/// Names that people know from etcd.
const STOCK: [(&str, &str); 3] = [("etcd", "server"), ("etcdctl", "ctl"), ("etcdutl", "utl")];

/// Says where the words belong; the exit code. None if they can be read here.
pub(crate) fn instead(args: &[String]) -> Option<i32> {
    let parts = tree::parts();
    let own = parts.iter().find(|part| Some(part.word) == args.first().map(String::as_str));
    let (root, words) = own.map_or_else(|| (tree::root(), args), |part| (part.root, &args[1..]));
    // A member has flags and no words: only the first one can be a command.
    if root.name == "kvorum server" && words.first().is_some_and(|word| word.starts_with('-')) {
        return None;
    }
    let (path, left) = cobra::stray(root, words)?;
    let called = root.name;
    let unknown = cobra::unknown_command(&path, &left[0]);
    let typed: Vec<&str> =
        path[1..].iter().map(|command| command.name).chain(left.iter().map(|word| &word[..])).collect();
    let there = elsewhere(&parts, called, &typed)?;
    let unknown = unknown.lines().next().unwrap_or_default();
    eprintln!("Error: {unknown}\nhint: {there}");
    Some(if ["kvorum", "kvorum bench", "kvorum dev"].contains(&called) { 2 } else { 1 })
}

/// Where the words belong, if there is one such place.
fn elsewhere(parts: &[Part], called: &str, words: &[&str]) -> Option<String> {
    if let Some((stock, here)) = STOCK.iter().find(|(stock, _)| *stock == words[0]) {
        return Some(format!("`{stock}` is here `kvorum {here}`"));
    }
    let deepest = parts.iter().filter(|part| part.root.name != called).map(|part| (depth(part.root, words), part));
    // Of several programs the first one of the list, which is the one for a running cluster.
    let (depth, part) = deepest.rev().max_by_key(|(depth, _)| *depth)?;
    let mine = parts.iter().find(|part| part.root.name == called).map_or(0, |part| self::depth(part.root, words));
    (depth > mine).then(|| format!("`{0}` is a command of `{1}`: {1} {0}", words[..depth].join(" "), part.root.name))
}

/// How many of the words name commands, to the letter.
fn depth(root: &'static Command<()>, words: &[&str]) -> usize {
    let mut at = root;
    words
        .iter()
        .take_while(|word| match at.all_subs().find(|sub| sub.name == **word && !sub.hidden) {
            Some(sub) => {
                at = sub;
                true
            }
            None => false,
        })
        .count()
}
