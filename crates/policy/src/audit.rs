//! Violations among objects that exist: pods on wrong nodes or about to be scheduled there, nodes that let them, and
//! declarations that can't take effect.
//!
//! Called by `croft audit` and by the controller, which counts violations and reports them in conditions.

use std::{collections::BTreeMap, fmt};

use crate::{
    definitions::{POOL_NAME_LABEL, Rule, TENANCY_LABEL, UNREGISTERED_LABEL, Violation},
    policies,
    request::view::{DaemonSet, Pod, PodSpec},
    rules::{
        daemonset::plan_daemonset,
        keep_out,
        node_affinity::{excludes_label, only_node},
        pod::plan_pod,
    },
    tenancy::{
        declarations::{DeclaredPool, DeclaredTenant, PoolId},
        index::{NamespaceTenancy, Tenants},
        model::{Node, NonTenantPods, TENANCY_NONE},
    },
};

/// A violation and the object that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The kind of violation.
    pub violation: Violation,
    /// Kind of the object, such as `Pod`.
    pub kind: &'static str,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The tenants that it concerns.
    pub tenants: Vec<String>,
    /// The violation, and the remedy.
    pub message: String,
}

/// The part of a bound pod's placement that violates the invariant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misplaced<'t> {
    /// The tenant, if the pod runs outside its pools.
    pub outside: Option<&'t DeclaredTenant>,
    /// The node's pools that are not open to the pod.
    pub inside: Vec<PoolId>,
}

impl Misplaced<'_> {
    /// True if the placement is allowed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.outside.is_none() && self.inside.is_empty()
    }
}

/// Checks whether pods of `namespace` may run on `node`. A node that isn't in the index is in no pool.
///
/// ```
/// use croft_policy::{Config, Tenant, Tenants, audit::misplaced};
///
/// let tenant = Tenant { name: "a".to_owned(), namespaces: vec!["a".to_owned()], ..Tenant::default() };
/// let tenants = Tenants::offline(Config::default(), vec![tenant], vec![], vec![], vec![]);
/// assert!(!misplaced(&tenants, "a", "any-node").is_ok(), "the node is in no pool of the tenant");
/// assert!(misplaced(&tenants, "b", "any-node").is_ok(), "the namespace belongs to no tenant");
/// ```
#[must_use]
pub fn misplaced<'t>(tenants: &'t Tenants, namespace: &str, node: &str) -> Misplaced<'t> {
    let declarations = tenants.declarations();
    let tenancy = tenants.tenancy(namespace);
    let pools = tenants.node(node).map(|pools| &*pools.labelled).unwrap_or_default();
    let own = |pool: &PoolId| match tenancy {
        NamespaceTenancy::Tenant { tenant, .. } => tenant.may_use(*pool),
        NamespaceTenancy::NonTenant => declarations.pool(*pool).is_some_and(|p| p.is_shared_with(namespace)),
        NamespaceTenancy::Exempt | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => true,
    };
    match tenancy {
        NamespaceTenancy::Exempt | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => {
            return Misplaced::default();
        }
        NamespaceTenancy::NonTenant
            if declarations.non_tenant_pods() == NonTenantPods::Allow
                || declarations.is_shared_with(namespace) =>
        {
            return Misplaced::default();
        }
        NamespaceTenancy::NonTenant | NamespaceTenancy::Tenant { .. } => {}
    }
    let outside = match tenancy {
        NamespaceTenancy::Tenant { tenant, .. } if !pools.iter().any(own) => Some(tenant),
        _ => None,
    };
    Misplaced { outside, inside: pools.iter().copied().filter(|pool| !own(pool)).collect() }
}

/// The tenants that may use `pool`.
fn tenants_of(tenants: &Tenants, pool: PoolId) -> Vec<String> {
    tenants.declarations().tenants().iter().filter(|t| t.may_use(pool)).map(|t| t.name.to_string()).collect()
}

/// Creates another pod in place of one that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recreation {
    /// The pod's controller.
    Controller,
    /// None does: the pod has no controller.
    None,
}

impl Recreation {
    /// How the pod comes `there`, where it should be.
    fn remedy(self, verb: &str, there: &str) -> String {
        match self {
            Self::Controller => format!("{verb}: its controller recreates it {there}"),
            Self::None => {
                format!("delete it and create it again, since it has no controller: it is then {there}")
            }
        }
    }
}

/// Checks a pod that is neither finished nor being deleted.
#[must_use]
pub fn pod(tenants: &Tenants, namespace: &str, pod: &Pod<'_>, recreation: Recreation) -> Vec<Finding> {
    let finding = |violation, tenants, message| Finding {
        violation,
        kind: "Pod",
        namespace: Some(namespace.to_owned()),
        name: pod.metadata.name.to_string(),
        tenants,
        message,
    };
    let node = pod.spec.node_name.as_str();
    if node.is_empty() {
        return check_pending(tenants, namespace, pod, recreation)
            .into_iter()
            .map(|(r, t, m)| finding(r, t, m))
            .collect();
    }
    let Misplaced { outside, inside } = misplaced(tenants, namespace, node);
    let mut findings = Vec::new();
    if pod.metadata.annotations.as_ref().is_some_and(|a| a.mirror.is_some()) {
        // A kubelet runs its static pods in any case. The mirror pod matters, because Services of the tenant may select
        // it.
        findings.extend(outside.map(|tenant| {
            let message = format!(
                "mirrors a static pod of node {node}, outside the pools of tenant {} ({}), and the tenant's Services may \
                 select it; remove its manifest from the node",
                tenant.name,
                tenant.pool_names()
            );
            finding(Violation::PodOutside, vec![tenant.name.to_string()], message)
        }));
        return findings;
    }
    if let Some(tenant) = outside {
        let message = format!(
            "runs on node {node}, outside the pools of its tenant {} ({}); {}",
            tenant.name,
            tenant.pool_names(),
            recreation.remedy("evict the pod", "on the tenant's pool")
        );
        findings.push(finding(Violation::PodOutside, vec![tenant.name.to_string()], message));
    }
    for pool in inside {
        let name = tenants.declarations().pool(pool).map(|p| p.name.to_string()).unwrap_or_default();
        let owners = tenants_of(tenants, pool);
        let message = format!(
            "runs on node {node} of pool {name}, which is neither its tenant's nor shared with namespace {namespace}; evict \
             the pod, or add the namespace to spec.sharedWith of TenantPool {name}"
        );
        findings.push(finding(Violation::PodInside, owners, message));
    }
    findings
}

/// What [`pod`] finds, in sentences for people of the pod's namespace: they name no pool but its tenant's.
#[must_use]
pub fn pod_in_own_words(
    tenants: &Tenants,
    namespace: &str,
    checked: &Pod<'_>,
    recreation: Recreation,
) -> Vec<String> {
    let found = pod(tenants, namespace, checked, recreation);
    let is_inside = |finding: &Finding| finding.violation == Violation::PodInside;
    if found.iter().any(is_inside) && found.iter().all(is_inside) {
        return vec![format!(
            "runs on node {} of a pool that isn't open to namespace {namespace}; {}",
            checked.spec.node_name.as_str(),
            recreation.remedy("evict the pod", "on another node")
        )];
    }
    found.into_iter().filter(|finding| !is_inside(finding)).map(|finding| finding.message).collect()
}

/// The pools onto whose nodes kube-scheduler could bind a waiting pod that isn't theirs: it was created before they were
/// declared, and so lacks what admission adds today. Empty for a pod that is as admission would make it, for one that was
/// kept off every pool before a key was declared, and for a gated one, whose last gate isn't lifted before it is. A pod that
/// selects another pool's label can't enter, whatever it lacks, nor one that is tied to a node elsewhere.
#[must_use]
pub fn open_pools<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Vec<&'t DeclaredPool> {
    let planned = plan_pod(tenants, namespace, pod);
    if (planned.allowed() && planned.patch.is_empty()) || !pod.spec.scheduling_gates.is_empty() {
        return Vec::new();
    }
    // A node of a pool has one of these labels from its registration to its end, whatever the pool's own key is.
    let is_open = |pool: &&DeclaredPool| {
        !(excludes_label(&pod.spec, POOL_NAME_LABEL, pool.pool_name_label())
            && excludes_label(&pod.spec, UNREGISTERED_LABEL, "true"))
    };
    let tied = only_node(&pod.spec).and_then(|node| tenants.node(node));
    let has_its_node =
        |pool: &DeclaredPool| tied.is_none_or(|node| node.orphan || node.reserved.contains(&pool.id));
    let mut pools = keep_out::foreign_pools(tenants, namespace, &pod.spec);
    pools.retain(|pool| is_open(pool) && has_its_node(pool) && !selects_another(tenants, &pod.spec, pool));
    pools
}

/// True if the node selector has the label of a pool other than `pool`.
fn selects_another(tenants: &Tenants, spec: &PodSpec<'_>, pool: &DeclaredPool) -> bool {
    let declarations = tenants.declarations();
    let mut selected = spec.node_selector.iter().flat_map(|selector| selector.iter());
    selected.any(|(key, value)| declarations.pool_by_label(key, value).is_some_and(|id| id != pool.id))
}

fn check_pending(
    tenants: &Tenants,
    namespace: &str,
    pod: &Pod<'_>,
    recreation: Recreation,
) -> Option<(Violation, Vec<String>, String)> {
    let planned = plan_pod(tenants, namespace, pod);
    if planned.allowed() && planned.patch.is_empty() {
        return None;
    }
    let violation = if planned.tenant.is_some() { Violation::PodUnpinned } else { Violation::PodNotKeptOut };
    let message = match &planned.denial {
        Some(denial) => format!("is pending and would be refused: {denial}"),
        None if planned.tenant.is_some() => format!(
            "is pending and not pinned to pool {}; it was created before its tenant was in force; {}",
            planned.pool.unwrap_or_default(),
            recreation.remedy("delete it", "on the pool")
        ),
        None => format!(
            "is pending and tolerates taints of pools, without a node affinity that keeps it off them; it was created before \
             Croft; {}",
            recreation.remedy("delete it", "with one")
        ),
    };
    Some((violation, planned.tenant.map(str::to_owned).into_iter().collect(), message))
}

/// Checks a DaemonSet that isn't being deleted.
#[must_use]
pub fn daemonset(
    tenants: &Tenants,
    namespace: &str,
    name: &str,
    daemonset: &DaemonSet<'_>,
) -> Option<Finding> {
    let planned = plan_daemonset(tenants, namespace, daemonset);
    if planned.allowed() && planned.patch.is_empty() {
        return None;
    }
    let message = match &planned.denial {
        Some(denial) => format!("its pods are refused: {denial}"),
        None if planned.rule == Rule::Exempt => "its template holds what Croft added while its namespace was not exempt; \
                                                 the controller removes that: check that it runs"
            .to_owned(),
        None => "its template isn't planned, so its controller keeps creating pods for nodes where they can't run; it was \
                 created before Croft: change a label of the DaemonSet, and it is planned"
            .to_owned(),
    };
    Some(Finding {
        violation: Violation::DaemonSetUnplanned,
        kind: "DaemonSet",
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        tenants: planned.tenant.map(str::to_owned).into_iter().collect(),
        message,
    })
}

/// Checks the metadata of a namespace by which webhooks and policies know its owner. Absent metadata counts only
/// `in_cluster`, where the controller writes it, and only in the namespace of a tenant.
#[must_use]
pub fn namespace(
    tenants: &Tenants,
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    in_cluster: bool,
) -> Vec<Finding> {
    let owner = match tenants.tenancy(name) {
        NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => return Vec::new(),
        NamespaceTenancy::Tenant { tenant, .. } => Some(tenant),
        NamespaceTenancy::NonTenant | NamespaceTenancy::Exempt => None,
    };
    let (wanted_labels, wanted_annotations) =
        policies::namespace_metadata(tenants.declarations(), name, owner);
    let of_labels = wanted_labels.iter().map(|(key, wanted)| ("label", *key, wanted, labels.get(*key)));
    let of_annotations =
        wanted_annotations.iter().map(|(key, wanted)| ("annotation", *key, wanted, annotations.get(*key)));
    let mut findings = Vec::new();
    for (kind, key, wanted, found) in of_labels.chain(of_annotations) {
        let message = match (wanted, found) {
            (wanted, found) if wanted.as_ref() == found => continue,
            // True without a tenant and a pool, too, when the controller takes the label off.
            (None, Some(found)) if owner.is_none() && *key == *TENANCY_LABEL && found == TENANCY_NONE => {
                continue;
            }
            (Some(wanted), None) if owner.is_some() && in_cluster => format!(
                "lacks the {kind} {key}: {wanted}, which policies need while Croft is down; the controller writes it: check \
                 that it runs"
            ),
            (_, None) => continue,
            (Some(wanted), Some(found)) => {
                format!(
                    "has {found} in the {kind} {key}, which should hold {wanted}; the controller corrects it: check that it runs"
                )
            }
            (None, Some(found)) => format!(
                "has {found} in the {kind} {key}, which it should not have; the controller removes it: check that it runs"
            ),
        };
        findings.push(Finding {
            violation: Violation::NamespaceMetadataStale,
            kind: "Namespace",
            namespace: None,
            name: name.to_owned(),
            tenants: owner.iter().map(|tenant| tenant.name.to_string()).collect(),
            message,
        });
    }
    findings
}

/// Checks the labels and taints of a node.
#[must_use]
pub fn node(tenants: &Tenants, node: &Node) -> Vec<Finding> {
    let declarations = tenants.declarations();
    let finding = |violation, tenants, message| Finding {
        violation,
        kind: "Node",
        namespace: None,
        name: node.name.clone(),
        tenants,
        message,
    };
    let mut pools: Vec<PoolId> =
        node.labels.iter().filter_map(|(k, v)| declarations.pool_by_label(k, v)).collect();
    pools.sort_unstable();
    pools.dedup();
    let pool_name = node.labels.get(POOL_NAME_LABEL);
    let Some(first) = pools.first().and_then(|id| declarations.pool(*id)) else {
        return pool_name
            .map(|name| {
                let message = format!("carries {POOL_NAME_LABEL}={name}, but there is no such pool; remove the label, or create the TenantPool");
                finding(Violation::NodeOfNoPool, Vec::new(), message)
            })
            .into_iter()
            .collect();
    };
    let owners: Vec<String> = pools.iter().flat_map(|pool| tenants_of(tenants, *pool)).collect();
    let mut findings = Vec::new();
    if pools.len() > 1 {
        let names: Vec<&str> =
            pools.iter().filter_map(|id| declarations.pool(*id)).map(|p| &*p.name).collect();
        let message = format!(
            "carries the labels of {} at once, so pods of all of them are scheduled here; keep one",
            names.join(" and ")
        );
        findings.push(finding(Violation::NodeInTwoPools, owners.clone(), message));
        return findings;
    }
    findings.extend(
        missing_taint(node, first).map(|message| finding(Violation::NodeUntainted, owners.clone(), message)),
    );
    if pool_name.map(String::as_str) != Some(first.pool_name_label()) {
        let message = format!(
            "is in pool {} but lacks {POOL_NAME_LABEL}={}, which keeps non-tenant pods off; label it",
            first.name,
            first.pool_name_label()
        );
        findings.push(finding(Violation::NodeUnlabelled, owners, message));
    } else if node.labels.get(&*first.key).map(String::as_str) != Some(&*first.value) {
        let message = format!(
            "carries the pool-name label of pool {} but not {}={}; label it",
            first.name, first.key, first.value
        );
        findings.push(finding(Violation::NodeUnlabelled, owners, message));
    }
    findings
}

fn missing_taint(node: &Node, pool: &DeclaredPool) -> Option<String> {
    let has = |effect| {
        node.taints.iter().any(|t| *t.key == *pool.key && *t.value == *pool.value && t.effect == effect)
    };
    let missing = pool.effects.iter().find(|effect| !has(*effect))?;
    Some(format!(
        "is in pool {} but lacks the taint {}={}:{missing}, so that pods of others can be scheduled there; taint it",
        pool.name, pool.key, pool.value
    ))
}

/// Checks the declarations.
#[must_use]
pub fn declarations(tenants: &Tenants) -> Vec<Finding> {
    let declarations = tenants.declarations();
    let lost = lost_claims(tenants);
    let mut findings = Vec::new();
    for (pool, older) in declarations.collisions() {
        findings.push(Finding {
            violation: Violation::PoolCollides,
            kind: "TenantPool",
            namespace: None,
            name: pool.to_string(),
            tenants: Vec::new(),
            message: format!("has the label of the older pool {older} and so doesn't count; create it again with another key or value"),
        });
    }
    for tenant in declarations.tenants() {
        let finding = |violation, message| Finding {
            violation,
            kind: "Tenant",
            namespace: None,
            name: tenant.name.to_string(),
            tenants: vec![tenant.name.to_string()],
            message,
        };
        for (pool, _) in tenant.pools.iter().filter(|(_, id)| id.is_none()) {
            let message = format!(
                "names pool {pool}, which doesn't exist or doesn't count; its pods there are refused: create it, or correct spec.pools"
            );
            findings.push(finding(Violation::PoolMissing, message));
        }
        for claim in lost.get(&*tenant.name).into_iter().flatten() {
            findings.push(finding(Violation::ClaimLost, claim.to_string()));
        }
    }
    findings
}

/// A namespace that a tenant claims and doesn't own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClaim<'t> {
    /// The namespace.
    pub namespace: &'t str,
    /// The older tenant that owns it; `None` if the namespace is exempt.
    pub owner: Option<&'t str>,
    /// True if only the selector claims it: `spec.namespaces` doesn't name the namespace.
    pub by_selector: bool,
}

impl fmt::Display for LostClaim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, owner, by_selector } = self;
        match owner {
            Some(owner) if *by_selector => write!(
                f,
                "namespace {namespace}, which spec.namespaceSelector or spec.namespaceCreation matches, belongs to the older Tenant {owner}; change \
                 one of the two Tenants, or the namespace's labels"
            ),
            Some(owner) => write!(
                f,
                "namespace {namespace} belongs to the older Tenant {owner}; take it out of one of the two"
            ),
            None => write!(
                f,
                "namespace {namespace} is exempt and can't belong to a tenant; take it out of spec.namespaces"
            ),
        }
    }
}

/// The namespaces that tenants claim and don't own, by tenant: first the ones that they name, each part sorted.
#[must_use]
pub fn lost_claims(tenants: &Tenants) -> BTreeMap<&str, Vec<LostClaim<'_>>> {
    let mut lost: BTreeMap<&str, Vec<LostClaim<'_>>> = BTreeMap::new();
    for tenant in tenants.declarations().tenants() {
        let mut named: Vec<LostClaim<'_>> = lost_names(tenants, tenant).collect();
        if !named.is_empty() {
            named.sort_unstable_by_key(|claim| claim.namespace);
            lost.insert(&*tenant.name, named);
        }
    }
    let mut selected: Vec<_> = tenants
        .contested()
        .filter(|(namespace, _, younger)| younger.claimed_names().all(|name| name != *namespace))
        .collect();
    selected.sort_unstable_by_key(|(namespace, ..)| *namespace);
    for (namespace, owner, younger) in selected {
        let claim = LostClaim { namespace, owner: Some(&*owner.name), by_selector: true };
        lost.entry(&*younger.name).or_default().push(claim);
    }
    lost
}

fn lost_names<'t>(tenants: &'t Tenants, tenant: &'t DeclaredTenant) -> impl Iterator<Item = LostClaim<'t>> {
    let declarations = tenants.declarations();
    tenant.claimed_names().filter_map(move |namespace| {
        let owner = match tenants.tenancy(namespace) {
            NamespaceTenancy::Exempt => {
                return Some(LostClaim { namespace, owner: None, by_selector: false });
            }
            NamespaceTenancy::Tenant { tenant, .. } => tenant,
            // The namespace doesn't exist yet: the tenant that would own it by name.
            NamespaceTenancy::NonTenant | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => {
                declarations.owner(namespace, |_| None).and_then(|id| declarations.tenant(id))?
            }
        };
        let claim = LostClaim { namespace, owner: Some(&*owner.name), by_selector: false };
        (owner.id != tenant.id).then_some(claim)
    })
}
