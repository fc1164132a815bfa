//! Resources of the account, as records without calls.

mod capacity;
mod image;
mod instance;
mod integration;
mod network;
mod profile;
mod queue;
mod template;

pub use capacity::{LaunchFailure, Reservation};
pub use image::Image;
pub use instance::{Instance, State};
pub use integration::Integration;
pub(crate) use network::VPC;
pub use network::{SecurityGroup, Subnet};
pub use profile::Profile;
pub use queue::Queue;
pub use template::{Template, TemplateData};
