//! The engine: takes in changes and reports, and gives out actions. No I/O, no clock, no task: its driver (the process, or
//! a simulation) carries the actions out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::NodeClaim;
use croft_cloud::{CloudInstance, FaultClass};
use croft_scheduler::PodKey;

use crate::{
    action::{Action, Key, UserEvent},
    config::settings::Settings,
    croft_config::ConfigStatus,
    definitions::conditions::LAUNCHED as LAUNCHED_REASON,
    disruption::Disruption,
    events::EventRecorder,
    in_flight::InFlight,
    kube_api::{Change, Kind, Object, ObjectId, Response, Version},
    nodeclaim::{
        garbage_collection::GarbageCollection, instances, launch_backoff, launch_failures::LaunchFailures,
        lifecycle::Lifecycle,
    },
    nodeclass::resolution::NodeClasses,
    nodepool::{
        per_tenant::PoolsForTenants,
        static_capacity::StaticCapacity,
        status::{PoolInputs, PoolStatus},
    },
    pool_figures::{self, PoolFigures, PoolLabels},
    provisioning::{
        panic_isolation::PanicIsolation,
        planning::{Planned, Planning, PlanningContext, PlanningCounts},
    },
    reconcile::{PassInputs, ReconcileContext},
    record::{ClosedCosts, Facts, RecordCounts, Recorder},
    result::{ActionReport, ActionResult},
    solver::{Panicked, Purpose, Solver},
    state::{Evidence, InstanceList, Snapshot, resource_version},
    tenant::Isolation,
    time::{Now, earliest},
};

/// Faults for which another template of the pool is launched at once.
const NO_CAPACITY: [FaultClass; 2] = [FaultClass::NoCapacity, FaultClass::Quota];
/// How long the template rests that was launched in vain.
const TEMPLATE_RESTS: Duration = Duration::from_secs(45);

/// The deciders, each with its own memory.
#[derive(Debug)]
struct Deciders {
    isolation: Isolation,
    planning: Planning,
    panics: PanicIsolation,
    launch_failures: LaunchFailures,
    node_classes: NodeClasses,
    lifecycle: Lifecycle,
    garbage_collection: GarbageCollection,
    disruption: Disruption,
    pools_for_tenants: PoolsForTenants,
    static_capacity: StaticCapacity,
    pool_status: PoolStatus,
    config_status: ConfigStatus,
}

impl Deciders {
    fn new(settings: &Settings) -> Self {
        Self {
            isolation: Isolation::new(&settings.namespace),
            planning: Planning::default(),
            panics: PanicIsolation::default(),
            launch_failures: LaunchFailures::default(),
            node_classes: NodeClasses::default(),
            lifecycle: Lifecycle::default(),
            garbage_collection: GarbageCollection::default(),
            disruption: Disruption::default(),
            pools_for_tenants: PoolsForTenants::default(),
            static_capacity: StaticCapacity::default(),
            pool_status: PoolStatus::default(),
            config_status: ConfigStatus::default(),
        }
    }
}

/// The state of the reconcile loop.
#[derive(Debug)]
pub struct Engine {
    snapshot: Snapshot,
    evidence: Evidence,
    solver: Solver,
    settings: Settings,
    in_flight: InFlight,
    recorder: EventRecorder,
    deciders: Deciders,
    counts: ResultCounts,
    figures: PoolFigures,
    record: Recorder,
}

/// Counts of action results, for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultCounts {
    /// Instances whose termination was confirmed.
    pub terminated: u64,
    /// Instances that messages of the interruption queue were about.
    pub interruptions: u64,
}

/// The result of a pass.
#[derive(Debug)]
pub struct Step {
    /// Effects to carry out.
    pub actions: Vec<Action>,
    /// When the next pass is due if nothing changes before, on the monotonic clock.
    pub requeue_at: Option<Duration>,
    /// Pods that were bound since the last pass, and how long each waited for the node that was launched for it.
    pub bound: Vec<(PoolLabels, Duration)>,
}

impl Engine {
    /// An engine with an empty snapshot.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let deciders = Deciders::new(&settings);
        Self {
            snapshot: Snapshot::default(),
            evidence: Evidence::default(),
            solver: Solver::default(),
            settings,
            in_flight: InFlight::default(),
            recorder: EventRecorder::default(),
            deciders,
            counts: ResultCounts::default(),
            figures: PoolFigures::default(),
            record: Recorder::default(),
        }
    }

    /// Keeps a decision log from now on, as the process `identity`. Its reads and writes are actions.
    pub fn start_recording(&mut self, identity: &str) {
        self.record.start(identity);
    }

    /// Counts of the decision log's entries.
    #[must_use]
    pub const fn record_counts(&self) -> &RecordCounts {
        self.record.counts()
    }

    /// The costs of the hours that this process closed in the ledger.
    #[must_use]
    pub const fn closed_costs(&self) -> &ClosedCosts {
        self.record.costs()
    }

    /// The write of the entries that wait, for a process that stops. None while another write is in flight.
    pub fn last_record(&mut self, now: Now) -> Option<Action> {
        let idle = self.in_flight.is_idle(&Key::Record, now.mono);
        let action = idle.then(|| self.record.write(now)).flatten()?;
        self.in_flight.start(&action, now.mono);
        Some(action)
    }

    /// Makes plans with `solver` from now on: a test's, which panics.
    pub fn set_solver(&mut self, solver: Solver) {
        self.solver = solver;
    }

    /// The snapshot of the cluster.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The snapshot, to be filled without watches.
    pub const fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// Makes plans, and counts panics.
    #[must_use]
    pub const fn solver(&self) -> &Solver {
        &self.solver
    }

    /// Counts of scheduling runs.
    #[must_use]
    pub const fn planning(&self) -> &PlanningCounts {
        self.deciders.planning.counts()
    }

    /// Counts of action results.
    #[must_use]
    pub const fn results(&self) -> &ResultCounts {
        &self.counts
    }

    /// Figures per tenant and pool, as of the last pass.
    #[must_use]
    pub const fn figures(&self) -> &PoolFigures {
        &self.figures
    }

    /// Launches whose node didn't register.
    #[must_use]
    pub const fn unregistered_launches(&self) -> u64 {
        self.deciders.launch_failures.unregistered()
    }

    /// Nodes that weren't initialized in time, since the process started.
    #[must_use]
    pub const fn uninitialized_launches(&self) -> u64 {
        self.deciders.launch_failures.uninitialized()
    }

    /// The decider of isolation.
    #[must_use]
    pub const fn isolation(&self) -> &Isolation {
        &self.deciders.isolation
    }

    /// The decider of disruption.
    #[must_use]
    pub const fn disruption(&self) -> &Disruption {
        &self.deciders.disruption
    }

    /// Takes in a change from a watch.
    pub fn observe(&mut self, change: Change, now: Now) {
        if self.snapshot.observe_validity(&change) {
            self.deciders.isolation.schedule(now);
        }
        self.deciders.isolation.observe(&change, self.snapshot.invalid_objects(), now);
        if change.is_about_tenancy() {
            return;
        }
        if let Change::Version(Version { object, listed, flaw }) = &change {
            if *listed {
                // After a restore from a backup, the API server's answers about pods are of another past.
                self.evidence.forget_pods();
            }
            if let (Object::NodeClaim(claim), None) = (object, flaw) {
                // A changed claim ends the wait after a success; a failure's backoff stays.
                let key = Key::Claim(claim.metadata.name.clone().unwrap_or_default());
                if self.in_flight.failures(&key) == 0 {
                    self.in_flight.end_backoff(&key);
                }
            }
        }
        self.record.observe_change(&change);
        self.snapshot.observe(change, now);
    }

    /// Begins to lead, with every claim as the API server has them now.
    pub fn take_over(&mut self, claims: Vec<NodeClaim>, now: Now) {
        self.deciders.isolation.take_over();
        self.in_flight.forget_all_written();
        self.record.take_over(now);
        // Pods that were bound while another process led are not this one's to measure.
        drop(self.snapshot.take_bound_pods());
        self.observe_claims(claims, now);
    }

    /// Takes in every claim, as the API server has them now. A held claim that is not among them and not newer than they
    /// are was deleted, even if no watch has shown it.
    pub fn observe_claims(&mut self, claims: Vec<NodeClaim>, now: Now) {
        let newest = claims.iter().map(version).max().unwrap_or(0);
        let there: BTreeSet<String> = claims.iter().filter_map(|c| c.metadata.uid.clone()).collect();
        let lost: Vec<(String, String)> = self
            .snapshot
            .claims()
            .iter()
            .filter(|(_, claim)| version(claim) <= newest)
            .filter_map(|(name, claim)| Some((name.clone(), claim.metadata.uid.clone()?)))
            .filter(|(_, uid)| !there.contains(uid))
            .collect();
        for (name, uid) in lost {
            let id = ObjectId::new(Kind::NodeClaim, "", &name).with_uid(&uid);
            self.observe(Change::Gone(id), now);
        }
        for claim in claims {
            self.observe(claim.into(), now);
        }
    }

    /// Takes in the report of an action.
    pub fn complete(&mut self, report: ActionReport, now: Now) {
        let ActionReport { keys, responses, results, backoff } = report;
        for response in responses {
            if let Response::Node(node) = &response {
                // The API server lets the controller write it again, for instance after its RBAC was repaired.
                let name = node.metadata.name.as_deref().unwrap_or_default();
                self.deciders.lifecycle.termination_mut().forget_refused_node(name);
            }
            self.snapshot.observe_response(response, now);
        }
        for key in &keys {
            if let Key::Pod(pod) = key {
                self.deciders.lifecycle.termination_mut().forget_eviction(pod);
            }
            if backoff.is_failure() && self.in_flight.forget_written(key) {
                self.deciders.isolation.await_key(key.clone());
            }
            self.in_flight.end(key, backoff, now.mono);
        }
        for result in results {
            self.observe_result(result, now);
        }
    }

    fn observe_instances(&mut self, asked: Now, instances: Vec<CloudInstance>) {
        let instances = instances.into_iter().map(|m| (m.id.clone(), m)).collect();
        self.snapshot.set_instances(InstanceList { asked, instances });
        self.evidence.observe_list(&self.snapshot);
        self.deciders.lifecycle.retain_known(&self.snapshot);
    }

    fn observe_launch_failure(&mut self, claim: &str, reason: &'static str, now: Now) {
        self.figures.count_launch(&self.snapshot, claim, reason);
        if NO_CAPACITY.map(FaultClass::as_str).contains(&reason) {
            self.snapshot.rest_template(claim, now.mono.saturating_add(TEMPLATE_RESTS));
        }
        self.plan_without_offering(claim);
    }

    fn observe_result(&mut self, result: ActionResult, now: Now) {
        self.record.observe_going(&self.snapshot, result.going(), now);
        let Self { snapshot, evidence, deciders, in_flight, counts, figures, record, .. } = self;
        match result {
            ActionResult::Launched(claim) => {
                evidence.observe_launch(snapshot, &claim, now.mono);
                figures.count_launch(snapshot, &claim, LAUNCHED_REASON);
            }
            ActionResult::LaunchFailed { claim, reason, message } => {
                tracing::warn!(claim, reason, error = message, "launch failed");
                self.observe_launch_failure(&claim, reason, now);
            }
            ActionResult::ClaimsNotCreated(claims) => {
                claims.iter().for_each(|claim| snapshot.release_nominations(claim));
                // Headroom and static capacity have no nominated pods.
                snapshot.request_plan();
            }
            ActionResult::Offerings(class, types) => snapshot.set_offerings(&class, types),
            ActionResult::Findings(name, findings) => {
                if let Some(class) = snapshot.classes().get(&name) {
                    deciders.node_classes.observe_findings(&name, &class.object, &findings, now.mono);
                }
            }
            ActionResult::Instances(asked, instances) => self.observe_instances(asked, instances),
            ActionResult::Terminated(instances) => {
                for id in evidence.observe_terminations(instances) {
                    counts.terminated += 1;
                    // The next step needs no wait.
                    in_flight.end_backoff(&Key::Instance(id));
                }
            }
            ActionResult::NoPodsFound(subject, at) => evidence.observe_no_pods(subject, at),
            ActionResult::NoNode(claim, at) => evidence.observe_no_node(claim, at),
            ActionResult::InstancesDescribed(requested, ids, found) => {
                evidence.observe_descriptions(requested, ids, found);
                snapshot.mark_all_claims_dirty();
            }
            ActionResult::InstanceNotFound(claim) => {
                deciders.lifecycle.termination_mut().observe_no_instance(claim, now.mono);
            }
            ActionResult::Consolidation(found) => deciders.disruption.observe_search(found),
            ActionResult::PoolsSearched(pools, panicked) => self.observe_searches(&pools, &panicked),
            ActionResult::Evicted(pod) => {
                let tenancy = &deciders.isolation.view();
                figures.count_eviction(snapshot, tenancy, &pod);
                record.observe_eviction(&Facts { snapshot, tenancy, now }, &pod);
            }
            ActionResult::EvictionBlocked(pod, why) => {
                let tenancy = &deciders.isolation.view();
                record.observe_blocked_eviction(&Facts { snapshot, tenancy, now }, &pod, &why);
                deciders.lifecycle.termination_mut().observe_eviction_blocked(pod, why);
            }
            ActionResult::NodeRefused(node, why) => {
                deciders.lifecycle.termination_mut().observe_refused_node(node, why);
                snapshot.mark_all_claims_dirty();
            }
            ActionResult::NameTaken(key) => deciders.isolation.observe_name_taken(key, now),
            ActionResult::ObjectRefused(key, why) => {
                deciders.isolation.observe_object_refused(key, &why, now);
            }
            ActionResult::NotFound(target, uid) => snapshot.observe_not_found(&target, &uid, now),
            ActionResult::UnavailableOfferings(offerings) => snapshot.set_unavailable_offerings(offerings),
            ActionResult::Interruptions(messages) => {
                counts.interruptions += messages.iter().map(|n| n.instances.len() as u64).sum::<u64>();
                deciders.disruption.interruptions_mut().observe(messages, now.mono);
            }
            ActionResult::Acknowledged(messages) => deciders.disruption.interruptions_mut().forget(&messages),
            ActionResult::ParametersProbed { revision, in_force, mutated_by } => {
                // Parameters that aren't in force yet are probed again.
                in_flight.forget_written(&Key::Parameters);
                deciders.isolation.observe_probe(&revision, in_force, mutated_by, now);
            }
            ActionResult::OfferingsChanged => {
                for class in deciders.node_classes.request_all_offerings() {
                    in_flight.end_backoff(&Key::Offerings(class));
                }
            }
            ActionResult::RecordRead(resumed) => record.observe_read(*resumed, now),
            ActionResult::RecordWritten(versions) => record.observe_written(versions, now),
            ActionResult::RecordUnwritten => record.observe_unwritten(),
        }
    }

    /// Notes which pools' searches panicked, and which no longer do.
    fn observe_searches(&mut self, pools: &BTreeSet<String>, panicked: &BTreeMap<String, Panicked>) {
        for pool in pools {
            self.deciders.panics.record(pool, Purpose::Consolidation, panicked.get(pool));
        }
        panicked.iter().for_each(|_| self.solver.count_panic(Purpose::Consolidation));
    }

    /// Makes the pods of a failed launch demand again, at once. The cloud provider has marked the offerings without
    /// capacity by now, so they are listed again.
    fn plan_without_offering(&mut self, claim: &str) {
        self.snapshot.release_nominations(claim);
        let claim = self.snapshot.claims().get(claim);
        if let Some(class) = claim.map(|c| c.spec.node_class_ref.name.clone()) {
            self.deciders.node_classes.request_offerings(&class);
            self.in_flight.end_backoff(&Key::Offerings(class));
        }
    }

    /// Makes a reconcile pass. Its actions count as in flight from here on; each must be reported.
    pub fn step(&mut self, now: Now) -> Step {
        if !self.snapshot.is_synced_for_capacity() {
            return Step { actions: Vec::new(), requeue_at: None, bound: Vec::new() };
        }
        let (planned, planning_again) = self.plan(now);
        if let Some(run) = &planned.run {
            let facts = Facts { snapshot: &self.snapshot, tenancy: &self.deciders.isolation.view(), now };
            self.record.observe_run(&facts, run, &planned.events);
        }
        for event in planned.events {
            self.recorder.record(event, now.mono);
        }
        let (requested, pass_again) = self.reconcile(planned.actions, now);
        let mut actions = self.lock(requested, now);
        let Self { snapshot, evidence, deciders, in_flight, recorder, figures, record, .. } = self;
        let view = deciders.isolation.view();
        figures.refresh(snapshot, &deciders.planning, &view);
        let bound = snapshot.take_bound_pods();
        let facts = Facts { snapshot, tenancy: &view, now };
        record.observe_bound(&facts, &bound);
        record.observe_claims(&facts);
        let bound = pool_figures::waits(snapshot, &view, bound);
        snapshot.mark_clean(|snapshot, name, claim| {
            deciders.lifecycle.is_settled(snapshot, evidence, in_flight, name, claim)
        });
        // An event about a pod that is no longer pending is outdated.
        let is_over = |event: &UserEvent| {
            let (namespace, name) = (event.regarding.namespace.as_deref(), event.regarding.name.as_deref());
            let pod = PodKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
            !snapshot.pods().get(&pod).is_some_and(|pod| pod.traits.demand)
        };
        let (events, events_again) = recorder.due(now.mono, is_over);
        actions.extend(events.into_iter().map(Action::RecordEvent));
        if in_flight.is_idle(&Key::Record, now.mono)
            && let Some(action) = record.due(now)
        {
            in_flight.start(&action, now.mono);
            actions.push(action);
        }
        let idle = in_flight.is_idle(&Key::Record, now.mono);
        let record_again = idle.then(|| record.next_due(now)).flatten();
        let backoff_again = in_flight.next_backoff_end(now.mono);
        let requeue_at = [planning_again, pass_again, events_again, backoff_again, record_again]
            .into_iter()
            .fold(planned.requeue, earliest);
        Step { actions, requeue_at, bound }
    }

    /// Plans for pending pods, if a scheduling run is due. Also returns when planning must be checked again.
    fn plan(&mut self, now: Now) -> (Planned, Option<Duration>) {
        let Self { snapshot, evidence, deciders, in_flight, settings, solver, .. } = self;
        snapshot.count_unclaimed(settings.orphan_grace, evidence);
        let nominations_again = deciders.planning.release_outdated(snapshot, now);
        let (retry, panics_again) = deciders.panics.retry_due(now);
        if retry {
            snapshot.request_plan();
        }
        let holds_again = launch_backoff::set_launch_holds(snapshot, now);
        let config_again = snapshot.expire_config(now);
        let schedules_again = snapshot.apply_schedules(now);
        let zones_again = snapshot.close_zones(now);
        let offerings_known = deciders.node_classes.offerings_known(snapshot, in_flight);
        let panics = &mut deciders.panics;
        let mut context = PlanningContext { snapshot, solver, panics, settings, in_flight, now };
        let planned = deciders.planning.reconcile(&mut context, offerings_known);
        let again = [panics_again, holds_again, config_again, schedules_again, zones_again];
        let again = again.into_iter().fold(nominations_again, earliest);
        (planned, again)
    }

    /// Runs the deciders. Returns the actions that they and planning ask for, and when the next pass is due.
    fn reconcile(&mut self, planned: Vec<Action>, now: Now) -> (Vec<Action>, Option<Duration>) {
        let Self { snapshot, evidence, deciders, in_flight, settings, solver, .. } = self;
        let inputs = PassInputs { snapshot, solver, settings, in_flight };
        let mut ctx = ReconcileContext::new(inputs, evidence, now);
        ctx.awaits_plan = deciders.planning.is_batch_open();
        planned.into_iter().for_each(|action| ctx.request(action));
        let d = deciders;
        d.panics.retain_known(snapshot);
        d.isolation.reconcile(&mut ctx);
        d.node_classes.reconcile(&mut ctx, &d.isolation);
        d.pools_for_tenants.reconcile(&mut ctx);
        d.static_capacity.reconcile(&mut ctx, &mut d.panics);
        instances::reconcile(&mut ctx);
        d.launch_failures.reconcile(&mut ctx, d.lifecycle.overdue());
        d.lifecycle.reconcile(&mut ctx, d.disruption.cordoned_since());
        d.disruption.reconcile(&mut ctx, &d.lifecycle);
        d.garbage_collection.reconcile(&mut ctx);
        let pool_inputs = PoolInputs {
            isolation: &d.isolation,
            static_capacity: &d.static_capacity,
            panics: &d.panics,
            garbage_collection: &d.garbage_collection,
        };
        d.pool_status.reconcile(&mut ctx, pool_inputs);
        let held = d.planning.counts().held_by_limits;
        let mutation = d.isolation.mutation_statement(ctx.snapshot);
        d.config_status.reconcile(&mut ctx, held, &d.static_capacity, mutation);
        ctx.finish()
    }

    /// Locks the keys of the requested actions. Events go to the recorder, and terminations become one action: the cloud
    /// limits the rate of calls.
    fn lock(&mut self, requested: Vec<Action>, now: Now) -> Vec<Action> {
        let mut actions = Vec::with_capacity(requested.len());
        let mut terminations = Vec::new();
        let tenancy = &self.deciders.isolation.view();
        for action in requested {
            self.in_flight.start(&action, now.mono);
            self.record.observe_action(&Facts { snapshot: &self.snapshot, tenancy, now }, &action);
            match action {
                Action::RecordEvent(event) => self.recorder.record(event, now.mono),
                Action::Terminate { ids } => terminations.extend(ids),
                other => actions.push(other),
            }
        }
        if !terminations.is_empty() {
            actions.push(Action::Terminate { ids: terminations });
        }
        actions
    }
}

fn version(claim: &NodeClaim) -> u64 {
    resource_version(claim.metadata.resource_version.as_deref())
}
