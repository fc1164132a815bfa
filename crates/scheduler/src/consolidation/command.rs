use std::collections::{BTreeMap, BTreeSet};

use crate::{CapacityType, ExistingPlacement, Options, PlannedInstance, Price};

/// A node that may be removed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node's name.
    pub node: String,
    /// Its pool's name.
    pub pool: String,
    /// The price that ends with it, per hour.
    pub price: Price,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Disruption cost of moving its pods.
    pub disruption_cost: Price,
    /// The templates of its pool that may launch in its place; `None` if all may.
    pub templates: Option<BTreeSet<String>>,
}

/// Constraints of one pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolConstraints {
    /// A command must save more than this and its disruption cost.
    pub min_savings: Price,
    /// At most this many nodes may be removed now.
    pub nodes: usize,
    /// A command that launches instances removes its nodes in at most so many steps, of that many each; one
    /// at least.
    pub steps: usize,
}

impl PoolConstraints {
    /// Steps that the controller gives a command: a pool with a budget of a tenth of its nodes can be
    /// replaced whole.
    pub const STEPS: usize = 10;
}

/// The question of a search.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Options of each solve; nodes to plan without are added to them.
    pub options: Options,
    /// Nodes that may be removed.
    pub candidates: Vec<Candidate>,
    /// By pool. Candidates of other pools stay.
    pub constraints: BTreeMap<String, PoolConstraints>,
    /// A spot node is replaced by a spot instance only with at least this many alternative types: otherwise
    /// each command ends on a rarer type, which is interrupted sooner.
    pub spot_options: usize,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            options: Options { without_counts: true, ..Options::default() },
            candidates: Vec::new(),
            constraints: BTreeMap::new(),
            spot_options: 15,
        }
    }
}

/// Nodes that are removed together, and what replaces them.
#[derive(Clone, Debug)]
pub struct Command {
    /// The nodes, by name.
    pub nodes: Vec<String>,
    /// Instances to launch first.
    pub instances: Vec<PlannedInstance>,
    /// Placements onto nodes that stay.
    pub onto: Vec<ExistingPlacement>,
    /// Price of the nodes.
    pub before: Price,
    /// Price of the instances.
    pub after: Price,
    /// Disruption cost of moving the pods.
    pub disruption_cost: Price,
}

impl Command {
    /// Savings, disruption cost not subtracted.
    #[must_use]
    pub fn saves(&self) -> Price {
        self.before.saturating_sub(self.after)
    }
}

/// Why a candidate stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Its pods are unschedulable elsewhere; the first of the reasons.
    PodsUnschedulable(String),
    /// Its pods would cost as much elsewhere.
    NoSaving {
        /// Price of new instances for them; `None` if it is unknown.
        elsewhere: Option<Price>,
    },
    /// The savings are below the minimum.
    BelowMinSavings {
        /// Savings.
        saves: Price,
        /// Minimum savings: minSavings and the disruption cost.
        needs: Price,
    },
    /// Its pods fit elsewhere, but not as kube-scheduler would bind them.
    SchedulerWouldNotFit,
    /// Without it, its pool would break a share, which is named.
    PoolShare(String),
    /// Too few spot types are available to replace it.
    FewSpotOptions(usize),
    /// It receives pods of nodes that are removed.
    ReceivesPods,
    /// Pods of its pool are pending, which comes first.
    Busy,
    /// The pool's disruption budget is used up.
    Budget,
    /// The search ended before it was evaluated.
    NotTried,
}

impl Rejection {
    /// The reason as it appears in conditions and JSON.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PodsUnschedulable(_) => "PodsUnschedulable",
            Self::NoSaving { .. } => "NoSaving",
            Self::BelowMinSavings { .. } => "BelowMinSavings",
            Self::SchedulerWouldNotFit => "SchedulerWouldNotFit",
            Self::PoolShare(_) => "PoolShare",
            Self::FewSpotOptions(_) => "FewSpotOptions",
            Self::ReceivesPods => "ReceivesPods",
            Self::Busy => "Busy",
            Self::Budget => "Budget",
            Self::NotTried => "NotTried",
        }
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PodsUnschedulable(why) => write!(f, "its pods are unschedulable elsewhere: {why}"),
            Self::NoSaving { elsewhere: Some(price) } => {
                write!(f, "its pods would cost ${price}/h elsewhere")
            }
            Self::NoSaving { elsewhere: None } => {
                f.write_str("its pods would need an instance of unknown price elsewhere")
            }
            Self::BelowMinSavings { saves, needs } => {
                write!(f, "removing it saves ${saves}/h, less than the minimum of ${needs}/h")
            }
            Self::SchedulerWouldNotFit => {
                f.write_str("its pods would fit elsewhere, but not as kube-scheduler would bind them")
            }
            Self::PoolShare(share) => write!(f, "removing it would break a share of its pool: {share}"),
            Self::FewSpotOptions(options) => {
                write!(f, "only {options} spot types could be launched in its place")
            }
            Self::ReceivesPods => f.write_str("it receives pods of nodes that are removed"),
            Self::Busy => f.write_str("pods of its pool are pending, which comes first"),
            Self::Budget => f.write_str("the pool's disruption budget is used up"),
            Self::NotTried => f.write_str("the search ended before it was evaluated alone"),
        }
    }
}

/// The commands that make the cluster cheaper, and why others were rejected.
#[derive(Clone, Debug, Default)]
pub struct Consolidation {
    /// Commands; each holds by itself, whether or not the others are carried out.
    pub commands: Vec<Command>,
    /// Why each other candidate stays, by node.
    pub rejections: BTreeMap<String, Rejection>,
    /// Price of the candidates.
    pub before: Price,
    /// Price after the commands, new instances included.
    pub after: Price,
    /// Work steps of the search.
    pub steps: u64,
    /// True if the cancel callback or the effort ended the search early.
    pub cut_short: bool,
}
