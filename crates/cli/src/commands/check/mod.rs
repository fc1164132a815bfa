//! `croft check`: is an installation healthy? Checks in order, each with a remedy; a check is skipped if one that it depends
//! on has failed.

#[cfg(feature = "aws")]
mod account;
mod cluster;
mod command;
mod configurations;
mod enforcement;
mod former_clusters;
mod identity;
mod installed;
mod karpenter;
mod limits;
mod mutation;
mod network_policy;
mod node_agents;
mod orphans;
mod placement;
mod pod_security;
mod policies;
mod preflight;
mod prices;
mod processes;
mod readiness;
mod report;
mod reviews;

pub(crate) use command::{CheckArgs, run};
pub(crate) use processes::leader_of;
