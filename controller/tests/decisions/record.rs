//! The decision log: what is recorded of plans, refusals and the life of a node.

use croft_controller::{
    action::{Action, Key},
    record_store::{ResumedRecord, SlotWrite, StoredSlot},
    result::{ActionReport, ActionResult},
};
use croft_record::{
    entry::{Entry, EntryKind, PlanFigures},
    record::Record,
    snapshot::{
        read::moment,
        writer::{FIRST_SLOT, SNAPSHOT_SLOTS},
    },
    writer::SLOTS,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::bench::{Bench, at, claim, launched, node, pod, read, registered_labels};

fn empty_store() -> Vec<StoredSlot> {
    (0..SLOTS).map(|slot| StoredSlot { slot, version: "1".to_owned(), bytes: Vec::new() }).collect()
}

fn recording() -> Bench {
    let mut bench = Bench::new();
    bench.engine.start_recording("leader-1");
    bench.engine.take_over(Vec::new(), at(1));
    pass(&mut bench, 1);
    bench
}

/// A pass, whose read of the log finds nothing. Returns the entries that it writes.
fn pass(bench: &mut Bench, seconds: u64) -> Vec<Entry> {
    let mut written = Vec::new();
    for action in bench.decide(seconds) {
        match action {
            Action::ReadRecord => {
                let resumed = Box::new(ResumedRecord::new(&empty_store()));
                bench.done(seconds, &action, vec![ActionResult::RecordRead(resumed)]);
            }
            Action::WriteRecord(writes) => written.extend(write(bench, seconds, &writes)),
            _ => {}
        }
    }
    written
}

/// Carries a write out. Returns the entries of its segments.
fn write(bench: &mut Bench, seconds: u64, writes: &[SlotWrite]) -> Vec<Entry> {
    let read = Record::read(writes.iter().map(|write| ("slot", write.segment.bytes.as_slice())));
    let versions = writes.iter().map(|write| (write.segment.slot, "2".to_owned())).collect();
    let results = vec![ActionResult::RecordWritten(versions)];
    bench.engine.complete(ActionReport { results, ..ActionReport::done(vec![Key::Record]) }, at(seconds));
    read.entries
}

/// Every entry so far, of which some were not written yet.
fn entries(bench: &mut Bench, seconds: u64) -> Vec<Entry> {
    let Some(Action::WriteRecord(writes)) = bench.engine.last_record(at(seconds)) else {
        panic!("nothing to write")
    };
    write(bench, seconds, &writes)
}

fn of_kind(entries: &[Entry], kind: EntryKind) -> Vec<&Entry> {
    entries.iter().filter(|entry| entry.kind == kind).collect()
}

fn huge() -> Box<Pod> {
    read(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "huge", "namespace": "tenant-a", "uid": "huge-uid", "resourceVersion": "100"},
        "spec": {
            "nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "env": [{"name": "A", "value": "s3cret"}],
                "resources": {"requests": {"cpu": "500", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Pending"},
    }))
}

/// The entries of a plan for a pod that fits and one that doesn't.
fn planned() -> Vec<Entry> {
    let mut bench = recording();
    bench.see(2, pod("web", None));
    bench.see(2, huge());
    pass(&mut bench, 3);
    pass(&mut bench, 4);
    entries(&mut bench, 5)
}

#[test]
fn a_plan_is_recorded_with_its_inputs_its_claims_and_its_refusals() {
    let entries_of_plan = planned();
    let [plan] = of_kind(&entries_of_plan, EntryKind::Plan)[..] else { panic!("{entries_of_plan:?}") };
    let figures = plan.plan.clone().unwrap();
    assert_eq!((figures.instances, figures.pods, figures.unschedulable), (1, 1, 1));
    assert!(figures.cost >= figures.bound && figures.bound > 0 && figures.inputs.len() == 16, "{figures:?}");
    let [create] = of_kind(&entries_of_plan, EntryKind::Create)[..] else { panic!("{entries_of_plan:?}") };
    assert_eq!((create.pool.as_str(), &create.pods), ("pool-a", &vec!["tenant-a/web".to_owned()]));
    assert!(create.message.starts_with("one of m5.large"), "{}", create.message);
    let [refusal] = of_kind(&entries_of_plan, EntryKind::Pending)[..] else { panic!("{entries_of_plan:?}") };
    assert_eq!(
        (&refusal.pods, refusal.reason.as_str()),
        (&vec!["tenant-a/huge".to_owned()], "InsufficientResources")
    );
    assert!(!format!("{entries_of_plan:?}").contains("s3cret"));
    assert_eq!(of_kind(&entries_of_plan, EntryKind::Lead)[0].message, "leader-1");
}

#[test]
fn a_snapshot_has_the_objects_that_the_engine_knows_and_no_environment() {
    let mut bench = Bench::new();
    bench.engine.start_recording("leader-1");
    bench.engine.take_over(Vec::new(), at(1));
    bench.see(2, huge());
    bench.see(2, pod("web", None));
    let slot = |slot| StoredSlot { slot, version: "1".to_owned(), bytes: Vec::new() };
    let slots: Vec<StoredSlot> = (0..FIRST_SLOT + SNAPSHOT_SLOTS).map(slot).collect();
    let mut snapshots = Vec::new();
    for seconds in [3, 8, 9, 10] {
        for action in bench.decide(seconds) {
            match action {
                Action::ReadRecord => {
                    let resumed = Box::new(ResumedRecord::new(&slots));
                    bench.done(seconds, &action, vec![ActionResult::RecordRead(resumed)]);
                }
                Action::WriteRecord(writes) => {
                    write(&mut bench, seconds, &writes);
                    let of_snapshots = writes.iter().filter(|write| write.segment.slot >= FIRST_SLOT);
                    snapshots.extend(of_snapshots.map(|write| write.segment.bytes.clone()));
                }
                _ => {}
            }
        }
    }
    let [bytes] = snapshots.as_slice() else { panic!("{} snapshots", snapshots.len()) };
    let found = moment([bytes.as_slice()], i64::MAX).unwrap();
    let names: Vec<&str> =
        found.objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["huge", "web"]);
    assert!(!format!("{found:?}").contains("s3cret"));
    assert_eq!(found.objects[0]["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));
}

#[test]
fn a_refusal_that_holds_is_recorded_once_an_hour() {
    let mut bench = recording();
    bench.see(2, huge());
    let mut count = 0;
    for second in (3..7_400).step_by(30) {
        // The rest of the cluster changes all the time.
        bench.engine.snapshot_mut().request_plan();
        let written = pass(&mut bench, second);
        count = of_kind(&written, EntryKind::Pending).len().max(count);
    }
    assert_eq!(count, 3);
}

#[test]
fn equal_inputs_have_equal_digests_and_plans() {
    let figures =
        |entries: &[Entry]| -> PlanFigures { of_kind(entries, EntryKind::Plan)[0].plan.clone().unwrap() };
    let (one, other) = (planned(), planned());
    assert_eq!(figures(&one), figures(&other));
    let create = |entries: &[Entry]| {
        of_kind(entries, EntryKind::Create)
            .into_iter()
            .map(|entry| (entry.message.clone(), entry.pods.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(create(&one), create(&other));

    let mut bench = recording();
    bench.see(2, pod("another", None));
    bench.see(2, huge());
    pass(&mut bench, 3);
    pass(&mut bench, 4);
    let different = figures(&entries(&mut bench, 5));
    assert_eq!(different.cost, figures(&one).cost);
    assert_ne!(different.inputs, figures(&one).inputs, "another pod");
}

#[test]
fn the_life_of_a_node_is_recorded_and_its_end_also_by_the_next_leader() {
    let mut bench = recording();
    bench.see(2, claim(10, launched(&["Registered", "Initialized"]), false));
    bench.see(2, node(10, "aws:///us-east-1a/i-1", registered_labels(), json!([]), true));
    bench.see(2, pod("web", Some("node-1")));
    pass(&mut bench, 3);
    let first = entries(&mut bench, 4);
    let conditions: Vec<&str> =
        of_kind(&first, EntryKind::Condition).iter().map(|entry| entry.condition.as_str()).collect();
    for condition in ["Launched=True", "Registered=True", "Initialized=True"] {
        assert!(conditions.contains(&condition), "{conditions:?}");
    }
    assert!(
        of_kind(&first, EntryKind::Condition)
            .iter()
            .all(|entry| entry.node == "node-1" && entry.pool == "pool-a")
    );

    // Its pods are recorded, and once more when they have changed, from time to time.
    let [state] = of_kind(&first, EntryKind::State)[..] else { panic!("{first:?}") };
    assert_eq!(
        (&state.pods, state.usage.as_ref().unwrap().cpu_millis),
        (&vec!["tenant-a/web".to_owned()], 1_930)
    );
    let shares = &state.usage.as_ref().unwrap().shares;
    assert_eq!((shares.len(), shares[0].cpu_millis, shares[0].memory_bytes), (1, 1_000, 1 << 30));
    bench.see(10, pod("other", Some("node-1")));
    pass(&mut bench, 500);
    pass(&mut bench, 700);
    let changed = entries(&mut bench, 701);
    let [_, state] = of_kind(&changed, EntryKind::State)[..] else { panic!("{changed:?}") };
    assert_eq!(state.pods, ["tenant-a/other", "tenant-a/web"]);

    bench.see(800, claim(11, launched(&["Registered", "Initialized"]), true));
    pass(&mut bench, 801);
    let second = entries(&mut bench, 802);
    assert_eq!(of_kind(&second, EntryKind::Deleting).len(), 1);

    // Another process leads after the claim's end, and knows of it from the log alone.
    let mut log = second;
    let (mut writer, _) = croft_record::writer::Writer::resume([], croft_record::writer::Bounds::default());
    let writes = writer.append(&mut log);
    let mut slots = empty_store();
    slots[0].bytes.clone_from(&writes[0].bytes);
    let mut next = Bench::new();
    next.engine.start_recording("leader-2");
    next.engine.take_over(Vec::new(), at(900));
    let actions = next.decide(900);
    let ask = actions.iter().find(|action| matches!(action, Action::ReadRecord)).unwrap();
    next.done(900, ask, vec![ActionResult::RecordRead(Box::new(ResumedRecord::new(&slots)))]);
    next.decide(901);
    let Some(Action::WriteRecord(writes)) = next.engine.last_record(at(906)) else {
        panic!("nothing to write")
    };
    let read = Record::read([("slot", writes[0].segment.bytes.as_slice())]);
    let gone = of_kind(&read.entries, EntryKind::Gone);
    assert_eq!((gone.len(), gone[0].object.name.as_str(), gone[0].node.as_str()), (1, "pool-a-1", "node-1"));
    assert!(read.entries.windows(2).all(|pair| pair[0].sequence < pair[1].sequence), "one numbering");
}
