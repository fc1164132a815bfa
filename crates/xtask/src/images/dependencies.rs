//! The crates that are linked into a program, from Cargo's metadata.
//!
//! Features are those of the whole workspace, as the programs are built. A procedural macro runs in the compiler, so neither
//! it nor what only it needs is linked.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// Cargo's metadata of the workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Described>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Described {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `null` for what is linked, else `build` or `dev`.
    kind: Option<String>,
}

/// What is linked into one program.
#[derive(Debug)]
pub(crate) struct Dependencies {
    /// The program's own package and all that it links, by name and version.
    pub(crate) packages: Vec<Package>,
    /// The index of the program's own package.
    pub(crate) root: usize,
}

/// A crate that is linked.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// As its manifest has it.
    pub(crate) license: Option<String>,
    /// Cargo's URL of its source; none for a crate of this workspace.
    pub(crate) source: Option<String>,
    /// Indices of the packages that it links, ascending.
    pub(crate) dependencies: Vec<usize>,
}

impl Metadata {
    /// Asks cargo about the workspace at `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new("cargo")
            .current_dir(root)
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target])
            .output()
            .context("failed to run cargo")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("cargo's metadata can't be read")
    }

    /// What is linked into the program of the workspace's package `program`.
    ///
    /// # Errors
    /// If the workspace has no such package.
    pub(crate) fn dependencies(&self, program: &str) -> anyhow::Result<Dependencies> {
        let described: BTreeMap<&str, &Described> =
            self.packages.iter().map(|p| (p.id.as_str(), p)).collect();
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
        let first = self
            .packages
            .iter()
            .find(|package| package.name == program && package.source.is_none())
            .with_context(|| format!("no package of the workspace is called {program}"))?;
        let is_linked = |dependency: &&Dependency| {
            let is_macro = described.get(dependency.pkg.as_str()).is_some_and(|p| {
                p.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
            });
            !is_macro && dependency.dep_kinds.iter().any(|kind| kind.kind.is_none())
        };
        let linked = |id: &str| -> Vec<&str> {
            let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
            dependencies.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str()).collect()
        };
        let (mut found, mut open) = (BTreeSet::new(), vec![first.id.as_str()]);
        while let Some(id) = open.pop() {
            if found.insert(id) {
                open.extend(linked(id));
            }
        }
        let mut packages: Vec<&Described> =
            found.iter().filter_map(|id| described.get(id).copied()).collect();
        packages.sort_by(|a, b| (&a.name, &a.version, &a.id).cmp(&(&b.name, &b.version, &b.id)));
        let index: BTreeMap<&str, usize> =
            packages.iter().enumerate().map(|(i, p)| (p.id.as_str(), i)).collect();
        let package = |described: &&Described| {
            let on: BTreeSet<usize> =
                linked(&described.id).into_iter().filter_map(|id| index.get(id).copied()).collect();
            Package {
                name: described.name.clone(),
                version: described.version.clone(),
                license: described.license.clone(),
                source: described.source.clone(),
                dependencies: on.into_iter().collect(),
            }
        };
        Ok(Dependencies {
            root: index.get(first.id.as_str()).copied().unwrap_or_default(),
            packages: packages.iter().map(package).collect(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program that links `a` and `b`, with a macro, a build dependency and a dev dependency.
    pub(crate) fn webhook() -> Dependencies {
        let metadata = r#"{"packages": [
            {"id": "w", "name": "croft-webhook", "version": "1.0.0", "license": "Apache-2.0", "source": null, "targets": []},
            {"id": "a", "name": "a", "version": "2.0.0", "license": "MIT/Apache-2.0", "source": "registry+https://index.example.com", "targets": []},
            {"id": "b", "name": "b", "version": "3.0.0", "license": null, "source": "git+https://example.com", "targets": [{"kind": ["lib"]}]},
            {"id": "m", "name": "m", "version": "5.0.0", "license": null, "source": "registry+https://index.example.com", "targets": [{"kind": ["proc-macro"]}]},
            {"id": "s", "name": "s", "version": "6.0.0", "license": null, "source": "registry+https://index.example.com", "targets": []},
            {"id": "t", "name": "t", "version": "4.0.0", "license": null, "source": "registry+https://index.example.com", "targets": []}],
          "resolve": {"nodes": [
            {"id": "w", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}, {"pkg": "t", "dep_kinds": [{"kind": "build"}, {"kind": "dev"}]}]},
            {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": null}]}, {"pkg": "m", "dep_kinds": [{"kind": null}]}]},
            {"id": "m", "deps": [{"pkg": "s", "dep_kinds": [{"kind": null}]}]},
            {"id": "b", "deps": []}, {"id": "s", "deps": []}, {"id": "t", "deps": []}]}}"#;
        serde_json::from_str::<Metadata>(metadata).unwrap().dependencies("croft-webhook").unwrap()
    }

    #[test]
    fn macros_and_build_tools_are_not_linked() {
        let found = webhook();
        let names: Vec<_> = found.packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "croft-webhook"]);
        assert_eq!(found.root, 2);
        assert_eq!(found.packages[2].dependencies, [0]);
        assert_eq!(found.packages[0].dependencies, [1]);
    }
}
