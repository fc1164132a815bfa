//! Schedules of pools: the snapshot has each pool as its schedules make it now.

use std::{sync::Arc, time::Duration};

use croft_api::{TenantPool, schedule::PoolInForce};
use kube::ResourceExt;

use super::{records::ScheduledPool, snapshot::Snapshot};
use crate::time::Now;

impl Snapshot {
    /// The schedules of a pool that has some.
    #[must_use]
    pub fn schedules_of(&self, pool: &str) -> Option<&ScheduledPool> {
        self.scheduled.get(pool)
    }

    /// A pool as it is declared.
    #[must_use]
    pub fn declared_pool(&self, name: &str) -> Option<&Arc<TenantPool>> {
        self.scheduled.get(name).map(|pool| &pool.declared).or_else(|| self.pools.get(name))
    }

    /// The pool as its schedules make it now.
    pub(super) fn under_schedules(&mut self, pool: TenantPool, now: Now) -> TenantPool {
        let name = pool.name_any();
        if pool.spec.schedules.is_empty() {
            self.scheduled.remove(&name);
            return pool;
        }
        let (in_force, schedule, until) = match pool.in_force(now.wall) {
            Ok(PoolInForce { pool, schedule, until }) => (pool.into_owned(), schedule, until),
            // A pool whose schedules can't be read is invalid: what was valid before it stands in for it.
            Err(_) => (pool.clone(), None, None),
        };
        let declared = Arc::new(pool);
        self.scheduled.insert(name, ScheduledPool { declared, in_force: schedule, since: now.wall, until });
        in_force
    }

    /// Ends schedules that are over and begins those whose time has come, also where the clock was set back. Returns when the next one
    /// begins or ends.
    pub fn apply_schedules(&mut self, now: Now) -> Option<Duration> {
        let is_due = |pool: &&ScheduledPool| {
            pool.until.is_some_and(|until| until <= now.wall || now.wall < pool.since)
        };
        let due: Vec<_> =
            self.scheduled.values().filter(is_due).map(|pool| TenantPool::clone(&pool.declared)).collect();
        for pool in due {
            self.changes += 1;
            self.take_in_pool(pool, now);
        }
        let next = self.scheduled.values().filter_map(|pool| pool.until).min()?;
        let wait = Duration::try_from(next.duration_since(now.wall)).unwrap_or(Duration::ZERO);
        Some(now.mono.saturating_add(wait))
    }
}
