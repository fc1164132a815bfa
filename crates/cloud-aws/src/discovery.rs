//! Look-ups of what a class names: subnets, security groups, images, reservations, the cluster.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;
use croft_api::nodeclass::{AmiSelectorTerm, SelectorTerm};
use croft_cloud::{Fault, FaultClass, facts::Arch, userdata::Family};

use crate::{connect::Clients, pace::Paces, refusal};

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) zone: String,
    pub(crate) vpc: String,
    pub(crate) free: i32,
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) vpc: String,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) arch: Arch,
    /// Manufacturer of the devices that it has drivers for.
    pub(crate) device: Option<String>,
    pub(crate) made: String,
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) free: i32,
}

/// Name and address of the cluster, for user data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    /// Base64 of PEM.
    pub(crate) ca: String,
    pub(crate) service_cidr: String,
    pub(crate) version: String,
}

/// A parsed alias, such as `al2023@latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alias<'a> {
    pub(crate) family: Family,
    pub(crate) version: &'a str,
}

impl<'a> Alias<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let (name, version) = text
            .split_once('@')
            .ok_or_else(|| format!("alias {text} has no version: write family@latest or family@version"))?;
        let family = match name {
            "al2023" => Family::Al2023,
            "al2" => Family::Al2,
            "bottlerocket" => Family::Bottlerocket,
            _ => {
                return Err(format!("alias {text} names no known family: write al2023, al2 or bottlerocket"));
            }
        };
        let digits = version.strip_prefix('v').unwrap_or(version);
        let good = version == "latest"
            || !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
        if good {
            Ok(Self { family, version })
        } else {
            Err(format!(
                "alias {text} has no readable version: write latest, a date as v20260715, or a release as v1.20.0"
            ))
        }
    }

    /// The SSM parameters that name the image for `arch`, with the devices of each. Sources: the EKS user guide,
    /// "Retrieve recommended Amazon Linux AMI IDs", and Bottlerocket's QUICKSTART-EKS.
    pub(crate) fn parameters(&self, kubernetes: &str, arch: Arch) -> Vec<(String, Option<&'static str>)> {
        let ec2 = arch.as_ec2();
        let latest = self.version == "latest";
        let date = self.version.trim_start_matches('v');
        match self.family {
            Family::Al2023 => {
                let mut variants = vec![("standard", None), ("nvidia", Some("nvidia"))];
                if arch == Arch::Amd64 {
                    variants.push(("neuron", Some("aws")));
                }
                variants
                    .into_iter()
                    .map(|(variant, device)| {
                        let path = format!(
                            "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{ec2}/{variant}"
                        );
                        let name = if latest {
                            "recommended".to_owned()
                        } else {
                            format!("amazon-eks-node-al2023-{ec2}-{variant}-{kubernetes}-v{date}")
                        };
                        (format!("{path}/{name}/image_id"), device)
                    })
                    .collect()
            }
            Family::Al2 => {
                let suffix = if arch == Arch::Arm64 { "-arm64" } else { "" };
                let path = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{suffix}");
                let name = if latest {
                    "recommended".to_owned()
                } else {
                    format!("amazon-eks{suffix}-node-{kubernetes}-v{date}")
                };
                vec![(format!("{path}/{name}/image_id"), None)]
            }
            Family::Bottlerocket => {
                let release = if latest { "latest" } else { date };
                vec![(
                    format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}/{ec2}/{release}/image_id"),
                    None,
                )]
            }
            Family::Ubuntu | Family::Custom => Vec::new(),
        }
    }
}

fn filter(name: impl Into<String>, values: Vec<String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values)).build()
}

/// Tag filters: all must match; `*` is any value.
fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    tags.iter()
        .map(|(key, value)| {
            if value == "*" {
                filter("tag-key", vec![key.clone()])
            } else {
                filter(format!("tag:{key}"), vec![value.clone()])
            }
        })
        .collect()
}

fn term_filters(id_filter: &str, term: &SelectorTerm) -> Vec<Filter> {
    let mut filters = tag_filters(&term.tags);
    if let Some(id) = &term.id {
        filters.push(filter(id_filter, vec![id.clone()]));
    }
    filters
}

/// Subnets that match a term, by id.
pub(crate) async fn subnets(
    clients: &Clients,
    paces: &Paces,
    terms: &[SelectorTerm],
) -> Result<Vec<Subnet>, Fault> {
    let mut found = BTreeMap::new();
    for term in terms {
        let mut pages = clients
            .ec2
            .describe_subnets()
            .set_filters(Some(term_filters("subnet-id", term)))
            .into_paginator()
            .send();
        loop {
            paces.read.turn().await;
            let Some(page) = pages.next().await else { break };
            for subnet in paces.read.record("DescribeSubnets", page)?.subnets() {
                let (Some(id), Some(zone)) = (subnet.subnet_id(), subnet.availability_zone()) else {
                    continue;
                };
                found.insert(
                    id.to_owned(),
                    Subnet {
                        id: id.to_owned(),
                        zone: zone.to_owned(),
                        vpc: subnet.vpc_id().unwrap_or_default().to_owned(),
                        free: subnet.available_ip_address_count().unwrap_or_default(),
                    },
                );
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Security groups that match a term, by id.
pub(crate) async fn groups(
    clients: &Clients,
    paces: &Paces,
    terms: &[SelectorTerm],
) -> Result<Vec<Group>, Fault> {
    let mut found = BTreeMap::new();
    for term in terms {
        let mut pages = clients
            .ec2
            .describe_security_groups()
            .set_filters(Some(term_filters("group-id", term)))
            .into_paginator()
            .send();
        loop {
            paces.read.turn().await;
            let Some(page) = pages.next().await else { break };
            for group in paces.read.record("DescribeSecurityGroups", page)?.security_groups() {
                let Some(id) = group.group_id() else { continue };
                let vpc = group.vpc_id().unwrap_or_default().to_owned();
                found.insert(id.to_owned(), Group { id: id.to_owned(), vpc });
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Capacity reservations that match a term.
pub(crate) async fn reservations(
    clients: &Clients,
    paces: &Paces,
    terms: &[SelectorTerm],
) -> Result<Vec<Reservation>, Fault> {
    let mut found = BTreeMap::new();
    for term in terms {
        let mut filters = tag_filters(&term.tags);
        filters.push(filter("state", vec!["active".to_owned()]));
        let mut pages = clients
            .ec2
            .describe_capacity_reservations()
            .set_capacity_reservation_ids(term.id.clone().map(|id| vec![id]))
            .set_filters(Some(filters))
            .into_paginator()
            .send();
        loop {
            paces.read.turn().await;
            let Some(page) = pages.next().await else { break };
            for r in paces.read.record("DescribeCapacityReservations", page)?.capacity_reservations() {
                let (Some(id), Some(instance_type), Some(zone)) =
                    (r.capacity_reservation_id(), r.instance_type(), r.availability_zone())
                else {
                    continue;
                };
                found.insert(
                    id.to_owned(),
                    Reservation {
                        id: id.to_owned(),
                        instance_type: instance_type.to_owned(),
                        zone: zone.to_owned(),
                        free: r.available_instance_count().unwrap_or_default(),
                    },
                );
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Images that the terms name, newest first.
pub(crate) async fn images(
    clients: &Clients,
    paces: &Paces,
    terms: &[AmiSelectorTerm],
    kubernetes: &str,
) -> Result<Vec<Image>, Fault> {
    // The devices of each wanted image; images given by id are for any instance.
    let mut wanted: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut found = Vec::new();
    for term in terms {
        if let Some(alias) = &term.alias {
            let alias = Alias::parse(alias).map_err(|problem| invalid("GetParameter", problem))?;
            let mut last = None;
            let before = wanted.len();
            for arch in [Arch::Amd64, Arch::Arm64] {
                for (name, device) in alias.parameters(kubernetes, arch) {
                    match parameter(clients, paces, &name).await {
                        Ok(id) => {
                            wanted.insert(id, device.map(str::to_owned));
                        }
                        // Not every variant is published for every version and architecture.
                        Err(fault) if fault.class == FaultClass::NotFound => last = Some(fault),
                        Err(fault) => return Err(fault),
                    }
                }
            }
            if let (true, Some(fault)) = (wanted.len() == before, last) {
                return Err(fault);
            }
        }
        if let Some(name) = &term.ssm_parameter {
            wanted.insert(parameter(clients, paces, name).await?, None);
        }
        if let Some(id) = &term.id {
            wanted.insert(id.clone(), None);
        }
        if !term.tags.is_empty() {
            found.extend(describe_images(clients, paces, None, tag_filters(&term.tags)).await?);
        }
    }
    if !wanted.is_empty() {
        let ids = wanted.keys().cloned().collect();
        for mut image in describe_images(clients, paces, Some(ids), Vec::new()).await? {
            image.device = wanted.get(&image.id).cloned().flatten();
            found.push(image);
        }
    }
    // Newest first, then by id.
    found.sort_by(|a, b| b.made.cmp(&a.made).then_with(|| a.id.cmp(&b.id)));
    found.dedup_by(|a, b| a.id == b.id);
    Ok(found)
}

async fn parameter(clients: &Clients, paces: &Paces, name: &str) -> Result<String, Fault> {
    paces.read.turn().await;
    let answer = clients.ssm.get_parameter(name).await;
    let value = paces.read.record("GetParameter", answer)?;
    value.ok_or_else(|| invalid("GetParameter", format!("parameter {name} is empty")))
}

async fn describe_images(
    clients: &Clients,
    paces: &Paces,
    ids: Option<Vec<String>>,
    mut filters: Vec<Filter>,
) -> Result<Vec<Image>, Fault> {
    filters.push(filter("state", vec!["available".to_owned()]));
    let mut pages =
        clients.ec2.describe_images().set_image_ids(ids).set_filters(Some(filters)).into_paginator().send();
    let mut found = Vec::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for image in paces.read.record("DescribeImages", page)?.images() {
            let arch = image.architecture().and_then(|a| Arch::parse(a.as_str()));
            if let (Some(id), Some(arch)) = (image.image_id(), arch) {
                let made = image.creation_date().unwrap_or_default().to_owned();
                found.push(Image { id: id.to_owned(), arch, device: None, made });
            }
        }
    }
    Ok(found)
}

/// The cluster, as EKS describes it.
pub(crate) async fn cluster(clients: &Clients, paces: &Paces, name: &str) -> Result<ClusterFacts, Fault> {
    paces.read.turn().await;
    let answer = clients.eks.describe_cluster(name).await;
    let cluster = paces.read.record("DescribeCluster", answer)?;
    let cluster = cluster.ok_or_else(|| invalid("DescribeCluster", format!("no cluster {name}")))?;
    let network = cluster.kubernetes_network_config;
    Ok(ClusterFacts {
        name: name.to_owned(),
        endpoint: cluster.endpoint.unwrap_or_default(),
        ca: cluster.certificate_authority.data.unwrap_or_default(),
        service_cidr: network.service_ipv4_cidr.or(network.service_ipv6_cidr).unwrap_or_default(),
        version: cluster.version.unwrap_or_default(),
    })
}

fn invalid(action: &'static str, message: String) -> Fault {
    refusal::of_code(action, "InvalidParameterValue".to_owned(), message, Some(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_resolve_to_ssm_parameters() {
        let parameters = |alias: &str, arch| {
            let alias = Alias::parse(alias).unwrap();
            alias.parameters("1.36", arch).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(
            parameters("al2023@latest", Arch::Arm64),
            [
                "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id",
                "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/nvidia/recommended/image_id",
            ]
        );
        assert_eq!(
            parameters("al2023@v20260715", Arch::Amd64)[0],
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.36-v20260715/image_id"
        );
        assert_eq!(
            parameters("bottlerocket@v1.20.0", Arch::Amd64),
            ["/aws/service/bottlerocket/aws-k8s-1.36/x86_64/1.20.0/image_id"]
        );
        assert_eq!(
            parameters("al2@latest", Arch::Arm64),
            ["/aws/service/eks/optimized-ami/1.36/amazon-linux-2-arm64/recommended/image_id"]
        );
    }

    #[test]
    fn invalid_alias_error_says_what_to_write() {
        for (alias, says) in [
            ("al2023", "has no version"),
            ("windows@latest", "names no known family"),
            ("al2023@newest", "has no readable version"),
            ("al2023@", "has no readable version"),
        ] {
            let error = Alias::parse(alias).unwrap_err();
            assert!(error.contains(says), "{alias}: {error}");
        }
    }
}
