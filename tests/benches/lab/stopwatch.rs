//! Times at which pods were bound and Running, by a watch.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

/// The label of watched pods.
pub(crate) const LABEL: (&str, &str) = ("bench", "pod");
/// Above every duration here, also on a busy computer.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Number of pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) pods: usize,
    pub(crate) bound: usize,
    pub(crate) running: usize,
}

/// Watches the pods with [`LABEL`].
#[derive(Debug)]
pub(crate) struct Stopwatch {
    counts: watch::Receiver<Count>,
    task: JoinHandle<()>,
}

impl Stopwatch {
    /// Starts the watch.
    pub(crate) fn start(client: Client) -> Self {
        let (sender, counts) = watch::channel(Count::default());
        let task = tokio::spawn(async move {
            let api: Api<Pod> = Api::all(client);
            let config = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
            let mut stream = pin!(watcher::watcher(api, config).default_backoff());
            let mut pods: BTreeMap<(String, String), (bool, bool)> = BTreeMap::new();
            let mut count = Count::default();
            while let Some(event) = stream.next().await {
                let (key, now) = match event {
                    Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                        let key = (pod.namespace().unwrap_or_default(), pod.name_any());
                        (key, Some(state(&pod)))
                    }
                    Ok(watcher::Event::Delete(pod)) => {
                        ((pod.namespace().unwrap_or_default(), pod.name_any()), None)
                    }
                    Ok(watcher::Event::Init) => {
                        pods.clear();
                        count = Count::default();
                        continue;
                    }
                    Ok(watcher::Event::InitDone) | Err(_) => continue,
                };
                let before = match now {
                    Some(now) => pods.insert(key, now),
                    None => pods.remove(&key),
                };
                for (state, add) in [(before, false), (now, true)] {
                    let Some((bound, running)) = state else { continue };
                    for (field, one) in
                        [(&mut count.pods, true), (&mut count.bound, bound), (&mut count.running, running)]
                    {
                        if one {
                            *field = if add { *field + 1 } else { *field - 1 };
                        }
                    }
                }
                let _ = sender.send(count);
            }
        });
        Self { counts, task }
    }

    /// Waits until `is` returns true.
    ///
    /// # Errors
    /// After half an hour.
    pub(crate) async fn until(&mut self, is: impl Fn(Count) -> bool) -> anyhow::Result<Instant> {
        self.until_within(PATIENCE, is).await
    }

    /// Waits until `is` returns true.
    ///
    /// # Errors
    /// After `limit`.
    pub(crate) async fn until_within(
        &mut self,
        limit: Duration,
        is: impl Fn(Count) -> bool,
    ) -> anyhow::Result<Instant> {
        let waited = tokio::time::timeout(limit, self.counts.wait_for(|count| is(*count))).await;
        match waited.map(|count| count.map(drop)) {
            Ok(count) => count.context("the watch of pods ended")?,
            Err(_) => {
                anyhow::bail!(
                    "pods came no further in {} s than {:?}",
                    limit.as_secs(),
                    *self.counts.borrow()
                )
            }
        }
        Ok(Instant::now())
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn state(pod: &Pod) -> (bool, bool) {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    (bound, running && pod.metadata.deletion_timestamp.is_none())
}
