//! Resources that registered nodes report, which replace computed ones.
//!
//! Memory depends on the type and the image's kernel; reserved memory, disk and the number of pods also on the class.
//! Instances of one type differ by some pages, so the minimum in whole MiB is used: a plan must fit on any of them.
//! Devices aren't recorded, since a node reports none until their plugin runs.

use std::collections::BTreeMap;

use croft_cloud::{ObservedNode, facts::Setup};
use croft_scheduler::{InstanceType, Resources};

/// Reports below this many thousandths of the computed value aren't caused by the type and are ignored.
const BELIEVABLE_PERMILLE: i64 = 800;
const MIB: i64 = 1 << 20;

/// All recorded resources.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    memory: BTreeMap<(String, String), i64>,
    kept: BTreeMap<(String, String, String), Kept>,
    changes: u64,
}

#[derive(Debug)]
struct Kept {
    /// The class's setup at the time of the report; another setup gives other resources.
    setup: Setup,
    pods: i64,
    disk: i64,
    overhead: Resources,
}

impl Observed {
    /// Records a node of a class with `setup`. Returns true if anything is new.
    pub(crate) fn note(&mut self, node: &ObservedNode, setup: Setup) -> bool {
        let memory = down(node.capacity.get("memory"));
        // A kubelet that has just started reports nothing.
        if memory == 0 || node.allocatable.get("memory") == 0 {
            return false;
        }
        let mut changed = false;
        let place = (node.instance_type.clone(), node.image_id.clone());
        let known = self.memory.entry(place.clone()).or_insert(i64::MAX);
        if memory < *known {
            *known = memory;
            changed = true;
        }
        let mut overhead = Resources::new();
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            let kept = node.capacity.get(resource).saturating_sub(node.allocatable.get(resource)).max(0);
            overhead.set(resource, if resource == "cpu" { kept } else { up(kept) });
        }
        let (pods, disk) = (node.capacity.get("pods"), down(node.capacity.get("ephemeral-storage")));
        let fresh = Kept { setup, pods, disk, overhead };
        let kept = self.kept.entry((node.class.clone(), place.0, place.1));
        let kept = kept.or_insert_with(|| Kept {
            setup,
            pods: i64::MAX,
            disk: i64::MAX,
            overhead: Resources::new(),
        });
        if kept.setup != setup {
            *kept = fresh;
            changed = true;
        } else {
            let before = (kept.pods, kept.disk, kept.overhead.clone());
            kept.pods = kept.pods.min(pods);
            kept.disk = kept.disk.min(disk);
            kept.overhead.raise_to(&fresh.overhead);
            changed |= before != (kept.pods, kept.disk, kept.overhead.clone());
        }
        self.changes += u64::from(changed);
        changed
    }

    /// Incremented by every new value.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Replaces the computed resources of `kind` by those that nodes of the class with its image reported.
    pub(crate) fn correct(&self, kind: &mut InstanceType, class: &str, image: &str, setup: &Setup) {
        let place = (kind.name.clone(), image.to_owned());
        if let Some(memory) = self.memory.get(&place) {
            replace(&mut kind.capacity, "memory", *memory);
        }
        let Some(kept) = self.kept.get(&(class.to_owned(), place.0, place.1)) else { return };
        if kept.setup != *setup {
            return;
        }
        // Fewer pods than the class sets or the type has addresses for, or more: the kubelet's value is right.
        if kept.pods > 0 {
            kind.capacity.set("pods", kept.pods);
        }
        replace(&mut kind.capacity, "ephemeral-storage", kept.disk);
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            kind.overhead.set(resource, kept.overhead.get(resource));
        }
    }
}

fn replace(capacity: &mut Resources, resource: &str, seen: i64) {
    let computed = capacity.get(resource);
    if seen >= computed / 1000 * BELIEVABLE_PERMILLE {
        capacity.set(resource, seen);
    }
}

fn down(bytes: i64) -> i64 {
    bytes / MIB * MIB
}

fn up(bytes: i64) -> i64 {
    down(bytes.saturating_add(MIB - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(of: &[(&str, i64)]) -> Resources {
        let mut resources = Resources::new();
        for (name, amount) in of {
            resources.set(name, *amount);
        }
        resources
    }

    fn node(class: &str, memory: i64, kept: i64) -> ObservedNode {
        let capacity = [("cpu", 2000), ("memory", memory), ("pods", 29), ("ephemeral-storage", 100 * MIB)];
        let mut allocatable = amounts(&capacity);
        allocatable.set("memory", memory - kept);
        allocatable.set("cpu", 1930);
        ObservedNode {
            class: class.to_owned(),
            instance_type: "m5.large".to_owned(),
            image_id: "ami-1".to_owned(),
            capacity: amounts(&capacity),
            allocatable,
        }
    }

    fn computed() -> InstanceType {
        InstanceType {
            name: "m5.large".to_owned(),
            capacity: amounts(&[
                ("cpu", 2000),
                ("memory", 1000 * MIB),
                ("pods", 29),
                ("nvidia.com/gpu", 1),
                ("ephemeral-storage", 100 * MIB),
            ]),
            overhead: amounts(&[("cpu", 70), ("memory", 300 * MIB)]),
            ..InstanceType::default()
        }
    }

    fn corrected(observed: &Observed, class: &str, setup: &Setup) -> InstanceType {
        let mut kind = computed();
        observed.correct(&mut kind, class, "ami-1", setup);
        kind
    }

    #[test]
    fn minimum_of_observations_is_used() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        assert!(observed.note(&node("c", 1100 * MIB + 5, 200 * MIB - 3), setup));
        assert!(!observed.note(&node("c", 1100 * MIB + 5, 200 * MIB - 3), setup), "nothing new");
        assert!(observed.note(&node("c", 1090 * MIB, 10 * MIB), setup));
        assert!(!observed.note(&node("c", 1200 * MIB, 10 * MIB), setup), "larger values are ignored");
        let kind = corrected(&observed, "c", &setup);
        assert_eq!(kind.capacity.get("memory"), 1090 * MIB);
        assert_eq!(kind.overhead.get("memory"), 200 * MIB, "the most that was kept");
        assert_eq!(kind.capacity.get("nvidia.com/gpu"), 1, "devices stay");
        assert_eq!(observed.changes(), 2);
    }

    #[test]
    fn another_class_shares_only_the_observed_memory() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        observed.note(&node("c", 1090 * MIB, 200 * MIB), setup);
        let kind = corrected(&observed, "other", &setup);
        assert_eq!((kind.capacity.get("memory"), kind.overhead.get("memory")), (1090 * MIB, 300 * MIB));
        let changed = Setup { max_pods: Some(10), ..setup };
        assert_eq!(corrected(&observed, "c", &changed).overhead.get("memory"), 300 * MIB, "set up anew");
        assert!(observed.note(&node("c", 1090 * MIB, 50 * MIB), changed));
        assert_eq!(corrected(&observed, "c", &changed).overhead.get("memory"), 50 * MIB);
    }

    #[test]
    fn implausible_reports_are_ignored() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        assert!(!observed.note(&node("c", 0, 0), setup), "a kubelet that has just begun");
        observed.note(&node("c", 500 * MIB, 0), setup);
        assert_eq!(corrected(&observed, "c", &setup).capacity.get("memory"), 1000 * MIB, "half is gone");
    }
}
