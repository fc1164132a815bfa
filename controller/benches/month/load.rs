//! How many pods each Deployment wants, by the hour.

use croft_simkit::{Random, Workload};

const CPUS: [i64; 6] = [250, 500, 900, 1000, 1500, 2000];
const MEMORIES: [i64; 6] = [512, 1024, 2048, 3100, 4096, 8192];
const DEPLOYMENTS: u64 = 3;

/// A Deployment, and how its load goes through the day.
#[derive(Clone, Debug)]
pub struct Deployment {
    pub pool: String,
    pub app: String,
    pub cpu_millis: i64,
    pub memory_mi: i64,
    night: u64,
    more_by_day: u64,
    shift_hours: u64,
}

/// The load of all tenants.
#[derive(Debug)]
pub struct Load {
    pub deployments: Vec<Deployment>,
    pools: Vec<String>,
    random: Random,
}

impl Load {
    /// Tenants of about 20 pods, or `size` times as many.
    pub fn new(tenants: u64, size: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let pools: Vec<String> = (0..tenants).map(|n| format!("tenant-{n:02}")).collect();
        let mut deployments = Vec::new();
        for pool in &pools {
            for n in 0..DEPLOYMENTS {
                let mut pick = |list: &[i64; 6]| list[random.index(6)];
                let (cpu_millis, memory_mi) = (pick(&CPUS), pick(&MEMORIES));
                deployments.push(Deployment {
                    pool: pool.clone(),
                    app: format!("{pool}-app-{n}"),
                    cpu_millis,
                    memory_mi,
                    night: size * (2 + random.below(5)),
                    more_by_day: size * (4 + random.below(12)),
                    shift_hours: random.below(24),
                });
            }
        }
        Self { deployments, pools, random }
    }

    /// The Deployments, without replicas yet. One pod of each may be evicted at a time.
    pub fn workloads(&self) -> impl Iterator<Item = Workload> {
        self.deployments.iter().map(|deployment| Workload {
            namespace: deployment.pool.clone(),
            app: deployment.app.clone(),
            pool: deployment.pool.clone(),
            replicas: 0,
            cpu_millis: deployment.cpu_millis,
            memory_mi: deployment.memory_mi,
            max_unavailable: Some(1),
            ..Workload::default()
        })
    }

    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// Replicas of each Deployment at a minute: a half sine over the day, and some noise.
    pub fn at(&mut self, minute: u64) -> Vec<u64> {
        let random = &mut self.random;
        let wanted = self.deployments.iter().map(|d| {
            let hour = (minute as f64 / 60.0 + d.shift_hours as f64) % 24.0;
            let sine = (hour / 24.0 * std::f64::consts::TAU).sin().max(0.0);
            let noise = if random.below(20) == 0 { random.below(3) } else { 0 };
            d.night + (d.more_by_day as f64 * sine).round() as u64 + noise
        });
        wanted.collect()
    }
}
