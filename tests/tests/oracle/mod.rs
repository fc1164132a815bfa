//! Random clusters, and the real kube-scheduler's opinion of them.

mod dice;
mod fleet;
pub mod generate;
mod pods;
pub mod run;
mod shrink;
mod storage;
mod surroundings;
