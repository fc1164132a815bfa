//! Launch holds: what templates of pools may not launch for now, because nodes launched before didn't come.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use croft_api::TenantPool;
use croft_cloud::pool_types;
use croft_scheduler::InstanceType;

use super::{
    records::{LaunchHold, LaunchHolds},
    snapshot::Snapshot,
    views::is_accepted,
};

impl Snapshot {
    /// Replaces all launch holds by `held`.
    pub fn set_launch_holds(&mut self, held: LaunchHolds) {
        if held == self.launch_holds {
            return;
        }
        let before = std::mem::replace(&mut self.launch_holds, held);
        let pools: BTreeSet<String> = before.keys().chain(self.launch_holds.keys()).cloned().collect();
        for pool in pools {
            if before.get(&pool) != self.launch_holds.get(&pool) {
                self.update_cluster_pool(&pool);
            }
        }
    }

    /// A launch has found no capacity: the claim's template rests until `until`, so that its pods go to the next one.
    pub fn rest_template(&mut self, claim: &str, until: Duration) {
        let Some(claim) = self.claims.get(claim) else { return };
        if let Some(template) = claim.template() {
            let key = (claim.spec.pool.clone(), template.to_owned());
            self.resting_templates.insert(key, until);
        }
    }

    /// The templates that rest, by pool and name, each with the end of its rest. Forgets those that are over.
    pub fn resting_templates(&mut self, now: Duration) -> Vec<(String, String, Duration)> {
        self.resting_templates.retain(|_, until| *until > now);
        let all = self.resting_templates.iter();
        all.map(|((pool, template), until)| (pool.clone(), template.clone(), *until)).collect()
    }

    /// The launch hold of a pool's template; the only one of a pool has an empty name.
    #[must_use]
    pub fn launch_hold(&self, pool: &str, template: &str) -> Option<&LaunchHold> {
        self.launch_holds.get(pool)?.get(template)
    }

    /// How many pools have a launch hold.
    #[must_use]
    pub fn pools_with_launch_hold(&self) -> usize {
        self.launch_holds.len()
    }

    /// The instance types that a pool with one kind of node may launch now: those of its class, without the offerings on hold and
    /// those in closed zones. A pool that isn't accepted may launch none: its nodes would be open to non-tenant pods.
    #[must_use]
    pub fn launchable_types(&self, name: &str, pool: &TenantPool) -> Arc<[InstanceType]> {
        let class =
            self.class_of(pool).filter(|_| is_accepted(pool)).and_then(|class| self.classes.get(class));
        let types = class.and_then(|class| class.types.clone()).unwrap_or_default();
        let types = match self.class_of(pool) {
            Some(class) => self.less_reserved(class, types),
            None => types,
        };
        let types = if self.closed_zones.is_empty() {
            types
        } else {
            pool_types::outside(&types, |zone| self.closed_zones.contains_key(zone))
        };
        let hold = self.launch_hold(name, pool.template_name().unwrap_or_default());
        let Some(hold) = hold.filter(|hold| hold.rests || !hold.offerings.is_empty()) else { return types };
        let mut types = types.to_vec();
        if hold.rests {
            let offerings = types.iter_mut().flat_map(|it| &mut it.offerings);
            offerings.for_each(|offering| offering.available = false);
        }
        for (kind, zone, capacity_type) in &hold.offerings {
            for it in types.iter_mut().filter(|it| it.name == *kind) {
                for offering in &mut it.offerings {
                    let same = offering.zone == *zone && offering.capacity_type == *capacity_type;
                    offering.available &= !same;
                }
            }
        }
        types.into()
    }
}
