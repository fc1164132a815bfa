//! Every name of this crate that users see: denial rules, violations, labels, annotations and taints.
//!
//! Each is defined here once, with its documentation. Reference pages are generated from [`Rule::ALL`],
//! [`Violation::ALL`], [`KEYS`] and [`parameter::KEYS`].

use crate::{documented_enum, documented_keys};

documented_enum! {
    /// The rule that decided a request, allowing or refusing it. Label `rule` of the audit annotation.
    pub enum Rule {
        /// Allowed: the object or the operation is not subject to any rule.
        NotApplicable,
        /// Allowed: the namespace is exempt.
        Exempt,
        /// Allowed: the object is being deleted.
        Deleting,
        /// Allowed: the mirror pod of a static pod, written by the kubelet of its own node.
        MirrorPod,
        /// Allowed with a patch: the pod is pinned to a pool of its tenant.
        Pinned,
        /// Allowed without a patch: the tenant's pod selects and tolerates its pool already.
        NoChange,
        /// Allowed without a patch: a non-tenant pod that can't reach a pool's nodes, or need not be kept off them.
        NonTenant,
        /// Allowed: a non-tenant pod with a required node affinity that keeps it off the pools.
        KeptOut,
        /// Allowed: every pool is shared with the namespace.
        Shared,
        /// Allowed: a binding by a configured scheduler.
        Scheduler,
        /// Allowed: the named node is in a pool that the pod may use.
        Placed,
        /// Allowed: the change does not concern placement.
        Unchanged,
        /// Allowed: Croft's controller gives a role to owners, as their Tenant declares it.
        DeclaredOwners,
        /// Allowed with a patch: what the write changes of Croft's label and annotations of a namespace is taken back.
        MetadataKept,
        /// Refused for now: the namespace is not in the index yet.
        UnknownNamespace,
        /// Refused for now: the namespace lacks an object that its Tenant declares, such as a NetworkPolicy.
        NamespaceIncomplete,
        /// Refused: owners created the namespace beyond `namespaceCreation.maximum`, so it gets no pools.
        NamespaceSurplus,
        /// Refused: a Tenant that can't be read may own the namespace.
        TenantUnreadable,
        /// Refused: the operator of a toleration is unknown.
        UnknownOperator,
        /// Refused: the pod asks for a pool that its tenant may not use.
        ForeignPool,
        /// Refused: the node selector asks for two pools at once.
        TwoPools,
        /// Refused: the required node affinity keeps the pod off the nodes of its own pool.
        ExcludesPool,
        /// Refused: the pool does not exist.
        MissingPool,
        /// Refused: the named node does not exist.
        UnknownNode,
        /// Refused: the named node is outside the tenant's pools.
        NodeOutside,
        /// Refused: the named node is in a pool that is not open to the namespace.
        NodeOfPool,
        /// Refused: a non-tenant pod selects a pool.
        NonTenantSelectsPool,
        /// Refused: a non-tenant pod tolerates the taint of a pool, and `nonTenantPods` is `Reject`.
        NonTenantToleratesPool,
        /// Refused: the patch would add more expressions and values than it may.
        TooManyTerms,
        /// Refused: the update adds a toleration of a foreign pool's taint.
        AddsToleration,
        /// Refused: the update takes the pod out of its pool, or lifts its last scheduling gate before it is in one.
        WidensPlacement,
        /// Refused: the final pod lacks what Croft had added.
        NotPlaced,
        /// Refused: a kubelet writes the label or taint of a pool.
        KubeletPool,
        /// Refused: the taint of a pool is removed from a node that keeps the pool's label.
        PoolTaint,
        /// Refused: the write moves a namespace from one tenant to another, or into or out of a tenant.
        NamespaceMove,
        /// Refused: pools, networks or roles are open to any namespace of this name.
        NamespaceName,
        /// Refused: a label or annotation that only Croft writes.
        ReservedMetadata,
        /// Refused for now: Croft's controller gives a role that no Tenant declares, as far as this replica has seen.
        UndeclaredRole,
        /// Refused: a label or annotation that owners may not give to the namespaces that they create.
        OwnerMetadata,
        /// Refused: Croft's own Namespace is deleted while there are Tenants or pools.
        OwnNamespace,
    }
}

documented_enum! {
    /// A violation of the isolation invariant, or a declaration that can't take effect. Label `rule` of `croft audit`.
    pub enum Violation {
        /// A pod of a tenant runs on a node outside the tenant's pools.
        PodOutside,
        /// A pod runs on a node of a pool that is neither its tenant's nor shared with its namespace.
        PodInside,
        /// A pending pod of a tenant is not pinned to a pool, or would be refused.
        PodUnpinned,
        /// A pending non-tenant pod could be scheduled onto a node of a pool.
        PodNotKeptOut,
        /// The template of a DaemonSet lacks what its pods need, or its pods would be refused.
        DaemonSetUnplanned,
        /// The label or the annotations by which the admission policies know the owner of a namespace are out of date.
        NamespaceMetadataStale,
        /// The NetworkPolicy that closes a namespace of an isolated tenant is missing, or differs from what the Tenant declares.
        NamespaceOpen,
        /// A node of a pool lacks the pool's taint.
        NodeUntainted,
        /// A node of a pool lacks the pool-name label or the pool's own label.
        NodeUnlabelled,
        /// A node carries the labels of two pools.
        NodeInTwoPools,
        /// A node carries the pool-name label of a pool that does not exist.
        NodeOfNoPool,
        /// A tenant names a pool that does not exist or does not count.
        PoolMissing,
        /// A pool has the label of an older pool, and so does not count.
        PoolCollides,
        /// A tenant claims a namespace that is exempt or belongs to an older tenant.
        ClaimLost,
    }
}

documented_keys! {
    /// Every label, annotation and taint that this crate reads or writes, but for [`parameter::KEYS`].
    pub const KEYS;

    /// The name of the pool that the node is in, whatever the pool's own key is. NodeRestriction keeps kubelets from
    /// writing it.
    Label POOL_NAME_LABEL = "node-restriction.kubernetes.io/pool", on "nodes of pools", by "the controller";
    /// The template of the node's pool, if that has several.
    Label TEMPLATE_LABEL = "croft.dev/template", on "nodes of NodeClaims", by "the controller";
    /// The owner of the namespace, as far as webhooks and policies need to know it: `none` if it belongs to no tenant.
    Label TENANCY_LABEL = "croft.dev/tenancy", on "namespaces", by "the controller";
    /// The tenant for which Croft keeps the object in a namespace. Croft writes no object there without it.
    Label TENANT_LABEL = "croft.dev/tenant", on "objects that Croft keeps in tenants' namespaces", by "the controller";
    /// `webhook` on the Lease of a replica of the webhook.
    Label REPLICA_LABEL = "croft.dev/replica-of", on "Leases", by "each replica of the webhook";
    /// `parameters` on the bindings of policies that read Croft's own Namespace, so that an overlay can find them.
    Label READS_LABEL = "croft.dev/reads", on "ValidatingAdmissionPolicyBindings", by "the manifests";
    /// The name of the namespace. The API server keeps it.
    Label NAME_LABEL = "kubernetes.io/metadata.name", on "namespaces", by "the API server";
    /// The name of the pool to use. On a namespace it is the default of the namespace's pods.
    Annotation POOL_ANNOTATION = "croft.dev/pool", on "pods, pod templates, namespaces", by "users";
    /// A record of what Croft added to the template. It is taken out before the template is planned again.
    Annotation INJECTED_ANNOTATION = "croft.dev/injected", on "pod templates of DaemonSets", by "the webhook, the controller";
    /// The name of the node's NodeClaim.
    Annotation CLAIM_ANNOTATION = "croft.dev/claim", on "nodes", by "the controller";
    /// The generation of each Tenant that the replica enforces, as `uid=generation`, separated by commas.
    Annotation OBSERVED_GENERATIONS_ANNOTATION = "croft.dev/observed-generations", on "Leases of the webhook's replicas",
        by "each replica of the webhook";
    /// Why API servers can't reach the replica, or soon won't: its certificate is expired, unusable or not trusted.
    Annotation CERTIFICATE_ERROR_ANNOTATION = "croft.dev/certificate-error", on "Leases of the webhook's replicas",
        by "each replica of the webhook";
    /// `Webhook` or `Policy` on the Lease of the replica that keeps the webhook configurations: the mode that they are
    /// written for.
    Annotation REGISTERED_MUTATION_ANNOTATION = "croft.dev/registered-mutation", on "Leases of the webhook's replicas",
        by "the replica that keeps the webhook configurations";
    /// The pools that the namespace's tenant may use, as `key=value:effects:label:name`, separated by semicolons; `-` for
    /// none, and `-:-:-:name` for a pool that doesn't exist. Of several pools, each has a further part: what its nodes can be.
    /// `Override:-:-` comes first if the Tenant has that `onConflict`.
    Annotation POOLS_ANNOTATION = "policy.croft.dev/pools", on "namespaces of tenants", by "the controller";
    /// The pools that are shared with the namespace, as `key=value`, separated by semicolons; `*` for all.
    Annotation SHARED_ANNOTATION = "policy.croft.dev/shared", on "non-tenant namespaces", by "the controller";
    /// Why a namespace that owners created gets no pools, as `tenant;maximum;namespaces`: as many others of the tenant have
    /// them as `namespaceCreation.maximum` allows.
    Annotation SURPLUS_ANNOTATION = "policy.croft.dev/surplus", on "namespaces of tenants", by "the controller";
    /// With `enforce`, `audit` or `warn`: the Pod Security level that Croft wrote for the Tenant, a colon, and the level that the
    /// label had before, or `-`.
    AnnotationPrefix POD_SECURITY_RECORD = "policy.croft.dev/pod-security-", on "namespaces of tenants", by "the controller";
    /// The account, region and cluster that the installation runs for.
    AnnotationPrefix IDENTITY_PREFIX = "identity.croft.dev/", on "Croft's own Namespace", by "the controller, once";
    /// The clusters that this one's objects were restored from, by the UIDs of their Namespace kube-system, separated by
    /// commas. `croft check` reports their instances.
    Annotation FORMER_CLUSTERS_ANNOTATION = "identity.croft.dev/former-cluster-uids", on "Croft's own Namespace",
        by "administrators, after a restoration into another cluster";
    /// The hash of a static pod's manifest. Marks the pod as the mirror of a static pod.
    Annotation MIRROR_ANNOTATION = "kubernetes.io/config.mirror", on "mirror pods", by "kubelets";
    /// `true` on a node with the taint of the same key. A kubelet may register with this label, but not with the pool-name
    /// label: it keeps pods that tolerate every taint off the node.
    Label UNREGISTERED_LABEL = "croft.dev/unregistered", on "nodes that join a pool",
        by "kubelets, by user data; the policy croft-nodes";
    /// The kubelet has registered, and the controller has not labelled the node yet.
    Taint UNREGISTERED_TAINT = "croft.dev/unregistered", on "nodes that join a pool",
        by "kubelets, by user data; the policy croft-nodes";
}

/// The ClusterRole of owners who may create namespaces of their tenant. The controller binds it and may bind no other in the
/// whole cluster.
pub const NAMESPACE_CREATOR_ROLE: &str = "croft-namespace-creator";
/// The verb on Tenants by which the policies know the users that have that role.
pub const CREATE_NAMESPACES_VERB: &str = "create-namespaces";

/// The ClusterRole of owners without one in their Tenant.
pub const OWNERS_ROLE: &str = "admin";

/// The beginning of the names of all objects that Croft keeps in tenants' namespaces.
pub const TENANT_OBJECT_PREFIX: &str = "croft-tenant-";

/// Annotations of Croft's own Namespace, which the static policies read as `params`. Only the controller writes them.
pub mod parameter {
    use crate::documented_keys;

    documented_keys! {
        /// Every parameter of the policies, and their prefix.
        pub const KEYS;

        /// Annotations that only the controller writes, on every namespace.
        AnnotationPrefix PREFIX = "policy.croft.dev/", on "namespaces", by "the controller";
        /// Keys of pools, separated by commas, without the built-in one.
        Annotation POOL_KEYS = "policy.croft.dev/keys", on "Croft's own Namespace", by "the controller";
        /// Labels that a kubelet may register its node with: a key (every value of it), or `key=value`; separated by
        /// commas.
        Annotation KUBELET_LABELS = "policy.croft.dev/kubelet-labels", on "Croft's own Namespace", by "the controller";
        /// Exempt namespaces besides the built-in ones, separated by commas.
        Annotation EXEMPT = "policy.croft.dev/exempt", on "Croft's own Namespace", by "the controller";
        /// Namespaces with which every pool is shared, separated by commas.
        Annotation SHARED_WITH = "policy.croft.dev/shared-with", on "Croft's own Namespace", by "the controller";
        /// Action on a non-tenant pod that tolerates the taint of a pool: `KeepOut`, `Reject` or `Allow`;
        /// `Inactive` while no Tenant is enforced.
        Annotation NON_TENANT_PODS = "policy.croft.dev/non-tenant-pods", on "Croft's own Namespace", by "the controller";
        /// Claims of tenants on namespaces, as `name:namespaces:selector`, or `name:namespaces:selector:prefix` with
        /// namespaceCreation, each followed by a semicolon.
        Annotation TENANTS = "policy.croft.dev/tenants", on "Croft's own Namespace", by "the controller";
        /// Every pool, as `key=value:effects:label:provisioner`, each followed by a semicolon; `label` is the pool-name label.
        Annotation ALL_POOLS = "policy.croft.dev/all-pools", on "Croft's own Namespace", by "the controller";
        /// `Policy` while the mutating policies change pods and DaemonSets; `Webhook` while only the webhook does.
        Annotation MUTATION = "policy.croft.dev/mutation", on "Croft's own Namespace", by "the controller";
        /// `Reject` while no tenant moves a pod that asks for another's pool, as far as its Tenant can be read; else `Override`.
        Annotation ON_CONFLICT = "policy.croft.dev/on-conflict", on "Croft's own Namespace", by "the controller";
        /// Names of namespaces to which pools, tenants' networks or roles are open, as `name=resource/name`, each followed by a
        /// semicolon.
        Annotation OPEN_NAMES = "policy.croft.dev/open-names", on "Croft's own Namespace", by "the controller";
        /// Tenants whose owners may create namespaces: a line for each, with its name, prefix, maximum, `open` or `full`, and
        /// its owners as `U:user` and `G:group`, separated by blanks.
        Annotation NAMESPACE_CREATION = "policy.croft.dev/namespace-creation", on "Croft's own Namespace", by "the controller";
        /// Beginnings of labels and annotations that owners may give to the namespaces that they create, separated by commas.
        Annotation OWNER_METADATA = "policy.croft.dev/owner-metadata", on "Croft's own Namespace", by "the controller";
        /// A hash of all other parameters.
        Annotation REVISION = "policy.croft.dev/revision", on "Croft's own Namespace", by "the controller";
        /// Written with server-side dry-run only: the revision of which the writer asks whether it is in force.
        Annotation PROBE = "policy.croft.dev/probe", on "Croft's own Namespace", by "the controller, as a dry run";
        /// Added to a probe by the mutating policies: their version.
        Annotation PROBED_MUTATION = "policy.croft.dev/probed-mutation", on "Croft's own Namespace, never stored",
            by "the mutating policies";
    }
}

/// Names of the webhooks in Croft's webhook configurations.
pub mod webhook {
    /// Mutates pods and DaemonSets of tenants, and of namespaces whose owner isn't known yet.
    pub const PODS: &str = "pods.croft.dev";
    /// Mutates pods and DaemonSets of non-tenant namespaces that name a node, select a pool or tolerate its taint.
    pub const NON_TENANT: &str = "non-tenant.croft.dev";
    /// Takes back what writes of others change of Croft's label and annotations of namespaces.
    pub const NAMESPACES: &str = "namespaces.croft.dev";
    /// Validates pods that name a node.
    pub const PLACEMENT: &str = "placement.croft.dev";
    /// Validates bindings, but for those of schedulers.
    pub const BINDINGS: &str = "bindings.croft.dev";
    /// Validates the roles that Croft's controller gives to the owners of tenants.
    pub const OWNERS: &str = "owners.croft.dev";
    /// Warns about workloads whose pods will be refused.
    pub const WARNINGS: &str = "warnings.croft.dev";
}
