//! What pools may not launch for now, because nodes launched before didn't register.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::TenantPool;
use croft_scheduler::{CapacityType, InstanceType};

use super::{Snapshot, coming::is_accepted};

/// What one pool may not launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Why it launches nothing at all.
    pub why: Option<String>,
    /// Instance types, by zone and capacity type, that are left out.
    pub offerings: BTreeSet<(String, String, CapacityType)>,
}

impl Snapshot {
    /// Holds back what `held` says, and nothing else.
    pub fn hold(&mut self, held: BTreeMap<String, Held>) {
        if held == self.held {
            return;
        }
        let before = std::mem::replace(&mut self.held, held);
        let pools: BTreeSet<String> = before.keys().chain(self.held.keys()).cloned().collect();
        for pool in pools {
            if before.get(&pool) != self.held.get(&pool) {
                self.feed_pool(&pool);
            }
        }
    }

    /// What a pool may not launch now.
    #[must_use]
    pub fn held(&self, pool: &str) -> Option<&Held> {
        self.held.get(pool)
    }

    /// How many pools may not launch all that they otherwise would.
    #[must_use]
    pub fn held_pools(&self) -> usize {
        self.held.len()
    }

    /// What a pool may choose from now: what its class offers, without the offerings that are left out. A pool that isn't
    /// accepted has no instance type to launch: its nodes would be open to non-tenant pods.
    #[must_use]
    pub fn types_of(&self, name: &str, pool: &TenantPool) -> Arc<[InstanceType]> {
        let class =
            self.class_of(pool).filter(|_| is_accepted(pool)).and_then(|class| self.classes.get(class));
        let types = class.and_then(|class| class.types.clone()).unwrap_or_default();
        let Some(left_out) = self.held.get(name).map(|held| &held.offerings).filter(|out| !out.is_empty())
        else {
            return types;
        };
        let mut types = types.to_vec();
        for (kind, zone, capacity_type) in left_out {
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
