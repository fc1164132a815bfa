//! Disruption: removes nodes that cost more than they should, or aren't what they should be. The engine runs [`Disruption`]
//! in each pass.
//!
//! ```text
//!   interruption          taken by the cloud        -> replaced, or drained at once
//!   replacement           replacements initialized  -> validated -> replaced claims deleted -> termination drains
//!   repair                not Ready for long        -> deleted, within the breaker's cap
//!   emptiness             no pods                   -> cordoned, checked, deleted
//!   drift                 expired, drifted          -> a command
//!   template_return       a heavier template again  -> due, as drifted nodes are
//!   candidates            underutilised             -> a search
//!   validation            commands of the search    -> validated on the current snapshot, and started
//!   consolidation_status  why each node stays       -> condition Consolidatable on its claim
//! ```
//!
//! One ledger of budgets covers all of them but interruption and repair; the breaker caps those. The first decider in the
//! list takes from the budget first. What could stay is removed only if its pool keeps its shares (`shares`): empty nodes, and those
//! of consolidation. The rules of eligibility, blockers, cost and budgets are `croft_disruption`'s.

pub mod budgets;
pub mod candidates;
pub mod consolidation_status;
mod decider;
pub mod drift;
pub mod eligibility;
pub mod emptiness;
pub mod interruption;
mod node_blocker;
pub mod outcomes;
pub mod repair;
pub mod replacement;
mod shares;
mod template_return;
pub mod validation;

pub use decider::Disruption;
