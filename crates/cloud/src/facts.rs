//! Instance types as EC2 describes them, and the capacity that their kubelets will report.
//!
//! One function serves the built-in catalogue and live discovery, so that offline plans and plans in the cluster agree.

use std::collections::BTreeMap;

use croft_scheduler::{CapacityType, InstanceType, Offering, Resources, region_of_zone};

use crate::kubelet;

/// EC2's description of an instance type, in its units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ec2InstanceType {
    /// Name, such as `m5.large`.
    pub name: String,
    /// Architecture.
    pub arch: Arch,
    /// vCPUs with all threads on.
    pub vcpus: u32,
    /// Memory of the instance, including that of hypervisor and kernel.
    pub memory_mib: u64,
    /// Hypervisor; empty for bare metal.
    pub hypervisor: String,
    /// Manufacturer of the processor, in lower case.
    pub cpu_manufacturer: String,
    /// Sustained clock speed in MHz; 0 if unknown.
    pub clock_mhz: u32,
    /// Maximum EBS bandwidth in Mbit/s; 0 if it isn't dedicated.
    pub ebs_mbps: u32,
    /// Baseline network bandwidth of all cards in Mbit/s; 0 if unknown.
    pub network_mbps: u32,
    /// Network interfaces of the default card.
    pub enis: u32,
    /// IPv4 addresses per interface.
    pub ips_per_eni: u32,
    /// Elastic Fabric Adapter interfaces.
    pub efas: u32,
    /// Network cards.
    pub network_cards: u32,
    /// Local NVMe in GB; 0 for none.
    pub nvme_gb: u64,
    /// Limit of attached EBS volumes.
    pub ebs_attachments: u32,
    /// True if network interfaces count against that limit.
    pub attachments_shared: bool,
    /// True if traffic between instances is encrypted.
    pub encryption_in_transit: bool,
    /// GPUs.
    pub gpu: Option<Device>,
    /// Other accelerators.
    pub accelerator: Option<Device>,
    /// True if on-demand instances can be launched.
    pub on_demand: bool,
    /// True if spot instances can be launched.
    pub spot: bool,
}

/// Processor architecture, as in images and labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// x86-64.
    #[default]
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// The value of the label kubernetes.io/arch.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// EC2's name.
    #[must_use]
    pub const fn as_ec2(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }

    /// Parses either name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "amd64" | "x86_64" => Some(Self::Amd64),
            "arm64" | "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }
}

/// GPUs or accelerators of a type, all of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Number that the device plugin reports.
    pub count: u32,
    /// Manufacturer, in lower case.
    pub manufacturer: String,
    /// Name, in lower case with dashes.
    pub name: String,
    /// Memory of each, in MiB; 0 if unknown.
    pub memory_mib: u64,
}

impl Device {
    /// The resource of the manufacturer's device plugin.
    #[must_use]
    pub fn resource(&self) -> Option<&'static str> {
        match self.manufacturer.as_str() {
            "nvidia" => Some("nvidia.com/gpu"),
            "amd" => Some("amd.com/gpu"),
            "habana" => Some("habana.ai/gaudi"),
            "aws" => Some("aws.amazon.com/neuron"),
            "qualcomm" => Some("qualcomm.com/qaic"),
            _ => None,
        }
    }
}

/// Settings of a class's instances that affect their capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The kubelet's `maxPods`, if set.
    pub max_pods: Option<u32>,
    /// The disk under the kubelet and the container runtime, in GiB: the ephemeral storage unless local disks are.
    pub root_volume_gib: u64,
    /// True if the local NVMe disks, as one RAID 0, are the ephemeral storage.
    pub instance_store: bool,
    /// True if the network plugin assigns /28 prefixes instead of single addresses.
    pub prefix_delegation: bool,
    /// `kubeReserved` of the class's kubelet, which replaces the image's computation.
    pub kube_reserved: Kept,
    /// `systemReserved` of the class's kubelet; the images' default is none.
    pub system_reserved: Kept,
    /// `evictionHard` of memory.
    pub eviction_memory: Threshold,
    /// `evictionHard` of the disk.
    pub eviction_disk: Threshold,
}

/// Resources reserved on a node by the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Thousandths of a cpu.
    pub cpu_milli: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
    /// Bytes of ephemeral storage.
    pub disk: Option<i64>,
}

/// An eviction threshold: pods are evicted if less is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes.
    Bytes(i64),
    /// Thousandths of the capacity.
    Permille(i64),
}

impl Threshold {
    /// Reads a kubelet's threshold: a quantity or a percentage.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix('%') {
            // At most one decimal is used.
            Some(percent) => {
                let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
                let tenths: i64 = part.get(..1)?.parse().ok()?;
                Some(Self::Permille(whole.parse::<i64>().ok()?.checked_mul(10)?.checked_add(tenths)?))
            }
            None => {
                let quantity: croft_scheduler::Quantity = text.trim().parse().ok()?;
                Some(Self::Bytes(quantity.units()))
            }
        }
    }

    fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Permille(permille) => capacity.saturating_mul(permille) / 1000,
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            max_pods: None,
            root_volume_gib: DEFAULT_ROOT_GIB,
            instance_store: false,
            prefix_delegation: false,
            kube_reserved: Kept::default(),
            system_reserved: Kept::default(),
            eviction_memory: Threshold::Bytes(signed(kubelet::EVICTION_MIB * MIB)),
            eviction_disk: Threshold::Permille(100),
        }
    }
}

/// Root volume of the EKS images.
pub const DEFAULT_ROOT_GIB: u64 = 20;
/// Memory that an instance doesn't report: hypervisor, firmware, kernel. 7.5 % is above that of any known type;
/// [`crate::CloudProvider::observe_capacity`] replaces it as soon as one node of the type has registered.
const VM_OVERHEAD_PERMILLE: u64 = 75;
/// The arm64 kernels of the EKS images reserve this much for contiguous allocation.
const ARM64_CMA_MIB: u64 = 64;
/// With prefix delegation the EKS images limit pods to this, for up to 30 vCPUs and above, as the Kubernetes
/// scalability thresholds advise. Source: amazon-eks-ami, max-pods-calculator.
const PREFIX_MAX_PODS: (u32, u32) = (110, 250);
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Prefix of the labels that describe an instance; users of Karpenter write them already.
pub const LABEL_PREFIX: &str = "karpenter.k8s.aws/instance-";
/// The resource of network adapters, which a launch has to request.
pub const EFA: &str = "vpc.amazonaws.com/efa";
/// The CSI driver of EBS volumes.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// The label of the capacity type.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

impl Ec2InstanceType {
    /// The part before the dot: `m5`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(family, _)| family)
    }

    /// The part after the dot: `large`.
    #[must_use]
    pub fn size(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, size)| size)
    }

    /// Leading letters and the digits after them: `c` and `7` of `c7i-flex`, `u` and `1` of `u-6tb1`.
    #[must_use]
    pub fn category_and_generation(&self) -> (&str, &str) {
        let family = self.family();
        let letters = family.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(family.len());
        let (category, mut rest) = family.split_at(letters);
        // High-memory instances have their size in between: u-6tb1.
        if let Some(size) = rest.strip_prefix('-') {
            rest = size.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("tb").unwrap_or("");
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        (category, rest.split_at(digits).0)
    }

    /// Maximum number of pods.
    #[must_use]
    pub fn max_pods(&self, setup: &Setup) -> u32 {
        if let Some(set) = setup.max_pods {
            return set;
        }
        if setup.prefix_delegation && self.hypervisor != "xen" {
            let most = if self.vcpus > 30 { PREFIX_MAX_PODS.1 } else { PREFIX_MAX_PODS.0 };
            return (self.pod_addresses() * 16 + 2).min(most);
        }
        self.image_max_pods()
    }

    /// The number of pods that the EKS images set by themselves, whatever the network plugin does: two pods (the
    /// plugin and kube-proxy) use the host's address.
    /// Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/maxpods.
    #[must_use]
    pub fn image_max_pods(&self) -> u32 {
        self.pod_addresses() + 2
    }

    /// Each interface keeps its first address for itself.
    fn pod_addresses(&self) -> u32 {
        self.enis * self.ips_per_eni.saturating_sub(1)
    }

    /// The capacity that the kubelet will report.
    #[must_use]
    pub fn capacity(&self, setup: &Setup) -> Resources {
        let visible = match self.arch {
            Arch::Arm64 => self.memory_mib.saturating_sub(ARM64_CMA_MIB),
            Arch::Amd64 => self.memory_mib,
        };
        let mut capacity = Resources::new();
        capacity.set("cpu", signed(u64::from(self.vcpus) * 1000));
        capacity.set("memory", signed(visible * (1000 - VM_OVERHEAD_PERMILLE) / 1000 * MIB));
        capacity.set("pods", i64::from(self.max_pods(setup)));
        capacity.set("ephemeral-storage", signed(self.disk(setup)));
        if self.efas > 0 {
            capacity.set(EFA, i64::from(self.efas));
        }
        for device in self.gpu.iter().chain(&self.accelerator) {
            if let Some(resource) = device.resource() {
                capacity.set(resource, i64::from(device.count));
            }
        }
        capacity
    }

    /// Overhead: kube-reserved, system-reserved and the eviction thresholds.
    #[must_use]
    pub fn overhead(&self, setup: &Setup) -> Resources {
        let computed = kubelet::reserved(self.vcpus, self.max_pods(setup));
        let (kube, system) = (&setup.kube_reserved, &setup.system_reserved);
        let capacity = self.capacity(setup);
        let mut overhead = Resources::new();
        overhead
            .set("cpu", kube.cpu_milli.unwrap_or(signed(computed.cpu_milli)) + system.cpu_milli.unwrap_or(0));
        overhead.set(
            "memory",
            kube.memory.unwrap_or(signed(computed.memory_mib * MIB))
                + system.memory.unwrap_or(0)
                + setup.eviction_memory.of(capacity.get("memory")),
        );
        overhead.set(
            "ephemeral-storage",
            kube.disk.unwrap_or(signed(GIB))
                + system.disk.unwrap_or(0)
                + setup.eviction_disk.of(capacity.get("ephemeral-storage")),
        );
        overhead
    }

    fn disk(&self, setup: &Setup) -> u64 {
        if setup.instance_store && self.nvme_gb > 0 {
            self.nvme_gb * 1_000_000_000
        } else {
            setup.root_volume_gib * GIB
        }
    }

    /// The labels that describe the instance, without those of the offering.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let (category, generation) = self.category_and_generation();
        let mut labels = BTreeMap::new();
        let mut put = |name: &str, value: String| {
            if !value.is_empty() {
                labels.insert(format!("{LABEL_PREFIX}{name}"), value);
            }
        };
        let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
        put("family", self.family().to_owned());
        put("size", self.size().to_owned());
        put("category", category.to_owned());
        put("generation", generation.to_owned());
        put("cpu", self.vcpus.to_string());
        put("cpu-manufacturer", self.cpu_manufacturer.clone());
        put("cpu-sustained-clock-speed-mhz", number(self.clock_mhz.into()));
        put("memory", self.memory_mib.to_string());
        put("hypervisor", self.hypervisor.clone());
        put("encryption-in-transit-supported", self.encryption_in_transit.to_string());
        put("capability-flex", self.family().ends_with("-flex").to_string());
        put("ebs-bandwidth", number(self.ebs_mbps.into()));
        put("network-bandwidth", number(self.network_mbps.into()));
        put("local-nvme", number(self.nvme_gb));
        if let Some(gpu) = &self.gpu {
            put("gpu-name", gpu.name.clone());
            put("gpu-manufacturer", gpu.manufacturer.clone());
            put("gpu-count", gpu.count.to_string());
            put("gpu-memory", number(gpu.memory_mib));
        }
        if let Some(accelerator) = &self.accelerator {
            put("accelerator-name", accelerator.name.clone());
            put("accelerator-manufacturer", accelerator.manufacturer.clone());
            put("accelerator-count", accelerator.count.to_string());
        }
        labels
    }

    /// Volumes that the EBS driver of a new node will report: EC2's limit less the root volume, and where network interfaces
    /// count against it less two of them, the second being the network plugin's. Local disks and devices take more of a shared
    /// limit; nodes tell that themselves once they are there.
    fn attach_limits(&self) -> BTreeMap<String, i64> {
        let taken = if self.attachments_shared { 3 } else { 1 };
        let left = i64::from(self.ebs_attachments).saturating_sub(taken);
        let known = (self.ebs_attachments > 0).then(|| (EBS_DRIVER.to_owned(), left.max(1)));
        known.into_iter().collect()
    }

    /// The type for the scheduler.
    #[must_use]
    pub fn instance_type(&self, setup: &Setup, offerings: Vec<Offering>) -> InstanceType {
        InstanceType {
            name: self.name.clone(),
            arch: self.arch.as_str().to_owned(),
            os: vec!["linux".to_owned()],
            capacity: self.capacity(setup),
            overhead: self.overhead(setup),
            labels: self.labels(),
            attach_limits: self.attach_limits(),
            offerings,
        }
    }
}

/// Labels of a node that follow from type and offering.
#[must_use]
pub fn node_labels(
    instance_type: &InstanceType,
    zone: &str,
    capacity_type: CapacityType,
) -> BTreeMap<String, String> {
    let mut labels = instance_type.labels.clone();
    for (key, value) in [
        ("kubernetes.io/arch", instance_type.arch.as_str()),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", &instance_type.name),
        ("topology.kubernetes.io/zone", zone),
        (CAPACITY_TYPE, capacity_type.as_str()),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let region =
        region_of_zone(zone).map(|region| ("topology.kubernetes.io/region".to_owned(), region.to_owned()));
    labels.extend(region);
    labels
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Ec2InstanceType {
        Ec2InstanceType { name: name.to_owned(), ..Ec2InstanceType::default() }
    }

    #[test]
    fn type_name_gives_family_size_category_and_generation() {
        for (name, family, size, category, generation) in [
            ("m5.large", "m5", "large", "m", "5"),
            ("c7i-flex.2xlarge", "c7i-flex", "2xlarge", "c", "7"),
            ("u-6tb1.metal", "u-6tb1", "metal", "u", "1"),
            ("u7i-12tb.224xlarge", "u7i-12tb", "224xlarge", "u", "7"),
            ("x2iedn.xlarge", "x2iedn", "xlarge", "x", "2"),
            ("im4gn.large", "im4gn", "large", "im", "4"),
            ("trn1n.32xlarge", "trn1n", "32xlarge", "trn", "1"),
        ] {
            let facts = named(name);
            assert_eq!((facts.family(), facts.size()), (family, size), "{name}");
            assert_eq!(facts.category_and_generation(), (category, generation), "{name}");
        }
    }

    fn m5_large() -> Ec2InstanceType {
        Ec2InstanceType {
            vcpus: 2,
            memory_mib: 8192,
            enis: 3,
            ips_per_eni: 10,
            hypervisor: "nitro".into(),
            ..named("m5.large")
        }
    }

    #[test]
    fn computed_capacity_equals_that_of_kubelets() {
        let setup = Setup::default();
        let (capacity, overhead) = (m5_large().capacity(&setup), m5_large().overhead(&setup));
        assert_eq!(capacity.get("cpu"), 2000);
        assert_eq!(capacity.get("memory"), 7577 << 20);
        assert_eq!(capacity.get("pods"), 29);
        assert_eq!(capacity.get("ephemeral-storage"), 20 << 30);
        assert_eq!(overhead.get("cpu"), 70);
        assert_eq!(overhead.get("memory"), 674 << 20);
        assert_eq!(overhead.get("ephemeral-storage"), 3 << 30);
    }

    #[test]
    fn kubelet_settings_change_reserved_resources() {
        let setup = Setup {
            kube_reserved: Kept { memory: Some(1 << 30), ..Kept::default() },
            system_reserved: Kept { cpu_milli: Some(100), disk: Some(5 << 30), ..Kept::default() },
            eviction_memory: Threshold::parse("5%").unwrap(),
            eviction_disk: Threshold::parse("1Gi").unwrap(),
            ..Setup::default()
        };
        let overhead = m5_large().overhead(&setup);
        assert_eq!(overhead.get("cpu"), 170, "computed, and the system's");
        assert_eq!(overhead.get("memory"), (1 << 30) + (7577 << 20) / 20);
        assert_eq!(overhead.get("ephemeral-storage"), 7 << 30);
        assert_eq!(Threshold::parse("7.5%"), Some(Threshold::Permille(75)));
        assert_eq!(Threshold::parse("100Mi"), Some(Threshold::Bytes(100 << 20)));
        assert_eq!(Threshold::parse("x%"), None);
    }

    #[test]
    fn region_of_a_node_is_that_of_its_zone_also_in_a_local_zone() {
        let kind = m5_large().instance_type(&Setup::default(), Vec::new());
        for (zone, region) in [
            ("us-east-1a", Some("us-east-1")),
            ("us-gov-west-1b", Some("us-gov-west-1")),
            ("us-west-2-lax-1a", Some("us-west-2")),
            ("us-east-1-wl1-bos-wlz-1", Some("us-east-1")),
            ("zone-a", None),
        ] {
            let labels = node_labels(&kind, zone, CapacityType::OnDemand);
            assert_eq!(
                labels.get("topology.kubernetes.io/region").map(String::as_str),
                region,
                "{zone}: a pool that asks for its region has nodes there"
            );
        }
    }

    #[test]
    fn setup_changes_pods_and_disk() {
        let facts = Ec2InstanceType { nvme_gb: 75, ..m5_large() };
        let prefix = Setup { prefix_delegation: true, ..Setup::default() };
        assert_eq!(facts.max_pods(&prefix), 110);
        assert_eq!(Ec2InstanceType { vcpus: 96, ..m5_large() }.max_pods(&prefix), 250);
        assert_eq!(
            Ec2InstanceType { hypervisor: "xen".into(), ..m5_large() }.max_pods(&prefix),
            29,
            "no prefixes on xen"
        );
        assert_eq!(facts.max_pods(&Setup { max_pods: Some(17), ..prefix }), 17);
        let raid = Setup { instance_store: true, ..Setup::default() };
        assert_eq!(facts.capacity(&raid).get("ephemeral-storage"), 75_000_000_000);
        assert_eq!(m5_large().capacity(&raid).get("ephemeral-storage"), 20 << 30, "no disks to use");
    }
}
