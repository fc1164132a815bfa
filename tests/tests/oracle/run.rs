//! One cluster on the real control plane.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use croft_scheduler::{Cluster, Options, Plan, ReasonKind, solve};
use croft_testkit::wait::{Seen, until};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    generate::{Group, NAMESPACE, Scene, every_node, node},
    storage::Storage,
};

/// How long kube-scheduler may take; its back-off after a failed try is at most 10 s.
const PATIENCE: Duration = Duration::from_secs(25);
const AT_ONCE: usize = 16;

/// What came of a scene.
#[derive(Default)]
pub struct Report {
    pub planned: usize,
    pub bound: usize,
    /// Bound where they were planned.
    pub home: usize,
    pub problem: Option<String>,
}

pub struct Arena {
    pods: Api<Pod>,
    nodes: Api<Node>,
    storage: Storage,
}

impl Arena {
    pub async fn new(client: Client) -> Result<Self> {
        let namespace = serde_json::from_value::<Namespace>(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let account = serde_json::from_value::<ServiceAccount>(json!({"metadata": {"name": "default"}}))?;
        Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &account).await?;
        Ok(Self {
            pods: Api::namespaced(client.clone(), NAMESPACE),
            storage: Storage::new(client.clone()),
            nodes: Api::all(client),
        })
    }

    async fn clear(&self) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods.delete_collection(&now, &ListParams::default()).await?;
        self.nodes.delete_collection(&now, &ListParams::default()).await?;
        self.storage.clear().await?;
        until("an empty cluster", PATIENCE, || async {
            let left = self.pods.list(&ListParams::default()).await?.items.len()
                + self.nodes.list(&ListParams::default()).await?.items.len();
            Ok::<_, kube::Error>(if left == 0 {
                Seen::Yes(())
            } else {
                Seen::NotYet(format!("{left} objects"))
            })
        })
        .await?;
        Ok(())
    }

    /// Makes a node as it is once it has registered: status and taints as given, none of admission's own.
    async fn make_node(&self, value: &Value) -> Result<()> {
        let node: Node = serde_json::from_value(value.clone())?;
        let name = node.metadata.name.clone().unwrap_or_default();
        self.nodes.create(&PostParams::default(), &node).await?;
        let status = json!({"status": value["status"]});
        self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        let taints = json!({"spec": {"taints": value["spec"]["taints"]}});
        self.nodes.patch(&name, &PatchParams::default(), &Patch::Merge(taints)).await?;
        Ok(())
    }

    async fn make_nodes(&self, values: Vec<Value>) -> Result<()> {
        let made: Vec<Result<()>> =
            stream::iter(values.iter().map(|v| self.make_node(v))).buffered(AT_ONCE).collect().await;
        made.into_iter().collect()
    }

    async fn make_pod(&self, value: &Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(value.clone())?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    pub async fn try_scene(&self, scene: &Scene) -> Result<Report> {
        self.run(scene, true).await
    }

    pub async fn without_nominations(&self, scene: &Scene) -> Result<Report> {
        self.run(scene, false).await
    }

    async fn run(&self, scene: &Scene, nominate: bool) -> Result<Report> {
        self.clear().await?;
        self.storage.make(scene).await?;
        self.make_nodes(scene.nodes.clone()).await?;
        for pod in &scene.running {
            self.make_pod(pod).await?;
        }
        let waiting: Vec<Value> = scene.waiting.iter().flat_map(Group::pods).collect();
        for pod in &waiting {
            let mut pod = pod.clone();
            pod["spec"]["schedulingGates"] = json!([{"name": "oracle.croft.dev/planned"}]);
            self.make_pod(&pod).await?;
        }
        let cluster = scene.cluster();
        let plan = solve(&cluster, &Options::default(), &|| false);
        let machines =
            plan.machines.iter().map(|m| node(&m.name, m.labels.clone(), &m.taints, &m.allocatable));
        self.make_nodes(machines.collect()).await?;
        let homes = homes(&plan);
        let mut report = Report { planned: homes.len(), ..Report::default() };
        if nominate {
            for (pod, home) in nominations(&cluster, &plan) {
                let patch = json!({"status": {"nominatedNodeName": home}});
                self.pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        let ungate = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        for pod in &waiting {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            self.pods.patch(name, &PatchParams::default(), &ungate).await?;
        }
        let patience = if nominate { PATIENCE } else { Duration::from_secs(12) };
        let outcome = until("every planned pod bound", patience, || async {
            self.storage.provision().await?;
            let bound = self.bound().await?;
            let (planned, bound) = (by_group(homes.keys()), by_group(bound.keys()));
            let missing: Vec<&str> = planned
                .iter()
                .filter(|(group, n)| bound.get(*group).copied().unwrap_or_default() < **n)
                .map(|(group, _)| *group)
                .collect();
            Ok::<_, anyhow::Error>(if missing.is_empty() {
                Seen::Yes(())
            } else {
                Seen::NotYet(format!("{missing:?} pending"))
            })
        })
        .await;
        let bound = self.bound().await?;
        let seen = by_group(bound.keys());
        report.bound = by_group(homes.keys())
            .iter()
            .map(|(group, n)| seen.get(group).copied().unwrap_or_default().min(*n))
            .sum();
        report.home = homes.iter().filter(|(pod, home)| bound.get(*pod) == Some(home)).count();
        if let (Err(error), true) = (outcome, nominate) {
            report.problem = Some(format!("{error}; planned {homes:?}; bound {bound:?}"));
            return Ok(report);
        }
        if nominate {
            report.problem = self.impossible(scene, &plan, &homes).await?;
        }
        Ok(report)
    }

    /// Pods by name, and the nodes that they are bound to.
    async fn bound(&self) -> Result<BTreeMap<String, String>, kube::Error> {
        let pods = self.pods.list(&ListParams::default()).await?;
        let one = |pod: Pod| Some((pod.metadata.name?, pod.spec?.node_name?));
        Ok(pods.items.into_iter().filter_map(one).collect())
    }

    /// What kube-scheduler binds that Croft called impossible, with a node of every offering there.
    async fn impossible(
        &self,
        scene: &Scene,
        plan: &Plan,
        homes: &BTreeMap<String, String>,
    ) -> Result<Option<String>> {
        let hopeless: Vec<String> = plan
            .unschedulable
            .iter()
            .filter(|u| u.reasons.iter().all(|r| !r.reason.is_limit() && final_word(r.reason)))
            .map(|u| u.pod.name.to_string())
            .collect();
        if hopeless.is_empty() {
            return Ok(None);
        }
        self.make_nodes(scene.pools.iter().flat_map(every_node).collect()).await?;
        // Copies come after the nodes; once a pod that can be bound and came later is bound, each has had its try.
        let waiting: Vec<Value> = scene.waiting.iter().flat_map(Group::pods).collect();
        for pod in &waiting {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if hopeless.iter().any(|h| h == name) {
                let mut copy = pod.clone();
                copy["metadata"]["name"] = json!(format!("copy-{name}"));
                self.make_pod(&copy).await?;
            }
        }
        let sentinel = json!({"metadata": {"namespace": NAMESPACE, "name": "sentinel"}, "spec": {
            "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}]}});
        self.make_pod(&sentinel).await?;
        until("the sentinel bound", PATIENCE, || async {
            self.storage.provision().await?;
            let bound = self.bound().await?;
            Ok::<_, anyhow::Error>(Seen::from_option(bound.get("sentinel").cloned(), "pending"))
        })
        .await?;
        let bound = self.bound().await?;
        let (planned, seen) = (by_group(homes.keys()), by_group(bound.keys()));
        let too_many = |name: &str| {
            let group = group_of(name);
            seen.get(group).copied().unwrap_or_default() > planned.get(group).copied().unwrap_or_default()
        };
        let wrong: Vec<String> = hopeless
            .iter()
            .flat_map(|h| [h.clone(), format!("copy-{h}")])
            .filter(|name| too_many(name))
            .filter_map(|name| bound.get(&name).map(|node| format!("{name} on {node}")))
            .collect();
        let said: Vec<String> = plan
            .unschedulable
            .iter()
            .flat_map(|u| {
                u.reasons.iter().map(move |r| format!("{} {} {}: {}", u.pod, r.pool, r.reason, r.detail))
            })
            .collect();
        Ok((!wrong.is_empty()).then(|| format!("called impossible and bound: {wrong:?}; said {said:?}")))
    }
}

/// Reasons that hold whatever nodes there are. Spread and affinity depend on what else is placed, and are checked by
/// what is bound.
fn final_word(reason: ReasonKind) -> bool {
    matches!(
        reason,
        ReasonKind::TaintNotTolerated | ReasonKind::NodeAffinityMismatch | ReasonKind::InsufficientResources
    )
}

/// Where each planned pod belongs.
fn homes(plan: &Plan) -> BTreeMap<String, String> {
    let new = plan.machines.iter().flat_map(|m| m.pods.iter().map(|p| (p.name.to_string(), m.name.clone())));
    let old = plan.existing.iter().flat_map(|e| e.pods.iter().map(|p| (p.name.to_string(), e.node.clone())));
    new.chain(old).collect()
}

/// Who is nominated where.
fn nominations(cluster: &Cluster, plan: &Plan) -> Vec<(String, String)> {
    let new = plan.machines.iter().map(|m| (&m.pods, &m.name));
    let old = plan.existing.iter().map(|e| (&e.pods, &e.node));
    new.chain(old)
        .flat_map(|(pods, node)| {
            cluster.nominable(pods).into_iter().map(move |p| (p.name.to_string(), node.clone()))
        })
        .collect()
}

/// The group of a pod: its pods are made from one template, and which of them gets a place is the scheduler's choice.
fn group_of(pod: &str) -> &str {
    let name = pod.strip_prefix("copy-").unwrap_or(pod);
    name.rsplit_once('-').map_or(name, |(group, _)| group)
}

/// How many pods of each group there are.
fn by_group<'a>(pods: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    pods.fold(BTreeMap::new(), |mut groups, pod| {
        *groups.entry(group_of(pod)).or_default() += 1;
        groups
    })
}
