//! The last look before a machine goes: at its node and its pods, as the API server has them now.

use std::time::Duration;

use croft_api::NodeClaim;
use serde_json::json;

use super::{Executor, api_trouble};
use crate::{
    action::{Key, News, Report, Rest},
    decide::termination::holds_machine,
    names,
    seam::{Answer, ApiError, Call, Target, Verb},
    snapshot::{NodeView, PodView},
};

/// Between two looks at a machine that something was found on.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Executor {
    pub(super) async fn look_for_pods(&self, keys: Vec<Key>, claim: &NodeClaim) -> Report {
        let asked = self.now().mono;
        let status = claim.status.as_ref();
        let node_name = status.and_then(|s| s.node_name.as_deref()).unwrap_or_default();
        let vacant = || vec![News::Vacant(claim.metadata.name.clone().unwrap_or_default(), asked)];
        let rest = Rest::For(LOOK_AGAIN);
        // Writing nothing shows it.
        let look = Call { target: Target::Node(node_name.to_owned()), verb: Verb::Patch(json!({})) };
        let node = match self.api.call(look).await {
            Ok(Answer::Node(node)) => node,
            Err(ApiError::NotFound { .. }) => return Report { news: vacant(), ..Report::done(keys) },
            Ok(other) => return Report { answers: vec![other], rest, ..Report::done(keys) },
            Err(error) => return api_trouble(keys, &error, None),
        };
        let view = NodeView::of(&node);
        if view.provider_id.as_deref() != status.and_then(|s| s.provider_id.as_deref()) {
            // Another machine has the address, and so the name, by now.
            return Report { news: vacant(), ..Report::done(keys) };
        }
        if !view.unschedulable || !view.has_taint(names::DISRUPTED_TAINT) {
            return Report { answers: vec![Answer::Node(node)], rest, ..Report::done(keys) };
        }
        let pods = match self.api.pods_on(node_name).await {
            Ok(pods) => pods,
            Err(error) => return api_trouble(keys, &error, None),
        };
        let now = self.clock.wall();
        let mut found: Vec<Answer> = pods
            .into_iter()
            .filter(|pod| holds_machine(&PodView::of(pod), now))
            .map(|pod| Answer::Pod(Box::new(pod)))
            .collect();
        if found.is_empty() {
            return Report { news: vacant(), ..Report::done(keys) };
        }
        tracing::info!(node = node_name, pods = found.len(), "pods that no watch has shown yet leave first");
        found.push(Answer::Node(node));
        Report { answers: found, rest, ..Report::done(keys) }
    }
}
