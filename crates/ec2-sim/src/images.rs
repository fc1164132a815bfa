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

/// An image that a vendor publishes by SSM parameters.
struct Published {
    path: String,
    name: String,
    release: String,
    /// The parameter's name for the newest.
    latest: &'static str,
    /// Disks beside a root of 20 GiB, or other sizes.
    disks: &'static [(&'static str, u64)],
}

/// The images of one day: every variant that the vendors publish for the architecture.
fn published(version: &str, date: &str, arch: Arch) -> Vec<Published> {
    let ec2 = arch.as_ec2();
    let amd64 = arch == Arch::Amd64;
    let eks = |path: String, name: String| Published {
        path: format!("/aws/service/eks/optimized-ami/{version}/{path}"),
        release: name.clone(),
        name,
        latest: "recommended",
        disks: &[],
    };
    let mut all = Vec::new();
    for variant in ["standard", "nvidia"].into_iter().chain(amd64.then_some("neuron")) {
        let name = format!("amazon-eks-node-al2023-{ec2}-{variant}-{version}-v{date}");
        all.push(eks(format!("amazon-linux-2023/{ec2}/{variant}"), name));
    }
    for variant in [if amd64 { "" } else { "-arm64" }].into_iter().chain(amd64.then_some("-gpu")) {
        let name = format!("amazon-eks{variant}-node-{version}-v{date}");
        all.push(eks(format!("amazon-linux-2{variant}"), name));
    }
    let release = format!("1.{}.0", date.get(4..6).unwrap_or("0").trim_start_matches('0'));
    for variant in ["", "-nvidia"] {
        all.push(Published {
            path: format!("/aws/service/bottlerocket/aws-k8s-{version}{variant}/{ec2}"),
            name: format!("bottlerocket-aws-k8s-{version}{variant}-{ec2}-v{release}"),
            release: release.clone(),
            latest: "latest",
            disks: &[("/dev/xvda", 2), ("/dev/xvdb", 20)],
        });
    }
    all
}

impl World {
    /// Adds `count` images for x86-64 with one tag, created one after the other.
    pub fn add_images(&mut self, count: u64, tag: (&str, &str)) {
        for number in 0..count {
            let mut image = Image::new(&format!("image-{number}"), Arch::Amd64, "/dev/xvda", 8);
            image.made = number;
            image.tags = BTreeMap::from([(tag.0.to_owned(), tag.1.to_owned())]);
            self.add_image(image);
        }
    }

    /// Adds an image. Returns its id.
    pub fn add_image(&mut self, image: Image) -> String {
        let id = self.new_id("ami");
        self.images.insert(id.clone(), image);
        id
    }

    /// Removes the images that an SSM parameter names, with the parameter.
    pub fn remove_image(&mut self, parameter: &str) {
        self.images.retain(|_, image| !image.parameters.iter().any(|name| name == parameter));
    }

    pub(crate) fn make_images(&mut self) {
        let version = self.settings.kubernetes_version.clone();
        let newest = DATES.last().map(|(date, _)| *date);
        for (date, made) in DATES {
            for arch in [Arch::Amd64, Arch::Arm64] {
                for published in published(&version, date, arch) {
                    let Published { path, name, release, latest, disks } = published;
                    let mut image = Image::new(&name, arch, "/dev/xvda", 20);
                    image.made = made;
                    image.disks.extend(disks.iter().map(|(device, gib)| ((*device).to_owned(), *gib)));
                    image.parameters.push(format!("{path}/{release}/image_id"));
                    if Some(date) == newest {
                        image.parameters.push(format!("{path}/{latest}/image_id"));
                    }
                    let digest = Sha256::digest(&name);
                    let hex: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
                    self.images.insert(format!("ami-0{hex}"), image);
                }
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
                .leaf("rootDeviceName", &image.root)
                .leaf("rootDeviceType", "ebs")
                .items("blockDeviceMapping", &image.disks, |xml, (device, gib)| {
                    xml.leaf("deviceName", device).node("ebs", |xml| {
                        xml.leaf("volumeSize", gib).leaf("volumeType", "gp3");
                    });
                })
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
