//! Sizes of ledger and log, and the log of the measured cluster.
//!
//! - The ledger of 200 tenants with six workloads each over 13 months: the closed hours of 7 days as an object store keeps each
//!   day, times 396 by 7. Three of the workloads have other requests each hour, the others the same all the time.
//! - The log of a day of the measured cluster: each node's state every hour, and 500 nodes that are launched and removed.

use croft_record::{
    SEGMENT_KEY,
    entry::{Entry, EntryKind, InstanceFacts, ObjectRef, Usage},
    ledger::{book::HOUR_MILLIS, closed::Ledger, record::LogBook},
    payer::{Payer, Purpose, Share},
    slots::slot_name,
    writer::{Bounds, SegmentWrite, Writer},
};
use croft_simkit::Random;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::fill::{NODES, TENANTS, node_name};

const LEDGER_TENANTS: usize = 200;
const WORKLOADS: usize = 6;
const MEASURED_DAYS: usize = 7;
const KEPT_DAYS: usize = 396;
/// Milliseconds of an hour.
const HOUR: usize = 3_600_000;
const LAUNCHES_A_DAY: usize = 500;
/// Entries of one write.
const BATCH: usize = 40;
const MEGABYTE: f64 = 1e6;

/// True for workloads whose requests stay.
const fn is_steady(workload: usize) -> bool {
    workload.is_multiple_of(2)
}

/// The state of a node whose pods belong to `workloads` of a tenant.
fn state(at: i64, node: usize, tenant: usize, workloads: usize, random: &mut Random) -> Entry {
    let tenant = format!("tenant-{tenant:02}");
    let share = |workload: usize, random: &mut Random| Share {
        payer: Payer {
            tenant: tenant.clone(),
            namespace: tenant.clone(),
            workload: format!("Deployment/web-{workload}"),
        },
        purpose: Purpose::Used,
        cpu_millis: if is_steady(workload) { 500 } else { 100 + random.below(900) },
        memory_bytes: if is_steady(workload) { 1 << 30 } else { (1 + random.below(8)) << 28 },
    };
    let shares = (0..workloads).map(|workload| share(workload, random)).collect();
    Entry {
        object: ObjectRef::cluster("NodeClaim", &format!("claim-{node:05}")),
        node: node_name(node),
        pool: format!("pool-{tenant}"),
        tenants: vec![tenant.clone()],
        price: Some(192_000),
        usage: Some(Usage { cpu_millis: 16_000, memory_bytes: 64 << 30, shares }),
        instance: Some(InstanceFacts { capacity_type: "on-demand".to_owned(), ..InstanceFacts::default() }),
        pods: (0..10).map(|pod| format!("{tenant}/web-{node:04}-{pod}")).collect(),
        ..Entry::new(at, EntryKind::State)
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are shown, and far below 2^52 bytes")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / MEGABYTE
}

/// The size of the ledger in megabytes.
pub(crate) fn ledger_megabytes() -> f64 {
    let mut random = Random::new(1);
    let (mut book, mut ledger) = (LogBook::default(), Ledger::default());
    let mut bytes = 0;
    for (hour, at) in (0..MEASURED_DAYS * 24).zip((0..).step_by(HOUR)) {
        for tenant in 0..LEDGER_TENANTS {
            book.observe(&state(at, tenant, tenant, WORKLOADS, &mut random));
        }
        let (_, writes) = ledger.close(&mut book, at);
        // The last write of a day's hours is what the store keeps of that day.
        if hour % 24 == 0 {
            bytes += writes.iter().map(|write| write.bytes.len()).max().unwrap_or_default();
        }
    }
    megabytes(bytes * KEPT_DAYS / MEASURED_DAYS)
}

/// The life of a node that is launched and removed.
fn life(at: i64, node: usize, tenant: usize, random: &mut Random) -> Vec<Entry> {
    let state = state(at, node, tenant, 3, random);
    let entry = |after: i64, kind, condition: &str| Entry {
        object: state.object.clone(),
        pool: state.pool.clone(),
        tenants: state.tenants.clone(),
        node: state.node.clone(),
        price: state.price,
        condition: condition.to_owned(),
        ..Entry::new(at + after, kind)
    };
    vec![
        Entry { pods: state.pods.clone(), ..entry(0, EntryKind::Create, "") },
        entry(2_000, EntryKind::Condition, "Launched=True"),
        entry(30_000, EntryKind::Condition, "Registered=True"),
        entry(45_000, EntryKind::Condition, "Initialized=True"),
        Entry { pods: state.pods.clone(), ..entry(46_000, EntryKind::Bound, "") },
        Entry { at: at + 60_000, ..state.clone() },
        Entry { reason: "Empty".to_owned(), ..entry(600_000, EntryKind::Deleting, "") },
        entry(640_000, EntryKind::Gone, ""),
    ]
}

/// The size of a day's log in megabytes.
pub(crate) fn log_megabytes_a_day() -> f64 {
    let mut random = Random::new(2);
    let mut entries = Vec::new();
    for hour in 0..24 {
        entries
            .extend((0..NODES).map(|node| state(hour * HOUR_MILLIS, node, node % TENANTS, 3, &mut random)));
    }
    for (launch, at) in (0..LAUNCHES_A_DAY).zip((0..).step_by(24 * HOUR / LAUNCHES_A_DAY)) {
        entries.extend(life(at, NODES + launch, launch % TENANTS, &mut random));
    }
    entries.sort_by_key(|entry| entry.at);
    megabytes(segments(entries).iter().map(|segment| segment.bytes.len()).sum())
}

/// The segments of entries that are written in batches, each as it was last.
fn segments(mut entries: Vec<Entry>) -> Vec<SegmentWrite> {
    let (mut writer, _) = Writer::resume([], Bounds::default());
    let mut segments: Vec<SegmentWrite> = Vec::new();
    for batch in entries.chunks_mut(BATCH) {
        for write in writer.append(batch) {
            match segments.last_mut() {
                Some(last) if last.slot == write.slot => *last = write,
                _ => segments.push(write),
            }
        }
    }
    segments
}

/// Writes the log of the last hour: each node's state, and some launches.
pub(crate) async fn write_log(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let mut random = Random::new(3);
    let begin = Timestamp::now().as_millisecond() - HOUR_MILLIS;
    let mut entries: Vec<Entry> =
        (0..NODES).map(|node| state(begin, node, node % TENANTS, 3, &mut random)).collect();
    for launch in 0..LAUNCHES_A_DAY / 24 {
        entries.extend(life(begin + 60_000, NODES + launch, launch % TENANTS, &mut random));
    }
    entries.sort_by_key(|entry| entry.at);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for SegmentWrite { slot, bytes } in segments(entries) {
        let content = json!({"binaryData": {SEGMENT_KEY: ByteString(bytes)}});
        api.patch(&slot_name(slot), &PatchParams::default(), &Patch::Merge(content)).await?;
    }
    Ok(())
}
