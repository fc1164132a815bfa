//! The parameters of the admission policies: annotations of Croft's own Namespace, and what is in force of them.
//!
//! ```text
//!  Rules ──parameters()──▶ annotations of Croft's Namespace ──watch──▶ State ──Probe (dry run)──▶ refused: in force
//! ```
//!
//! A pool is accepted, and a Tenant Ready, only after the API server has refused a probe with the revision that holds
//! them. Another API server may lag behind the one that answered; until it has caught up, the built-in key holds there,
//! which needs no parameter.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_policy::{
    Tenants,
    declarations::{DeclaredPool, DeclaredTenant},
    definitions::{
        POOL_NAME_LABEL,
        parameter::{ALL_POOLS, NON_TENANT_PODS, POOL_KEYS, REVISION, TENANTS},
    },
    policies::parameters::{INACTIVE, claims, names_pool},
};

/// Annotations of Croft's own Namespace by name.
pub type Written = BTreeMap<String, String>;

/// The admission policies and their parameters.
#[derive(Debug, Default)]
pub struct Parameters {
    /// Croft's own namespace.
    pub namespace: String,
    /// The parameters that are written; `None` if the namespace doesn't exist.
    pub written: Option<Written>,
    /// The parameters that were last seen in force by this process.
    pub in_force: Option<Written>,
    /// The version of the mutating policies that the last probe has found acting; `None` if there are none.
    pub mutated_by: Option<String>,
    /// The time of the last answered probe, on the monotonic clock.
    pub probed: Option<Duration>,
    /// The time from which the webhooks ask about every pod, on the monotonic clock; `None` while they don't.
    pub by_webhook: Option<Duration>,
    /// Policies that are missing or of another version.
    pub policies_missing: Vec<String>,
}

impl Parameters {
    /// The keys of pools that are in force, or `None` before the first probe is answered.
    fn keys(&self) -> Option<BTreeSet<&str>> {
        let keys = self.in_force.as_ref()?.get(POOL_KEYS)?;
        Some(keys.split(',').collect())
    }

    /// Returns whether the policies know `pool`; `None` before the first probe is answered. The name counts, too, since pods that
    /// tolerate another pool of the same key are kept off each pool by name.
    #[must_use]
    pub fn pool_in_force(&self, pool: &DeclaredPool) -> Option<bool> {
        let knows_key = &*pool.key == POOL_NAME_LABEL || self.keys()?.contains(&*pool.key);
        let written = self.in_force.as_ref()?.get(ALL_POOLS).map(String::as_str).unwrap_or_default();
        Some(knows_key && names_pool(written, pool))
    }

    /// Returns whether the policies know the claims and pools of `tenant`; `None` before the first probe is
    /// answered.
    #[must_use]
    pub fn tenant_in_force(&self, view: &Tenants, tenant: &DeclaredTenant) -> Option<bool> {
        let in_force = self.in_force.as_ref()?;
        let text = |name: &str| in_force.get(name).map(String::as_str).unwrap_or_default();
        let active = !matches!(text(NON_TENANT_PODS), "" | INACTIVE);
        let claims = claims(tenant);
        let claimed = text(TENANTS).split(';').any(|entry| entry == claims || entry.starts_with("*:"));
        let pools = tenant.pools.iter().filter_map(|(_, id)| view.declarations().pool((*id)?));
        let mut known = pools.map(|pool| self.pool_in_force(pool).unwrap_or(false));
        Some(active && claimed && known.all(|known| known))
    }

    /// Records that the API server has refused the probe of `revision`.
    pub fn confirm(&mut self, revision: &str) {
        let written = self.written.iter().find(|w| w.get(REVISION).is_some_and(|r| r == revision));
        if let Some(written) = written {
            self.in_force = Some(written.clone());
        }
    }
}
