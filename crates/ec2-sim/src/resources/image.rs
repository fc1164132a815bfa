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
