//! A node taken in: its pods are told first, then it gets its labels and opens.

use futures::{StreamExt, stream};
use serde_json::json;

use croft_api::condition::{REGISTERED, Statement};

use super::Executor;
use crate::{
    action::{Key, Registration, Report},
    decide::{conditions, lifecycle},
    seam::{Answer, Call, Target, Verb},
    snapshot::NodeView,
};

const AT_ONCE: usize = 16;

impl Executor {
    pub(super) async fn register(&self, keys: Vec<Key>, registration: Registration) -> Report {
        let Registration { claim, node, patch, pods } = registration;
        let mut report = Report::done(keys);
        let told: Vec<_> = stream::iter(pods)
            .map(|(pod, uid)| {
                let call = Call {
                    target: Target::Pod(pod.namespace.to_string(), pod.name.to_string()),
                    verb: Verb::PatchStatus(
                        json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}}),
                    ),
                };
                self.api.call(call)
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        for answer in told {
            match answer {
                Ok(pod) => report.answers.push(pod),
                // The nomination is a hint: without it the pod is scheduled like any other.
                Err(error) => tracing::debug!(%error, node, "pod not told of its node"),
            }
        }
        let open = Call { target: Target::Node(node.clone()), verb: Verb::JsonPatch(patch) };
        let node_uid = open.uid().map(str::to_owned);
        let waits_for = match self.api.call(open).await {
            Ok(answer) => {
                // Most machines are ready before they are taken in: one write says both then.
                let node = match &answer {
                    Answer::Node(node) => NodeView::of(node),
                    _ => NodeView::default(),
                };
                let waits_for = lifecycle::uninitialized(&claim, &node);
                report.answers.push(answer);
                waits_for
            }
            Err(error) => {
                let trouble = self.write_trouble(report.keys, &error, node_uid.as_deref()).await;
                report.answers.extend(trouble.answers);
                return Report { answers: report.answers, ..trouble };
            }
        };
        let mut status = claim.status.clone().unwrap_or_default();
        let (generation, now) = (claim.metadata.generation, self.clock.wall());
        let registered = Statement {
            kind: REGISTERED,
            status: Some(true),
            reason: "Registered",
            message: format!("node {node} carries the pool's labels"),
        };
        for statement in [registered, lifecycle::initialized(&node, waits_for)] {
            conditions::say(&mut status, statement, generation, now);
        }
        if let Some(call) = conditions::write_status(&claim, &status) {
            match self.api.call(call).await {
                Ok(answer) => report.answers.push(answer),
                Err(error) => {
                    let uid = claim.metadata.uid.as_deref();
                    let trouble = self.write_trouble(report.keys, &error, uid).await;
                    report.answers.extend(trouble.answers);
                    return Report { answers: report.answers, ..trouble };
                }
            }
        }
        report
    }
}
