//! Launch templates.

use std::collections::BTreeMap;

/// A launch template with its only version.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its id.
    pub id: String,
    /// When it was made, in milliseconds since 1970.
    pub made: u64,
    /// Its data.
    pub data: TemplateData,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// The fields of a launch template that have an effect here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateData {
    /// Image.
    pub image: Option<String>,
    /// Instance type.
    pub instance_type: Option<String>,
    /// Security groups, of the instance or its first interface.
    pub groups: Vec<String>,
    /// Name of the instance profile.
    pub profile: Option<String>,
    /// User data, decoded.
    pub user_data: Vec<u8>,
    /// `required` for IMDSv2 only.
    pub http_tokens: String,
    /// Hop limit of the metadata service's answers.
    pub hop_limit: u64,
    /// Volumes: device and GiB.
    pub volumes: BTreeMap<String, u64>,
    /// Tags by kind of resource.
    pub tags: BTreeMap<String, BTreeMap<String, String>>,
    /// The preference for capacity reservations.
    pub reservation: Option<String>,
    /// Network adapters for EFA, each on its own card.
    pub efas: u32,
}
