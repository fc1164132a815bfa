//! The message of a refusal: which tenant, which field, which rule, and what to write instead.
//!
//! The rules make denials; the webhook, `croft admit` and `croft plan` show their messages, and `croft audit` quotes
//! them.

use std::fmt;

use crate::{
    definitions::{POOL_NAME_LABEL, Rule},
    tenancy::created::Surplus,
};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The rule that refuses.
    pub rule: Rule,
    /// The sentence that the user reads.
    pub message: String,
}

impl Denial {
    /// True if the same request may be allowed in a moment.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.rule, Rule::UnknownNamespace | Rule::NamespaceIncomplete | Rule::UndeclaredRole)
    }

    pub(crate) fn new(rule: Rule, message: String) -> Self {
        Self { rule, message }
    }

    pub(crate) fn unknown_namespace(namespace: &str) -> Self {
        Self::new(
            Rule::UnknownNamespace,
            format!(
                "namespace {namespace:?} is not known to Croft yet, so its tenant is unknown; try again in a moment"
            ),
        )
    }

    pub(crate) fn namespace_incomplete(namespace: &str) -> Self {
        Self::new(
            Rule::NamespaceIncomplete,
            format!(
                "namespace {namespace:?} doesn't have the objects yet that its Tenant declares; try again in a moment, and if \
                 that doesn't help, look at the conditions ObjectsKept and NamespaceCreation of the Tenant"
            ),
        )
    }

    pub(crate) fn namespace_surplus(namespace: &str, surplus: &Surplus<'_>) -> Self {
        let Surplus { tenant, maximum, .. } = surplus;
        Self::new(
            Rule::NamespaceSurplus,
            format!(
                "namespace {namespace:?} is beyond spec.namespaceCreation.maximum of tenant {:?}, which is {maximum}, so it gets \
                 no pools: the namespaces that count are {}; use one of these, or ask the cluster's operator to delete one or \
                 to raise the maximum",
                tenant.name,
                surplus.counting()
            ),
        )
    }

    pub(crate) fn tenant_unreadable(namespace: &str) -> Self {
        Self::new(
            Rule::TenantUnreadable,
            format!(
                "namespace {namespace:?} has the annotation policy.croft.dev/pools of a tenant, and the claims of a Tenant \
                 can't be read, so its owner is unknown; correct the Tenant whose condition SpecValid is False"
            ),
        )
    }

    pub(crate) fn unknown_operator(index: usize, operator: &str) -> Self {
        Self::new(
            Rule::UnknownOperator,
            format!(
                "spec.tolerations[{index}].operator is {operator:?}, which Croft doesn't know, so the pools that the \
                 pod may reach are unknown; write Equal or Exists"
            ),
        )
    }

    pub(crate) fn foreign_selector(
        tenant: &str,
        pools: &str,
        key: &str,
        value: &str,
        pool: Option<&str>,
    ) -> Self {
        let what = pool
            .map_or_else(|| "which is no pool of the tenant".to_owned(), |p| format!("which is pool {p:?}"));
        Self::new(
            Rule::ForeignPool,
            format!(
                "tenant {tenant:?} may not use what spec.nodeSelector asks for: {key}={value}, {what}; the tenant's pools \
                 are {pools}: remove {key} from spec.nodeSelector to get the default pool, or choose one of them with the \
                 annotation croft.dev/pool"
            ),
        )
    }

    pub(crate) fn foreign_annotation(tenant: &str, pools: &str, pool: &str) -> Self {
        Self::new(
            Rule::ForeignPool,
            format!(
                "tenant {tenant:?} may not use pool {pool:?}, which the pod's annotation croft.dev/pool asks for; the \
                 tenant's pools are {pools}: write one of them, or remove the annotation to get the default pool"
            ),
        )
    }

    pub(crate) fn foreign_default(tenant: &str, pools: &str, namespace: &str, pool: &str) -> Self {
        Self::new(
            Rule::ForeignPool,
            format!(
                "tenant {tenant:?} may not use pool {pool:?}, which the annotation croft.dev/pool of namespace \
                 {namespace:?} makes the default; the tenant's pools are {pools}: write one of them there, or remove the \
                 namespace's annotation"
            ),
        )
    }

    pub(crate) fn two_pools(tenant: &str, first: &str, second: &str) -> Self {
        Self::new(
            Rule::TwoPools,
            format!(
                "spec.nodeSelector asks for two pools of tenant {tenant:?} at once, {first:?} and {second:?}; no node is \
                 in both: keep one of them"
            ),
        )
    }

    pub(crate) fn excludes_pool(tenant: &str, pool: &str) -> Self {
        Self::new(
            Rule::ExcludesPool,
            format!(
                "every term of the required node affinity excludes {POOL_NAME_LABEL} of pool {pool:?} of tenant {tenant:?}, so \
                 the pod could never run; Croft writes that into pods of namespaces without a tenant: create the pod again \
                 without it"
            ),
        )
    }

    pub(crate) fn missing_pool(tenant: &str, pool: &str, because: Option<&str>) -> Self {
        let why = because.map_or_else(
            || "there is no TenantPool of that name".to_owned(),
            |other| format!("it has the same label as the older pool {other:?} and so doesn't count"),
        );
        Self::new(
            Rule::MissingPool,
            format!(
                "the pod would go to pool {pool:?} of tenant {tenant:?}, but {why}; ask the cluster's operator to create \
                 the TenantPool, or to correct spec.pools of the Tenant"
            ),
        )
    }

    pub(crate) fn no_pools(tenant: &str) -> Self {
        Self::new(
            Rule::MissingPool,
            format!(
                "tenant {tenant:?} has no pools, so its pods can't run; ask the cluster's operator to write spec.pools of the Tenant"
            ),
        )
    }

    pub(crate) fn unknown_node(field: &str, node: &str) -> Self {
        Self::new(
            Rule::UnknownNode,
            format!(
                "{field} is {node:?}, a node that Croft doesn't know; leave it to the scheduler, or name a node that is there"
            ),
        )
    }

    pub(crate) fn node_outside(field: &str, node: &str, tenant: &str, pools: &str, of: Option<&str>) -> Self {
        let of = of.map_or_else(|| "in no pool".to_owned(), |pool| format!("in pool {pool:?}"));
        Self::new(
            Rule::NodeOutside,
            format!(
                "{field} is {node:?}, which is {of}; pods of tenant {tenant:?} run in its pools only ({pools}): leave it \
                 to the scheduler, or name a node of these{}",
                debugging(field)
            ),
        )
    }

    pub(crate) fn node_contradicts(node: &str, node_pool: &str, selected: &str) -> Self {
        Self::new(
            Rule::NodeOutside,
            format!(
                "spec.nodeName is {node:?}, a node of pool {node_pool:?}, but spec.nodeSelector asks for pool \
                 {selected:?}; keep one of them"
            ),
        )
    }

    pub(crate) fn node_of_pool(field: &str, node: &str, namespace: &str, pool: Option<&str>) -> Self {
        let pool = pool.map_or_else(|| "a pool".to_owned(), |p| format!("pool {p:?}"));
        Self::new(
            Rule::NodeOfPool,
            format!(
                "{field} is {node:?}, a node of {pool}; namespace {namespace:?} belongs to no tenant, and the pool isn't \
                 shared with it: leave it to the scheduler, or ask the pool's operator to add the namespace to \
                 spec.sharedWith of the TenantPool{}",
                debugging(field)
            ),
        )
    }

    pub(crate) fn non_tenant_selects(namespace: &str, key: &str, value: &str, pool: &str) -> Self {
        Self::new(
            Rule::NonTenantSelectsPool,
            format!(
                "spec.nodeSelector asks for {key}={value}, which is pool {pool:?}; namespace {namespace:?} belongs to no \
                 tenant, and the pool isn't shared with it: remove {key} from spec.nodeSelector, or ask the pool's \
                 operator to add the namespace to a Tenant or to spec.sharedWith of the TenantPool"
            ),
        )
    }

    pub(crate) fn non_tenant_tolerates(namespace: &str, pool: &str) -> Self {
        Self::new(
            Rule::NonTenantToleratesPool,
            format!(
                "spec.tolerations would let the pod onto the nodes of pool {pool:?}; namespace {namespace:?} belongs to no \
                 tenant, and the pool isn't shared with it: tolerate only the taints that you mean (a toleration without \
                 a key tolerates all), or ask the pool's operator to add the namespace to spec.sharedWith of the \
                 TenantPool"
            ),
        )
    }

    pub(crate) fn too_many_terms(limit: usize) -> Self {
        Self::new(
            Rule::TooManyTerms,
            format!(
                "keeping the pod off the pools would add more than {limit} expressions and values to its required node \
                 affinity; write fewer nodeSelectorTerms, or tolerate fewer pools' taints"
            ),
        )
    }

    pub(crate) fn adds_toleration(index: usize, owner: &str, pool: Option<&str>) -> Self {
        let pool = pool.map_or_else(|| "pools".to_owned(), |p| format!("pool {p:?}"));
        Self::new(
            Rule::AddsToleration,
            format!(
                "spec.tolerations[{index}] was added and tolerates the taint of {pool}, which {owner} may not use; \
                 tolerations of a pod that exists can't be narrowed again, so this one is refused: leave it out"
            ),
        )
    }

    pub(crate) fn loses_pool(key: &str, value: &str) -> Self {
        Self::new(
            Rule::WidensPlacement,
            format!(
                "the update takes {key}={value} out of spec.nodeSelector, which keeps the pod in its tenant's pool; leave it in"
            ),
        )
    }

    pub(crate) fn loses_keep_out(key: &str) -> Self {
        Self::new(
            Rule::WidensPlacement,
            format!(
                "the update takes away the required node affinity on {key} that keeps the pod off the pools of tenants; leave it in"
            ),
        )
    }

    pub(crate) fn lifts_gates(reason: &str) -> Self {
        Self::new(
            Rule::WidensPlacement,
            format!(
                "the update lifts the pod's last scheduling gate, but the pod was created before Croft could place it: \
                 {reason}; delete the pod and create it again, or add what is missing while it is gated"
            ),
        )
    }

    pub(crate) fn not_placed(tenant: &str, what: &str) -> Self {
        Self::new(
            Rule::NotPlaced,
            format!(
                "the pod of tenant {tenant:?} lacks {what}, which Croft had given it; something after Croft took it away: \
                 look for another mutating webhook that rewrites pods"
            ),
        )
    }

    pub(crate) fn not_kept_out(namespace: &str) -> Self {
        Self::new(
            Rule::NotPlaced,
            format!(
                "the pod of namespace {namespace:?}, which belongs to no tenant, tolerates taints of pools and lacks the \
                 node affinity that Croft had given it; something after Croft took it away: look for another mutating \
                 webhook that rewrites pods"
            ),
        )
    }

    pub(crate) fn kubelet_label(node: &str, key: &str, value: &str, made: bool) -> Self {
        let (when, remedy) = if made {
            (
                "register with",
                "take it out of the kubelet's --node-labels: Croft labels the node itself; nodes that another process \
                 launches belong to a TenantPool with provisioner None or Karpenter and a key outside \
                 node-restriction.kubernetes.io",
            )
        } else {
            ("change", "labels of pools are the cluster operator's and Croft's")
        };
        Self::new(
            Rule::KubeletPool,
            format!("the kubelet of node {node:?} may not {when} the pool label {key}={value}; {remedy}"),
        )
    }

    pub(crate) fn kubelet_taint(node: &str, key: &str) -> Self {
        Self::new(
            Rule::KubeletPool,
            format!(
                "the kubelet of node {node:?} may not change taints of key {key}, the key of a pool; they are the cluster operator's and Croft's"
            ),
        )
    }

    pub(crate) fn mirror_outside(node: &str, namespace: &str, tenant: &str, pools: &str) -> Self {
        Self::new(
            Rule::NodeOutside,
            format!(
                "node {node:?} mirrors a static pod into namespace {namespace:?} of tenant {tenant:?}, but it is not a node \
                 of the tenant's pools ({pools}); move the static pod to another namespace, or remove its manifest from \
                 the node"
            ),
        )
    }

    pub(crate) fn pool_taint(node: &str, taint: &str, label: &str) -> Self {
        Self::new(
            Rule::PoolTaint,
            format!(
                "node {node:?} is in the pool with the label {label}, so its taint {taint} stays: without it other pods run \
                 there. To take the node out of the pool, remove the label {label} first"
            ),
        )
    }

    pub(crate) fn namespace_name(namespace: &str, opened_by: &[String]) -> Self {
        let opened_by = opened_by.join(", ");
        Self::new(
            Rule::NamespaceName,
            format!(
                "what is in a namespace that is named {namespace:?} has pools, networks or roles of tenants open to it, by \
                 {opened_by}; to create it takes the verb assign on {opened_by}: ask the cluster's operator, or choose another \
                 name"
            ),
        )
    }

    /// `role` is that of a binding in `namespace`, or in the whole cluster if it is empty; `subject` may not have it.
    pub(crate) fn undeclared_role(namespace: &str, role: &str, subject: &str) -> Self {
        let (place, field) = if namespace.is_empty() {
            ("the whole cluster".to_owned(), "spec.owners beside spec.namespaceCreation")
        } else {
            (format!("namespace {namespace:?}"), "spec.owners")
        };
        Self::new(
            Rule::UndeclaredRole,
            format!(
                "Croft's controller may give a role only to owners: {role} in {place} for {subject} is in {field} of no Tenant that \
                 this replica of the webhook has seen; if the Tenant has just been changed, try again in a moment. Otherwise \
                 another uses the controller's token: delete its pods, and its ServiceAccount's tokens"
            ),
        )
    }

    pub(crate) fn namespace_move(namespace: &str, tenants: &[&str]) -> Self {
        let tenants = tenants.join(", ");
        Self::new(
            Rule::NamespaceMove,
            format!(
                "this would move namespace {namespace:?} into or out of tenant {tenants}; that needs the verb assign on \
                 tenants.croft.dev {tenants}: ask the cluster's operator, or leave the labels as they are"
            ),
        )
    }

    pub(crate) fn reserved_metadata(namespace: &str, what: &str) -> Self {
        Self::new(
            Rule::ReservedMetadata,
            format!("{what} of namespace {namespace:?} is kept by Croft alone; leave it out or as it is"),
        )
    }

    pub(crate) fn owner_metadata(namespace: &str, what: &str) -> Self {
        Self::new(
            Rule::OwnerMetadata,
            format!(
                "owners of a tenant may not give {what} to namespace {namespace:?}: leave it out, or ask the cluster's operator; \
                 spec.ownerMetadata of the CroftConfig lists what they may give"
            ),
        )
    }

    pub(crate) fn own_namespace(namespace: &str) -> Self {
        Self::new(
            Rule::OwnNamespace,
            format!(
                "namespace {namespace:?} is Croft's own, and without it the admission policies would hold for no pod while there \
                 are Tenants or pools; run croft uninstall to remove Croft, or croft break-glass on to stop enforcement before"
            ),
        )
    }
}

/// The remedy of operators, whose `kubectl debug node/NAME` makes a pod that names the node.
fn debugging(field: &str) -> &'static str {
    if field == "spec.nodeName" { "; to debug the node, add --namespace kube-system" } else { "" }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
