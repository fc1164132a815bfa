//! The CRDs, one file each, and the kustomization that lists them.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context as _;

use crate::generated::File;

const FOLDER: &str = "manifests/crds";
const HEADER: &str = "# Generated from crates/api by `make generate`; edit there.\n";

pub(crate) fn files() -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut kustomization =
        format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for crd in croft_api::crds() {
        let name = crd.metadata.name.as_deref().context("a CRD without a name")?;
        let file = format!("{name}.yaml");
        // Through a Value, so that absent fields are left out and keys are sorted.
        let value = serde_json::to_value(&crd)?;
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("failed to write {name} as YAML"))?;
        writeln!(kustomization, "- {file}")?;
        files.push(File { path: PathBuf::from(FOLDER).join(file), contents: format!("{HEADER}{yaml}") });
    }
    files.push(File { path: PathBuf::from(FOLDER).join("kustomization.yaml"), contents: kustomization });
    Ok(files)
}
