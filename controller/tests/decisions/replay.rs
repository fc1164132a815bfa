//! A recorded state, planned for again: what `croft simulate --at` says is what the controller decided.

use std::collections::BTreeSet;

use croft_api::{NodeClaim, Tenant};
use croft_controller::{
    action::Action,
    kube_api::Change,
    record_store::{ResumedRecord, StoredSlot},
    result::ActionResult,
};
use croft_inspect::{recorded_input, simulation::simulate};
use croft_record::{
    entry::{EntryKind, PlanFigures},
    record::Record,
    snapshot::{
        read::moment,
        writer::{FIRST_SLOT, SNAPSHOT_SLOTS},
    },
};
use croft_scheduler::Options;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::bench::{Bench, at, pool, read, time, types};

const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

/// A drawn pod: CPU in quarters, memory in GiB, and how it is placed.
#[derive(Clone, Debug)]
struct Drawn {
    cpu: u64,
    memory: u64,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Anywhere,
    Zone(usize),
    OwnHost,
    Zones,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let rule = prop_oneof![
        4 => Just(Rule::Anywhere),
        1 => (0..ZONES.len()).prop_map(Rule::Zone),
        1 => Just(Rule::OwnHost),
        1 => Just(Rule::Zones),
    ];
    (1..20_u64, 1..9_u64, rule).prop_map(|(cpu, memory, rule)| Drawn { cpu, memory, rule })
}

fn pod_object(number: usize, drawn: &Drawn, node: Option<&str>) -> Value {
    let Drawn { cpu, memory, rule } = drawn;
    let labels = json!({"shape": format!("{cpu}-{memory}")});
    let mut spec = json!({
        "nodeSelector": {"node-pool": "pool-a"},
        "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}],
        "containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": format!("{}m", cpu * 250), "memory": format!("{memory}Gi")}}}],
    });
    match rule {
        Rule::Anywhere => {}
        Rule::Zone(zone) => spec["nodeSelector"]["topology.kubernetes.io/zone"] = json!(ZONES[*zone]),
        Rule::OwnHost => {
            let term =
                json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"});
            spec["affinity"] =
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        Rule::Zones => {
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}]);
        }
    }
    let status = match node {
        Some(node) => {
            spec["nodeName"] = json!(node);
            json!({"phase": "Running", "startTime": time(0)})
        }
        None => json!({"phase": "Pending"}),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number:02}"), "namespace": "tenant-a", "uid": format!("pod-{number}-uid"),
            "resourceVersion": "100", "creationTimestamp": time(0), "labels": labels},
        "spec": spec, "status": status,
    })
}

/// A Ready node with its claim.
fn node_objects(number: usize, zone: usize) -> [Value; 2] {
    let (name, claim) = (format!("node-{number}"), format!("pool-a-{number}"));
    let provider_id = format!("aws:///{}/i-{number}", ZONES[zone]);
    let taint = json!({"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"});
    let amounts = json!({"cpu": "3920m", "memory": "14Gi", "pods": "58"});
    let labels = json!({
        "node-pool": "pool-a", "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "m5.xlarge",
        "topology.kubernetes.io/zone": ZONES[zone], "karpenter.sh/capacity-type": "on-demand",
        "croft.dev/capacity-type": "on-demand", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
    });
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time(0)});
    let conditions = ["Launched", "Registered", "Initialized"].map(condition);
    [
        json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
            "metadata": {"name": claim, "uid": format!("{claim}-uid"), "resourceVersion": "10",
                "creationTimestamp": time(0), "finalizers": ["croft.dev/termination"]},
            "spec": {"pool": "pool-a", "nodeClassRef": {"name": "class"}, "instanceTypes": ["m5.xlarge"],
                "zones": [ZONES[zone]], "capacityType": "on-demand", "labels": {"node-pool": "pool-a"}, "taints": [taint]},
            "status": {"providerId": provider_id, "nodeName": name, "instanceType": "m5.xlarge", "zone": ZONES[zone],
                "capacityType": "on-demand", "pricePerHour": "0.192",
                "conditions": conditions},
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("{name}-uid"), "resourceVersion": "11", "labels": labels,
                "creationTimestamp": time(0), "annotations": {"croft.dev/claim": claim},
                "finalizers": ["croft.dev/termination"]},
            "spec": {"providerID": provider_id, "taints": [taint]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": amounts, "allocatable": amounts},
        }),
    ]
}

/// A plan: its figures, and the pods of each new instance.
type Planned = (PlanFigures, BTreeSet<Vec<String>>);

/// The engine's recorded decision for these objects, and its snapshot of them.
fn decide(changes: Vec<Change>) -> (Planned, Vec<u8>) {
    let mut bench = Bench::new();
    bench.engine.start_recording("leader-1");
    bench.engine.take_over(Vec::new(), at(1));
    for change in changes {
        bench.see(1, change);
    }
    let slot = |slot| StoredSlot { slot, version: "1".to_owned(), bytes: Vec::new() };
    let slots: Vec<StoredSlot> = (0..FIRST_SLOT + SNAPSHOT_SLOTS).map(slot).collect();
    let (mut entries, mut snapshots) = (Vec::new(), Vec::new());
    for seconds in [3, 4, 9, 10, 16] {
        for action in bench.decide(seconds) {
            match action {
                Action::ReadRecord => {
                    let resumed = Box::new(ResumedRecord::new(&slots));
                    bench.done(seconds, &action, vec![ActionResult::RecordRead(resumed)]);
                }
                Action::WriteRecord(ref writes) => {
                    let of_log = writes.iter().filter(|write| write.segment.slot < FIRST_SLOT);
                    let read = Record::read(of_log.map(|write| ("slot", write.segment.bytes.as_slice())));
                    entries.extend(read.entries);
                    let of_snapshots = writes.iter().filter(|write| write.segment.slot >= FIRST_SLOT);
                    snapshots.extend(of_snapshots.map(|write| write.segment.bytes.clone()));
                    let versions = writes.iter().map(|write| (write.segment.slot, "2".to_owned())).collect();
                    bench.done(seconds, &action, vec![ActionResult::RecordWritten(versions)]);
                }
                // Nothing that is decided happens: the cluster stays as it was.
                _ => {}
            }
        }
        if !snapshots.is_empty() {
            break;
        }
    }
    let plan = entries.iter().find_map(|entry| entry.plan.clone()).expect("a plan");
    let created = entries.iter().filter(|entry| entry.kind == EntryKind::Create);
    let pods = created.map(|entry| sorted(entry.pods.clone())).collect();
    ((plan, pods), snapshots.remove(0))
}

fn sorted(mut pods: Vec<String>) -> Vec<String> {
    pods.sort();
    pods
}

/// The plan for what the snapshot has.
fn replayed(snapshot: &[u8], inputs: String) -> Planned {
    let input = recorded_input(&moment([snapshot], i64::MAX).unwrap()).unwrap();
    let plan = simulate(&input, types(), &Options::default()).unwrap().plan;
    let pods =
        plan.instances.iter().map(|instance| sorted(instance.pods.iter().map(ToString::to_string).collect()));
    let figures = PlanFigures {
        inputs,
        instances: plan.instances.len(),
        pods: plan.instances.iter().map(|instance| instance.pods.len()).sum(),
        placed: plan.existing.iter().map(|placement| placement.pods.len()).sum(),
        unschedulable: plan.unschedulable.len(),
        cost: plan.cost.micros(),
        bound: plan.bound.micros(),
        steps: plan.steps,
    };
    (figures, pods.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replay_of_a_recorded_plan_gives_the_same_plan(
        pending in prop::collection::vec(drawn(), 1..24),
        running in prop::collection::vec((drawn(), 0..6_usize), 0..8),
        zones in prop::collection::vec(0..3_usize, 0..6),
        limit in prop::option::of(8..40_u32),
    ) {
        let limits = limit.map_or(json!({}), |cpu| json!({"limits": {"cpu": cpu.to_string()}}));
        let tenant = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "tenant-a", "uid": "tenant-uid", "resourceVersion": "5", "generation": 1},
            "spec": {"namespaces": ["tenant-a"], "pools": ["pool-a"]}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "tenant-a", "uid": "namespace-uid", "resourceVersion": "6"}});
        let mut changes = vec![
            Change::from(read::<Namespace>(namespace)),
            Change::from(read::<Tenant>(tenant)),
            pool(7, &limits).into(),
        ];
        for (number, zone) in zones.iter().enumerate() {
            let [claim, node] = node_objects(number, *zone);
            changes.extend([Change::from(read::<NodeClaim>(claim)), Change::from(read::<Node>(node))]);
        }
        let hosts = running.iter().filter(|(_, node)| *node < zones.len());
        let bound = hosts.map(|(drawn, node)| (drawn, Some(format!("node-{node}"))));
        for (number, (drawn, node)) in pending.iter().map(|drawn| (drawn, None)).chain(bound).enumerate() {
            changes.push(Change::from(read::<Pod>(pod_object(number, drawn, node.as_deref()))));
        }
        let (decided, snapshot) = decide(changes);
        let again = replayed(&snapshot, decided.0.inputs.clone());
        prop_assert_eq!(decided, again);
    }
}
