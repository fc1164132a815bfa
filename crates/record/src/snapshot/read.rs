//! The objects at a time.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    io::BufRead as _,
};

use serde_json::Value;

use super::{
    Begin, End, FORMAT, Header, Line, Part,
    mirror::name_of,
    split::{Parts, join},
};
use crate::segment::reader;

/// The objects of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// The time of the snapshot, in milliseconds since 1970.
    pub at: i64,
    /// The objects, by kind, namespace and name.
    pub objects: Vec<Value>,
}

/// A segment's number, and the times of its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) number: u64,
    pub(super) times: Vec<i64>,
    pub(super) intact: bool,
}

/// The number of a segment.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let header: Header = serde_json::from_str(&reader(bytes).lines().next()?.ok()?).ok()?;
    (header.snapshots == FORMAT).then_some(header.segment)
}

/// Reads a segment without its objects; none if it has no header.
pub(super) fn scan(bytes: &[u8]) -> Option<Scan> {
    let mut times = Vec::new();
    let mut objects = Objects::default();
    let (number, intact) = replay(bytes, |line| {
        // Parts decide whether a snapshot is complete.
        if let Some(at) = objects.observe(line)? {
            times.push(at);
        }
        Some(true)
    })?;
    Some(Scan { number, times, intact })
}

/// Number and time of the first snapshot of a segment; none without one.
pub(crate) fn head(bytes: &[u8]) -> Option<(u64, i64)> {
    let mut first = None;
    let (number, _) = replay(bytes, |line| {
        if let Line::Begin(Begin { at, .. }) = line {
            first = Some(at);
        }
        Some(first.is_none())
    })?;
    Some((number, first?))
}

/// The time of the first snapshot of a segment. Reads its beginning alone.
#[must_use]
pub fn begins(bytes: &[u8]) -> Option<i64> {
    head(bytes).map(|(_, at)| at)
}

/// The times of all snapshots, in order.
#[must_use]
pub fn times<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> Vec<i64> {
    let mut times: Vec<i64> = segments.into_iter().filter_map(scan).flat_map(|scan| scan.times).collect();
    times.sort_unstable();
    times
}

/// The objects of the last snapshot that isn't after `at`, in milliseconds since 1970. None if there is none so old.
#[must_use]
pub fn moment<'a>(segments: impl IntoIterator<Item = &'a [u8]>, at: i64) -> Option<Moment> {
    let mut found = None;
    let walked: Result<(), Infallible> = each_moment(segments, at, at, |moment| {
        found = Some(moment);
        Ok(())
    });
    walked.ok().and(found)
}

/// Calls `visit` with each snapshot from `from` to `to`, in milliseconds since 1970, in order. The first is the last one that isn't
/// after `from`; the first of all if there is none so old.
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn each_moment<'a, E>(
    segments: impl IntoIterator<Item = &'a [u8]>,
    from: i64,
    to: i64,
    mut visit: impl FnMut(Moment) -> Result<(), E>,
) -> Result<(), E> {
    let mut known: Vec<(Scan, &[u8])> =
        segments.into_iter().filter_map(|bytes| Some((scan(bytes)?, bytes))).collect();
    known.sort_by_key(|(scan, _)| scan.number);
    let times = || known.iter().flat_map(|(scan, _)| scan.times.iter().copied());
    let first = times().filter(|time| *time <= from).max().or_else(|| times().min());
    let Some(mut next) = first else { return Ok(()) };
    for (scan, bytes) in &known {
        if !scan.times.iter().any(|time| (next..=to).contains(time)) {
            continue;
        }
        let mut objects = Objects::default();
        let mut visited = Ok(());
        replay(bytes, |line| {
            let Some(at) = objects.observe(line)? else { return Some(true) };
            if (next..=to).contains(&at) {
                next = at;
                visited = visit(Moment { at, objects: objects.values() });
            }
            Some(visited.is_ok() && at <= to)
        });
        visited?;
    }
    Ok(())
}

/// Calls `observe` with each line until it returns false or the first damage. Returns the segment's number, and whether it is intact as
/// far as it was read. `observe` returns none for damage.
fn replay(bytes: &[u8], mut observe: impl FnMut(Line) -> Option<bool>) -> Option<(u64, bool)> {
    let mut lines = reader(bytes).lines();
    let header: Header = serde_json::from_str(&lines.next()?.ok()?).ok()?;
    if header.snapshots != FORMAT {
        return None;
    }
    for line in lines {
        let parsed = line.ok().and_then(|text| serde_json::from_str::<Line>(&text).ok());
        match parsed.and_then(&mut observe) {
            Some(true) => {}
            Some(false) => return Some((header.segment, true)),
            None => return Some((header.segment, false)),
        }
    }
    Some((header.segment, true))
}

/// The objects so far.
#[derive(Debug, Default)]
struct Objects {
    begun: Option<i64>,
    shared: HashMap<u32, Value>,
    held: BTreeMap<String, (u32, Value)>,
}

impl Objects {
    /// Takes in a line. Returns the time of a snapshot with its last line; none at all for a line that can't follow.
    fn observe(&mut self, line: Line) -> Option<Option<i64>> {
        match line {
            Line::Begin(Begin { at, whole }) => {
                self.begun = Some(at);
                if whole {
                    self.shared.clear();
                    self.held.clear();
                }
            }
            Line::Part(Part { k: Some(key), t: Some(shared), v: Some(own) }) => {
                self.begun?;
                self.held.insert(key, (shared, own));
            }
            Line::Part(Part { k: Some(key), t: None, v: None }) => {
                self.held.remove(&key);
            }
            Line::Part(Part { k: None, t: Some(number), v: Some(shared) }) => {
                self.shared.insert(number, shared);
            }
            Line::Part(_) => return None,
            Line::End(End { objects }) => {
                let at = self.begun.take()?;
                return (objects == self.held.len()).then_some(Some(at));
            }
        }
        Some(None)
    }

    fn values(&self) -> Vec<Value> {
        let object = |(key, (number, own)): (&String, &(u32, Value))| {
            let shared = self.shared.get(number)?.clone();
            Some(join(Parts { shared, own: own.clone() }, name_of(key)))
        };
        self.held.iter().filter_map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{
        super::{
            mirror::{Mirror, ObjectName},
            writer::{FIRST_SLOT, SEGMENT_BYTES, SNAPSHOT_SLOTS, SnapshotWriter},
        },
        *,
    };

    /// A change between two snapshots, or one of them.
    #[derive(Clone, Debug)]
    enum Event {
        Put {
            pod: u8,
            workload: u8,
            node: u8,
        },
        Remove {
            pod: u8,
        },
        Snapshot {
            minutes: i64,
        },
        /// Another process leads, which knows the objects and what is stored.
        Resume,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            8 => (0..12_u8, 0..3_u8, 0..4_u8).prop_map(|(pod, workload, node)| Event::Put { pod, workload, node }),
            3 => (0..12_u8).prop_map(|pod| Event::Remove { pod }),
            5 => (1..40_i64).prop_map(|minutes| Event::Snapshot { minutes }),
            1 => Just(Event::Resume),
        ];
        prop::collection::vec(event, 1..60)
    }

    fn pod(number: u8, workload: u8, node: u8) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "labels": {"app": workload.to_string(), "pod": format!("web-{number}")}},
            "spec": {"nodeName": format!("n{node}"), "containers": [{"name": "c", "resources": {"requests": {"cpu": workload.to_string()}}}]},
            "status": {"phase": "Running"},
        })
    }

    fn observe(mirror: &mut Mirror, number: u8, object: Value) {
        let name = format!("web-{number}");
        let named = ObjectName { kind: "Pod", namespace: "shop", name: &name };
        mirror.observe(named, ("uid", 1), true, object);
    }

    proptest! {
        #[test]
        fn objects_at_each_time_are_those_that_there_were(events in events(), most in 1_200..4_000_usize) {
            let mut slots: Vec<Vec<u8>> = vec![Vec::new(); SNAPSHOT_SLOTS];
            let mut mirror = Mirror::default();
            let mut there: BTreeMap<u8, Value> = BTreeMap::new();
            let mut writer = SnapshotWriter::resume([], most);
            let (mut at, mut expected) = (0_i64, Vec::new());
            for event in events {
                match event {
                    Event::Put { pod: number, workload, node } => {
                        let object = pod(number, workload, node);
                        observe(&mut mirror, number, object.clone());
                        there.insert(number, object);
                    }
                    Event::Remove { pod } => {
                        let name = format!("web-{pod}");
                        mirror.remove(ObjectName { kind: "Pod", namespace: "shop", name: &name }, None);
                        there.remove(&pod);
                    }
                    Event::Snapshot { minutes } => {
                        at += minutes * 60_000;
                        let write = writer.append(&mut mirror, at).unwrap();
                        prop_assert!(write.bytes.len() <= most);
                        slots[write.slot - FIRST_SLOT] = write.bytes;
                        expected.push((at, there.clone()));
                    }
                    Event::Resume => writer = SnapshotWriter::resume(slots.iter().map(Vec::as_slice), most),
                }
            }
            let stored = || slots.iter().map(Vec::as_slice);
            let known = times(stored());
            prop_assert_eq!(known.last().copied(), expected.last().map(|(at, _)| *at));
            for (at, objects) in expected.into_iter().filter(|(at, _)| known.contains(at)) {
                let mut objects: Vec<Value> = objects.into_values().collect();
                objects.sort_by_key(|object| object["metadata"]["name"].as_str().unwrap().to_owned());
                let from = at.saturating_sub(30_000);
                let mut walked = Vec::new();
                let walk: Result<(), ()> = each_moment(stored(), from, at, |found| {
                    walked.push(found);
                    Ok(())
                });
                walk.unwrap();
                let first = known.iter().filter(|time| **time <= from).max().or(known.first());
                let wanted = known.iter().filter(|time| Some(*time) >= first && **time <= at);
                prop_assert_eq!(walked.iter().map(|found| &found.at).collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
                prop_assert_eq!(walked.last().map(|found| &found.objects), Some(&objects));
                // Also at a time between two snapshots.
                for asked in [at, at + 59_999] {
                    let found = moment(stored(), asked).unwrap();
                    prop_assert_eq!((found.at, &found.objects), (at, &objects));
                }
            }
        }
    }

    #[test]
    fn snapshot_that_was_cut_off_is_left_out_and_the_one_before_it_is_read() {
        let mut mirror = Mirror::default();
        let mut writer = SnapshotWriter::resume([], 10_000);
        observe(&mut mirror, 1, pod(1, 1, 1));
        let first = writer.append(&mut mirror, 1_000).unwrap().bytes;
        observe(&mut mirror, 2, pod(2, 1, 1));
        let both = writer.append(&mut mirror, 2_000).unwrap().bytes;
        let cut = &both[..both.len() - 9];
        let found = moment([cut], 5_000).unwrap();
        assert_eq!((found.at, found.objects), (1_000, vec![pod(1, 1, 1)]));
        assert_eq!(moment([&first[..]], 999), None);
        // The next process begins a segment of its own after the damage.
        let next = SnapshotWriter::resume([cut], 10_000).append(&mut mirror, 3_000).unwrap();
        assert_eq!((next.slot, times([&next.bytes[..]])), (FIRST_SLOT + 1, vec![3_000]));
    }

    #[test]
    fn snapshot_without_room_is_refused_and_the_next_that_has_room_is_kept() {
        let mut mirror = Mirror::default();
        let mut writer = SnapshotWriter::resume([], 600);
        for number in 0..200 {
            let mut object = pod(number, number, number);
            object["metadata"]["labels"]["salt"] =
                json!(format!("{:x}", u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            observe(&mut mirror, number, object);
        }
        let refused = writer.append(&mut mirror, 1_000).unwrap_err();
        assert!(refused.bytes > 600 && refused.most == 600);
        for number in 1..200 {
            let name = format!("web-{number}");
            mirror.remove(ObjectName { kind: "Pod", namespace: "shop", name: &name }, None);
        }
        let write = writer.append(&mut mirror, 2_000).unwrap();
        assert_eq!(moment([&write.bytes[..]], 2_000).unwrap().objects.len(), 1);
    }

    #[test]
    fn ten_thousand_pods_take_a_segment_and_a_few_megabytes() {
        let mut mirror = Mirror::default();
        for number in 0..10_000_u64 {
            let (workload, noise) = (number / 20, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let name = format!("web-{workload}-{:x}-{:05x}", workload.wrapping_mul(0x517c_c1b7), noise >> 44);
            let object = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": format!("team-{}", workload % 50), "creationTimestamp": format!("2026-11-25T{:02}:{:02}:{:02}Z", noise % 24, noise % 60, noise % 59),
                    "labels": {"app": format!("web-{workload}"), "pod-template-hash": format!("{:x}", workload.wrapping_mul(0x517c_c1b7))},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{workload}"), "uid": format!("{workload:032x}"), "controller": true}],
                },
                "spec": {
                    "nodeName": format!("ip-10-0-{}-{}.ec2.internal", noise % 200, noise % 251), "nodeSelector": {"node-pool": format!("team-{}", workload % 50)},
                    "tolerations": [{"key": "node-pool", "operator": "Equal", "value": format!("team-{}", workload % 50), "effect": "NoSchedule"}],
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": format!("web-{workload}")}}}],
                    "containers": [{"name": "main", "image": format!("registry.example.com/team/web-{workload}:1.0.0"), "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}],
                },
                "status": {"phase": "Running", "startTime": format!("2026-11-25T{:02}:{:02}:{:02}Z", noise % 24, noise % 60, noise % 59)},
            });
            mirror.observe(
                ObjectName { kind: "Pod", namespace: "team", name: &name },
                ("uid", 1),
                true,
                object,
            );
        }
        assert!(mirror.text_bytes() < 4 << 20, "{}", mirror.text_bytes());
        let mut writer = SnapshotWriter::resume([], SEGMENT_BYTES);
        let bytes = writer.append(&mut mirror, 1_000).unwrap().bytes;
        assert!(bytes.len() < 350 * 1024, "{}", bytes.len());
    }
}
