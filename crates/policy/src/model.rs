//! What is declared: tenants, pools, settings, namespaces and nodes, as plain data.

use std::{collections::BTreeMap, time::Duration};

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
/// Annotations of Croft's own Namespace that say which account, region and cluster the installation runs for.
pub const IDENTITY_PREFIX: &str = "identity.croft.dev/";
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
/// The name of the only CroftConfig that counts.
pub const SINGLETON: &str = "default";
/// Namespaces that are exempt whatever is declared: the cluster starts with their pods.
pub const BUILT_IN_EXEMPT: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
/// The namespace into which the manifests, as shipped, install Croft. Only the default of arguments: processes are told
/// where they run.
pub const DEFAULT_NAMESPACE: &str = "croft-system";
/// The Lease of the controller that leads.
pub const CONTROLLER_LEASE: &str = "croft-controller";
/// The Lease of the webhook replica that keeps the certificate and the webhook configurations.
pub const CERTIFICATE_LEASE: &str = "croft-webhook-certificate";
/// On a node whose kubelet has registered and that the controller hasn't labelled yet.
pub const UNREGISTERED_TAINT: &str = "croft.dev/unregistered";
/// Label of a node that carries [`UNREGISTERED_TAINT`]. It registers with both, since it may not register with its pool's
/// label: a pod that tolerates every taint is kept off it by this one.
pub const UNREGISTERED_LABEL: &str = UNREGISTERED_TAINT;
/// On a node: the name of its NodeClaim.
pub const CLAIM_ANNOTATION: &str = "croft.dev/claim";

/// How long the last CroftConfig holds once it is gone: one that is deleted and created again (`kubectl replace --force`, a
/// restore, a CRD that is installed anew) must not end exemptions in between.
pub const CONFIG_ABSENCE: Duration = Duration::from_secs(60);

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
    /// Some of its claims can't be read, and no earlier version of them is known. A namespace without another owner that
    /// carries [`POOLS_ANNOTATION`] may be this tenant's, and stays as it is until they can be.
    pub unread: bool,
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
    /// The namespace that Croft is installed in. Always exempt.
    pub namespace: String,
    /// Namespaces that are exempt in addition to [`BUILT_IN_EXEMPT`] and Croft's own, whichever tenant claims them.
    pub exempt: Vec<String>,
    /// Exact user names whose bindings are not judged.
    pub schedulers: Vec<String>,
    /// Namespaces of nobody whose pods may run on every pool's nodes.
    pub shared_with: Vec<String>,
}

impl Config {
    /// The default settings of a Croft that is installed in `namespace`.
    #[must_use]
    pub fn installed_in(namespace: &str) -> Self {
        Self {
            unassigned: Unassigned::KeepOut,
            namespace: namespace.to_owned(),
            exempt: Vec::new(),
            schedulers: vec!["system:kube-scheduler".to_owned()],
            shared_with: Vec::new(),
        }
    }
}

impl Default for Config {
    /// The default settings of a Croft that is installed as the manifests ship it.
    fn default() -> Self {
        Self::installed_in(DEFAULT_NAMESPACE)
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
    /// Its annotations; [`POOL_ANNOTATION`] and [`POOLS_ANNOTATION`] count.
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
