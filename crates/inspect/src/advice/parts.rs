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
        let mut members: BTreeMap<String, Vec<String>> =
            of_pool.keys().map(|pool| (pool.clone(), vec![pool.clone()])).collect();
        for tenant in &input.tenants {
            let own: BTreeSet<String> =
                input.pools_of_tenant(tenant).filter_map(|pool| of_pool.get(&*pool).cloned()).collect();
            let mut own = own.into_iter();
            let Some(first) = own.next() else { continue };
            for pool in own.filter_map(|other| members.remove(&other)).flatten().collect::<Vec<_>>() {
                of_pool.insert(pool.clone(), first.clone());
                members.entry(first.clone()).or_default().push(pool);
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
