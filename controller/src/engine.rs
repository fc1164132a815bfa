//! The decision loop's state: takes in changes and reports, gives out actions. No I/O, no clock, no task: whoever
//! drives it (the process, or a simulation) carries the actions out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{NodeClaim, condition::INITIALIZED};
use croft_cloud::MachineState;
use croft_scheduler::{Options, PodKey, Price};

use crate::{
    action::{Action, Key, News, Notice, Report},
    batch::Batch,
    decide::{
        self, Memory, Round,
        provision::{Provision, provision},
    },
    events::Recorder,
    flights::Flights,
    settings::Settings,
    snapshot::{Change, MachineList, Snapshot, is, version},
    solver::Run,
    time::{Now, earliest},
};

/// The kinds whose first list must be in before anything is decided: a plan made without knowing of a node, a
/// claim or a tenant's limit would launch what isn't needed.
pub const KINDS: [&str; 15] = [
    "Pod",
    "Node",
    "NodeClaim",
    "TenantPool",
    "EC2NodeClass",
    "Tenant",
    "CroftConfig",
    "Namespace",
    "DaemonSet",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "VolumeAttachment",
    "PodDisruptionBudget",
];

/// How long a planned pod may take to be bound to a machine that is open.
const PLACE_KEPT: Duration = Duration::from_secs(5);
/// Pods that a plan puts onto a node that is there keep it from counting as empty for this long.
const EXPECTED_FOR: Duration = Duration::from_secs(10);
/// Between two plans for the same pods when only the rest of the cluster has changed.
const REPLAN_EVERY: Duration = Duration::from_secs(1);

/// The state of the decision loop.
#[derive(Debug)]
pub struct Engine {
    /// The picture.
    pub snapshot: Snapshot,
    /// Numbers for the metrics.
    pub counts: Counts,
    settings: Settings,
    flights: Flights,
    memory: Memory,
    recorder: Recorder,
    batch: Batch,
}

/// What has happened, for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Plans made.
    pub plans: u64,
    /// Work steps of all plans.
    pub plan_steps: u64,
    /// Claims asked for.
    pub claims: u64,
    /// Launches that ended without a machine.
    pub launch_failures: u64,
    /// Launches whose node never registered.
    pub unregistered: u64,
    /// Pods and spare places that the cluster's limits keep waiting.
    pub held_by_limits: usize,
    /// Machines confirmed gone.
    pub terminated: u64,
    /// Pods that the last plan couldn't place.
    pub unplaced: u64,
    /// Machines that were said to be about to go.
    pub interruptions: u64,
    /// What the moves that were begun to save money save together, per hour.
    pub saved: Price,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            snapshot: Snapshot::default(),
            counts: Counts::default(),
            settings,
            flights: Flights::default(),
            memory: Memory::default(),
            recorder: Recorder::default(),
            batch: Batch::default(),
        }
    }

    /// Takes in what a watch showed.
    pub fn observe(&mut self, change: Change, now: Now) {
        let shown = if let Change::Listed(change) = &change {
            // After a restore from a backup, what the API server said of a machine's pods was said by another past.
            self.memory.vacant_at.clear();
            change
        } else {
            &change
        };
        if let Change::Claim(claim) = shown {
            // News about a claim may be what its rest waits for; a failure's rest stays.
            let key = Key::Claim(claim.metadata.name.clone().unwrap_or_default());
            if self.flights.failures(&key) == 0 {
                self.flights.wake(&key);
            }
        }
        self.snapshot.observe(change, now);
    }

    /// Takes in every claim, as the API server has them now: what isn't among them and isn't newer than they are was
    /// deleted, also where no watch has ever shown it.
    pub fn claims_listed(&mut self, claims: Vec<NodeClaim>, now: Now) {
        let newest = claims.iter().map(version_of).max().unwrap_or(0);
        let there: BTreeSet<String> = claims.iter().filter_map(|c| c.metadata.uid.clone()).collect();
        let lost: Vec<(String, String)> = self
            .snapshot
            .claims
            .iter()
            .filter(|(_, claim)| version_of(claim) <= newest)
            .filter_map(|(name, claim)| Some((name.clone(), claim.metadata.uid.clone()?)))
            .filter(|(_, uid)| !there.contains(uid))
            .collect();
        for (name, uid) in lost {
            self.observe(Change::Gone(uid.into(), Box::new(Change::ClaimGone(name))), now);
        }
        for claim in claims {
            self.observe(Change::Claim(Box::new(claim)), now);
        }
    }

    /// Takes in how an action ended.
    pub fn complete(&mut self, report: Report, now: Now) {
        let Report { keys, answers, news, rest } = report;
        for answer in answers {
            self.snapshot.answered(answer, now);
        }
        for key in &keys {
            if let Key::Pod(pod) = key {
                self.memory.blocked.remove(pod);
            }
            self.flights.end(key, rest, now.mono);
        }
        for news in news {
            self.learn(news, now);
        }
    }

    /// What disruption has decided, for the metrics.
    #[must_use]
    pub const fn disruption(&self) -> &decide::disrupt::Memory {
        &self.memory.disruption
    }

    fn learn(&mut self, news: News, now: Now) {
        match news {
            News::LaunchFailed { claim, reason, message } => {
                tracing::warn!(claim, reason, message, "launch failed");
                self.counts.launch_failures += 1;
                // Its pods are demand again at once; what had no capacity is set aside by now.
                self.snapshot.release_nominations(&claim);
                if let Some(class) =
                    self.snapshot.claims.get(&claim).map(|c| c.spec.node_class_ref.name.clone())
                {
                    if let Some(asked) = self.memory.class_asked.get_mut(&class) {
                        asked.offers = None;
                    }
                    self.flights.wake(&Key::Offers(class));
                }
            }
            News::NotCreated(claims) => {
                for claim in claims {
                    self.snapshot.release_nominations(&claim);
                }
                // Also for what no pod waits for: spare places, and pools of a fixed size.
                self.snapshot.plan_version += 1;
            }
            News::Offers(class, types) => self.snapshot.offers(&class, types),
            News::Findings(class, findings) => {
                let known = self.snapshot.classes.get(&class).zip(self.memory.class_asked.get_mut(&class));
                if let Some((class, asked)) = known {
                    asked.found(&class.object, &findings, now.mono);
                }
            }
            News::Machines(asked, machines) => {
                let machines = machines.into_iter().map(|m| (m.id.clone(), m)).collect();
                self.snapshot.listed(MachineList { asked, machines });
                self.forget_terminated();
            }
            News::Terminated(machines) => {
                for machine in machines {
                    if machine.state == MachineState::Terminated {
                        self.counts.terminated += 1;
                        // The next step needs no rest.
                        self.flights.wake(&Key::Machine(machine.id.clone()));
                    }
                    self.memory.terminations.insert(machine.id, machine.state);
                }
            }
            News::Vacant(claim, asked) => {
                self.memory.vacant_at.insert(claim, asked);
            }
            News::NoNode(claim, asked) => {
                self.memory.nodeless_at.insert(claim, asked);
            }
            News::Described(asked, ids, found) => {
                self.memory.answers.hear(asked, ids, found);
                self.snapshot.touch_claims();
            }
            News::NoMachine(claim) => {
                self.memory.machineless_since.entry(claim).or_insert(now.mono);
            }
            News::Consolidation(found) => {
                tracing::debug!(
                    moves = found.moves.len(),
                    before = %found.before,
                    after = %found.after,
                    steps = found.steps,
                    "searched for a cheaper cluster"
                );
                self.memory.disruption.found = Some(found);
            }
            News::Searched(pools, panicked) => {
                for pool in &pools {
                    self.memory.apart.note(pool, Run::Consolidation, panicked.get(pool));
                }
                for _ in panicked {
                    self.snapshot.solver.note(Run::Consolidation);
                }
            }
            News::EvictionBlocked(pod, why) => {
                self.memory.blocked.insert(pod, why);
            }
            News::NotFound(target, uid) => self.snapshot.not_found(target, &uid, now),
            News::Shortages(shortages) => {
                if self.snapshot.shortages.0 != shortages {
                    self.snapshot.shortages = (shortages, self.snapshot.shortages.1 + 1);
                }
            }
            News::Interruptions(news) => {
                self.counts.interruptions += news.iter().map(|n| n.machines.len() as u64).sum::<u64>();
                self.memory.news.hear(news, now.mono);
            }
            News::Acknowledged(news) => self.memory.news.forget(&news),
            News::OffersStale => {
                for (class, asked) in &mut self.memory.class_asked {
                    asked.offers = None;
                    self.flights.wake(&Key::Offers(class.clone()));
                }
            }
        }
    }

    /// Machines that are gone and that no claim holds need not be remembered.
    fn forget_terminated(&mut self) {
        let held: BTreeSet<&str> = self
            .snapshot
            .claims
            .values()
            .filter_map(|c| c.status.as_ref()?.provider_id.as_deref())
            .map(decide::termination::machine_id)
            .collect();
        let listed = self.snapshot.machines.0.as_ref();
        self.memory.terminations.retain(|id, _| {
            held.contains(id.as_str()) || listed.is_some_and(|list| list.machines.contains_key(id))
        });
        let nodes: BTreeSet<&str> = self
            .snapshot
            .nodes
            .values()
            .filter_map(|node| node.provider_id.as_deref())
            .map(decide::termination::machine_id)
            .collect();
        self.memory.answers.retain(|id| held.contains(id) || nodes.contains(id));
        self.memory.nodeless_at.retain(|claim, _| self.snapshot.claims.contains_key(claim));
        self.memory.machineless_since.retain(|claim, _| self.snapshot.claims.contains_key(claim));
        self.memory.drained_since.retain(|claim, _| self.snapshot.claims.contains_key(claim));
        self.memory.closed_since.retain(|claim, _| self.snapshot.claims.contains_key(claim));
        self.memory.vacant_at.retain(|subject, _| {
            self.snapshot.claims.contains_key(subject)
                || listed.is_some_and(|list| list.machines.contains_key(subject))
        });
        self.memory.blocked.retain(|pod, _| self.snapshot.pods.contains_key(pod));
        self.memory.observed.retain(|claim| self.snapshot.claims.contains_key(claim));
    }

    /// Decides. The actions count as under way from here on; each must be reported.
    pub fn step(&mut self, now: Now) -> Step {
        if !self.snapshot.is_synced(&KINDS) {
            return Step { actions: Vec::new(), wake: None };
        }
        let gone = &self.memory.terminations;
        self.snapshot.count_unclaimed(self.settings.orphan_grace, |id| {
            gone.get(id) == Some(&MachineState::Terminated)
        });
        let (ruled_out, out_wake) = self.memory.places.look(&self.snapshot, now);
        if ruled_out {
            self.snapshot.plan_version += 1;
        }
        let places_wake = earliest(self.give_up_lost_places(now), out_wake);
        let (retry_planning, apart_wake) = self.memory.apart.due(now);
        if retry_planning {
            self.snapshot.plan_version += 1;
        }
        let hold_wake = decide::backoff::hold(&mut self.snapshot, now);
        let config_wake = self.snapshot.expire_config(now);
        let mut plan_wake = self.plan_if_due(now);
        if let Due::Planned(actions) = &mut plan_wake {
            self.put_off(actions, now);
        }
        let mut round = Round::new(&self.snapshot, &self.settings, &self.flights, now);
        round.awaits_plan = self.batch.opened.is_some();
        let mut planned = Vec::new();
        let wake = match plan_wake {
            Due::Planned(result) => {
                planned = result;
                None
            }
            Due::Later(wake) => wake,
        };
        for action in planned {
            round.act(action);
        }
        decide::classes::decide(&mut round, &mut self.memory);
        decide::standing::decide(&mut round, &mut self.memory);
        decide::instances::decide(&mut round, &mut self.memory);
        decide::backoff::decide(&mut round, &mut self.memory);
        decide::lifecycle::decide(&mut round, &mut self.memory);
        decide::interrupt::decide(&mut round, &mut self.memory);
        decide::disrupt::decide(&mut round, &mut self.memory);
        self.counts.saved = self.memory.disruption.saved;
        self.counts.unregistered = self.memory.unregistered;
        self.counts.held_by_limits = self.memory.config.held();
        decide::orphans::decide(&mut round, &mut self.memory);
        decide::pools::decide(&mut round, &mut self.memory);
        decide::config::decide(&mut round, &mut self.memory);
        let (decided, round_wake) = round.finish();
        let mut actions = Vec::with_capacity(decided.len());
        let mut going = Vec::new();
        for action in decided {
            for key in action.keys() {
                self.flights.start(key);
            }
            match action {
                Action::Tell(notice) => self.recorder.tell(notice, now.mono),
                // One call for all: the cloud counts calls.
                Action::Terminate { ids } => going.extend(ids),
                other => actions.push(other),
            }
        }
        if !going.is_empty() {
            actions.push(Action::Terminate { ids: going });
        }
        let (memory, flights) = (&self.memory, &self.flights);
        self.snapshot.settle(|snapshot, name, claim| {
            decide::lifecycle::is_quiet(snapshot, memory, flights, name, claim)
        });
        // Events give way to whatever makes pods run.
        let snapshot = &self.snapshot;
        let is_over = |notice: &Notice| {
            let (namespace, name) = (notice.about.namespace.as_deref(), notice.about.name.as_deref());
            let pod = PodKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
            !snapshot.pods.get(&pod).is_some_and(|pod| pod.is.demand)
        };
        let (notices, event_wake) = self.recorder.due(now.mono, is_over);
        actions.extend(notices.into_iter().map(Action::Tell));
        let rest_wake = self.flights.next_wake(now.mono);
        let wake = [places_wake, apart_wake, hold_wake, config_wake, round_wake, event_wake, rest_wake]
            .into_iter()
            .fold(wake, earliest);
        Step { actions, wake }
    }

    /// A pod that isn't bound soon after its machine has opened has lost its place there to another: it is planned
    /// anew, on what is free by now.
    fn give_up_lost_places(&mut self, now: Now) -> Option<Duration> {
        let mut wake = None;
        let waited_for = self.snapshot.nominated_claims();
        self.memory.open_since.retain(|claim, _| waited_for.contains(claim));
        for claim in waited_for {
            if !self.snapshot.claims.get(&claim).is_some_and(|c| is(c, INITIALIZED)) {
                continue;
            }
            let since = *self.memory.open_since.entry(claim.clone()).or_insert(now.mono);
            let until = since.saturating_add(PLACE_KEPT);
            if until <= now.mono {
                self.snapshot.release_nominations(&claim);
            } else {
                wake = earliest(wake, Some(until));
            }
        }
        wake
    }

    /// A pool whose last claims weren't created rests for a moment; what is planned for it meanwhile is planned anew,
    /// and the other pools' claims don't wait.
    fn put_off(&mut self, actions: &mut Vec<Action>, now: Now) {
        let flights = &self.flights;
        let resting = |action: &mut Action| !action.keys().iter().all(|key| flights.is_idle(key, now.mono));
        for action in actions.extract_if(.., resting) {
            if let Action::CreateClaims(new) = action {
                for claim in &new.claims {
                    self.snapshot.release_nominations(&claim.name);
                }
                self.snapshot.plan_version += 1;
            }
        }
    }

    fn plan_if_due(&mut self, now: Now) -> Due {
        self.batch.see(self.snapshot.arrivals, now.mono);
        if self.snapshot.unplanned().next().is_none() {
            self.batch.opened = None;
            self.memory.config.planned(None);
            if !self.snapshot.has_headroom() {
                return Due::Later(None);
            }
        }
        // The next plan must know of every claim that the last one asked for; and names are reserved on the version
        // of the pool's status, which a status write under way is about to change.
        if self.flights.any_flying(|key| matches!(key, Key::Plan(_) | Key::Pool(_))) {
            return Due::Later(None);
        }
        // Limits count what the cloud has, too; the first list is asked for in the first round.
        if !self.offers_known() || self.snapshot.machines.0.is_none() {
            return Due::Later(None);
        }
        let ends = self.batch.ends(self.settings.batch_idle, self.settings.batch_max);
        let due = match (self.batch.opened, self.batch.planned) {
            (Some(opened), _) => ends.min(opened + self.settings.batch_max),
            (None, Some((version, _))) if version == self.snapshot.plan_version => return Due::Later(None),
            (None, Some((_, at))) => at + REPLAN_EVERY,
            (None, None) => now.mono,
        };
        if now.mono < due {
            return Due::Later(Some(due));
        }
        let options = Options {
            effort: self.settings.effort,
            ruled_out: self.memory.places.ruled_out(),
            ..Options::default()
        };
        self.snapshot.release_headroom();
        let mut plan = self.memory.apart.plan(&self.snapshot, &options, now);
        self.counts.plans += 1;
        let pods_keep_coming = self.batch.opened.is_some() && now.mono < ends;
        let held = pods_keep_coming && self.batch.hold(&mut plan.machines, now.mono, self.settings.batch_max);
        if !pods_keep_coming {
            self.batch.end();
        }
        self.counts.plan_steps = self.counts.plan_steps.saturating_add(plan.steps);
        self.counts.unplaced =
            plan.unschedulable.iter().filter(|left| !Snapshot::is_headroom(&left.pod)).count() as u64;
        for warning in &plan.warnings {
            tracing::debug!(warning, "plan");
        }
        let Provision { claims, nominations, expected, notices } = provision(&self.snapshot, &plan);
        if !plan.machines.is_empty() {
            tracing::info!(
                machines = plan.machines.len(),
                pods = nominations.len(),
                cost_per_hour = %plan.cost,
                bound_per_hour = %plan.bound,
                steps = plan.steps,
                "planned"
            );
        }
        for (pod, claim) in &nominations {
            self.snapshot.nominate(pod, claim);
        }
        self.memory.places.planned(&plan, now);
        self.memory.config.planned(Some(&plan));
        let of_machines: BTreeMap<PodKey, String> = nominations
            .into_iter()
            .filter(|(pod, claim)| Snapshot::is_headroom(pod) && !self.snapshot.claims.contains_key(claim))
            .collect();
        self.snapshot.settle_headroom(&plan, &of_machines);
        for node in expected {
            self.memory.expected_until.insert(node, now.mono + EXPECTED_FOR);
        }
        for notice in notices {
            self.recorder.tell(notice, now.mono);
        }
        self.batch.planned(self.snapshot.plan_version, self.snapshot.arrivals, held, now.mono);
        self.counts.claims += claims.iter().map(|c| c.claims.len() as u64).sum::<u64>();
        Due::Planned(claims.into_iter().map(Action::CreateClaims).collect())
    }

    /// True once it is known of every usable class what it may launch: planning with some pools' offers missing
    /// would send pods to a lighter pool for ever. A class that can't be used is not waited for.
    fn offers_known(&self) -> bool {
        self.snapshot.classes.iter().all(|(name, class)| {
            class.types.is_some()
                || class.types_error.is_some()
                || self.memory.class_asked.get(name).is_some_and(|asked| {
                    asked.resolved.is_some()
                        && !asked.ready
                        && !self.flights.is_flying(&Key::Class(name.clone()))
                })
        })
    }
}

fn version_of(claim: &NodeClaim) -> u64 {
    version(claim.metadata.resource_version.as_deref())
}

enum Due {
    Planned(Vec<Action>),
    Later(Option<Duration>),
}

/// What a step came to.
#[derive(Debug)]
pub struct Step {
    /// Effects to carry out.
    pub actions: Vec<Action>,
    /// When to step again if nothing happens before.
    pub wake: Option<Duration>,
}
