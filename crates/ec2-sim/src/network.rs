//! Subnets and security groups.

use std::collections::BTreeMap;

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::{all, page, zone_id},
    resources::{SecurityGroup, Subnet, VPC},
    world::World,
    xml::Xml,
};

impl World {
    pub(crate) fn make_network(&mut self) {
        let cluster = self.settings.cluster_name.clone();
        let owned = BTreeMap::from([
            ("croft.dev/discovery".to_owned(), cluster.clone()),
            ("karpenter.sh/discovery".to_owned(), cluster.clone()),
            (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        ]);
        for (net, letter) in (1u8..).zip("abcdf".chars()) {
            let zone = format!("{}{letter}", self.settings.region);
            let mut tags = owned.clone();
            tags.insert("Name".to_owned(), format!("{cluster}-private-{zone}"));
            tags.insert("kubernetes.io/role/internal-elb".to_owned(), "1".to_owned());
            let subnet = self.subnet(zone, net, VPC, tags);
            self.subnets.insert(format!("subnet-0c0ffee00000000{net}"), subnet);
        }
        let mut tags = owned;
        tags.insert("Name".to_owned(), format!("{cluster}-node"));
        self.groups.insert(
            "sg-0c0ffee000000001".to_owned(),
            SecurityGroup { name: format!("{cluster}-node"), tags },
        );
        let other = BTreeMap::from([("Name".to_owned(), "default".to_owned())]);
        self.groups.insert(
            "sg-0c0ffee000000002".to_owned(),
            SecurityGroup { name: "default".to_owned(), tags: other },
        );
    }

    fn subnet(&self, zone: String, net: u8, vpc: &str, tags: BTreeMap<String, String>) -> Subnet {
        Subnet { zone, net, vpc: vpc.to_owned(), free: self.settings.subnet_addresses, used: 0, tags }
    }

    /// Adds a subnet with the discovery tags, in a VPC of its own. Returns its id.
    pub fn add_foreign_subnet(&mut self, zone: &str) -> String {
        let tags = BTreeMap::from([("croft.dev/discovery".to_owned(), self.settings.cluster_name.clone())]);
        let (id, vpc) = (self.new_id("subnet"), self.new_id("vpc"));
        let subnet = self.subnet(zone.to_owned(), 200, &vpc, tags);
        self.subnets.insert(id.clone(), subnet);
        id
    }

    /// Adds `count` security groups that differ only in their name.
    pub fn add_security_groups(&mut self, count: usize) {
        for number in 0..count {
            let name = format!("extra-{number}");
            let tags = BTreeMap::from([("Name".to_owned(), name.clone())]);
            let id = self.new_id("sg");
            self.groups.insert(id, SecurityGroup { name, tags });
        }
    }

    pub(crate) fn describe_subnets(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let ids = call.params.list("SubnetId");
        if let Some(id) = ids.iter().find(|id| !self.subnets.contains_key(*id)) {
            return Err(Refusal::new(
                "InvalidSubnetID.NotFound",
                format!("The subnet ID '{id}' does not exist"),
            ));
        }
        let filters = call.params.filters();
        let mut found = Vec::new();
        for (id, subnet) in &self.subnets {
            if (ids.is_empty() || ids.contains(id)) && all(&filters, |f| subnet.matches(id, f))? {
                found.push((id.clone(), subnet.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let account = self.settings.account.clone();
        let mut xml = Xml::new();
        xml.items("subnetSet", found, |xml, (id, subnet)| {
            xml.leaf("subnetId", &id)
                .leaf("state", "available")
                .leaf("vpcId", &subnet.vpc)
                .leaf("cidrBlock", format!("10.{}.0.0/16", subnet.net))
                .leaf("availableIpAddressCount", subnet.free)
                .leaf("availabilityZone", &subnet.zone)
                .leaf("availabilityZoneId", zone_id(&subnet.zone))
                .leaf("defaultForAz", false)
                .leaf("mapPublicIpOnLaunch", false)
                .leaf("ownerId", &account)
                .tags(&subnet.tags);
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    pub(crate) fn describe_groups(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let ids = call.params.list("GroupId");
        if let Some(id) = ids.iter().find(|id| !self.groups.contains_key(*id)) {
            return Err(Refusal::new(
                "InvalidGroup.NotFound",
                format!("The security group '{id}' does not exist"),
            ));
        }
        let filters = call.params.filters();
        let mut found = Vec::new();
        for (id, group) in &self.groups {
            if (ids.is_empty() || ids.contains(id)) && all(&filters, |f| group.matches(id, f))? {
                found.push((id.clone(), group.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let account = self.settings.account.clone();
        let mut xml = Xml::new();
        xml.items("securityGroupInfo", found, |xml, (id, group)| {
            xml.leaf("groupId", &id)
                .leaf("groupName", &group.name)
                .leaf("groupDescription", &group.name)
                .leaf("vpcId", VPC)
                .leaf("ownerId", &account)
                .tags(&group.tags);
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }
}
