//! One scheduling run, from the demand to the plan.
//!
//! Begin with `solver`, whose function `solve` has the steps in order.
//!
//! | file | question that it answers |
//! |---|---|
//! | `solver` | which steps a run has, and which classes and pools share constraints |
//! | `block` | what one block of classes and pools is given, and what it returns |
//! | `limits` | which limits there are, and what is left of each |
//! | `shares` | which launches keep a pool within its shares |
//! | `tiers` | which classes a block solves together, heavier pools first |
//! | `tier_packing` | how the classes of one tier get domain sets, then instances |
//! | `findings` | what an attempt at a tier showed that the next one must respect |
//! | `offerings` | which offerings and domain sets a class may use |
//! | `tables` | what room each offering has beside DaemonSets, and what it costs |
//! | `item_types` | which pods are alike to the packing, and which of them a planned instance gets |
//! | `result` | the plan, with names in place of ids |
//! | `reasons` | why a pod has no place, for each pool |
//! | `limit_reasons` | which limit it is, and how much of it is used |

pub(crate) mod block;
pub(crate) mod findings;
pub(crate) mod item_types;
pub(crate) mod limit_reasons;
pub(crate) mod limits;
pub(crate) mod offerings;
pub(crate) mod reasons;
pub(crate) mod result;
pub(crate) mod shares;
pub(crate) mod solver;
pub(crate) mod tables;
pub(crate) mod tier_packing;
pub(crate) mod tiers;
