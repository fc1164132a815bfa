//! Runs in which real processes fail at random times, from a seed, while tenants change their workloads.
//!
//! ```text
//!   seed ──▶ steps: a tenant scales, a node is removed, a fault ──▶ recovered ──▶ settled
//!                              │ continuously: Monitor                   │ once: pods run, instances = claims = nodes
//! ```
//!
//! Times are real, so a seed repeats the operations and their order, but not the state of the processes.

use std::{
    collections::BTreeMap,
    env,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use croft_api::{EC2NodeClass, NodeClaim, Tenant};
use croft_simkit::Random;
use croft_testkit::{
    Component, CroftOptions, Detour, Options, Part,
    wait::{Seen, until},
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    invariants::{Expected, GUARDED, Monitor, milli_cpu, unsettled},
    manifests::{budget, class, deployment, joined, on_demand, tenant},
    proxy::{Proxy, Way},
    stack::{Stack, claims, condition_of, pods},
};

/// Time until everything has recovered, on a busy computer.
const MENDED: Duration = Duration::from_secs(150);
/// Time after which ReplicaSets are touched.
const ALONE: Duration = Duration::from_secs(60);
const POOLS: [&str; 2] = ["pool-a", "pool-b"];
const NAMESPACES: [&str; 2] = ["tenant-a", "tenant-b"];
/// minAvailable of the pods that a budget covers.
const GUARDS: (usize, usize) = (3, 2);
/// CPU limit of each pool: enough for every pod, but not for all of them twice.
const LIMIT: i64 = 14;
/// The largest type of a pool: with less than that left below its limit, pods may stay pending.
const LARGEST: &str = "m5.xlarge";

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process of Croft or its cloud is killed and restarts after this time.
    Kill(Part, Duration),
    /// A process of the control plane is killed and restarts at once.
    Restart(Component),
    /// The controller's traffic to the API server changes for this time.
    ApiServer(Way, Duration),
    /// The controller's traffic to EC2 changes for this time.
    Cloud(Way, Duration),
}

/// Draws a duration between `from` and `to`, in milliseconds.
pub fn millis(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.between(from, to))
}

/// Two tenants on a whole control plane, with the controller behind proxies.
pub struct Arena {
    /// All processes.
    pub stack: Stack,
    /// The proxy to the API server.
    pub api_server: Proxy,
    /// The proxy to EC2.
    pub cloud: Proxy,
    /// The invariants, checked continuously.
    pub monitor: Monitor,
    /// A client of the administrator.
    pub client: Client,
    at_cloud: SocketAddr,
    wanted: BTreeMap<&'static str, usize>,
}

impl Arena {
    /// Starts everything, with or without a controller.
    ///
    /// # Errors
    /// If a process doesn't start.
    pub async fn start(with_controller: bool) -> anyhow::Result<Self> {
        let mut options = CroftOptions::find()?
            .flag(Part::Cloud, "--running-after-ms=200")
            .flag(Part::Cloud, "--boot-ms=200")
            .flag(Part::Cloud, "--terminated-after-ms=300");
        // Intervals of minutes are shortened to seconds, so that a run covers them.
        for flag in ["--orphans-every=5s", "--orphan-grace=10s"] {
            options = options.flag(Part::Controller, flag);
        }
        let plane = croft_testkit::ControlPlane::start(Options::default()).await?;
        let croft = croft_testkit::Croft::install(&plane, options).await?;
        let mut stack = Stack { croft, plane };
        stack.croft.resume(&stack.plane, Part::Cloud).await?;
        stack.croft.resume(&stack.plane, Part::Webhook).await?;
        let at_cloud = stack.croft.address(Part::Cloud)?;
        let url = stack.plane.url();
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).context("no port in the URL")?;
        let api_server = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let cloud = Proxy::start(at_cloud).await?;
        let detour = Detour { api_server: Some(api_server.address), cloud: Some(cloud.address) };
        stack.croft.detour(Part::Controller, detour);
        if with_controller {
            stack.croft.resume(&stack.plane, Part::Controller).await?;
        }
        stack.plane.apply(&platform_manifests()).await?;
        let client = stack.plane.admin().await?;
        let monitor = Monitor::start(&client, at_cloud, expected());
        let wanted = NAMESPACES.into_iter().map(|namespace| (namespace, 0)).collect();
        let arena = Self { stack, api_server, cloud, monitor, client, at_cloud, wanted };
        Ok(arena)
    }

    /// Waits until the tenants' pods are admitted and the covered ones run.
    ///
    /// # Errors
    /// On timeout.
    pub async fn open(&mut self) -> anyhow::Result<()> {
        condition_of::<EC2NodeClass>(&self.client, "default", "Ready", "True").await?;
        for tenant in NAMESPACES {
            condition_of::<Tenant>(&self.client, tenant, "Ready", "True").await?;
        }
        self.stack.plane.apply(&workloads()).await?;
        self.rest().await
    }

    /// One run: the tenants' operations, with `faults` in between, until everything has recovered.
    ///
    /// # Errors
    /// If an invariant is violated, with the seed and the operations.
    pub async fn run(&mut self, seed: u64, faults: &[Fault]) -> anyhow::Result<()> {
        let mut random = Random::new(seed);
        let told = format!("seed {seed}, {faults:?}");
        println!("{told}");
        self.act(&mut random).await.with_context(|| told.clone())?;
        for fault in faults {
            sleep(millis(&mut random, 0, 1_200)).await;
            self.strike(*fault, &mut random).await.with_context(|| told.clone())?;
        }
        self.heal().await.with_context(|| told.clone())?;
        self.rest().await.with_context(|| told.clone())
    }

    /// The user's operations at the beginning of the run `seed`.
    ///
    /// # Errors
    /// If the API server refuses one.
    pub async fn begin(&mut self, seed: u64) -> anyhow::Result<()> {
        self.act(&mut Random::new(seed)).await
    }

    /// An operation of a user.
    async fn act(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let namespace = random.one_of(&NAMESPACES);
        let replicas = random.index(8);
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        // An API server that has just restarted may not answer yet.
        until("the Deployment web to be scaled", MENDED, async || {
            let scaled = api.patch("web", &PatchParams::default(), &patch).await;
            scaled.map(|_| Seen::from_option(Some(()), ""))
        })
        .await?;
        self.wanted.insert(namespace, replicas);
        if random.below(3) == 0 {
            let claims: Api<NodeClaim> = Api::all(self.client.clone());
            let names: Vec<String> = claims
                .list(&ListParams::default())
                .await?
                .items
                .iter()
                .map(|claim| claim.name_any())
                .collect();
            let at = random.index(names.len());
            if let Some(name) = names.get(at) {
                claims.delete(name, &DeleteParams::default()).await.context("failed to give a node back")?;
            }
        }
        Ok(())
    }

    /// Injects `fault`, while users go on.
    async fn strike(&mut self, fault: Fault, random: &mut Random) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(part, away) => {
                self.stack.croft.kill(part)?;
                self.act(random).await?;
                sleep(away).await;
                self.stack.croft.launch(&self.stack.plane, part).await?;
            }
            Fault::Restart(component) => {
                self.stack.plane.kill(component)?;
                self.stack.plane.resume(component).await?;
                if component == Component::Etcd {
                    // The API server's clients take a moment to reconnect.
                    self.stack.plane.resume(Component::ApiServer).await?;
                }
                self.act(random).await?;
            }
            Fault::ApiServer(way, lasting) => {
                self.api_server.set(way);
                self.act(random).await?;
                sleep(lasting).await;
                self.api_server.set(Way::Open);
            }
            Fault::Cloud(way, lasting) => {
                self.cloud.set(way);
                self.act(random).await?;
                sleep(lasting).await;
                self.cloud.set(Way::Open);
            }
        }
        Ok(())
    }

    async fn heal(&mut self) -> anyhow::Result<()> {
        self.api_server.set(Way::Open);
        self.cloud.set(Way::Open);
        for component in Component::ALL {
            self.stack.plane.resume(component).await?;
        }
        Ok(())
    }

    /// Waits until the cluster is settled, and fails with every violation.
    ///
    /// # Errors
    /// If an invariant is violated.
    pub async fn rest(&mut self) -> anyhow::Result<()> {
        let mended = async || {
            let left = self.left().await?;
            anyhow::Ok(Seen::from_option(left.is_empty().then_some(()), left.join("; ")))
        };
        let mut rested = until("everything to be mended", ALONE, mended).await;
        if rested.is_err() {
            self.wake_replica_sets().await?;
            rested = until("everything to be mended", MENDED, mended).await;
        }
        let broken = self.monitor.broken();
        anyhow::ensure!(broken.is_empty(), "broken: {broken:#?}");
        rested?;
        self.stack.check()
    }

    /// Makes kube-controller-manager sync every ReplicaSet now. Each failed sync while admission is down doubles its
    /// back-off, up to 1,000 s, and each event of a pod causes a sync, so a few seconds without admission can leave a
    /// ReplicaSet short of pods for minutes. That back-off is not under test.
    async fn wake_replica_sets(&self) -> anyhow::Result<()> {
        for namespace in NAMESPACES {
            let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
            for set in api.list(&ListParams::default()).await? {
                // A new value each time, since an update without a change causes no event.
                let woken =
                    json!({"metadata": {"annotations": {"lab.croft.dev/woken": set.resource_version()}}});
                api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(woken)).await?;
            }
        }
        Ok(())
    }

    /// Violations in a settled cluster.
    async fn left(&self) -> anyhow::Result<Vec<String>> {
        let mut left = unsettled(&self.client, self.at_cloud).await?;
        for (namespace, replicas) in &self.wanted {
            let pods = pods(&self.client, namespace).await?;
            let running = pods
                .iter()
                .filter(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"));
            let (running, all) = (running.count(), replicas + GUARDS.0);
            if running != all || pods.len() != all {
                let pool = namespace.replace("tenant", "pool");
                let full = self.is_full(&pool).await? && pods.len() == all;
                if !full {
                    left.push(format!(
                        "{running} of {all} pods of {namespace} run, {} are there",
                        pods.len()
                    ));
                }
            }
        }
        Ok(left)
    }

    async fn is_full(&self, pool: &str) -> anyhow::Result<bool> {
        let types = claims(&self.client, pool).await?;
        let used: i64 = types
            .iter()
            .filter_map(|claim| claim.status.as_ref()?.instance_type.as_deref())
            .map(milli_cpu)
            .sum();
        Ok(used + milli_cpu(LARGEST) > LIMIT * 1_000)
    }
}

fn expected() -> Expected {
    let pairs = || NAMESPACES.into_iter().zip(POOLS);
    Expected {
        pools: pairs().map(|(namespace, pool)| (namespace.to_owned(), pool.to_owned())).collect(),
        limits: POOLS.into_iter().map(|pool| (pool.to_owned(), LIMIT * 1_000)).collect(),
        guarded: NAMESPACES.into_iter().map(|namespace| (namespace.to_owned(), GUARDS)).collect(),
    }
}

/// The platform team's manifests.
#[expect(clippy::indexing_slicing, reason = "a key that a JSON object lacks is made")]
fn platform_manifests() -> String {
    let mut documents = vec![class("default")];
    for (namespace, pool) in NAMESPACES.into_iter().zip(POOLS) {
        let types = ["m5.large", LARGEST, "c5.large", "c5.xlarge"];
        let mut spec = on_demand(&types, json!({"consolidateAfter": "2s"}));
        spec["key"] = json!("node-pool");
        spec["limits"] = json!({"cpu": LIMIT.to_string()});
        documents.extend(tenant(namespace, pool, &spec));
    }
    joined(&documents)
}

/// The tenants' workloads: pods that come and go, and pods that a budget covers.
#[expect(clippy::indexing_slicing, reason = "a key that a JSON object lacks is made")]
fn workloads() -> String {
    let mut documents = Vec::new();
    for namespace in NAMESPACES {
        documents.push(deployment(namespace, "web", 0, "900m", "512Mi"));
        // Slowly starting pods violate their budget most easily.
        let mut guarded = deployment(namespace, GUARDED, GUARDS.0, "600m", "512Mi");
        guarded["spec"]["template"]["metadata"]["annotations"] =
            json!({"lab.croft.dev/starts-after": "700ms"});
        documents.extend([guarded, budget(namespace, GUARDED, GUARDS.1)]);
    }
    joined(&documents)
}

/// Number of runs of a test: `usual`, or CROFT_CHAOS_RUNS.
#[must_use]
pub fn runs(usual: u64) -> u64 {
    number("CROFT_CHAOS_RUNS").unwrap_or(usual)
}

/// Seed of a test's first run: `usual`, or CROFT_CHAOS_SEED.
#[must_use]
pub fn first_seed(usual: u64) -> u64 {
    number("CROFT_CHAOS_SEED").unwrap_or(usual)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}
