//! Look-ups of what a class names: subnets, security groups, images, reservations, the cluster.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;
use croft_api::nodeclass::{AmiSelectorTerm, SelectorTerm};
use croft_cloud::{Fault, FaultClass, class::ImageDisks, facts::Arch, userdata::Family};

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
    pub(crate) serves: Serves,
    pub(crate) made: String,
    pub(crate) disks: ImageDisks,
}

/// Manufacturer of an instance type's devices; `None` for a type without devices.
pub(crate) type Maker = Option<&'static str>;

/// The instance types that an image is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Serves {
    /// Any type: the class chose the image by id, parameter or tags, and knows its drivers.
    Any,
    /// Types with devices of these makers: the image is a variant of an alias.
    Makers(Vec<Maker>),
}

impl Serves {
    /// True if the image is for a type with devices of `maker`.
    pub(crate) fn includes(&self, maker: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Makers(makers) => makers.contains(&maker),
        }
    }

    /// The makers for a class's status.
    pub(crate) fn makers(&self) -> &[Maker] {
        match self {
            Self::Any => &[None],
            Self::Makers(makers) => makers,
        }
    }
}

/// The images that terms name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Images {
    /// The images that were found, newest first.
    pub(crate) found: Vec<Image>,
    /// The terms that matched none, in words.
    pub(crate) missing: Vec<String>,
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    /// Its instances that aren't in use.
    pub(crate) free: u32,
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
        let family = Family::of_alias(name).ok_or_else(|| {
            format!("alias {text} names no known family: write al2023, al2 or bottlerocket")
        })?;
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

    /// The SSM parameters that name the images for `arch`, each with the makers whose types it is for. Sources: the EKS
    /// user guide, "Retrieve recommended Amazon Linux AMI IDs"; Bottlerocket's QUICKSTART-EKS, and its plain variant's
    /// drivers for Neuron (aws/karpenter-provider-aws#7596).
    pub(crate) fn parameters(&self, kubernetes: &str, arch: Arch) -> Vec<(String, Vec<Maker>)> {
        let ec2 = arch.as_ec2();
        let latest = self.version == "latest";
        let date = self.version.trim_start_matches('v');
        let is_amd64 = arch == Arch::Amd64;
        match self.family {
            Family::Al2023 => {
                let variants = [("standard", None), ("nvidia", Some("nvidia")), ("neuron", Some("aws"))];
                let published = variants.into_iter().filter(|(variant, _)| is_amd64 || *variant != "neuron");
                published
                    .map(|(variant, maker)| {
                        let path = format!(
                            "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{ec2}/{variant}"
                        );
                        let name = if latest {
                            "recommended".to_owned()
                        } else {
                            format!("amazon-eks-node-al2023-{ec2}-{variant}-{kubernetes}-v{date}")
                        };
                        (format!("{path}/{name}/image_id"), vec![maker])
                    })
                    .collect()
            }
            Family::Al2 => {
                let plain = (if is_amd64 { "" } else { "-arm64" }, vec![None]);
                let accelerated = ("-gpu", vec![Some("nvidia"), Some("aws")]);
                let published = [Some(plain), is_amd64.then_some(accelerated)];
                let parameter = |(variant, makers): (&str, Vec<Maker>)| {
                    let name = if latest {
                        "recommended".to_owned()
                    } else {
                        format!("amazon-eks{variant}-node-{kubernetes}-v{date}")
                    };
                    let path = format!("/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{variant}");
                    (format!("{path}/{name}/image_id"), makers)
                };
                published.into_iter().flatten().map(parameter).collect()
            }
            Family::Bottlerocket => {
                let release = if latest { "latest" } else { date };
                let plain = if is_amd64 { vec![None, Some("aws")] } else { vec![None] };
                [("", plain), ("-nvidia", vec![Some("nvidia")])]
                    .into_iter()
                    .map(|(variant, makers)| {
                        let path = format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{variant}");
                        (format!("{path}/{ec2}/{release}/image_id"), makers)
                    })
                    .collect()
            }
            Family::Ubuntu | Family::Custom => Vec::new(),
        }
    }
}

/// An alias's variant in words: `nvidia on arm64`.
fn variant(makers: &[Maker], arch: Arch) -> String {
    let makers: Vec<&str> = makers.iter().map(|maker| maker.unwrap_or("no devices")).collect();
    format!("{} on {}", makers.join(" and "), arch.as_str())
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
            let page = match paces.read.record("DescribeCapacityReservations", page) {
                Ok(page) => page,
                // An id that is gone, or that isn't there yet, leaves the other terms' reservations.
                Err(fault) if fault.class == FaultClass::NotFound => break,
                Err(fault) => return Err(fault),
            };
            for r in page.capacity_reservations() {
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
                        free: r.available_instance_count().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                    },
                );
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Images that the terms name. A term without an image, or a variant that an alias lacks, leaves the others.
///
/// # Errors
/// If AWS doesn't answer, or a term is wrong; if no image is found, the last reason why.
pub(crate) async fn images(
    clients: &Clients,
    paces: &Paces,
    terms: &[AmiSelectorTerm],
    kubernetes: &str,
) -> Result<Images, Fault> {
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    let mut images = Images::default();
    let mut refused = None;
    for term in terms {
        for (name, serves, words) in parameters_of(term, kubernetes)? {
            match parameter(clients, paces, &name).await {
                Ok(id) => {
                    wanted.insert(id, Wanted { serves, words });
                }
                Err(fault) if fault.class == FaultClass::NotFound => {
                    images.missing.push(words);
                    refused = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        if let Some(id) = &term.id {
            wanted.insert(id.clone(), Wanted { serves: Serves::Any, words: format!("id {id}") });
        }
        if !term.tags.is_empty() {
            let tagged = describe_images(clients, paces, tag_filters(&term.tags)).await?;
            if tagged.is_empty() {
                let tags: Vec<String> =
                    term.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
                images.missing.push(format!("tags {}", tags.join(",")));
            }
            images.found.extend(tagged);
        }
    }
    if !wanted.is_empty() {
        let ids = filter("image-id", wanted.keys().cloned().collect());
        for mut image in describe_images(clients, paces, vec![ids]).await? {
            if let Some(found) = wanted.remove(&image.id) {
                image.serves = found.serves;
                images.found.push(image);
            }
        }
        images.missing.extend(wanted.into_values().map(|wanted| wanted.words));
    }
    if let (true, Some(fault)) = (images.found.is_empty(), refused) {
        return Err(fault);
    }
    // Newest first, then by id.
    images.found.sort_by(|a, b| b.made.cmp(&a.made).then_with(|| a.id.cmp(&b.id)));
    images.found.dedup_by(|a, b| a.id == b.id);
    Ok(images)
}

/// An image that a term names by its id.
struct Wanted {
    serves: Serves,
    words: String,
}

/// The SSM parameters of a term, each with the types that its image is for, and in words.
fn parameters_of(term: &AmiSelectorTerm, kubernetes: &str) -> Result<Vec<(String, Serves, String)>, Fault> {
    let own = term.ssm_parameter.iter();
    let own = own.map(|name| (name.clone(), Serves::Any, format!("ssmParameter {name}")));
    let mut all: Vec<_> = own.collect();
    if let Some(alias) = &term.alias {
        let parsed = Alias::parse(alias).map_err(|problem| invalid("GetParameter", problem))?;
        for arch in [Arch::Amd64, Arch::Arm64] {
            for (name, makers) in parsed.parameters(kubernetes, arch) {
                let words = format!("{alias} for instance types with {}", variant(&makers, arch));
                all.push((name, Serves::Makers(makers), words));
            }
        }
    }
    Ok(all)
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
    mut filters: Vec<Filter>,
) -> Result<Vec<Image>, Fault> {
    filters.push(filter("state", vec!["available".to_owned()]));
    let mut pages = clients.ec2.describe_images().set_filters(Some(filters)).into_paginator().send();
    let mut found = Vec::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for image in paces.read.record("DescribeImages", page)?.images() {
            let arch = image.architecture().and_then(|a| Arch::parse(a.as_str()));
            if let (Some(id), Some(arch)) = (image.image_id(), arch) {
                found.push(Image {
                    id: id.to_owned(),
                    arch,
                    serves: Serves::Any,
                    made: image.creation_date().unwrap_or_default().to_owned(),
                    disks: disks(image),
                });
            }
        }
    }
    Ok(found)
}

fn disks(image: &aws_sdk_ec2::types::Image) -> ImageDisks {
    let size = |disk: &aws_sdk_ec2::types::BlockDeviceMapping| {
        let gib = u64::try_from(disk.ebs()?.volume_size()?).ok()?;
        Some((disk.device_name()?.to_owned(), gib))
    };
    ImageDisks {
        root: image.root_device_name().unwrap_or_default().to_owned(),
        sizes: image.block_device_mappings().iter().filter_map(size).collect(),
    }
}

/// The cluster, as EKS describes it.
pub(crate) async fn cluster(clients: &Clients, paces: &Paces, name: &str) -> Result<ClusterFacts, Fault> {
    paces.read.turn().await;
    let answer = clients.eks.describe_cluster(name).await;
    let cluster = paces.read.record("DescribeCluster", answer)?;
    let cluster = cluster.ok_or_else(|| invalid("DescribeCluster", format!("no cluster {name}")))?;
    let network = cluster.kubernetes_network_config;
    // A node that is told less doesn't join.
    let known = |field: &str, value: Option<String>| {
        value.ok_or_else(|| {
            let message = format!("cluster {name} has no {field} yet");
            refusal::of_code("DescribeCluster", "IncorrectState".to_owned(), message, Some(400))
        })
    };
    Ok(ClusterFacts {
        name: name.to_owned(),
        endpoint: known("endpoint", cluster.endpoint)?,
        ca: known("certificate authority", cluster.certificate_authority.data)?,
        service_cidr: known("service network", network.service_ipv4_cidr.or(network.service_ipv6_cidr))?,
        version: known("version", cluster.version)?,
    })
}

fn invalid(action: &'static str, message: String) -> Fault {
    refusal::of_code(action, "InvalidParameterValue".to_owned(), message, Some(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every family, release, architecture and device.
    #[test]
    fn aliases_resolve_to_the_parameters_of_every_variant() {
        let eks = "/aws/service/eks/optimized-ami/1.36";
        let bottlerocket = "/aws/service/bottlerocket/aws-k8s-1.36";
        let al2023 = |arch: &str, variant: &str| {
            format!("{eks}/amazon-linux-2023/{arch}/{variant}/recommended/image_id")
        };
        let dated = |arch: &str, variant: &str| {
            format!(
                "{eks}/amazon-linux-2023/{arch}/{variant}/amazon-eks-node-al2023-{arch}-{variant}-1.36-v20260715/image_id"
            )
        };
        let (none, nvidia, neuron) = (None, Some("nvidia"), Some("aws"));
        for (alias, arch, expected) in [
            (
                "al2023@latest",
                Arch::Amd64,
                vec![
                    (al2023("x86_64", "standard"), vec![none]),
                    (al2023("x86_64", "nvidia"), vec![nvidia]),
                    (al2023("x86_64", "neuron"), vec![neuron]),
                ],
            ),
            (
                "al2023@latest",
                Arch::Arm64,
                vec![(al2023("arm64", "standard"), vec![none]), (al2023("arm64", "nvidia"), vec![nvidia])],
            ),
            (
                "al2023@v20260715",
                Arch::Arm64,
                vec![(dated("arm64", "standard"), vec![none]), (dated("arm64", "nvidia"), vec![nvidia])],
            ),
            (
                "bottlerocket@latest",
                Arch::Amd64,
                vec![
                    (format!("{bottlerocket}/x86_64/latest/image_id"), vec![none, neuron]),
                    (format!("{bottlerocket}-nvidia/x86_64/latest/image_id"), vec![nvidia]),
                ],
            ),
            (
                "bottlerocket@v1.20.0",
                Arch::Arm64,
                vec![
                    (format!("{bottlerocket}/arm64/1.20.0/image_id"), vec![none]),
                    (format!("{bottlerocket}-nvidia/arm64/1.20.0/image_id"), vec![nvidia]),
                ],
            ),
            (
                "al2@latest",
                Arch::Amd64,
                vec![
                    (format!("{eks}/amazon-linux-2/recommended/image_id"), vec![none]),
                    (format!("{eks}/amazon-linux-2-gpu/recommended/image_id"), vec![nvidia, neuron]),
                ],
            ),
            (
                "al2@v20260715",
                Arch::Amd64,
                vec![
                    (format!("{eks}/amazon-linux-2/amazon-eks-node-1.36-v20260715/image_id"), vec![none]),
                    (
                        format!("{eks}/amazon-linux-2-gpu/amazon-eks-gpu-node-1.36-v20260715/image_id"),
                        vec![nvidia, neuron],
                    ),
                ],
            ),
            (
                "al2@latest",
                Arch::Arm64,
                vec![(format!("{eks}/amazon-linux-2-arm64/recommended/image_id"), vec![none])],
            ),
        ] {
            assert_eq!(Alias::parse(alias).unwrap().parameters("1.36", arch), expected, "{alias}");
        }
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
