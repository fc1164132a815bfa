//! What a caller may ask of [`solve`](crate::solve).

use crate::{plan::PodKey, price::Price};

/// Options of a solve. The default is what the controller uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Multiple of the default search effort, which is proportional to classes and pods. 0 is plain
    /// first-fit-decreasing and nothing else.
    pub effort: u32,
    /// A plan whose machines cost this much is of no use: once it is certain that none costs less, nothing better is
    /// looked for.
    pub useless_from: Option<Price>,
    /// Surcharge on spot prices in thousandths, for the risk of losing the machine. 0 is off.
    pub spot_risk_permille: u32,
    /// What every node costs beside its price: agents, licences.
    pub per_node_cost: Price,
    /// The largest share of one workload's replicas on one node, in percent. 0 is off.
    pub max_share_percent: u32,
    /// At most this many alternatives per launch.
    pub max_options: usize,
    /// No alternative dearer than this many thousandths of the cheapest.
    pub option_price_permille: u32,
    /// Names of nodes to plan without: they count as absent and their pods as demand.
    pub without_nodes: Vec<String>,
    /// Those nodes still count against limits: they stay until what replaces them is there.
    pub without_counts: bool,
    /// Where there is room already, pods go where kube-scheduler would bind them, each to the emptiest node, machines on
    /// their way no later than others: what becomes of pods that nobody leads to their places. Those of
    /// `without_nodes` come node by node.
    pub as_bound: bool,
    /// Pods and names of nodes: no pod with the needs of this one is planned onto that node.
    pub ruled_out: Vec<(PodKey, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            effort: 1,
            useless_from: None,
            spot_risk_permille: 0,
            per_node_cost: Price::ZERO,
            max_share_percent: 0,
            max_options: 60,
            option_price_permille: 1250,
            without_nodes: Vec::new(),
            without_counts: false,
            as_bound: false,
            ruled_out: Vec::new(),
        }
    }
}
