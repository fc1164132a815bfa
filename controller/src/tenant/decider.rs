//! The decider of isolation: when Tenants are compared with the cluster, and which writes are requested.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::{
    Tenant,
    condition::{READY, Statement, UNLIMITED, is_true},
};
use croft_policy::{Tenants, Violation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    action::Key,
    definitions::conditions::ISOLATED,
    kube_api::{Change, Kind, ObjectKey},
    reconcile::ReconcileContext,
    state::{InvalidObjects, Snapshot},
    tenant::{
        class_facts::ClassFacts, mutation, notices::Notices, reconcile::reconcile, spec_valid::spec_valid,
        state::State,
    },
    time::Now,
};

/// Changes within this time are handled in one pass.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Minimum time between two passes, so that a flood of changes costs a bounded share of a core.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// A pass without any change: the Lease of a replica may have expired, or a write may have been lost.
const RESYNC_EVERY: Duration = Duration::from_secs(10);

/// Keeps tenants isolated. Times are on the monotonic clock.
#[derive(Debug)]
pub struct Isolation {
    state: State,
    /// The next pass.
    due: Duration,
    not_before: Duration,
    /// Keys that were locked when a write was wanted, or whose write has failed.
    awaited: BTreeSet<Key>,
    /// The snapshot's changes of claims up to the last pass.
    claim_changes: u64,
    counts: TenantCounts,
}

/// Counts for the metrics, as of the last pass.
#[derive(Clone, Debug, Default)]
pub struct TenantCounts {
    /// Tenants with pods outside their pools, or other pods inside them.
    pub not_isolated: usize,
    /// Tenants that aren't enforced everywhere.
    pub not_ready: usize,
    /// Tenants without a limit on the cost of their nodes.
    pub unlimited: usize,
    /// Violations by rule.
    pub violations: BTreeMap<Violation, i64>,
    /// Invalid objects by kind.
    pub invalid_objects: BTreeMap<&'static str, i64>,
}

impl Isolation {
    /// A decider for a cluster with Croft in `namespace`.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self {
            state: State::new(namespace),
            due: Duration::ZERO,
            not_before: Duration::ZERO,
            awaited: BTreeSet::new(),
            claim_changes: 0,
            counts: TenantCounts::default(),
        }
    }

    /// Takes in a change.
    pub fn observe(&mut self, change: &Change, invalid: &InvalidObjects, now: Now) {
        if self.state.observe(change, invalid, now.mono) {
            self.schedule(now);
        }
    }

    /// Takes in whether the parameters of `revision` are in force, and the version of the mutating policies that act.
    pub fn observe_probe(&mut self, revision: &str, in_force: bool, mutated_by: Option<String>, now: Now) {
        if in_force {
            self.state.parameters.confirm(revision);
            self.state.parameters.mutated_by = mutated_by;
            self.state.parameters.probed = Some(now.mono);
        }
        self.schedule(now);
    }

    /// Takes in that an object of others has the name of one that Croft keeps in a tenant's namespace.
    pub fn observe_name_taken(&mut self, key: ObjectKey, now: Now) {
        if self.state.objects.observe_name_taken(key) {
            self.schedule(now);
        }
    }

    /// Takes in that the API server refused an object that Croft would keep in a tenant's namespace.
    pub fn observe_object_refused(&mut self, key: ObjectKey, why: &str, now: Now) {
        if self.state.objects.observe_refused(key, why) {
            self.schedule(now);
        }
    }

    /// Makes a pass due once `key` is free: a write of it has failed, and is repeated then.
    pub fn await_key(&mut self, key: Key) {
        self.awaited.insert(key);
    }

    /// Begins to lead. Another leader recorded the events until now.
    pub fn take_over(&mut self) {
        self.awaited.clear();
        self.state.left_pools.clear();
        self.state.notices = Notices::default();
        self.state.objects.take_over();
    }

    /// Compares Tenants with the cluster, if a pass is due.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>) {
        let now = ctx.now;
        if !ctx.snapshot.is_synced_for_tenancy() {
            return;
        }
        // Tenants' status has the cost of their claims.
        let claim_changes = ctx.snapshot.claim_changes();
        if self.claim_changes != claim_changes || self.awaited.iter().any(|key| ctx.is_idle(key)) {
            self.claim_changes = claim_changes;
            self.schedule(now);
        }
        let at = self.due.max(self.not_before);
        if now.mono < at {
            return ctx.requeue_at(at);
        }
        self.due = now.mono + RESYNC_EVERY;
        self.not_before = now.mono + MIN_PAUSE;
        self.awaited.clear();
        let actions = reconcile(&mut self.state, ctx.snapshot, now.mono, now.wall);
        self.due = self.state.objects.next(now.mono).map_or(self.due, |next| self.due.min(next));
        ctx.requeue_at(self.due);
        self.count(ctx.snapshot.invalid_objects());
        for action in actions {
            self.awaited.extend(ctx.request_or_wait(action));
        }
    }

    /// Makes a pass due soon.
    pub fn schedule(&mut self, now: Now) {
        self.due = self.due.min(now.mono + DEBOUNCE);
    }

    /// The conditions of a pool about its label and spec; empty while they keep their status.
    #[must_use]
    pub fn pool_statements(&self, pool: &str) -> &[Statement] {
        self.state.pool_statements.get(pool).map(Vec::as_slice).unwrap_or_default()
    }

    /// The condition SpecValid of each class that has one or needs one; none before every first list is complete.
    pub fn class_statements(
        &self,
        snapshot: &Snapshot,
    ) -> impl Iterator<Item = (&String, &ClassFacts, Statement)> {
        let classes = snapshot.is_synced_for_tenancy().then_some(&self.state.classes);
        classes.into_iter().flatten().filter_map(move |(name, class)| {
            Some((
                name,
                class,
                spec_valid(snapshot.invalid_objects(), Kind::EC2NodeClass, name, &class.conditions)?,
            ))
        })
    }

    /// Whether what changes pods is what the settings say; `None` before it is known, and for the default.
    #[must_use]
    pub fn mutation_statement(&self, snapshot: &Snapshot) -> Option<Statement> {
        snapshot.is_synced_for_tenancy().then(|| mutation::statement(&self.state)).flatten()
    }

    /// The tenancy of namespaces, as observed so far.
    pub fn view(&mut self) -> Tenants {
        self.state.view()
    }

    /// Counts for the metrics.
    #[must_use]
    pub const fn counts(&self) -> &TenantCounts {
        &self.counts
    }

    fn count(&mut self, invalid: &InvalidObjects) {
        let state = &self.state;
        let conditions = |tenant: &Tenant| -> Vec<Condition> {
            tenant.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
        };
        let count_of = |counts: &dyn Fn(&[Condition]) -> bool| {
            state.tenants.values().filter(|tenant| counts(&conditions(tenant))).count()
        };
        let lacks = |kind: &'static str| {
            move |conditions: &[Condition]| conditions.iter().any(|c| c.type_ == kind && c.status != "True")
        };
        self.counts = TenantCounts {
            not_isolated: count_of(&lacks(ISOLATED)),
            not_ready: count_of(&lacks(READY)),
            unlimited: count_of(&|conditions| is_true(conditions, UNLIMITED)),
            violations: state.violations.clone(),
            invalid_objects: invalid.counts(),
        };
    }
}
