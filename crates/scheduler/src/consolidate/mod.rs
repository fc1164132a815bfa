//! The cheapest valid cluster: which nodes to give back, and what to launch in their place.
//!
//! ```text
//!   Ask { candidates, terms per pool } ──▶ search ──▶ Consolidation { moves, stays, before, after }
//!                                            │ ▲
//!             a set of nodes to plan without ▼ │ Plan: their pods on nodes that stay, and on new machines
//!                                          solve
//! ```
//!
//! A large-neighbourhood search: a set of nodes is taken out, and the scheduler's own solve says where their pods
//! would go. What the others and the new machines cost less than the set is saved. Sets are prefixes of the
//! candidates by what is wasted on each (its price less what its pods would cost elsewhere), single nodes, and
//! random neighbourhoods; a prefix of all of them is a fresh start. Any number of nodes is exchanged for any
//! number of machines. Whatever a set's plan falls apart into is a move of its own, and each must be worth
//! its disturbance. It must come about, too: kube-scheduler binds a pod that was evicted to the emptiest node, whatever
//! was planned for it. Every solve counts its steps, and their sum ends the search, so that the same input gives the
//! same answer on any machine.

mod complete;
mod disturbance;
mod search;
mod split;
mod worth;

use std::collections::BTreeMap;

pub use complete::complete;
pub use disturbance::PodFacts;
pub use search::consolidate;

use crate::{CapacityType, ExistingPlacement, Machine, Options, Price};

/// A node that may be given back.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node's name.
    pub node: String,
    /// Its pool's name.
    pub pool: String,
    /// What it costs.
    pub price: Price,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Sum of [`PodFacts::disturbance`] of its pods.
    pub disturbance: Price,
}

/// What holds for one pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// A move must save more than this, and its disturbance.
    pub min_savings: Price,
    /// At most this many nodes may be given back now.
    pub nodes: usize,
    /// A move that launches machines gives its nodes back in at most so many steps, of that many each; one at least.
    pub steps: usize,
}

impl Terms {
    /// How many steps the controller gives a move: a pool whose budget is a tenth of its nodes can be made of others.
    pub const STEPS: usize = 10;
}

/// What to search for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How to solve; nodes to plan without are added to it.
    pub options: Options,
    /// Nodes that may be given back.
    pub candidates: Vec<Candidate>,
    /// By pool. Candidates of pools that aren't here stay.
    pub terms: BTreeMap<String, Terms>,
    /// A spot node gives way to a spot machine only if at least this many types could be launched in its place:
    /// otherwise each move ends on a rarer type, which is taken back the sooner.
    pub spot_options: usize,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            options: Options { without_counts: true, ..Options::default() },
            candidates: Vec::new(),
            terms: BTreeMap::new(),
            spot_options: 15,
        }
    }
}

/// Nodes that are given back together, and what takes their place.
#[derive(Clone, Debug)]
pub struct Move {
    /// The nodes, by name.
    pub nodes: Vec<String>,
    /// Machines to launch first.
    pub machines: Vec<Machine>,
    /// Where pods go that fit onto nodes that stay.
    pub onto: Vec<ExistingPlacement>,
    /// What the nodes cost.
    pub before: Price,
    /// What the machines cost.
    pub after: Price,
    /// What moving the pods has to be worth.
    pub disturbance: Price,
}

impl Move {
    /// What is saved, the disturbance not counted.
    #[must_use]
    pub fn saves(&self) -> Price {
        self.before.saturating_sub(self.after)
    }
}

/// Why a node stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Its pods find no place elsewhere; the first of the reasons.
    NoPlace(String),
    /// Its pods would cost as much elsewhere.
    NoSaving {
        /// What new machines for them would cost.
        elsewhere: Price,
    },
    /// Less would be saved than is asked for.
    TooLittle {
        /// What would be saved.
        saves: Price,
        /// What has to be saved: minSavings and the disturbance.
        needs: Price,
    },
    /// Its pods fit elsewhere, but not as kube-scheduler would bind them.
    TooTight,
    /// Too few spot types could be launched in its place.
    FewSpotOptions(usize),
    /// It takes pods of nodes that are given back.
    TakesPods,
    /// Pods of its pool wait for a place, which comes first.
    Busy,
    /// The pool's budget is used up.
    Budget,
    /// The search ended before it was its turn.
    NotTried,
}

impl Stay {
    /// The word for it, in conditions and for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoPlace(_) => "NoPlace",
            Self::NoSaving { .. } => "NoSaving",
            Self::TooLittle { .. } => "TooLittle",
            Self::TooTight => "TooTight",
            Self::FewSpotOptions(_) => "FewSpotOptions",
            Self::TakesPods => "TakesPods",
            Self::Busy => "Busy",
            Self::Budget => "Budget",
            Self::NotTried => "NotTried",
        }
    }
}

impl std::fmt::Display for Stay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoPlace(why) => write!(f, "its pods find no place elsewhere: {why}"),
            Self::NoSaving { elsewhere } => write!(f, "its pods would cost ${elsewhere}/h elsewhere"),
            Self::TooLittle { saves, needs } => {
                write!(f, "giving it back saves ${saves}/h, and ${needs}/h is asked for")
            }
            Self::TooTight => {
                f.write_str("its pods would fit elsewhere, but not as kube-scheduler would bind them")
            }
            Self::FewSpotOptions(options) => {
                write!(f, "only {options} spot types could be launched in its place")
            }
            Self::TakesPods => f.write_str("it takes pods of nodes that are given back"),
            Self::Busy => f.write_str("pods of its pool wait for a place, which comes first"),
            Self::Budget => f.write_str("the pool's disruption budget is used up"),
            Self::NotTried => f.write_str("the search ended before it was looked at alone"),
        }
    }
}

/// The answer of [`consolidate`].
#[derive(Clone, Debug, Default)]
pub struct Consolidation {
    /// What to do; each move holds by itself, whether or not the others are made.
    pub moves: Vec<Move>,
    /// Why each other candidate stays, by node.
    pub stays: BTreeMap<String, Stay>,
    /// What the candidates cost.
    pub before: Price,
    /// What is left of that after the moves, with the machines.
    pub after: Price,
    /// Work steps that the search took.
    pub steps: u64,
    /// True if the stop callback or the effort ended the search early.
    pub cut_short: bool,
}
