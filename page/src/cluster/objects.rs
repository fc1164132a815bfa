//! Objects of the API server, and the requests of its pods.

use std::collections::BTreeMap;

use croft_inspect::NodeUse;
use croft_manifest::{Input, Objects, Origin};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt as _};

/// Objects of the API server, and the requests of its pods.
#[derive(Default)]
pub struct Cluster {
    /// The trimmed objects.
    pub input: Input,
    /// Used CPU and memory by node; empty without the metrics API.
    pub usage: BTreeMap<String, NodeUse>,
    /// The same pods, for their requests.
    requests: croft_scheduler::Cluster,
}

impl Cluster {
    /// The cluster of an input.
    #[must_use]
    pub fn new(mut input: Input) -> Self {
        let pods = std::mem::take(&mut input.pods);
        let mut cluster = Self { input, ..Self::default() };
        pods.iter().for_each(|pod| cluster.put_pod(pod.object.clone()));
        cluster
    }

    /// Inserts or replaces a pod.
    pub fn put_pod(&mut self, pod: Pod) {
        if let Err(error) = self.requests.upsert_pod(&pod) {
            tracing::debug!(pod = pod.name_any(), field = error.field, "the requests of a pod can't be read");
        }
        put(&mut self.input.pods, pod);
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.requests.remove_pod(namespace, name);
        self.input.pods.remove(namespace, name);
    }

    /// Requests of a pod, in thousandths of a CPU and bytes of memory. None for a pod that is finished.
    #[must_use]
    pub fn requests(&self, namespace: &str, name: &str) -> Option<(i64, i64)> {
        self.requests.requests(&croft_scheduler::PodKey::new(namespace, name))
    }
}

/// Inserts or replaces an object.
pub fn put<K: Resource>(objects: &mut Objects<K>, object: K) {
    objects.put(object, Origin { file: "cluster".into(), line: 0 });
}
