//! The cost of the month, and the lower bound of any cluster's cost.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use croft_scheduler::{Cluster, InstanceType, Options, Pool, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    load::{Deployment, Load},
    meter::Spent,
};

/// Integrals over time, in dollars.
#[derive(Debug)]
pub struct Bill {
    /// Every pool, and nothing else.
    empty: Cluster,
    spent: Spent,
    least: f64,
    /// The bound of one pool by its replicas; a day's curve comes back the next day.
    known: BTreeMap<(String, Vec<u64>), f64>,
}

impl Bill {
    pub fn new(load: &Load, types: &Arc<[InstanceType]>) -> Self {
        let mut empty = Cluster::new();
        for name in load.pools() {
            let pool = Pool {
                name: name.clone(),
                key: "node-pool".to_owned(),
                value: name.clone(),
                instance_types: Arc::clone(types),
                launches: true,
                ..Pool::default()
            };
            empty.upsert_pool(pool).unwrap();
        }
        Self { empty, spent: Spent::default(), least: 0.0, known: BTreeMap::new() }
    }

    /// The bound of a cluster with so many replicas, in dollars per hour.
    pub fn least(&mut self, load: &Load, wanted: &[u64]) -> f64 {
        let mut sum = 0.0;
        for pool in load.pools() {
            let own: Vec<(&Deployment, u64)> = load
                .deployments
                .iter()
                .zip(wanted.iter().copied())
                .filter(|(d, _)| d.pool == *pool)
                .collect();
            let key = (pool.clone(), own.iter().map(|(_, n)| *n).collect());
            let empty = &self.empty;
            sum += *self.known.entry(key).or_insert_with(|| bound(empty.clone(), pool, &own));
        }
        sum
    }

    pub fn add(&mut self, least_per_hour: f64, lasted: Duration, spent: Spent) {
        self.least += least_per_hour * lasted.as_secs_f64() / 3600.0;
        self.spent.paid += spent.paid;
        self.spent.waiting += spent.waiting;
    }

    /// Cost above the bound, as a share of it, with the charge for waiting pods: without it, being late would pay.
    pub fn gap(&self) -> f64 {
        (self.spent.paid + self.spent.waiting) / self.least - 1.0
    }

    /// The same for instances alone.
    pub fn gap_paid(&self) -> f64 {
        self.spent.paid / self.least - 1.0
    }
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spent: Spent { paid, waiting }, least, .. } = self;
        write!(
            f,
            "${paid:.2} paid and ${waiting:.2} charged for waiting pods, at least ${least:.2}, {:.2} % above",
            self.gap() * 100.0
        )
    }
}

fn bound(mut cluster: Cluster, name: &str, wanted: &[(&Deployment, u64)]) -> f64 {
    for (deployment, count) in wanted {
        for n in 0..*count {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": format!("{}-{n}", deployment.app)},
                "spec": {"nodeSelector": {"node-pool": name}, "containers": [{"name": "c", "resources": {"requests": {
                    "cpu": format!("{}m", deployment.cpu_millis), "memory": format!("{}Mi", deployment.memory_mi)}}}]},
            }))
            .unwrap();
            cluster.upsert_pod(&pod).unwrap();
        }
    }
    // The bound doesn't gain by a longer search for a plan.
    let plan = solve(&cluster, &Options { small_plan_steps: 0, ..Options::default() }, &|| false);
    assert!(plan.unschedulable.is_empty(), "{name} has pods that fit nowhere");
    plan.bound.dollars()
}
