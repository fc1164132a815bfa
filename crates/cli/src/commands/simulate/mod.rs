//! `croft simulate`: which instances would be launched for the input, at what cost, and why pods stay pending.

mod command;
mod consolidation;
mod json;
mod pending;
mod text;

pub(crate) use command::{SimulateArgs, run};
