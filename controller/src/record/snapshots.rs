//! Snapshots of the cluster for the record: the objects that there are, and when a snapshot is due. No I/O.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use croft_record::{
    snapshot::{
        fields::Fields,
        mirror::{Mirror, ObjectName},
        writer::{FIRST_SLOT, SNAPSHOT_SLOTS, SnapshotWriter, TooLarge},
    },
    writer::SegmentWrite,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::{
    definitions::keys::SNAPSHOT_REQUESTED,
    kube_api::{Change, Kind, Object, Version},
    state::resource_version,
    time::Now,
};

/// Between two snapshots.
const EVERY: Duration = Duration::from_secs(600);

/// Keeps the snapshots of one process.
#[derive(Debug, Default)]
pub(super) struct SnapshotKeeper {
    mirror: Mirror,
    /// The kept fields of each kind that has been seen; none for a kind that snapshots don't hold.
    fields: HashMap<Kind, Option<Fields>>,
    /// None before the store has been read.
    writer: Option<SnapshotWriter>,
    /// When the last snapshot was made or found to be of no use, on the monotonic clock; none if one is due at once.
    last: Option<Duration>,
    /// The last request of a snapshot; none before the CroftConfig was seen.
    requested: Option<String>,
}

impl SnapshotKeeper {
    /// Takes in a change of an object.
    pub(super) fn observe(&mut self, change: &Change) {
        match change {
            Change::Version(version) => self.observe_version(version),
            Change::Gone(id) => {
                let name = name_of(id.kind, Some(&id.namespace), Some(&id.name));
                self.mirror.remove(name, id.uid.as_deref());
            }
            Change::Synced(_) | Change::Release(_) => {}
        }
    }

    /// Goes on from what the store holds.
    pub(super) fn resume(&mut self, writer: SnapshotWriter) {
        self.writer = Some(writer);
    }

    /// The snapshot that is due now, as the slot to write, if the store has every slot of snapshots.
    pub(super) fn append(
        &mut self,
        versions: &BTreeMap<usize, String>,
        now: Now,
    ) -> Option<Result<SegmentWrite, TooLarge>> {
        if self.next_due(versions)? > now.mono {
            return None;
        }
        self.last = Some(now.mono);
        let writer = self.writer.as_mut()?;
        if self.mirror.is_unchanged() && !writer.is_fresh() {
            return None;
        }
        Some(writer.append(&mut self.mirror, now.wall.as_millisecond()))
    }

    /// When the next snapshot is due, on the monotonic clock.
    pub(super) fn next_due(&self, versions: &BTreeMap<usize, String>) -> Option<Duration> {
        let has_slots = (FIRST_SLOT..FIRST_SLOT + SNAPSHOT_SLOTS).all(|slot| versions.contains_key(&slot));
        self.writer.as_ref().filter(|_| has_slots)?;
        Some(self.last.map_or(Duration::ZERO, |last| last.saturating_add(EVERY)))
    }

    fn observe_version(&mut self, version: &Version) {
        let Version { object, listed, flaw } = version;
        if flaw.is_some() {
            // The earlier version stays in force.
            return;
        }
        match object {
            Object::Pod(pod) if is_finished(pod) => {
                let meta = &pod.metadata;
                let name = name_of(Kind::Pod, meta.namespace.as_deref(), meta.name.as_deref());
                return self.mirror.remove(name, None);
            }
            Object::CroftConfig(object) => {
                let request = object.annotations().get(SNAPSHOT_REQUESTED).cloned().unwrap_or_default();
                // A new leader makes a snapshot anyway.
                if self.requested.replace(request.clone()).is_some_and(|before| before != request) {
                    self.last = None;
                }
            }
            _ => {}
        }
        let kind = object.kind();
        let fields = self.fields.entry(kind).or_insert_with(|| Fields::of_record(kind.name()));
        let Some((fields, meta)) = fields.as_ref().zip(object.metadata()) else { return };
        let Ok(value) = serde_json::to_value(object) else { return };
        let name = name_of(kind, meta.namespace.as_deref(), meta.name.as_deref());
        let version = resource_version(meta.resource_version.as_deref());
        self.mirror.observe(name, (object.uid(), version), *listed, fields.cut(&value));
    }
}

fn name_of<'a>(kind: Kind, namespace: Option<&'a str>, name: Option<&'a str>) -> ObjectName<'a> {
    ObjectName { kind: kind.name(), namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use croft_api::CroftConfig;
    use croft_record::snapshot::{
        read::{Moment, moment},
        writer::SEGMENT_BYTES,
    };
    use serde_json::json;

    use super::*;
    use crate::kube_api::ObjectId;

    const HOUR: u64 = 3_600;

    fn at(seconds: u64) -> Now {
        let wall = jiff::Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap();
        Now { wall, mono: Duration::from_secs(seconds) }
    }

    fn versions() -> BTreeMap<usize, String> {
        (FIRST_SLOT..FIRST_SLOT + SNAPSHOT_SLOTS).map(|slot| (slot, "1".to_owned())).collect()
    }

    fn pod(name: &str, uid: &str, version: u64, phase: &str) -> Change {
        let object = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "env": [{"name": "A", "value": "s3cret"}]}]},
            "status": {"phase": phase},
        });
        serde_json::from_value::<Pod>(object).unwrap().into()
    }

    fn started() -> SnapshotKeeper {
        let mut keeper = SnapshotKeeper::default();
        keeper.resume(SnapshotWriter::resume([], SEGMENT_BYTES));
        keeper
    }

    fn names(moment: &Moment) -> Vec<&str> {
        moment.objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_snapshot_is_made_every_ten_minutes_if_something_has_changed() {
        let mut keeper = started();
        keeper.observe(&pod("web-1", "u1", 1, "Running"));
        let first = keeper.append(&versions(), at(0)).unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&first.bytes).contains("s3cret"));
        keeper.observe(&pod("web-2", "u2", 2, "Running"));
        assert!(keeper.append(&versions(), at(599)).is_none());
        assert_eq!(keeper.next_due(&versions()), Some(Duration::from_secs(600)));
        let second = keeper.append(&versions(), at(600)).unwrap().unwrap();
        assert!(keeper.append(&versions(), at(1_200)).is_none(), "nothing has changed");
        let bytes = second.bytes.as_slice();
        assert_eq!(names(&moment([bytes], at(599).wall.as_millisecond()).unwrap()), ["web-1"]);
        assert_eq!(names(&moment([bytes], at(9_000).wall.as_millisecond()).unwrap()), ["web-1", "web-2"]);
    }

    #[test]
    fn a_snapshot_is_made_at_once_when_one_is_asked_for() {
        let config = |version: u64, request: &str| {
            let object = json!({"metadata": {"name": "default", "resourceVersion": version.to_string(),
                "annotations": {SNAPSHOT_REQUESTED: request}}, "spec": {}});
            Change::from(serde_json::from_value::<CroftConfig>(object).unwrap())
        };
        let mut keeper = started();
        keeper.observe(&config(1, "of an earlier leader"));
        keeper.append(&versions(), at(0)).unwrap().unwrap();
        keeper.observe(&pod("web-1", "u1", 1, "Running"));
        keeper.observe(&config(2, "of an earlier leader"));
        assert!(keeper.append(&versions(), at(30)).is_none());
        keeper.observe(&config(3, "2026-11-26T20:00:00Z"));
        assert_eq!(keeper.next_due(&versions()), Some(Duration::ZERO));
        let asked = keeper.append(&versions(), at(31)).unwrap().unwrap();
        assert!(names(&moment([&asked.bytes[..]], i64::MAX).unwrap()).contains(&"web-1"));
        assert_eq!(keeper.next_due(&versions()), Some(Duration::from_secs(631)));
    }

    #[test]
    fn pods_that_end_or_are_deleted_are_in_no_later_snapshot() {
        let mut keeper = started();
        for (name, uid) in [("job-1", "u1"), ("web-1", "u2"), ("web-2", "u3")] {
            keeper.observe(&pod(name, uid, 1, "Running"));
        }
        keeper.observe(&pod("job-1", "u1", 2, "Succeeded"));
        let gone = |name, uid| Change::Gone(ObjectId::new(Kind::Pod, "shop", name).with_uid(uid));
        keeper.observe(&gone("web-1", "u2"));
        keeper.observe(&gone("web-2", "of-an-earlier-pod"));
        let write = keeper.append(&versions(), at(HOUR)).unwrap().unwrap();
        assert_eq!(names(&moment([&write.bytes[..]], i64::MAX).unwrap()), ["web-2"]);
    }

    #[test]
    fn a_store_without_slots_for_snapshots_gets_none() {
        let mut keeper = started();
        keeper.observe(&pod("web-1", "u1", 1, "Running"));
        let mut some = versions();
        some.remove(&FIRST_SLOT);
        assert!(keeper.append(&some, at(0)).is_none() && keeper.next_due(&some).is_none());
    }
}
