//! Schedules of a pool: times in which it has another size or other limits.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    TenantPool,
    amount::Amount,
    bounds,
    window::{Window, WindowError},
};

/// A time that repeats, and what the pool is in it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.replicas) || has(self.limits) || has(self.headroomPods)", "a schedule says what is otherwise in its time: write replicas, limits or headroomPods"))]
pub struct Schedule {
    /// The times at which it begins: five fields as in crontab (`0 19 * * mon-fri`), or `@daily` and the like.
    #[schemars(schema_with = "bounds::schedule")]
    pub schedule: String,
    /// The time for which it holds from then on: hours and minutes such as `12h`.
    #[schemars(schema_with = "bounds::window")]
    pub duration: String,
    /// The time zone of `schedule`, by its name in the IANA database such as `Europe/Berlin`. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::time_zone")]
    pub time_zone: Option<String>,
    /// The number of nodes in this time, whatever the demand; there is no headroom and no share then. With `0` the nodes are drained and
    /// the pool's pods wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub replicas: Option<i32>,
    /// Limits in this time, each in place of the pool's limit of the same name. They keep nodes from being launched, and remove none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::schedule_limits")]
    pub limits: BTreeMap<String, Amount>,
    /// The number of headroom pods in this time, in place of `headroom.pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000))]
    pub headroom_pods: Option<i32>,
}

impl Schedule {
    fn window(&self) -> Window<'_> {
        Window { schedule: &self.schedule, duration: &self.duration, time_zone: self.time_zone.as_deref() }
    }
}

/// A pool as its schedules make it at some time.
#[derive(Clone, Debug)]
pub struct PoolInForce<'a> {
    /// The pool, with what the schedule says in place of its own fields. It keeps its schedules.
    pub pool: Cow<'a, TenantPool>,
    /// The schedule that holds: the first of those that do.
    pub schedule: Option<usize>,
    /// No schedule begins or ends before this time.
    pub until: Option<Timestamp>,
}

impl TenantPool {
    /// The pool as its schedules make it at `now`.
    ///
    /// # Errors
    /// If a schedule can't be read; with its place.
    pub fn in_force(&self, now: Timestamp) -> Result<PoolInForce<'_>, (usize, WindowError)> {
        let mut found = PoolInForce { pool: Cow::Borrowed(self), schedule: None, until: None };
        for (number, schedule) in self.spec.schedules.iter().enumerate() {
            let state = schedule.window().at(now).map_err(|error| (number, error))?;
            found.until = [found.until, state.until].into_iter().flatten().min();
            if state.is_open && found.schedule.is_none() {
                found.schedule = Some(number);
            }
        }
        if let Some(schedule) = found.schedule.and_then(|number| self.spec.schedules.get(number)) {
            found.pool = Cow::Owned(self.under(schedule));
        }
        Ok(found)
    }

    /// The pool with what `schedule` says in place of its own fields.
    fn under(&self, schedule: &Schedule) -> Self {
        let mut pool = self.clone();
        let spec = &mut pool.spec;
        spec.limits.extend(schedule.limits.iter().map(|(name, amount)| (name.clone(), amount.clone())));
        if let Some(pods) = schedule.headroom_pods {
            spec.headroom = spec.headroom.take().filter(|_| pods > 0);
            if let Some(headroom) = &mut spec.headroom {
                headroom.pods = pods;
            }
        }
        if schedule.replicas.is_some() {
            spec.replicas = schedule.replicas;
            spec.headroom = None;
            spec.shares.clear();
            spec.templates.iter_mut().for_each(|template| template.replicas = None);
        }
        pool
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(schedules: &serde_json::Value) -> TenantPool {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
            "spec": {"limits": {"nodes": 9, "cpu": 40}, "headroom": {"pods": 3, "requests": {"cpu": 1}}, "schedules": schedules,
                "template": {"spec": {"nodeClassRef": {"name": "c"}}}},
        }))
        .unwrap()
    }

    fn at<'a>(pool: &'a TenantPool, now: &str) -> PoolInForce<'a> {
        pool.in_force(now.parse().unwrap()).unwrap()
    }

    #[test]
    fn first_schedule_that_holds_replaces_fields_of_the_pool_until_the_next_change() {
        let pool = pool(&json!([
            {"schedule": "0 20 * * *", "duration": "10h", "replicas": 0},
            {"schedule": "0 18 * * *", "duration": "6h", "limits": {"nodes": 2}, "headroomPods": 1},
            {"schedule": "0 12 * * *", "duration": "1h", "headroomPods": 0},
        ]));
        let noon = at(&pool, "2026-11-20T12:00:00Z");
        assert_eq!((noon.schedule, noon.until), (Some(2), Some("2026-11-20T13:00:00Z".parse().unwrap())));
        assert!(noon.pool.spec.headroom.is_none() && noon.pool.spec.limits == pool.spec.limits);
        let afternoon = at(&pool, "2026-11-20T13:00:00Z");
        assert_eq!(afternoon.schedule, None);
        assert_eq!(*afternoon.pool, pool);
        assert_eq!(afternoon.until, Some("2026-11-20T18:00:00Z".parse().unwrap()));
        let evening = at(&pool, "2026-11-20T18:00:00Z");
        let limits = &evening.pool.spec.limits;
        assert_eq!((limits["nodes"].0.as_str(), limits["cpu"].0.as_str()), ("2", "40"));
        assert_eq!(evening.pool.spec.headroom.as_ref().map(|headroom| headroom.pods), Some(1));
        assert_eq!(evening.until, Some("2026-11-20T20:00:00Z".parse().unwrap()));
        let night = at(&pool, "2026-11-20T21:00:00Z");
        assert_eq!((night.schedule, night.pool.spec.replicas), (Some(0), Some(0)), "the first counts alone");
        assert!(night.pool.spec.headroom.is_none() && night.pool.spec.limits == pool.spec.limits);
    }

    #[test]
    fn pool_without_schedules_never_changes() {
        let pool = pool(&json!([]));
        let found = at(&pool, "2026-11-20T12:00:00Z");
        assert!(matches!(found.pool, Cow::Borrowed(_)) && found.until.is_none());
    }

    #[test]
    fn schedule_that_cannot_be_read_is_named_by_its_place() {
        let hourly = json!({"schedule": "@hourly", "duration": "1m", "replicas": 1});
        let nowhere =
            json!({"schedule": "@hourly", "duration": "1m", "replicas": 1, "timeZone": "Europe/Nowhere"});
        let (number, error) = pool(&json!([hourly, nowhere])).in_force(Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(number, 1);
        assert!(error.to_string().contains("Europe/Nowhere"), "{error}");
    }
}
