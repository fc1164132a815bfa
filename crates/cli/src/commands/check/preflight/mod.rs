//! `croft check --preflight`: whether Croft can be installed into a cluster. Nothing is changed: the API server is asked by
//! reads and dry runs, AWS by reads and dry runs.

#[cfg(feature = "aws")]
mod fargate;
pub(super) mod features;
mod rights;
mod room;
mod steps;

pub(super) use steps::check;
