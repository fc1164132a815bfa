//! Instance profiles.

use std::collections::BTreeMap;

/// An instance profile.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Path.
    pub path: String,
    /// Its role.
    pub role: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Creation time, in milliseconds since 1970.
    pub made: u64,
}
