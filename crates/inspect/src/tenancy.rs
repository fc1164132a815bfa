//! The tenants of an input.

use std::collections::BTreeMap;

use croft_manifest::{Input, InputError};
use k8s_openapi::api::core::v1::Pod;

use crate::{admission::Admission, inventory};

/// The tenants of an input.
pub struct Tenancy(Admission);

impl Tenancy {
    /// Reads the Tenants, pools, settings, namespaces and nodes of `input`.
    ///
    /// # Errors
    /// A Tenant whose selector can't be read.
    pub fn new(input: &Input) -> Result<Self, InputError> {
        Admission::new(input).map(Self)
    }

    /// The tenant of each namespace that belongs to one.
    #[must_use]
    pub fn tenants_by_namespace(&self, input: &Input) -> BTreeMap<String, String> {
        inventory::tenants_by_namespace(input, self.0.tenants())
    }

    /// The placement violations of an existing pod, as sentences.
    #[must_use]
    pub fn violations(&self, pod: &Pod) -> Vec<String> {
        inventory::own_placement_violations(self.0.tenants(), pod)
    }
}
