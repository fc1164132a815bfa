//! `croft history`: what the controller decided about a tenant, from its decision log.

mod command;

pub(crate) use command::{HistoryArgs, run};
