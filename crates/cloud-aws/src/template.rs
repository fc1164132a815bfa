//! Launch templates: one per distinct node configuration, named by its hash.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{
    CapacityReservationPreference, Filter, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCapacityReservationSpecificationRequest, LaunchTemplateEbsBlockDeviceRequest,
    LaunchTemplateHttpTokensState, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateInstanceMetadataProtocolIpv6, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest,
    LaunchTemplatePlacementRequest, LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest,
    RequestLaunchTemplateData, ResourceType, Tag, TagSpecification, VolumeType,
    builders::RequestLaunchTemplateDataBuilder,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_api::nodeclass::{BlockDeviceMapping, EC2NodeClassSpec, HttpTokens, Toggle};
use croft_cloud::{
    ClassFindings, Fault, FaultClass,
    class::{ImageDisks, data_device, gib, root_device},
    facts::DEFAULT_ROOT_GIB,
    tags,
    userdata::{Family, KubeletSetup, UserData},
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{connect::Clients, discovery::Image, pace::Paces};

/// The disk of Bottlerocket's system.
const SYSTEM_GIB: i32 = 4;

/// Everything in a launch template. Its hash is the template's name, so that equal configurations share a template and
/// a changed one gets another.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Configuration {
    pub(crate) image: String,
    pub(crate) groups: Vec<String>,
    pub(crate) profile: Option<String>,
    /// Base64.
    pub(crate) user_data: String,
    pub(crate) disks: Vec<Disk>,
    pub(crate) http_endpoint: bool,
    pub(crate) imds_v1: bool,
    pub(crate) hop_limit: i32,
    pub(crate) imds_ipv6: bool,
    pub(crate) public_ip: Option<bool>,
    pub(crate) monitoring: bool,
    pub(crate) placement_group: Option<String>,
    pub(crate) reserved_only: bool,
    /// Network adapters for EFA: one on each network card; the first is the instance's own interface.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) efas: u32,
    /// Tags of what CreateFleet can't tag: network interfaces, and spot requests. A template serves many claims, so
    /// these tags name none.
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) spot: bool,
}

/// Parameters of a template beside the class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Purpose {
    pub(crate) reserved_only: bool,
    pub(crate) spot: bool,
    /// Tags of all its instances.
    pub(crate) tags: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The part of a launch template that depends on the instance type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hardware {
    /// The image that the type boots.
    pub(crate) image: Image,
    /// Network adapters for EFA.
    pub(crate) efas: u32,
    /// The settings of its kubelet.
    pub(crate) kubelet: KubeletSetup,
}

/// A disk in a launch template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    pub(crate) device: String,
    pub(crate) gib: Option<i32>,
    pub(crate) kind: String,
    pub(crate) iops: Option<i32>,
    pub(crate) throughput: Option<i32>,
    pub(crate) encrypted: Option<bool>,
    pub(crate) kms_key: Option<String>,
    pub(crate) snapshot: Option<String>,
    pub(crate) delete: bool,
}

impl Configuration {
    /// The configuration of `class`, with what it resolves to.
    pub(crate) fn new(
        class: &EC2NodeClassSpec,
        family: Family,
        hardware: &Hardware,
        findings: &ClassFindings,
        user_data: &UserData,
        purpose: Purpose,
    ) -> Self {
        let Purpose { reserved_only, spot, tags } = purpose;
        let metadata = &class.metadata_options;
        Self {
            image: hardware.image.id.clone(),
            groups: findings.security_groups.clone(),
            profile: findings.instance_profile.clone(),
            user_data: STANDARD.encode(user_data.bytes()),
            disks: disks(&class.block_device_mappings, family, &hardware.image.disks),
            http_endpoint: metadata.http_endpoint == Toggle::Enabled,
            imds_v1: metadata.http_tokens == HttpTokens::Optional,
            hop_limit: metadata.http_put_response_hop_limit,
            imds_ipv6: metadata.http_protocol_ipv6 == Toggle::Enabled,
            public_ip: class.associate_public_ip_address,
            monitoring: class.detailed_monitoring,
            placement_group: class.placement_group.clone(),
            reserved_only,
            efas: hardware.efas,
            tags,
            spot,
        }
    }

    /// The error that EC2 would refuse with, as a message that names the field.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        // Source: "Enable public IPv4 addresses at launch", the EC2 user guide.
        (self.efas > 1 && self.public_ip == Some(true)).then_some(
            "an instance with several network adapters can't get a public address at launch: remove spec.associatePublicIPAddress of the EC2NodeClass, or don't ask for vpc.amazonaws.com/efa",
        )
    }

    /// The template's name in `cluster`.
    pub(crate) fn name(&self, cluster: &str) -> String {
        // Serializing plain values can't fail; an empty text would only give all configurations one template.
        let text = serde_json::to_string(self).unwrap_or_default();
        let digest = Sha256::digest(format!("{cluster}\n{text}"));
        let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("croft-{hex}")
    }

    fn data(&self) -> RequestLaunchTemplateData {
        let mut data = RequestLaunchTemplateData::builder().image_id(&self.image);
        if !self.user_data.is_empty() {
            data = data.user_data(&self.user_data);
        }
        if let Some(profile) = &self.profile {
            data = data.iam_instance_profile(
                LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(profile).build(),
            );
        }
        data = self.interfaces(data);
        for disk in &self.disks {
            data = data.block_device_mappings(disk.mapping());
        }
        let endpoint = |on: bool| {
            if on {
                LaunchTemplateInstanceMetadataEndpointState::Enabled
            } else {
                LaunchTemplateInstanceMetadataEndpointState::Disabled
            }
        };
        let mut metadata = LaunchTemplateInstanceMetadataOptionsRequest::builder()
            .http_endpoint(endpoint(self.http_endpoint))
            .http_tokens(if self.imds_v1 {
                LaunchTemplateHttpTokensState::Optional
            } else {
                LaunchTemplateHttpTokensState::Required
            })
            .http_put_response_hop_limit(self.hop_limit);
        if self.imds_ipv6 {
            metadata = metadata.http_protocol_ipv6(LaunchTemplateInstanceMetadataProtocolIpv6::Enabled);
        }
        data = data.metadata_options(metadata.build());
        if self.monitoring {
            data = data.monitoring(LaunchTemplatesMonitoringRequest::builder().enabled(true).build());
        }
        if let Some(group) = &self.placement_group {
            data = data.placement(LaunchTemplatePlacementRequest::builder().group_name(group).build());
        }
        if self.reserved_only {
            data = data.capacity_reservation_specification(
                LaunchTemplateCapacityReservationSpecificationRequest::builder()
                    .capacity_reservation_preference(CapacityReservationPreference::CapacityReservationsOnly)
                    .build(),
            );
        }
        let tags: Vec<Tag> =
            self.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
        // EC2 refuses tags of resources that a launch doesn't create.
        let spot = self.spot.then_some(ResourceType::SpotInstancesRequest);
        for kind in [ResourceType::NetworkInterface].into_iter().chain(spot) {
            data = data.tag_specifications(
                LaunchTemplateTagSpecificationRequest::builder()
                    .resource_type(kind)
                    .set_tags(Some(tags.clone()))
                    .build(),
            );
        }
        data.build()
    }
}

impl Configuration {
    /// Interfaces are listed only if needed: with an interface, the security groups belong to it.
    fn interfaces(&self, data: RequestLaunchTemplateDataBuilder) -> RequestLaunchTemplateDataBuilder {
        if self.efas == 0 && self.public_ip.is_none() {
            return data.set_security_group_ids(Some(self.groups.clone()));
        }
        let mut data = data;
        for card in 0..self.efas.max(1) {
            let mut interface = LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
                // The first is the instance's own; one on another card is never its first device.
                .device_index(i32::from(card > 0))
                .set_groups(Some(self.groups.clone()))
                .delete_on_termination(true);
            if self.efas > 0 {
                interface = interface
                    .interface_type("efa")
                    .network_card_index(i32::try_from(card).unwrap_or(i32::MAX));
            }
            if self.efas <= 1 {
                interface = interface.set_associate_public_ip_address(self.public_ip);
            }
            data = data.network_interfaces(interface.build());
        }
        data
    }
}

impl Disk {
    fn mapping(&self) -> LaunchTemplateBlockDeviceMappingRequest {
        LaunchTemplateBlockDeviceMappingRequest::builder()
            .device_name(&self.device)
            .ebs(
                LaunchTemplateEbsBlockDeviceRequest::builder()
                    .set_volume_size(self.gib)
                    .volume_type(VolumeType::from(self.kind.as_str()))
                    .set_iops(self.iops)
                    .set_throughput(self.throughput)
                    .set_encrypted(self.encrypted)
                    .set_kms_key_id(self.kms_key.clone())
                    .set_snapshot_id(self.snapshot.clone())
                    .delete_on_termination(self.delete)
                    .build(),
            )
            .build()
    }
}

/// The class's disks, or the image family's default: 20 GiB, encrypted, gp3. Bottlerocket keeps its system on a small
/// disk of its own.
fn disks(mappings: &[BlockDeviceMapping], family: Family, image: &ImageDisks) -> Vec<Disk> {
    let usual = |device: &str, gib: i32| Disk {
        device: device.to_owned(),
        gib: Some(gib),
        kind: "gp3".to_owned(),
        iops: None,
        throughput: None,
        encrypted: Some(true),
        kms_key: None,
        snapshot: None,
        delete: true,
    };
    if mappings.is_empty() {
        if family == Family::Custom {
            // The image's own disks.
            return Vec::new();
        }
        let gib = i32::try_from(DEFAULT_ROOT_GIB).unwrap_or(i32::MAX);
        let (system, data) = (root_device(family, Some(image)), data_device(family, Some(image)));
        let system = system.filter(|device| data != Some(*device)).map(|device| usual(device, SYSTEM_GIB));
        return system.into_iter().chain(data.map(|device| usual(device, gib))).collect();
    }
    mappings
        .iter()
        .map(|mapping| Disk {
            device: mapping.device_name.clone(),
            gib: mapping.ebs.volume_size.as_ref().and_then(|size| gib(&size.0)),
            kind: mapping.ebs.volume_type.clone().unwrap_or_else(|| "gp3".to_owned()),
            iops: mapping.ebs.iops,
            throughput: mapping.ebs.throughput,
            encrypted: Some(mapping.ebs.encrypted.unwrap_or(true)),
            kms_key: mapping.ebs.kms_key_id.clone(),
            snapshot: mapping.ebs.snapshot_id.clone(),
            delete: mapping.ebs.delete_on_termination.unwrap_or(true),
        })
        .collect()
}

/// Creates the template unless it exists.
pub(crate) async fn ensure(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    class: &str,
    configuration: &Configuration,
) -> Result<String, Fault> {
    let name = configuration.name(cluster);
    paces.write.turn().await;
    let tag = |key: &str, value: &str| Tag::builder().key(key).value(value).build();
    let answer = clients
        .ec2
        .create_launch_template()
        .launch_template_name(&name)
        .launch_template_data(configuration.data())
        .tag_specifications(
            TagSpecification::builder()
                .resource_type(ResourceType::LaunchTemplate)
                .tags(tag(tags::CLUSTER, cluster))
                .tags(tag(tags::CLASS, class))
                .build(),
        )
        .send()
        .await;
    match paces.write.record("CreateLaunchTemplate", answer) {
        Ok(_) => Ok(name),
        // The name is the hash of its contents, so the existing template is the same.
        Err(fault) if fault.class == FaultClass::Exists => Ok(name),
        Err(fault) => Err(fault),
    }
}

/// Deletes the cluster's templates that were created before `older_than` (seconds since 1970) and aren't in `keep`.
/// Returns their names, and the last refusal: a template that can't be deleted leaves the others to be deleted.
pub(crate) async fn sweep(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    older_than: i64,
    keep: &BTreeSet<String>,
) -> Result<(Vec<String>, Option<Fault>), Fault> {
    let filter = Filter::builder().name(format!("tag:{}", tags::CLUSTER)).values(cluster).build();
    let mut pages = clients.ec2.describe_launch_templates().filters(filter).into_paginator().send();
    let mut idle: BTreeSet<String> = BTreeSet::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for template in paces.read.record("DescribeLaunchTemplates", page)?.launch_templates() {
            let Some(name) = template.launch_template_name() else { continue };
            let made = template.create_time().map_or(i64::MAX, |at| at.secs());
            if made < older_than && !keep.contains(name) {
                idle.insert(name.to_owned());
            }
        }
    }
    let (mut gone, mut undeleted) = (Vec::new(), None);
    for name in idle {
        paces.write.turn().await;
        let answer = clients.ec2.delete_launch_template().launch_template_name(&name).send().await;
        match paces.write.record("DeleteLaunchTemplate", answer) {
            Err(fault) if fault.class != FaultClass::NotFound => undeleted = Some(fault),
            _ => gone.push(name),
        }
    }
    Ok((gone, undeleted))
}

#[cfg(test)]
mod tests {
    use croft_cloud::facts::Arch;

    use super::*;
    use crate::discovery::Serves;

    fn configuration(spec: &EC2NodeClassSpec) -> Configuration {
        Configuration::new(
            spec,
            Family::Al2023,
            &Hardware {
                image: Image {
                    id: "ami-1".to_owned(),
                    arch: Arch::Amd64,
                    serves: Serves::Any,
                    made: String::new(),
                    disks: ImageDisks::default(),
                },
                efas: 0,
                kubelet: KubeletSetup::default(),
            },
            &ClassFindings {
                security_groups: vec!["sg-1".to_owned()],
                instance_profile: Some("p".to_owned()),
                ..ClassFindings::default()
            },
            &UserData { text: "data".to_owned(), packed: None },
            Purpose::default(),
        )
    }

    #[test]
    fn equal_configurations_have_equal_template_names() {
        let spec = EC2NodeClassSpec::default();
        let name = configuration(&spec).name("uid");
        assert_eq!(name, configuration(&spec).name("uid"));
        assert_ne!(name, configuration(&spec).name("other"), "clusters don't share templates");
        let other = EC2NodeClassSpec { detailed_monitoring: true, ..spec };
        assert_ne!(name, configuration(&other).name("uid"));
    }

    #[test]
    fn every_network_card_gets_an_efa_adapter() {
        let spec =
            EC2NodeClassSpec { associate_public_ip_address: Some(true), ..EC2NodeClassSpec::default() };
        let with = |efas| Configuration { efas, ..configuration(&spec) };
        let interfaces = |configuration: &Configuration| {
            let data = configuration.data();
            assert!(data.security_group_ids().is_empty(), "with interfaces the groups are theirs");
            data.network_interfaces()
                .iter()
                .map(|i| {
                    assert_eq!(i.groups(), ["sg-1"]);
                    (i.network_card_index(), i.device_index(), i.interface_type().map(str::to_owned))
                })
                .collect::<Vec<_>>()
        };
        let efa = || Some("efa".to_owned());
        assert_eq!(interfaces(&with(0)), [(None, Some(0), None)]);
        assert_eq!(interfaces(&with(1)), [(Some(0), Some(0), efa())]);
        assert_eq!(
            interfaces(&with(3)),
            [(Some(0), Some(0), efa()), (Some(1), Some(1), efa()), (Some(2), Some(1), efa())]
        );
        assert!(with(1).problem().is_none());
        assert!(with(2).problem().is_some_and(|p| p.contains("associatePublicIPAddress")));
        let public = |efas| with(efas).data().network_interfaces()[0].associate_public_ip_address();
        assert_eq!((public(0), public(1), public(2)), (Some(true), Some(true), None));
        assert_ne!(with(0).name("uid"), with(1).name("uid"));
    }

    #[test]
    fn default_disks_are_those_that_the_image_boots_from_and_writes_to() {
        let disks = |family, root: &str, own: &[&str]| -> Vec<(String, Option<i32>)> {
            let sizes = own.iter().map(|device| ((*device).to_owned(), 2)).collect();
            let image = ImageDisks { root: root.to_owned(), sizes };
            disks(&[], family, &image).into_iter().map(|disk| (disk.device, disk.gib)).collect()
        };
        let one = |device: &str| vec![(device.to_owned(), Some(20))];
        let two = vec![("/dev/xvda".to_owned(), Some(4)), ("/dev/xvdb".to_owned(), Some(20))];
        assert_eq!(disks(Family::Al2023, "/dev/xvda", &["/dev/xvda"]), one("/dev/xvda"));
        assert_eq!(disks(Family::Al2023, "/dev/sda1", &["/dev/sda1"]), one("/dev/sda1"));
        assert_eq!(disks(Family::Ubuntu, "", &[]), one("/dev/sda1"), "an image that doesn't say");
        assert_eq!(disks(Family::Bottlerocket, "/dev/xvda", &["/dev/xvda", "/dev/xvdb"]), two);
        assert_eq!(disks(Family::Bottlerocket, "", &[]), two);
        assert_eq!(disks(Family::Custom, "/dev/xvda", &["/dev/xvda"]), [], "its own");
    }

    #[test]
    fn metadata_defaults_to_imdsv2_with_one_hop() {
        let data = configuration(&EC2NodeClassSpec::default()).data();
        let metadata = data.metadata_options().unwrap();
        assert_eq!(metadata.http_tokens(), Some(&LaunchTemplateHttpTokensState::Required));
        assert_eq!(metadata.http_put_response_hop_limit(), Some(1));
        assert_eq!(data.block_device_mappings()[0].ebs().unwrap().encrypted(), Some(true));
    }
}
