//! Pools that are searched together: those that some tenant uses together, directly or over other tenants.

use std::collections::{BTreeMap, BTreeSet};

use croft_manifest::Input;
use kube::ResourceExt as _;

/// Pools by part. A part is named by its first pool.
pub(super) struct Parts {
    of_pool: BTreeMap<String, String>,
}

impl Parts {
    pub(super) fn new(input: &Input) -> Self {
        let mut of_pool: BTreeMap<String, String> =
            input.pools.iter().map(|pool| (pool.name_any(), pool.name_any())).collect();
        for tenant in &input.tenants {
            let own: BTreeSet<String> =
                tenant.spec.pools.iter().filter_map(|pool| of_pool.get(pool).cloned()).collect();
            if let Some(first) = own.first() {
                for part in of_pool.values_mut().filter(|part| own.contains(part.as_str())) {
                    part.clone_from(first);
                }
            }
        }
        Self { of_pool }
    }

    /// The part of a pool.
    pub(super) fn of(&self, pool: &str) -> Option<&str> {
        self.of_pool.get(pool).map(String::as_str)
    }

    /// The pools of a part; every pool for none.
    pub(super) fn pools(&self, part: Option<&str>) -> BTreeSet<String> {
        let own = |(_, of): &(&String, &String)| part.is_none_or(|part| part == of.as_str());
        self.of_pool.iter().filter(own).map(|(pool, _)| pool.clone()).collect()
    }
}
