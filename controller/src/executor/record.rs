//! Reads and writes the decision log.

use super::dispatch::Executor;
use crate::{
    action::Key,
    record_store::{ResumedRecord, SlotWrite, StoreError},
    result::{ActionReport, ActionResult, Backoff},
};

impl Executor {
    pub(super) async fn read_record(&self, keys: Vec<Key>) -> ActionReport {
        let Some(store) = &self.record else { return ActionReport::done(keys) };
        let read = async {
            let slots = store.read().await?;
            // Decoding a day's entries takes long.
            let resumed = tokio::task::spawn_blocking(move || ResumedRecord::new(&slots)).await;
            resumed.map_err(|error| StoreError::Decode(error.to_string()))
        };
        match read.await {
            Ok(resumed) => ActionReport {
                results: vec![ActionResult::RecordRead(Box::new(resumed))],
                ..ActionReport::done(keys)
            },
            Err(error) => {
                tracing::warn!(%error, "failed to read the decision log, and will retry");
                ActionReport { backoff: Backoff::Exponential, ..ActionReport::done(keys) }
            }
        }
    }

    pub(super) async fn write_record(&self, keys: Vec<Key>, writes: Vec<SlotWrite>) -> ActionReport {
        let Some(store) = &self.record else { return ActionReport::done(keys) };
        let mut versions = Vec::with_capacity(writes.len());
        for write in &writes {
            match store.write(write).await {
                Ok(version) => versions.push((write.segment.slot, version)),
                Err(error) => {
                    tracing::warn!(%error, "failed to write the decision log, and will retry");
                    let results = vec![ActionResult::RecordUnwritten];
                    return ActionReport {
                        results,
                        backoff: Backoff::Exponential,
                        ..ActionReport::done(keys)
                    };
                }
            }
        }
        ActionReport { results: vec![ActionResult::RecordWritten(versions)], ..ActionReport::done(keys) }
    }
}
