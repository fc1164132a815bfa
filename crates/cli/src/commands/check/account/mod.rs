//! The AWS account around the cluster: is it as docs/aws.md has it? Nothing is changed, and what the present credentials
//! may not read is reported as not known.
//!
//! `steps` reads, with `AccountReader` of croft-cloud-aws; the other modules decide, without I/O.

mod access_entries;
mod cluster_name;
mod network;
mod queue;
mod steps;
mod subject;

pub(super) use steps::check;
pub(super) use subject::Subject;
