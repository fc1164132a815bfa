//! One machine for one claim, whatever fails between.
//!
//! Every request is recorded in the claim's status before it is sent, to the last byte, and sent again as it
//! was recorded until it is answered. So a crash between any two lines repeats a request that the cloud knows
//! by its token, or sends one that it has never seen.

use std::{sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, NodeClaimStatus,
    amount::Amount,
    claim::LaunchAttempt,
    condition::{LAUNCHED, REGISTERED, Statement},
};
use croft_cloud::{LaunchError, LaunchRequest, Launched, MachineState, Prepared, tags};

use super::{Executor, FIND_EVERY, api_trouble, cloud_trouble};
use crate::{
    action::{Key, Launch, News, Report, Rest},
    decide::conditions,
    names,
    seam::{Answer, ApiError},
};

/// Refusals for want of capacity before the pods are planned anew, with all pools to choose from.
const ATTEMPTS_AT_ONCE: u32 = 3;
/// A class that can't be used is looked at again after this long.
const CLASS_REST: Duration = Duration::from_secs(10);

impl Executor {
    pub(super) async fn launch(&self, keys: Vec<Key>, launch: Launch) -> Report {
        let Launch { claim, mut request } = launch;
        let mut held = Held { claim, answers: Vec::new() };
        let mut stored = recorded(&held.claim);
        for _ in 0..ATTEMPTS_AT_ONCE {
            let prepared = match stored.take() {
                Some(prepared) => prepared,
                None => match self.prepare(&mut held, &request).await {
                    Ok(prepared) => prepared,
                    Err(Stop::Api(error)) => return held.trouble(keys, &error),
                    Err(Stop::Launch(error)) => return self.refused(keys, held, &error).await,
                },
            };
            match self.cloud.launch(&prepared).await {
                Ok(launched) => return self.launched(keys, held, &launched).await,
                Err(LaunchError::NoCapacity { claim, offerings, fault }) => {
                    let error = LaunchError::NoCapacity { claim, offerings, fault };
                    if !self.narrow(&mut request).await {
                        return self.give_up(keys, held, &error).await;
                    }
                    let last =
                        held.claim.status.as_ref().and_then(|s| s.attempt.as_ref()).map_or(0, |a| a.number);
                    request.attempt = last.saturating_add(1);
                }
                Err(error @ LaunchError::Unknown { .. }) => return self.look(keys, held, &error).await,
                Err(error) => return self.refused(keys, held, &error).await,
            }
        }
        let message = format!("no capacity in {ATTEMPTS_AT_ONCE} attempts; its pods are planned anew");
        self.fail(keys, held, "NoCapacity", message).await
    }

    /// Fixes the request and records it.
    async fn prepare(&self, held: &mut Held, request: &LaunchRequest) -> Result<Prepared, Stop> {
        let prepared = self.cloud.prepare(request).await.map_err(Stop::Launch)?;
        let mut status = held.claim.status.clone().unwrap_or_default();
        status.attempt = Some(LaunchAttempt {
            number: request.attempt,
            request_hash: prepared.hash.clone(),
            request: Some(prepared.body.clone()),
        });
        let statement = Statement {
            kind: LAUNCHED,
            status: None,
            reason: "Launching",
            message: format!(
                "attempt {}: one of {} types in {}",
                request.attempt,
                request.instance_types.len(),
                request.zones.join(", "),
            ),
        };
        conditions::say(&mut status, statement, held.claim.metadata.generation, self.clock.wall());
        self.say(held, &status).await.map_err(Stop::Api)?;
        Ok(prepared)
    }

    /// Leaves in `request` what the cloud still offers of it; false if that is nothing.
    async fn narrow(&self, request: &mut LaunchRequest) -> bool {
        let Ok(types) = self.cloud.instance_types(&request.class).await else { return false };
        let open = |name: &str, zone: Option<&str>| {
            types.iter().filter(|t| t.name == name).flat_map(|t| &t.offerings).any(|o| {
                o.available && o.capacity_type == request.capacity_type && zone.is_none_or(|z| o.zone == z)
            })
        };
        let zones: Vec<String> = request
            .zones
            .iter()
            .filter(|zone| request.instance_types.iter().any(|t| open(t, Some(zone))))
            .cloned()
            .collect();
        if zones.is_empty() && !request.zones.is_empty() {
            return false;
        }
        let within = |name: &str| {
            if zones.is_empty() { open(name, None) } else { zones.iter().any(|z| open(name, Some(z))) }
        };
        let kept: Vec<String> = request.instance_types.iter().filter(|t| within(t)).cloned().collect();
        request.zones = zones;
        request.instance_types = kept;
        !request.instance_types.is_empty()
    }

    async fn launched(&self, keys: Vec<Key>, mut held: Held, launched: &Launched) -> Report {
        let mut status = held.claim.status.clone().unwrap_or_default();
        record_machine(&mut status, launched);
        let machine = &launched.machine;
        let statement = Statement {
            kind: LAUNCHED,
            status: Some(true),
            reason: "Launched",
            message: format!(
                "{} {} in {}, {}",
                machine.instance_type, machine.id, machine.zone, machine.capacity_type
            ),
        };
        let (generation, now) = (held.claim.metadata.generation, self.clock.wall());
        conditions::say(&mut status, statement, generation, now);
        let waiting = Statement {
            kind: REGISTERED,
            status: Some(false),
            reason: "Waiting",
            message: format!("node {} hasn't registered yet", machine.node_name),
        };
        conditions::say(&mut status, waiting, generation, now);
        match self.say(&mut held, &status).await {
            Ok(()) => held.report(Report::done(keys)),
            // The stored request stays, so the next launch is answered with the same machine.
            Err(error) => held.trouble(keys, &error),
        }
    }

    /// The answer was lost. The machine may be visible already; if not, the same request is sent again.
    async fn look(&self, keys: Vec<Key>, held: Held, error: &LaunchError) -> Report {
        tracing::warn!(%error, "looking for the machine");
        let uid = held.claim.metadata.uid.clone().unwrap_or_default();
        match self.cloud.find_by_claim(&uid).await {
            Ok(Some(found)) if found.machine.state.is_alive() => self.launched(keys, held, &found).await,
            Ok(_) => held.report(Report { rest: Rest::Grow, ..Report::done(keys) }),
            Err(error) => held.report(cloud_trouble(keys, &error)),
        }
    }

    /// Nothing was launched: it is put off if that may pass by itself, and given up otherwise.
    async fn refused(&self, keys: Vec<Key>, held: Held, error: &LaunchError) -> Report {
        let rest = match error {
            LaunchError::Later { after, .. } => *after,
            LaunchError::ClassNotReady { .. } => CLASS_REST,
            _ => return self.give_up(keys, held, error).await,
        };
        tracing::debug!(%error, "launch put off");
        held.report(Report { rest: Rest::Failed(rest), ..Report::done(keys) })
    }

    async fn give_up(&self, keys: Vec<Key>, held: Held, error: &LaunchError) -> Report {
        self.fail(keys, held, error.reason(), error.to_string()).await
    }

    /// Nothing was launched, for certain: says so, and drops the request, so that the claim can go.
    async fn fail(&self, keys: Vec<Key>, mut held: Held, reason: &'static str, message: String) -> Report {
        let mut status = held.claim.status.clone().unwrap_or_default();
        if let Some(attempt) = &mut status.attempt {
            attempt.request = None;
        }
        let statement = Statement { kind: LAUNCHED, status: Some(false), reason, message: message.clone() };
        conditions::say(&mut status, statement, held.claim.metadata.generation, self.clock.wall());
        let claim = held.claim.metadata.name.clone().unwrap_or_default();
        match self.say(&mut held, &status).await {
            Ok(()) => {
                let mut report = held.report(Report::done(keys));
                report.news.push(News::LaunchFailed { claim, reason, message });
                report
            }
            Err(error) => held.trouble(keys, &error),
        }
    }

    /// The machine of a claim that is to go and whose launch wasn't answered, or of one that adopts it.
    pub(super) async fn find_machine(&self, keys: Vec<Key>, claim: &Arc<NodeClaim>) -> Report {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if let Some(id) = claim.metadata.annotations.as_ref().and_then(|a| a.get(names::ADOPTS)) {
            let name = claim.metadata.name.clone().unwrap_or_default();
            let mine = [(tags::CLAIM_UID.to_owned(), uid.clone()), (tags::CLAIM.to_owned(), name)];
            if let Err(error) = self.cloud.tag(id, &mine.into()).await {
                return cloud_trouble(keys, &error);
            }
        }
        match self.cloud.find_by_claim(&uid).await {
            Ok(Some(found)) if found.machine.state != MachineState::Terminated => {
                let held = Held { claim: Arc::clone(claim), answers: Vec::new() };
                self.launched(keys, held, &found).await
            }
            Ok(_) => {
                let name = claim.metadata.name.clone().unwrap_or_default();
                Report {
                    news: vec![News::NoMachine(name)],
                    rest: Rest::For(FIND_EVERY),
                    ..Report::done(keys)
                }
            }
            Err(error) => cloud_trouble(keys, &error),
        }
    }

    async fn say(&self, held: &mut Held, status: &NodeClaimStatus) -> Result<(), ApiError> {
        let Some(call) = conditions::write_status(&held.claim, status) else { return Ok(()) };
        let answer = self.api.call(call).await?;
        if let Answer::Claim(claim) = &answer {
            held.claim = Arc::new((**claim).clone());
        }
        held.answers.push(answer);
        Ok(())
    }
}

/// The claim as the last write left it, and what was answered on the way.
struct Held {
    claim: Arc<NodeClaim>,
    answers: Vec<Answer>,
}

impl Held {
    fn report(self, mut report: Report) -> Report {
        report.answers.splice(0..0, self.answers);
        report
    }

    fn trouble(self, keys: Vec<Key>, error: &ApiError) -> Report {
        let trouble = api_trouble(keys, error, self.claim.metadata.uid.as_deref());
        self.report(trouble)
    }
}

enum Stop {
    Api(ApiError),
    Launch(LaunchError),
}

/// The request that a claim records as sent and not answered.
pub(crate) fn recorded(claim: &NodeClaim) -> Option<Prepared> {
    let attempt = claim.status.as_ref()?.attempt.as_ref()?;
    Some(Prepared { hash: attempt.request_hash.clone(), body: attempt.request.clone()? })
}

fn record_machine(status: &mut NodeClaimStatus, launched: &Launched) {
    let machine = &launched.machine;
    if let Some(attempt) = &mut status.attempt {
        attempt.request = None;
    }
    let amounts = |resources: &croft_scheduler::Resources| {
        resources.to_quantities().into_iter().map(|(name, q)| (name, Amount(q.to_string()))).collect()
    };
    status.provider_id = Some(machine.provider_id.clone());
    status.node_name = Some(machine.node_name.clone());
    status.instance_type = Some(machine.instance_type.clone());
    status.zone = Some(machine.zone.clone());
    status.capacity_type = Some(machine.capacity_type.as_str().to_owned());
    status.image_id = Some(machine.image_id.clone()).filter(|id| !id.is_empty());
    status.price_per_hour = launched.price.map(|p| p.to_string());
    status.price_estimated = launched.price_estimated;
    status.capacity = amounts(&launched.capacity);
    status.allocatable = amounts(&launched.allocatable);
    status.labels.clone_from(&launched.labels);
}
