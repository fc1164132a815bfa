//! The corpus of captured AdmissionReviews, and the objects that they are evaluated with.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use croft_api::convert::policy as convert;
use croft_manifest::{LoadOptions, load};
use croft_policy::{Tenants, model::DEFAULT_NAMESPACE};

/// The folder of the corpus.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The captured reviews: name and bytes, sorted.
///
/// # Errors
/// If they can't be read, or there are none.
pub fn reviews() -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder().join("reviews"))? {
        let path = entry?.path();
        let body = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        all.push((path, body));
    }
    all.sort();
    anyhow::ensure!(!all.is_empty(), "there are no captured reviews");
    Ok(all)
}

/// The tenants, pools, namespaces, nodes and settings in `file`.
///
/// # Errors
/// If it can't be read.
pub fn tenants(file: &Path) -> anyhow::Result<Tenants> {
    let input = load(&[file.to_owned()], &LoadOptions::default())?;
    let tenants = input.tenants.iter().map(|tenant| convert::tenant(&tenant.object));
    let settings = input.configs.first().map(|config| config.spec.clone()).unwrap_or_default();
    Ok(Tenants::offline(
        convert::config(&settings, DEFAULT_NAMESPACE),
        tenants.collect::<Result<_, _>>()?,
        input.pools.iter().map(|pool| convert::pool(&pool.object)).collect(),
        input.namespaces.iter().map(|namespace| convert::namespace(&namespace.metadata)).collect(),
        input.nodes.iter().map(|node| convert::node(&node.object)).collect(),
    ))
}

/// A request to an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Its title.
    pub name: String,
    /// Arguments of kubectl; without any, the manifest is applied.
    pub arguments: Option<Vec<String>>,
    /// Standard input of kubectl.
    pub manifest: String,
}

/// Parses scenes: each begins with a line `### name`, or `### name: kubectl arguments`, followed by the input of
/// kubectl.
#[must_use]
pub fn scenes(text: &str) -> Vec<Scene> {
    let mut all: Vec<Scene> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            let (name, arguments) = match title.split_once(": ") {
                Some((name, arguments)) => {
                    (name, Some(arguments.split_whitespace().map(str::to_owned).collect()))
                }
                None => (title, None),
            };
            all.push(Scene { name: name.to_owned(), arguments, manifest: String::new() });
        } else if let Some(scene) = all.last_mut() {
            scene.manifest.push_str(line);
            scene.manifest.push('\n');
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scene_has_a_title_and_a_manifest() {
        let read = scenes("# a comment\n### one\nkind: A\n---\nkind: B\n### two: delete pod x\n");
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].manifest, "kind: A\n---\nkind: B\n");
        assert_eq!(read[1].arguments.as_deref().unwrap(), ["delete", "pod", "x"]);
    }
}
