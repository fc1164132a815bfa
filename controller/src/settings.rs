//! What the controller may be told, with its defaults.

use std::time::Duration;

/// Times and sizes that decisions use.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A batch is planned when no pod has come for this long.
    pub batch_idle: Duration,
    /// A batch is planned this long after its first pod at the latest.
    pub batch_max: Duration,
    /// How much harder to search for a cheap plan; 0 is first-fit-decreasing alone.
    pub effort: u32,
    /// A claim without a machine for this long is given up.
    pub launch_timeout: Duration,
    /// A machine whose node hasn't registered for this long is given back.
    pub registration_timeout: Duration,
    /// A pool whose nodes don't register launches nothing for this long, and twice as long with every further round.
    pub launch_backoff: Duration,
    /// How many rounds of launches without a registered node a pool may have in an hour.
    pub unregistered_per_hour: u32,
    /// Between two looks at the machines in the cloud.
    pub machines_every: Duration,
    /// Between two looks at what a class names.
    pub resolve_every: Duration,
    /// Between two looks at what the cloud offers.
    pub offers_every: Duration,
    /// Between two removals of what launches left behind.
    pub sweep_every: Duration,
    /// How old a machine without a claim, or a claim without a machine, must be to count as lost.
    pub orphan_grace: Duration,
    /// How long a cordoned empty node is watched for pods that were bound meanwhile.
    pub settle: Duration,
    /// Between two searches for a cheaper cluster.
    pub consolidate_every: Duration,
    /// A machine whose node hasn't been Ready for this long is given back.
    pub repair_after: Duration,
    /// Between two status writes of one pool.
    pub status_every: Duration,
    /// Between two rounds of decisions at least; only a simulation of weeks has reason to be slower.
    pub shortest_pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_idle: Duration::from_millis(100),
            batch_max: Duration::from_secs(1),
            effort: 1,
            launch_timeout: Duration::from_secs(300),
            registration_timeout: Duration::from_secs(900),
            launch_backoff: Duration::from_secs(30),
            unregistered_per_hour: 10,
            machines_every: Duration::from_secs(60),
            resolve_every: Duration::from_secs(300),
            offers_every: Duration::from_secs(60),
            sweep_every: Duration::from_secs(600),
            orphan_grace: Duration::from_secs(120),
            settle: Duration::from_secs(1),
            consolidate_every: Duration::from_secs(10),
            repair_after: Duration::from_secs(1_800),
            status_every: Duration::from_secs(3),
            shortest_pause: Duration::from_millis(2),
        }
    }
}
