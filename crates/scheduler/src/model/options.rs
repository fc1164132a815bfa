//! Options of [`solve`](crate::solve).

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{plan::PodKey, price::Price};

/// Options of a solve. The default is what the controller uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Multiple of the default search effort, which is proportional to classes and pods. 0 is plain
    /// first-fit-decreasing and nothing else.
    pub effort: u32,
    /// Steps that a plan may take beside those of `effort`, for as long as they find something cheaper: few pods are quickly
    /// searched, and a wrong choice is a large share of their cost. 0 is off, as at effort 0.
    pub small_plan_steps: u64,
    /// A plan whose instances cost this much is of no use: the search ends once every plan is proven to cost at least
    /// this.
    pub cost_cutoff: Option<Price>,
    /// Surcharge on spot prices in thousandths, for the risk of losing the instance. 0 is off.
    pub spot_risk_permille: u32,
    /// The cost of every node beside its price: agents, licences.
    pub per_node_cost: Price,
    /// The largest share of one workload's replicas on one node, in percent. 0 is off.
    pub max_share_percent: u32,
    /// At most this many alternatives per launch.
    pub max_options: usize,
    /// No alternative dearer than this many thousandths of the cheapest.
    pub option_price_permille: u32,
    /// Names of nodes to plan without: they count as absent and their pods as demand.
    pub without_nodes: Vec<String>,
    /// Such nodes still count against limits: they stay until their replacements are ready.
    pub without_counts: bool,
    /// Names of nodes that are about to go, beside those of `without_nodes`: no share counts them. Their pods stay where they are.
    pub leaving: Vec<String>,
    /// Binds pods onto existing and coming nodes as kube-scheduler does without nominations: each to the emptiest node.
    /// Pods of `without_nodes` come node by node.
    pub simulate_default_scheduler: bool,
    /// Pods and names of nodes: no pod with the needs of this one is planned onto that node.
    pub ruled_out: Vec<(PodKey, String)>,
    /// Names of nodes, and of claims of coming ones, that no pod is planned onto: those that are to be left as well.
    pub closed_nodes: Vec<String>,
    /// The templates that may launch.
    pub templates: LaunchTemplates,
}

/// The templates by which TenantPools may launch; all of them in pools that it doesn't restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchTemplates(BTreeMap<String, BTreeSet<String>>);

impl LaunchTemplates {
    /// Lets a pool launch by no other templates than these; by those that all calls name.
    pub fn restrict(&mut self, pool: &str, templates: &BTreeSet<String>) {
        match self.0.get_mut(pool) {
            Some(common) => common.retain(|template| templates.contains(template)),
            None => drop(self.0.insert(pool.to_owned(), templates.clone())),
        }
    }

    /// True if the pool may launch by the template.
    #[must_use]
    pub fn allow(&self, pool: &str, template: &str) -> bool {
        self.0.get(pool).is_none_or(|templates| templates.contains(template))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            effort: 1,
            small_plan_steps: 2_000_000,
            cost_cutoff: None,
            spot_risk_permille: 0,
            per_node_cost: Price::ZERO,
            max_share_percent: 0,
            max_options: 60,
            option_price_permille: 1250,
            without_nodes: Vec::new(),
            without_counts: false,
            leaving: Vec::new(),
            simulate_default_scheduler: false,
            ruled_out: Vec::new(),
            closed_nodes: Vec::new(),
            templates: LaunchTemplates::default(),
        }
    }
}
