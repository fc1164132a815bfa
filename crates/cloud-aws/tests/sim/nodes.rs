//! A node has what was planned: with settings that its image would compute otherwise, with several disks, of each family.

use std::collections::BTreeMap;

use croft_api::{
    EC2NodeClass, EC2NodeClassSpec,
    amount::Amount,
    nodeclass::{AmiFamily, AmiSelectorTerm, BlockDeviceMapping, EbsVolume, InstanceStorePolicy, Kubelet},
};
use croft_cloud::{CloudProvider, LaunchRequest, facts::Arch};
use croft_cloud_aws::{AwsProvider, Options};
use croft_ec2_sim::resources::Image;
use croft_scheduler::{CapacityType::OnDemand, Resources};

use crate::{
    bed::{Bed, options, request, spec},
    discovery::condition,
};

const RESOURCES: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];
const GIB: i64 = 1 << 30;

fn disk(device: &str, size: &str) -> BlockDeviceMapping {
    let ebs = EbsVolume { volume_size: Some(Amount(size.to_owned())), ..EbsVolume::default() };
    BlockDeviceMapping { device_name: device.to_owned(), root_volume: false, ebs }
}

fn kubelet(change: impl FnOnce(&mut Kubelet)) -> Option<Kubelet> {
    let mut kubelet = Kubelet::default();
    change(&mut kubelet);
    Some(kubelet)
}

fn amounts(name: &str, amount: &str) -> BTreeMap<String, Amount> {
    BTreeMap::from([(name.to_owned(), Amount(amount.to_owned()))])
}

/// The resources of each type by plan and by its kubelet: capacity and allocatable.
async fn compare(bed: &Bed, provider: &AwsProvider, class: &EC2NodeClass, names: &[&str], case: &str) {
    let types = provider.instance_types(class).await.unwrap();
    for (number, name) in names.iter().enumerate() {
        let planned = types.iter().find(|kind| kind.name == **name).unwrap();
        let mut request = request(&[*name], OnDemand);
        request.claim_uid = format!("{case}-{number}");
        request.class = class.clone().into();
        let prepared = provider.prepare(&request).await.unwrap();
        let launched = provider.launch(&prepared).await.unwrap();
        let (capacity, allocatable) = bed.world(|world| world.node_resources(&launched.instance.id)).unwrap();
        let of = |resources: &Resources| RESOURCES.map(|name| resources.get(name));
        assert_eq!(of(&planned.capacity), of(&capacity), "{case}, capacity of {name}");
        assert_eq!(of(&planned.allocatable()), of(&allocatable), "{case}, allocatable of {name}");
        assert_eq!(of(&launched.allocatable), of(&allocatable), "{case}, the claim of {name}");
    }
}

/// A name, whether the network plugin gives out prefixes, and what is set in the class.
type Setting = (&'static str, bool, fn(&mut EC2NodeClassSpec));

#[tokio::test]
async fn node_has_what_was_planned_for_every_family_and_setting() {
    let bed = Bed::new().await;
    let names = ["m5.large", "m5.24xlarge", "m5d.2xlarge", "m6g.large"];
    let cases: [Setting; 7] = [
        ("default", false, |_| {}),
        ("prefixes", true, |_| {}),
        ("pods", false, |spec| spec.kubelet = kubelet(|k| k.max_pods = Some(110))),
        ("reserved", true, |spec| spec.kubelet = kubelet(|k| k.kube_reserved = amounts("cpu", "200m"))),
        ("system", false, |spec| {
            spec.kubelet = kubelet(|k| {
                k.system_reserved = amounts("memory", "200Mi");
                k.eviction_hard = BTreeMap::from([("memory.available".to_owned(), "5%".to_owned())]);
            });
        }),
        ("disks", false, |spec| {
            spec.block_device_mappings = vec![disk("/dev/xvda", "30Gi"), disk("/dev/xvdb", "500Gi")];
        }),
        ("raid0", false, |spec| spec.instance_store_policy = Some(InstanceStorePolicy::RAID0)),
    ];
    for alias in ["al2023@latest", "al2@latest", "bottlerocket@latest"] {
        for (name, prefix_delegation, change) in cases {
            let mut spec = spec();
            spec.ami_selector_terms[0].alias = Some(alias.to_owned());
            change(&mut spec);
            let case = format!("{alias}-{name}");
            let class = EC2NodeClass::new(&case, spec);
            let provider = AwsProvider::connect(Options { prefix_delegation, ..options(&bed.url) }).await;
            compare(&bed, &provider, &class, &names, &case).await;
        }
    }
}

#[tokio::test]
async fn prefixes_give_a_node_the_planned_110_pods() {
    let bed = Bed::new().await;
    let provider = AwsProvider::connect(Options { prefix_delegation: true, ..options(&bed.url) }).await;
    let prepared = provider.prepare(&request(&["m5.large"], OnDemand)).await.unwrap();
    let launched = provider.launch(&prepared).await.unwrap();
    let (capacity, allocatable) = bed.world(|world| world.node_resources(&launched.instance.id)).unwrap();
    assert_eq!(capacity.get("pods"), 110);
    let kept = capacity.get("memory") - allocatable.get("memory");
    assert_eq!(kept >> 20, 255 + 11 * 110 + 100, "memory for 110 pods, and the eviction threshold");
}

#[tokio::test]
async fn types_with_other_limits_of_pods_have_launch_templates_of_their_own() {
    let bed = Bed::new().await;
    let provider = AwsProvider::connect(Options { prefix_delegation: true, ..options(&bed.url) }).await;
    let mut of_both = request(&["m5.large", "m5.24xlarge", "m5.xlarge"], OnDemand);
    of_both.attempt = 2;
    bed.control(r#"{"do": "capacity", "rules": [{"instanceType": "m5.large", "count": 0}, {"instanceType": "m5.xlarge", "count": 0}]}"#);
    let prepared = provider.prepare(&of_both).await.unwrap();
    assert_eq!(bed.calls("ec2:CreateLaunchTemplate"), 2, "110 pods, and 250");
    let launched = provider.launch(&prepared).await.unwrap();
    let (capacity, _) = bed.world(|world| world.node_resources(&launched.instance.id)).unwrap();
    assert_eq!((launched.instance.instance_type.as_str(), capacity.get("pods")), ("m5.24xlarge", 250));
}

#[tokio::test]
async fn root_device_of_the_image_decides_which_disk_is_planned_with() {
    let bed = Bed::new().await;
    let image = |root: &str| Image::new("own", Arch::Amd64, root, 8);
    let (sda1, xvda) =
        bed.world(|world| (world.add_image(image("/dev/sda1")), world.add_image(image("/dev/xvda"))));
    for (number, (id, disks, gib)) in [
        (&sda1, vec![disk("/dev/sda1", "20Gi"), disk("/dev/sdf", "500Gi")], 20),
        (&sda1, vec![disk("/dev/sdf", "500Gi")], 8),
        (&xvda, vec![disk("/dev/xvdb", "500Gi"), disk("/dev/xvda", "20Gi")], 20),
        (&sda1, vec![], 20),
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = spec();
        spec.ami_family = Some(AmiFamily::Ubuntu);
        spec.ami_selector_terms =
            vec![AmiSelectorTerm { id: Some(id.clone()), ..AmiSelectorTerm::default() }];
        spec.block_device_mappings = disks;
        let class = EC2NodeClass::new(&format!("class-{number}"), spec);
        let types = bed.provider.instance_types(&class).await.unwrap();
        let m5 = types.iter().find(|kind| kind.name == "m5.large").unwrap();
        assert_eq!(m5.capacity.get("ephemeral-storage"), gib * GIB, "{number}");
        compare(&bed, &bed.provider, &class, &["m5.large"], &format!("root-{number}")).await;
    }
}

#[tokio::test]
async fn bottlerocket_class_with_registry_mirrors_launches() {
    let bed = Bed::new().await;
    let mut spec = spec();
    spec.ami_selector_terms[0].alias = Some("bottlerocket@latest".to_owned());
    spec.user_data = Some(
        "[settings.kubernetes]\nlog-level = 2\n\n[[settings.container-registry.mirrors]]\nregistry = \"docker.io\"\n\
         endpoint = [\"https://mirror.acme.test\"]\n"
            .to_owned(),
    );
    let class = EC2NodeClass::new("br", spec);
    let findings = bed.provider.resolve(&class).await;
    assert_eq!(condition(&findings, "UserDataReady").0, Some(true), "{:?}", findings.conditions);
    let request = LaunchRequest { class: class.into(), ..request(&["m5.large"], OnDemand) };
    let id = bed.launch(&request).await.unwrap().instance.id;
    let sent = bed.world(|world| world.instance(&id).unwrap().data.user_data.clone());
    let read = croft_ec2_sim::userdata::read(&sent).unwrap();
    assert_eq!(read.taints[0].key, "node-pool");
    let text = String::from_utf8(sent).unwrap();
    assert!(
        text.contains("[[settings.container-registry.mirrors]]") && text.contains("log-level = 2"),
        "{text}"
    );
}
