//! EC2NodeClass: how EC2 launches the instances of a pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{amount::Amount, bounds};

/// An EC2NodeClass says how EC2 launches instances: image, network, identity, disks, tags.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "EC2NodeClass",
    doc = "An EC2NodeClass says how EC2 launches the instances of a pool: image, network, identity, disks, tags.",
    plural = "ec2nodeclasses",
    shortname = "ec2nc",
    category = "croft",
    status = "EC2NodeClassStatus",
    derive = "PartialEq",
    printcolumn(name = "Role", json_path = ".spec.role", type_ = "string"),
    printcolumn(
        name = "Ready",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        type_ = "string"
    ),
    printcolumn(name = "Age", json_path = ".metadata.creationTimestamp", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.role) != has(self.instanceProfile)", "write exactly one of spec.role and spec.instanceProfile"),
    validation = ("has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))", "write spec.amiFamily: without an alias nothing says how the image is told what to do"),
    validation = ("!self.amiSelectorTerms.exists(t, has(t.alias)) || size(self.amiSelectorTerms) == 1", "an alias stands alone: remove the other terms of spec.amiSelectorTerms, or the alias"),
    validation = ("!has(self.blockDeviceMappings) || self.blockDeviceMappings.filter(b, has(b.rootVolume) && b.rootVolume).size() <= 1", "mark at most one of spec.blockDeviceMappings as rootVolume")
)]
pub struct EC2NodeClassSpec {
    /// How the image gets its configuration. Default: the family of the alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// The images that may be launched: those that any of the terms matches.
    #[schemars(length(min = 1, max = 30))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// IAM role of the instances; Croft creates the instance profile for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::iam_name")]
    pub role: Option<String>,
    /// An existing instance profile, instead of `role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::iam_name")]
    pub instance_profile: Option<String>,
    /// The subnets to launch in: those that any of the terms matches.
    #[schemars(schema_with = "bounds::subnet_terms::<SelectorTerm>")]
    pub subnet_selector_terms: Vec<SelectorTerm>,
    /// The security groups of the instances: those that any of the terms matches.
    #[schemars(schema_with = "bounds::group_terms::<SelectorTerm>")]
    pub security_group_selector_terms: Vec<SelectorTerm>,
    /// User data merged with Croft's own: a script, MIME multi-part, NodeConfig, or Bottlerocket settings in TOML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::user_data")]
    pub user_data: Option<String>,
    /// Disks of the instances. Default: the image's own, 20 GiB, encrypted, gp3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::disks::<BlockDeviceMapping>")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// The use of the local disks of instances that have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// The instance metadata service, from which pods could get the instance's credentials.
    #[serde(default)]
    pub metadata_options: MetadataOptions,
    /// Whether the instances get a public address. Default: as the subnet is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "associatePublicIPAddress")]
    pub associate_public_ip_address: Option<bool>,
    /// Metrics every minute instead of every five.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detailed_monitoring: bool,
    /// Name of the placement group of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::placement_group")]
    pub placement_group: Option<String>,
    /// Capacity reservations to use before other capacity is paid for: those that any of the terms matches. Without an
    /// active one, other capacity is launched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::reservation_terms::<SelectorTerm>")]
    pub capacity_reservation_selector_terms: Vec<SelectorTerm>,
    /// Settings of the kubelet, where the image's own don't suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelet>,
    /// Tags of all resources that are launched, for cost allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::tags")]
    pub tags: BTreeMap<String, String>,
}

/// Selects images.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("[has(self.alias), has(self.ssmParameter), has(self.id), has(self.tags) && size(self.tags) > 0].filter(x, x).size() == 1", "write exactly one of alias, ssmParameter, id and tags in a term; several terms add up"))]
pub struct AmiSelectorTerm {
    /// Family and version, such as `al2023@latest`, `al2023@v20260715` or `bottlerocket@latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::alias")]
    pub alias: Option<String>,
    /// Name of an SSM parameter that holds an image id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::parameter")]
    pub ssm_parameter: Option<String>,
    /// Image id, such as `ami-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::image_id")]
    pub id: Option<String>,
    /// Tags that the image carries; `*` stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::selected_tags")]
    pub tags: BTreeMap<String, String>,
}

/// A family of images: how an instance gets its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AmiFamily {
    /// Amazon Linux 2023, by nodeadm.
    AL2023,
    /// Amazon Linux 2, by bootstrap.sh.
    AL2,
    /// Bottlerocket, by settings.
    Bottlerocket,
    /// Ubuntu for EKS, by bootstrap.sh.
    Ubuntu,
    /// Any other: `userData` is the whole configuration.
    Custom,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// Name of the device, such as `/dev/xvda`.
    #[schemars(schema_with = "bounds::device_name")]
    pub device_name: String,
    /// True for the disk that the kubelet and the container runtime write to. Default: the one that the image boots from,
    /// but Bottlerocket's second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
    /// The disk.
    pub ebs: EbsVolume,
}

/// An EBS volume.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.iops) || (has(self.volumeType) ? self.volumeType in ['gp3', 'io1', 'io2'] : true)", "only gp3, io1 and io2 take iops: leave iops out, or write another volumeType"),
    validation = ("!has(self.volumeType) || !(self.volumeType in ['io1', 'io2']) || has(self.iops)", "io1 and io2 need iops: write them, or volumeType gp3"),
    validation = ("!has(self.throughput) || !has(self.volumeType) || self.volumeType == 'gp3'", "only gp3 takes throughput: leave throughput out, or write volumeType gp3"),
    validation = ("!has(self.kmsKeyID) || !has(self.encrypted) || self.encrypted", "a volume with a key is encrypted: leave kmsKeyID out, or write encrypted: true")
)]
pub struct EbsVolume {
    /// Its size, such as `100Gi`; rounded up to whole GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::volume_size")]
    pub volume_size: Option<Amount>,
    /// `gp3`, `gp2`, `io1`, `io2`, `st1`, `sc1` or `standard`. Default: gp3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::volume_type")]
    pub volume_type: Option<String>,
    /// IO operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 256_000))]
    pub iops: Option<i32>,
    /// MiB per second, for gp3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 125, max = 2_000))]
    pub throughput: Option<i32>,
    /// Whether it is encrypted. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// The key of the encryption. Default: the account's key for EBS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "kmsKeyID")]
    #[schemars(schema_with = "bounds::kms_key")]
    pub kms_key_id: Option<String>,
    /// The snapshot to create the volume from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "snapshotID")]
    #[schemars(schema_with = "bounds::snapshot_id")]
    pub snapshot_id: Option<String>,
    /// Whether the volume is deleted with the instance. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
}

/// The use of local disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceStorePolicy {
    /// One RAID 0 of all of them for the kubelet and the container runtime: the node's ephemeral storage.
    RAID0,
}

/// The instance metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether the service is enabled.
    #[serde(default = "enabled")]
    pub http_endpoint: Toggle,
    /// Whether requests need a token (IMDSv2).
    #[serde(default)]
    pub http_tokens: HttpTokens,
    /// The number of hops that an answer may travel: with 1, pods without the host's network can't reach the service.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub http_put_response_hop_limit: i32,
    /// Whether the service is enabled on IPv6.
    #[serde(default = "disabled")]
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Toggle,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: enabled(),
            http_tokens: HttpTokens::Required,
            http_put_response_hop_limit: one(),
            http_protocol_ipv6: disabled(),
        }
    }
}

fn enabled() -> Toggle {
    Toggle::Enabled
}

fn disabled() -> Toggle {
    Toggle::Disabled
}

fn one() -> i32 {
    1
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Toggle {
    /// On.
    Enabled,
    /// Off.
    Disabled,
}

/// Whether requests to the metadata service need a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HttpTokens {
    /// IMDSv2 only.
    #[default]
    Required,
    /// IMDSv1 as well.
    Optional,
}

/// Settings of the kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    /// The number of pods of a node. Default: the number of addresses of the instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::max_pods")]
    pub max_pods: Option<u32>,
    /// DNS servers of pods.
    #[serde(default, rename = "clusterDNS", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounds::addresses")]
    pub cluster_dns: Vec<String>,
    /// Resources reserved for Kubernetes' own processes, instead of the image's computation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::reserved")]
    pub kube_reserved: BTreeMap<String, Amount>,
    /// Resources reserved for the system's processes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::reserved")]
    pub system_reserved: BTreeMap<String, Amount>,
    /// Signals and thresholds at which pods are evicted at once, such as `memory.available: 5%`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::thresholds")]
    pub eviction_hard: BTreeMap<String, String>,
}

/// Selects subnets, security groups or capacity reservations.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.id) != (has(self.tags) && size(self.tags) > 0)", "write exactly one of id and tags in a term; several terms add up"))]
pub struct SelectorTerm {
    /// Id, such as `subnet-0123456789abcdef0` or `sg-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::selected_id")]
    pub id: Option<String>,
    /// Tags that it carries; `*` stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::selected_tags")]
    pub tags: BTreeMap<String, String>,
}

/// The observed state of a class.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// `SubnetsReady`, `SecurityGroupsReady`, `AMIsReady`, `InstanceProfileReady`, `UserDataReady`, and `Ready`, which
    /// summarizes these. `AMIsComplete`, `CapacityReservationsReady` and `LaunchesAccepted` say what isn't launched while
    /// the class is Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Subnets that the terms match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<SubnetStatus>,
    /// Security groups that the terms match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Images that the terms match, newest first per architecture.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<AmiStatus>,
}

/// A subnet that a class may launch in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubnetStatus {
    /// The subnet's id.
    pub id: String,
    /// Its availability zone.
    pub zone: String,
}

/// An image that a class may boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AmiStatus {
    /// The image's id.
    pub id: String,
    /// Its architecture, as in the label kubernetes.io/arch.
    pub arch: String,
    /// Maker of the devices of the instance types that the image is for: `nvidia` or `aws`. Absent for types without
    /// devices, and for an image that was chosen by id, parameter or tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}
