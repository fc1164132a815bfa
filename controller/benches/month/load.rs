//! How many pods everybody wants, by the hour.

use crate::chance::Chance;

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

/// Everybody's load.
#[derive(Debug)]
pub struct Load {
    pub deployments: Vec<Deployment>,
    pools: Vec<String>,
    chance: Chance,
}

impl Load {
    /// Tenants of about 20 pods, or `size` times as many.
    pub fn new(tenants: u64, size: u64, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let pools: Vec<String> = (0..tenants).map(|n| format!("tenant-{n:02}")).collect();
        let mut deployments = Vec::new();
        for pool in &pools {
            for n in 0..DEPLOYMENTS {
                let mut pick = |list: &[i64; 6]| list[usize::try_from(chance.below(6)).unwrap()];
                let (cpu_millis, memory_mi) = (pick(&CPUS), pick(&MEMORIES));
                deployments.push(Deployment {
                    pool: pool.clone(),
                    app: format!("{pool}-app-{n}"),
                    cpu_millis,
                    memory_mi,
                    night: size * (2 + chance.below(5)),
                    more_by_day: size * (4 + chance.below(12)),
                    shift_hours: chance.below(24),
                });
            }
        }
        Self { deployments, pools, chance }
    }

    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// Replicas of each Deployment at a minute: a half sine over the day, and some noise.
    pub fn at(&mut self, minute: u64) -> Vec<u64> {
        let chance = &mut self.chance;
        let wanted = self.deployments.iter().map(|d| {
            let hour = (minute as f64 / 60.0 + d.shift_hours as f64) % 24.0;
            let sine = (hour / 24.0 * std::f64::consts::TAU).sin().max(0.0);
            let noise = if chance.below(20) == 0 { chance.below(3) } else { 0 };
            d.night + (d.more_by_day as f64 * sine).round() as u64 + noise
        });
        wanted.collect()
    }
}
