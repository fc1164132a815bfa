//! Machine images, and the SSM parameters that name the newest of each kind.

use std::collections::BTreeMap;

use croft_cloud::facts::Arch;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    answer::{Answer, Call, Outcome, Refusal},
    describe::{all, iso, page},
    policy::Demand,
    resources::Image,
    world::World,
    xml::Xml,
};

/// Publication dates of images; the last is the newest.
const DATES: [(&str, u64); 2] = [("20260615", 1_781_481_600_000), ("20260715", 1_784_073_600_000)];

impl World {
    /// Adds `count` images for x86-64 with one tag, created one after the other.
    pub fn add_images(&mut self, count: u64, tag: (&str, &str)) {
        for number in 0..count {
            let id = self.new_id("ami");
            let image = Image {
                name: format!("image-{number}"),
                arch: Arch::Amd64,
                made: number,
                parameters: Vec::new(),
                tags: BTreeMap::from([(tag.0.to_owned(), tag.1.to_owned())]),
            };
            self.images.insert(id, image);
        }
    }

    pub(crate) fn make_images(&mut self) {
        let version = self.settings.kubernetes_version.clone();
        let newest = DATES.last().map(|(date, _)| *date);
        for (date, made) in DATES {
            let latest = Some(date) == newest;
            for arch in [Arch::Amd64, Arch::Arm64] {
                let ec2 = arch.as_ec2();
                let mut add = |name: String,
                               mut parameters: Vec<String>,
                               latest_parameter: Option<String>| {
                    parameters.extend(latest_parameter.filter(|_| latest));
                    let digest = Sha256::digest(&name);
                    let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
                    let tags = BTreeMap::from([("Name".to_owned(), name.clone())]);
                    self.images.insert(format!("ami-0{hex}"), Image { name, arch, made, parameters, tags });
                };
                for variant in ["standard", "nvidia", "neuron"] {
                    if variant == "neuron" && arch == Arch::Arm64 {
                        continue;
                    }
                    let name = format!("amazon-eks-node-al2023-{ec2}-{variant}-{version}-v{date}");
                    let path =
                        format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{ec2}/{variant}");
                    add(
                        name.clone(),
                        vec![format!("{path}/{name}/image_id")],
                        Some(format!("{path}/recommended/image_id")),
                    );
                }
                let suffix = if arch == Arch::Arm64 { "-arm64" } else { "" };
                let name = format!("amazon-eks{suffix}-node-{version}-v{date}");
                let path = format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}");
                add(
                    name.clone(),
                    vec![format!("{path}/{name}/image_id")],
                    Some(format!("{path}/recommended/image_id")),
                );
                let release = format!("1.{}.0", date.get(4..6).unwrap_or("0").trim_start_matches('0'));
                let name = format!("bottlerocket-aws-k8s-{version}-{ec2}-v{release}");
                let path = format!("/aws/service/bottlerocket/aws-k8s-{version}/{ec2}");
                add(
                    name,
                    vec![format!("{path}/{release}/image_id")],
                    Some(format!("{path}/latest/image_id")),
                );
            }
        }
    }

    /// The name of an image.
    #[must_use]
    pub fn image_name(&self, id: &str) -> Option<String> {
        self.images.get(id).map(|image| image.name.clone())
    }

    pub(crate) fn ssm(&mut self, call: &Call) -> Outcome {
        let name = match call.action.as_str() {
            "GetParameter" => call.json.get("Name").and_then(|n| n.as_str()).unwrap_or_default().to_owned(),
            other => {
                return Err(Refusal::new("UnknownOperationException", format!("{other} is not simulated")));
            }
        };
        let arn = format!("arn:aws:ssm:{}::parameter{name}", self.settings.region);
        self.require(call, &Demand::new("ssm:GetParameter", arn))?;
        let found = self.images.iter().find(|(_, image)| image.parameters.contains(&name));
        let Some((id, _)) = found else {
            return Err(Refusal::new("ParameterNotFound", format!("Parameter {name} not found.")));
        };
        Ok(Answer::Json(json!({"Parameter": {"Name": name, "Type": "String", "Value": id, "Version": 1}})))
    }

    pub(crate) fn describe_images(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let ids = call.params.list("ImageId");
        if let Some(id) = ids.iter().find(|id| !self.images.contains_key(*id)) {
            return Err(Refusal::new(
                "InvalidAMIID.NotFound",
                format!("The image id '[{id}]' does not exist"),
            ));
        }
        let filters = call.params.filters();
        let mut found = Vec::new();
        for (id, image) in &self.images {
            let fits = all(&filters, |f| {
                f.matches_tags(&image.tags).or_else(|| match f.name.as_str() {
                    "image-id" => Some(f.matches([id.as_str()])),
                    "name" => Some(f.matches([image.name.as_str()])),
                    "architecture" => Some(f.matches([image.arch.as_ec2()])),
                    "state" => Some(f.matches(["available"])),
                    _ => None,
                })
            })?;
            if (ids.is_empty() || ids.contains(id)) && fits {
                found.push((id.clone(), image.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let mut xml = Xml::new();
        xml.items("imagesSet", found, |xml, (id, image)| {
            xml.leaf("imageId", &id)
                .leaf("name", &image.name)
                .leaf("imageState", "available")
                .leaf("imageOwnerId", "602401143452")
                .leaf("isPublic", true)
                .leaf("creationDate", iso(image.made))
                .leaf("architecture", image.arch.as_ec2())
                .leaf("imageType", "machine")
                .leaf("rootDeviceName", "/dev/xvda")
                .leaf("rootDeviceType", "ebs")
                .leaf("virtualizationType", "hvm")
                .tags(&image.tags);
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    /// Refuses an image that doesn't exist or that the instance can't boot.
    pub(crate) fn check_image(&self, image: &str, instance_type: &str) -> Result<(), Refusal> {
        let found = self.images.get(image).ok_or_else(|| {
            Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{image}]' does not exist"))
        })?;
        let instance = self.market.entry(instance_type).map(|e| e.facts.arch);
        if instance == Some(found.arch) {
            return Ok(());
        }
        Err(Refusal::new(
            "InvalidParameterValue",
            format!(
                "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified AMI.",
                instance.map_or("unknown", Arch::as_ec2),
                found.arch.as_ec2()
            ),
        ))
    }
}
