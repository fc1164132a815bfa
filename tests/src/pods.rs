//! A stream of pod creations, and its results.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::task::JoinSet;

/// The results.
#[derive(Debug, Default)]
pub struct Tally {
    /// Correctly admitted pods.
    pub right: usize,
    /// Errors.
    pub wrong: Vec<String>,
}

/// Pods that several clients create continuously by dry run.
pub struct Stream {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: JoinSet<Tally>,
}

impl Stream {
    /// Starts `clients` that create pods in `namespace`; each pod must return with `key`=`value` in its selector.
    #[must_use]
    pub fn start(
        client: &Client,
        clients: usize,
        namespace: &str,
        key: &'static str,
        value: &'static str,
    ) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let (stop, done) = (stop.clone(), done.clone());
            set.spawn(async move {
                let mut tally = Tally::default();
                while !stop.load(Ordering::Relaxed) {
                    match create(&api).await {
                        Ok(pod) if selects(&pod, key, value) => tally.right = tally.right.saturating_add(1),
                        Ok(pod) => tally.wrong.push(format!("admitted with {:?}", pod.spec)),
                        Err(error) => tally.wrong.push(error.to_string()),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                tally
            });
        }
        Self { stop, done, clients: set }
    }

    /// Waits until `more` further creations have been answered.
    pub async fn pass(&self, more: usize) {
        let goal = self.done.load(Ordering::Relaxed).saturating_add(more);
        while self.done.load(Ordering::Relaxed) < goal {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops. Returns the results.
    pub async fn stop(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for tally in self.clients.join_all().await {
            sum.right = sum.right.saturating_add(tally.right);
            sum.wrong.extend(tally.wrong);
        }
        sum
    }
}

/// Creates a pod by dry run.
///
/// # Errors
/// If it is denied, or there is no answer.
pub async fn create(api: &Api<Pod>) -> kube::Result<Pod> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "stream-"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}], "automountServiceAccountToken": false}
    }))
    .map_err(kube::Error::SerdeError)?;
    api.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await
}

/// True if the pod's selector has this label.
#[must_use]
pub fn selects(pod: &Pod, key: &str, value: &str) -> bool {
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    selector.and_then(|selector| selector.get(key)).is_some_and(|found| found == value)
}
