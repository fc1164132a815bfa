//! The admission policies as they are installed: without pools yet. The controller keeps them in step from then on.

use std::path::PathBuf;

use anyhow::Context as _;
use croft_policy::{Config, index::Rules, policies};

use crate::generated::File;

const FILE: &str = "manifests/install/policies.yaml";
const HEADER: &str = "# Generated from crates/policy/src/policies by `make generate`; edit there. The controller writes the\n\
                      # keys of the pools and the exempt namespaces into these as they change.\n";

pub(crate) fn files() -> anyhow::Result<Vec<File>> {
    let rules = Rules::new(&Config::default(), std::iter::empty(), std::iter::empty());
    let documents = policies::documents(&rules)
        .iter()
        .map(|document| serde_saphyr::to_string(document).context("failed to write the policies as YAML"))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(vec![File { path: PathBuf::from(FILE), contents: format!("{HEADER}{}", documents.join("---\n")) }])
}
