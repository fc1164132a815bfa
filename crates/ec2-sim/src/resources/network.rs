//! Subnets and security groups.

use std::collections::BTreeMap;

use crate::params::Filter;

/// A subnet.
#[derive(Clone, Debug)]
pub struct Subnet {
    /// Its zone.
    pub zone: String,
    /// The second byte of its addresses 10.n.
    pub net: u8,
    /// Its VPC.
    pub vpc: String,
    /// Free addresses.
    pub free: u32,
    /// Addresses assigned so far.
    pub used: u32,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// A security group.
#[derive(Clone, Debug)]
pub struct SecurityGroup {
    /// Its name.
    pub name: String,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// The one VPC.
pub(crate) const VPC: &str = "vpc-0c0ffee000000001";

impl Subnet {
    pub(crate) fn matches(&self, id: &str, filter: &Filter) -> Option<bool> {
        filter.matches_tags(&self.tags).or_else(|| match filter.name.as_str() {
            "subnet-id" => Some(filter.matches([id])),
            "vpc-id" => Some(filter.matches([VPC])),
            "availability-zone" | "availabilityZone" => Some(filter.matches([self.zone.as_str()])),
            "state" => Some(filter.matches(["available"])),
            _ => None,
        })
    }
}

impl SecurityGroup {
    pub(crate) fn matches(&self, id: &str, filter: &Filter) -> Option<bool> {
        filter.matches_tags(&self.tags).or_else(|| match filter.name.as_str() {
            "group-id" => Some(filter.matches([id])),
            "group-name" => Some(filter.matches([self.name.as_str()])),
            "vpc-id" => Some(filter.matches([VPC])),
            _ => None,
        })
    }
}
