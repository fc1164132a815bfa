//! A new pod of one tenant to Running on a new instance: alone, while 3,000 pods of another tenant wait for its limit, and
//! while those come and go. An instance beyond the first for one pod is a defect, which fails the bench.
//!
//! The waiting pods have 60 shapes, so that kube-scheduler can't answer for one of them what it answered for another.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use anyhow::Context as _;
use croft_api::{EC2NodeClass, NodeClaim, Tenant};
use croft_testkit::{
    Options,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{class, joined, tenant},
    stack::{Stack, claims, condition_of},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::{await_condition, conditions},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cluster::{MeasuredCluster, PATIENCE, REQUESTS_PER_SECOND, cloud_without_delays},
    median,
    stopwatch::{LABEL, Stopwatch},
};

/// The tenant whose pods wait, and the one that is measured.
const CROWD: &str = "crowd";
const GUEST: &str = "guest";
const SHAPES: usize = 60;
const PODS_OF_A_SHAPE: usize = 50;
const PODS: usize = SHAPES * PODS_OF_A_SHAPE;
/// Rounds of each kind, unless they are so slow that the last one would begin after [`LAST_ROUND_BEGINS_WITHIN`].
const ROUNDS: usize = 3;
/// With pods that take a minute, one round of each kind must do: the suite gives the bench a few minutes.
const LAST_ROUND_BEGINS_WITHIN: Duration = Duration::from_secs(40);
/// Between two changes of the waiting pods.
const CHURN_EVERY: Duration = Duration::from_millis(500);

/// The figures.
#[derive(Debug)]
pub(crate) struct Figures {
    alone: f64,
    flood: f64,
    churn: f64,
    /// Instances beyond the first of each pod.
    pub(crate) extra_instances: usize,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alone, flood, churn, extra_instances } = self;
        write!(
            f,
            "neighbour_alone_s={alone:.2} neighbour_flood_s={flood:.2} neighbour_churn_s={churn:.2} \
             extra_instances={extra_instances}"
        )
    }
}

pub(crate) async fn run() -> anyhow::Result<Figures> {
    println!(
        "\na pod of one tenant to Running on a new instance, up to {ROUNDS} times alone, while {PODS} pods of another \
         tenant, in {SHAPES} shapes, wait for its limit, and while those come and go"
    );
    let (mut stack, client) = start().await?;
    let mut watch = Stopwatch::start(client.clone());
    let mut extra_instances = 0;
    let alone = measure("alone", &client, &mut extra_instances).await?;
    deploy(&client).await?;
    watch.until(|count| count.pods == PODS).await?;
    let flood = measure("with waiting pods", &client, &mut extra_instances).await?;
    let churning = tokio::spawn(churn(client.clone()));
    let churn = measure("while they come and go", &client, &mut extra_instances).await;
    anyhow::ensure!(!churning.is_finished(), "the waiting pods stopped changing: {:?}", churning.await);
    churning.abort();
    stack.check()?;
    Ok(Figures { alone, flood, churn: churn?, extra_instances })
}

/// A control plane with Croft and both tenants, one of which has a limit with room for none of its pods.
async fn start() -> anyhow::Result<(Stack, Client)> {
    let requirements = MeasuredCluster::usual(2).requirements;
    let template = json!({"spec": {"nodeClassRef": {"name": "default"}, "requirements": requirements}});
    // One after the other is deleted here, so none may be removed by itself.
    let guest = json!({"template": template, "disruption": {"consolidateAfter": "24h"}});
    let crowd = json!({"template": template, "limits": {"cpu": "1"}});
    let mut documents = vec![class("default")];
    documents.extend(tenant(GUEST, GUEST, &guest));
    documents.extend(tenant(CROWD, CROWD, &crowd));
    let options = Options::default().requests_per_second(REQUESTS_PER_SECOND);
    let stack = Stack::start_with(options, cloud_without_delays()?).await?;
    stack.plane.apply(&joined(&documents)).await?;
    let client = stack.plane.admin().await?;
    condition_of::<EC2NodeClass>(&client, "default", "Ready", "True").await?;
    for name in [GUEST, CROWD] {
        condition_of::<Tenant>(&client, name, "Ready", "True").await?;
    }
    Ok((stack, client))
}

/// The median of the seconds from a pod's creation to Running, each time on a new instance. Further instances that were launched
/// for it are added to `extra_instances`.
async fn measure(what: &str, client: &Client, extra_instances: &mut usize) -> anyhow::Result<f64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), GUEST);
    let mut all = Vec::new();
    let first = Instant::now();
    while all.len() < ROUNDS && (all.is_empty() || first.elapsed() < LAST_ROUND_BEGINS_WITHIN) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "new"},
            "spec": {
                "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "app", "image": "registry.example/app:1",
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            },
        }))?;
        let begun = Instant::now();
        pods.create(&PostParams::default(), &pod).await?;
        timeout(PATIENCE, await_condition(pods.clone(), "new", conditions::is_pod_running()))
            .await
            .context("the pod didn't run in time")??;
        all.push(begun.elapsed().as_secs_f64());
        let launched = claims(client, GUEST).await?.len();
        *extra_instances += launched.saturating_sub(1);
        pods.delete("new", &DeleteParams::default()).await?;
        clear(client).await?;
    }
    println!("{what}: {}", all.iter().map(|s| format!("{s:.2} s")).collect::<Vec<_>>().join(", "));
    Ok(median(&all))
}

/// Terminates the instances of the measured tenant, and waits until none is left.
async fn clear(client: &Client) -> anyhow::Result<()> {
    let api: Api<NodeClaim> = Api::all(client.clone());
    for claim in claims(client, GUEST).await? {
        let name = claim.metadata.name.unwrap_or_default();
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done?),
        }
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), GUEST);
    until("no instance of the measured tenant", PATIENCE, async || {
        let instances = claims(client, GUEST).await?.len();
        let left = pods.list(&ListParams::default()).await?.items.len();
        anyhow::Ok(Seen::from_option(
            (instances + left == 0).then_some(()),
            format!("{instances} instances, {left} pods"),
        ))
    })
    .await?;
    Ok(())
}

/// The waiting tenant's Deployments: each with requests of its own, none of which fits into the pool's limit.
fn deployments() -> impl Iterator<Item = Value> {
    (0..SHAPES).map(|n| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name(n), "namespace": CROWD},
            "spec": {
                "replicas": PODS_OF_A_SHAPE, "selector": {"matchLabels": {"shape": name(n)}},
                "template": {
                    "metadata": {"labels": {LABEL.0: LABEL.1, "shape": name(n)}},
                    "spec": {
                        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "app", "image": "registry.example/app:1",
                            "resources": {"requests": {"cpu": format!("{}m", 1_100 + n), "memory": "1Gi"}},
                        }],
                    },
                },
            },
        })
    })
}

fn name(n: usize) -> String {
    format!("shape-{n:02}")
}

async fn deploy(client: &Client) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), CROWD);
    for value in deployments() {
        api.create(&PostParams::default(), &serde_json::from_value(value)?).await?;
    }
    Ok(())
}

/// Takes half of a shape's pods away and brings them back, shape after shape, without end.
async fn churn(client: Client) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client, CROWD);
    for n in (0..SHAPES).cycle() {
        for replicas in [PODS_OF_A_SHAPE / 2, PODS_OF_A_SHAPE] {
            let patch = json!({"spec": {"replicas": replicas}});
            api.patch(&name(n), &PatchParams::default(), &Patch::Merge(&patch)).await?;
            sleep(CHURN_EVERY).await;
        }
    }
    Ok(())
}
