//! CroftConfig: the cluster-wide settings.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the only CroftConfig that counts.
pub const SINGLETON: &str = "default";

/// Cluster-wide settings of Croft. The only one is named `default`; absent means its defaults.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "CroftConfig",
    doc = "Cluster-wide settings of Croft. The only one is named `default`; absent means its defaults.",
    plural = "croftconfigs",
    category = "croft",
    derive = "PartialEq",
    validation = ("self.metadata.name == 'default'", "there is one CroftConfig, and its name is default"),
    printcolumn(name = "Unassigned", json_path = ".spec.unassigned", type_ = "string"),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CroftConfigSpec {
    /// What happens to a pod in a namespace of nobody that would be let onto a pool's nodes.
    #[serde(default)]
    pub unassigned: Unassigned,
    /// Namespaces that Croft leaves alone, whoever claims them.
    #[serde(default = "default_exempt")]
    pub exempt_namespaces: Vec<String>,
    /// Exact user names of the schedulers, whose bindings are not judged.
    #[serde(default = "default_schedulers")]
    pub schedulers: Vec<String>,
    /// Namespaces whose pods may run on every pool's nodes: those of cluster-wide node agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<String>,
    /// What happens to running pods that are outside their tenant's pools.
    #[serde(default)]
    pub misplaced: Misplaced,
}

impl Default for CroftConfigSpec {
    fn default() -> Self {
        Self {
            unassigned: Unassigned::default(),
            exempt_namespaces: default_exempt(),
            schedulers: default_schedulers(),
            shared_with: Vec::new(),
            misplaced: Misplaced::default(),
        }
    }
}

fn default_exempt() -> Vec<String> {
    ["kube-system", "kube-public", "kube-node-lease", "croft-system"].map(str::to_owned).to_vec()
}

fn default_schedulers() -> Vec<String> {
    vec!["system:kube-scheduler".to_owned()]
}

/// What happens to a pod in a namespace of nobody that would be let onto a pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unassigned {
    /// A required node affinity keeps it off them.
    #[default]
    KeepOut,
    /// It is refused.
    Reject,
    /// Nothing.
    Allow,
}

/// What happens to running pods that are outside their tenant's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Misplaced {
    /// They are reported.
    #[default]
    Report,
    /// They are evicted, so that their controllers make them again.
    Recreate,
}
