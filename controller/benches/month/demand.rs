//! The load of each step, with the lower bound of its cost: the same for every policy that plays it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use croft_scheduler::{Cluster, InstanceType, Options, Pool, solve};
use croft_simkit::Workload;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::load::{Deployment, Load};

/// Between two changes of the load.
pub const STEP: Duration = Duration::from_secs(15 * 60);

/// The load until the next step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Replicas of each Deployment.
    pub wanted: Vec<u64>,
    /// The bound of a cluster with so many replicas, in dollars per hour.
    pub least: f64,
}

/// The load of some days.
#[derive(Debug)]
pub struct Demand {
    /// Without replicas.
    pub workloads: Vec<Workload>,
    pub pools: Vec<String>,
    pub types: Arc<[InstanceType]>,
    pub steps: Vec<Step>,
}

impl Demand {
    pub fn new(mut load: Load, types: Arc<[InstanceType]>, days: u64) -> Self {
        let mut bounds = Bounds::new(&load, &types);
        let steps = (0..days * 86_400 / STEP.as_secs()).map(|step| {
            let wanted = load.at(step * STEP.as_secs() / 60);
            let least = bounds.least(&load, &wanted);
            Step { wanted, least }
        });
        let steps = steps.collect();
        Self { workloads: load.workloads().collect(), pools: load.pools().to_vec(), types, steps }
    }
}

struct Bounds {
    /// Every pool, and nothing else.
    empty: Cluster,
    /// The bound of one pool by its replicas; a day's curve comes back the next day.
    known: HashMap<(String, Vec<u64>), f64>,
}

impl Bounds {
    fn new(load: &Load, types: &Arc<[InstanceType]>) -> Self {
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
        Self { empty, known: HashMap::new() }
    }

    /// The bound of a cluster with so many replicas, in dollars per hour.
    fn least(&mut self, load: &Load, wanted: &[u64]) -> f64 {
        let mut own: BTreeMap<&String, Vec<(&Deployment, u64)>> = BTreeMap::new();
        for (deployment, count) in load.deployments.iter().zip(wanted.iter().copied()) {
            own.entry(&deployment.pool).or_default().push((deployment, count));
        }
        let bounds = own.into_iter().map(|(pool, own)| {
            let key = (pool.clone(), own.iter().map(|(_, count)| *count).collect());
            let empty = &self.empty;
            *self.known.entry(key).or_insert_with(|| bound(empty.clone(), pool, &own))
        });
        bounds.sum()
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
