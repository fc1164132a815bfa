//! `croft cost`: who paid what for which nodes, from the decision log, and from the closed hours and days of the ledger.
//!
//! `command` has arguments and steps, `group` sums lines by what is asked for, `write` prints them, `focus` as columns of the FinOps
//! open cost and usage specification.

mod command;
mod focus;
mod group;
mod write;

pub(crate) use command::{CostArgs, run};
