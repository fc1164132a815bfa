//! The provider's state between calls.

use std::{collections::BTreeMap, sync::Arc};

use croft_cloud::{
    Fault,
    facts::Setup,
    unavailable::{Unavailable, UnavailableOfferings},
};
use croft_scheduler::InstanceType;
use tokio::time::Instant;

use crate::observed::Observed;

/// State learned from answers of AWS and from registered nodes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Offerings that had no capacity.
    pub(crate) offerings: UnavailableOfferings,
    /// Subnets that had no free address.
    pub(crate) subnets: Unavailable<String>,
    /// Resources that registered nodes reported.
    pub(crate) observed: Observed,
    /// Existing launch templates, and when each was last used.
    pub(crate) templates: BTreeMap<String, Instant>,
    /// Instance profiles created recently.
    pub(crate) new_profiles: BTreeMap<String, Instant>,
    /// The setup of each class, for instances that name their class only by a tag.
    pub(crate) setups: BTreeMap<String, ClassSetup>,
    /// The types of each class as last built.
    pub(crate) built: BTreeMap<String, BuiltTypes>,
    /// The refusal of each class's last launch, if a user has to act on it.
    pub(crate) refusals: BTreeMap<String, Fault>,
}

/// The setup of a class's instances.
#[derive(Debug)]
pub(crate) struct ClassSetup {
    /// By image, since the image decides which disk is its root.
    pub(crate) by_image: BTreeMap<String, Setup>,
    /// That of other images: those of instances launched before.
    pub(crate) other: Setup,
}

impl Memory {
    /// The setup of a class's instances with an image; `None` until the class is resolved.
    pub(crate) fn setup_of(&self, class: &str, image: &str) -> Option<Setup> {
        let setups = self.setups.get(class)?;
        Some(*setups.by_image.get(image).unwrap_or(&setups.other))
    }
}

/// The instance types of a class as last built, and a key of what they were built from.
#[derive(Debug)]
pub(crate) struct BuiltTypes {
    pub(crate) from: String,
    pub(crate) types: Arc<[InstanceType]>,
}
