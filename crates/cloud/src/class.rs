//! The settings of an EC2NodeClass's instances, by which plans and user data are made. Without calls to a cloud.

use std::collections::BTreeMap;

use croft_api::{
    EC2NodeClassSpec,
    amount::Amount,
    nodeclass::{AmiFamily, InstanceStorePolicy},
};
use croft_scheduler::{Quantity, Resources};

use crate::{
    facts::{DEFAULT_ROOT_GIB, Ec2InstanceType, Kept, Setup, Threshold},
    kubelet::{EVICTION_HARD, reserved},
    userdata::{Family, KubeletSetup},
};

/// The disks that an image has by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageDisks {
    /// Device name of the disk that it boots from.
    pub root: String,
    /// GiB of its EBS disks, by device name.
    pub sizes: BTreeMap<String, u64>,
}

/// The class's family of images: as it says, else that of its alias.
#[must_use]
pub fn family(spec: &EC2NodeClassSpec) -> Family {
    match spec.ami_family {
        Some(AmiFamily::AL2023) => Family::Al2023,
        Some(AmiFamily::AL2) => Family::Al2,
        Some(AmiFamily::Bottlerocket) => Family::Bottlerocket,
        Some(AmiFamily::Ubuntu) => Family::Ubuntu,
        Some(AmiFamily::Custom) => Family::Custom,
        None => {
            let aliases = spec.ami_selector_terms.iter().filter_map(|term| term.alias.as_deref());
            let mut families = aliases.filter_map(|alias| Family::of_alias(alias.split('@').next()?));
            families.next().unwrap_or(Family::Custom)
        }
    }
}

/// Settings of the class's instances that affect their capacity. Without an `image`, its disks are those of the
/// family's images.
#[must_use]
pub fn setup(spec: &EC2NodeClassSpec, image: Option<&ImageDisks>, prefix_delegation: bool) -> Setup {
    let kubelet = spec.kubelet.as_ref();
    let images = Setup::default();
    let threshold = |signal: &str| kubelet.and_then(|k| Threshold::parse(k.eviction_hard.get(signal)?));
    Setup {
        max_pods: kubelet.and_then(|k| k.max_pods),
        root_volume_gib: data_gib(spec, image),
        instance_store: spec.instance_store_policy == Some(InstanceStorePolicy::RAID0),
        prefix_delegation,
        kube_reserved: kept(kubelet.map(|k| &k.kube_reserved)),
        system_reserved: kept(kubelet.map(|k| &k.system_reserved)),
        eviction_memory: threshold("memory.available").unwrap_or(images.eviction_memory),
        eviction_disk: threshold("nodefs.available").unwrap_or(images.eviction_disk),
    }
}

/// GiB of the disk that the kubelet and the container runtime write to.
fn data_gib(spec: &EC2NodeClassSpec, image: Option<&ImageDisks>) -> u64 {
    let mappings = &spec.block_device_mappings;
    let family = family(spec);
    let marked =
        mappings.iter().find(|mapping| mapping.root_volume).map(|mapping| mapping.device_name.as_str());
    let Some(device) = marked.or_else(|| data_device(family, image)) else {
        // Nothing says which disk is the root: the smallest is enough for what is planned on any of them.
        let sizes = mappings.iter().filter_map(|mapping| volume_gib(mapping.ebs.volume_size.as_ref()));
        return sizes.min().unwrap_or(DEFAULT_ROOT_GIB);
    };
    if mappings.is_empty() && family != Family::Custom {
        return DEFAULT_ROOT_GIB;
    }
    // A disk of the image that the class doesn't name keeps its size.
    let mapped = mappings.iter().find(|mapping| mapping.device_name == device);
    let own = || image.and_then(|image| image.sizes.get(device)).copied();
    mapped
        .and_then(|mapping| volume_gib(mapping.ebs.volume_size.as_ref()))
        .or_else(own)
        .unwrap_or(DEFAULT_ROOT_GIB)
}

/// The device that an image boots from, if known.
#[must_use]
pub fn root_device(family: Family, image: Option<&ImageDisks>) -> Option<&str> {
    let named = image.map(|image| image.root.as_str()).filter(|root| !root.is_empty());
    named.or(match family {
        Family::Al2023 | Family::Al2 | Family::Bottlerocket => Some("/dev/xvda"),
        Family::Ubuntu => Some("/dev/sda1"),
        Family::Custom => None,
    })
}

/// The device that the kubelet and the container runtime write to, if known: the one that the image boots from, but
/// Bottlerocket's second, since its system is on a disk of its own.
#[must_use]
pub fn data_device(family: Family, image: Option<&ImageDisks>) -> Option<&str> {
    if family != Family::Bottlerocket {
        return root_device(family, image);
    }
    let others = image.and_then(|image| image.sizes.keys().find(|device| **device != image.root));
    Some(others.map_or("/dev/xvdb", String::as_str))
}

fn volume_gib(size: Option<&Amount>) -> Option<u64> {
    u64::try_from(gib(&size?.0)?).ok()
}

/// A size in GiB, rounded up.
#[must_use]
pub fn gib(size: &str) -> Option<i32> {
    let quantity: Quantity = size.parse().ok()?;
    let bytes = quantity.units();
    i32::try_from(bytes.checked_add((1 << 30) - 1)? >> 30).ok()
}

fn kept(amounts: Option<&BTreeMap<String, Amount>>) -> Kept {
    let native = |name: &str| {
        let quantity: Quantity = amounts?.get(name)?.0.parse().ok()?;
        let mut one = Resources::new();
        one.set_quantity(name, quantity);
        Some(one.get(name))
    };
    Kept { cpu_milli: native("cpu"), memory: native("memory"), disk: native("ephemeral-storage") }
}

/// The class's kubelet settings.
#[must_use]
pub fn kubelet(spec: &EC2NodeClassSpec) -> KubeletSetup {
    let Some(kubelet) = &spec.kubelet else { return KubeletSetup::default() };
    let amounts = |map: &BTreeMap<String, Amount>| {
        map.iter().map(|(name, amount)| (name.clone(), amount.0.clone())).collect()
    };
    KubeletSetup {
        max_pods: kubelet.max_pods,
        cluster_dns: kubelet.cluster_dns.clone(),
        kube_reserved: amounts(&kubelet.kube_reserved),
        system_reserved: amounts(&kubelet.system_reserved),
        eviction_hard: kubelet.eviction_hard.clone(),
    }
}

/// The kubelet settings that a node of the type is told: the class's, and the plan's wherever the image would compute
/// others, so that the node has what was planned.
#[must_use]
pub fn kubelet_of(spec: &EC2NodeClassSpec, facts: &Ec2InstanceType, setup: &Setup) -> KubeletSetup {
    let mut told = kubelet(spec);
    let pods = facts.max_pods(setup);
    let computed = reserved(facts.vcpus, pods);
    let memory = format!("{}Mi", computed.memory_mib);
    let kube = &mut told.kube_reserved;
    if pods != facts.image_max_pods() {
        told.max_pods = Some(pods);
        // The images of Amazon Linux reserve memory for as many pods as the interfaces have addresses, whatever
        // maxPods says. Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go.
        kube.entry("memory".to_owned()).or_insert_with(|| memory.clone());
    }
    // The flags of bootstrap.sh replace what the image configures, all keys of it; NodeConfigs and Bottlerocket's
    // settings change those that they name.
    if matches!(family(spec), Family::Al2 | Family::Ubuntu) && !kube.is_empty() {
        let cpu = format!("{}m", computed.cpu_milli);
        for (name, amount) in [("cpu", cpu), ("memory", memory), ("ephemeral-storage", "1Gi".to_owned())] {
            kube.entry(name.to_owned()).or_insert(amount);
        }
    }
    if !told.eviction_hard.is_empty() {
        for (signal, threshold) in EVICTION_HARD {
            told.eviction_hard.entry(signal.to_owned()).or_insert_with(|| threshold.to_owned());
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(family: &str, disks: serde_json::Value) -> EC2NodeClassSpec {
        serde_json::from_value(json!({
            "amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}], "role": "r",
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "blockDeviceMappings": disks,
        }))
        .unwrap()
    }

    fn image(root: &str, disks: &[(&str, u64)]) -> ImageDisks {
        let sizes = disks.iter().map(|(device, gib)| ((*device).to_owned(), *gib)).collect();
        ImageDisks { root: root.to_owned(), sizes }
    }

    #[test]
    fn root_device_of_the_image_decides_which_disk_pods_write_to() {
        let disk = |device: &str, size: &str| json!({"deviceName": device, "ebs": {"volumeSize": size}});
        let marked = |device: &str, size: &str| json!({"deviceName": device, "rootVolume": true, "ebs": {"volumeSize": size}});
        let two = json!([disk("/dev/xvda", "20Gi"), disk("/dev/xvdb", "500Gi")]);
        let other_way = json!([disk("/dev/xvdb", "500Gi"), disk("/dev/xvda", "20Gi")]);
        let one = json!([disk("/dev/xvdb", "500Gi")]);
        let unsized_root = json!([{"deviceName": "/dev/xvda", "ebs": {}}]);
        let ubuntu = json!([disk("/dev/sda1", "80Gi"), disk("/dev/sdf", "500Gi")]);
        let with_mark = json!([disk("/dev/xvda", "20Gi"), marked("/dev/xvdc", "300Gi")]);
        let xvda = image("/dev/xvda", &[("/dev/xvda", 30)]);
        let sda1 = image("/dev/sda1", &[("/dev/sda1", 8)]);
        let system_and_data = image("/dev/xvda", &[("/dev/xvda", 2), ("/dev/xvdb", 20)]);
        for (family, disks, image, gib) in [
            ("AL2023", &two, Some(&xvda), 20),
            ("AL2023", &two, None, 20),
            ("AL2023", &other_way, Some(&xvda), 20),
            ("AL2023", &one, Some(&xvda), 30),
            ("AL2023", &unsized_root, Some(&xvda), 30),
            ("AL2023", &unsized_root, None, 20),
            ("AL2023", &json!([]), Some(&xvda), 20),
            ("AL2", &two, Some(&xvda), 20),
            ("Ubuntu", &ubuntu, Some(&sda1), 80),
            ("Ubuntu", &ubuntu, None, 80),
            ("Ubuntu", &two, Some(&sda1), 8),
            ("Bottlerocket", &two, Some(&system_and_data), 500),
            ("Bottlerocket", &other_way, None, 500),
            ("Bottlerocket", &unsized_root, Some(&system_and_data), 20),
            ("Bottlerocket", &json!([disk("/dev/xvda", "10Gi")]), Some(&system_and_data), 20),
            ("Custom", &two, Some(&xvda), 20),
            ("Custom", &one, Some(&sda1), 8),
            ("Custom", &json!([]), Some(&sda1), 8),
            ("Custom", &two, None, 20),
            ("Custom", &json!([]), None, 20),
            ("AL2023", &with_mark, Some(&xvda), 300),
        ] {
            let setup = setup(&spec(family, disks.clone()), image, false);
            assert_eq!(setup.root_volume_gib, gib, "{family}: {disks}, {image:?}");
        }
    }

    #[test]
    fn family_is_that_of_the_alias_unless_the_class_says_another() {
        for (alias, expected) in [
            ("al2023@latest", Family::Al2023),
            ("al2@v20260715", Family::Al2),
            ("bottlerocket@latest", Family::Bottlerocket),
            ("windows@latest", Family::Custom),
        ] {
            let mut spec = spec("Ubuntu", json!([]));
            spec.ami_selector_terms[0].alias = Some(alias.to_owned());
            assert_eq!(family(&spec), Family::Ubuntu);
            spec.ami_family = None;
            assert_eq!(family(&spec), expected, "{alias}");
        }
    }

    /// Writes what is told as `maxPods, kubeReserved, evictionHard`.
    fn told(family: &str, kubelet: serde_json::Value, facts: &Ec2InstanceType, prefixes: bool) -> String {
        let mut spec = spec(family, json!([]));
        spec.kubelet = serde_json::from_value(kubelet).unwrap();
        let told = kubelet_of(&spec, facts, &setup(&spec, None, prefixes));
        let join = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let pods = told.max_pods.map_or_else(|| "-".to_owned(), |pods| pods.to_string());
        format!("{pods}, {}, {}", join(&told.kube_reserved), join(&told.eviction_hard))
    }

    #[test]
    fn node_is_told_what_the_image_would_compute_otherwise() {
        let m5 = Ec2InstanceType {
            vcpus: 2,
            enis: 3,
            ips_per_eni: 10,
            hypervisor: "nitro".to_owned(),
            ..Ec2InstanceType::default()
        };
        let tiny = Ec2InstanceType { enis: 2, ips_per_eni: 2, ..m5.clone() };
        let xen = Ec2InstanceType { hypervisor: "xen".to_owned(), ..m5.clone() };
        let large = Ec2InstanceType { vcpus: 96, enis: 15, ips_per_eni: 50, ..m5.clone() };
        let none = json!({});
        let pods = json!({"maxPods": 110});
        let same = json!({"maxPods": 29});
        let cpu = json!({"kubeReserved": {"cpu": "200m"}});
        let eviction = json!({"evictionHard": {"memory.available": "5%"}});
        let all = "memory.available=5% nodefs.available=10% nodefs.inodesFree=5%";
        for (family, kubelet, facts, prefixes, expected) in [
            ("AL2023", &none, &m5, false, "-, , ".to_owned()),
            ("AL2023", &none, &m5, true, "110, memory=1465Mi, ".to_owned()),
            ("AL2023", &none, &tiny, true, "34, memory=629Mi, ".to_owned()),
            ("AL2023", &none, &large, true, "250, memory=3005Mi, ".to_owned()),
            ("AL2023", &none, &xen, true, "-, , ".to_owned()),
            ("AL2023", &pods, &m5, false, "110, memory=1465Mi, ".to_owned()),
            ("AL2023", &same, &m5, false, "29, , ".to_owned()),
            ("AL2023", &cpu, &m5, false, "-, cpu=200m, ".to_owned()),
            ("AL2023", &cpu, &m5, true, "110, cpu=200m memory=1465Mi, ".to_owned()),
            ("Bottlerocket", &pods, &m5, false, "110, memory=1465Mi, ".to_owned()),
            ("AL2", &none, &m5, false, "-, , ".to_owned()),
            ("AL2", &cpu, &m5, false, "-, cpu=200m ephemeral-storage=1Gi memory=574Mi, ".to_owned()),
            ("AL2", &pods, &m5, false, "110, cpu=70m ephemeral-storage=1Gi memory=1465Mi, ".to_owned()),
            ("Ubuntu", &eviction, &m5, false, format!("-, , {all}")),
            ("Bottlerocket", &eviction, &m5, false, format!("-, , {all}")),
        ] {
            assert_eq!(
                told(family, kubelet.clone(), facts, prefixes),
                expected,
                "{family}: {kubelet}, {prefixes}"
            );
        }
    }

    #[test]
    fn disk_sizes_round_up_to_gibibytes() {
        assert_eq!((gib("100Gi"), gib("1"), gib("100G"), gib("x")), (Some(100), Some(1), Some(94), None));
    }
}
