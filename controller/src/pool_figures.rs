//! Figures per tenant and pool for the metrics: pending pods, nodes, price, headroom, evictions, launches.
//!
//! The engine refreshes them after each pass. A figure costs what changed: nodes, prices and labels are found again for a pool
//! whose version has grown, pending pods after a change of the plan, and the metrics are written when [`PoolFigures::changes`]
//! has grown. Labels name existing objects only, so that the number of series is bounded by Tenants and TenantPools.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::condition::is_true;
use croft_policy::Tenants;
use croft_scheduler::{PodKey, Price};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;

use crate::{
    definitions::{
        conditions::DISRUPTION_PAUSED,
        metrics::{NODE_IN_FLIGHT, NOT_PLANNED},
    },
    provisioning::planning::Planning,
    state::{BoundPod, Snapshot, price},
};

/// A tenant and a pool, either of which may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct PoolLabels {
    /// The tenant: of the pod's namespace, or the only one that uses the pool.
    pub tenant: String,
    /// The pool.
    pub pool: String,
}

impl PoolLabels {
    /// The labels of a pool's own figures.
    fn of_pool(snapshot: &Snapshot, pool: &str) -> Self {
        let tenant = snapshot.tenant_of_pool(pool).unwrap_or_default();
        Self { tenant: tenant.to_owned(), pool: known_pool(snapshot, pool) }
    }

    /// The labels of figures about pods of a namespace.
    fn of_pod(snapshot: &Snapshot, view: &Tenants, namespace: &str, pool: &str) -> Self {
        let Some(tenant) = view.tenancy(namespace).tenant() else {
            return Self { tenant: String::new(), pool: known_pool(snapshot, pool) };
        };
        let only = match &*tenant.pools {
            [(name, _)] if pool.is_empty() => name,
            _ => pool,
        };
        Self { tenant: tenant.name.to_string(), pool: known_pool(snapshot, only) }
    }

    /// True while both objects exist.
    #[must_use]
    pub fn exists(&self, snapshot: &Snapshot) -> bool {
        (self.tenant.is_empty() || snapshot.tenants().contains_key(&self.tenant))
            && (self.pool.is_empty() || snapshot.pools().contains_key(&self.pool))
    }
}

/// A template of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct TemplateLabels {
    /// The only tenant that uses the pool; empty if there are several or none.
    pub tenant: String,
    /// The pool.
    pub pool: String,
    /// The template.
    pub template: String,
}

/// The pool's name; empty if there is no such pool.
fn known_pool(snapshot: &Snapshot, pool: &str) -> String {
    if snapshot.pools().contains_key(pool) { pool.to_owned() } else { String::new() }
}

/// Nodes and price of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolHoldings {
    /// NodeClaims, and nodes without one.
    pub nodes: usize,
    /// Price of the NodeClaims' instances.
    pub cost: Price,
    /// Headroom pods that are wanted and that have a place, if the pool has headroom.
    pub headroom: Option<(usize, usize)>,
    /// True if its condition says that voluntary disruption is paused.
    pub paused: bool,
}

/// NodeClaims of one template of a pool, and the price of their instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateHoldings {
    /// NodeClaims.
    pub nodes: usize,
    /// Price of their instances.
    pub cost: Price,
}

/// Holdings of one pool, as they were counted.
#[derive(Debug)]
struct Counted {
    /// The pool's version then. It grows with every change of a Tenant, so the labels are of the same version.
    version: u64,
    labels: PoolLabels,
    held: PoolHoldings,
    /// By the names of the pool's templates; empty if its nodes are of one kind.
    templates: BTreeMap<String, TemplateHoldings>,
}

/// The figures.
#[derive(Debug, Default)]
pub struct PoolFigures {
    holdings: BTreeMap<String, Counted>,
    /// Plan version and scheduling run that the pending pods were counted at.
    counted_at: Option<(u64, u64)>,
    pending: BTreeMap<(PoolLabels, &'static str), usize>,
    oldest: BTreeMap<PoolLabels, Timestamp>,
    evictions: BTreeMap<PoolLabels, u64>,
    launches: BTreeMap<(PoolLabels, &'static str), u64>,
    changes: u64,
}

impl PoolFigures {
    /// Counts what has changed, and forgets what doesn't exist any more.
    pub fn refresh(&mut self, snapshot: &Snapshot, planning: &Planning, view: &Tenants) {
        self.holdings.retain(|pool, _| snapshot.pools().contains_key(pool));
        for pool in snapshot.pools().keys() {
            let version = snapshot.pool_version(pool);
            let headroom = snapshot.headroom_of(pool).map(|status| (status.wanted, status.placed));
            let paused = is_paused(snapshot, pool);
            let known =
                self.holdings.get(pool).map(|known| (known.version, known.held.headroom, known.held.paused));
            if known != Some((version, headroom, paused)) {
                let labels = PoolLabels::of_pool(snapshot, pool);
                let held = PoolHoldings { headroom, paused, ..holdings(snapshot, pool) };
                let templates = template_holdings(snapshot, pool);
                self.holdings.insert(pool.clone(), Counted { version, labels, held, templates });
                self.changes += 1;
            }
        }
        self.evictions.retain(|labels, _| labels.exists(snapshot));
        self.launches.retain(|(labels, _), _| labels.exists(snapshot));
        // The plan version also grows with each pool or Tenant that goes, and its series with it.
        let at = Some((snapshot.plan_version(), planning.counts().runs));
        if self.counted_at != at {
            self.counted_at = at;
            self.count_pending(snapshot, planning, view);
            self.changes += 1;
        }
    }

    /// Grows with every change of a figure.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    fn count_pending(&mut self, snapshot: &Snapshot, planning: &Planning, view: &Tenants) {
        // By borrowed names first: pending pods are many, and share few.
        let mut groups: BTreeMap<(&str, &str, &'static str), (usize, Option<Timestamp>)> = BTreeMap::new();
        for key in snapshot.demand() {
            let Some(pod) = snapshot.pods().get(key) else { continue };
            let (pool, reason) = match snapshot.nominated_pool(key) {
                Some(pool) => (pool, NODE_IN_FLIGHT),
                None => planning.pending(key).unwrap_or(("", NOT_PLANNED)),
            };
            let (count, oldest) = groups.entry((&key.namespace, pool, reason)).or_default();
            *count += 1;
            *oldest = [*oldest, pod.pending_since].into_iter().flatten().min();
        }
        self.pending.clear();
        self.oldest.clear();
        for ((namespace, pool, reason), (count, oldest)) in groups {
            let labels = PoolLabels::of_pod(snapshot, view, namespace, pool);
            if let Some(since) = oldest {
                let all = self.oldest.entry(labels.clone()).or_insert(since);
                *all = since.min(*all);
            }
            *self.pending.entry((labels, reason)).or_default() += count;
        }
    }

    /// Counts an eviction that the API server accepted.
    pub fn count_eviction(&mut self, snapshot: &Snapshot, view: &Tenants, pod: &PodKey) {
        let node = snapshot.pods().get(pod).and_then(|pod| pod.node.as_deref()).unwrap_or_default();
        let pool = snapshot.pool_of_node(node).unwrap_or_default();
        let labels = PoolLabels::of_pod(snapshot, view, &pod.namespace, pool);
        *self.evictions.entry(labels).or_default() += 1;
        self.changes += 1;
    }

    /// Counts a launch that ended.
    pub fn count_launch(&mut self, snapshot: &Snapshot, claim: &str, outcome: &'static str) {
        let pool = snapshot.claims().get(claim).map(|claim| claim.spec.pool.as_str()).unwrap_or_default();
        *self.launches.entry((PoolLabels::of_pool(snapshot, pool), outcome)).or_default() += 1;
        self.changes += 1;
    }

    /// The labels of each pool's own figures, and its holdings.
    pub fn holdings(&self) -> impl Iterator<Item = (&PoolLabels, PoolHoldings)> {
        self.holdings.values().map(|counted| (&counted.labels, counted.held))
    }

    /// The labels of each template of a pool, and its holdings.
    pub fn template_holdings(&self) -> impl Iterator<Item = (TemplateLabels, TemplateHoldings)> {
        self.holdings.values().flat_map(|counted| {
            counted.templates.iter().map(|(template, held)| {
                let PoolLabels { tenant, pool } = counted.labels.clone();
                (TemplateLabels { tenant, pool, template: template.clone() }, *held)
            })
        })
    }

    /// Pending pods by labels and reason.
    #[must_use]
    pub const fn pending(&self) -> &BTreeMap<(PoolLabels, &'static str), usize> {
        &self.pending
    }

    /// Since when the oldest pending pod is pending.
    #[must_use]
    pub const fn oldest(&self) -> &BTreeMap<PoolLabels, Timestamp> {
        &self.oldest
    }

    /// Evictions so far.
    #[must_use]
    pub const fn evictions(&self) -> &BTreeMap<PoolLabels, u64> {
        &self.evictions
    }

    /// Launches so far, by outcome.
    #[must_use]
    pub const fn launches(&self) -> &BTreeMap<(PoolLabels, &'static str), u64> {
        &self.launches
    }
}

/// How long each pod waited for the node that was launched for it.
#[must_use]
pub fn waits(snapshot: &Snapshot, view: &Tenants, bound: Vec<BoundPod>) -> Vec<(PoolLabels, Duration)> {
    let labelled =
        |pod: BoundPod| (PoolLabels::of_pod(snapshot, view, &pod.namespace, &pod.pool), pod.waited);
    bound.into_iter().map(labelled).collect()
}

fn is_paused(snapshot: &Snapshot, pool: &str) -> bool {
    let status = snapshot.pools().get(pool).and_then(|pool| pool.status.as_ref());
    status.is_some_and(|status| is_true(&status.conditions, DISRUPTION_PAUSED))
}

fn holdings(snapshot: &Snapshot, pool: &str) -> PoolHoldings {
    let mut held = PoolHoldings::default();
    let mut with_claim: BTreeSet<&str> = BTreeSet::new();
    for (_, claim) in snapshot.claims_of_pool(pool) {
        held.nodes += 1;
        held.cost = held.cost.saturating_add(price(claim).unwrap_or_default());
        with_claim.extend(claim.status.as_ref().and_then(|status| status.node_name.as_deref()));
    }
    held.nodes +=
        snapshot.nodes_of_pool(pool).filter(|(name, _)| !with_claim.contains(name.as_str())).count();
    held
}

/// NodeClaims by the template that they were launched by, as far as the pool still has it.
fn template_holdings(snapshot: &Snapshot, pool: &str) -> BTreeMap<String, TemplateHoldings> {
    let templates = snapshot.pools().get(pool).into_iter().flat_map(|pool| &pool.spec.templates);
    let mut held: BTreeMap<String, TemplateHoldings> =
        templates.map(|template| (template.name.clone(), TemplateHoldings::default())).collect();
    if held.is_empty() {
        return held;
    }
    for (_, claim) in snapshot.claims_of_pool(pool) {
        if let Some(held) = claim.template().and_then(|template| held.get_mut(template)) {
            held.nodes += 1;
            held.cost = held.cost.saturating_add(price(claim).unwrap_or_default());
        }
    }
    held
}
