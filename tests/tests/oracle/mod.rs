//! Random clusters, evaluated by the real kube-scheduler.

mod fleet;
pub mod generate;
mod inclusion;
mod opened;
pub mod opening;
pub mod order;
mod pods;
pub mod run;
mod shrink;
mod storage;
mod surroundings;
