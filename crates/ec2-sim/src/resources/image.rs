//! Machine images.

use std::collections::BTreeMap;

use croft_cloud::facts::Arch;

/// An image.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub arch: Arch,
    /// Creation time, in milliseconds since 1970.
    pub made: u64,
    /// The SSM parameters that name it.
    pub parameters: Vec<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}
