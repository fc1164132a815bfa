//! The catalog of a cloud: instance types and their offerings. Serde gives the catalogue file format.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::model::{price::Price, resources::Resources};

/// How an instance is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Until it is terminated.
    #[default]
    OnDemand,
    /// Until the cloud interrupts it.
    Spot,
    /// Paid in advance: a capacity reservation.
    Reserved,
}

impl CapacityType {
    /// As the label `karpenter.sh/capacity-type` says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
        }
    }

    /// Reads what [`CapacityType::as_str`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::OnDemand, Self::Spot, Self::Reserved].into_iter().find(|c| c.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One way to get an instance type: where, how it is paid for, and for how much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// Availability zone, as the label topology.kubernetes.io/zone says it.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Price per hour. Without one the offering is taken only when nothing with a price will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// False while the cloud has none.
    #[serde(default = "yes")]
    pub available: bool,
    /// True if the price was derived from others of its family instead of published.
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
    /// The number of instances that can still be had, if the cloud says: what is left of a capacity reservation.
    /// `None`: not known to be bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_count: Option<u32>,
}

/// Region of an AWS zone: `us-east-1` for `us-east-1a`, the local zone `us-east-1-bos-1a` and the Wavelength zone
/// `us-east-1-wl1-bos-wlz-1`. `None` for names of another form.
///
/// ```
/// use croft_scheduler::region_of_zone;
///
/// assert_eq!(region_of_zone("us-west-2-lax-1a"), Some("us-west-2"));
/// assert_eq!(region_of_zone("us-west-2"), None);
/// ```
#[must_use]
pub fn region_of_zone(zone: &str) -> Option<&str> {
    // The name of a region ends with its only number.
    let begin = zone.find(|c: char| c.is_ascii_digit())?;
    let (words, rest) = zone.split_at_checked(begin)?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut letters = rest.chars();
    let is_zone = match (letters.next(), letters.next()) {
        (Some('-'), Some(_)) => true,
        (Some(letter), None) => letter.is_ascii_lowercase(),
        _ => false,
    };
    let region = zone.strip_suffix(rest)?;
    (is_zone && words.len() > 1 && words.ends_with('-')).then_some(region)
}

/// A kind of instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Name, as the label node.kubernetes.io/instance-type says it.
    pub name: String,
    /// Architecture, as the label kubernetes.io/arch says it.
    pub arch: String,
    /// Operating systems that it can run.
    #[serde(default = "linux")]
    pub os: Vec<String>,
    /// The capacity of the instance.
    pub capacity: Resources,
    /// The part that the system keeps; allocatable is capacity less overhead.
    #[serde(default)]
    pub overhead: Resources,
    /// Volumes that an instance can attach, by CSI driver. A driver that isn't named: unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attach_limits: BTreeMap<String, i64>,
    /// Labels of its nodes, such as karpenter.k8s.aws/instance-family.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Where and how it can be had.
    #[serde(default)]
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// The amounts that pods may use: capacity less overhead, never below zero.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut result = Resources::new();
        for (name, amount) in self.capacity.iter() {
            result.set(name, amount.saturating_sub(self.overhead.get(name)).max(0));
        }
        result
    }
}

/// A catalogue file: `{"instanceTypes": [...]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// Every type of the catalogue.
    pub instance_types: Vec<InstanceType>,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

fn linux() -> Vec<String> {
    vec!["linux".to_owned()]
}
