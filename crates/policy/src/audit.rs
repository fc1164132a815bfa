//! What breaks the invariant: pods that are where they mustn't be, or may come there, nodes that let them, and
//! declarations that can't hold.

use std::{collections::BTreeMap, fmt};

use crate::{
    denial::Rule,
    index::{Ground, PoolId, PoolRule, TenantRule, Tenants},
    judge::{plan_daemonset, plan_pod},
    model::{MARK_KEY, Node, Unassigned},
    policies,
    view::{DaemonSet, Pod},
};

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is violated.
    pub rule: Broken,
    /// Kind of the object, such as `Pod`.
    pub kind: &'static str,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The tenants whose ground it concerns.
    pub tenants: Vec<String>,
    /// What is, and what to do.
    pub message: String,
}

/// What can be violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// A pod of a tenant on a node outside its pools.
    PodOutside,
    /// A pod on a node of a pool that isn't its tenant's nor shared with it.
    PodInside,
    /// A waiting pod of a tenant that isn't pinned, or that would be refused.
    PodUnpinned,
    /// A waiting pod of nobody that could come onto a pool's node.
    PodNotKeptOut,
    /// A DaemonSet whose template isn't planned, or would be refused.
    DaemonSetUnplanned,
    /// A namespace that the API server's policies take for another's than it is.
    NamespaceUnmarked,
    /// A node of a pool without the pool's taint.
    NodeUntainted,
    /// A node of a pool without the mark, or with another pool's.
    NodeUnmarked,
    /// A node with the labels of two pools.
    NodeInTwoPools,
    /// A node with the mark of no pool that exists.
    NodeOfNoPool,
    /// A tenant with a pool that doesn't exist or doesn't count.
    PoolMissing,
    /// A pool with the label of an older one.
    PoolCollides,
    /// A namespace that two tenants claim, or that is exempt.
    ClaimLost,
}

impl Broken {
    /// Everything that can be violated.
    pub const ALL: [Self; 13] = [
        Self::PodOutside,
        Self::PodInside,
        Self::PodUnpinned,
        Self::PodNotKeptOut,
        Self::DaemonSetUnplanned,
        Self::NamespaceUnmarked,
        Self::NodeUntainted,
        Self::NodeUnmarked,
        Self::NodeInTwoPools,
        Self::NodeOfNoPool,
        Self::PoolMissing,
        Self::PoolCollides,
        Self::ClaimLost,
    ];

    /// In one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodOutside => "PodOutside",
            Self::PodInside => "PodInside",
            Self::PodUnpinned => "PodUnpinned",
            Self::PodNotKeptOut => "PodNotKeptOut",
            Self::DaemonSetUnplanned => "DaemonSetUnplanned",
            Self::NamespaceUnmarked => "NamespaceUnmarked",
            Self::NodeUntainted => "NodeUntainted",
            Self::NodeUnmarked => "NodeUnmarked",
            Self::NodeInTwoPools => "NodeInTwoPools",
            Self::NodeOfNoPool => "NodeOfNoPool",
            Self::PoolMissing => "PoolMissing",
            Self::PoolCollides => "PoolCollides",
            Self::ClaimLost => "ClaimLost",
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a bound pod mustn't be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misplaced<'t> {
    /// The tenant outside whose pools it is.
    pub outside: Option<&'t TenantRule>,
    /// The pools that it is in without being their tenants'.
    pub inside: Vec<PoolId>,
}

impl PartialEq for TenantRule {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.name == other.name
    }
}

impl Eq for TenantRule {}

impl Misplaced<'_> {
    /// True if it is where it may be.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.outside.is_none() && self.inside.is_empty()
    }
}

/// Whether a pod of `namespace` may be on `node`. A node that isn't known is in no pool.
#[must_use]
pub fn misplaced<'t>(tenants: &'t Tenants, namespace: &str, node: &str) -> Misplaced<'t> {
    let rules = tenants.rules();
    let ground = tenants.ground(namespace);
    let pools = tenants.node(node).map(|pools| &*pools.labelled).unwrap_or_default();
    let own = |pool: &PoolId| match ground {
        Ground::Tenant { tenant, .. } => tenant.may_use(*pool),
        Ground::Nobody => rules.pool(*pool).is_some_and(|p| p.is_shared_with(namespace)),
        Ground::Exempt | Ground::Unknown | Ground::Unread => true,
    };
    match ground {
        Ground::Exempt | Ground::Unknown | Ground::Unread => return Misplaced::default(),
        Ground::Nobody if rules.unassigned() == Unassigned::Allow || rules.is_shared_with(namespace) => {
            return Misplaced::default();
        }
        Ground::Nobody | Ground::Tenant { .. } => {}
    }
    let outside = match ground {
        Ground::Tenant { tenant, .. } if !pools.iter().any(own) => Some(tenant),
        _ => None,
    };
    Misplaced { outside, inside: pools.iter().copied().filter(|pool| !own(pool)).collect() }
}

/// The tenants that may use `pool`.
fn users(tenants: &Tenants, pool: PoolId) -> Vec<String> {
    tenants.rules().tenants().iter().filter(|t| t.may_use(pool)).map(|t| t.name.to_string()).collect()
}

/// What is wrong with a pod that isn't finished. One that is being deleted isn't asked about.
#[must_use]
pub fn pod(tenants: &Tenants, namespace: &str, pod: &Pod<'_>) -> Vec<Finding> {
    let finding = |rule, tenants, message| Finding {
        rule,
        kind: "Pod",
        namespace: Some(namespace.to_owned()),
        name: pod.metadata.name.to_string(),
        tenants,
        message,
    };
    let node = pod.spec.node_name.as_str();
    if node.is_empty() {
        return waiting(tenants, namespace, pod).into_iter().map(|(r, t, m)| finding(r, t, m)).collect();
    }
    let Misplaced { outside, inside } = misplaced(tenants, namespace, node);
    let mut findings = Vec::new();
    if pod.metadata.annotations.as_ref().is_some_and(|a| a.mirror.is_some()) {
        // A static pod runs wherever its kubelet is told to; what a tenant's Services select is what counts.
        findings.extend(outside.map(|tenant| {
            let message = format!(
                "mirrors a static pod of node {node}, outside the pools of tenant {} ({}), and the tenant's Services may \
                 select it; remove its manifest from the node",
                tenant.name,
                tenant.pool_names()
            );
            finding(Broken::PodOutside, vec![tenant.name.to_string()], message)
        }));
        return findings;
    }
    if let Some(tenant) = outside {
        let message = format!(
            "runs on node {node}, outside the pools of its tenant {} ({}); evict it, and it comes again in its place",
            tenant.name,
            tenant.pool_names()
        );
        findings.push(finding(Broken::PodOutside, vec![tenant.name.to_string()], message));
    }
    for pool in inside {
        let name = tenants.rules().pool(pool).map(|p| p.name.to_string()).unwrap_or_default();
        let owners = users(tenants, pool);
        let message = format!(
            "runs on node {node} of pool {name}, which isn't its tenant's nor shared with namespace {namespace}; evict it, or \
             add the namespace to spec.sharedWith of TenantPool {name}"
        );
        findings.push(finding(Broken::PodInside, owners, message));
    }
    findings
}

fn waiting(tenants: &Tenants, namespace: &str, pod: &Pod<'_>) -> Option<(Broken, Vec<String>, String)> {
    let planned = plan_pod(tenants, namespace, pod);
    if planned.allowed() && planned.patch.is_empty() {
        return None;
    }
    let rule = if planned.tenant.is_some() { Broken::PodUnpinned } else { Broken::PodNotKeptOut };
    let message = match &planned.denial {
        Some(denial) => format!("waits, and would be refused today: {denial}"),
        None if planned.tenant.is_some() => format!(
            "waits without being pinned to pool {}; it was made before Croft knew its tenant: delete it, and it comes again \
             right",
            planned.pool.unwrap_or_default()
        ),
        None => "waits and tolerates pools' taints, without a node affinity that keeps it off them; it was made before \
                 Croft: delete it, and it comes again right"
            .to_owned(),
    };
    Some((rule, planned.tenant.map(str::to_owned).into_iter().collect(), message))
}

/// What is wrong with a DaemonSet that isn't being deleted.
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
        None if planned.rule == Rule::Exempt => "its template holds what Croft injected while its namespace was not exempt; \
                                                 the controller takes that out: see that it runs"
            .to_owned(),
        None => "its template isn't planned, so its controller makes pods for nodes where they can't run, again and again; \
                 it was made before Croft: change anything of it, such as a label, and it is planned"
            .to_owned(),
    };
    Some(Finding {
        rule: Broken::DaemonSetUnplanned,
        kind: "DaemonSet",
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        tenants: planned.tenant.map(str::to_owned).into_iter().collect(),
        message,
    })
}

/// What is wrong with the marks of a namespace, by which the API server's policies know whose it is. What isn't
/// there yet counts only in the cluster, where the controller writes it, and on a tenant's ground.
#[must_use]
pub fn namespace(
    tenants: &Tenants,
    name: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    in_cluster: bool,
) -> Vec<Finding> {
    let owner = match tenants.ground(name) {
        Ground::Unknown | Ground::Unread => return Vec::new(),
        Ground::Tenant { tenant, .. } => Some(tenant),
        Ground::Nobody | Ground::Exempt => None,
    };
    let (wanted_labels, wanted_annotations) = policies::namespace_marks(tenants.rules(), name, owner);
    let of_labels = wanted_labels.iter().map(|(key, wanted)| ("label", *key, wanted, labels.get(*key)));
    let of_annotations =
        wanted_annotations.iter().map(|(key, wanted)| ("annotation", *key, wanted, annotations.get(*key)));
    let mut findings = Vec::new();
    for (kind, key, wanted, found) in of_labels.chain(of_annotations) {
        let message = match (wanted, found) {
            (wanted, found) if wanted.as_ref() == found => continue,
            (Some(wanted), None) if owner.is_some() && in_cluster => format!(
                "lacks the {kind} {key}: {wanted}, by which policies hold its pods while Croft is away; the controller writes \
                 it: see that it runs"
            ),
            (_, None) => continue,
            (Some(wanted), Some(found)) => {
                format!(
                    "has {found} in the {kind} {key}, which should hold {wanted}; the controller puts it right: see that it runs"
                )
            }
            (None, Some(found)) => format!(
                "has {found} in the {kind} {key}, which it should not have; the controller takes it away: see that it runs"
            ),
        };
        findings.push(Finding {
            rule: Broken::NamespaceUnmarked,
            kind: "Namespace",
            namespace: None,
            name: name.to_owned(),
            tenants: owner.iter().map(|tenant| tenant.name.to_string()).collect(),
            message,
        });
    }
    findings
}

/// What is wrong with a node.
#[must_use]
pub fn node(tenants: &Tenants, node: &Node) -> Vec<Finding> {
    let rules = tenants.rules();
    let finding = |rule, tenants, message| Finding {
        rule,
        kind: "Node",
        namespace: None,
        name: node.name.clone(),
        tenants,
        message,
    };
    let mut pools: Vec<PoolId> = node.labels.iter().filter_map(|(k, v)| rules.by_label(k, v)).collect();
    pools.sort_unstable();
    pools.dedup();
    let mark = node.labels.get(MARK_KEY);
    let Some(first) = pools.first().and_then(|id| rules.pool(*id)) else {
        return mark
            .map(|mark| {
                let message = format!("carries {MARK_KEY}={mark}, but there is no such pool; remove the label, or make the TenantPool");
                finding(Broken::NodeOfNoPool, Vec::new(), message)
            })
            .into_iter()
            .collect();
    };
    let owners: Vec<String> = pools.iter().flat_map(|pool| users(tenants, *pool)).collect();
    let mut findings = Vec::new();
    if pools.len() > 1 {
        let names: Vec<&str> = pools.iter().filter_map(|id| rules.pool(*id)).map(|p| &*p.name).collect();
        let message = format!(
            "carries the labels of {} at once, so pods of all of them come here; keep one",
            names.join(" and ")
        );
        findings.push(finding(Broken::NodeInTwoPools, owners.clone(), message));
        return findings;
    }
    findings.extend(
        untainted(node, first).map(|message| finding(Broken::NodeUntainted, owners.clone(), message)),
    );
    if mark.map(String::as_str) != Some(first.mark()) {
        let message = format!(
            "is in pool {} but lacks {MARK_KEY}={}, which keeps strangers out; label it",
            first.name,
            first.mark()
        );
        findings.push(finding(Broken::NodeUnmarked, owners, message));
    } else if node.labels.get(&*first.key).map(String::as_str) != Some(&*first.value) {
        let message = format!(
            "carries the mark of pool {} but not {}={}; label it",
            first.name, first.key, first.value
        );
        findings.push(finding(Broken::NodeUnmarked, owners, message));
    }
    findings
}

fn untainted(node: &Node, pool: &PoolRule) -> Option<String> {
    let has = |effect| {
        node.taints.iter().any(|t| *t.key == *pool.key && *t.value == *pool.value && t.effect == effect)
    };
    let missing = pool.effects.iter().find(|effect| !has(*effect))?;
    Some(format!(
        "is in pool {} but lacks the taint {}={}:{missing}, so others' pods may come; taint it",
        pool.name, pool.key, pool.value
    ))
}

/// What is wrong with the declarations.
#[must_use]
pub fn declarations(tenants: &Tenants) -> Vec<Finding> {
    let rules = tenants.rules();
    let lost = lost_claims(tenants);
    let mut findings = Vec::new();
    for (pool, older) in rules.collisions() {
        findings.push(Finding {
            rule: Broken::PoolCollides,
            kind: "TenantPool",
            namespace: None,
            name: pool.to_string(),
            tenants: Vec::new(),
            message: format!("has the label of the older pool {older} and so doesn't count; make it anew with another key or value"),
        });
    }
    for tenant in rules.tenants() {
        let finding = |rule, message| Finding {
            rule,
            kind: "Tenant",
            namespace: None,
            name: tenant.name.to_string(),
            tenants: vec![tenant.name.to_string()],
            message,
        };
        for (pool, _) in tenant.pools.iter().filter(|(_, id)| id.is_none()) {
            let message = format!(
                "names pool {pool}, which doesn't exist or doesn't count; its pods there are refused: make it, or correct spec.pools"
            );
            findings.push(finding(Broken::PoolMissing, message));
        }
        for claim in lost.get(&*tenant.name).into_iter().flatten() {
            findings.push(finding(Broken::ClaimLost, claim.to_string()));
        }
    }
    findings
}

/// A namespace that a tenant claims and does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostClaim<'t> {
    /// The namespace.
    pub namespace: &'t str,
    /// The older tenant that has it; `None` if it is exempt.
    pub owner: Option<&'t str>,
    /// True if the claim is the selector's alone: `spec.namespaces` doesn't name the namespace.
    pub by_selector: bool,
}

impl fmt::Display for LostClaim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, owner, by_selector } = self;
        match owner {
            Some(owner) if *by_selector => write!(
                f,
                "namespace {namespace}, which spec.namespaceSelector matches, belongs to the older Tenant {owner}; change one of \
                 the two selectors, or the namespace's labels"
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

/// The namespaces that tenants claim and do not get, by tenant: those that they name first, each part sorted.
#[must_use]
pub fn lost_claims(tenants: &Tenants) -> BTreeMap<&str, Vec<LostClaim<'_>>> {
    let mut lost: BTreeMap<&str, Vec<LostClaim<'_>>> = BTreeMap::new();
    for tenant in tenants.rules().tenants() {
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

fn lost_names<'t>(tenants: &'t Tenants, tenant: &'t TenantRule) -> impl Iterator<Item = LostClaim<'t>> {
    let rules = tenants.rules();
    tenant.claimed_names().filter_map(move |namespace| {
        let owner = match tenants.ground(namespace) {
            Ground::Exempt => return Some(LostClaim { namespace, owner: None, by_selector: false }),
            Ground::Tenant { tenant, .. } => tenant,
            // It doesn't exist yet: the tenant that would have it by name.
            Ground::Nobody | Ground::Unknown | Ground::Unread => {
                rules.owner(namespace, |_| None).and_then(|id| rules.tenant(id))?
            }
        };
        let claim = LostClaim { namespace, owner: Some(&*owner.name), by_selector: false };
        (owner.id != tenant.id).then_some(claim)
    })
}
