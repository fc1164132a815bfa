//! A simulated cloud on a free port of loopback, and a provider for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use aws_sdk_ec2::config::{BehaviorVersion, Region, retry::RetryConfig};
use croft_api::{
    EC2NodeClass, EC2NodeClassSpec,
    nodeclass::{AmiSelectorTerm, SelectorTerm},
};
use croft_cloud::{CloudProvider, LaunchError, LaunchRequest, Launched};
use croft_cloud_aws::{Access, AwsProvider, Keys, Options};
use croft_ec2_sim::{
    server::{Simulator, router},
    world::{Settings, World},
};
use croft_runtime::clock::{Clock, SystemClock};
use croft_scheduler::{CapacityType, Resources};
use k8s_openapi::api::core::v1::Taint;
use tokio::task::JoinHandle;

pub(crate) const UID: &str = "11111111-2222-3333-4444-555555555555";

/// Ended by the test.
pub(crate) struct Bed {
    pub(crate) simulator: Arc<Simulator>,
    pub(crate) provider: Arc<AwsProvider>,
    pub(crate) url: String,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Bed {
    /// With few types, which is faster.
    pub(crate) async fn new() -> Self {
        Self::with(few_types()).await
    }

    /// On virtual time, which only the test advances.
    pub(crate) async fn with(settings: Settings) -> Self {
        let start = u64::try_from(SystemClock.wall().as_millisecond()).unwrap();
        let (simulator, _) = Simulator::on_virtual_time(settings, start);
        Self::around(simulator).await
    }

    /// On an existing simulator.
    pub(crate) async fn around(simulator: Arc<Simulator>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = router(Arc::clone(&simulator));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let provider = AwsProvider::connect(options(&url)).await;
        Self { simulator, provider, url, tasks: vec![server] }
    }

    /// The SDK itself, for tests of the simulator.
    pub(crate) fn ec2(&self) -> aws_sdk_ec2::Client {
        ec2(&self.url)
    }

    /// A provider on a clock that the test advances.
    pub(crate) async fn on(&self, clock: Arc<Ahead>) -> Arc<AwsProvider> {
        AwsProvider::connect_on(options(&self.url), clock).await
    }

    /// Another provider for the same cloud, as after a restart.
    pub(crate) async fn restarted(&self) -> Arc<AwsProvider> {
        AwsProvider::connect(options(&self.url)).await
    }

    pub(crate) fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.simulator.with(act)
    }

    pub(crate) fn control(&self, json: &str) {
        let control = serde_json::from_str(json).unwrap();
        self.world(|world| world.control(control)).unwrap();
    }

    pub(crate) fn calls(&self, action: &str) -> u64 {
        self.world(|world| world.calls().get(action).copied().unwrap_or(0))
    }

    /// Prepares and launches.
    pub(crate) async fn launch(&self, request: &LaunchRequest) -> Result<Launched, LaunchError> {
        let prepared = self.provider.prepare(request).await?;
        self.provider.launch(&prepared).await
    }
}

/// A real clock plus what a test adds.
#[derive(Debug, Default)]
pub(crate) struct Ahead(AtomicU64);

impl Ahead {
    pub(crate) fn move_on(&self, by: Duration) {
        self.0.fetch_add(by.as_secs(), Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

impl Clock for Ahead {
    fn monotonic(&self) -> std::time::Instant {
        SystemClock.monotonic() + self.ahead()
    }

    fn wall(&self) -> jiff::Timestamp {
        SystemClock.wall() + self.ahead()
    }
}

/// An EC2 client of `url` with a single attempt.
pub(crate) fn ec2(url: &str) -> aws_sdk_ec2::Client {
    let credentials = Credentials::new("AKIDTEST", "secret", None, None, "test");
    aws_sdk_ec2::Client::from_conf(
        aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(url)
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::disabled())
            .build(),
    )
}

/// An account whose region has few types.
pub(crate) fn few_types() -> Settings {
    let types = ["m5*", "c5*", "m6g.*", "p4d.*"].map(str::to_owned).to_vec();
    Settings { types, ..Settings::default() }
}

pub(crate) fn options(url: &str) -> Options {
    Options {
        access: Access {
            region: Some("us-east-1".to_owned()),
            endpoint_url: Some(url.to_owned()),
            keys: Some(Keys { id: "AKIDTEST".to_owned(), secret: "secret".to_owned() }),
            attempts: 1,
            ..Access::default()
        },
        cluster_uid: UID.to_owned(),
        cluster_name: "croft".to_owned(),
        interruption_queue: Some("croft".to_owned()),
        ..Options::default()
    }
}

pub(crate) fn spec() -> EC2NodeClassSpec {
    let discovery = SelectorTerm {
        tags: BTreeMap::from([("croft.dev/discovery".to_owned(), "croft".to_owned())]),
        ..SelectorTerm::default()
    };
    EC2NodeClassSpec {
        ami_selector_terms: vec![AmiSelectorTerm {
            alias: Some("al2023@latest".to_owned()),
            ..AmiSelectorTerm::default()
        }],
        role: Some("croft-node".to_owned()),
        subnet_selector_terms: vec![discovery.clone()],
        security_group_selector_terms: vec![discovery],
        tags: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        ..EC2NodeClassSpec::default()
    }
}

pub(crate) fn class(spec: EC2NodeClassSpec) -> EC2NodeClass {
    EC2NodeClass::new("default", spec)
}

pub(crate) fn request(types: &[&str], capacity_type: CapacityType) -> LaunchRequest {
    LaunchRequest {
        claim_name: "pool-a-1".to_owned(),
        claim_uid: "claim-uid-1".to_owned(),
        pool: "pool-a".to_owned(),
        tenant: Some("tenant-a".to_owned()),
        attempt: 1,
        class: Arc::new(class(spec())),
        instance_types: types.iter().map(|t| (*t).to_owned()).collect(),
        zones: Vec::new(),
        capacity_type,
        requests: Resources::new(),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        taints: vec![Taint {
            key: "node-pool".to_owned(),
            value: Some("pool-a".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        }],
        tags: BTreeMap::new(),
    }
}
