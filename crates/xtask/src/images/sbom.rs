//! The bill of materials of a program, as CycloneDX 1.6: every crate that is linked into it, from Cargo's metadata.
//!
//! Features are those of the whole workspace, as the programs are built. cargo-auditable would put the same list into the
//! program, but wraps the compiler, so that every crate would be built once more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::images::{layout::canonical, program::Program, source::Source};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
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

/// Writes the bill of materials of `program` to `file`.
pub(crate) fn write(root: &Path, program: &Program, source: &Source, file: &Path) -> anyhow::Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target])
        .output()
        .context("failed to run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata = serde_json::from_slice(&output.stdout).context("cargo's metadata can't be read")?;
    let bill = bill(&metadata, program, source)?;
    fs::write(file, canonical(&bill)?).with_context(|| format!("failed to write {}", file.display()))
}

fn bill(metadata: &Metadata, program: &Program, source: &Source) -> anyhow::Result<Value> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let first = metadata
        .packages
        .iter()
        .find(|package| package.name == program.name && package.source.is_none())
        .with_context(|| format!("no package of the workspace is called {}", program.name))?;
    let linked = |id: &str| -> Vec<&str> {
        let dependencies = nodes.get(id).map(|node| node.deps.as_slice()).unwrap_or_default();
        let linked = dependencies.iter().filter(|d| d.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        linked.map(|dependency| dependency.pkg.as_str()).collect()
    };
    let (mut found, mut open) = (BTreeSet::new(), vec![first.id.as_str()]);
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(linked(id));
        }
    }
    let reference = |package: &Package| format!("pkg:cargo/{}@{}", package.name, package.version);
    let (mut components, mut dependencies) = (BTreeMap::new(), BTreeMap::new());
    for package in found.iter().filter_map(|id| packages.get(id)) {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(package),
            "purl": reference(package),
            "name": package.name,
            "version": package.version,
        });
        if let (Some(license), Some(fields)) = (&package.license, component.as_object_mut()) {
            // Old manifests separate alternatives by a slash.
            fields.insert("licenses".to_owned(), json!([{"expression": license.replace('/', " OR ")}]));
        }
        if package.id != first.id {
            components.insert(reference(package), component);
        }
        let on: BTreeSet<String> =
            linked(&package.id).into_iter().filter_map(|id| packages.get(id)).map(|p| reference(p)).collect();
        dependencies.insert(reference(package), json!({"ref": reference(package), "dependsOn": on}));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": source.created()?,
            "component": {
                "type": "application",
                "bom-ref": reference(first),
                "name": first.name,
                "version": first.version,
                "purl": reference(first),
            },
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bill_has_linked_crates_and_no_tools() {
        let metadata = r#"{"packages": [
            {"id": "w", "name": "croft-webhook", "version": "1.0.0", "license": "Apache-2.0", "source": null},
            {"id": "a", "name": "a", "version": "2.0.0", "license": "MIT/Apache-2.0", "source": "registry"},
            {"id": "b", "name": "b", "version": "3.0.0", "license": null, "source": "registry"},
            {"id": "t", "name": "t", "version": "4.0.0", "license": null, "source": "registry"}],
          "resolve": {"nodes": [
            {"id": "w", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}, {"pkg": "t", "dep_kinds": [{"kind": "build"}, {"kind": "dev"}]}]},
            {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": null}]}]},
            {"id": "b", "deps": []}, {"id": "t", "deps": []}]}}"#;
        let program =
            Program { name: "croft-webhook".to_owned(), contents: Vec::new(), libraries: Vec::new() };
        let source = Source { version: "1.0.0".to_owned(), commit: None, epoch: 0 };
        let bill = bill(&serde_json::from_str(metadata).unwrap(), &program, &source).unwrap();
        let components = bill.get("components").unwrap().as_array().unwrap();
        let named: Vec<_> = components.iter().map(|c| c.get("purl").unwrap().as_str().unwrap()).collect();
        assert_eq!(named, ["pkg:cargo/a@2.0.0", "pkg:cargo/b@3.0.0"]);
        assert_eq!(bill.pointer("/components/0/licenses/0/expression").unwrap(), "MIT OR Apache-2.0");
        assert_eq!(bill.pointer("/dependencies/2/dependsOn/0").unwrap(), "pkg:cargo/a@2.0.0");
    }
}
