//! The ladder of a crate: a folder imports folders below it and none above.
//!
//! The children of a folder are its files and the folders in it. Each is above those that it imports, so they stand on levels,
//! unless a folder is in a circle. The file of the folder itself declares its children, and is none of them. Circles of files alone
//! are [`crate::circles`]'s.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use petgraph::{
    algo::tarjan_scc,
    graph::{DiGraph, NodeIndex},
};

use crate::imports::{Module, Modules, resolve_folder};

/// The levels of a folder's children, and the circles among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ladder {
    /// From bottom to top. A folder's name ends with a slash.
    levels: Vec<BTreeSet<String>>,
    pub(crate) circles: Vec<Circle>,
}

/// Children of a folder that import each other, a folder among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    children: BTreeSet<String>,
    /// An import from each child to each other.
    imports: Vec<String>,
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, level) in self.levels.iter().enumerate() {
            writeln!(f, "  {:>2}  {}", number + 1, join(level))?;
        }
        Ok(())
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", join(&self.children))?;
        self.imports.iter().try_for_each(|import| write!(f, "\n    {import}"))
    }
}

fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The children of one folder. An edge leads to the child that is imported, and carries one import.
#[derive(Default)]
struct Children<'a> {
    graph: DiGraph<&'a str, String>,
    nodes: BTreeMap<&'a str, NodeIndex>,
}

impl<'a> Children<'a> {
    fn node(&mut self, name: &'a str) -> NodeIndex {
        *self.nodes.entry(name).or_insert_with(|| self.graph.add_node(name))
    }

    fn add_import(&mut self, from: &'a str, to: &'a str, import: impl FnOnce() -> String) {
        let (from, to) = (self.node(from), self.node(to));
        if !self.graph.contains_edge(from, to) {
            self.graph.add_edge(from, to, import());
        }
    }

    /// The levels of the children, with `shown` as their names, and their circles.
    fn ladder(&self, shown: impl Fn(&str) -> String) -> Ladder {
        let name =
            |node: &NodeIndex| self.graph.node_weight(*node).map(|name| shown(name)).unwrap_or_default();
        let mut ladder = Ladder { levels: Vec::new(), circles: Vec::new() };
        let mut level_of: BTreeMap<NodeIndex, usize> = BTreeMap::new();
        // A component comes after those that it imports.
        for component in tarjan_scc(&self.graph) {
            let below = component.iter().flat_map(|node| self.graph.neighbors(*node));
            let level = below.filter_map(|node| level_of.get(&node)).max().map_or(0, |below| below + 1);
            level_of.extend(component.iter().map(|node| (*node, level)));
            let names: BTreeSet<String> = component.iter().map(name).collect();
            if names.len() > 1 && names.iter().any(|name| name.ends_with('/')) {
                ladder.circles.push(Circle { children: names.clone(), imports: self.imports(&component) });
            }
            ladder.levels.resize_with(ladder.levels.len().max(level + 1), BTreeSet::new);
            ladder.levels.get_mut(level).into_iter().for_each(|level| level.extend(names.clone()));
        }
        ladder
    }

    /// The imports among `component`.
    fn imports(&self, component: &[NodeIndex]) -> Vec<String> {
        let pairs = component.iter().flat_map(|from| component.iter().map(move |to| (*from, *to)));
        let mut imports: Vec<String> = pairs
            .filter_map(|(from, to)| self.graph.edge_weight(self.graph.find_edge(from, to)?).cloned())
            .collect();
        imports.sort();
        imports
    }
}

/// The ladder of each folder, by its path within the crate.
pub(crate) fn ladders(modules: &Modules) -> BTreeMap<&[String], Ladder> {
    let mut folders: BTreeMap<&[String], Children<'_>> = BTreeMap::new();
    for module in modules.keys() {
        for (depth, name) in module.iter().enumerate() {
            folders.entry(module.split_at(depth).0).or_default().node(name);
        }
    }
    for (module, file) in modules {
        for path in &file.paths {
            let Some(target) = resolve_folder(modules, module, path) else { continue };
            let shared = shared(module, target);
            let ends = module.get(shared).zip(target.get(shared));
            if let Some((from, to)) = ends {
                let import = || format!("{} imports {}", module.join("::"), path.join("::"));
                folders.entry(module.split_at(shared).0).or_default().add_import(from, to, import);
            }
        }
    }
    let is_folder = |folder: &[String], name: &str| {
        folders
            .keys()
            .any(|other| other.split_last().is_some_and(|(last, parent)| last == name && parent == folder))
    };
    let ladder = |folder: &[String], children: &Children<'_>| {
        children.ladder(|name| format!("{name}{}", if is_folder(folder, name) { "/" } else { "" }))
    };
    folders.iter().map(|(folder, children)| (*folder, ladder(folder, children))).collect()
}

/// How many names the paths of two modules begin with together.
fn shared(one: &Module, other: &Module) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::File;

    /// The levels of a crate's root, and the circles of all folders.
    fn ladder_of(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let module = |name: &str| name.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect();
        let modules: Modules = files.iter().map(|(name, text)| (module(name), File::new(text))).collect();
        let ladders = ladders(&modules);
        let levels =
            ladders.get::<[String]>(&[]).into_iter().flat_map(|root| &root.levels).map(join).collect();
        (levels, ladders.values().flat_map(|ladder| &ladder.circles).map(|c| join(&c.children)).collect())
    }

    #[test]
    fn what_is_imported_is_a_level_below() {
        let (levels, circles) = ladder_of(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "pub mod x; pub use x::A;"),
            ("a::x", "pub struct A;"),
            ("b", "use crate::a::A; pub struct B;"),
            ("c", "use crate::{a::x, b::B};"),
            ("d", "pub struct D;"),
        ]);
        assert_eq!(levels, ["a/, d", "b", "c"]);
        assert!(circles.is_empty());
    }

    #[test]
    fn folders_whose_files_import_each_other_are_a_circle_although_no_module_is_in_one() {
        let (_, circles) = ladder_of(&[
            ("", "mod a; mod b;"),
            ("a::x", "use crate::b::y::Y;"),
            ("a::z", "pub struct Z;"),
            ("a", "mod x; pub mod z;"),
            ("b", "pub mod y; mod w;"),
            ("b::w", "use crate::a::z::Z;"),
            ("b::y", "pub struct Y;"),
        ]);
        assert_eq!(circles, ["a/, b/"]);
    }

    #[test]
    fn a_folder_and_a_file_beside_it_are_a_circle_at_any_depth() {
        let (_, circles) = ladder_of(&[
            ("m", "mod a; mod b;"),
            ("m::a", "pub mod x;"),
            ("m::a::x", "use crate::m::b::B; pub struct X;"),
            ("m::b", "use super::a::x::X; pub struct B;"),
        ]);
        assert_eq!(circles, ["a/, b"]);
    }

    #[test]
    fn a_parent_that_declares_its_children_and_passes_names_on_is_no_part_of_a_circle() {
        let (levels, circles) = ladder_of(&[
            ("", "mod m; pub use m::A;"),
            ("m", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("m::a", "use super::B; pub struct A;"),
            ("m::b", "pub struct B;"),
        ]);
        assert_eq!((levels, circles), (vec!["m/".to_owned()], Vec::new()));
    }

    #[test]
    fn files_that_import_each_other_are_left_to_the_circles_of_modules() {
        let (_, circles) =
            ladder_of(&[("a", "use crate::b::B; pub struct A;"), ("b", "use crate::a::A; pub struct B;")]);
        assert!(circles.is_empty());
    }
}
