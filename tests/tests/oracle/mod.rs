//! Random clusters, and the real kube-scheduler's opinion of them.

pub mod generate;
pub mod run;
mod shrink;
pub mod storage;
