//! Prices of constraints: what the cluster would cost less without a PodDisruptionBudget, a topology spread, an affinity,
//! an annotation, a selector, a limit or a setting of a pool.
//!
//! ```text
//!  Input ──settle──▶ end ──find──▶ constraints ──take_out──▶ end without one ──settle──▶ its own end
//!                     └───────────────── cost less cost: the price ◀────────────────────────┘
//! ```
//!
//! No I/O and no clock. `croft advise`, `croft explain` and `advice_rows` call this module;
//! `designs/constraint-prices.md` says what a price means.
//!
//! | module | owns |
//! |---|---|
//! | `prices` | which counterfactuals are searched, in which order, and the ranked result |
//! | `settle` | the cost of a cluster that `simulation` has carried to its end |
//! | `find`, `constraint`, `fields`, `words` | the constraints of an input, and how they are described |
//! | `take_out` | the edit that takes a constraint out |
//! | `parts` | pools that are searched together |

mod constraint;
mod find;
mod parts;
mod prices;
mod settle;
mod take_out;
#[cfg(test)]
mod tests;
mod words;

pub use find::Focus;
pub use prices::{Advice, ConstraintPrice, LEAST_SAVING_MICROS, Request, advise, has_constraints};
