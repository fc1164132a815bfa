//! Tenants that are absent, perhaps for a moment. Decisions that follow from an absence wait until it is confirmed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_policy::{NamespaceTenancy, Tenants};

/// The absence of a Tenant is confirmed after this time. `kubectl replace --force` recreates it within seconds, a
/// file with a CRD and its objects within a minute.
pub(super) const ABSENCE_CONFIRMED_AFTER: Duration = Duration::from_secs(60);

/// Tenants that are absent, or may be.
#[derive(Debug, Default)]
pub struct Absences {
    /// The time when the facts were complete for the first time: a Tenant that is missing then may be absent for a
    /// moment.
    begun: Option<Duration>,
    tenants: BTreeMap<String, Absence>,
}

#[derive(Debug)]
struct Absence {
    /// Set by the first decision after the deletion.
    since: Option<Duration>,
    /// The namespaces of the tenant.
    namespaces: BTreeSet<String>,
}

impl Absences {
    /// Records the deletion of a Tenant with these namespaces.
    pub(super) fn begin(&mut self, tenant: &str, namespaces: BTreeSet<String>) {
        self.tenants.insert(tenant.to_owned(), Absence { since: None, namespaces });
    }

    /// Records that the Tenant exists.
    pub(super) fn end(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }

    /// Forgets absences that are confirmed at `mono` on the monotonic clock.
    pub(super) fn confirm(&mut self, mono: Duration) {
        self.begun.get_or_insert(mono);
        for absent in self.tenants.values_mut() {
            absent.since.get_or_insert(mono);
        }
        let lasts = |since: Duration| mono.saturating_sub(since) < ABSENCE_CONFIRMED_AFTER;
        self.tenants.retain(|_, absent| absent.since.is_none_or(lasts));
    }

    /// Returns true if the tenancy of `namespace` may depend on an absence that isn't confirmed.
    pub(super) fn may_affect(&self, view: &Tenants, namespace: &str, mono: Duration) -> bool {
        let starting = self.begun.is_none_or(|begun| mono.saturating_sub(begun) < ABSENCE_CONFIRMED_AFTER);
        starting && matches!(view.tenancy(namespace), NamespaceTenancy::NonTenant)
            || self.tenants.values().any(|absent| absent.namespaces.contains(namespace))
    }
}
