//! The process: watches, Lease, metrics, and the loop that drives the engine.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use croft_api::hash::hash;
use croft_cloud::CloudProvider;
use croft_runtime::{
    clock::{Clock, SystemClock},
    connect::connect,
    health::Health,
    kubernetes::require_supported,
    lease::{self, LeaseConfig},
    observe,
    shutdown::Shutdown,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use prometheus_client::registry::Registry;

use crate::{
    cloud_provider,
    config::args::Args,
    drive::Driver,
    executor::Executor,
    identity::{Identity, IdentityCheck},
    kube_api::{KubeApi, KubeClient, leader_gate::LeaderGate, watch},
    metrics::{MeteredApi, Metrics},
    record_store::{
        ClusterStore, RecordStore,
        archive::{Archive, ArchivedStore},
    },
    solver::Solver,
};

/// The controllers' Lease.
const LEASE: &str = croft_policy::model::CONTROLLER_LEASE;
const API_SERVER_RETRY: Duration = Duration::from_secs(1);

/// Runs the controller until `stop` begins.
///
/// # Errors
/// If the cluster or the cloud can't be reached, or the metrics' port is taken.
pub async fn run(args: Args, stop: Shutdown) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let client = connect(args.process.kubeconfig.as_deref()).await?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let health = Health::default();
    let supported = health.gate("kubernetes");
    let known = health.gate("identity");
    let synced = health.gate("synced");
    let observe_stop = Shutdown::new();
    observe::spawn(args.process.health_listen, Arc::new(registry), health, observe_stop.clone()).await?;
    require_supported(&client, &stop, &supported).await?;
    let Some(cluster_uid) = cluster_uid(&client, &stop).await else { return Ok(()) };
    let cloud: Arc<dyn CloudProvider> =
        cloud_provider::connect(&args, &cluster_uid).await.context("failed to connect to the cloud")?;

    let objects = cloud_provider::record_archive(&args).await?;

    let check = IdentityCheck {
        client: client.clone(),
        namespace: args.namespace.clone(),
        cloud: Arc::clone(&cloud),
        own: Identity {
            account: None,
            region: args.aws_region.clone(),
            cluster_name: args.cluster_name.clone(),
            cluster_uid,
            endpoint: args.cluster_endpoint.clone(),
        },
    };
    let Some(check) = check.confirm(&stop, &known).await else { return Ok(()) };
    let _identity = tokio::spawn(check.watch(stop.clone()));

    let identity = args.identity.clone().unwrap_or_else(|| process_name(clock.as_ref()));
    let lease_stop = Shutdown::new();
    let lease = LeaseConfig::new(args.namespace.clone(), LEASE, identity.clone());
    let (leader, election) = lease::elect(client.clone(), lease, Arc::clone(&clock), lease_stop.clone());

    let api = MeteredApi::new(KubeClient::new(client.clone()), metrics.clone()).shared();
    let api: Arc<dyn KubeApi> = Arc::new(LeaderGate::new(api, leader.clone(), Arc::clone(&clock)));
    let cloud: Arc<dyn CloudProvider> = Arc::new(LeaderGate::new(cloud, leader.clone(), Arc::clone(&clock)));
    let slots = ClusterStore::new(Arc::clone(&api), &args.namespace);
    let archive = objects.map(|objects| Arc::new(Archive::new(objects, Arc::clone(&clock))));
    let store: Arc<dyn RecordStore> = match &archive {
        Some(archive) => Arc::new(ArchivedStore::new(slots, Arc::clone(archive))),
        None => Arc::new(slots),
    };
    let executor =
        Executor::new(api, cloud, Arc::clone(&clock), clock.monotonic(), &identity).recording_in(store);
    let (changes, _watches) = watch::watch_all(&client, &args.namespace, &leader.restores());
    let leads = {
        let (leader, clock, metrics) = (leader.clone(), Arc::clone(&clock), metrics.clone());
        move || {
            let leads = leader.is_valid(clock.monotonic());
            metrics.set_leader(leads);
            leads
        }
    };
    let archive_stop = Shutdown::new();
    let archiving = archive.map(|archive| {
        let (leader, clock, metrics) = (leader.clone(), Arc::clone(&clock), metrics.clone());
        let stop = archive_stop.clone();
        tokio::spawn(async move {
            let leads = || leader.is_valid(clock.monotonic());
            archive.keep(leads, |counts| metrics.observe_archive(counts), &stop).await;
        })
    });
    let solver = Solver::default().measured_by(metrics.solve_meter(clock));
    let mut driver = Driver::new(args.settings(), executor, metrics, leads).with_solver(solver);
    driver.drive(changes, stop.wait(), |is| synced.set(is)).await;
    driver.stop().await;
    archive_stop.begin();
    if let Some(archiving) = archiving
        && let Err(error) = archiving.await
    {
        tracing::warn!(%error, "the archive's task failed");
    }
    lease_stop.begin();
    if let Err(error) = election.await {
        tracing::warn!(%error, "the election's task failed");
    }
    observe_stop.begin();
    Ok(())
}

/// A name for this process that no other process ever had.
fn process_name(clock: &dyn Clock) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "croft-controller".to_owned());
    let pid = std::process::id().to_string();
    format!("{host}-{}", hash(&[&host, &pid, &clock.wall().to_string()], 10))
}

/// The uid of the Namespace kube-system identifies the cluster: it exists from the start and never changes.
async fn cluster_uid(client: &Client, stop: &Shutdown) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match namespaces.get("kube-system").await {
            Ok(namespace) => return namespace.metadata.uid,
            Err(error) => tracing::warn!(%error, "failed to read Namespace kube-system, retrying"),
        }
        tokio::select! {
            () = stop.wait() => return None,
            () = tokio::time::sleep(API_SERVER_RETRY) => {}
        }
    }
}
