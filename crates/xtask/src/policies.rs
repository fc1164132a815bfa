//! The admission policies as they are installed. They never change: what they read stands on Croft's own Namespace.

use std::path::PathBuf;

use anyhow::Context as _;
use croft_policy::policies;

use crate::generated::File;

const FILE: &str = "manifests/install/policies.yaml";
/// The namespace of the manifests; an overlay for another replaces it in the bindings.
const NAMESPACE: &str = "croft-system";
const HEADER: &str = "# Generated from crates/policy/src/policies by `make generate`; edit there. No process writes these objects: the policies\n\
                      # read pools' keys, exempt namespaces and tenants' claims from annotations of Croft's own Namespace, which the\n\
                      # bindings name. For another namespace than croft-system see ../deploy/README.md.\n";

pub(crate) fn files() -> anyhow::Result<Vec<File>> {
    let documents = policies::documents(NAMESPACE)
        .iter()
        .map(|document| serde_saphyr::to_string(document).context("failed to write the policies as YAML"))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(vec![File { path: PathBuf::from(FILE), contents: format!("{HEADER}{}", documents.join("---\n")) }])
}
