//! The resources that a kubelet reports of its instance: derived from the image, the user data and the disks that exist, and not from
//! what a provisioner assumes of them.
//!
//! Sources: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go and files/bootstrap.sh; Bottlerocket's
//! kube_reserve_memory.

use croft_cloud::facts::{EFA, Ec2InstanceType, Setup};
use croft_scheduler::{Quantity, Resources};

use crate::{
    resources::{Image, Instance},
    userdata::{self, Amounts, KubeletSettings, Starter},
    world::World,
};

const GIB: i64 = 1 << 30;

impl World {
    /// Capacity and allocatable resources that an instance's kubelet reports; `None` if it starts none.
    #[must_use]
    pub fn node_resources(&self, id: &str) -> Option<(Resources, Resources)> {
        let instance = self.instance(id)?;
        let settings = userdata::read(&instance.data.user_data).ok()?;
        let facts = &self.market.entry(&instance.instance_type)?.facts;
        Some(of(facts, instance, self.images.get(&instance.image)?, &settings))
    }
}

/// Capacity and allocatable resources of an instance.
pub(crate) fn of(
    facts: &Ec2InstanceType,
    instance: &Instance,
    image: &Image,
    settings: &KubeletSettings,
) -> (Resources, Resources) {
    let by_addresses = facts.enis * facts.ips_per_eni.saturating_sub(1) + 2;
    let pods = settings.max_pods.unwrap_or(by_addresses);
    let mut capacity = facts.capacity(&Setup::default());
    capacity.set("pods", i64::from(pods));
    capacity.set("ephemeral-storage", disk(facts, instance, image, settings));
    // Adapters exist only if the launch asked for them.
    capacity.set(EFA, i64::from(instance.data.efas));
    let kube = merged(
        &[
            ("cpu", &format!("{}m", cpu_milli(facts.vcpus))),
            ("memory", &format!("{}Mi", 255 + 11 * reserved_for(settings.starter, pods, by_addresses))),
            ("ephemeral-storage", "1Gi"),
        ],
        &settings.kube_reserved,
        settings.starter == Starter::Bootstrap,
    );
    let eviction = merged(
        &[("memory.available", "100Mi"), ("nodefs.available", "10%")],
        &settings.eviction_hard,
        settings.starter != Starter::Nodeadm,
    );
    let mut allocatable = capacity.clone();
    let mut take = |name: &str, amount: i64| {
        allocatable.set(name, allocatable.get(name).saturating_sub(amount).max(0));
    };
    for name in ["cpu", "memory", "ephemeral-storage"] {
        take(name, amount(name, &kube));
        take(name, amount(name, &settings.system_reserved));
    }
    for (signal, name) in [("memory.available", "memory"), ("nodefs.available", "ephemeral-storage")] {
        take(name, threshold(eviction.get(signal), capacity.get(name)));
    }
    (capacity, allocatable)
}

/// The disk under the kubelet: of Bottlerocket the one that isn't the system's, else the one that the image boots from.
fn disk(facts: &Ec2InstanceType, instance: &Instance, image: &Image, settings: &KubeletSettings) -> i64 {
    if settings.raid0 && facts.nvme_gb > 0 {
        return i64::try_from(facts.nvme_gb).unwrap_or_default() * 1_000_000_000;
    }
    let second = || image.disks.keys().find(|device| **device != image.root);
    let device = match settings.starter {
        Starter::Bottlerocket => second().unwrap_or(&image.root),
        Starter::Nodeadm | Starter::Bootstrap => &image.root,
    };
    let gib = instance.data.volumes.get(device).or_else(|| image.disks.get(device));
    gib.and_then(|gib| i64::try_from(*gib).ok()).unwrap_or_default() * GIB
}

/// The number of pods that the image reserves memory for.
fn reserved_for(starter: Starter, pods: u32, by_addresses: u32) -> u32 {
    match starter {
        Starter::Nodeadm | Starter::Bootstrap => by_addresses,
        Starter::Bottlerocket => pods,
    }
}

/// 6 % of the first cpu, 1 % of the second, 0.5 % of the third and fourth, 0.25 % of the others.
fn cpu_milli(vcpus: u32) -> u32 {
    let of = |from: u32, to: u32, share: u32| vcpus.clamp(from, to).saturating_sub(from) * share;
    (of(0, 1, 240) + of(1, 2, 40) + of(2, 4, 20) + of(4, u32::MAX, 10)) / 4
}

/// The image's own amounts below those that are set, or none of its own if `replaces` and any is set.
fn merged(own: &[(&str, &str)], set: &Amounts, replaces: bool) -> Amounts {
    let mut all = Amounts::new();
    if !replaces || set.is_empty() {
        all.extend(own.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())));
    }
    all.extend(set.clone());
    all
}

fn amount(name: &str, of: &Amounts) -> i64 {
    let Some(quantity) = of.get(name).and_then(|text| text.parse::<Quantity>().ok()) else { return 0 };
    let mut one = Resources::new();
    one.set_quantity(name, quantity);
    one.get(name)
}

fn threshold(text: Option<&String>, capacity: i64) -> i64 {
    let Some(text) = text else { return 0 };
    match text.strip_suffix('%').map(str::parse::<f64>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "a kubelet computes it in floating point, too"
        )]
        Some(Ok(percent)) => (capacity as f64 * percent / 100.0) as i64,
        Some(Err(_)) => 0,
        None => text.parse::<Quantity>().map_or(0, |quantity| quantity.units()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use croft_cloud::facts::Arch;
    use croft_scheduler::CapacityType;

    use super::*;
    use crate::resources::{State, TemplateData};

    fn m5_large() -> Ec2InstanceType {
        let hypervisor = "nitro".to_owned();
        Ec2InstanceType {
            vcpus: 2,
            memory_mib: 8192,
            enis: 3,
            ips_per_eni: 10,
            nvme_gb: 75,
            hypervisor,
            ..Ec2InstanceType::default()
        }
    }

    fn instance(volumes: &[(&str, u64)]) -> Instance {
        let volumes = volumes.iter().map(|(device, gib)| ((*device).to_owned(), *gib)).collect();
        Instance {
            instance_type: "m5.large".to_owned(),
            zone: String::new(),
            subnet: String::new(),
            address: String::new(),
            image: String::new(),
            capacity_type: CapacityType::OnDemand,
            reservation: None,
            state: State::Running,
            since: 0,
            launched: 0,
            ended: None,
            tags: BTreeMap::new(),
            parts: BTreeMap::new(),
            data: TemplateData { volumes, ..TemplateData::default() },
            token: None,
            console: String::new(),
            reason: String::new(),
            fails: None,
            doomed: None,
            failed_checks: crate::resources::FailedChecks::new(),
            scheduled: Vec::new(),
        }
    }

    #[test]
    fn reserved_resources_are_those_of_each_image() {
        let set = |name: &str, amount: &str| Amounts::from([(name.to_owned(), amount.to_owned())]);
        let image = Image::new("i", Arch::Amd64, "/dev/xvda", 20);
        let of = |settings: KubeletSettings| {
            let (capacity, allocatable) = of(&m5_large(), &instance(&[]), &image, &settings);
            let kept = |name: &str| capacity.get(name) - allocatable.get(name);
            (capacity.get("pods"), kept("cpu"), kept("memory") >> 20, kept("ephemeral-storage") >> 30)
        };
        let default = KubeletSettings::default();
        assert_eq!(of(default.clone()), (29, 70, 674, 3));
        let pods = KubeletSettings { max_pods: Some(110), ..default.clone() };
        assert_eq!(of(pods.clone()), (110, 70, 674, 3), "memory for the addresses, whatever maxPods says");
        let pods = KubeletSettings { starter: Starter::Bottlerocket, ..pods };
        assert_eq!(of(pods.clone()), (110, 70, 1565, 3));
        let told = KubeletSettings { kube_reserved: set("memory", "1465Mi"), ..pods };
        assert_eq!(of(told.clone()), (110, 70, 1565, 3));
        let told = KubeletSettings { starter: Starter::Nodeadm, ..told };
        assert_eq!(of(told.clone()), (110, 70, 1565, 3));
        let told = KubeletSettings { starter: Starter::Bootstrap, ..told };
        assert_eq!(of(told), (110, 0, 1565, 2), "a flag replaces all that the image reserves");
        let eviction = KubeletSettings { eviction_hard: set("nodefs.available", "50%"), ..default };
        assert_eq!(of(eviction.clone()), (29, 70, 674, 11));
        let eviction = KubeletSettings { starter: Starter::Bootstrap, ..eviction };
        assert_eq!(of(eviction), (29, 70, 574, 11));
        assert_eq!([1, 2, 4, 8, 96].map(cpu_milli), [60, 70, 80, 90, 310]);
    }

    #[test]
    fn disk_is_the_one_that_the_image_writes_to() {
        let mut bottlerocket = Image::new("i", Arch::Amd64, "/dev/xvda", 2);
        bottlerocket.disks.insert("/dev/xvdb".to_owned(), 20);
        let al2023 = Image::new("i", Arch::Amd64, "/dev/xvda", 20);
        let ubuntu = Image::new("i", Arch::Amd64, "/dev/sda1", 8);
        let two = [("/dev/xvda", 30), ("/dev/xvdb", 500)];
        for (starter, image, volumes, gib) in [
            (Starter::Nodeadm, &al2023, &two[..], 30),
            (Starter::Nodeadm, &al2023, &two[1..], 20),
            (Starter::Bootstrap, &ubuntu, &two[..], 8),
            (Starter::Bottlerocket, &bottlerocket, &two[..], 500),
            (Starter::Bottlerocket, &bottlerocket, &two[..1], 20),
        ] {
            let settings = KubeletSettings { starter, ..KubeletSettings::default() };
            let (capacity, _) = of(&m5_large(), &instance(volumes), image, &settings);
            assert_eq!(capacity.get("ephemeral-storage"), gib * GIB, "{starter:?}: {volumes:?}");
        }
        let raid0 = KubeletSettings { raid0: true, ..KubeletSettings::default() };
        let (capacity, _) = of(&m5_large(), &instance(&[]), &al2023, &raid0);
        assert_eq!(capacity.get("ephemeral-storage"), 75_000_000_000);
    }
}
