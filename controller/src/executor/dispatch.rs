//! The executor: carries out actions through [`KubeApi`] and [`CloudProvider`].
//!
//! An action may be dropped at any await. Its effects up to then are in the API server, or are repeated without
//! harm: a launch by its token, a write by its resourceVersion.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{EC2NodeClass, NodeClaim, condition::SPEC_VALID};
use croft_cloud::{CallCount, ClassFindings, CloudError, CloudProvider, FaultClass};
use croft_policy::policies::parameters;
use croft_runtime::clock::Clock;
use croft_scheduler::consolidation::{Ask, consolidate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    action::{Action, ConsolidationSearch, Key, Resolution, UserEvent},
    events,
    kube_api::{ApiError, Call, KubeApi, Target, Verb},
    merge_patch,
    nodeclass::findings,
    provisioning::panic_isolation,
    record_store::RecordStore,
    result::{ActionReport, ActionResult, Backoff},
    solver::catch,
    time::Now,
};

/// Between two requests for the progress of a termination.
const CONFIRM_EVERY: Duration = Duration::from_secs(3);
/// First backoff after a write conflict.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// Between two tries to evict a pod that a PodDisruptionBudget protects.
const PDB_BACKOFF: Duration = Duration::from_secs(5);
/// A search for a cheaper cluster that takes longer returns what it has found so far.
const SEARCH_LIMIT: Duration = Duration::from_secs(20);
/// Between two probes of the parameters of the admission policies.
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// Between two writes of an instance's tags: the next list shows the result of the first.
const RETAG_AFTER: Duration = Duration::from_secs(60);
/// Between two searches for an instance whose launch has an unknown outcome.
pub(super) const FIND_INSTANCE_EVERY: Duration = Duration::from_secs(5);

/// Carries out actions.
#[derive(Clone)]
pub struct Executor {
    pub(super) api: Arc<dyn KubeApi>,
    pub(super) cloud: Arc<dyn CloudProvider>,
    pub(super) clock: Arc<dyn Clock>,
    started: std::time::Instant,
    /// The process's name, as reporting instance of events.
    identity: Arc<str>,
    pub(super) record: Option<Arc<dyn RecordStore>>,
}

impl Executor {
    /// Carries out actions through `api` and `cloud`; `started` is zero on the monotonic clock.
    #[must_use]
    pub fn new(
        api: Arc<dyn KubeApi>,
        cloud: Arc<dyn CloudProvider>,
        clock: Arc<dyn Clock>,
        started: std::time::Instant,
        identity: &str,
    ) -> Self {
        Self { api, cloud, clock, started, identity: identity.into(), record: None }
    }

    /// The same executor, which keeps the decision log in `store`.
    #[must_use]
    pub fn recording_in(self, store: Arc<dyn RecordStore>) -> Self {
        Self { record: Some(store), ..self }
    }

    /// The name of the process in the decision log, if it keeps one.
    #[must_use]
    pub fn records_as(&self) -> Option<&str> {
        self.record.as_ref().map(|_| &*self.identity)
    }

    /// The answered calls to the cloud since the start.
    #[must_use]
    pub fn cloud_calls(&self) -> Vec<CallCount> {
        self.cloud.calls()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { wall: self.clock.wall(), mono: self.clock.monotonic().saturating_duration_since(self.started) }
    }

    /// Every claim, read from the API server.
    ///
    /// # Errors
    /// If the API server doesn't answer.
    pub async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        self.api.list_claims().await
    }

    /// Carries out `action`.
    pub async fn run(&self, action: Action) -> ActionReport {
        let keys = action.keys();
        match action {
            Action::CreateClaims(new) => self.create_claims(keys, new).await,
            Action::Launch(launch) => self.launch(keys, *launch).await,
            Action::Register(registration) => self.register(keys, *registration).await,
            Action::Write { key, call, requeue_after, .. } => self.write(key, call, requeue_after).await,
            Action::VerifyNoPods(check) => self.verify_no_pods(keys, check).await,
            Action::VerifyNoNode(claim) => self.verify_no_node(keys, &claim).await,
            Action::DescribeInstances(ids) => self.describe(keys, ids).await,
            Action::Tag { id, tags } => self.tag(keys, &id, &tags).await,
            Action::Terminate { ids } => self.terminate(keys, ids).await,
            Action::FindInstance(claim) => self.find_instance(keys, &claim).await,
            Action::ListInstances => {
                let asked = self.now();
                match self.cloud.list().await {
                    Ok(instances) => ActionReport {
                        results: vec![ActionResult::Instances(asked, instances)],
                        ..ActionReport::done(keys)
                    },
                    Err(error) => cloud_failure(keys, &error),
                }
            }
            Action::Resolve(resolution) => self.resolve(keys, &resolution).await,
            Action::ListOfferings(class) => {
                let name = class.metadata.name.clone().unwrap_or_default();
                match self.cloud.instance_types(&class).await {
                    Ok(types) => ActionReport {
                        results: vec![
                            ActionResult::UnavailableOfferings(self.cloud.shortages()),
                            ActionResult::Offerings(name, Ok(types)),
                        ],
                        ..ActionReport::done(keys)
                    },
                    Err(error) => ActionReport {
                        results: vec![ActionResult::Offerings(name, Err(error.to_string()))],
                        ..cloud_failure(keys, &error)
                    },
                }
            }
            Action::Sweep(used) => match self.cloud.sweep(&used).await {
                Ok(removed) => {
                    if removed > 0 {
                        tracing::info!(removed, "removed unused launch templates and instance profiles");
                    }
                    ActionReport::done(keys)
                }
                Err(error) => cloud_failure(keys, &error),
            },
            Action::Consolidate(search) => self.consolidate(keys, search).await,
            Action::ReceiveInterruptions => match self.cloud.interruptions().await {
                Ok(messages) => ActionReport {
                    results: vec![ActionResult::Interruptions(messages)],
                    ..ActionReport::done(keys)
                },
                Err(error) => cloud_failure(keys, &error),
            },
            Action::AcknowledgeInterruptions(messages) => match self.cloud.acknowledge(&messages).await {
                Ok(()) => ActionReport {
                    results: vec![ActionResult::Acknowledged(messages)],
                    ..ActionReport::done(keys)
                },
                Err(error) => cloud_failure(keys, &error),
            },
            Action::ObserveCapacity(nodes) => {
                let changed = nodes.iter().filter(|node| self.cloud.observe_capacity(node)).count();
                let changed = (changed > 0).then_some(ActionResult::OfferingsChanged);
                ActionReport { results: changed.into_iter().collect(), ..ActionReport::done(keys) }
            }
            Action::ProbeParameters { revision, call } => self.probe_parameters(keys, revision, call).await,
            Action::ReadRecord => self.read_record(keys).await,
            Action::WriteRecord(writes) => self.write_record(keys, writes).await,
            Action::RecordEvent(event) => self.record_event(keys, &event).await,
        }
    }

    async fn record_event(&self, keys: Vec<Key>, event: &UserEvent) -> ActionReport {
        let call = events::event_call(event, self.clock.wall(), &self.identity);
        if let Err(error) = self.api.call(call).await {
            tracing::debug!(%error, reason = %event.reason, "failed to write an event");
        }
        ActionReport::done(keys)
    }

    async fn consolidate(&self, keys: Vec<Key>, search: Box<ConsolidationSearch>) -> ActionReport {
        let clock = Arc::clone(&self.clock);
        let started = clock.monotonic();
        let task = tokio::task::spawn_blocking(move || {
            let late = || clock.monotonic().saturating_duration_since(started) > SEARCH_LIMIT;
            let pools: BTreeSet<String> = search.ask.constraints.keys().cloned().collect();
            let (found, panicked) = panic_isolation::search(&pools, |pools| {
                // The search works on its own copy.
                let ask = ask_about(&search.ask, pools);
                catch(|| consolidate(&search.cluster, &ask, &late))
            });
            (found, pools, panicked)
        });
        match task.await {
            Ok((found, pools, panicked)) => ActionReport {
                results: vec![
                    ActionResult::Consolidation(Box::new(found)),
                    ActionResult::PoolsSearched(pools, panicked),
                ],
                ..ActionReport::done(keys)
            },
            Err(error) => {
                tracing::error!(%error, "failed to search for a cheaper cluster, retried later");
                ActionReport { backoff: Backoff::Exponential, ..ActionReport::done(keys) }
            }
        }
    }

    async fn write(&self, key: Key, call: Call, requeue_after: Duration) -> ActionReport {
        let target = call.target.clone();
        let uid = call.uid().map(str::to_owned);
        let verb = call.verb.clone();
        let keys = vec![key];
        match self.api.call(call).await {
            Ok(answer) => {
                let backoff =
                    if requeue_after.is_zero() { Backoff::None } else { Backoff::After(requeue_after) };
                let evicted = match (&target, &verb) {
                    (Target::Pod(namespace, name), Verb::Evict { .. }) => {
                        Some(ActionResult::Evicted(croft_scheduler::PodKey::new(namespace, name)))
                    }
                    _ => None,
                };
                let results = evicted.into_iter().collect();
                ActionReport { responses: vec![answer], results, backoff, ..ActionReport::done(keys) }
            }
            // The object is gone, as intended.
            Err(ApiError::NotFound { .. }) if matches!(verb, Verb::Delete { .. } | Verb::Evict { .. }) => {
                let results = uid.map(|uid| ActionResult::NotFound(target, uid)).into_iter().collect();
                ActionReport { results, backoff: Backoff::After(PDB_BACKOFF), ..ActionReport::done(keys) }
            }
            // It may be another's, so it isn't touched.
            Err(ApiError::AlreadyExists { target: Target::TenantObject(key), .. }) => {
                let results = vec![ActionResult::NameTaken(key)];
                ActionReport { results, backoff: Backoff::Exponential, ..ActionReport::done(keys) }
            }
            // An empty patch returns the existing object.
            Err(ApiError::AlreadyExists { target, .. }) => {
                let shown = self.api.call(Call { target, verb: Verb::Patch(json!({})) }).await;
                let responses = shown.into_iter().collect();
                ActionReport { responses, backoff: Backoff::Exponential, ..ActionReport::done(keys) }
            }
            Err(ApiError::TooMany { message, .. }) => {
                let mut results = Vec::new();
                if let (Target::Pod(namespace, name), Verb::Evict { .. }) = (&target, &verb) {
                    let pod = croft_scheduler::PodKey::new(namespace, name);
                    results.push(ActionResult::EvictionBlocked(pod, message));
                }
                ActionReport { results, backoff: Backoff::Failed(PDB_BACKOFF), ..ActionReport::done(keys) }
            }
            Err(error) => self.write_failure(keys, &error, uid.as_deref()).await,
        }
    }

    /// Handles a failed write. After a conflict, or without an answer, an empty patch returns the current object: the next
    /// decision needs it, and the watch may lag.
    pub(super) async fn write_failure(
        &self,
        keys: Vec<Key>,
        error: &ApiError,
        uid: Option<&str>,
    ) -> ActionReport {
        let mut report = api_failure(keys, error, uid);
        match error {
            // Of the other kinds the controller may patch only the status, or admission changes what is patched.
            ApiError::Conflict { target, .. } | ApiError::Unknown { target, .. }
                if matches!(target, Target::Claim(_) | Target::Pool(_) | Target::Node(_)) =>
            {
                let shown = Call { target: target.clone(), verb: Verb::Patch(json!({})) };
                if let Ok(fresh) = self.api.call(shown).await {
                    report.responses.push(fresh);
                    if matches!(error, ApiError::Conflict { .. }) {
                        report.backoff = Backoff::ExponentialFrom(AFTER_CONFLICT);
                    }
                }
            }
            // The watch shows the version that is there soon enough.
            ApiError::Conflict { target: Target::TenantObject(_), .. } => {
                report.backoff = Backoff::ExponentialFrom(AFTER_CONFLICT);
            }
            ApiError::Refused { target: Target::TenantObject(key), message, .. } => {
                report.results.push(ActionResult::ObjectRefused(key.clone(), message.clone()));
            }
            _ => {}
        }
        report
    }

    /// The policies refuse the dry run with the revision that they read. Another API server may lag behind the one that
    /// answers.
    async fn probe_parameters(&self, keys: Vec<Key>, revision: String, call: Call) -> ActionReport {
        let refused = format!("{}{revision}", parameters::IN_FORCE);
        let mut mutated_by = None;
        let (in_force, backoff) = match self.api.call(call).await {
            Ok(_) => (false, Backoff::After(PROBE_EVERY)),
            Err(error) if error.message().contains(&refused) => {
                mutated_by = parameters::mutated_by(error.message());
                (true, Backoff::None)
            }
            Err(error) => {
                tracing::warn!(revision, %error, "failed to probe the parameters of the admission policies, and will retry");
                (false, Backoff::Exponential)
            }
        };
        let results = vec![ActionResult::ParametersProbed { revision, in_force, mutated_by }];
        ActionReport { results, backoff, ..ActionReport::done(keys) }
    }

    async fn describe(&self, keys: Vec<Key>, ids: Vec<String>) -> ActionReport {
        let asked = self.now().mono;
        match self.cloud.describe(&ids).await {
            Ok(found) => ActionReport {
                results: vec![ActionResult::InstancesDescribed(asked, ids, found)],
                ..ActionReport::done(keys)
            },
            Err(error) => cloud_failure(keys, &error),
        }
    }

    async fn tag(&self, keys: Vec<Key>, id: &str, tags: &BTreeMap<String, String>) -> ActionReport {
        match self.cloud.tag(id, tags).await {
            Ok(()) => ActionReport { backoff: Backoff::After(RETAG_AFTER), ..ActionReport::done(keys) },
            Err(error) => cloud_failure(keys, &error),
        }
    }

    async fn terminate(&self, keys: Vec<Key>, ids: Vec<String>) -> ActionReport {
        match self.cloud.terminate(&ids).await {
            Ok(terminated) => ActionReport {
                results: vec![ActionResult::Terminated(terminated)],
                backoff: Backoff::After(CONFIRM_EVERY),
                ..ActionReport::done(keys)
            },
            Err(error) => cloud_failure(keys, &error),
        }
    }

    async fn resolve(&self, keys: Vec<Key>, resolution: &Resolution) -> ActionReport {
        let Resolution { class, confirmed } = resolution;
        let name = class.metadata.name.clone().unwrap_or_default();
        let findings = self.cloud.resolve(class).await;
        let call = class_status_call(class, &findings, *confirmed, self.clock.wall());
        let results = vec![ActionResult::Findings(name, Box::new(findings))];
        let Some(call) = call else { return ActionReport { results, ..ActionReport::done(keys) } };
        match self.api.call(call).await {
            Ok(answer) => ActionReport { responses: vec![answer], results, ..ActionReport::done(keys) },
            Err(error) => {
                let mut failure = api_failure(keys, &error, class.metadata.uid.as_deref());
                failure.results.extend(results);
                failure
            }
        }
    }
}

/// The part of a question that concerns `pools`.
fn ask_about(ask: &Ask, pools: &BTreeSet<String>) -> Ask {
    let mut part = ask.clone();
    part.candidates.retain(|candidate| pools.contains(&candidate.pool));
    part.constraints.retain(|pool, _| pools.contains(pool));
    part
}

fn class_status_call(
    class: &EC2NodeClass,
    findings: &ClassFindings,
    confirmed: bool,
    now: jiff::Timestamp,
) -> Option<Call> {
    let old = class.status.clone().unwrap_or_default();
    let mut new = findings::believed(class, findings, confirmed);
    // A reservation or another thing that the class no longer names has no condition.
    new.conditions.retain(|c| c.type_ == SPEC_VALID || findings.conditions.iter().any(|s| s.kind == c.type_));
    for statement in &findings.conditions {
        croft_api::condition::set(
            &mut new.conditions,
            statement.clone(),
            class.metadata.generation,
            Time(now),
        );
    }
    let patch = merge_patch::diff_of(&old, &new)?;
    Some(Call {
        target: Target::Class(class.metadata.name.clone()?),
        verb: Verb::PatchStatus(json!({"metadata": {"uid": class.metadata.uid}, "status": patch})),
    })
}

/// The report of a failed call to the API server. If the object doesn't exist, it counts as deleted, whatever the
/// watch has shown: `uid` is the uid of the object that the call was for.
pub(super) fn api_failure(keys: Vec<Key>, error: &ApiError, uid: Option<&str>) -> ActionReport {
    match error {
        ApiError::Conflict { .. } | ApiError::NotFound { .. } => {
            tracing::debug!(%error, "the object has changed; deciding again")
        }
        _ => tracing::warn!(%error, "failed, and will be retried"),
    }
    let mut results = Vec::new();
    match (error, uid) {
        (ApiError::NotFound { target, .. }, Some(uid)) => {
            results.push(ActionResult::NotFound(target.clone(), uid.to_owned()));
        }
        // Without a status the call never reached the API server.
        (ApiError::Refused { target: Target::Node(node), code, message, .. }, _) if *code != 0 => {
            results.push(ActionResult::NodeRefused(node.clone(), message.clone()));
        }
        _ => {}
    }
    ActionReport { results, backoff: Backoff::Exponential, ..ActionReport::done(keys) }
}

pub(super) fn cloud_failure(keys: Vec<Key>, error: &CloudError) -> ActionReport {
    match error.class() {
        FaultClass::Throttled => tracing::debug!(%error, "failed, and will be retried"),
        _ => tracing::warn!(%error, "failed, and will be retried"),
    }
    ActionReport { backoff: Backoff::Exponential, ..ActionReport::done(keys) }
}

#[cfg(test)]
mod tests {
    use croft_api::condition::{READY, Statement};

    use super::*;

    #[test]
    fn condition_that_a_look_up_no_longer_has_is_removed() {
        let condition = |kind: &str, status: &str| {
            json!({"type": kind, "status": status, "reason": "R", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-01T00:00:00Z"})
        };
        let conditions = [
            condition(READY, "True"),
            condition("CapacityReservationsReady", "False"),
            condition(SPEC_VALID, "False"),
        ];
        let class: EC2NodeClass = serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c", "generation": 1},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
                "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]},
            "status": {"conditions": conditions},
        }))
        .unwrap();
        let ready = Statement { kind: READY, status: Some(true), reason: "R", message: String::new() };
        let findings = ClassFindings { conditions: vec![ready], ..ClassFindings::default() };
        let call = class_status_call(&class, &findings, false, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let Verb::PatchStatus(patch) = call.verb else { panic!("{:?}", call.verb) };
        let kinds = patch["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone());
        assert_eq!(kinds.collect::<Vec<_>>(), [READY, SPEC_VALID]);
    }
}
