//! What is declared: tenants, pools, settings, namespaces and nodes, as plain data.

use std::collections::BTreeMap;

use crate::{
    selector::Selector,
    taint::{Effects, Taint},
};

/// The label that every pool node carries with its pool's name, whatever the pool's own key is. NodeRestriction
/// keeps kubelets from writing it.
pub const MARK_KEY: &str = "node-restriction.kubernetes.io/pool";
/// On a pod or a namespace: the name of the pool to use.
pub const POOL_ANNOTATION: &str = "croft.dev/pool";
/// On a DaemonSet's pod template: what Croft put there.
pub const INJECTED_ANNOTATION: &str = "croft.dev/injected";
/// On a namespace: the pools that its tenant may use, for the policies in the API server.
pub const POOLS_ANNOTATION: &str = "policy.croft.dev/pools";
/// On a namespace of nobody: the pools that are shared with it, for the policies in the API server.
pub const SHARED_ANNOTATION: &str = "policy.croft.dev/shared";
/// On a namespace: who it belongs to, as far as the API server must know.
pub const TENANCY_LABEL: &str = "croft.dev/tenancy";
/// The value of [`TENANCY_LABEL`] on a namespace that is known to be nobody's.
pub const TENANCY_NONE: &str = "none";
/// On a pod that mirrors a kubelet's static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// The label of every namespace that holds its name; the API server keeps it.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The user that keeps the guarded labels and annotations.
pub const CONTROLLER_USER: &str = "system:serviceaccount:croft-system:croft-controller";

/// Who owns which namespaces, and which pools it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// When it was made, in seconds since 1970. `None` (a file's) counts as younger than every other.
    pub created: Option<i64>,
    /// Namespaces by name.
    pub namespaces: Vec<String>,
    /// Namespaces by label, in addition.
    pub selector: Option<Selector>,
    /// Names of the pools, the default first.
    pub pools: Vec<String>,
    /// What happens to a pod that asks for another pool.
    pub on_conflict: OnConflict,
}

/// What happens to a pod that asks for a pool which its tenant may not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused.
    #[default]
    Reject,
    /// It is moved to an allowed pool.
    Override,
}

/// A set of nodes with one label and taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// When it was made, in seconds since 1970.
    pub created: Option<i64>,
    /// Key of the label and the taint.
    pub key: String,
    /// Value of the label and the taint.
    pub value: String,
    /// Effects of the taint. Empty is read as NoSchedule: a pool without a taint would be open to all.
    pub effects: Effects,
    /// Namespaces of nobody whose pods may run there too.
    pub shared_with: Vec<String>,
    /// Who makes the nodes.
    pub provisioner: Provisioner,
}

/// Who makes a pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioner {
    /// Croft.
    #[default]
    Croft,
    /// Karpenter.
    Karpenter,
    /// Somebody else.
    None,
}

/// The cluster-wide settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What happens to a pod of nobody that would be let onto a pool's nodes.
    pub unassigned: Unassigned,
    /// Namespaces that are left alone, whoever claims them.
    pub exempt: Vec<String>,
    /// Exact user names whose bindings are not judged.
    pub schedulers: Vec<String>,
    /// Namespaces of nobody whose pods may run on every pool's nodes.
    pub shared_with: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            unassigned: Unassigned::KeepOut,
            exempt: ["kube-system", "kube-public", "kube-node-lease", "croft-system"]
                .map(str::to_owned)
                .to_vec(),
            schedulers: vec!["system:kube-scheduler".to_owned()],
            shared_with: Vec::new(),
        }
    }
}

/// What happens to a pod of nobody that would be let onto a pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unassigned {
    /// A required node affinity keeps it off them.
    #[default]
    KeepOut,
    /// It is refused.
    Reject,
    /// Nothing: pods of nobody are not judged at all.
    Allow,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations; [`POOL_ANNOTATION`] is the one that counts.
    pub annotations: BTreeMap<String, String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
}
