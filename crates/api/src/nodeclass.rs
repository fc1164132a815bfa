//! EC2NodeClass: how EC2 makes the machines of a pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An EC2NodeClass says how EC2 makes machines: image, network, identity, disks, tags.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "croft.dev",
    version = "v1alpha1",
    kind = "EC2NodeClass",
    doc = "An EC2NodeClass says how EC2 makes a pool's machines: image, network, identity, disks, tags.",
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = ("has(self.role) != has(self.instanceProfile)", "write exactly one of spec.role and spec.instanceProfile")
)]
pub struct EC2NodeClassSpec {
    /// Which images may be booted; any term that matches counts.
    #[schemars(length(min = 1, max = 30))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// IAM role of the machines; Croft makes the instance profile for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// An instance profile that exists already, instead of `role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Subnets to launch in; any term that matches counts.
    #[schemars(length(min = 1, max = 30))]
    pub subnet_selector_terms: Vec<SelectorTerm>,
    /// Security groups of the machines; any term that matches counts.
    #[schemars(length(min = 1, max = 30))]
    pub security_group_selector_terms: Vec<SelectorTerm>,
    /// User data merged with Croft's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Tags of everything that is launched, for cost allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Selects images.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = ("[has(self.alias), has(self.id), has(self.tags) && size(self.tags) > 0].filter(x, x).size() == 1", "write exactly one of alias, id and tags in a term; several terms add up"))]
pub struct AmiSelectorTerm {
    /// Family and version, such as `al2023@latest`, `al2023@v20260715` or `bottlerocket@latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Image id, such as `ami-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Tags that the image carries; `*` stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Selects subnets or security groups.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = ("has(self.id) != (has(self.tags) && size(self.tags) > 0)", "write exactly one of id and tags in a term; several terms add up"))]
pub struct SelectorTerm {
    /// Id, such as `subnet-0123456789abcdef0` or `sg-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Tags that it carries; `*` stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// What Croft found for a class.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// `SubnetsReady`, `SecurityGroupsReady`, `AMIsReady`, `InstanceProfileReady`, and `Ready` over them.
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
    /// Its architecture, as the label kubernetes.io/arch says it.
    pub arch: String,
}
