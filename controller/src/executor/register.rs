//! Registers a node: nominates its pods first, then labels it and removes its unregistered taint.

use futures::{StreamExt, stream};
use serde_json::json;

use croft_api::condition::{REGISTERED, Statement};

use super::dispatch::Executor;
use crate::{
    action::{Key, Registration},
    definitions::conditions as reasons,
    kube_api::{Call, Response, Target, Verb},
    nodeclaim::{
        conditions::{set_with_ready, write_status},
        lifecycle,
    },
    result::ActionReport,
    state::NodeView,
};

const CONCURRENT: usize = 16;

impl Executor {
    pub(super) async fn register(&self, keys: Vec<Key>, registration: Registration) -> ActionReport {
        let Registration { claim, node, patch, pods } = registration;
        let mut report = ActionReport::done(keys);
        let nominated: Vec<_> = stream::iter(pods)
            .map(|(pod, uid)| {
                let call = Call {
                    target: Target::Pod(pod.namespace.to_string(), pod.name.to_string()),
                    verb: Verb::PatchStatus(
                        json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}),
                    ),
                };
                self.api.call(call)
            })
            .buffered(CONCURRENT)
            .collect()
            .await;
        for answer in nominated {
            match answer {
                Ok(pod) => report.responses.push(pod),
                // The nomination is a hint: without it the pod is scheduled like any other.
                Err(error) => tracing::debug!(%error, node, "failed to nominate a pod"),
            }
        }
        let open = Call { target: Target::Node(node.clone()), verb: Verb::JsonPatch(patch) };
        let node_uid = open.uid().map(str::to_owned);
        let missing = match self.api.call(open).await {
            Ok(answer) => {
                // Most nodes are ready before they are registered, so one write covers both conditions.
                let node = match &answer {
                    Response::Node(node) => NodeView::read(node),
                    _ => NodeView::default(),
                };
                let missing = lifecycle::initialization_blocker(&claim, &node, |_| true);
                report.responses.push(answer);
                missing
            }
            Err(error) => {
                let failure = self.write_failure(report.keys, &error, node_uid.as_deref()).await;
                report.responses.extend(failure.responses);
                return ActionReport { responses: report.responses, ..failure };
            }
        };
        let mut status = claim.status.clone().unwrap_or_default();
        let (generation, now) = (claim.metadata.generation, self.clock.wall());
        let registered = Statement {
            kind: REGISTERED,
            status: Some(true),
            reason: reasons::REGISTERED,
            message: format!("node {node} carries the pool's labels"),
        };
        for statement in [registered, lifecycle::initialized_statement(&node, missing)] {
            set_with_ready(&mut status, statement, generation, now);
        }
        if let Some(call) = write_status(&claim, &status) {
            match self.api.call(call).await {
                Ok(answer) => report.responses.push(answer),
                Err(error) => {
                    let uid = claim.metadata.uid.as_deref();
                    let failure = self.write_failure(report.keys, &error, uid).await;
                    report.responses.extend(failure.responses);
                    return ActionReport { responses: report.responses, ..failure };
                }
            }
        }
        report
    }
}
