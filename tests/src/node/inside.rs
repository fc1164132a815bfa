//! The inner half: the cluster, Croft on it, and what happens to it under load.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_testkit::{
    ControlPlane, Options,
    nodes::{self, Inside, NodeCluster, Parts},
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};

use crate::{
    audit::{Audit, CONTROLLER_USER, WEBHOOK_USER},
    node::{
        checks::{self, Memory},
        page, workload,
    },
    pods::{Stream, Tally},
};

const WEBHOOK: &str = "croft-webhook";
const CONTROLLER: &str = "croft-controller";
const PAGE: &str = "croft-page";
/// Clients that create pods at once.
const CLIENTS: usize = 8;
/// Renewed tokens reach a pod when it is synchronised, and its client reads them once a minute.
const RENEWED_WITHIN: Duration = Duration::from_secs(240);
/// A frozen replica fails its liveness probe for a minute, and has 30 s to end after that.
const RESTARTED_WITHIN: Duration = Duration::from_secs(240);

/// The nodes, and what the test sees of them.
struct Cluster {
    nodes: NodeCluster,
    audit: Audit,
    client: Client,
}

/// Sums of all reviews.
#[derive(Debug, Default)]
struct Sums {
    reviews: usize,
    lost: usize,
    refused_after_sigkill: usize,
    refused_while_frozen: usize,
}

/// Runs the test, and prints one line of its results.
///
/// # Errors
/// The step that failed, after the logs of pods and nodes.
pub async fn run(parts: &Parts, inside: &Inside) -> anyhow::Result<ExitCode> {
    let started = SystemClock.monotonic();
    let mut cluster = Cluster::start(parts, inside).await?;
    step(started, "two nodes are Ready");
    let mut sums = Sums::default();
    let memories = match cluster.test(started, parts, &mut sums).await {
        Ok(memories) => memories,
        Err(error) => {
            cluster.explain().await;
            return Err(error);
        }
    };
    let peak = |name: &str| {
        let of = memories.iter().filter(|(pod, _)| pod.starts_with(name));
        of.map(|(_, memory)| memory.peak >> 20).max().unwrap_or_default()
    };
    println!(
        "node-test: reviews={} lost={} refused_after_sigkill={} refused_while_frozen={} webhook_peak_mib={} controller_peak_mib={} page_peak_mib={} seconds={}",
        sums.reviews,
        sums.lost,
        sums.refused_after_sigkill,
        sums.refused_while_frozen,
        peak(WEBHOOK),
        peak(CONTROLLER),
        peak(PAGE),
        seconds_since(started)
    );
    Ok(if sums.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seconds_since(started: Instant) -> u64 {
    SystemClock.monotonic().saturating_duration_since(started).as_secs()
}

fn step(started: Instant, what: &str) {
    println!("node-test: {:>4} s  {what}", seconds_since(started));
}

impl Cluster {
    async fn start(parts: &Parts, inside: &Inside) -> anyhow::Result<Self> {
        let (audit, options) = Audit::new(Options::default(), &[CONTROLLER_USER, WEBHOOK_USER])?;
        let nodes = NodeCluster::start(options, parts, inside, env!("CARGO_PKG_VERSION")).await?;
        let client = nodes.plane.admin().await?;
        Ok(Self { nodes, audit, client })
    }

    fn plane(&self) -> &ControlPlane {
        &self.nodes.plane
    }

    async fn test(
        &mut self,
        started: Instant,
        parts: &Parts,
        sums: &mut Sums,
    ) -> anyhow::Result<BTreeMap<String, Memory>> {
        self.nodes.install().await?;
        for deployment in [WEBHOOK, CONTROLLER, PAGE] {
            self.nodes.until_rolled_out(deployment).await?;
        }
        step(started, "webhook, controller and page run from their images");
        workload::tenants(self.plane()).await?;
        step(started, "tenants' pods run on instances that Croft launched");
        page::check(self.plane(), parts).await?;
        step(started, "`croft page` forwards a port to the page and signs in");
        let hooks = checks::registration(&self.client).await?;
        let stream = self.stream();
        stream.pass(500).await;
        let mut memories = checks::containers(&self.client, &self.nodes.nodes).await?;
        sums.graceful(stream.stop().await, "load")?;
        step(
            started,
            &format!("{hooks} webhooks go through the Service; users, capabilities and limits are in force"),
        );

        let stream = self.stream();
        self.renew_tokens().await?;
        sums.graceful(stream.stop().await, "renewed tokens")?;
        step(started, "every pod uses a renewed token");

        let stream = self.stream();
        stream.pass(50).await;
        self.plane()
            .kubectl(["rollout", "restart", "--namespace=croft-system", "deployment/croft-webhook"])
            .await?;
        self.nodes.until_rolled_out(WEBHOOK).await?;
        stream.pass(50).await;
        sums.graceful(stream.stop().await, "rolling update")?;
        step(started, "the webhook was updated");

        let stream = self.stream();
        stream.pass(50).await;
        self.drain("node-1").await?;
        stream.pass(50).await;
        sums.graceful(stream.stop().await, "drain")?;
        // The controller that led may have been on it: the other one launches an instance.
        workload::grow(self.plane()).await?;
        step(started, "node-1 was drained, and an instance was launched after it");
        checks::no_restarts(&self.client).await?;

        sums.refused_after_sigkill = self.fail_a_replica("KILL", sums).await?;
        step(started, "one of two replicas was killed, and came back");
        // Connections that the API server has to it stay, so reviews on them are refused until they or the replica end.
        sums.refused_while_frozen = self.fail_a_replica("STOP", sums).await?;
        step(started, "one of two replicas was frozen; its liveness probe failed, and it was restarted");
        memories.extend(checks::containers(&self.client, &self.nodes.nodes).await?);
        for (pod, memory) in &memories {
            ensure!(memory.peak < memory.limit, "{pod} had {} of {} bytes", memory.peak, memory.limit);
        }
        Ok(memories)
    }

    fn stream(&self) -> Stream {
        Stream::start(&self.client, CLIENTS, "tenant-a", "node-pool", "pool-a")
    }

    /// Restarts both kubelets, which renew all tokens, and waits until every pod of Croft sends one of the new.
    async fn renew_tokens(&mut self) -> anyhow::Result<()> {
        let mut before = BTreeMap::new();
        for (user, deployment) in [(WEBHOOK_USER, WEBHOOK), (CONTROLLER_USER, CONTROLLER)] {
            let pods = checks::pods(&self.client, deployment).await?.len();
            before.insert(user, (pods, self.audit.credentials(user)?));
        }
        let NodeCluster { nodes, plane, .. } = &mut self.nodes;
        for real_node in nodes {
            real_node.restart_kubelet(plane).await?;
        }
        for (user, (pods, old)) in &before {
            until(&format!("renewed tokens of {user}"), RENEWED_WITHIN, || async {
                let new = self.audit.credentials(user)?.difference(old).count();
                Ok::<_, anyhow::Error>(Seen::from_option(
                    (new >= *pods).then_some(()),
                    format!("{new} of {pods}"),
                ))
            })
            .await?;
        }
        Ok(())
    }

    async fn drain(&self, node: &str) -> anyhow::Result<()> {
        self.plane()
            .kubectl(["drain", node, "--timeout=180s", "--delete-emptydir-data", "--ignore-daemonsets"])
            .await?;
        for deployment in [WEBHOOK, CONTROLLER, PAGE] {
            self.nodes.until_rolled_out(deployment).await?;
        }
        self.plane().kubectl(["uncordon", node]).await?;
        Ok(())
    }

    /// Sends `signal` to a replica, after which the kubelet restarts it, and returns how many reviews were refused meanwhile: the
    /// webhook fails closed. Nothing is admitted unpinned, and once the replica has restarted no review fails.
    async fn fail_a_replica(&self, signal: &str, sums: &mut Sums) -> anyhow::Result<usize> {
        let pods = checks::pods(&self.client, WEBHOOK).await?;
        let pod = pods.first().context("the webhook has no pod")?;
        let (process, restarts) = checks::process(pod, &self.nodes.nodes).await?;
        let stream = self.stream();
        stream.pass(50).await;
        nodes::run("kill", &[&format!("-{signal}"), &process.to_string()]).await?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "croft-system");
        until(&format!("the replica to be ready again after {signal}"), RESTARTED_WITHIN, || async {
            let status = api.get(&pod.name_any()).await?.status.unwrap_or_default();
            let mut containers = status.container_statuses.iter().flatten();
            let again = containers.all(|one| one.restart_count > restarts && one.ready);
            Ok::<_, kube::Error>(Seen::from_option(again.then_some(()), format!("{:?}", status.conditions)))
        })
        .await?;
        stream.pass(50).await;
        let tally = stream.stop().await;
        let unpinned = tally.wrong.iter().find(|wrong| wrong.starts_with("admitted with"));
        ensure!(unpinned.is_none(), "after {signal} of a replica: {unpinned:?}");
        sums.reviews += tally.right;

        let stream = self.stream();
        stream.pass(200).await;
        sums.graceful(stream.stop().await, &format!("recovery from {signal}"))?;
        Ok(tally.wrong.len())
    }

    /// Prints what a reader of a failure looks at first.
    async fn explain(&self) {
        for arguments in [
            ["get", "pods", "-A", "-o", "wide"].as_slice(),
            &["get", "events", "-n", "croft-system", "--sort-by=.lastTimestamp"],
            &["get", "nodes,tenants,tenantpools,nodeclaims"],
        ] {
            match self.plane().kubectl(arguments).await {
                Ok(text) => eprintln!("{text}"),
                Err(error) => eprintln!("{error}"),
            }
        }
        for real_node in &self.nodes.nodes {
            eprintln!("{}", real_node.logs());
        }
    }
}

impl Sums {
    /// Adds the reviews of a time in which none may be lost.
    fn graceful(&mut self, tally: Tally, when: &str) -> anyhow::Result<()> {
        self.reviews += tally.right;
        self.lost += tally.wrong.len();
        if let Some(first) = tally.wrong.first() {
            eprintln!(
                "node-test: {} of {} reviews lost during {when}: {first}",
                tally.wrong.len(),
                tally.right
            );
        }
        ensure!(tally.right > 0, "no review was answered during {when}");
        Ok(())
    }
}
