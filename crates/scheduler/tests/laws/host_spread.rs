//! Plans of hard topology spreads over hostnames, bound by a model of kube-scheduler's filter.

use croft_scheduler::{Cluster, Plan};
use croft_simkit::Random;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::build::{HOST, ZONE, add_taint, cluster, kinds, node, plan, pod, pool};

/// A node.
#[derive(Clone, Debug)]
struct Host {
    /// How many more pods it has room for.
    room: u32,
    /// Node selectors of the pods match it.
    selected: bool,
    tainted: bool,
    /// Pods of the app.
    count: i64,
}

/// A hard topology spread constraint over hostnames.
#[derive(Clone, Debug)]
struct Constraint {
    max_skew: i64,
    min_domains: usize,
    honours_affinity: bool,
    honours_taints: bool,
}

impl Constraint {
    fn json(&self) -> Value {
        let honours = |yes: bool| if yes { "Honor" } else { "Ignore" };
        json!({"topologyKey": HOST, "maxSkew": self.max_skew, "minDomains": self.min_domains,
            "nodeAffinityPolicy": honours(self.honours_affinity), "nodeTaintsPolicy": honours(self.honours_taints),
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}})
    }

    /// The test of kube-scheduler: `matchNum + selfMatchNum - minMatchNum <= maxSkew`.
    fn allows(&self, hosts: &[Host], at: usize) -> bool {
        let counted = |host: &&Host| {
            (!self.honours_affinity || host.selected) && (!self.honours_taints || !host.tainted)
        };
        let eligible = hosts.iter().filter(counted);
        let enough = eligible.clone().count() >= self.min_domains;
        let least = eligible.map(|host| host.count).min().filter(|_| enough).unwrap_or(0);
        hosts[at].count + 1 - least <= self.max_skew
    }
}

/// Pods of one app on nodes of one pool: some spread, the others have no constraint.
#[derive(Clone, Debug)]
struct World {
    hosts: Vec<Host>,
    constraint: Constraint,
    spread: usize,
    plain: usize,
    launches: bool,
}

impl World {
    fn pod(name: &str, constraints: &[Value]) -> Pod {
        let spec = json!({"nodeSelector": {"node-pool": "p"}, "topologySpreadConstraints": constraints});
        pod(name, "1", "1Mi", json!({"metadata": {"labels": {"app": "x"}}, "spec": spec}))
    }

    fn cluster(&self) -> Cluster {
        let pools = if self.launches { vec![pool("p", kinds())] } else { Vec::new() };
        let mut c = cluster(pools, &[]);
        for (at, host) in self.hosts.iter().enumerate() {
            let value = if host.selected { "p" } else { "q" };
            let labels = json!({"node-pool": value, ZONE: "zone-a"});
            let running = u32::try_from(host.count).unwrap();
            let cpu = format!("{}m", 1000 * host.room + running);
            let mut it = node(&format!("n{at}"), &cpu, "64Gi", labels);
            if host.tainted {
                add_taint(&mut it);
            }
            c.upsert_node(&it).unwrap();
            for number in 0..running {
                let there =
                    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": format!("n{at}")}});
                c.upsert_pod(&pod(&format!("n{at}-{number}"), "1m", "1Mi", there)).unwrap();
            }
        }
        for number in 0..self.spread {
            c.upsert_pod(&Self::pod(&format!("spread{number}"), &[self.constraint.json()])).unwrap();
        }
        for number in 0..self.plain {
            c.upsert_pod(&Self::pod(&format!("plain{number}"), &[])).unwrap();
        }
        c
    }

    fn allows(&self, hosts: &[Host], pod: &str, at: usize) -> bool {
        let host = &hosts[at];
        let holds = host.room > 0 && host.selected && !host.tainted;
        holds && (pod.starts_with("plain") || self.constraint.allows(hosts, at))
    }

    /// Binds pods to their nodes as long as one of them can be; returns the others.
    fn bind(&self, hosts: &mut [Host], mut left: Vec<(String, usize)>) -> Vec<(String, usize)> {
        while let Some(next) = left.iter().position(|(pod, at)| self.allows(hosts, pod, *at)) {
            let (_, at) = left.remove(next);
            hosts[at].room -= 1;
            hosts[at].count += 1;
        }
        left
    }

    /// Binds the pods of a plan: those on existing nodes first, then each instance registers, in any order.
    fn replay(&self, plan: &Plan, random: &mut Random) -> Result<(), TestCaseError> {
        let mut hosts = self.hosts.clone();
        let mut pods: Vec<(String, usize)> = Vec::new();
        for place in &plan.existing {
            let at = place.node.strip_prefix('n').unwrap().parse().unwrap();
            pods.extend(place.pods.iter().map(|pod| (pod.name.to_string(), at)));
        }
        shuffle(&mut pods, random);
        let left = self.bind(&mut hosts, pods);
        prop_assert!(left.is_empty(), "not bound to existing nodes: {left:?} of {:?}", plan.existing);
        let mut instances: Vec<_> = plan.instances.iter().collect();
        shuffle(&mut instances, random);
        let mut left = Vec::new();
        for instance in instances {
            let cpu = instance.allocatable.get("cpu") / 1000;
            let room = u32::try_from(cpu).unwrap();
            hosts.push(Host { room, selected: true, tainted: false, count: 0 });
            left.extend(instance.pods.iter().map(|pod| (pod.name.to_string(), hosts.len() - 1)));
            shuffle(&mut left, random);
            left = self.bind(&mut hosts, left);
        }
        prop_assert!(left.is_empty(), "not bound to new nodes: {left:?} of {:?}", plan.instances);
        Ok(())
    }

    /// How many pods kube-scheduler binds to existing nodes, each to any that it may have.
    fn bound_anywhere(&self, random: &mut Random) -> usize {
        let mut hosts = self.hosts.clone();
        for bound in 0..self.spread {
            let open: Vec<usize> = (0..hosts.len()).filter(|at| self.allows(&hosts, "spread", *at)).collect();
            if open.is_empty() {
                return bound;
            }
            let at = open[random.index(open.len())];
            hosts[at].room -= 1;
            hosts[at].count += 1;
        }
        self.spread
    }
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in 1..list.len() {
        list.swap(at, random.index(at + 1));
    }
}

fn host() -> impl Strategy<Value = Host> {
    (0..5u32, prop::bool::weighted(0.9), prop::bool::weighted(0.1), 0..4i64)
        .prop_map(|(room, selected, tainted, count)| Host { room, selected, tainted, count })
}

fn constraint() -> impl Strategy<Value = Constraint> {
    (1..4i64, prop_oneof![3 => Just(1), 1 => 2..5usize], prop::bool::weighted(0.7), any::<bool>()).prop_map(
        |(max_skew, min_domains, honours_affinity, honours_taints)| Constraint {
            max_skew,
            min_domains,
            honours_affinity,
            honours_taints,
        },
    )
}

fn world() -> impl Strategy<Value = World> {
    (prop::collection::vec(host(), 0..5), constraint(), 0..9usize, 0..4usize, any::<bool>()).prop_map(
        |(hosts, constraint, spread, plain, launches)| World { hosts, constraint, spread, plain, launches },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planned_pods_are_bound_whichever_instance_registers_first(world in world(), seed in any::<u64>()) {
        let plan = plan(&world.cluster());
        let random = &mut Random::new(seed);
        for _ in 0..4 {
            world.replay(&plan, random)?;
        }
    }

    #[test]
    fn as_many_pods_as_kube_scheduler_binds_are_planned_onto_existing_hosts(world in world(), seed in any::<u64>()) {
        let world = World { plain: 0, ..world };
        let plan = plan(&world.cluster());
        let planned: usize = plan.existing.iter().map(|place| place.pods.len()).sum();
        let random = &mut Random::new(seed);
        for _ in 0..4 {
            prop_assert_eq!(planned, world.bound_anywhere(random));
        }
    }
}
