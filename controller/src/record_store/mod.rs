//! Stores of the decision log. [`archive`] copies what a store holds into an object store.

pub mod archive;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use croft_record::{
    entry::{Entry, EntryKind},
    ledger::{closed::Ledger, record::LogBook},
    record::Record,
    slots::slot_name,
    snapshot::writer::{FIRST_SLOT, SEGMENT_BYTES, SNAPSHOT_SLOTS, SnapshotWriter, is_snapshot_slot},
    writer::{Bounds, SLOTS, SegmentWrite, Writer},
};
use serde_json::json;

use crate::kube_api::{ApiError, Call, KubeApi, Response, Target, Verb};

/// Why a store can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server's answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The segments could not be decoded.
    #[error("failed to decode the decision log: {0}")]
    Decode(String),
}

/// A slot to write, if it still has the version that was read or written last.
#[derive(Clone, Debug)]
pub struct SlotWrite {
    /// The slot and its content.
    pub segment: Arc<SegmentWrite>,
    /// The version.
    pub version: String,
}

/// A slot as a store holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSlot {
    /// The slot.
    pub slot: usize,
    /// Its version, for the next write.
    pub version: String,
    /// Its content; empty before the first write.
    pub bytes: Vec<u8>,
}

/// Every slot: of the log, the ledger and the snapshots.
const ALL_SLOTS: usize = FIRST_SLOT + SNAPSHOT_SLOTS;

/// Keeps the segments of the decision log, the ledger, and the snapshots. Only the leader writes; a write names the version that it replaces.
#[async_trait]
pub trait RecordStore: Send + Sync {
    /// Reads every slot that exists.
    async fn read(&self) -> Result<Vec<StoredSlot>, StoreError>;

    /// Writes one slot. Returns its new version.
    async fn write(&self, write: &SlotWrite) -> Result<String, StoreError>;
}

/// The state of the log that a new leader reads from the store.
#[derive(Debug)]
pub struct ResumedRecord {
    /// Continues the newest segment.
    pub(crate) writer: Writer,
    /// The last sequence number; 0 in an empty store.
    pub(crate) last_sequence: u64,
    /// The time of the last entry.
    pub(crate) last_at: Option<i64>,
    /// The versions of the slots.
    pub(crate) versions: BTreeMap<usize, String>,
    /// NodeClaims whose end isn't recorded: the last entry of each, or that of its instance's end.
    pub(crate) open_claims: Vec<Entry>,
    /// The closed hours and days.
    pub(crate) ledger: Ledger,
    /// The costs of the hours since.
    pub(crate) book: LogBook,
    /// Continues the snapshots.
    pub(crate) snapshots: SnapshotWriter,
}

impl ResumedRecord {
    /// Decodes what a store holds.
    #[must_use]
    pub fn new(slots: &[StoredSlot]) -> Self {
        let written = || slots.iter().filter(|slot| slot.slot < SLOTS && !slot.bytes.is_empty());
        let (writer, last_sequence) =
            Writer::resume(written().map(|slot| slot.bytes.as_slice()), Bounds::default());
        let record = Record::read(written().map(|slot| ("", slot.bytes.as_slice())));
        let of_snapshots = slots.iter().filter(|slot| is_snapshot_slot(slot.slot) && !slot.bytes.is_empty());
        let snapshots = SnapshotWriter::resume(of_snapshots.map(|slot| slot.bytes.as_slice()), SEGMENT_BYTES);
        let ledger = Ledger::read(slots.iter().map(|slot| (slot.slot, slot.bytes.as_slice())));
        Self {
            writer,
            last_sequence,
            book: LogBook::replay(&record, &ledger, i64::MAX),
            ledger,
            last_at: record.entries.iter().map(|entry| entry.at).max(),
            versions: slots.iter().map(|slot| (slot.slot, slot.version.clone())).collect(),
            open_claims: open_claims(record),
            snapshots,
        }
    }
}

fn open_claims(record: Record) -> Vec<Entry> {
    let of_claim = |entry: &Entry| entry.object.kind == "NodeClaim";
    let gone: BTreeSet<String> = record
        .entries
        .iter()
        .filter(|entry| of_claim(entry) && entry.kind == EntryKind::Gone)
        .map(|entry| entry.object.name.clone())
        .collect();
    let mut open: BTreeMap<String, Entry> = BTreeMap::new();
    for entry in record.entries.into_iter().filter(of_claim) {
        let has_ended = open.get(&entry.object.name).is_some_and(|last| last.kind == EntryKind::Ended);
        if !gone.contains(&entry.object.name) && !has_ended {
            open.insert(entry.object.name.clone(), entry);
        }
    }
    open.into_values().collect()
}

/// The slots of log, ledger and snapshots as ConfigMaps of Croft's own namespace. The manifests install them empty, so that the controller needs no right to
/// create one: it may patch these, by name.
pub struct ClusterStore {
    api: Arc<dyn KubeApi>,
    namespace: String,
}

impl ClusterStore {
    /// The slots in `namespace`.
    #[must_use]
    pub fn new(api: Arc<dyn KubeApi>, namespace: &str) -> Self {
        Self { api, namespace: namespace.to_owned() }
    }

    fn target(&self, slot: usize) -> Target {
        Target::RecordSlot(self.namespace.clone(), slot_name(slot))
    }
}

#[async_trait]
impl RecordStore for ClusterStore {
    async fn read(&self) -> Result<Vec<StoredSlot>, StoreError> {
        let mut slots = Vec::with_capacity(ALL_SLOTS);
        for slot in 0..ALL_SLOTS {
            // An empty patch returns the object, without a right to read.
            match self.api.call(Call { target: self.target(slot), verb: Verb::Patch(json!({})) }).await {
                Ok(Response::RecordSlot { version, bytes }) => {
                    slots.push(StoredSlot { slot, version, bytes })
                }
                Ok(_) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(slots)
    }

    async fn write(&self, write: &SlotWrite) -> Result<String, StoreError> {
        let target = self.target(write.segment.slot);
        let content = k8s_openapi::ByteString(write.segment.bytes.clone());
        let patch = json!({
            "metadata": {"resourceVersion": write.version},
            "binaryData": {croft_record::SEGMENT_KEY: content},
        });
        match self.api.call(Call { target: target.clone(), verb: Verb::Patch(patch) }).await? {
            Response::RecordSlot { version, .. } => Ok(version),
            _ => Err(ApiError::Unknown {
                verb: "patch",
                target,
                message: "no object in the answer".to_owned(),
            }
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use croft_record::entry::ObjectRef;

    use super::*;

    #[test]
    fn a_claim_is_open_until_its_end_is_recorded() {
        let entry =
            |kind, name: &str| Entry { object: ObjectRef::cluster("NodeClaim", name), ..Entry::new(7, kind) };
        let mut entries = [
            entry(EntryKind::Create, "a"),
            entry(EntryKind::Create, "b"),
            entry(EntryKind::Deleting, "b"),
            entry(EntryKind::Gone, "a"),
        ];
        let (mut writer, _) = Writer::resume([], Bounds::default());
        let writes = writer.append(&mut entries);
        let slots: Vec<StoredSlot> = writes
            .into_iter()
            .map(|write| StoredSlot { slot: write.slot, version: "5".to_owned(), bytes: write.bytes })
            .collect();
        let resumed = ResumedRecord::new(&slots);
        assert_eq!((resumed.last_sequence, resumed.last_at), (4, Some(7)));
        let open: Vec<_> =
            resumed.open_claims.iter().map(|entry| (entry.object.name.as_str(), entry.kind)).collect();
        assert_eq!(open, [("b", EntryKind::Deleting)]);
    }
}
