//! The decision log and the ledger in an object store: what concerns a time is read.

use std::sync::Arc;

use anyhow::Context as _;
use croft_cloud_aws::{Access, BucketUrl, open_bucket};
use croft_record::{
    archive::{LOG, SNAPSHOTS, hours_between, segments_between},
    ledger::closed::Ledger,
    record::Record,
};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{ObjectStore, ObjectStoreExt as _, path::Path};

use super::time::Period;

/// Requests at the same time.
const AT_ONCE: usize = 16;
/// Beyond this many days, hours are summed up to days.
const MOST_DAYS_OF_HOURS: usize = 35;

/// An archive that the user may read.
pub(super) struct Archive {
    url: BucketUrl,
    objects: Arc<dyn ObjectStore>,
}

impl Archive {
    /// The archive at `url`, with the user's own credentials and region.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let url: BucketUrl = url.parse().map_err(anyhow::Error::msg)?;
        let objects = open_bucket(&Access::default(), &url).await?;
        Ok(Self { url, objects })
    }

    /// The log of a time, and of a day before and after: why a node was launched, and what became of it.
    pub(super) async fn log(&self, period: Period) -> anyhow::Result<Record> {
        let Period { from, to } = period.wider();
        let segments = self.get(segments_between(self.list(LOG).await?, from, to)).await?;
        Ok(Record::read(segments.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))))
    }

    /// Segments of snapshots: those of a time, and the one that begins last before it.
    pub(super) async fn snapshots(&self, Period { from, to }: Period) -> anyhow::Result<Vec<Vec<u8>>> {
        let segments = self.get(segments_between(self.list(SNAPSHOTS).await?, from, to)).await?;
        Ok(segments.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// The names in a folder.
    async fn list(&self, folder: &str) -> anyhow::Result<Vec<String>> {
        let Self { url, objects } = self;
        let listed = objects.list(Some(&Path::from(folder))).map_ok(|object| object.location.to_string());
        listed.try_collect().await.with_context(|| format!("failed to list {url}"))
    }

    /// The closed hours of a time, and the log of the hours since.
    pub(super) async fn log_and_ledger(&self, period: Period) -> anyhow::Result<(Record, Ledger)> {
        let hours = self.get(hours_between(period.from, period.to).collect()).await?;
        let as_days = hours.len() > MOST_DAYS_OF_HOURS;
        let mut ledger = Ledger::default();
        for (_, bytes) in &hours {
            ledger.observe_hours(bytes, as_days);
        }
        let from = ledger.closed_until().unwrap_or(period.from).clamp(period.from, period.to);
        Ok((self.log(Period { from, ..period }).await?, ledger))
    }

    /// The objects that exist, in the order of `names`.
    async fn get(&self, names: Vec<String>) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
        let get = |name: String| async move {
            let failed = format!("failed to read {name} of {}", self.url);
            let bytes = match self.objects.get(&Path::from(name.as_str())).await {
                Ok(found) => found.bytes().await.context(failed)?,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(anyhow::Error::from(error).context(failed)),
            };
            Ok(Some((name, bytes.to_vec())))
        };
        let found = futures::stream::iter(names.into_iter().map(get)).buffered(AT_ONCE);
        found.try_filter_map(async |object| Ok(object)).try_collect().await
    }
}
