//! The last look before an instance goes: at its Node and its pods, as the API server has them now.

use std::time::Duration;

use croft_api::NodeClaim;
use serde_json::json;

use super::{Executor, api_trouble};
use crate::{
    action::{Key, Look, News, Report, Rest},
    names,
    seam::{Answer, ApiError, Call, Target, Verb},
    snapshot::{NodeView, PodView},
};

/// Between two looks at a machine that something was found on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Executor {
    pub(super) async fn look_for_pods(&self, keys: Vec<Key>, look: Look) -> Report {
        let asked = self.now().mono;
        let vacant = || vec![News::Vacant(look.subject.clone(), asked)];
        let rest = Rest::For(LOOK_AGAIN);
        let node = match self.show_node(&look.node).await {
            Ok(Some(node)) => Some(node),
            // Pods of a Node that was taken away by force are there all the same.
            Ok(None) => None,
            Err(error) => return api_trouble(keys, &error, None),
        };
        if let Some(node) = &node {
            let view = NodeView::of(node);
            if view.provider_id.as_deref() != Some(&look.provider_id) {
                // Another machine has the address, and so the name, by now.
                return Report { news: vacant(), ..Report::done(keys) };
            }
            if !view.unschedulable || !view.has_taint(names::DISRUPTED_TAINT) {
                return Report { answers: vec![Answer::Node(node.clone())], rest, ..Report::done(keys) };
            }
        }
        let pods = match self.api.pods_on(&look.node).await {
            Ok(pods) => pods,
            Err(error) => return api_trouble(keys, &error, None),
        };
        let holds = |view: &PodView| view.must_leave() && !look.ended.contains(&view.uid);
        let found = pods.iter().map(PodView::of).filter(holds).count();
        // What keeps nothing is shown, too: an instance with it isn't without work.
        let shown = pods.into_iter().filter(|pod| PodView::of(pod).counts_as_work());
        let mut answers: Vec<Answer> = shown.map(|pod| Answer::Pod(Box::new(pod))).collect();
        if found == 0 {
            return Report { answers, news: vacant(), ..Report::done(keys) };
        }
        tracing::info!(node = look.node, pods = found, "pods that no watch has shown yet leave first");
        answers.extend(node.map(Answer::Node));
        Report { answers, rest, ..Report::done(keys) }
    }

    pub(super) async fn look_for_node(&self, keys: Vec<Key>, claim: &NodeClaim) -> Report {
        let asked = self.now().mono;
        let name = claim.status.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
        match self.show_node(name).await {
            Ok(Some(node)) => Report { answers: vec![Answer::Node(node)], ..Report::done(keys) },
            Ok(None) => {
                let claim = claim.metadata.name.clone().unwrap_or_default();
                Report { news: vec![News::NoNode(claim, asked)], ..Report::done(keys) }
            }
            Err(error) => api_trouble(keys, &error, None),
        }
    }

    /// The Node as the API server has it now: writing nothing shows it.
    async fn show_node(&self, name: &str) -> Result<Option<Box<k8s_openapi::api::core::v1::Node>>, ApiError> {
        let look = Call { target: Target::Node(name.to_owned()), verb: Verb::Patch(json!({})) };
        match self.api.call(look).await {
            Ok(Answer::Node(node)) => Ok(Some(node)),
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
