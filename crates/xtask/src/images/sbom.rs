//! The bill of materials of an image, as CycloneDX 1.6: every crate that is linked into its program, and the packages that
//! its libraries come from.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::images::{
    dependencies::{Dependencies, Package},
    layout::canonical,
    libraries::{self, Library},
    program::Program,
    source::Source,
};

/// Writes the bill of materials of `program`, which links `dependencies`, to `file`.
pub(crate) fn write(
    program: &Program,
    dependencies: &Dependencies,
    source: &Source,
    file: &Path,
) -> anyhow::Result<()> {
    let bill = bill(dependencies, &libraries::describe(&program.libraries)?, &source.created()?)?;
    fs::write(file, canonical(&bill)?).with_context(|| format!("failed to write {}", file.display()))
}

fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

fn bill(dependencies: &Dependencies, libraries: &[Library], created: &str) -> anyhow::Result<Value> {
    let Dependencies { packages, root } = dependencies;
    let first = packages.get(*root).context("a program has a package of its own")?;
    let (mut components, mut edges) = (BTreeMap::new(), BTreeMap::new());
    for (index, package) in packages.iter().enumerate() {
        let reference_of = |index: &usize| packages.get(*index).map(reference);
        let mut on: Vec<String> = package.dependencies.iter().filter_map(reference_of).collect();
        if index == *root {
            on.extend(libraries.iter().map(library_reference));
            on.sort();
            on.dedup();
        } else {
            components.insert(reference(package), component(package));
        }
        edges.insert(reference(package), json!({"ref": reference(package), "dependsOn": on}));
    }
    for library in libraries {
        let of_library = components.entry(library_reference(library)).or_insert_with(|| describe(library));
        // A package installs several libraries.
        if let Some(files) = of_library.pointer_mut("/properties").and_then(Value::as_array_mut) {
            files.push(json!({"name": "croft.dev:file", "value": library.path}));
        }
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "application",
                "bom-ref": reference(first),
                "name": first.name,
                "version": first.version,
                "purl": reference(first),
            },
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": edges.into_values().collect::<Vec<_>>(),
    }))
}

fn component(package: &Package) -> Value {
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
    component
}

fn library_reference(library: &Library) -> String {
    match &library.package {
        Some(package) => package.url(),
        None => format!("file:{}", library.path.display()),
    }
}

fn describe(library: &Library) -> Value {
    let reference = library_reference(library);
    match &library.package {
        Some(package) => json!({
            "type": "library",
            "bom-ref": reference,
            "purl": reference,
            "name": package.name,
            "version": package.version,
            "properties": [],
        }),
        None => json!({
            "type": "file",
            "bom-ref": reference,
            "name": library.path,
            "hashes": [{"alg": "SHA-256", "content": library.sha256}],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{dependencies::tests::webhook, libraries::DebianPackage};

    #[test]
    fn bill_has_linked_crates_and_the_packages_of_libraries() {
        let package = DebianPackage {
            name: "libc6".to_owned(),
            version: "2.36".to_owned(),
            architecture: "amd64".to_owned(),
            distribution: ("debian".to_owned(), "12".to_owned()),
        };
        let library = |path: &str, package: Option<DebianPackage>| Library {
            path: path.into(),
            sha256: "00".to_owned(),
            package,
        };
        let libraries = [
            library("/lib/libc.so.6", Some(package.clone())),
            library("/lib64/ld.so", Some(package)),
            library("/opt/x.so", None),
        ];
        let bill = bill(&webhook(), &libraries, "2026-01-01T00:00:00Z").unwrap();
        let components = bill.get("components").unwrap().as_array().unwrap();
        let named: Vec<_> = components.iter().map(|c| c.get("bom-ref").unwrap().as_str().unwrap()).collect();
        let libc = "pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12";
        assert_eq!(named, ["file:/opt/x.so", "pkg:cargo/a@2.0.0", "pkg:cargo/b@3.0.0", libc]);
        assert_eq!(bill.pointer("/components/1/licenses/0/expression").unwrap(), "MIT OR Apache-2.0");
        assert_eq!(bill.pointer("/components/3/properties").unwrap().as_array().unwrap().len(), 2);
        assert_eq!(
            *bill.pointer("/dependencies/2/dependsOn").unwrap(),
            json!(["file:/opt/x.so", "pkg:cargo/a@2.0.0", libc])
        );
    }
}
