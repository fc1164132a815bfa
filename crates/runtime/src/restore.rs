//! Whether the API server's data went back, as after the restoration of a backup of etcd.
//!
//! A watch that was begun at a version of the later data shows nothing until the older data has grown past that version:
//! the API server doesn't say that it has older data, and no watch fails. So a process that goes on over a restoration would
//! decide on what no longer is. An object that the process reads or writes itself at short intervals, its Lease, shows
//! it: versions of one resource only grow. Whoever watches then lists again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;

/// Compares the versions of one resource in the order in which they were read or written.
#[derive(Debug, Default)]
pub struct RestoreDetector {
    last: u64,
    restores: watch::Sender<u64>,
}

impl RestoreDetector {
    /// The restorations from now on.
    #[must_use]
    pub fn restores(&self) -> Restores {
        Restores(self.restores.subscribe())
    }

    /// Compares the version of an object that the API server has read from or written to its store now, not one from a watch.
    pub fn observe(&mut self, metadata: &ObjectMeta) {
        let version = metadata.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
        let Some(version) = version else { return };
        if version < self.last {
            tracing::warn!(
                version,
                last = self.last,
                "the API server has older data, as after the restoration of a backup; everything is listed again"
            );
            self.restores.send_modify(|count| *count += 1);
        }
        self.last = version;
    }
}

/// The restorations that a [`RestoreDetector`] finds.
#[derive(Clone, Debug)]
pub struct Restores(watch::Receiver<u64>);

impl Restores {
    /// Returns at the next restoration; never, once the detector is gone.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn older_version_is_a_restoration_once() {
        let mut detector = RestoreDetector::default();
        let mut restores = detector.restores();
        let mut observed = |version: &str| {
            let resource_version = Some(version.to_owned());
            detector.observe(&ObjectMeta { resource_version, ..ObjectMeta::default() });
            restores.next().now_or_never().is_some()
        };
        let versions = ["9", "9", "10", "7", "8", "not a number", "7"];
        assert_eq!(versions.map(&mut observed), [false, false, false, true, false, false, true]);
    }

    #[test]
    fn no_restoration_comes_from_a_detector_that_is_gone() {
        let mut restores = RestoreDetector::default().restores();
        assert!(restores.next().now_or_never().is_none());
    }
}
