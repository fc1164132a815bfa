//! Images by family, architecture and device: an instance boots one with drivers for its devices, or isn't launched.

use std::collections::BTreeMap;

use croft_api::{
    EC2NodeClass,
    nodeclass::{AmiFamily, AmiSelectorTerm},
};
use croft_cloud::{CloudProvider, LaunchError, LaunchRequest};
use croft_ec2_sim::world::Settings;
use croft_scheduler::{CapacityType::OnDemand, InstanceType};

use crate::{
    bed::{Bed, request, spec},
    discovery::condition,
};

const TYPES: [&str; 6] =
    ["m5.large", "m6g.large", "g4dn.xlarge", "g5g.xlarge", "inf2.xlarge", "trn1.2xlarge"];

async fn bed() -> Bed {
    let types = TYPES.map(str::to_owned).to_vec();
    Bed::with(Settings { types, ..Settings::default() }).await
}

fn with_alias(alias: &str) -> EC2NodeClass {
    let mut spec = spec();
    spec.ami_selector_terms[0].alias = Some(alias.to_owned());
    EC2NodeClass::new(alias.split('@').next().unwrap(), spec)
}

fn offered<'a>(types: &'a [InstanceType], name: &str) -> Option<&'a InstanceType> {
    types.iter().find(|kind| kind.name == name)
}

#[tokio::test]
async fn every_type_boots_the_variant_of_its_devices_or_is_not_launched() {
    let bed = bed().await;
    let mut claims = 0;
    for (alias, images) in [
        (
            "al2023@latest",
            [
                Some("amazon-eks-node-al2023-x86_64-standard-"),
                Some("amazon-eks-node-al2023-arm64-standard-"),
                Some("amazon-eks-node-al2023-x86_64-nvidia-"),
                Some("amazon-eks-node-al2023-arm64-nvidia-"),
                Some("amazon-eks-node-al2023-x86_64-neuron-"),
                Some("amazon-eks-node-al2023-x86_64-neuron-"),
            ],
        ),
        (
            "bottlerocket@latest",
            [
                Some("bottlerocket-aws-k8s-1.36-x86_64-"),
                Some("bottlerocket-aws-k8s-1.36-arm64-"),
                Some("bottlerocket-aws-k8s-1.36-nvidia-x86_64-"),
                Some("bottlerocket-aws-k8s-1.36-nvidia-arm64-"),
                Some("bottlerocket-aws-k8s-1.36-x86_64-"),
                Some("bottlerocket-aws-k8s-1.36-x86_64-"),
            ],
        ),
        (
            "al2@latest",
            [
                Some("amazon-eks-node-1.36-"),
                Some("amazon-eks-arm64-node-1.36-"),
                Some("amazon-eks-gpu-node-1.36-"),
                None,
                Some("amazon-eks-gpu-node-1.36-"),
                Some("amazon-eks-gpu-node-1.36-"),
            ],
        ),
    ] {
        let class = with_alias(alias);
        let findings = bed.provider.resolve(&class).await;
        assert!(findings.is_ready(), "{alias}: {:?}", findings.conditions);
        assert_eq!(condition(&findings, "AMIsComplete").0, Some(true), "{alias}");
        assert!(findings.amis.iter().any(|ami| ami.device.as_deref() == Some("nvidia")), "{alias}");
        let types = bed.provider.instance_types(&class).await.unwrap();
        for (name, image) in TYPES.into_iter().zip(images) {
            claims += 1;
            let mut request =
                LaunchRequest { claim_uid: format!("uid-{claims}"), ..request(&[name], OnDemand) };
            request.class = class.clone().into();
            let Some(image) = image else {
                assert!(offered(&types, name).is_none(), "{alias}: {name}");
                let error = bed.launch(&request).await.unwrap_err();
                assert!(matches!(&error, LaunchError::NoCapacity { .. }), "{error}");
                assert!(error.to_string().contains("no image of the class has drivers for"), "{error}");
                continue;
            };
            assert!(offered(&types, name).is_some(), "{alias}: {name}");
            let launched = bed.launch(&request).await.unwrap();
            let booted = bed.world(|world| world.image_name(&launched.instance.image_id)).unwrap();
            assert!(booted.starts_with(image), "{alias}: {name} boots {booted}");
        }
    }
}

#[tokio::test]
async fn missing_variant_is_a_condition_of_its_own_and_the_rest_launches() {
    for (alias, parameter) in [
        (
            "al2023@latest",
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
        ),
        ("bottlerocket@latest", "/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/latest/image_id"),
    ] {
        let bed = bed().await;
        bed.world(|world| world.remove_image(parameter));
        let class = with_alias(alias);
        let findings = bed.provider.resolve(&class).await;
        assert!(findings.is_ready(), "{:?}", findings.conditions);
        let (status, reason, message) = condition(&findings, "AMIsComplete");
        assert_eq!((status, reason), (Some(false), "AMIsMissing"));
        let words = format!("no image for {alias} for instance types with nvidia on amd64: ");
        assert!(message.starts_with(&words), "{message}");
        let types = bed.provider.instance_types(&class).await.unwrap();
        let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["g5g.xlarge", "inf2.xlarge", "m5.large", "m6g.large", "trn1.2xlarge"], "{alias}");
    }
}

/// A user who chooses an image by id, parameter or tags knows its drivers.
#[tokio::test]
async fn image_that_was_chosen_by_id_is_for_every_type() {
    let bed = bed().await;
    let plain = bed.provider.resolve(&with_alias("al2023@latest")).await.amis;
    let plain = plain.iter().find(|ami| ami.arch == "amd64" && ami.device.is_none()).unwrap().id.clone();
    let mut own = spec();
    own.ami_family = Some(AmiFamily::AL2023);
    own.ami_selector_terms = vec![AmiSelectorTerm {
        id: Some(plain.clone()),
        tags: BTreeMap::new(),
        ..AmiSelectorTerm::default()
    }];
    let class = EC2NodeClass::new("own", own);
    let types = bed.provider.instance_types(&class).await.unwrap();
    assert!(offered(&types, "g4dn.xlarge").is_some() && offered(&types, "m6g.large").is_none());
    let mut request = request(&["g4dn.xlarge"], OnDemand);
    request.class = class.into();
    assert_eq!(bed.launch(&request).await.unwrap().instance.image_id, plain);
}
