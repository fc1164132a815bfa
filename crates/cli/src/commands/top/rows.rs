//! Tenants, pools and nodes of an input as rows.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use clap::ValueEnum;
use croft_api::stored::HasConditions as _;
use croft_inspect::{
    NodeState,
    admission::Admission,
    inventory::{self, Cost, NodeInfo},
    node_state,
    simulation::{pause_of_pool, time_of},
};
use croft_manifest::{Input, InputError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::{Serialize, Serializer};

use super::fill::{Fill, Measured, Requested};
use crate::failure::Failure;

/// The rows to keep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filter<'a> {
    pub(super) tenant: Option<&'a str>,
    pub(super) pool: Option<&'a str>,
    pub(super) zone: Option<&'a str>,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// By name
    Name,
    /// The most expensive first
    Cost,
    /// The most nodes first
    Nodes,
    /// The most pods first
    Pods,
    /// The most pending pods first
    Pending,
}

impl Sort {
    /// The next order of the live view.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Cost,
            Self::Cost => Self::Nodes,
            Self::Nodes => Self::Pods,
            Self::Pods => Self::Pending,
            Self::Pending => Self::Name,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Cost => "cost",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Pending => "pending",
        }
    }
}

/// Everything that is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rows {
    pub(super) tenants: Vec<TenantRow>,
    pub(super) pools: Vec<PoolRow>,
    pub(super) nodes: Vec<NodeRow>,
    /// Of the nodes in pools.
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
}

/// A tenant.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TenantRow {
    pub(super) name: String,
    pub(super) pools: Vec<String>,
    pub(super) namespaces: Vec<String>,
    pub(super) pods: usize,
    pub(super) pending: usize,
    pub(super) nodes: usize,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
    /// `True`, `False` with the reason, or empty.
    pub(super) ready: String,
}

/// Nodes of a template of a pool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateRow {
    pub(super) name: String,
    pub(super) nodes: usize,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
}

/// A pool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolRow {
    pub(super) name: String,
    pub(super) tenants: Vec<String>,
    pub(super) nodes: usize,
    /// NodeClaims without a node.
    pub(super) coming: usize,
    pub(super) pods: usize,
    /// Its templates, if its nodes are of several kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) templates: Vec<TemplateRow>,
    pub(super) limits: BTreeMap<String, String>,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
    /// `True`, `False` with the reason, or empty.
    pub(super) ready: String,
    /// The pause of voluntary disruption, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) pool: Option<String>,
    /// The template of its pool, if the nodes of that are of several kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) template: Option<String>,
    pub(super) tenants: Vec<String>,
    pub(super) claim: Option<String>,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) pods: usize,
    pub(super) cpu: Fill,
    pub(super) memory: Fill,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
    /// Since it was created; `None` in files.
    pub(super) age_seconds: Option<i64>,
    /// The page's word; but `blocked`, which the decision log knows, is `draining` here.
    pub(super) state: NodeState,
}

/// Dollars per hour as a decimal, how many nodes have no known price, and whether a price is an estimate.
fn cost<S: Serializer>(cost: &Cost, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct PerHour {
        cost_per_hour: String,
        estimated: bool,
        nodes_of_unknown_price: usize,
    }
    let Cost { sum, unknown, estimated } = *cost;
    PerHour { cost_per_hour: sum.to_string(), estimated, nodes_of_unknown_price: unknown }
        .serialize(serializer)
}

impl Rows {
    /// The rows of `input` that `filter` keeps.
    ///
    /// # Errors
    /// If the filter names a tenant or pool that doesn't exist.
    pub(super) fn new(
        input: &Input,
        measured: &Measured,
        admission: &Admission,
        filter: Filter<'_>,
    ) -> Result<Self, Failure> {
        let known = |kind: &str, name: Option<&str>, is_there: bool| match name {
            Some(name) if !is_there => Err(InputError::Other(format!(
                "there is no {kind} {name}: write the name of one, or leave it out"
            ))),
            _ => Ok(()),
        };
        known(
            "Tenant",
            filter.tenant,
            filter.tenant.is_none_or(|name| input.tenants.get("", name).is_some()),
        )?;
        known("TenantPool", filter.pool, filter.pool.is_none_or(|name| input.pools.get("", name).is_some()))?;
        let users = input.tenants_by_pool();
        let users_of =
            |pool: &str| -> Vec<String> { users.get(pool).into_iter().flatten().cloned().collect() };
        let pools: Vec<String> = input
            .pools
            .iter()
            .map(|pool| pool.name_any())
            .filter(|pool| filter.pool.is_none_or(|only| only == pool))
            .filter(|pool| {
                filter.tenant.is_none_or(|tenant| users_of(pool).iter().any(|user| user == tenant))
            })
            .collect();
        let is_narrowed = filter.pool.is_some() || filter.tenant.is_some();
        let kept: BTreeSet<&str> = pools.iter().map(String::as_str).collect();
        let infos = inventory::nodes(input);
        let infos: Vec<NodeInfo> = infos
            .into_iter()
            .filter(|node| filter.zone.is_none_or(|zone| zone == node.zone))
            .filter(|node| !is_narrowed || node.pool.as_deref().is_some_and(|pool| kept.contains(pool)))
            .collect();
        let mut pods_of: BTreeMap<&str, usize> = BTreeMap::new();
        for node in inventory::active_pods(input).filter_map(inventory::node_of) {
            *pods_of.entry(node).or_default() += 1;
        }
        let requested = Requested::new(input);
        let nodes = infos
            .iter()
            .map(|info| {
                let node = input.nodes.get("", &info.name).map(|node| &node.object);
                let (cpu, memory) = node.map(|node| requested.fill(node, measured)).unwrap_or_default();
                NodeRow {
                    tenants: info.pool.as_deref().map(users_of).unwrap_or_default(),
                    pods: pods_of.get(info.name.as_str()).copied().unwrap_or_default(),
                    cpu,
                    memory,
                    age_seconds: node.and_then(|node| measured.age(node)),
                    ..NodeRow::of(input, info)
                }
            })
            .collect();
        let tenants = tenant_rows(input, admission, filter, &infos);
        let nodes_of = by_pool(&infos);
        let coming = coming_by_pool(input, &infos);
        let pool_row = |name: &String| {
            let its = nodes_of.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let coming = coming.get(name.as_str()).copied().unwrap_or_default();
            let pods = its.iter().filter_map(|node| pods_of.get(node.name.as_str())).sum();
            pool_row(input, name, its, coming, pods, users_of(name))
        };
        let pools = pools.iter().map(pool_row).collect();
        let cost = inventory::total_cost(infos.iter().filter(|node| node.pool.is_some()));
        Ok(Self { tenants, pools, nodes, cost })
    }

    /// True if the nodes of some pool are of several kinds.
    pub(super) fn has_templates(&self) -> bool {
        self.pools.iter().any(|pool| !pool.templates.is_empty())
    }

    /// Orders the rows. Of a kind that has no such number, by name.
    pub(super) fn sort(&mut self, by: Sort) {
        let price = |cost: &Cost| Reverse(cost.sum);
        self.tenants.sort_by(|a, b| a.name.cmp(&b.name));
        self.pools.sort_by(|a, b| a.name.cmp(&b.name));
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        match by {
            Sort::Name => {}
            Sort::Cost => {
                self.tenants.sort_by_key(|row| price(&row.cost));
                self.pools.sort_by_key(|row| price(&row.cost));
                self.nodes.sort_by_key(|row| price(&row.cost));
            }
            Sort::Nodes => {
                self.tenants.sort_by_key(|row| Reverse(row.nodes));
                self.pools.sort_by_key(|row| Reverse(row.nodes));
            }
            Sort::Pods => {
                self.tenants.sort_by_key(|row| Reverse(row.pods));
                self.pools.sort_by_key(|row| Reverse(row.pods));
                self.nodes.sort_by_key(|row| Reverse(row.pods));
            }
            Sort::Pending => self.tenants.sort_by_key(|row| Reverse(row.pending)),
        }
    }
}

impl NodeRow {
    /// The row of a node without its pods.
    fn of(input: &Input, info: &NodeInfo) -> Self {
        let node = input.nodes.get("", &info.name).map(|node| &node.object);
        let claim =
            info.claim.as_ref().and_then(|claim| input.claims.get("", claim)).map(|claim| &claim.object);
        Self {
            name: info.name.clone(),
            pool: info.pool.clone(),
            template: info.template.clone(),
            tenants: Vec::new(),
            claim: info.claim.clone(),
            instance_type: info.instance_type.clone(),
            zone: info.zone.clone(),
            capacity_type: info.capacity_type.clone(),
            pods: 0,
            cpu: Fill::default(),
            memory: Fill::default(),
            cost: inventory::total_cost(std::iter::once(info)),
            age_seconds: None,
            state: node_state(node, claim, false).0,
        }
    }
}

/// Pods of a tenant.
#[derive(Clone, Copy, Debug, Default)]
struct PodCount {
    all: usize,
    pending: usize,
}

impl PodCount {
    /// The active pods of each tenant that owns some namespace.
    fn by_tenant<'o>(input: &Input, owners: &'o BTreeMap<String, String>) -> BTreeMap<&'o str, Self> {
        let mut counts: BTreeMap<&str, Self> = BTreeMap::new();
        for pod in inventory::active_pods(input) {
            let Some(tenant) = pod.metadata.namespace.as_ref().and_then(|name| owners.get(name)) else {
                continue;
            };
            let count = counts.entry(tenant).or_default();
            count.all += 1;
            count.pending += usize::from(inventory::node_of(pod).is_none());
        }
        counts
    }
}

/// The nodes of each pool, in their order.
fn by_pool(nodes: &[NodeInfo]) -> BTreeMap<&str, Vec<&NodeInfo>> {
    let mut pools: BTreeMap<&str, Vec<&NodeInfo>> = BTreeMap::new();
    for node in nodes {
        if let Some(pool) = &node.pool {
            pools.entry(pool).or_default().push(node);
        }
    }
    pools
}

/// The NodeClaims of each pool that aren't a node's.
fn coming_by_pool<'i>(input: &'i Input, nodes: &[NodeInfo]) -> BTreeMap<&'i str, usize> {
    let registered: BTreeSet<(&str, &str)> =
        nodes.iter().filter_map(|node| Some((node.pool.as_deref()?, node.claim.as_deref()?))).collect();
    let mut coming = BTreeMap::new();
    for claim in input.claims.iter() {
        let pool = claim.object.spec.pool.as_str();
        if !registered.contains(&(pool, claim.name_any().as_str())) {
            *coming.entry(pool).or_default() += 1;
        }
    }
    coming
}

fn tenant_rows(
    input: &Input,
    admission: &Admission,
    filter: Filter<'_>,
    nodes: &[NodeInfo],
) -> Vec<TenantRow> {
    let owners = inventory::tenants_by_namespace(input, admission.tenants());
    let mut namespaces_of = inventory::namespaces_by_tenant(&owners);
    let pods_of = PodCount::by_tenant(input, &owners);
    let nodes_of = by_pool(nodes);
    let mut rows = Vec::new();
    for tenant in input.tenants.iter() {
        let (name, pools): (_, Vec<String>) =
            (tenant.name_any(), input.pools_of_tenant(tenant).map(Cow::into_owned).collect());
        let pools = &pools;
        let is_kept = filter.tenant.is_none_or(|only| only == name)
            && filter.pool.is_none_or(|only| pools.iter().any(|pool| pool == only));
        if !is_kept {
            continue;
        }
        let namespaces = namespaces_of.remove(name.as_str()).unwrap_or_default();
        let PodCount { all, pending } = pods_of.get(name.as_str()).copied().unwrap_or_default();
        // A Tenant may list a pool twice.
        let own: BTreeSet<&str> = pools.iter().map(String::as_str).collect();
        let its = || own.iter().filter_map(|pool| nodes_of.get(pool)).flatten().copied();
        rows.push(TenantRow {
            pods: all,
            pending,
            nodes: its().count(),
            cost: inventory::total_cost(its()),
            ready: ready(tenant.conditions()),
            pools: pools.clone(),
            namespaces: namespaces.into_iter().map(str::to_owned).collect(),
            name,
        });
    }
    rows
}

fn pool_row(
    input: &Input,
    name: &str,
    nodes: &[&NodeInfo],
    coming: usize,
    pods: usize,
    tenants: Vec<String>,
) -> PoolRow {
    let pool = input.pools.get("", name);
    let limits = pool.map(|pool| &pool.spec.limits);
    let template = |name: &String| {
        let its = || nodes.iter().copied().filter(|node| node.template.as_ref() == Some(name));
        TemplateRow { name: name.clone(), nodes: its().count(), cost: inventory::total_cost(its()) }
    };
    let templates = pool.into_iter().flat_map(|pool| &pool.spec.templates);
    PoolRow {
        name: name.to_owned(),
        tenants,
        nodes: nodes.len(),
        coming,
        pods,
        templates: templates.map(|one| template(&one.name)).collect(),
        limits: limits.into_iter().flatten().map(|(key, limit)| (key.clone(), limit.0.clone())).collect(),
        cost: inventory::total_cost(nodes.iter().copied()),
        ready: ready(pool.map(|pool| pool.conditions()).unwrap_or_default()),
        paused: pause_of_pool(input, name, time_of(input)),
    }
}

fn ready(conditions: &[Condition]) -> String {
    conditions.iter().find(|c| c.type_ == croft_api::condition::READY).map_or_else(String::new, |c| {
        if c.status == "True" { c.status.clone() } else { format!("{} ({})", c.status, c.reason) }
    })
}
