//! Operations of an operator, another tool or the cloud on an ordinary day: no working pod ends without an
//! eviction, no bad edit is accepted, and everything settles again.
//!
//! `make day2` runs every operation, one after the other, on two tenants whose pods run and are protected by a
//! PodDisruptionBudget.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use croft_api::{NodeClaim, Tenant, condition};
use croft_testkit::{CroftOptions, Options, Part};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::{
    attacks::Tally,
    audit::{Audit, Request},
    bad_edits,
    manifests::{budget, class, deployment, joined, on_demand, tenant},
    stack::{Stack, is_ready, node_of, running},
};

/// Running pods that ended without an eviction or their owner.
pub const ENDED: &str = "ended";
/// Bad edits that the API server accepted.
pub const ACCEPTED: &str = "accepted";
/// Operations after which the cluster didn't settle.
pub const STUCK: &str = "stuck";

/// The tenants, each with a pool of the same name.
const TENANTS: [&str; 2] = ["red", "blue"];
/// Each of these pods fills an instance.
const REPLICAS: usize = 3;
/// The security group that the class finds.
const GROUP: &str = "sg-0c0ffee000000001";
/// After an operation the cluster has to settle within this time.
const SETTLED_WITHIN: Duration = Duration::from_mins(5);
/// The cluster is settled if nothing is in flight for this time: drift is evaluated every 5 seconds.
const QUIET: Duration = Duration::from_secs(12);
/// Absence counts after a minute.
const ABSENCE: Duration = Duration::from_secs(75);
/// Users whose deletion of a running pod is neither an eviction nor the owner's: Croft, and what cleans up after nodes.
const ENDERS: [&str; 4] = [
    "system:serviceaccount:croft-system:croft-controller",
    "system:serviceaccount:kube-system:pod-garbage-collector",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:taint-eviction-controller",
];

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `kubectl apply` of the installed manifests.
    ReapplyManifests,
    /// The controller is killed and starts again.
    RestartController,
    /// Another tool overwrites the cluster tag of an instance.
    OverwriteTag,
    /// A label that Croft wrote is removed from a node.
    RemoveLabel,
    /// `kubectl replace --force` of a Tenant, with `misplaced: Recreate`.
    ReplaceTenant,
    /// `kubectl delete node` of a working node.
    DeleteNode,
    /// The class's security group terms find nothing, and the controller starts again.
    LoseSecurityGroups,
    /// They find what they found before.
    FindSecurityGroups,
    /// The CroftConfig is deleted.
    DeleteConfig,
    /// It is applied again.
    RestoreConfig,
    /// A Tenant gets a second pool.
    AddPool,
    /// The second pool is removed from the Tenant.
    RemovePool,
    /// A pool's taint gets a second effect.
    ChangeEffects,
    /// A pool's template gets a label: its nodes drift.
    ChangeTemplate,
    /// A pool's terminationGracePeriod changes.
    ChangeGracePeriod,
    /// A pool is handed to another provisioner.
    HandOver,
    /// Croft provisions it again.
    TakeBack,
}

impl Operation {
    /// All of them, in an order in which each finds what it needs.
    pub const ALL: [Self; 17] = [
        Self::ReapplyManifests,
        Self::RestartController,
        Self::OverwriteTag,
        Self::RemoveLabel,
        Self::ReplaceTenant,
        Self::DeleteNode,
        Self::LoseSecurityGroups,
        Self::FindSecurityGroups,
        Self::DeleteConfig,
        Self::RestoreConfig,
        Self::AddPool,
        Self::RemovePool,
        Self::ChangeEffects,
        Self::ChangeTemplate,
        Self::ChangeGracePeriod,
        Self::HandOver,
        Self::TakeBack,
    ];

    /// How long its effect may take to begin.
    const fn begins_within(self) -> Duration {
        match self {
            Self::DeleteConfig | Self::OverwriteTag => ABSENCE,
            _ => QUIET,
        }
    }
}

/// Two tenants whose pods run.
pub struct Operations {
    stack: Stack,
    client: Client,
    audit: Audit,
    /// Evictions and deletions of pods that were answered, by the pod's name.
    requests: BTreeMap<String, Vec<Request>>,
}

impl Operations {
    /// Starts a stack with two tenants, and waits until their pods run.
    ///
    /// # Errors
    /// When something doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        let (audit, options) = Audit::of_pods(Options::default())?;
        let croft = CroftOptions::find()?
            .flag(Part::Controller, "--orphans-every=1s")
            .flag(Part::Controller, "--orphan-grace=3s");
        let stack = Stack::start_with(options, croft).await?;
        let client = stack.plane.admin().await?;
        let mut documents = vec![class("default"), config()];
        for name in TENANTS {
            documents.extend(tenant(name, name, &pool()));
            documents.push(deployment(name, "web", REPLICAS, "1500m", "256Mi"));
            documents.push(budget(name, "web", REPLICAS - 1));
        }
        documents.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": "spare"}, "spec": pool()}));
        stack.plane.apply(&joined(&documents)).await?;
        for name in TENANTS {
            running(&client, name, REPLICAS).await?;
        }
        let mut operations = Self { stack, client, audit, requests: BTreeMap::new() };
        operations.settled(QUIET).await?;
        Ok(operations)
    }

    /// Does `operation`, waits until the cluster is settled, and counts what ended and whether it is stuck.
    ///
    /// # Errors
    /// When the operation can't be done.
    pub async fn run(&mut self, operation: Operation) -> anyhow::Result<Tally> {
        let before = self.working().await?;
        self.act(operation).await.with_context(|| format!("failed to do {operation:?}"))?;
        let mut tally = Tally::default();
        let stuck = self.settled(operation.begins_within()).await.err();
        tally.count(STUCK, stuck.map(|error| format!("{operation:?}: {error:#}")).into_iter().collect());
        let after = self.working().await?;
        self.read_requests()?;
        let ended = before.iter().filter(|(uid, _)| !after.contains_key(*uid));
        let ended =
            ended.filter_map(|(_, pod)| self.ended_by(pod)).map(|what| format!("{operation:?}: {what}"));
        tally.count(ENDED, ended.collect());
        Ok(tally)
    }

    /// The bad edits that the API server accepts.
    ///
    /// # Errors
    /// When a case can't be tried.
    pub async fn accepted(&self) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        tally.count(ACCEPTED, bad_edits::accepted(&self.client).await?);
        Ok(tally)
    }

    async fn act(&mut self, operation: Operation) -> anyhow::Result<()> {
        let [red, blue] = TENANTS;
        match operation {
            Operation::ReapplyManifests => {
                let folder = self.stack.croft.manifests().join("install");
                let folder = folder.to_str().context("the path of the manifests isn't text")?;
                self.stack.plane.kubectl(["apply", "-k", folder]).await?;
            }
            Operation::RestartController => self.restart_controller().await?,
            Operation::OverwriteTag => {
                let instance =
                    self.stack.instances().await?.into_iter().next().context("no instance runs")?;
                let tags = json!({"croft.dev/cluster": "another"});
                let instance = instance.get("id").cloned().unwrap_or_default();
                self.stack.control(&json!({"do": "tag", "instance": instance, "tags": tags})).await?;
            }
            Operation::RemoveLabel => {
                let node = self.node_of_tenant(red).await?;
                self.kubectl(&["label", "node", &node, "karpenter.sh/capacity-type-"]).await?;
            }
            Operation::ReplaceTenant => {
                let [_, _, tenant] = tenant(red, red, &pool());
                let text = tenant.to_string();
                self.stack.plane.kubectl_with(["replace", "--force", "-f", "-"], &text).await?;
            }
            Operation::DeleteNode => {
                let node = self.node_of_tenant(blue).await?;
                self.kubectl(&["delete", "node", &node, "--wait=false"]).await?;
            }
            Operation::LoseSecurityGroups => {
                self.stack.control(&json!({"do": "groupTags", "group": GROUP, "tags": {}})).await?;
                self.restart_controller().await?;
            }
            Operation::FindSecurityGroups => {
                let tags = json!({"croft.dev/discovery": "croft"});
                self.stack.control(&json!({"do": "groupTags", "group": GROUP, "tags": tags})).await?;
                self.restart_controller().await?;
            }
            Operation::DeleteConfig => self.kubectl(&["delete", "croftconfig", "default"]).await?,
            Operation::RestoreConfig => {
                self.stack.plane.apply(&config().to_string()).await?;
            }
            Operation::AddPool => {
                self.patch("tenant", red, json!({"spec": {"pools": [red, "spare"]}})).await?
            }
            Operation::RemovePool => self.patch("tenant", red, json!({"spec": {"pools": [red]}})).await?,
            Operation::ChangeEffects => {
                let effects = json!({"spec": {"effects": ["NoSchedule", "NoExecute"]}});
                self.patch("tenantpool", blue, effects).await?;
            }
            Operation::ChangeTemplate => {
                let template = json!({"metadata": {"labels": {"example.com/rack": "two"}}});
                self.patch("tenantpool", red, json!({"spec": {"template": template}})).await?;
            }
            Operation::ChangeGracePeriod => {
                let template = json!({"spec": {"terminationGracePeriod": "1h"}});
                self.patch("tenantpool", red, json!({"spec": {"template": template}})).await?;
            }
            Operation::HandOver => {
                self.patch("tenantpool", blue, json!({"spec": {"provisioner": "None"}})).await?;
            }
            Operation::TakeBack => {
                self.patch("tenantpool", blue, json!({"spec": {"provisioner": "Croft"}})).await?;
            }
        }
        Ok(())
    }

    async fn restart_controller(&mut self) -> anyhow::Result<()> {
        self.stack.croft.kill(Part::Controller)?;
        self.stack.croft.resume(&self.stack.plane, Part::Controller).await?;
        Ok(())
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.stack.plane.kubectl(arguments.iter().copied()).await?;
        Ok(())
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) -> anyhow::Result<()> {
        self.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch.to_string()]).await
    }

    async fn node_of_tenant(&self, tenant: &str) -> anyhow::Result<String> {
        let pods = running(&self.client, tenant, REPLICAS).await?;
        pods.first().map(node_of).context("no pod runs")
    }

    /// Running pods of the tenants, by uid.
    async fn working(&self) -> anyhow::Result<BTreeMap<String, Pod>> {
        let mut working = BTreeMap::new();
        for tenant in TENANTS {
            let list =
                Api::<Pod>::namespaced(self.client.clone(), tenant).list(&ListParams::default()).await?;
            let runs = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
            working.extend(list.items.into_iter().filter(runs).filter_map(|pod| Some((pod.uid()?, pod))));
        }
        Ok(working)
    }

    fn read_requests(&mut self) -> anyhow::Result<()> {
        for request in self.audit.take()?.into_iter().filter(|request| request.code < 300) {
            self.requests.entry(request.name.clone()).or_default().push(request);
        }
        Ok(())
    }

    /// The user that ended a running pod without an eviction; `None` if it was evicted, or deleted by its owner.
    fn ended_by(&self, pod: &Pod) -> Option<String> {
        let name = pod.name_any();
        let requests = self.requests.get(&name).map(Vec::as_slice).unwrap_or_default();
        if requests.iter().any(|request| request.resource == "pods/eviction") {
            return None;
        }
        let deleted: Vec<&str> =
            requests.iter().filter(|request| request.verb == "delete").map(|r| r.user.as_str()).collect();
        let by_its_owner = !deleted.is_empty() && deleted.iter().all(|user| !ENDERS.contains(user));
        (!by_its_owner).then(|| format!("pod {name} on {} ended, deleted by {deleted:?}", node_of(pod)))
    }

    /// Waits until nothing has been in flight for as long as the effect of an operation may take to begin.
    async fn settled(&mut self, begins_within: Duration) -> anyhow::Result<()> {
        let mut since = tokio::time::Instant::now();
        let within = SETTLED_WITHIN.saturating_add(begins_within);
        let begun = since;
        loop {
            match self.under_way().await? {
                None if since.elapsed() >= begins_within => return Ok(()),
                None => {}
                Some(what) if begun.elapsed() >= within => anyhow::bail!("{what}"),
                Some(_) => since = tokio::time::Instant::now(),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The first violation at the end; `None` without one.
    async fn under_way(&mut self) -> anyhow::Result<Option<String>> {
        let all = ListParams::default();
        for tenant in TENANTS {
            let pods = Api::<Pod>::namespaced(self.client.clone(), tenant).list(&all).await?.items;
            let runs = |pod: &&Pod| {
                pod.metadata.deletion_timestamp.is_none()
                    && pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")
            };
            if pods.len() != REPLICAS || pods.iter().filter(runs).count() != REPLICAS {
                let names = pods.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>();
                return Ok(Some(format!("not {REPLICAS} running pods in {tenant}: {names:?}")));
            }
        }
        let claims = Api::<NodeClaim>::all(self.client.clone()).list(&all).await?.items;
        if let Some(claim) = claims.iter().find(|c| c.metadata.deletion_timestamp.is_some() || !is_ready(c)) {
            return Ok(Some(format!("NodeClaim {} isn't ready, or is being deleted", claim.name_any())));
        }
        let instances = self.stack.instances().await?.len();
        if instances != claims.len() {
            return Ok(Some(format!("{instances} instances for {} NodeClaims", claims.len())));
        }
        let tenants = Api::<Tenant>::all(self.client.clone()).list(&all).await?.items;
        let ready = |tenant: &&Tenant| {
            let status = tenant.status.as_ref();
            !status.is_some_and(|s| condition::is_true(&s.conditions, condition::READY))
        };
        Ok(tenants.iter().find(ready).map(|tenant| {
            let conditions = tenant.status.as_ref().map(|status| &status.conditions);
            format!("Tenant {} isn't Ready: {conditions:?}", tenant.name_any())
        }))
    }
}

fn pool() -> Value {
    on_demand(&["m5.large"], json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}))
}

fn config() -> Value {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"misplaced": "Recreate", "limits": {"nodes": 20}}})
}
