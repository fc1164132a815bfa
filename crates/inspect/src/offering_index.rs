//! Offerings of a catalogue by instance type, which a reader asks for each node.

use croft_scheduler::{CapacityType, InstanceType, Offering};
use rustc_hash::FxHashMap;

/// The instance types of a catalogue by name; of two with one name the first.
pub(crate) struct OfferingIndex<'t>(FxHashMap<&'t str, &'t InstanceType>);

impl<'t> OfferingIndex<'t> {
    /// The index of `types`.
    pub(crate) fn new(types: &'t [InstanceType]) -> Self {
        let mut by_name = FxHashMap::default();
        for kind in types {
            by_name.entry(kind.name.as_str()).or_insert(kind);
        }
        Self(by_name)
    }

    /// The instance type of that name.
    pub(crate) fn instance_type(&self, name: &str) -> Option<&'t InstanceType> {
        self.0.get(name).copied()
    }

    /// The offering of a type in a zone.
    pub(crate) fn offering(&self, name: &str, zone: &str, paid_as: CapacityType) -> Option<&'t Offering> {
        let mut offerings = self.instance_type(name)?.offerings.iter();
        offerings.find(|offering| offering.zone == zone && offering.capacity_type == paid_as)
    }
}
