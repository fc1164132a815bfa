//! `croft check`: is an installation healthy? Checks in order, each with a remedy; a check is skipped if one that it depends
//! on has failed.

mod cluster;
mod command;
mod configurations;
mod identity;
mod limits;
mod orphans;
mod pod_security;
mod policies;
mod preflight;
mod processes;
mod readiness;
mod report;

pub(crate) use command::{CheckArgs, run};
pub(crate) use processes::leader_of;
