//! A recorded time on virtual time: pods come and go as they were recorded, and nodes follow the settings.
//!
//! ```text
//!   snapshot ──pods, settings──▶ Replay ◀──nodes── the step before
//!                                  │ pending pods get a place, as planned
//!                                  │ every few minutes one search, by what budgets and consolidateAfter let go then
//!                                  ▼
//!                                Totals: dollars, evictions, pending pods
//! ```
//!
//! Launches, evictions and the ends of pods take no time, and nothing is interrupted, expires, drifts or is ended by hand. A pod that
//! was evicted while it was recorded is one that ends and another that comes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{TenantPool, definitions::DISRUPTED_TAINT, duration, pool::Provisioner};
use croft_manifest::{Input, InputError, Sourced};
use croft_policy::definitions::{MIRROR_ANNOTATION, UNREGISTERED_TAINT};
use croft_scheduler::{InstanceType, Options, PodKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt as _;

use super::{
    eligibility::time_of,
    schedules::{Scheduled, put_in_force},
    settle::{Settling, register_coming},
    totals::{MILLIS_PER_HOUR, Totals, is_provisioned},
};
use crate::{
    inventory::node_of,
    node_index::NodeIndex,
    workload::{controller, is_active},
};

/// From a search that removed something to the next: about as long as a replacement takes to boot and a node to drain.
const WHILE_IT_FINDS: SignedDuration = SignedDuration::from_mins(5);
/// From a search that found nothing to the next, if no snapshot comes before.
const AT_REST: SignedDuration = SignedDuration::from_mins(15);

/// Where a pod runs.
#[derive(Clone, Debug)]
struct Placement {
    node: String,
    since: Timestamp,
    /// Two pods of a StatefulSet have the same name, one after the other.
    created: Option<Timestamp>,
}

/// A cluster under one set of settings.
pub struct Replay {
    types: Arc<[InstanceType]>,
    options: Options,
    input: Input,
    at: Timestamp,
    search_at: Timestamp,
    /// The pools with schedules, as they are declared.
    declared: Vec<Sourced<TenantPool>>,
    /// When the next schedule begins or ends.
    schedule_at: Option<Timestamp>,
    placed: BTreeMap<PodKey, Placement>,
    /// When pods last came to a node or left it.
    changed: BTreeMap<String, Timestamp>,
    totals: Totals,
    evicted: usize,
    /// Pods without a place.
    pending: usize,
    /// Pods that admission refuses under these settings, though they were recorded.
    refused: usize,
    pending_millis: i128,
    warnings: Vec<String>,
}

impl Replay {
    /// Begins with the nodes of `input`, of which an edit of the first snapshot, `recorded`, may have removed some.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn begin(
        recorded: &Input,
        mut input: Input,
        types: Arc<[InstanceType]>,
        options: Options,
    ) -> Result<Self, InputError> {
        let at = time_of(&input);
        register_coming(&mut input, &types);
        settle_nodes(&mut input);
        let had_node = |(key, pod): &(PodKey, &Pod)| {
            let before = recorded.pods.get(&key.namespace, &key.name);
            node_of(pod).is_none() && before.is_some_and(|before| node_of(before).is_some())
        };
        let evicted = pods(&input).filter(had_node).count();
        let mut totals = Totals::begin(recorded);
        totals.observe(&input);
        let placed = pods(&input).filter_map(|(key, pod)| {
            let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
            let since = started.map_or(at, |time| time.0);
            Some((key, Placement { node: node_of(pod)?.to_owned(), since, created: created(pod) }))
        });
        let mut replay = Self {
            placed: placed.collect(),
            totals,
            types,
            options,
            input,
            at,
            search_at: at,
            declared: Vec::new(),
            schedule_at: None,
            changed: BTreeMap::new(),
            evicted,
            pending: 0,
            refused: 0,
            pending_millis: 0,
            warnings: Vec::new(),
        };
        replay.place()?;
        Ok(replay)
    }

    /// Goes on to the time of the next snapshot, and takes in its pods and settings. `admit` is the admission of pods that come:
    /// none for a refused one.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn advance(&mut self, next: Input, admit: &dyn Fn(Pod) -> Option<Pod>) -> Result<(), InputError> {
        self.run_until(time_of(&next))?;
        self.follow(next, admit);
        self.place()
    }

    /// Lets time pass without another snapshot.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn run_until(&mut self, until: Timestamp) -> Result<(), InputError> {
        while self.at < until {
            if self.schedule_at.is_some_and(|at| at <= self.at) {
                self.place()?;
            }
            if self.search_at <= self.at {
                let mut settling = self.settling();
                let used = settling.consolidate_now(&self.changed)?;
                self.take(settling);
                self.search_at = self.next_search(i32::try_from(used).unwrap_or(i32::MAX));
            }
            let next =
                [Some(self.search_at), self.schedule_at].into_iter().flatten().fold(until, Timestamp::min);
            let lasted = next.duration_since(self.at);
            self.totals.add(&self.input, &self.types, lasted);
            let pods = i128::try_from(self.pending.saturating_add(self.refused)).unwrap_or(i128::MAX);
            self.pending_millis = self.pending_millis.saturating_add(pods.saturating_mul(lasted.as_millis()));
            self.at = next;
        }
        Ok(())
    }

    /// The sums so far.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Pods that consolidation moved, and those that the edit did.
    #[must_use]
    pub const fn evicted(&self) -> usize {
        self.evicted
    }

    /// Pods without a place, times hours.
    #[must_use]
    pub fn pending_hours(&self) -> f64 {
        self.pending_millis as f64 / MILLIS_PER_HOUR as f64
    }

    /// Warnings of the last plan for pending pods.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// When to search again, after one that used the disruption budgets up so many times: each time takes the same. A search that
    /// found nothing is repeated when the next node has waited for its pool's consolidateAfter.
    fn next_search(&self, used: i32) -> Timestamp {
        if used > 0 {
            return after(self.at, WHILE_IT_FINDS.saturating_mul(used));
        }
        let index = NodeIndex::new(&self.input);
        let due = self.changed.iter().filter_map(|(name, at)| {
            let node = self.input.nodes.get("", name)?;
            let wait = index.pool_of(node)?.spec.disruption.consolidate_after();
            let wait = SignedDuration::try_from(duration::parse(wait).ok().flatten()?).ok()?;
            Some(after(*at, wait)).filter(|due| *due > self.at)
        });
        due.min().map_or_else(|| after(self.at, AT_REST), |due| due.min(after(self.at, AT_REST)))
    }

    fn settling(&mut self) -> Settling {
        let mut input = std::mem::take(&mut self.input);
        input.recorded_at = Some(self.at);
        for Sourced { object, origin } in std::mem::take(&mut self.declared) {
            input.pools.put(object, origin);
        }
        let Scheduled { declared, until, .. } = put_in_force(&mut input);
        (self.declared, self.schedule_at) = (declared, until);
        Settling::new(input, Arc::clone(&self.types), self.options.clone())
    }

    /// Gives pending pods a place.
    fn place(&mut self) -> Result<(), InputError> {
        let mut settling = self.settling();
        settling.place_pending()?;
        self.warnings = settling.warnings().to_vec();
        self.take(settling);
        self.search_at = self.at;
        Ok(())
    }

    fn take(&mut self, settling: Settling) {
        self.evicted = self.evicted.saturating_add(settling.evicted());
        let denied = settling.denied().iter().map(|denied| denied.pods.len());
        self.pending = denied.sum::<usize>().saturating_add(settling.unschedulable().len());
        self.input = settling.into_input();
        self.totals.observe(&self.input);
        self.note_changes();
    }

    /// Replaces pods and settings by those of `next`, whose pods run where they ran in this cluster.
    fn follow(&mut self, mut next: Input, admit: &dyn Fn(Pod) -> Option<Pod>) {
        let before = std::mem::take(&mut self.input);
        self.declared.clear();
        let (foreign, own) = {
            let index = NodeIndex::new(&next);
            let foreign = next.nodes.iter().filter(|node| !is_provisioned(&index, node));
            let foreign: BTreeSet<String> = foreign.map(|node| node.name_any()).collect();
            let own = before.nodes.iter().filter(|node| is_provisioned(&index, node));
            (foreign, own.cloned().collect::<Vec<_>>())
        };
        next.nodes.retain(|node| foreign.contains(&node.name_any()));
        next.claims.retain(|_| false);
        for Sourced { object, origin } in own {
            next.nodes.put(object, origin);
        }
        for Sourced { object, origin } in before.claims.iter().cloned() {
            let pool = next.pools.get("", &object.spec.pool);
            if pool.is_some_and(|pool| pool.spec.provisioner == Provisioner::Croft) {
                next.claims.put(object, origin);
            }
        }
        self.refused = 0;
        for Sourced { object: mut pod, origin } in std::mem::take(&mut next.pods).iter().cloned() {
            let is_there = |placement: &&Placement| {
                placement.created == created(&pod) && next.nodes.get("", &placement.node).is_some()
            };
            match self.placed.get(&key(&pod)).filter(is_there) {
                Some(placement) => run_on(&mut pod, &placement.node, placement.since),
                None if node_of(&pod).is_some_and(|node| foreign.contains(node)) => {}
                None => {
                    pod.spec.get_or_insert_default().node_name = None;
                    let Some(admitted) = admit(pod) else {
                        self.refused = self.refused.saturating_add(1);
                        continue;
                    };
                    pod = admitted;
                    // A pod without a phase would be admitted again, by plugins whose objects aren't recorded.
                    pod.status =
                        Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
                }
            }
            next.pods.put(pod, origin);
        }
        self.input = next;
        self.totals.observe(&self.input);
    }

    /// Notes at which nodes pods have come or gone, and since when each pod runs.
    fn note_changes(&mut self) {
        let mut placed = BTreeMap::new();
        let mut came = Vec::new();
        for (key, pod) in pods(&self.input) {
            let Some(node) = node_of(pod) else { continue };
            let old = self.placed.remove(&key);
            let stays = old.filter(|old| {
                let is_same = old.node == node && old.created == created(pod);
                if !is_same {
                    self.changed.insert(old.node.clone(), self.at);
                }
                is_same
            });
            let placement = stays.unwrap_or_else(|| {
                self.changed.insert(node.to_owned(), self.at);
                came.push(key.clone());
                Placement { node: node.to_owned(), since: self.at, created: created(pod) }
            });
            placed.insert(key, placement);
        }
        for gone in std::mem::replace(&mut self.placed, placed).into_values() {
            self.changed.insert(gone.node, self.at);
        }
        self.changed.retain(|node, _| self.input.nodes.get("", node).is_some());
        for key in came {
            let Some(found) = self.input.pods.get(&key.namespace, &key.name) else { continue };
            let (mut pod, origin) = (found.object.clone(), found.origin.clone());
            if let Some(node) = node_of(&pod).map(str::to_owned) {
                run_on(&mut pod, &node, self.at);
            }
            self.input.pods.put(pod, origin);
        }
    }
}

/// Makes nodes ready that were booting or being drained in the first snapshot: nothing later would end that.
fn settle_nodes(input: &mut Input) {
    let index = NodeIndex::new(input);
    let own: Vec<_> = input.nodes.iter().filter(|node| is_provisioned(&index, node)).cloned().collect();
    for Sourced { object: mut node, origin } in own {
        for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
            if condition.type_ == "Ready" {
                condition.status = "True".to_owned();
            }
        }
        if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
            taints.retain(|taint| {
                let key = taint.key.as_str();
                let passing = [UNREGISTERED_TAINT, DISRUPTED_TAINT];
                !key.starts_with("node.kubernetes.io/") && !passing.contains(&key)
            });
        }
        input.nodes.put(node, origin);
    }
}

/// Leaves out of a snapshot what a replay makes itself: pods of DaemonSets, for which every node keeps room, and the state of
/// PodDisruptionBudgets, which follows from the pods.
pub fn keep_demand(input: &mut Input) {
    input.pods.retain(|pod| {
        let owner = controller(&pod.metadata).map(|owner| owner.kind.as_str());
        is_active(pod)
            && !matches!(owner, Some("DaemonSet" | "Node"))
            && !pod.annotations().contains_key(MIRROR_ANNOTATION)
    });
    for Sourced { object: mut budget, origin } in std::mem::take(&mut input.budgets).iter().cloned() {
        budget.status = None;
        input.budgets.put(budget, origin);
    }
}

fn pods(input: &Input) -> impl Iterator<Item = (PodKey, &Pod)> {
    input.pods.iter().map(|pod| (key(pod), &pod.object))
}

fn key(pod: &Pod) -> PodKey {
    PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any())
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn run_on(pod: &mut Pod, node: &str, since: Timestamp) {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(Time(since)),
        ..PodStatus::default()
    });
}

fn after(at: Timestamp, pause: SignedDuration) -> Timestamp {
    at.checked_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};
    use croft_scheduler::Catalog;
    use serde_json::{Value, json};

    use super::*;

    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_572_000 + seconds).unwrap()
    }

    /// `small` is $0.10 an hour and takes one of these pods; `large` is $0.40 and takes seven.
    fn types() -> Arc<[InstanceType]> {
        let text = include_str!("../../../cli/tests/cases/_shared/catalog.json");
        serde_json::from_str::<Catalog>(text).unwrap().instance_types.into()
    }

    fn node(name: &str, instance_type: &str) -> [Value; 2] {
        let (cpu, memory, price) = match instance_type {
            "small" => ("1900m", "7680Mi", "0.1"),
            _ => ("7900m", "32256Mi", "0.4"),
        };
        let labels = json!({
            "node-pool": "shop-main", "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": instance_type,
            "topology.kubernetes.io/zone": "z1", "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
        });
        let taint = json!({"key": "node-pool", "value": "shop-main", "effect": "NoSchedule"});
        let amounts = json!({"cpu": cpu, "memory": memory, "pods": "20"});
        [
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": format!("aws:///z1/i-{name}"), "taints": [taint]},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
            }),
            json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": format!("claim-{name}")},
                "spec": {"pool": "shop-main", "nodeClassRef": {"name": "default"}, "instanceTypes": [instance_type],
                    "zones": ["z1"], "capacityType": "on-demand", "taints": [taint]},
                "status": {"nodeName": name, "providerId": format!("aws:///z1/i-{name}"), "instanceType": instance_type,
                    "zone": "z1", "capacityType": "on-demand", "pricePerHour": price},
            }),
        ]
    }

    fn pod(name: &str, node: Option<&str>, created: i64) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": time(created).to_string(), "labels": {"app": "web"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]},
            "spec": {"nodeName": node, "nodeSelector": {"node-pool": "shop-main"},
                "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "shop-main", "effect": "NoSchedule"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" },
                "startTime": node.map(|_| time(created).to_string())},
        })
    }

    /// The cluster `seconds` after the begin.
    fn snapshot(seconds: i64, disruption: &Value, objects: impl IntoIterator<Item = Value>) -> Input {
        let mut items = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "shop"},
                "spec": {"namespaces": ["shop"], "pools": ["shop-main"]}}),
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "shop-main"},
                "spec": {"key": "node-pool", "disruption": disruption, "template": {"spec": {"nodeClassRef": {"name": "default"}}}}}),
            json!({"apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
                "spec": {"role": "node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}}),
        ];
        items.extend(objects);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let mut input = parse("record", &list, &LoadOptions::default()).unwrap();
        input.recorded_at = Some(time(seconds));
        input
    }

    fn at_once() -> Value {
        json!({"consolidateAfter": "30s", "preference": "Cheapest", "budgets": [{"nodes": "100%"}], "minSavings": "0"})
    }

    fn begin(mut first: Input) -> Replay {
        keep_demand(&mut first);
        Replay::begin(&first.clone(), first, types(), Options::default()).unwrap()
    }

    fn advance(replay: &mut Replay, mut next: Input) {
        keep_demand(&mut next);
        replay.advance(next, &Some).unwrap();
    }

    fn cost(replay: &Replay) -> i64 {
        replay.totals().all().cost().micros()
    }

    #[test]
    fn a_cluster_at_rest_costs_what_was_recorded() {
        let objects = || node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
        let first = snapshot(0, &at_once(), objects());
        let mut recorded = Totals::begin(&first);
        recorded.add(&first, &types(), SignedDuration::from_hours(7));
        let mut replay = begin(first);
        advance(&mut replay, snapshot(3 * HOUR, &at_once(), objects()));
        replay.run_until(time(7 * HOUR)).unwrap();
        assert_eq!(cost(&replay), 700_000);
        assert_eq!(replay.totals().pools, recorded.pools);
        assert_eq!((replay.totals().launched, replay.totals().removed, replay.evicted()), (0, 0, 0));
    }

    #[test]
    fn nodes_of_a_pool_are_gone_while_its_schedule_says_so() {
        // The replay begins at 02:00.
        let schedules = json!([{"schedule": "0 3 * * *", "duration": "2h", "replicas": 0}]);
        let at = |seconds: i64| {
            let busy = node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
            let mut input = snapshot(seconds, &at_once(), busy);
            let schedules: Vec<croft_api::schedule::Schedule> =
                serde_json::from_value(schedules.clone()).unwrap();
            input.pools.for_each_mut(|pool| pool.spec.schedules.clone_from(&schedules));
            input
        };
        let mut replay = begin(at(0));
        advance(&mut replay, at(2 * HOUR));
        replay.run_until(time(4 * HOUR)).unwrap();
        assert_eq!(cost(&replay), 200_000, "an hour before and an hour after");
        assert_eq!((replay.evicted(), replay.totals().removed, replay.totals().launched), (1, 1, 1));
        assert_eq!(replay.pending_hours(), 2.0);
    }

    #[test]
    fn a_node_without_pods_stays_for_the_time_of_consolidate_after() {
        for (wait, paid_hours) in [("30s", 1), ("2h", 3)] {
            let mut disruption = at_once();
            disruption["consolidateAfter"] = json!(wait);
            let busy = node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -9 * HOUR)]);
            let mut replay = begin(snapshot(0, &disruption, busy));
            // The recorded cluster keeps the node; the replay decides for itself.
            advance(&mut replay, snapshot(HOUR, &disruption, node("n1", "small")));
            replay.run_until(time(9 * HOUR)).unwrap();
            let waited = if wait == "30s" { 833 } else { 0 };
            assert_eq!(cost(&replay), paid_hours * 100_000 + waited, "{wait}");
            assert_eq!((replay.totals().removed, replay.evicted()), (1, 0), "{wait}");
        }
    }

    #[test]
    fn new_pods_get_nodes_of_this_cluster_wherever_they_ran_in_the_recorded_one() {
        let mut replay = begin(snapshot(0, &at_once(), []));
        // It was recorded on a node that this cluster never had.
        let objects = node("n7", "large").into_iter().chain([pod("web-1", Some("n7"), HOUR)]);
        advance(&mut replay, snapshot(HOUR, &at_once(), objects));
        replay.run_until(time(2 * HOUR)).unwrap();
        assert_eq!((cost(&replay), replay.totals().launched), (100_000, 1), "a small node for an hour");
        assert_eq!(replay.pending_hours(), 0.0);
    }

    #[test]
    fn a_pod_is_another_one_if_its_name_was_created_again() {
        let with = |created: i64| node("n1", "small").into_iter().chain([pod("web-0", Some("n1"), created)]);
        let mut disruption = at_once();
        disruption["consolidateAfter"] = json!("3h");
        let mut replay = begin(snapshot(0, &disruption, with(-9 * HOUR)));
        advance(&mut replay, snapshot(HOUR, &disruption, with(HOUR)));
        assert_eq!(replay.changed.get("n1"), Some(&time(HOUR)));
        advance(&mut replay, snapshot(2 * HOUR, &disruption, with(HOUR)));
        assert_eq!(replay.changed.get("n1"), Some(&time(HOUR)), "nothing came or went since");
    }

    #[test]
    fn pods_that_consolidation_moves_are_counted_and_budgets_hold() {
        let objects = || {
            let nodes = ["n1", "n2"].into_iter().flat_map(|name| node(name, "large"));
            nodes.chain([pod("web-1", Some("n1"), -HOUR), pod("web-2", Some("n2"), -HOUR)])
        };
        let mut replay = begin(snapshot(0, &at_once(), objects()));
        replay.run_until(time(HOUR)).unwrap();
        assert!(replay.evicted() > 0 && cost(&replay) < 800_000, "{} {}", replay.evicted(), cost(&replay));

        let mut never = at_once();
        never["budgets"] = json!([{"nodes": "0"}]);
        let mut replay = begin(snapshot(0, &never, objects()));
        replay.run_until(time(HOUR)).unwrap();
        assert_eq!((replay.evicted(), cost(&replay)), (0, 800_000));
    }

    #[test]
    fn a_node_that_booted_in_the_first_snapshot_takes_pods_and_is_removed_like_any_other() {
        let mut boots = node("n1", "small");
        boots[0]["status"]["conditions"][0]["status"] = json!("False");
        boots[0]["spec"]["taints"]
            .as_array_mut()
            .unwrap()
            .push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
        let mut replay = begin(snapshot(0, &at_once(), boots.into_iter().chain([pod("web-1", None, 0)])));
        assert_eq!(replay.totals().launched, 0);
        advance(&mut replay, snapshot(HOUR, &at_once(), []));
        replay.run_until(time(3 * HOUR)).unwrap();
        assert_eq!(cost(&replay), 100_833);
    }

    #[test]
    fn pods_that_admission_refuses_are_pending_and_not_lost() {
        let mut replay = begin(snapshot(0, &at_once(), []));
        let next = snapshot(HOUR, &at_once(), [pod("web-1", Some("n7"), HOUR)]);
        replay.advance(next, &|_| None).unwrap();
        replay.run_until(time(3 * HOUR)).unwrap();
        assert_eq!((replay.pending_hours(), cost(&replay)), (2.0, 0));
    }

    #[test]
    fn a_pool_that_croft_provisions_no_more_has_no_nodes_here() {
        let objects = || node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
        let mut replay = begin(snapshot(0, &at_once(), objects()));
        let mut next = snapshot(HOUR, &at_once(), []);
        let mut pool = next.pools.get("", "shop-main").unwrap().clone();
        pool.object.spec.provisioner = Provisioner::None;
        next.pools.put(pool.object, pool.origin);
        advance(&mut replay, next);
        replay.run_until(time(3 * HOUR)).unwrap();
        assert_eq!(cost(&replay), 100_000);
    }

    #[test]
    fn pods_with_a_priority_class_that_is_not_recorded_get_a_node() {
        let mut urgent = pod("web-1", Some("n7"), HOUR);
        urgent["spec"]["priorityClassName"] = json!("urgent");
        urgent["spec"]["priority"] = json!(1000);
        let mut replay = begin(snapshot(0, &at_once(), []));
        advance(&mut replay, snapshot(HOUR, &at_once(), [urgent]));
        replay.run_until(time(2 * HOUR)).unwrap();
        assert_eq!((cost(&replay), replay.pending_hours()), (100_000, 0.0));
    }

    #[test]
    fn pods_that_fit_nowhere_are_counted_by_the_hour() {
        let mut big = pod("web-1", None, 0);
        big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("64");
        let mut replay = begin(snapshot(0, &at_once(), [big]));
        replay.run_until(time(3 * HOUR)).unwrap();
        assert_eq!(replay.pending_hours(), 3.0);
    }
}
