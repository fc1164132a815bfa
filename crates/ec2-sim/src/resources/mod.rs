//! Resources of the account, as records without calls.

mod capacity;
mod instance;
mod integration;
mod launch;
mod network;
mod status;

pub use capacity::{LaunchFailure, Reservation};
pub use instance::{Instance, State};
pub use integration::{Integration, Queue};
pub use launch::{Image, Profile, Template, TemplateData};
pub(crate) use network::VPC;
pub use network::{SecurityGroup, Subnet};
pub use status::{Check, FailedChecks, ScheduledEvent};
