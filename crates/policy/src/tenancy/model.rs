//! Tenants, pools, settings, namespaces and nodes as plain data: the input of the index.
//!
//! Conversions from Kubernetes objects are in `croft_api::convert` and in the webhook's views.

use std::{collections::BTreeMap, time::Duration};

use crate::tenancy::{
    node_template::NodeTemplate,
    selector::Selector,
    taint::{Effects, Taint},
};

/// The value of [`TENANCY_LABEL`](crate::definitions::TENANCY_LABEL) on a non-tenant namespace.
pub const TENANCY_NONE: &str = "none";
/// The name of the only CroftConfig that counts.
pub const SINGLETON: &str = "default";
/// Namespaces that are exempt in every cluster: their pods are needed to start it.
pub const BUILT_IN_EXEMPT: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
/// The namespace into which the manifests install Croft by default. Only the default of arguments: a process is told
/// its namespace.
pub const DEFAULT_NAMESPACE: &str = "croft-system";
/// The Lease of the leading controller.
pub const CONTROLLER_LEASE: &str = "croft-controller";
/// The Lease of the webhook replica that reconciles the certificate and the webhook configurations.
pub const CERTIFICATE_LEASE: &str = "croft-webhook-certificate";

/// Labels and annotations of Flux, Argo CD and Helm on the namespaces that they create: the default of what owners may give.
///
/// `app.kubernetes.io/instance`, by which Argo CD tracked objects before 3.0, isn't here, nor is
/// `argocd.argoproj.io/managed-by`: NetworkPolicies select namespaces by the one, and the other gives rights to an Argo CD.
pub const OWNER_METADATA: [&str; 10] = [
    "app.kubernetes.io/managed-by",
    "argocd.argoproj.io/compare-options",
    "argocd.argoproj.io/hook",
    "argocd.argoproj.io/instance",
    "argocd.argoproj.io/sync-",
    "argocd.argoproj.io/tracking-id",
    "helm.sh/",
    "helm.toolkit.fluxcd.io/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
];

/// How long the last CroftConfig stays in force once it is gone. A CroftConfig that is deleted and created again
/// (`kubectl replace --force`, a restore, a new CRD) must not end exemptions in between.
pub const CONFIG_ABSENCE: Duration = Duration::from_secs(60);

/// A tenant: the namespaces that it claims and the pools that its pods may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its creation, in seconds since 1970. `None`, as in files, counts as younger than every other.
    pub created: Option<i64>,
    /// Namespaces by name.
    pub namespaces: Vec<String>,
    /// Namespaces by label, in addition to `namespaces`.
    pub selector: Option<Selector>,
    /// Namespaces by prefix, which the tenant's owners may create.
    pub creation: Option<NamespaceCreation>,
    /// Its owners, with the roles that they have in its namespaces.
    pub owners: Vec<Owner>,
    /// Other namespaces that its closed network names: their pods reach the tenant's, or the tenant's reach them.
    pub peers: Vec<String>,
    /// Names of the pools, the default first.
    pub pools: Vec<String>,
    /// Action on a pod that asks for another pool.
    pub on_conflict: OnConflict,
    /// True if some of its claims can't be read and no earlier version of them is known. A namespace without another
    /// owner that carries [`POOLS_ANNOTATION`](crate::definitions::POOLS_ANNOTATION) may be this tenant's, and is kept
    /// as it is.
    pub unreadable_claims: bool,
    /// True if the controller writes objects into its namespaces before their first pod. Pods of a namespace wait until it
    /// carries [`POOLS_ANNOTATION`](crate::definitions::POOLS_ANNOTATION). Set for the webhook alone, by
    /// [`stored`](crate::stored).
    pub needs_objects: bool,
}

/// The namespaces that a tenant's owners may create: the tenant claims every name that begins with the prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCreation {
    /// The beginning of their names.
    pub prefix: String,
    /// The number of namespaces that may get pools and roles.
    pub maximum: u32,
}

/// An owner of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user or group.
    pub subject: Subject,
    /// ClusterRoles that it has in each of the tenant's namespaces.
    pub roles: Vec<String>,
}

/// A user or a group, in the one spelling by which an API server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By user name; that of a ServiceAccount is `system:serviceaccount:namespace:name`.
    User(String),
    /// By group.
    Group(String),
}

impl Subject {
    /// The subject of a binding: `kind` is `User`, `Group` or `ServiceAccount`, and `namespace` that of a ServiceAccount.
    ///
    /// ```
    /// use croft_policy::Subject;
    ///
    /// let robot = Subject::User("system:serviceaccount:build:ci".to_owned());
    /// assert_eq!(Subject::new("ServiceAccount", "ci", "build"), Some(robot));
    /// assert_eq!(Subject::new("Robot", "ci", ""), None);
    /// ```
    #[must_use]
    pub fn new(kind: &str, name: &str, namespace: &str) -> Option<Self> {
        match kind {
            "User" => Some(Self::User(name.to_owned())),
            "Group" => Some(Self::Group(name.to_owned())),
            "ServiceAccount" => Some(Self::User(format!("{ACCOUNT_PREFIX}{namespace}:{name}"))),
            _ => None,
        }
    }

    /// The namespace whose creators of ServiceAccounts are this subject.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::User(name) => Some(name.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?.0),
            Self::Group(name) => name.strip_prefix(ACCOUNTS_PREFIX),
        }
    }
}

/// The beginning of the user names of ServiceAccounts.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The beginning of the groups of all ServiceAccounts of a namespace.
const ACCOUNTS_PREFIX: &str = "system:serviceaccounts:";

/// Action on a pod that asks for a pool which its tenant may not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The pod is refused.
    #[default]
    Reject,
    /// The pod is moved to an allowed pool.
    Override,
}

/// A set of nodes with one label and taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its creation, in seconds since 1970.
    pub created: Option<i64>,
    /// Key of the label and the taint.
    pub key: String,
    /// Value of the label and the taint.
    pub value: String,
    /// Effects of the taint. Empty counts as NoSchedule: a pool without a taint would be open to all pods.
    pub effects: Effects,
    /// Non-tenant namespaces whose pods may run there as well.
    pub shared_with: Vec<String>,
    /// The process that launches its nodes.
    pub provisioner: Provisioner,
    /// The nodes that it can have, as far as they are known.
    pub template: NodeTemplate,
    /// The tenants that it is for.
    pub tenants: PoolTenants,
}

/// The tenants that a pool is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PoolTenants {
    /// The tenants that name it, together.
    #[default]
    AllThatNameIt,
    /// The tenants that name it, each by a pool that is made from it. It has neither a label nor nodes.
    Each,
    /// One tenant: it was made for it from the pool that the tenant names.
    One {
        /// The pool that it was made from.
        made_from: String,
        /// The tenant's name.
        tenant: String,
    },
}

/// The process that launches the nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioner {
    /// Croft's controller.
    #[default]
    Croft,
    /// Karpenter.
    Karpenter,
    /// Any other process.
    None,
}

impl Provisioner {
    /// Its name in a TenantPool.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Croft => "Croft",
            Self::Karpenter => "Karpenter",
            Self::None => "None",
        }
    }
}

/// The cluster-wide settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Action on a non-tenant pod whose tolerations let it onto the nodes of a pool.
    pub non_tenant_pods: NonTenantPods,
    /// The part of Croft that changes pods and DaemonSets.
    pub mutation: Mutation,
    /// The namespace that Croft is installed in. Always exempt.
    pub namespace: String,
    /// Namespaces that are exempt in addition to [`BUILT_IN_EXEMPT`] and Croft's own, even if a tenant claims them.
    pub exempt: Vec<String>,
    /// Exact user names of schedulers, whose bindings are always allowed.
    pub schedulers: Vec<String>,
    /// Non-tenant namespaces whose pods may run on the nodes of every pool.
    pub shared_with: Vec<String>,
    /// Beginnings of labels and annotations that owners may give to the namespaces that they create.
    pub owner_metadata: Vec<String>,
}

impl Config {
    /// The default settings of a Croft that is installed in `namespace`.
    #[must_use]
    pub fn installed_in(namespace: &str) -> Self {
        Self {
            non_tenant_pods: NonTenantPods::KeepOut,
            mutation: Mutation::Webhook,
            namespace: namespace.to_owned(),
            exempt: Vec::new(),
            schedulers: vec!["system:kube-scheduler".to_owned()],
            shared_with: Vec::new(),
            owner_metadata: OWNER_METADATA.map(str::to_owned).to_vec(),
        }
    }
}

impl Default for Config {
    /// The default settings of a Croft that is installed as the manifests ship it.
    fn default() -> Self {
        Self::installed_in(DEFAULT_NAMESPACE)
    }
}

/// The part of Croft that changes pods and DaemonSets on their way to where they may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// The webhook.
    #[default]
    Webhook,
    /// MutatingAdmissionPolicies, inside the API server.
    Policy,
}

impl Mutation {
    /// The name of the mode.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "Webhook",
            Self::Policy => "Policy",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Webhook, Self::Policy].into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Action on a non-tenant pod whose tolerations let it onto the nodes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonTenantPods {
    /// A required node affinity keeps the pod off those nodes.
    #[default]
    KeepOut,
    /// The pod is refused.
    Reject,
    /// Nothing: non-tenant pods are not subject to any rule.
    Allow,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations. The index reads the pool annotation and the pools annotation.
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
