//! Checks what modules and folders of a crate import: no modules each other in a circle, and folders only those below them.
//! `circles.yaml` lists the crates, and the circles of modules that are kept, each with its reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use petgraph::{algo::tarjan_scc, graph::DiGraph};
use serde::Deserialize;

use crate::{
    imports::{Module, Modules, modules, resolve},
    ladder::{Ladder, ladders},
};

/// The list, relative to the root of the checkout.
const LIST: &str = "crates/xtask/circles.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Source folders of crates.
    crates: Vec<PathBuf>,
    /// Source folders of crates whose folders alone are checked.
    only_folders: Vec<PathBuf>,
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

/// Prints the ladder of each crate. Fails if folders import each other in a circle, if modules of a listed crate do in one that isn't
/// kept, or if a kept circle is gone.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))?;
    let list: List = serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {LIST}"))?;
    let mut wrong = Vec::new();
    for source in &list.crates {
        let modules = modules(&root.join(source))?;
        wrong.extend(circles_of_folders(source, &modules));
        wrong.extend(circles_of_modules(source, &modules, &list.kept));
    }
    for source in &list.only_folders {
        wrong.extend(circles_of_folders(source, &modules(&root.join(source))?));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("imports go in circles:\n{}", wrong.join("\n"))
}

/// Prints the ladder of a crate. Returns the circles of its folders.
fn circles_of_folders(source: &Path, modules: &Modules) -> Vec<String> {
    let ladders = ladders(modules);
    if let Some(root) = ladders.get::<[String]>(&[]) {
        print!("{}\n{root}", source.display());
    }
    let of_folder = |(folder, ladder): (&&[String], &Ladder)| -> Vec<String> {
        let within = source.join(folder.iter().collect::<PathBuf>());
        ladder.circles.iter().map(|circle| format!("{}: {circle}", within.display())).collect()
    };
    ladders.iter().flat_map(of_folder).collect()
}

/// The circles of modules that aren't kept, and the kept ones that are gone.
fn circles_of_modules(source: &Path, modules: &Modules, kept: &[Kept]) -> Vec<String> {
    let found = circles(modules);
    let kept: Vec<&BTreeSet<String>> =
        kept.iter().filter(|k| k.source == source).map(|k| &k.modules).collect();
    let new = found.iter().filter(|circle| !kept.contains(circle));
    let gone = kept.iter().filter(|circle| !found.contains(circle));
    new.map(|circle| format!("{}: {}", source.display(), join(circle)))
        .chain(gone.map(|circle| {
            format!("{}: {} is kept, but is no circle: remove it from {LIST}", source.display(), join(circle))
        }))
        .collect()
}

fn join(circle: &BTreeSet<String>) -> String {
    circle.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Sets of modules that import each other. A parent that declares its children and passes on their names is no part of a
/// circle: its own file is left out unless it holds items.
fn circles(modules: &Modules) -> Vec<BTreeSet<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::File;

    fn crate_of(files: &[(&str, &str)]) -> Modules {
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
}
