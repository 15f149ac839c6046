//! Files of a crate that name one another in a circle cannot be read one after another, nor moved
//! apart. The arrows are drawn from what the files say; modules inside of a file belong to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Crates whose files name one another in one direction.
const STRAIGHT: [&str; 9] = ["bench", "cobra", "ctl", "node", "testkit", "tls", "utl", "wire", "xtask"];

/// `a::b` as `["a", "b"]`; the root is empty.
type Module = Vec<String>;

/// One file: what it names, as full paths from the root, and what it imports under which name.
#[derive(Default)]
struct File {
    module: Module,
    /// Modules inside of the file, from the file's own.
    inside: Module,
    /// The `use` at hand hands on: what it names is looked for where it comes from, by whoever asks
    /// for it.
    exporting: bool,
    named: Vec<Module>,
    imports: BTreeMap<String, Module>,
}

impl File {
    /// A path as the file says it, from the root. None: it leads out of the crate, or to a local
    /// name.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let here: Module = self.module.iter().chain(&self.inside).cloned().collect();
        let supers = path.iter().take_while(|word| *word == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([&here, &path[1..]].concat()),
            "super" => Some([&here[..here.len().checked_sub(supers)?], &path[supers..]].concat()),
            _ => Some([&here, path].concat()),
        }
    }

    fn tree(&mut self, before: &Module, tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before.as_slice(), &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => self.import(before.clone(), None),
            syn::UseTree::Name(name) => self.import(with(&name.ident), None),
            syn::UseTree::Rename(name) => self.import(with(&name.ident), Some(name.rename.to_string())),
            syn::UseTree::Glob(_) => self.import(before.clone(), Some("*".into())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }

    fn import(&mut self, path: Module, name: Option<String>) {
        let Some(full) = self.absolute(&path) else { return };
        if !self.exporting {
            self.named.push(full.clone());
        }
        if self.inside.is_empty() {
            self.imports.insert(name.unwrap_or_else(|| path[path.len() - 1].clone()), full);
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'a> Visit<'a> for File {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            self.inside.push(module.ident.to_string());
            visit::visit_item_mod(self, module);
            self.inside.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) && item.leading_colon.is_none() {
            self.exporting = !matches!(item.vis, syn::Visibility::Inherited);
            self.tree(&Vec::new(), &item.tree);
        }
    }

    /// The path of `pub(super)` says who may look, not what the file names.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Module = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // One word is no module: it stands here, or an import has counted it.
        if words.len() > 1 {
            self.named.extend(self.absolute(&words));
        }
        visit::visit_path(self, path);
    }
}

/// The files of product code below `folder`, by module.
fn files(folder: &Path) -> BTreeMap<Module, File> {
    let (mut waiting, mut found) = (vec![folder.to_path_buf()], BTreeMap::new());
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(
                std::fs::read_dir(&path).expect("a folder of ours").map(|entry| entry.expect("an entry").path()),
            );
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).expect("readable");
            let mut file = File { module: module_of(path.strip_prefix(folder).expect("below it")), ..File::default() };
            file.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
            found.insert(file.module.clone(), file);
        }
    }
    found
}

fn module_of(path: &Path) -> Module {
    let mut words: Module = path.with_extension("").iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        words.pop();
    }
    words
}

/// The file in which a full path ends. What a file imports is looked for where it comes from. None:
/// outside.
fn home(files: &BTreeMap<Module, File>, path: &[String]) -> Option<Module> {
    let (mut at, mut rest, mut importer) = (Module::new(), path.to_vec(), None);
    for _ in 0..16 {
        while let Some(word) = rest.first() {
            let below = [at.as_slice(), std::slice::from_ref(word)].concat();
            if !files.contains_key(&below) {
                break;
            }
            at = below;
            rest.remove(0);
        }
        let imported = rest.first().and_then(|word| files.get(&at)?.imports.get(word));
        match imported {
            Some(full) if importer.as_ref() != Some(&at) => {
                rest = [full.as_slice(), &rest[1..]].concat();
                importer = Some(std::mem::take(&mut at));
            }
            _ => break,
        }
    }
    // What an import does not lead away from its file comes from another crate.
    (importer.as_ref() != Some(&at)).then_some(at)
}

/// Which file names which.
fn arrows(files: &BTreeMap<Module, File>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut found = BTreeMap::new();
    for (module, file) in files {
        let mut names: BTreeSet<Module> = file.named.iter().filter_map(|path| home(files, path)).collect();
        names.remove(module);
        found.insert(module.clone(), names);
    }
    found
}

/// The arrows that stand in circles: what a file names and is led back from.
fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let reaches = |from: &Module, to: &Module| {
        let (mut waiting, mut seen) = (vec![from], BTreeSet::from([from]));
        while let Some(module) = waiting.pop() {
            waiting.extend(arrows[module].iter().filter(|named| seen.insert(*named)));
        }
        seen.contains(to)
    };
    let mut found = arrows.clone();
    for (module, names) in &mut found {
        names.retain(|named| reaches(named, module));
    }
    found.retain(|_, names| !names.is_empty());
    found
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "the root".into() } else { module.join("::") }
}

#[test]
fn files_name_one_another_in_one_direction() {
    let workspace: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").into();
    let mut wrong = Vec::new();
    for name in STRAIGHT {
        let files = files(&workspace.join(name).join("src"));
        assert!(files.len() > 1, "{name} has moved");
        for (module, names) in circles(&arrows(&files)) {
            let names: Vec<String> = names.iter().map(shown).collect();
            wrong.push(format!("{name}: {} -> {}", shown(&module), names.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "files in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_seen() {
    let file = |module: &str, text: &str| {
        let module: Module = module.split_terminator("::").map(String::from).collect();
        let mut file = File { module: module.clone(), ..File::default() };
        file.visit_file(&syn::parse_file(text).expect("Rust"));
        (module, file)
    };
    let left = |files: &[(&str, &str)]| {
        circles(&arrows(&files.iter().map(|(module, text)| file(module, text)).collect())).len()
    };
    assert_eq!(left(&[("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "fn f() {}")]), 0);
    assert_eq!(left(&[("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "fn f() { super::a::g() }")]), 2);
    assert_eq!(left(&[("", "mod a;"), ("a", "mod b; const T: u8 = b::T;"), ("a::b", "use super::Row;")]), 2);
    let exported = [("", "mod a; mod b; pub use a::A;"), ("a", "pub struct A;"), ("b", "use crate::A;")];
    assert_eq!(left(&exported), 0, "what the root exports counts where it stands");
    let local = [("", "mod a;"), ("a", "mod b; fn f(b: u8) -> u8 { b }"), ("a::b", "use super::f;")];
    assert_eq!(left(&local), 0, "a value may be called as a module is");
    let tests = [("", "mod a; mod b;"), ("a", "use crate::b;"), ("b", "#[cfg(test)] mod tests { use crate::a; }")];
    assert_eq!(left(&tests), 0, "tests are free");
}
