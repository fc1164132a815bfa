//! The controller's settings, with their defaults.

use std::time::Duration;

/// Times and sizes that deciders use.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace that Croft is installed in.
    pub namespace: String,
    /// A batch is planned when no pod has arrived for this long.
    pub batch_idle: Duration,
    /// A batch is planned this long after its first pod at the latest.
    pub batch_max: Duration,
    /// Effort of the search for a cheap plan; 0 is first-fit-decreasing alone.
    pub effort: u32,
    /// A claim without an instance is deleted after this long.
    pub launch_timeout: Duration,
    /// An instance whose node hasn't registered is terminated after this long.
    pub registration_timeout: Duration,
    /// A pool whose nodes don't register launches nothing for this long, and twice as long after every further
    /// round.
    pub launch_backoff: Duration,
    /// Rounds of launches without a registered node that a pool may have in an hour.
    pub unregistered_launches_per_hour: u32,
    /// Between two lists of the cloud's instances.
    pub list_instances_every: Duration,
    /// Between two resolutions of a class.
    pub resolve_every: Duration,
    /// Between two lists of a class's offerings.
    pub offers_every: Duration,
    /// Between two removals of unused launch templates and profiles.
    pub sweep_every: Duration,
    /// Age at which an instance without a claim, or a claim without an instance, counts as orphaned.
    pub orphan_grace: Duration,
    /// How long a cordoned empty node is watched for pods that were bound before the cordon.
    pub cordon_delay: Duration,
    /// Between two searches for a cheaper cluster.
    pub consolidate_every: Duration,
    /// Between two status writes of one pool.
    pub status_every: Duration,
    /// Between two reconcile passes at least; only a simulation of weeks has a reason for a longer pause.
    pub shortest_pause: Duration,
    /// The age of pods in their disruption cost, in percent of their age; only a bench that looks for other points of
    /// cost against evictions has a reason for another value.
    pub pod_age_percent: u64,
    /// Pods that have started within this time cost more to move; none if the preference of their pool says it. Only a
    /// bench has a reason for a value.
    pub pod_rest: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: croft_policy::model::DEFAULT_NAMESPACE.to_owned(),
            batch_idle: Duration::from_millis(100),
            batch_max: Duration::from_secs(1),
            effort: 1,
            launch_timeout: Duration::from_secs(300),
            registration_timeout: Duration::from_secs(900),
            launch_backoff: Duration::from_secs(30),
            unregistered_launches_per_hour: 10,
            list_instances_every: Duration::from_secs(60),
            resolve_every: Duration::from_secs(300),
            offers_every: Duration::from_secs(60),
            sweep_every: Duration::from_secs(600),
            orphan_grace: Duration::from_secs(120),
            cordon_delay: Duration::from_secs(1),
            consolidate_every: Duration::from_secs(10),
            status_every: Duration::from_secs(3),
            shortest_pause: Duration::from_millis(2),
            pod_age_percent: 100,
            pod_rest: None,
        }
    }
}
