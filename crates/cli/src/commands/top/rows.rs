//! Tenants, pools and nodes of an input as rows.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use clap::ValueEnum;
use croft_inspect::{
    NodeState,
    admission::Admission,
    inventory::{self, Cost, NodeInfo},
    node_state,
};
use croft_manifest::{Input, InputError};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde::{Serialize, Serializer};

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
    pub(super) limits: BTreeMap<String, String>,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
    /// `True`, `False` with the reason, or empty.
    pub(super) ready: String,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) pool: Option<String>,
    pub(super) tenants: Vec<String>,
    pub(super) claim: Option<String>,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) pods: usize,
    #[serde(flatten, serialize_with = "cost")]
    pub(super) cost: Cost,
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
    pub(super) fn new(input: &Input, admission: &Admission, filter: Filter<'_>) -> Result<Self, Failure> {
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
        let users = users(input);
        let users_of = |pool: &str| users.get(pool).cloned().unwrap_or_default();
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
        let infos = inventory::node_infos(input, &croft_cloud::builtin_catalog());
        let infos: Vec<NodeInfo> = infos
            .into_iter()
            .filter(|node| filter.zone.is_none_or(|zone| zone == node.zone))
            .filter(|node| !is_narrowed || node.pool.as_ref().is_some_and(|pool| pools.contains(pool)))
            .collect();
        let mut pods_of: BTreeMap<&str, usize> = BTreeMap::new();
        for node in inventory::active_pods(input).filter_map(inventory::node_of) {
            *pods_of.entry(node).or_default() += 1;
        }
        let nodes: Vec<NodeRow> = infos
            .iter()
            .map(|node| NodeRow {
                name: node.name.clone(),
                tenants: node.pool.as_deref().map(users_of).unwrap_or_default(),
                pool: node.pool.clone(),
                claim: node.claim.clone(),
                instance_type: node.instance_type.clone(),
                zone: node.zone.clone(),
                capacity_type: node.capacity_type.clone(),
                pods: pods_of.get(node.name.as_str()).copied().unwrap_or_default(),
                cost: inventory::total_cost(std::iter::once(node)),
                state: state_of(input, node),
            })
            .collect();
        let tenants = tenant_rows(input, admission, filter, &infos);
        let pools = pools.iter().map(|pool| pool_row(input, pool, &nodes, &infos, users_of(pool))).collect();
        let cost = inventory::total_cost(infos.iter().filter(|node| node.pool.is_some()));
        Ok(Self { tenants, pools, nodes, cost })
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

fn state_of(input: &Input, info: &NodeInfo) -> NodeState {
    let node = input.nodes.get("", &info.name).map(|node| &node.object);
    let claim = info.claim.as_ref().and_then(|claim| input.claims.get("", claim)).map(|claim| &claim.object);
    node_state(node, claim, false).0
}

/// The tenants of each pool.
fn users(input: &Input) -> BTreeMap<String, Vec<String>> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for tenant in input.tenants.iter() {
        for pool in &tenant.spec.pools {
            users.entry(pool.clone()).or_default().push(tenant.name_any());
        }
    }
    users.values_mut().for_each(|tenants| tenants.sort_unstable());
    users
}

fn tenant_rows(
    input: &Input,
    admission: &Admission,
    filter: Filter<'_>,
    nodes: &[NodeInfo],
) -> Vec<TenantRow> {
    let by_namespace = inventory::tenants_by_namespace(input, admission.tenants());
    let mut rows = Vec::new();
    for tenant in input.tenants.iter() {
        let (name, pools) = (tenant.name_any(), &tenant.spec.pools);
        let is_kept = filter.tenant.is_none_or(|only| only == name)
            && filter.pool.is_none_or(|only| pools.iter().any(|pool| pool == only));
        if !is_kept {
            continue;
        }
        let namespaces: BTreeSet<&str> = by_namespace
            .iter()
            .filter(|(_, owner)| **owner == name)
            .map(|(namespace, _)| namespace.as_str())
            .collect();
        let pods: Vec<_> = inventory::active_pods(input)
            .filter(|pod| pod.metadata.namespace.as_deref().is_some_and(|n| namespaces.contains(n)))
            .collect();
        let its = || nodes.iter().filter(|node| node.pool.as_ref().is_some_and(|pool| pools.contains(pool)));
        rows.push(TenantRow {
            pending: pods.iter().filter(|pod| inventory::node_of(pod).is_none()).count(),
            pods: pods.len(),
            nodes: its().count(),
            cost: inventory::total_cost(its()),
            ready: ready(
                tenant.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
            ),
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
    nodes: &[NodeRow],
    infos: &[NodeInfo],
    tenants: Vec<String>,
) -> PoolRow {
    let pool = input.pools.get("", name);
    let its = || infos.iter().filter(|node| node.pool.as_deref() == Some(name));
    let is_registered = |claim: &str| its().any(|node| node.claim.as_deref() == Some(claim));
    let conditions = pool.and_then(|pool| pool.status.as_ref()).map(|status| status.conditions.as_slice());
    let limits = pool.map(|pool| &pool.spec.limits);
    PoolRow {
        name: name.to_owned(),
        tenants,
        nodes: its().count(),
        coming: input
            .claims
            .iter()
            .filter(|claim| claim.spec.pool == name && !is_registered(&claim.name_any()))
            .count(),
        pods: nodes.iter().filter(|node| node.pool.as_deref() == Some(name)).map(|node| node.pods).sum(),
        limits: limits.into_iter().flatten().map(|(key, limit)| (key.clone(), limit.0.clone())).collect(),
        cost: inventory::total_cost(its()),
        ready: ready(conditions.unwrap_or_default()),
    }
}

fn ready(conditions: &[Condition]) -> String {
    conditions.iter().find(|c| c.type_ == croft_api::condition::READY).map_or_else(String::new, |c| {
        if c.status == "True" { c.status.clone() } else { format!("{} ({})", c.status, c.reason) }
    })
}
