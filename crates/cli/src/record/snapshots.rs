//! The cluster as it was at a time, from the snapshots of the record.

use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use croft_inspect::recorded_input;
use croft_manifest::{Input, InputError};
use croft_record::{
    COMPONENT, COMPONENT_LABEL, SEGMENT_KEY,
    slots::SNAPSHOT_PREFIX,
    snapshot::read::{Moment, each_moment, moment, times},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

#[cfg(feature = "aws")]
use super::archive::Archive;
use super::{
    source::is_archive,
    time::{Period, parse_moment, text},
};
use crate::{failure::Failure, output::Output, source::ClusterArgs};

/// A cluster at rest has no new snapshot. Beyond this age it is said which one is shown.
pub(crate) const SNAPSHOT_IS_OLD: SignedDuration = SignedDuration::from_mins(20);

/// Arguments of a command that reads the cluster as it was.
#[derive(Args, Clone, Debug)]
pub(crate) struct SnapshotArgs {
    /// The cluster as it was at this time, from the last snapshot of the record before: 02:14 (the last such time, UTC),
    /// 2026-11-25T02:14:00Z, or how long ago, such as 90m. From Croft's namespace, or from --record s3://BUCKET/PREFIX, where the
    /// controller archives it
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl SnapshotArgs {
    /// True if a time is given.
    pub(crate) const fn is_given(&self) -> bool {
        self.at.is_some()
    }

    /// Calls `visit` with the cluster as each snapshot of a time shows it, in order. `place` is as of [`Self::load`].
    ///
    /// # Errors
    /// If the snapshots can't be read, or there is none; and the first error of `visit`.
    pub(crate) fn each(
        &self,
        place: Option<&str>,
        period: Period,
        cluster: &ClusterArgs,
        mut visit: impl FnMut(Input) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let segments = self.segments(place, period, cluster)?;
        let Period { from, to } = period;
        if !times(segments.iter().map(Vec::as_slice)).iter().any(|time| *time <= to) {
            return Err(missing(&segments, to).into());
        }
        each_moment(segments.iter().map(Vec::as_slice), from, to, |found| visit(recorded_input(&found)?))
    }

    /// The segments with the snapshots of a time.
    fn segments(
        &self,
        place: Option<&str>,
        period: Period,
        cluster: &ClusterArgs,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(match place {
            Some(url) if is_archive(url) => from_archive(url, period)?,
            Some(file) => {
                let path = Path::new(file);
                vec![std::fs::read(path).with_context(|| format!("failed to read {file}"))?]
            }
            None => cluster.run(async |client| from_cluster(&client, cluster.croft_namespace()).await)?,
        })
    }

    /// Reads the cluster as it was. `place` is an archive or a file with one segment; the slots in Croft's namespace without it.
    ///
    /// # Errors
    /// If the snapshots can't be read, or none is so old.
    pub(crate) fn load(
        &self,
        place: Option<&str>,
        cluster: &ClusterArgs,
        now: Timestamp,
        out: &mut Output,
    ) -> Result<Input, Failure> {
        let at = parse_moment(self.at.as_deref().unwrap_or("0s"), now)?;
        let segments = self.segments(place, Period::at(at), cluster)?;
        let found = find(&segments, at)?;
        if SignedDuration::from_millis(at.saturating_sub(found.at)) > SNAPSHOT_IS_OLD {
            let shown = text(found.at);
            out.warn(&[format!(
                "the last snapshot before is of {shown}: nothing has changed since, or the controller made none"
            )])?;
        }
        let mut input = recorded_input(&found)?;
        out.warn(&std::mem::take(&mut input.warnings))?;
        Ok(input)
    }
}

/// The last snapshot that isn't after `at`.
fn find(segments: &[Vec<u8>], at: i64) -> Result<Moment, InputError> {
    let slices = || segments.iter().map(Vec::as_slice);
    moment(slices(), at).ok_or_else(|| missing(segments, at))
}

/// Why there is no snapshot that isn't after `at`.
fn missing(segments: &[Vec<u8>], at: i64) -> InputError {
    InputError::Other(match times(segments.iter().map(Vec::as_slice)).first() {
        Some(first) => {
            let (at, first) = (text(at), text(*first));
            format!("no snapshot of the cluster is as old as {at}: the first is of {first}")
        }
        None => "there is no snapshot of the cluster: the controller makes one every ten minutes (croft check); croft debug \
                 dump writes a file for --record without --at"
            .to_owned(),
    })
}

async fn from_cluster(client: &Client, namespace: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let slots = ListParams::default().labels(&format!("{COMPONENT_LABEL}={COMPONENT}"));
    let list = api.list(&slots).await.with_context(|| {
        format!("failed to list the ConfigMaps of namespace {namespace}, which hold the snapshots")
    })?;
    let of_snapshots = list.items.into_iter().filter(|slot| slot.name_any().starts_with(SNAPSHOT_PREFIX));
    Ok(of_snapshots.filter_map(|slot| Some(slot.binary_data?.remove(SEGMENT_KEY)?.0)).collect())
}

#[cfg(feature = "aws")]
fn from_archive(url: &str, period: Period) -> anyhow::Result<Vec<Vec<u8>>> {
    crate::source::block_on(async { Archive::open(url).await?.snapshots(period).await })
}

#[cfg(not(feature = "aws"))]
fn from_archive(url: &str, _: Period) -> anyhow::Result<Vec<Vec<u8>>> {
    anyhow::bail!("{url} can't be read: this croft was built without the feature aws")
}

#[cfg(test)]
mod tests {
    use croft_record::snapshot::{
        mirror::{Mirror, ObjectName},
        writer::SnapshotWriter,
    };
    use serde_json::json;

    use super::*;

    fn put(mirror: &mut Mirror, kind: &str, namespace: &str, name: &str, object: serde_json::Value) {
        mirror.observe(ObjectName { kind, namespace, name }, ("uid", 1), false, object);
    }

    /// A cluster of one pod at first, and of two pods and a NodeClaim without a pool an hour later.
    fn segment() -> Vec<u8> {
        let mut mirror = Mirror::default();
        let pod = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"},
            })
        };
        put(&mut mirror, "Pod", "shop", "web-1", pod("web-1"));
        let mut writer = SnapshotWriter::resume([], 100_000);
        writer.append(&mut mirror, 3_600_000).unwrap();
        put(&mut mirror, "Pod", "shop", "web-2", pod("web-2"));
        let claim = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": "a-1"},
            "spec": {"pool": "a", "nodeClassRef": {"name": "c"}, "instanceTypes": ["m5.large"], "zones": ["z"], "capacityType": "spot"},
        });
        put(&mut mirror, "NodeClaim", "", "a-1", claim);
        writer.append(&mut mirror, 7_200_000).unwrap().bytes
    }

    #[test]
    fn the_cluster_is_read_as_it_was_at_the_last_snapshot_before() {
        let segments = [segment()];
        for (at, shown, pods) in
            [(3_600_000, 3_600_000, 1), (7_199_999, 3_600_000, 1), (i64::MAX, 7_200_000, 2)]
        {
            let input = recorded_input(&find(&segments, at).unwrap()).unwrap();
            assert_eq!(input.recorded_at, Timestamp::from_millisecond(shown).ok());
            assert_eq!((input.pods.len(), input.claims.len()), (pods, 0), "{at}");
        }
    }

    #[test]
    fn a_time_before_the_first_snapshot_is_refused() {
        let early = find(&[segment()], 3_599_999).unwrap_err().to_string();
        assert_eq!(
            early,
            "no snapshot of the cluster is as old as 1970-01-01 00:59:59Z: the first is of 1970-01-01 01:00:00Z"
        );
        assert!(find(&[], 0).unwrap_err().to_string().starts_with("there is no snapshot"));
    }
}
