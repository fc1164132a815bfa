//! What an instance is launched from: images, launch templates and instance profiles.

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
    /// Device name of the disk that it boots from.
    pub root: String,
    /// GiB of its disks, by device name.
    pub disks: BTreeMap<String, u64>,
}

impl Image {
    /// An image with one disk.
    #[must_use]
    pub fn new(name: &str, arch: Arch, root: &str, gib: u64) -> Self {
        Self {
            name: name.to_owned(),
            arch,
            made: 0,
            parameters: Vec::new(),
            tags: BTreeMap::from([("Name".to_owned(), name.to_owned())]),
            root: root.to_owned(),
            disks: BTreeMap::from([(root.to_owned(), gib)]),
        }
    }
}

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
