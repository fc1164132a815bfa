//! Resources that registered nodes report, which replace computed ones.
//!
//! Memory depends on the type and the image's kernel; reserved memory, disk and the number of pods also on the class.
//! Instances of one type differ by some pages, so the minimum in whole MiB is used: a plan must fit on any of them.
//! Devices aren't recorded, since a node reports none until their plugin runs.
//!
//! A report far below the computed value isn't caused by the type. It is true for the class, whose disks or image are
//! others than was assumed, as long as no node of that kind has reported what the type explains: then the lower one came
//! from a broken node.

use std::collections::{BTreeMap, BTreeSet};

use croft_cloud::{ObservedNode, facts::Setup};
use croft_scheduler::{InstanceType, Resources, resources::HUGE_PAGES};

/// Reports below this many thousandths of the computed value aren't caused by the type.
const BELIEVABLE_PERMILLE: i64 = 800;
const MIB: i64 = 1 << 20;

/// All recorded resources.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Reported memory by type and image.
    memory: BTreeMap<(String, String), BTreeSet<i64>>,
    /// Amounts that depend on the class as well: by class, type and image.
    kept: BTreeMap<(String, String, String), Kept>,
    changes: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Kept {
    /// The class's setup at the time of the report; another setup gives other resources. `None` while the class hadn't
    /// been resolved.
    setup: Option<Setup>,
    memory: BTreeSet<i64>,
    disk: BTreeSet<i64>,
    /// The least that was reported; 0 for none.
    pods: i64,
    overhead: Resources,
}

impl Observed {
    /// Records a node of a class with `setup`. Returns true if anything is new.
    pub(crate) fn note(&mut self, node: &ObservedNode, setup: Option<Setup>) -> bool {
        let memory = down(node.capacity.get("memory"));
        // A kubelet that has just started reports nothing.
        if memory == 0 || node.allocatable.get("memory") == 0 {
            return false;
        }
        let place = (node.instance_type.clone(), node.image_id.clone());
        let mut changed = self.memory.entry(place.clone()).or_default().insert(memory);
        let kept = self.kept.entry((node.class.clone(), place.0, place.1)).or_default();
        let before = kept.clone();
        if kept.setup.is_some_and(|known| setup.is_some_and(|setup| setup != known)) {
            *kept = Kept::default();
        }
        kept.setup = setup.or(kept.setup);
        kept.memory.insert(memory);
        kept.disk.insert(down(node.capacity.get("ephemeral-storage")));
        let pods = node.capacity.get("pods");
        kept.pods = if kept.pods == 0 { pods } else { kept.pods.min(pods) };
        let mut overhead = Resources::new();
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            let mut held = node.capacity.get(resource).saturating_sub(node.allocatable.get(resource));
            if resource == "memory" {
                // Huge pages are a template's, not the type's.
                let pages = node.capacity.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES));
                held = pages.fold(held, |held, (_, amount)| held.saturating_sub(amount));
            }
            let held = held.max(0);
            overhead.set(resource, if resource == "cpu" { held } else { up(held) });
        }
        kept.overhead.raise_to(&overhead);
        changed |= *kept != before;
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
        let memory = kind.capacity.get("memory");
        let of_type = self.memory.get(&place).and_then(|seen| believable(seen, memory));
        let kept = self.kept.get(&(class.to_owned(), place.0, place.1));
        let kept = kept.filter(|kept| kept.setup.is_none_or(|known| known == *setup));
        let of_class = || kept.and_then(|kept| kept.memory.first().copied());
        if let Some(seen) = of_type.or_else(of_class) {
            kind.capacity.set("memory", seen);
        }
        let Some(kept) = kept else { return };
        // Fewer pods than the class sets or the type has addresses for, or more: the kubelet's value is right.
        if kept.pods > 0 {
            kind.capacity.set("pods", kept.pods);
        }
        let disk = kind.capacity.get("ephemeral-storage");
        if let Some(seen) = believable(&kept.disk, disk).or_else(|| kept.disk.first().copied()) {
            kind.capacity.set("ephemeral-storage", seen);
        }
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            kind.overhead.set(resource, kept.overhead.get(resource));
        }
    }
}

/// The least report that the type explains.
fn believable(seen: &BTreeSet<i64>, computed: i64) -> Option<i64> {
    seen.range(computed / 1000 * BELIEVABLE_PERMILLE..).next().copied()
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
        assert!(observed.note(&node("c", 1100 * MIB + 5, 200 * MIB - 3), Some(setup)));
        assert!(!observed.note(&node("c", 1100 * MIB + 5, 200 * MIB - 3), Some(setup)), "nothing new");
        assert!(observed.note(&node("c", 1090 * MIB, 10 * MIB), Some(setup)));
        assert!(!observed.note(&node("c", 1090 * MIB, 10 * MIB), None), "nothing new without the setup");
        observed.note(&node("c", 1200 * MIB, 10 * MIB), Some(setup));
        let kind = corrected(&observed, "c", &setup);
        assert_eq!(kind.capacity.get("memory"), 1090 * MIB);
        assert_eq!(kind.overhead.get("memory"), 200 * MIB, "the most that was kept");
        assert_eq!(kind.capacity.get("nvidia.com/gpu"), 1, "devices stay");
    }

    #[test]
    fn another_class_shares_only_the_observed_memory() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        observed.note(&node("c", 1090 * MIB, 200 * MIB), Some(setup));
        let kind = corrected(&observed, "other", &setup);
        assert_eq!((kind.capacity.get("memory"), kind.overhead.get("memory")), (1090 * MIB, 300 * MIB));
        let changed = Setup { max_pods: Some(10), ..setup };
        assert_eq!(corrected(&observed, "c", &changed).overhead.get("memory"), 300 * MIB, "set up anew");
        assert!(observed.note(&node("c", 1090 * MIB, 50 * MIB), Some(changed)));
        assert_eq!(corrected(&observed, "c", &changed).overhead.get("memory"), 50 * MIB);
    }

    /// After a restart nodes are reported before their class is resolved.
    #[test]
    fn report_of_a_class_that_was_not_resolved_yet_is_used() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        assert!(observed.note(&node("c", 1090 * MIB, 200 * MIB), None));
        let kind = corrected(&observed, "c", &setup);
        assert_eq!((kind.capacity.get("memory"), kind.overhead.get("memory")), (1090 * MIB, 200 * MIB));
    }

    #[test]
    fn node_with_far_less_than_assumed_corrects_its_class_until_another_has_what_the_type_explains() {
        let (mut observed, setup) = (Observed::default(), Setup::default());
        let with_disk = |disk: i64, memory: i64| {
            let mut node = node("c", memory, 100 * MIB);
            node.capacity.set("ephemeral-storage", disk);
            node
        };
        assert!(!observed.note(&node("c", 0, 0), Some(setup)), "a kubelet that has just begun");
        let seen = |observed: &Observed, class: &str| {
            let kind = corrected(observed, class, &setup);
            (kind.capacity.get("memory") / MIB, kind.capacity.get("ephemeral-storage") / MIB)
        };
        assert!(observed.note(&with_disk(4 * MIB, 500 * MIB), Some(setup)));
        assert_eq!(seen(&observed, "c"), (500, 4), "a root disk of another size");
        assert_eq!(seen(&observed, "other"), (1000, 100), "not caused by the type");
        assert!(observed.note(&with_disk(90 * MIB, 950 * MIB), Some(setup)));
        assert_eq!(seen(&observed, "c"), (950, 90), "the first node was broken");
        observed.note(&with_disk(3 * MIB, 400 * MIB), Some(setup));
        assert_eq!(seen(&observed, "c"), (950, 90));
    }
}
