//! Launches exactly one instance per claim, whatever fails in between.
//!
//! Every request is recorded in the claim's status before it is sent, byte by byte, and is sent again as recorded
//! until its outcome is known. So a crash between any two lines repeats a request that the cloud knows by its
//! token, or sends one that it has never seen.

use std::{sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, NodeClaimStatus,
    amount::Amount,
    claim::LaunchAttempt,
    condition::{LAUNCHED, REGISTERED, Statement},
    convert::declared,
    pool::DeclaredResources,
};
use croft_cloud::{InstanceState, LaunchError, LaunchRequest, Launched, Prepared, tags};
use croft_scheduler::InstanceType;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::dispatch::{Executor, FIND_INSTANCE_EVERY, api_failure, cloud_failure};
use crate::{
    action::{Key, Launch},
    definitions::{conditions as reasons, keys},
    kube_api::{ApiError, Response},
    nodeclaim::{
        conditions::{set_with_ready, write_status},
        launch_attempt::{next_attempt, open_request},
    },
    result::{ActionReport, ActionResult, Backoff},
};

/// Attempts without capacity before the pods are planned again, with all pools to choose from.
const ATTEMPTS_AT_ONCE: u32 = 3;
/// Backoff while the class can't launch.
const CLASS_BACKOFF: Duration = Duration::from_secs(10);

impl Executor {
    pub(super) async fn launch(&self, keys: Vec<Key>, launch: Launch) -> ActionReport {
        let Launch { claim, mut request } = launch;
        let mut held = ClaimWrites { claim, responses: Vec::new() };
        let mut stored = open_request(&held.claim);
        for _ in 0..ATTEMPTS_AT_ONCE {
            let prepared = match stored.take() {
                Some(prepared) => prepared,
                None => match self.prepare(&mut held, &request).await {
                    Ok(prepared) => prepared,
                    Err(LaunchFailure::Api(error)) => return held.failure(keys, &error),
                    Err(LaunchFailure::Launch(error)) => return self.retry_or_fail(keys, held, &error).await,
                },
            };
            match self.cloud.launch(&prepared).await {
                Ok(launched) => return self.launched(keys, held, &launched).await,
                Err(LaunchError::NoCapacity { claim, offerings, fault }) => {
                    let error = LaunchError::NoCapacity { claim, offerings, fault };
                    let types = self.cloud.instance_types(&request.class).await;
                    let next = types.ok().and_then(|types| next_attempt(&held.claim, &request, &types));
                    let Some(next) = next else { return self.fail_with(keys, held, &error).await };
                    request = next;
                }
                Err(error @ LaunchError::Unknown { .. }) => {
                    return self.find_or_retry(keys, held, &error).await;
                }
                Err(error) => return self.retry_or_fail(keys, held, &error).await,
            }
        }
        let message = format!("no capacity in {ATTEMPTS_AT_ONCE} attempts; its pods are planned again");
        self.fail(keys, held, reasons::NO_CAPACITY, message).await
    }

    /// Prepares the request and records it in the claim's status.
    async fn prepare(
        &self,
        held: &mut ClaimWrites,
        request: &LaunchRequest,
    ) -> Result<Prepared, LaunchFailure> {
        let prepared = self.cloud.prepare(request).await.map_err(LaunchFailure::Launch)?;
        let mut status = held.claim.status.clone().unwrap_or_default();
        status.attempt = Some(LaunchAttempt {
            number: request.attempt,
            request_hash: prepared.hash.clone(),
            request: Some(prepared.body.clone()),
        });
        let statement = Statement {
            kind: LAUNCHED,
            status: None,
            reason: reasons::LAUNCHING,
            message: format!(
                "attempt {}: one of {} types in {}",
                request.attempt,
                request.instance_types.len(),
                request.zones.join(", "),
            ),
        };
        set_with_ready(&mut status, statement, held.claim.metadata.generation, self.clock.wall());
        self.write_status(held, &status).await.map_err(LaunchFailure::Api)?;
        Ok(prepared)
    }

    async fn launched(&self, keys: Vec<Key>, mut held: ClaimWrites, launched: &Launched) -> ActionReport {
        let mut status = held.claim.status.clone().unwrap_or_default();
        record_instance(&mut status, &held.claim.spec.resources, launched);
        let instance = &launched.instance;
        let statement = Statement {
            kind: LAUNCHED,
            status: Some(true),
            reason: reasons::LAUNCHED,
            message: format!(
                "{} {} in {}, {}",
                instance.instance_type, instance.id, instance.zone, instance.capacity_type
            ),
        };
        let (generation, now) = (held.claim.metadata.generation, self.clock.wall());
        set_with_ready(&mut status, statement, generation, now);
        let waiting = Statement {
            kind: REGISTERED,
            status: Some(false),
            reason: reasons::WAITING,
            message: format!("node {} hasn't registered yet", instance.node_name),
        };
        set_with_ready(&mut status, waiting, generation, now);
        match self.write_status(&mut held, &status).await {
            Ok(()) => {
                let claim = held.claim.metadata.name.clone().unwrap_or_default();
                let mut report = held.report(ActionReport::done(keys));
                report.results.push(ActionResult::Launched(claim));
                report
            }
            // The recorded request stays, so the next launch returns the same instance.
            Err(error) => held.failure(keys, &error),
        }
    }

    /// The outcome is unknown. If the instance isn't visible yet, the same request is sent again.
    async fn find_or_retry(&self, keys: Vec<Key>, held: ClaimWrites, error: &LaunchError) -> ActionReport {
        tracing::warn!(%error, "the outcome of a launch is unknown; searching for the instance");
        let uid = held.claim.metadata.uid.clone().unwrap_or_default();
        match self.cloud.find_by_claim(&uid).await {
            Ok(Some(found)) if found.instance.state.is_alive() => self.launched(keys, held, &found).await,
            Ok(_) => held.report(ActionReport { backoff: Backoff::Exponential, ..ActionReport::done(keys) }),
            Err(error) => held.report(cloud_failure(keys, &error)),
        }
    }

    /// Nothing was launched: retries later if the fault may pass, and fails the launch otherwise.
    async fn retry_or_fail(&self, keys: Vec<Key>, held: ClaimWrites, error: &LaunchError) -> ActionReport {
        let wait = match error {
            LaunchError::Later { after, .. } => *after,
            LaunchError::ClassNotReady { .. } => CLASS_BACKOFF,
            _ => return self.fail_with(keys, held, error).await,
        };
        tracing::debug!(%error, "the launch is retried later");
        held.report(ActionReport { backoff: Backoff::Failed(wait), ..ActionReport::done(keys) })
    }

    async fn fail_with(&self, keys: Vec<Key>, held: ClaimWrites, error: &LaunchError) -> ActionReport {
        self.fail(keys, held, error.reason(), error.to_string()).await
    }

    /// Nothing was launched, for certain: writes that into the status and drops the recorded request, so that the
    /// claim can be released.
    async fn fail(
        &self,
        keys: Vec<Key>,
        mut held: ClaimWrites,
        reason: &'static str,
        message: String,
    ) -> ActionReport {
        let mut status = held.claim.status.clone().unwrap_or_default();
        if let Some(attempt) = &mut status.attempt {
            attempt.request = None;
        }
        let statement = Statement { kind: LAUNCHED, status: Some(false), reason, message: message.clone() };
        set_with_ready(&mut status, statement, held.claim.metadata.generation, self.clock.wall());
        let claim = held.claim.metadata.name.clone().unwrap_or_default();
        match self.write_status(&mut held, &status).await {
            Ok(()) => {
                let mut report = held.report(ActionReport::done(keys));
                report.results.push(ActionResult::LaunchFailed { claim, reason, message });
                report
            }
            Err(error) => held.failure(keys, &error),
        }
    }

    /// Finds the instance of a claim that is being deleted while its launch has an unknown outcome, or of a claim
    /// that adopts an instance.
    pub(super) async fn find_instance(&self, keys: Vec<Key>, claim: &Arc<NodeClaim>) -> ActionReport {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if let Some(id) = claim.metadata.annotations.as_ref().and_then(|a| a.get(keys::ADOPTS)) {
            let name = claim.metadata.name.clone().unwrap_or_default();
            let own = [(tags::CLAIM_UID.to_owned(), uid.clone()), (tags::CLAIM.to_owned(), name)];
            if let Err(error) = self.cloud.tag(id, &own.into()).await {
                return cloud_failure(keys, &error);
            }
        }
        match self.cloud.find_by_claim(&uid).await {
            Ok(Some(found)) if found.instance.state != InstanceState::Terminated => {
                let held = ClaimWrites { claim: Arc::clone(claim), responses: Vec::new() };
                // It was launched by an earlier claim, or isn't wanted any more: no launch of this claim.
                ActionReport { results: Vec::new(), ..self.launched(keys, held, &found).await }
            }
            Ok(_) => {
                let name = claim.metadata.name.clone().unwrap_or_default();
                ActionReport {
                    results: vec![ActionResult::InstanceNotFound(name)],
                    backoff: Backoff::After(FIND_INSTANCE_EVERY),
                    ..ActionReport::done(keys)
                }
            }
            Err(error) => cloud_failure(keys, &error),
        }
    }

    async fn write_status(&self, held: &mut ClaimWrites, status: &NodeClaimStatus) -> Result<(), ApiError> {
        let Some(call) = write_status(&held.claim, status) else { return Ok(()) };
        let answer = self.api.call(call).await?;
        if let Response::Claim(claim) = &answer {
            held.claim = Arc::new((**claim).clone());
        }
        held.responses.push(answer);
        Ok(())
    }
}

/// The claim as last written, and the responses so far.
struct ClaimWrites {
    claim: Arc<NodeClaim>,
    responses: Vec<Response>,
}

impl ClaimWrites {
    fn report(self, mut report: ActionReport) -> ActionReport {
        report.responses.splice(0..0, self.responses);
        report
    }

    fn failure(self, keys: Vec<Key>, error: &ApiError) -> ActionReport {
        let failure = api_failure(keys, error, self.claim.metadata.uid.as_deref());
        self.report(failure)
    }
}

enum LaunchFailure {
    Api(ApiError),
    Launch(LaunchError),
}

fn record_instance(status: &mut NodeClaimStatus, declared: &[DeclaredResources], launched: &Launched) {
    let instance = &launched.instance;
    if let Some(attempt) = &mut status.attempt {
        attempt.request = None;
    }
    let amounts = |resources: &croft_scheduler::Resources| {
        resources.to_quantities().into_iter().map(|(name, q)| (name, Amount(q.to_string()))).collect()
    };
    status.provider_id = Some(instance.provider_id.clone());
    status.node_name = Some(instance.node_name.clone());
    status.instance_type = Some(instance.instance_type.clone());
    status.zone = Some(instance.zone.clone());
    status.capacity_type = Some(instance.capacity_type.as_str().to_owned());
    status.image_id = Some(instance.image_id.clone()).filter(|id| !id.is_empty());
    let launched_at = Some(instance.launched_at).filter(|at| *at > 0);
    status.launch_time = launched_at.and_then(|at| Timestamp::from_second(at).ok()).map(Time);
    status.price_per_hour = launched.price.map(|p| p.to_string());
    status.price_estimated = launched.price_estimated;
    let mut overhead = croft_scheduler::Resources::new();
    for (name, amount) in launched.capacity.iter() {
        overhead.set(name, amount.saturating_sub(launched.allocatable.get(name)));
    }
    let launched_type = InstanceType {
        name: instance.instance_type.clone(),
        capacity: launched.capacity.clone(),
        overhead,
        ..InstanceType::default()
    };
    let kind = declared::instance_type(&launched_type, declared);
    status.capacity = amounts(&kind.capacity);
    status.allocatable = amounts(&kind.allocatable());
    status.labels.clone_from(&launched.labels);
}
