//! Checks that no modules of a crate import each other in a circle: `circles.yaml` lists the crates, and the circles that
//! are kept, each with its reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use petgraph::{algo::tarjan_scc, graph::DiGraph};
use serde::Deserialize;

use crate::tokens::{Kind, tokens};

/// The list, relative to the root of the checkout.
const LIST: &str = "crates/xtask/circles.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Source folders of crates.
    crates: Vec<PathBuf>,
    kept: Vec<Kept>,
}

/// A circle that stays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Source folder of the crate.
    source: PathBuf,
    /// Every module of the circle.
    modules: BTreeSet<String>,
    #[expect(dead_code, reason = "read by people")]
    reason: String,
}

/// A module's path within its crate; empty for the root.
type Module = Vec<String>;

/// A module's file, read once.
struct File {
    /// Names of the items that it defines itself.
    items: BTreeSet<String>,
    /// It defines an item, if only in a macro.
    has_items: bool,
    /// Paths in it.
    paths: Vec<Vec<String>>,
}

impl File {
    fn new(text: &str) -> Self {
        // Code of inline test modules imports nothing.
        let (code, tests) = text.split_once("#[cfg(test)]").unwrap_or((text, ""));
        let (code, tests) = (words(code), words(tests));
        let is_item = |word: &String| ITEMS.contains(&word.as_str());
        let item = |pair: &[String]| match pair {
            [keyword, item] if is_item(keyword) => Some(item.clone()),
            _ => None,
        };
        Self {
            items: code.windows(2).chain(tests.windows(2)).filter_map(item).collect(),
            has_items: code.iter().chain(&tests).any(is_item),
            paths: paths(&code),
        }
    }
}

/// Fails if modules of a listed crate import each other in a circle that isn't kept, or a kept circle is gone.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))?;
    let list: List = serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {LIST}"))?;
    let mut wrong = Vec::new();
    for source in &list.crates {
        let found = circles(&modules(&root.join(source))?);
        let kept: Vec<&BTreeSet<String>> =
            list.kept.iter().filter(|k| &k.source == source).map(|k| &k.modules).collect();
        for circle in found.iter().filter(|circle| !kept.contains(circle)) {
            wrong.push(format!("{}: {}", source.display(), join(circle)));
        }
        for circle in kept.iter().filter(|circle| !found.contains(circle)) {
            wrong.push(format!(
                "{}: {} is kept, but is no circle: remove it from {LIST}",
                source.display(),
                join(circle)
            ));
        }
    }
    if wrong.is_empty() {
        println!("{} crates have no circle of modules that is not kept", list.crates.len());
        return Ok(());
    }
    bail!("modules import each other in circles:\n{}", wrong.join("\n"))
}

fn join(circle: &BTreeSet<String>) -> String {
    circle.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The modules of a crate, each with its file.
fn modules(source: &Path) -> anyhow::Result<BTreeMap<Module, File>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Module::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
            let mut own = module.clone();
            if path.is_dir() {
                own.push(stem);
                folders.push((path, own));
            } else if path.extension().is_some_and(|e| e == "rs") && stem != "main" {
                if !["lib", "mod"].contains(&stem.as_str()) {
                    own.push(stem);
                }
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("failed to read {}", path.display()))?;
                found.insert(own, File::new(&text));
            }
        }
    }
    Ok(found)
}

/// Sets of modules that import each other. A parent that declares its children and passes on their names is no part of a
/// circle: its own file is left out unless it holds items.
fn circles(modules: &BTreeMap<Module, File>) -> Vec<BTreeSet<String>> {
    let mut graph = DiGraph::<&Module, ()>::new();
    let nodes: BTreeMap<&Module, _> = modules.keys().map(|module| (module, graph.add_node(module))).collect();
    for (module, file) in modules {
        for path in &file.paths {
            let Some(target) = resolve(modules, module, path) else { continue };
            let ends = nodes.get(module).zip(nodes.get(target));
            if let Some((from, to)) = ends.filter(|(from, to)| from != to) {
                graph.update_edge(*from, *to, ());
            }
        }
    }
    let named = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("::") };
    let mut found: Vec<BTreeSet<String>> = tarjan_scc(&graph)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| {
            component.into_iter().filter_map(|n| graph.node_weight(n)).map(|m| named(m)).collect()
        })
        .collect();
    found.sort();
    found
}

/// The module that `path`, written in `module`, leads to: the longest prefix that is one, unless that is a parent which
/// only passes names on.
fn resolve<'a>(modules: &'a BTreeMap<Module, File>, module: &Module, path: &[String]) -> Option<&'a Module> {
    let (first, mut rest) = path.split_first()?;
    let mut at: Module = match first.as_str() {
        "crate" => Module::new(),
        "super" => module.split_last()?.1.to_vec(),
        "self" => module.clone(),
        // A child of this module, or another crate.
        child => {
            let mut at = module.clone();
            at.push(child.to_owned());
            modules.contains_key(&at).then_some(at)?
        }
    };
    while let Some((next, more)) = rest.split_first() {
        if next == "super" {
            at.pop();
        } else {
            let mut deeper = at.clone();
            deeper.push(next.clone());
            if !modules.contains_key(&deeper) {
                break;
            }
            at = deeper;
        }
        rest = more;
    }
    let (target, file) = modules.get_key_value(&at)?;
    match rest.first().filter(|name| *name != "self") {
        Some(name) if file.items.contains(name) => Some(target),
        Some(name) => passed_on(modules, target, file, name),
        // The module itself is imported, and its items are named by it. A parent without items passes names on.
        None => file.has_items.then_some(target),
    }
}

/// Keywords before the name of an item.
const ITEMS: [&str; 9] = ["struct", "enum", "trait", "type", "fn", "const", "static", "union", "macro_rules"];

/// The child module that a parent takes the name from.
fn passed_on<'a>(
    modules: &'a BTreeMap<Module, File>,
    parent: &'a Module,
    file: &File,
    name: &str,
) -> Option<&'a Module> {
    file.paths.iter().find_map(|path| {
        let (last, front) = path.split_last()?;
        if last != name && last != "*" {
            return None;
        }
        let mut at = parent.clone();
        for segment in front.iter().filter(|s| !["self", "crate"].contains(&s.as_str())) {
            at.push(segment.clone());
        }
        let (child, file) = modules.get_key_value(&at)?;
        file.items.contains(name).then_some(child)
    })
}

/// Identifiers and punctuation of code, comments and literals left out.
fn words(text: &str) -> Vec<String> {
    let code = |kind: Kind| matches!(kind, Kind::Identifier | Kind::Other);
    tokens(text).filter(|token| code(token.kind)).map(|token| token.text.to_owned()).collect()
}

/// Every path with `::`, trees of `use` taken apart.
fn paths(words: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let begins = words.get(at).is_some_and(|w| w.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let follows =
            words.get(at + 1).is_some_and(|w| w == ":") && words.get(at + 2).is_some_and(|w| w == ":");
        if begins && follows {
            at = tree(words, at, &mut Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path or tree from `at`; answers where it ends.
fn tree(words: &[String], mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    loop {
        match words.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while words.get(at).is_some_and(|w| w != "}") {
                    let next = tree(words, at, prefix, found);
                    at = if words.get(next).is_some_and(|w| w == ",") { next + 1 } else { next.max(at + 1) };
                }
                at += 1;
                break;
            }
            Some(word) if word == "*" || word.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                prefix.push(word.to_owned());
                at += 1;
                let more =
                    words.get(at).is_some_and(|w| w == ":") && words.get(at + 1).is_some_and(|w| w == ":");
                if !more {
                    found.push(prefix.clone());
                    if words.get(at).is_some_and(|w| w == "as") {
                        at += 2;
                    }
                    break;
                }
                at += 2;
            }
            _ => break,
        }
    }
    prefix.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<Module, File> {
        let module = |name: &str| name.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(name, text)| (module(name), File::new(text))).collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_a_circle() {
        let modules = crate_of(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B; pub struct A;"),
            ("b", "use crate::{a::{A, self}, c::C}; pub struct B;"),
            ("c", "pub struct C;"),
        ]);
        assert_eq!(circles(&modules), [BTreeSet::from(["a".to_owned(), "b".to_owned()])]);
    }

    #[test]
    fn a_module_that_is_imported_by_its_own_name_counts() {
        let modules = crate_of(&[
            ("m", "mod a; mod b;"),
            ("m::a", "use crate::m::{b, b::B}; pub fn go() { b::run() }"),
            ("m::b", "use super::a::{self}; pub struct B; pub fn run() { a::go() }"),
        ]);
        assert_eq!(circles(&modules).len(), 1);
    }

    #[test]
    fn a_parent_that_passes_a_name_on_is_no_part_of_a_circle() {
        let modules = crate_of(&[
            ("m", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("m::a", "pub struct A;"),
            ("m::b", "use super::A; pub struct B;"),
        ]);
        assert_eq!(circles(&modules), Vec::<BTreeSet<String>>::new());
    }

    #[test]
    fn a_child_that_needs_an_item_of_its_parent_is_a_circle_if_the_parent_uses_the_child() {
        let modules = crate_of(&[
            ("m", "mod a; pub struct M; fn run() { a::go() }"),
            ("m::a", "use super::M; pub fn go() {}"),
        ]);
        assert_eq!(circles(&modules).len(), 1);
    }

    #[test]
    fn comments_strings_and_tests_do_not_import() {
        let modules = crate_of(&[
            ("a", "use crate::b::B; pub struct A;"),
            (
                "b",
                "// crate::a::A\npub struct B; const T: &str = \"crate::a::A\";\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
        ]);
        assert!(circles(&modules).is_empty());
    }
}
