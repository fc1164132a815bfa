//! The instance types of each node class: a catalogue with the class's settings, as the controller lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{EC2NodeClass, TenantPool, pool::Operator};
use croft_cloud::{
    catalog::REGION,
    class,
    facts::{LABEL_PREFIX, Setup, Threshold},
    kubelet, pool_types,
};
use croft_manifest::Input;
use croft_scheduler::{InstanceType, Offering, region_of_zone, resources};
use k8s_openapi::api::core::v1::{NodeSelector, PodSpec};
use kube::ResourceExt as _;

use crate::workload::workloads;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION_LABEL: &str = "topology.kubernetes.io/region";
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// Memory that nodeadm and bootstrap.sh reserve for each pod that a node may have.
const MIB_PER_POD: i64 = 11;

/// The types of a catalogue, and of each class whose settings change them.
pub(crate) struct ClassTypes {
    all: Arc<[InstanceType]>,
    of_class: BTreeMap<String, Arc<[InstanceType]>>,
    warning: Option<String>,
}

impl ClassTypes {
    /// The types of `input`'s classes. The built-in catalogue of another region serves with its prices as estimates.
    pub(crate) fn new(input: &Input, types: &Arc<[InstanceType]>) -> Self {
        let elsewhere =
            Arc::ptr_eq(types, &croft_cloud::builtin_catalog()).then(|| Elsewhere::of(input)).flatten();
        let all = elsewhere.as_ref().map_or_else(|| Arc::clone(types), |place| place.types(types));
        let mut known: BTreeMap<String, Arc<[InstanceType]>> = BTreeMap::new();
        let mut of_class = BTreeMap::new();
        for one in &input.classes {
            let setup = class::setup(&one.spec, None, false);
            let zones = zones(&one.object);
            if setup == Setup::default() && zones.is_empty() {
                continue;
            }
            let types = known.entry(format!("{setup:?} {zones:?}")).or_insert_with(|| {
                all.iter().map(|kind| within(with_settings(kind, &setup), &zones)).collect()
            });
            of_class.insert(one.name_any(), Arc::clone(types));
        }
        Self { all, of_class, warning: elsewhere.map(|place| place.warning()) }
    }

    /// The same types, with no offering available in the zones that are closed.
    pub(crate) fn outside(self, is_closed: impl Fn(&str) -> bool) -> Self {
        let outside = |types: &Arc<[InstanceType]>| pool_types::outside(types, &is_closed);
        let of_class = self.of_class.iter().map(|(class, types)| (class.clone(), outside(types)));
        Self { all: outside(&self.all), of_class: of_class.collect(), warning: self.warning }
    }

    /// All types, with the settings of a class that names none.
    pub(crate) fn all(&self) -> &Arc<[InstanceType]> {
        &self.all
    }

    /// The types of a class.
    pub(crate) fn of_class(&self, class: &str) -> &Arc<[InstanceType]> {
        self.of_class.get(class).unwrap_or(&self.all)
    }

    /// The types of the class of a pool with only one kind of node.
    pub(crate) fn of_pool(&self, pool: &TenantPool) -> &Arc<[InstanceType]> {
        let class = pool.spec.template.as_ref().map(|t| &t.spec.node_class_ref);
        class
            .filter(|class| class.group == croft_api::GROUP)
            .map_or(&self.all, |class| self.of_class(&class.name))
    }

    /// A sentence about what the plan takes from another region.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

/// Zones of the subnets that the controller has found for a class; none before that.
fn zones(class: &EC2NodeClass) -> BTreeSet<&str> {
    class.status.iter().flat_map(|status| &status.subnets).map(|subnet| subnet.zone.as_str()).collect()
}

fn within(mut kind: InstanceType, zones: &BTreeSet<&str>) -> InstanceType {
    if !zones.is_empty() {
        kind.offerings.retain(|offering| zones.contains(offering.zone.as_str()));
    }
    kind
}

/// A type whose catalogue supposes the default settings, with those of a class.
fn with_settings(kind: &InstanceType, setup: &Setup) -> InstanceType {
    let mut kind = kind.clone();
    let default = Setup::default();
    let vcpus = u32::try_from(kind.capacity.get(resources::CPU) / 1000).unwrap_or(0);
    let pods_before = u32::try_from(kind.capacity.get(resources::PODS)).unwrap_or(0);
    let pods = setup.max_pods.unwrap_or(pods_before);
    kind.capacity.set(resources::PODS, i64::from(pods));
    let nvme = kind.labels.get(&format!("{LABEL_PREFIX}local-nvme")).and_then(|gb| gb.parse::<i64>().ok());
    let disk_before = kind.capacity.get(resources::EPHEMERAL_STORAGE);
    let disk = match nvme.filter(|gb| setup.instance_store && *gb > 0) {
        Some(gb) => gb.saturating_mul(1_000_000_000),
        None if setup.root_volume_gib == default.root_volume_gib => disk_before,
        None => i64::try_from(setup.root_volume_gib).unwrap_or(i64::MAX).saturating_mul(GIB),
    };
    kind.capacity.set(resources::EPHEMERAL_STORAGE, disk);

    let computed = kubelet::reserved(vcpus, pods_before);
    let (kube, system) = (&setup.kube_reserved, &setup.system_reserved);
    let memory = kind.capacity.get(resources::MEMORY);
    let replaced = |given: Option<i64>, computed: i64| given.map_or(0, |given| given - computed);
    let per_pod = match kube.memory {
        Some(given) => given - i64::try_from(computed.memory_mib).unwrap_or(0).saturating_mul(MIB),
        None => (i64::from(pods) - i64::from(pods_before)) * MIB_PER_POD * MIB,
    };
    let changes = [
        (
            resources::CPU,
            replaced(kube.cpu_milli, i64::try_from(computed.cpu_milli).unwrap_or(0))
                + system.cpu_milli.unwrap_or(0),
        ),
        (
            resources::MEMORY,
            per_pod + system.memory.unwrap_or(0) + of(setup.eviction_memory, memory)
                - of(default.eviction_memory, memory),
        ),
        (
            resources::EPHEMERAL_STORAGE,
            replaced(kube.disk, GIB) + system.disk.unwrap_or(0) + of(setup.eviction_disk, disk)
                - of(default.eviction_disk, disk_before),
        ),
    ];
    for (name, change) in changes {
        // A catalogue that leaves nothing to the system supposes allocatable amounts.
        let before = kind.overhead.get(name);
        if before > 0 {
            kind.overhead.set(name, before.saturating_add(change).max(0));
        }
    }
    kind
}

fn of(threshold: Threshold, capacity: i64) -> i64 {
    match threshold {
        Threshold::Bytes(bytes) => bytes,
        Threshold::Permille(permille) => capacity.saturating_mul(permille) / 1000,
    }
}

/// Another region than the built-in catalogue's, and what says so.
struct Elsewhere {
    region: String,
    zones: BTreeSet<String>,
    told_by: &'static str,
}

impl Elsewhere {
    /// The only region that the input's most telling objects name, if it isn't the catalogue's.
    fn of(input: &Input) -> Option<Self> {
        let evidence: [(&'static str, Vec<String>); 4] = [
            (
                "its EC2NodeClasses",
                input.classes.iter().flat_map(|class| zones(class)).map(str::to_owned).collect(),
            ),
            ("its nodes", input.nodes.iter().filter_map(|node| node.labels().get(ZONE).cloned()).collect()),
            ("its PersistentVolumes", volume_zones(input)),
            ("what its pods and pools ask for", wanted(input)),
        ];
        let (told_by, names) =
            evidence.into_iter().find(|(_, names)| names.iter().any(|name| region(name).is_some()))?;
        let regions: BTreeSet<&str> = names.iter().filter_map(|name| region(name)).collect();
        let mut regions = regions.into_iter();
        let found = regions.next().filter(|found| *found != REGION)?.to_owned();
        if regions.next().is_some() {
            return None;
        }
        let is_zone = |name: &&String| **name != found && region(name) == Some(found.as_str());
        let named = names.iter().filter(is_zone).cloned();
        let zones = named.chain(["a", "b", "c"].map(|letter| format!("{found}{letter}"))).collect();
        Some(Self { region: found, zones, told_by })
    }

    /// `types` as if this region had them all, at the same prices.
    fn types(&self, types: &[InstanceType]) -> Arc<[InstanceType]> {
        let moved = |kind: &InstanceType| {
            let mut offerings: Vec<Offering> = Vec::new();
            let mut seen = BTreeSet::new();
            for offering in kind.offerings.iter().filter(|offering| seen.insert(offering.capacity_type)) {
                offerings.extend(self.zones.iter().map(|zone| Offering {
                    zone: zone.clone(),
                    estimated: offering.price.is_some(),
                    ..offering.clone()
                }));
            }
            InstanceType { offerings, ..kind.clone() }
        };
        types.iter().map(moved).collect()
    }

    fn warning(&self) -> String {
        format!(
            "the built-in catalogue is of {REGION}, and {} are of {}: planned as if that region had the same types, at the same prices; give its own catalogue with --catalog",
            self.told_by, self.region
        )
    }
}

/// The region of a zone's name, or of a region's; `None` for names of another form than AWS's.
fn region(name: &str) -> Option<&str> {
    let is_region = || region_of_zone(&format!("{name}a")) == Some(name);
    let region = region_of_zone(name).or_else(|| is_region().then_some(name))?;
    (region.matches('-').count() >= 2).then_some(region)
}

fn volume_zones(input: &Input) -> Vec<String> {
    let required = input
        .volumes
        .iter()
        .filter_map(|volume| volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref());
    required.flat_map(named_zones).collect()
}

fn named_zones(selector: &NodeSelector) -> Vec<String> {
    let expressions =
        selector.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let zones =
        expressions.filter(|e| e.operator == "In" && (e.key.ends_with("/zone") || e.key == REGION_LABEL));
    zones.flat_map(|e| e.values.iter().flatten().cloned()).collect()
}

/// Zones and regions that pods select, and those of pools' requirements.
fn wanted(input: &Input) -> Vec<String> {
    let of_workloads = workloads(input).into_iter().filter_map(|workload| workload.template.spec.as_ref());
    let pods = input.pods.iter().filter_map(|pod| pod.spec.as_ref()).chain(of_workloads);
    let mut names: Vec<String> = pods.flat_map(selected).collect();
    let nodes = input.pools.iter().flat_map(|pool| pool.spec.node_specs());
    for requirement in nodes.flat_map(|nodes| &nodes.requirements) {
        if requirement.operator == Operator::In && [ZONE, REGION_LABEL].contains(&requirement.key.as_str()) {
            names.extend(requirement.values.iter().cloned());
        }
    }
    names
}

fn selected(pod: &PodSpec) -> Vec<String> {
    let selector = pod.node_selector.iter().flatten();
    let selected = selector.filter(|(key, _)| [ZONE, REGION_LABEL].contains(&key.as_str()));
    let mut names: Vec<String> = selected.map(|(_, value)| value.clone()).collect();
    let affinity = pod.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    names.extend(required.into_iter().flat_map(named_zones));
    names
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    fn types_of(text: &str) -> ClassTypes {
        let input = parse("input.yaml", text, &LoadOptions::default()).unwrap();
        ClassTypes::new(&input, &croft_cloud::builtin_catalog())
    }

    fn class(settings: &str) -> String {
        format!(
            "{{apiVersion: croft.dev/v1alpha1, kind: EC2NodeClass, metadata: {{name: c}}, spec: {{amiSelectorTerms: \
             [{{alias: al2023@latest}}], role: r, subnetSelectorTerms: [{{id: subnet-01}}], securityGroupSelectorTerms: \
             [{{id: sg-01}}], {settings}}}}}"
        )
    }

    fn find<'t>(types: &'t ClassTypes, name: &str) -> &'t InstanceType {
        types.of_class("c").iter().find(|kind| kind.name == name).unwrap()
    }

    #[test]
    fn settings_of_a_class_are_those_that_the_controller_computes() {
        let cases = [
            "kubelet: {maxPods: 20}",
            "kubelet: {maxPods: 110, systemReserved: {cpu: 100m, memory: 200Mi, ephemeral-storage: 1Gi}}",
            "kubelet: {kubeReserved: {cpu: 200m, memory: 1Gi, ephemeral-storage: 2Gi}}",
            "kubelet: {evictionHard: {memory.available: 5%, nodefs.available: 15%}}",
            "instanceStorePolicy: RAID0",
            "blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 100Gi}}]",
        ];
        for settings in cases {
            let text = class(settings);
            let types = types_of(&text);
            let input = parse("input.yaml", &text, &LoadOptions::default()).unwrap();
            let setup = class::setup(&input.classes.get("", "c").unwrap().spec, None, false);
            for entry in
                croft_cloud::catalog::builtin_entries().iter().filter(|e| e.facts.name.ends_with("large"))
            {
                let expected = entry.facts.instance_type(&setup, entry.offerings(REGION));
                assert_eq!(find(&types, &entry.facts.name), &expected, "{settings}");
            }
        }
    }

    #[test]
    fn default_settings_share_the_catalogue() {
        let types = types_of(&class("tags: {a: b}"));
        assert!(Arc::ptr_eq(types.of_class("c"), types.all()) && types.warning().is_none());
    }

    #[test]
    fn zones_of_another_region_have_the_same_types_at_estimated_prices() {
        let node = "
---
{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {topology.kubernetes.io/zone: eu-west-1d}}}";
        let types = types_of(&format!("{}{node}", class("tags: {a: b}")));
        let offerings = &find(&types, "m5.large").offerings;
        let zones: BTreeSet<&str> = offerings.iter().map(|o| o.zone.as_str()).collect();
        assert_eq!(
            zones.into_iter().collect::<Vec<_>>(),
            ["eu-west-1a", "eu-west-1b", "eu-west-1c", "eu-west-1d"]
        );
        assert!(offerings.iter().all(|o| o.estimated && o.price.is_some()));
        let expected = "the built-in catalogue is of us-east-1, and its nodes are of eu-west-1: planned as if that region had \
                        the same types, at the same prices; give its own catalogue with --catalog";
        assert_eq!(types.warning(), Some(expected));
    }

    #[test]
    fn nodes_in_a_local_zone_are_of_its_region() {
        let nodes = "
---
{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {topology.kubernetes.io/zone: us-west-2a}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: us-west-2-lax-1a}}}";
        let types = types_of(&format!("{}{nodes}", class("tags: {a: b}")));
        let offerings = &find(&types, "m5.large").offerings;
        let zones: BTreeSet<&str> = offerings.iter().map(|o| o.zone.as_str()).collect();
        let expected = ["us-west-2-lax-1a", "us-west-2a", "us-west-2b", "us-west-2c"];
        assert_eq!(zones.into_iter().collect::<Vec<_>>(), expected);
        assert!(types.warning().unwrap().contains("its nodes are of us-west-2:"), "{:?}", types.warning());
    }

    #[test]
    fn names_of_zones_and_regions_tell_the_region() {
        let cases = [
            ("eu-west-1b", Some("eu-west-1")),
            ("eu-west-1", Some("eu-west-1")),
            ("us-gov-west-1a", Some("us-gov-west-1")),
            ("us-west-2-lax-1a", Some("us-west-2")),
            ("us-east-1-wl1-bos-wlz-1", Some("us-east-1")),
            ("zone-a", None),
            ("zone-1", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(region(name), expected, "{name}");
        }
    }
}
