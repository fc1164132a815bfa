//! `croft simulate`: which instances would be launched for the input, at what cost, and why pods stay pending; and what a recorded
//! cluster, or a recorded time, would cost with other settings; and what the nodes that are there cost beside a plan for the same pods.

mod command;
mod comparison;
mod consolidation;
mod json;
mod launchers;
mod pending;
mod replay;
mod report;
mod text;

pub(crate) use command::{SimulateArgs, run};
