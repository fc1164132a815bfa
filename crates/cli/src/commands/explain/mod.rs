//! `croft explain`: why a pod is pending or runs on its node, and why a node is kept.
//!
//! Reads the cluster or files, evaluates them with the policy's and the scheduler's functions, and writes the result as
//! sentences, with the prices of the constraints that keep a node or hold a pod there. With `--at`, `past` reads the
//! decision log instead; with `--page`, `page` asks the page.

mod command;
mod node;
mod objects;
mod page;
mod past;
mod pod;
mod pool;
mod prices;
mod tenant;

pub(crate) use command::{ExplainArgs, run};
