//! What may only become better: the longest function of each crate, its public items without a
//! comment, its errors that are texts alone. A bound that could be lower fails too, so that what
//! was won stays won.

use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Lines of the longest function in product code, and public items there without a comment.
///
/// The second number counts what is `pub` where it stands, whether or not another crate can reach
/// it. Crates of [`DOCUMENTED`] have no such number: the compiler counts for them.
const BOUNDS: [(&str, usize, usize); 18] = [
    ("backup", 42, 0),
    ("bench", 78, 168),
    ("bolt", 28, 0),
    ("client", 43, 0),
    ("cobra", 40, 0),
    ("consensus", 46, 65),
    ("ctl", 49, 2),
    ("disk", 50, 88),
    ("kvorum", 19, 0),
    ("node", 92, 262),
    ("server", 82, 0),
    ("sim", 119, 498),
    ("store", 45, 0),
    ("testkit", 50, 16),
    ("tls", 19, 0),
    ("utl", 36, 45),
    ("wire", 44, 0),
    ("xtask", 59, 219),
];

/// Places of product code where an error is a text alone: `Result<_, String>`. A person is its only
/// reader, and nothing branches on it. Crates that are not named have none.
const TEXTS: [(&str, usize); 7] = [
    // What is wrong with a page; whoever calls adds its number and its offset (`bolt::Error`), or
    // lists it.
    ("bolt", 7),
    // Reasons, to which whoever calls adds the endpoint (`client::Error`).
    ("client", 7),
    // Go's words for a flag's value.
    ("cobra", 10),
    // Words of a command line; what `doctor` and `top` show in place of what they could not learn.
    ("ctl", 10),
    // Flags, `kvorum dev`, why a peer did not answer (a log line), the lines of /readyz.
    ("server", 2),
    // Where a story went wrong.
    ("sim", 20),
    // The same, and words of a command line.
    ("xtask", 5),
];

/// What a stranger may depend on: every public item says what it is, every fallible one its errors.
const DOCUMENTED: [&str; 5] = ["backup", "bolt", "client", "store", "wire"];
const LINTS: &str = "#![warn(missing_docs, unreachable_pub, clippy::missing_errors_doc)]";

fn crate_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(name)
}

/// Files of product code below a folder. A file named `tests.rs` is no product code.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// What is counted, and the places of it for whoever has to mend.
#[derive(Default)]
struct Count {
    file: String,
    /// Lines and place.
    longest: (usize, String),
    undocumented: Vec<String>,
    /// Types `Result<_, String>`.
    texts: Vec<String>,
}

impl Count {
    fn of(name: &str) -> Count {
        let folder = crate_folder(name).join("src");
        let (mut files, mut count) = (Vec::new(), Count::default());
        sources(&folder, &mut files);
        for path in files {
            count.file = path.strip_prefix(crate_folder("")).expect("below it").display().to_string();
            let text = std::fs::read_to_string(&path).expect("readable");
            count.visit_file(&syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
        count
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > self.longest.0 {
            self.longest = (lines, format!("{}:{first}: {}", self.file, signature.ident));
        }
    }

    fn item(&mut self, is_public: bool, attributes: &[syn::Attribute], at: proc_macro2::Span) {
        if is_public && !attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
            self.undocumented.push(format!("{}:{}", self.file, at.start().line));
        }
    }

    fn text(&mut self, segment: &syn::PathSegment) {
        let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else { return };
        let is_string = |argument: &syn::GenericArgument| matches!(argument, syn::GenericArgument::Type(syn::Type::Path(path)) if path.path.is_ident("String"));
        if segment.ident == "Result" && arguments.args.iter().nth(1).is_some_and(is_string) {
            self.texts.push(format!("{}:{}", self.file, segment.span().start().line));
        }
    }

    fn fields(&mut self, fields: &syn::Fields, of_public_enum: bool) {
        for field in fields.iter().filter(|field| field.ident.is_some()) {
            self.item(of_public_enum || is_public(&field.vis), &field.attrs, field.span());
        }
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = |list: &syn::MetaList| list.tokens.to_string();
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(|l| tokens(l) == "test")
    })
}

impl<'a> Visit<'a> for Count {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let at = item.span();
        let public = match item {
            syn::Item::Const(i) => Some((&i.vis, &i.attrs)),
            syn::Item::Enum(i) => Some((&i.vis, &i.attrs)),
            syn::Item::Fn(i) => Some((&i.vis, &i.attrs)),
            // A module with a file of its own has its comment in there.
            syn::Item::Mod(i) if i.content.is_some() => Some((&i.vis, &i.attrs)),
            syn::Item::Static(i) => Some((&i.vis, &i.attrs)),
            syn::Item::Struct(i) => Some((&i.vis, &i.attrs)),
            syn::Item::Trait(i) => Some((&i.vis, &i.attrs)),
            syn::Item::Type(i) => Some((&i.vis, &i.attrs)),
            _ => None,
        };
        if let Some((visibility, attributes)) = public {
            if is_test(attributes) {
                return;
            }
            self.item(is_public(visibility), attributes, at);
        }
        match item {
            syn::Item::Struct(i) if is_public(&i.vis) => self.fields(&i.fields, false),
            syn::Item::Enum(i) if is_public(&i.vis) => {
                for variant in &i.variants {
                    self.item(true, &variant.attrs, variant.span());
                    self.fields(&variant.fields, true);
                }
            }
            syn::Item::Trait(i) if is_public(&i.vis) => {
                for method in i.items.iter().filter_map(|m| if let syn::TraitItem::Fn(m) = m { Some(m) } else { None })
                {
                    self.item(true, &method.attrs, method.span());
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        self.text(segment);
        visit::visit_path_segment(self, segment);
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.item(is_public(&function.vis), &function.attrs, function.span());
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn functions_become_shorter() {
    let mut wrong = Vec::new();
    for (name, bound, _) in BOUNDS {
        let (lines, place) = Count::of(name).longest;
        if lines > bound {
            wrong.push(format!("{place} has {lines} lines, {name} allows {bound}: is it still one thing?"));
        } else if lines < bound {
            wrong.push(format!("{name}: its longest function has {lines} lines, lower its bound from {bound}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn public_items_say_what_they_are() {
    let mut wrong = Vec::new();
    for (name, _, bound) in BOUNDS.into_iter().filter(|(name, ..)| !DOCUMENTED.contains(name)) {
        let found = Count::of(name).undocumented;
        if found.len() > bound {
            let places = found.join("\n  ");
            wrong.push(format!("{name}: {} public items say nothing, it allows {bound}:\n  {places}", found.len()));
        } else if found.len() < bound {
            wrong.push(format!("{name}: {} public items say nothing, lower its bound from {bound}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn errors_can_be_asked() {
    let mut wrong = Vec::new();
    for (name, ..) in BOUNDS {
        let bound = TEXTS.iter().find(|(of, _)| *of == name).map_or(0, |(_, bound)| *bound);
        let found = Count::of(name).texts;
        if found.len() > bound {
            let places = found.join("\n  ");
            wrong.push(format!("{name}: {} errors are texts alone, it allows {bound}:\n  {places}", found.len()));
        } else if found.len() < bound {
            wrong.push(format!("{name}: {} errors are texts alone, lower its bound from {bound}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_strangers_depend_on_is_documented() {
    for name in DOCUMENTED {
        let text = std::fs::read_to_string(crate_folder(name).join("src/lib.rs")).expect("readable");
        assert!(text.lines().any(|line| line == LINTS), "{name}: its lib.rs says no {LINTS}");
    }
}

#[test]
fn what_is_counted() {
    let mut count = Count::default();
    let text = "pub struct A { pub b: u8, c: u8, pub(crate) d: u8 }\n/// E.\npub enum E { F { g: u8 } }\n\
                impl A { pub fn h() {\n\n} fn i() -> Result<(), String> {} }\n#[cfg(test)]\npub mod j { pub fn k() {\n\n\n\n} }";
    count.visit_file(&syn::parse_file(text).expect("Rust"));
    assert_eq!(count.undocumented.len(), 5, "A, A.b, F, F.g and h: {:?}", count.undocumented);
    assert_eq!(count.texts.len(), 1, "i: {:?}", count.texts);
    assert_eq!(count.longest.0, 3, "h: {}", count.longest.1);
}
