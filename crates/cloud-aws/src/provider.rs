//! The provider's state: clients, caches, and what launches have shown.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_sdk_sts::operation::get_caller_identity::GetCallerIdentityOutput;
use croft_cloud::CloudError;
use croft_runtime::clock::{Clock, SystemClock};

use crate::{
    batches::Batches,
    cache::Cache,
    connect::{self, Access, Clients},
    discovery::{ClusterFacts, Group, Images, Reservation, Subnet},
    health::{self, Health},
    memory::Memory,
    pace::Paces,
    prices::{self, OnDemand, Spot},
    refusal,
    types::{self, Types},
};

/// Interval at which caches are checked for entries that expire soon.
const REFRESH: Duration = Duration::from_secs(60);

/// Configuration of the provider.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Region, endpoint and credentials.
    pub access: Access,
    /// UID of the cluster's kube-system namespace, which tags everything that is created.
    pub cluster_uid: String,
    /// Name of the cluster.
    pub cluster_name: String,
    /// The API server's address for nodes. With `cluster_ca`, EKS isn't called.
    pub cluster_endpoint: Option<String>,
    /// The API server's CA for nodes, in PEM.
    pub cluster_ca: Option<String>,
    /// Network of Services; needed by AL2023 nodes of a self-managed cluster.
    pub service_cidr: Option<String>,
    /// Kubernetes version, such as `1.36`, if EKS isn't called.
    pub kubernetes_version: Option<String>,
    /// Name of the SQS queue with interruption messages.
    pub interruption_queue: Option<String>,
    /// True if the network plugin assigns prefixes instead of single addresses.
    pub prefix_delegation: bool,
}

/// The caller's identity, account and region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The account.
    pub account: String,
    /// The partition, such as `aws` or `aws-cn`.
    pub partition: String,
    /// The region.
    pub region: String,
    /// The user or role.
    pub arn: String,
}

impl Identity {
    pub(crate) fn read(answer: &GetCallerIdentityOutput, region: &str) -> Self {
        let arn = answer.arn().unwrap_or_default().to_owned();
        Self {
            account: answer.account().unwrap_or_default().to_owned(),
            partition: arn.split(':').nth(1).unwrap_or_default().to_owned(),
            region: region.to_owned(),
            arn,
        }
    }
}

/// Croft's CloudProvider for Amazon EC2.
#[derive(Debug)]
pub struct AwsProvider {
    pub(crate) options: Options,
    pub(crate) clients: Clients,
    pub(crate) paces: Paces,
    pub(crate) batches: Batches,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) subnets: Cache<String, Vec<Subnet>>,
    pub(crate) groups: Cache<String, Vec<Group>>,
    pub(crate) images: Cache<String, Images>,
    pub(crate) reservations: Cache<String, Vec<Reservation>>,
    pub(crate) cluster: Cache<(), ClusterFacts>,
    pub(crate) profiles: Cache<String, String>,
    pub(crate) types: Cache<(), Types>,
    pub(crate) on_demand: Cache<(), OnDemand>,
    pub(crate) spot: Cache<(), Spot>,
    pub(crate) queue: Cache<(), String>,
    pub(crate) health: Cache<(), Health>,
    pub(crate) memory: Mutex<Memory>,
}

/// The clock, and when the provider started on it.
pub(crate) struct Stopwatch {
    pub(crate) clock: Arc<dyn Clock>,
    started: std::time::Instant,
}

impl std::fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopwatch").field("started", &self.started).finish_non_exhaustive()
    }
}

impl AwsProvider {
    /// Reads configuration and credentials, and refreshes types and prices until it is dropped. Nothing here can fail:
    /// the classes' conditions show what can't be reached.
    pub async fn connect(options: Options) -> Arc<Self> {
        Self::connect_on(options, Arc::new(SystemClock)).await
    }

    /// [`AwsProvider::connect`] with another clock.
    pub async fn connect_on(options: Options, clock: Arc<dyn Clock>) -> Arc<Self> {
        let clients = connect::connect(&options.access).await;
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let provider = Arc::new(Self {
            clients,
            paces: Paces::default(),
            batches: Batches::default(),
            stopwatch: Stopwatch { started: clock.monotonic(), clock },
            subnets: Cache::new(minutes(1)),
            groups: Cache::new(minutes(5)),
            images: Cache::new(minutes(5)),
            reservations: Cache::new(minutes(1)),
            cluster: Cache::new(minutes(15)),
            profiles: Cache::new(minutes(60)),
            types: Cache::new(minutes(12 * 60)),
            on_demand: Cache::new(minutes(12 * 60)),
            spot: Cache::new(minutes(5)),
            queue: Cache::new(minutes(60)),
            health: Cache::new(health::ASK_EVERY),
            memory: Mutex::new(Memory::default()),
            options,
        });
        let weak = Arc::downgrade(&provider);
        tokio::spawn(async move {
            while let Some(provider) = weak.upgrade() {
                provider.refresh().await;
                drop(provider);
                tokio::time::sleep(REFRESH).await;
            }
        });
        provider
    }

    /// Refreshes answers before they expire, so that a launch never waits for a thousand prices.
    async fn refresh(&self) {
        let _ = self.types.refresh(&(), REFRESH, types::types(&self.clients, &self.paces)).await;
        let _ = self.on_demand.refresh(&(), REFRESH, prices::on_demand(&self.clients, &self.paces)).await;
        let now = self.stopwatch.clock.wall().as_second();
        let _ = self.spot.refresh(&(), REFRESH, prices::spot(&self.clients, &self.paces, now)).await;
    }

    /// Time since the start, for unavailable offerings.
    pub(crate) fn now(&self) -> Duration {
        self.stopwatch.clock.monotonic().saturating_duration_since(self.stopwatch.started)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identity of the credentials.
    ///
    /// # Errors
    /// If AWS can't be reached, or refuses.
    pub async fn identity(&self) -> Result<Identity, CloudError> {
        self.paces.read.turn().await;
        let answer = self.clients.sts.get_caller_identity().send().await;
        let answer = self
            .paces
            .read
            .record("GetCallerIdentity", answer)
            .map_err(|fault| refusal::refused("learn who is calling", fault))?;
        Ok(Identity::read(&answer, &self.clients.region))
    }
}
