//! The last check before an instance is terminated: its Node and its pods, read from the API server.

use std::time::Duration;

use croft_api::NodeClaim;
use serde_json::json;

use super::dispatch::{Executor, api_failure};
use crate::{
    action::{Key, PodCheck},
    kube_api::{ApiError, Call, Response, Target, Verb},
    result::{ActionReport, ActionResult, Backoff},
    state::{NodeView, PodView},
};

/// Between two checks of an instance that still had pods.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

impl Executor {
    pub(super) async fn verify_no_pods(&self, keys: Vec<Key>, check: PodCheck) -> ActionReport {
        let at = self.now().mono;
        let no_pods = || vec![ActionResult::NoPodsFound(check.subject.clone(), at)];
        let backoff = Backoff::After(CHECK_AGAIN);
        let node = match self.read_node(&check.node).await {
            Ok(Some(node)) => Some(node),
            // Pods of a Node that was deleted by force still exist.
            Ok(None) => None,
            Err(error) => return api_failure(keys, &error, None),
        };
        if let Some(node) = &node {
            let view = NodeView::read(node);
            if view.provider_id.as_deref() != Some(&check.provider_id) {
                // By now another instance has the address, and so the node's name.
                return ActionReport { results: no_pods(), ..ActionReport::done(keys) };
            }
            if !view.is_cordoned_by_croft() {
                return ActionReport {
                    responses: vec![Response::Node(node.clone())],
                    backoff,
                    ..ActionReport::done(keys)
                };
            }
        }
        let pods = match self.api.list_pods_on(&check.node).await {
            Ok(pods) => pods,
            Err(error) => return api_failure(keys, &error, None),
        };
        let must_leave = |view: &PodView| view.must_leave() && !check.ended.contains(&view.uid);
        let found = pods.iter().map(PodView::read).filter(must_leave).count();
        // Pods that need not leave are returned, too: an instance with such pods isn't empty.
        let shown = pods.into_iter().filter(|pod| PodView::read(pod).counts_as_work());
        let mut responses: Vec<Response> = shown.map(|pod| Response::Pod(Box::new(pod))).collect();
        if found == 0 {
            return ActionReport { responses, results: no_pods(), ..ActionReport::done(keys) };
        }
        tracing::info!(node = check.node, pods = found, "pods that no watch has shown yet are evicted first");
        responses.extend(node.map(Response::Node));
        ActionReport { responses, backoff, ..ActionReport::done(keys) }
    }

    pub(super) async fn verify_no_node(&self, keys: Vec<Key>, claim: &NodeClaim) -> ActionReport {
        let at = self.now().mono;
        let name = claim.status.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
        match self.read_node(name).await {
            Ok(Some(node)) => {
                ActionReport { responses: vec![Response::Node(node)], ..ActionReport::done(keys) }
            }
            Ok(None) => {
                let claim = claim.metadata.name.clone().unwrap_or_default();
                ActionReport { results: vec![ActionResult::NoNode(claim, at)], ..ActionReport::done(keys) }
            }
            Err(error) => api_failure(keys, &error, None),
        }
    }

    /// The Node, read from the API server: an empty patch returns it.
    async fn read_node(&self, name: &str) -> Result<Option<Box<k8s_openapi::api::core::v1::Node>>, ApiError> {
        let nothing = Call { target: Target::Node(name.to_owned()), verb: Verb::Patch(json!({})) };
        match self.api.call(nothing).await {
            Ok(Response::Node(node)) => Ok(Some(node)),
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
