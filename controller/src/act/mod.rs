//! The only place with effects: carries out actions through [`KubeApi`] and [`CloudProvider`].
//!
//! An action may be dropped at any await: whatever it had done by then is either in the API server, or is
//! repeated without harm (a launch by its token, a write by the version it was decided on).

mod create;
pub(crate) mod launch;
mod look;
mod register;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{EC2NodeClass, NodeClaim};
use croft_cloud::{ClassFindings, CloudError, CloudProvider, FaultClass};
use croft_runtime::clock::Clock;
use croft_scheduler::consolidation::{Ask, consolidate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    action::{Action, Key, News, Report, Resolution, Rest, Search},
    decide::{apart, findings},
    events, merge,
    seam::{ApiError, Call, KubeApi, Target, Verb},
    solver::catch,
    time::Now,
};

/// Between two questions how far a termination is.
const CONFIRM_EVERY: Duration = Duration::from_secs(3);
/// What was written between a decision and its patch is decided anew after this long, at first.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// Between two tries to evict a pod that a disruption budget holds.
const BUDGET_REST: Duration = Duration::from_secs(5);
/// A search for a cheaper cluster that takes longer answers with what it has.
const SEARCH_LIMIT: Duration = Duration::from_secs(20);
/// Between two writes of an instance's tags: the next list shows what came of the first.
const TAG_AGAIN: Duration = Duration::from_secs(60);
/// Between two looks for a machine whose launch wasn't answered.
const FIND_EVERY: Duration = Duration::from_secs(5);

/// Carries out actions.
#[derive(Clone)]
pub struct Executor {
    api: Arc<dyn KubeApi>,
    cloud: Arc<dyn CloudProvider>,
    clock: Arc<dyn Clock>,
    started: std::time::Instant,
    /// Who writes events: the process's own name.
    identity: Arc<str>,
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
        Self { api, cloud, clock, started, identity: identity.into() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { wall: self.clock.wall(), mono: self.clock.monotonic().saturating_duration_since(self.started) }
    }

    /// Every claim, as the API server has them now.
    ///
    /// # Errors
    /// When the API server doesn't answer.
    pub async fn claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        self.api.claims().await
    }

    /// Carries out `action`.
    pub async fn run(&self, action: Action) -> Report {
        let keys = action.keys();
        match action {
            Action::CreateClaims(new) => self.create(keys, new).await,
            Action::Launch(launch) => self.launch(keys, *launch).await,
            Action::Register(registration) => self.register(keys, *registration).await,
            Action::Write { key, call, rest } => self.write(key, call, rest).await,
            Action::LookForPods(look) => self.look_for_pods(keys, look).await,
            Action::LookForNode(claim) => self.look_for_node(keys, &claim).await,
            Action::DescribeInstances(ids) => self.describe(keys, ids).await,
            Action::Tag { id, tags } => self.tag(keys, &id, &tags).await,
            Action::Terminate { ids } => self.terminate(keys, ids).await,
            Action::FindMachine(claim) => self.find_machine(keys, &claim).await,
            Action::ListMachines => {
                let asked = self.now();
                match self.cloud.list().await {
                    Ok(machines) => {
                        Report { news: vec![News::Machines(asked, machines)], ..Report::done(keys) }
                    }
                    Err(error) => cloud_trouble(keys, &error),
                }
            }
            Action::Resolve(resolution) => self.resolve(keys, &resolution).await,
            Action::AskOffers(class) => {
                let name = class.metadata.name.clone().unwrap_or_default();
                match self.cloud.instance_types(&class).await {
                    Ok(types) => Report {
                        news: vec![News::Shortages(self.cloud.shortages()), News::Offers(name, Ok(types))],
                        ..Report::done(keys)
                    },
                    Err(error) => Report {
                        news: vec![News::Offers(name, Err(error.to_string()))],
                        ..cloud_trouble(keys, &error)
                    },
                }
            }
            Action::Sweep(used) => match self.cloud.sweep(&used).await {
                Ok(removed) => {
                    if removed > 0 {
                        tracing::info!(removed, "removed unused launch templates and instance profiles");
                    }
                    Report::done(keys)
                }
                Err(error) => cloud_trouble(keys, &error),
            },
            Action::Consolidate(search) => self.consolidate(keys, search).await,
            Action::AwaitNews => match self.cloud.interruptions().await {
                Ok(news) => Report { news: vec![News::Interruptions(news)], ..Report::done(keys) },
                Err(error) => cloud_trouble(keys, &error),
            },
            Action::Acknowledge(news) => match self.cloud.acknowledge(&news).await {
                Ok(()) => Report { news: vec![News::Acknowledged(news)], ..Report::done(keys) },
                Err(error) => cloud_trouble(keys, &error),
            },
            Action::ObserveCapacity(nodes) => {
                let changed = nodes.iter().filter(|node| self.cloud.observe_capacity(node)).count();
                let news = (changed > 0).then_some(News::OffersStale);
                Report { news: news.into_iter().collect(), ..Report::done(keys) }
            }
            Action::Tell(notice) => {
                let call = events::write(&notice, self.clock.wall(), &self.identity);
                if let Err(error) = self.api.call(call).await {
                    tracing::debug!(%error, reason = %notice.reason, "event not written");
                }
                Report::done(keys)
            }
        }
    }

    async fn consolidate(&self, keys: Vec<Key>, search: Box<Search>) -> Report {
        let clock = Arc::clone(&self.clock);
        let begun = clock.monotonic();
        let task = tokio::task::spawn_blocking(move || {
            let late = || clock.monotonic().saturating_duration_since(begun) > SEARCH_LIMIT;
            let pools: BTreeSet<String> = search.ask.terms.keys().cloned().collect();
            let (found, panicked) = apart::search(&pools, |pools| {
                // The search works on a copy that nothing else reads.
                let ask = of_pools(&search.ask, pools);
                catch(|| consolidate(&search.cluster, &ask, &late))
            });
            (found, pools, panicked)
        });
        match task.await {
            Ok((found, pools, panicked)) => Report {
                news: vec![News::Consolidation(Box::new(found)), News::Searched(pools, panicked)],
                ..Report::done(keys)
            },
            Err(error) => {
                tracing::error!(%error, "failed to search for a cheaper cluster, tried again later");
                Report { rest: Rest::Grow, ..Report::done(keys) }
            }
        }
    }

    async fn write(&self, key: Key, call: Call, rest: Duration) -> Report {
        let target = call.target.clone();
        let uid = call.uid().map(str::to_owned);
        let verb = call.verb.clone();
        let keys = vec![key];
        match self.api.call(call).await {
            Ok(answer) => {
                let rest = if rest.is_zero() { Rest::None } else { Rest::For(rest) };
                Report { answers: vec![answer], rest, ..Report::done(keys) }
            }
            // What was to go is gone.
            Err(ApiError::NotFound { .. }) if matches!(verb, Verb::Delete { .. } | Verb::Evict { .. }) => {
                let news = uid.map(|uid| News::NotFound(target, uid)).into_iter().collect();
                Report { news, rest: Rest::For(BUDGET_REST), ..Report::done(keys) }
            }
            // Whoever made it: writing nothing shows it.
            Err(ApiError::AlreadyExists { target, .. }) => {
                let look = self.api.call(Call { target, verb: Verb::Patch(json!({})) }).await;
                let answers = look.into_iter().collect();
                Report { answers, rest: Rest::Grow, ..Report::done(keys) }
            }
            Err(ApiError::TooMany { message, .. }) => {
                let mut news = Vec::new();
                if let (Target::Pod(namespace, name), Verb::Evict { .. }) = (&target, &verb) {
                    let pod = croft_scheduler::PodKey::new(namespace, name);
                    news.push(News::EvictionBlocked(pod, message));
                }
                Report { news, rest: Rest::Failed(BUDGET_REST), ..Report::done(keys) }
            }
            Err(error) => self.write_trouble(keys, &error, uid.as_deref()).await,
        }
    }

    /// A write failed. After a conflict the object is shown, by writing nothing: what it is now is all that deciding anew
    /// needs, and the watch may be long in bringing it.
    async fn write_trouble(&self, keys: Vec<Key>, error: &ApiError, uid: Option<&str>) -> Report {
        let mut report = api_trouble(keys, error, uid);
        if let ApiError::Conflict { target, .. } = error
            // Of these the controller may not patch the object itself, only its status.
            && !matches!(target, Target::Pod(..) | Target::Class(_) | Target::Config(_))
            && let Ok(fresh) =
                self.api.call(Call { target: target.clone(), verb: Verb::Patch(json!({})) }).await
        {
            report.answers.push(fresh);
            report.rest = Rest::GrowFrom(AFTER_CONFLICT);
        }
        report
    }

    async fn describe(&self, keys: Vec<Key>, ids: Vec<String>) -> Report {
        let asked = self.now().mono;
        match self.cloud.describe(&ids).await {
            Ok(found) => Report { news: vec![News::Described(asked, ids, found)], ..Report::done(keys) },
            Err(error) => cloud_trouble(keys, &error),
        }
    }

    async fn tag(&self, keys: Vec<Key>, id: &str, tags: &BTreeMap<String, String>) -> Report {
        match self.cloud.tag(id, tags).await {
            Ok(()) => Report { rest: Rest::For(TAG_AGAIN), ..Report::done(keys) },
            Err(error) => cloud_trouble(keys, &error),
        }
    }

    async fn terminate(&self, keys: Vec<Key>, ids: Vec<String>) -> Report {
        match self.cloud.terminate(&ids).await {
            Ok(terminated) => Report {
                news: vec![News::Terminated(terminated)],
                rest: Rest::For(CONFIRM_EVERY),
                ..Report::done(keys)
            },
            Err(error) => cloud_trouble(keys, &error),
        }
    }

    async fn resolve(&self, keys: Vec<Key>, resolution: &Resolution) -> Report {
        let Resolution { class, confirmed } = resolution;
        let name = class.metadata.name.clone().unwrap_or_default();
        let findings = self.cloud.resolve(class).await;
        let call = class_status(class, &findings, *confirmed, self.clock.wall());
        let news = vec![News::Findings(name, Box::new(findings))];
        let Some(call) = call else { return Report { news, ..Report::done(keys) } };
        match self.api.call(call).await {
            Ok(answer) => Report { answers: vec![answer], news, ..Report::done(keys) },
            Err(error) => {
                let mut trouble = api_trouble(keys, &error, class.metadata.uid.as_deref());
                trouble.news.extend(news);
                trouble
            }
        }
    }
}

/// The part of a question that is about `pools`.
fn of_pools(ask: &Ask, pools: &BTreeSet<String>) -> Ask {
    let mut part = ask.clone();
    part.candidates.retain(|candidate| pools.contains(&candidate.pool));
    part.terms.retain(|pool, _| pools.contains(pool));
    part
}

fn class_status(
    class: &EC2NodeClass,
    findings: &ClassFindings,
    confirmed: bool,
    now: jiff::Timestamp,
) -> Option<Call> {
    let old = class.status.clone().unwrap_or_default();
    let mut new = findings::believed(class, findings, confirmed);
    for statement in &findings.conditions {
        croft_api::condition::set(
            &mut new.conditions,
            statement.clone(),
            class.metadata.generation,
            Time(now),
        );
    }
    let patch = merge::diff_of(&old, &new)?;
    Some(Call {
        target: Target::Class(class.metadata.name.clone()?),
        verb: Verb::PatchStatus(json!({"metadata": {"uid": class.metadata.uid}, "status": patch})),
    })
}

/// A call to the API server failed: what it held rests. A conflict rests least, since the watch has or will soon
/// have what is new. An object that isn't there any more is gone, whatever the watch has shown: `uid` is that of the
/// object that the call was for.
fn api_trouble(keys: Vec<Key>, error: &ApiError, uid: Option<&str>) -> Report {
    match error {
        ApiError::Conflict { .. } | ApiError::NotFound { .. } => tracing::debug!(%error, "decided anew"),
        _ => tracing::warn!(%error, "tried again later"),
    }
    let mut news = Vec::new();
    if let (ApiError::NotFound { target, .. }, Some(uid)) = (error, uid) {
        news.push(News::NotFound(target.clone(), uid.to_owned()));
    }
    Report { news, rest: Rest::Grow, ..Report::done(keys) }
}

fn cloud_trouble(keys: Vec<Key>, error: &CloudError) -> Report {
    match error.class() {
        FaultClass::Throttled => tracing::debug!(%error, "tried again later"),
        _ => tracing::warn!(%error, "tried again later"),
    }
    Report { rest: Rest::Grow, ..Report::done(keys) }
}
