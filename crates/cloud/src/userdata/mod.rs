//! User data of a booting instance for each image family, merged with the class's own.
//!
//! ```text
//!   NodeBoot (cluster, labels, taints, kubelet) ─┐
//!   the class's own user data ───────────────────┴─▶ nodeadm      AL2023: MIME with NodeConfig parts
//!                                                    bootstrap    AL2, Ubuntu: MIME with shell scripts
//!                                                    bottlerocket TOML settings
//!                                                    custom       the user's, as it is
//! ```
//!
//! EC2's limit is 16 KiB. Larger user data is compressed if the image decompresses it; smaller user data stays
//! readable.
//!
//! Croft's part comes last, and of two parts with the same setting the last one is used: a class's user data can add
//! settings to a node, but not remove the pool's taints. Labels that a kubelet may not set are left out, since a
//! kubelet exits on them; the controller writes those at registration.

mod bootstrap;
mod bottlerocket;
mod mime;
mod model;
mod nodeadm;
mod render;

pub use model::{Family, KubeletSetup, MAX_BYTES, NodeBoot, UserData, UserDataError};
pub use render::render;

#[cfg(test)]
mod tests;
