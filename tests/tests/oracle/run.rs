//! One cluster on the real control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result};
use croft_scheduler::{Cluster, Options, Plan, PodKey, ReasonKind, solve};
use croft_simkit::Random;
use croft_testkit::wait::{Seen, until};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    fleet::{Nodes, every_node},
    generate::Scene,
    opened::{Opened, by_name, nodes_of_turn},
    opening::Opening,
    order::Reason,
    pods::{self, COPY, Group, NAMESPACES, group_of, key},
    storage::Storage,
    surroundings,
};

/// Timeout of kube-scheduler, whose back-off after a failed attempt is at most 10 s.
const PATIENCE: Duration = Duration::from_secs(25);
const AT_ONCE: usize = 16;

/// The result of a scene.
#[derive(Default)]
pub struct Report {
    pub planned: usize,
    pub bound: usize,
    /// Pods bound as planned; those of a group are alike.
    pub home: usize,
    /// Pods called infeasible, and tried with a node of every offering.
    pub infeasible: usize,
    /// Groups with pods that stayed pending, or were bound although they were called infeasible, since others came first.
    pub by_order: BTreeMap<String, Reason>,
    pub problem: Option<String>,
}

pub struct Arena {
    client: Client,
    pods: Api<Pod>,
    nodes: Api<Node>,
    storage: Storage,
}

impl Arena {
    pub async fn new(client: Client) -> Result<Self> {
        surroundings::make(&client).await?;
        Ok(Self {
            pods: Api::all(client.clone()),
            storage: Storage::new(client.clone()),
            nodes: Api::all(client.clone()),
            client,
        })
    }

    fn pods_in(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn clear(&self) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        for namespace in NAMESPACES {
            self.pods_in(namespace).delete_collection(&now, &ListParams::default()).await?;
        }
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

    /// Creates a node with the given status, and the taints of admission besides its own.
    async fn make_node(&self, value: &Value, daemon: bool) -> Result<()> {
        let node: Node = serde_json::from_value(value.clone())?;
        let name = node.metadata.name.clone().unwrap_or_default();
        self.nodes.create(&PostParams::default(), &node).await?;
        let status = json!({"status": value["status"]});
        self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        if daemon {
            self.make_pod(&pods::daemon_pod(&name)).await?;
        }
        Ok(())
    }

    /// Leaves a node its own taints alone.
    async fn initialize(&self, value: &Value) -> Result<()> {
        let taints = json!({"spec": {"taints": value["spec"]["taints"]}});
        self.nodes.patch(key(value).1, &PatchParams::default(), &Patch::Merge(taints)).await?;
        Ok(())
    }

    /// Creates initialized nodes. kube-scheduler knows the DaemonSet's pods before others may be bound to them.
    async fn make_nodes(&self, values: Vec<Value>, daemon: bool) -> Result<()> {
        let made = stream::iter(&values).map(|v| self.make_node(v, daemon)).buffered(AT_ONCE);
        made.try_collect::<()>().await?;
        if daemon && !values.is_empty() {
            // Its watch has shown a younger pod.
            self.bind_sentinel().await?;
        }
        stream::iter(&values).map(|v| self.initialize(v)).buffered(AT_ONCE).try_collect().await
    }

    /// Creates a pod that any node takes, waits until it is bound, and deletes it.
    async fn bind_sentinel(&self) -> Result<()> {
        let sentinel = json!({"metadata": {"namespace": NAMESPACES[0], "name": "sentinel",
            "labels": pods::unselected()}, "spec": {
            "priorityClassName": pods::PRIORITIES[1].0, "priority": pods::PRIORITIES[1].1, "preemptionPolicy": "Never",
            "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "i"}]}});
        self.make_pod(&sentinel).await?;
        let (namespace, name) = key(&sentinel);
        let pods = self.pods_in(namespace);
        until("the sentinel bound", PATIENCE, || async {
            self.storage.provision().await?;
            let sentinel = pods.get(name).await?;
            let said = json!(sentinel.status.and_then(|s| s.conditions)).to_string();
            Ok::<_, anyhow::Error>(Seen::from_option(sentinel.spec.and_then(|s| s.node_name), said))
        })
        .await?;
        let now = DeleteParams::default().grace_period(0);
        pods.delete(name, &now).await?;
        Ok(())
    }

    async fn make_pod(&self, value: &Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(value.clone())?;
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let made = self.pods_in(&namespace).create(&PostParams::default(), &pod).await;
        let made = made.with_context(|| value.to_string())?;
        self.storage.create_ephemeral(&made).await
    }

    /// Creates a running pod with its status; deletes it if it is terminating.
    async fn make_running(&self, value: &Value) -> Result<()> {
        let mut pod = value.clone();
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
            metadata.remove("deletionGracePeriodSeconds");
        }
        self.make_pod(&pod).await?;
        let (namespace, name) = key(value);
        let pods = self.pods_in(namespace);
        if !value["status"].is_null() {
            let status = json!({"status": value["status"]});
            pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        }
        if !value["metadata"]["deletionTimestamp"].is_null() {
            let slowly = DeleteParams { grace_period_seconds: Some(600), ..DeleteParams::default() };
            pods.delete(name, &slowly).await?;
        }
        Ok(())
    }

    /// Creates what the scene has. Returns the pending pods, which are gated until they are opened.
    async fn populate(&self, scene: &Scene) -> Result<Vec<Value>> {
        self.clear().await?;
        self.storage.make(scene).await?;
        self.make_nodes(scene.nodes.clone(), scene.daemon).await?;
        for pod in &scene.running {
            self.make_running(pod).await?;
        }
        let waiting: Vec<Value> = scene.waiting.iter().flat_map(Group::pods).collect();
        for pod in &waiting {
            let mut pod = pod.clone();
            if pod["spec"]["schedulingGates"].is_null() {
                pod["spec"]["schedulingGates"] = json!([{"name": "oracle.croft.dev/planned"}]);
            }
            self.make_pod(&pod).await?;
        }
        Ok(waiting)
    }

    /// Pods planned onto existing nodes come first, then those planned onto coming nodes: they are bound before further
    /// instances exist, and see none of the domains that those open.
    ///
    /// With [`Opening::AtOnce`] pods see those domains: planned pods may stay pending then, as they may in a cluster until they
    /// are planned again. That is counted and no disagreement.
    pub async fn run(&self, scene: &Scene, opening: Opening) -> Result<Report> {
        let nominate = opening != Opening::Unaided;
        let mut random = Random::new(scene.seed);
        let waiting = self.populate(scene).await?;
        let cluster = scene.cluster();
        let plan = solve(&cluster, &Options::default(), &|| false);
        let homes = homes(&plan);
        let mut report = Report { planned: homes.len(), ..Report::default() };
        if let Some(gated) =
            scene.waiting.iter().filter(|g| g.gated).find(|g| homes.keys().any(|p| group_of(p) == g.name))
        {
            report.problem = Some(format!("{} is gated and planned: {homes:?}", gated.name));
            return Ok(report);
        }
        let turn = |pod: &str| match homes.get(pod) {
            Some(_) if !nominate || opening == Opening::AtOnce => 2,
            Some(home) if scene.nodes.iter().any(|node| key(node).1 == home) => 0,
            Some(home) if scene.coming.iter().any(|coming| coming.claim == *home) => 1,
            _ => 2,
        };
        let mut opened = Opened::new(scene, opening, &plan, &homes);
        let mut outcome = Ok(());
        for now in 0..3 {
            let nodes = nodes_of_turn(scene, &plan, now);
            opened.nodes.extend(by_name(&nodes));
            self.make_nodes(nodes, scene.daemon).await?;
            let said = if nominate {
                nominations(&opened.nodes, self.seen(scene, &plan, cluster.clone(), now).await?, &plan)?
            } else {
                BTreeMap::new()
            };
            let is_theirs =
                |pod: &&Value| pod["spec"]["schedulingGates"].is_null() && turn(key(pod).1) == now;
            let mut theirs: Vec<&Value> = waiting.iter().filter(is_theirs).collect();
            let told = said.keys().map(String::as_str).collect();
            opening.sort(&mut theirs, &told, &homes.keys().map(String::as_str).collect(), &mut random);
            self.open(&theirs, &said).await?;
            let names = theirs.iter().map(|pod| key(pod).1);
            opened.nominated.extend(names.filter(|pod| said.contains_key(*pod)).map(str::to_owned));
            let patience = if nominate { PATIENCE } else { Duration::from_secs(12) };
            let of_turn =
                homes.keys().filter(|pod| turn(pod) <= now && !report.by_order.contains_key(group_of(pod)));
            let expected: Vec<&String> = of_turn.collect();
            outcome = self.all_bound(&expected, patience).await;
            if outcome.is_err() && matches!(opening, Opening::InOrder | Opening::Shuffled) {
                let pods = homes.iter().filter(|(pod, _)| turn(pod) <= now).collect();
                let bound = self.bound().await?;
                if let Some(pending) = opened.decided_by_order(&pods, &bound) {
                    report.by_order.extend(pending);
                    outcome = Ok(());
                    if opening == Opening::InOrder {
                        // Later turns would find their room taken by pods that are still pending.
                        break;
                    }
                } else if let Some(pending) = opened.kept_out(&pods, &bound) {
                    outcome = self.bound_if_retried(&expected).await;
                    let pending = pending.into_iter().filter(|_| outcome.is_ok());
                    report.by_order.extend(pending.map(|group| (group, Reason::NotRetried)));
                }
                if outcome.is_err() {
                    break;
                }
            }
        }
        let bound = self.bound().await?;
        let seen = by_group(bound.keys());
        report.bound = by_group(homes.keys())
            .iter()
            .map(|(group, n)| seen.get(group).copied().unwrap_or_default().min(*n))
            .sum();
        report.home = opened.at_home(&bound);
        if let (Err(error), Opening::InOrder | Opening::Shuffled) = (outcome, opening) {
            let more = self.describe(&plan, &homes, &bound, &opened.nominated).await?;
            report.problem = Some(format!("{error}; {more}"));
            return Ok(report);
        }
        if nominate {
            self.evaluate_infeasible(&opened, &plan, &mut report).await?;
        }
        Ok(report)
    }

    /// The cluster with the pods bound so far, and the planned instances as coming nodes: nominations are decided when
    /// a node registers.
    async fn seen(&self, scene: &Scene, plan: &Plan, mut cluster: Cluster, now: i32) -> Result<Cluster> {
        for coming in scene.coming.iter().filter(|_| now > 0) {
            cluster.remove_coming(&coming.claim);
            cluster.upsert_node(&self.nodes.get(&coming.claim).await?)?;
        }
        for instance in plan.instances.iter().filter(|_| now > 1) {
            cluster.upsert_coming(instance.coming(&instance.name));
        }
        self.add_bound(&mut cluster).await?;
        Ok(cluster)
    }

    /// Nominates pods and lifts their gates, in this order.
    async fn open(&self, pods: &[&Value], said: &BTreeMap<String, String>) -> Result<()> {
        let ungate = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        for pod in pods {
            let (namespace, name) = key(pod);
            if let Some(home) = said.get(name) {
                let patch = json!({"status": {"nominatedNodeName": home}});
                let patched = self.pods_in(namespace);
                patched.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        for pod in pods {
            let (namespace, name) = key(pod);
            self.pods_in(namespace).patch(name, &PatchParams::default(), &ungate).await?;
        }
        Ok(())
    }

    /// Waits until `left` finds nothing, and creates the volumes for which kube-scheduler chooses nodes meanwhile.
    async fn wait_for_none(
        &self,
        what: &str,
        patience: Duration,
        left: impl AsyncFn() -> Result<Vec<String>>,
    ) -> Result<()> {
        let look = || async {
            self.storage.provision().await?;
            let left = left().await?;
            Ok::<_, anyhow::Error>(if left.is_empty() {
                Seen::Yes(())
            } else {
                Seen::NotYet(format!("{left:?} pending"))
            })
        };
        Ok(until(what, patience, look).await?)
    }

    /// Waits until as many pods of each group are bound as `pods` has.
    async fn all_bound(&self, pods: &[&String], patience: Duration) -> Result<()> {
        let planned = by_group(pods.iter().copied());
        let missing = async || {
            let bound = self.bound().await?;
            let bound = by_group(bound.keys());
            let is_missing =
                |(group, n): &(&&str, &usize)| bound.get(*group).copied().unwrap_or_default() < **n;
            Ok(planned.iter().filter(is_missing).map(|(group, _)| (*group).to_owned()).collect())
        };
        self.wait_for_none("every planned pod bound", patience, missing).await
    }

    /// Makes kube-scheduler try all pods again, as it does when a pod ends, and waits as [`all_bound`](Self::all_bound) does.
    async fn bound_if_retried(&self, pods: &[&String]) -> Result<()> {
        self.bind_sentinel().await?;
        self.all_bound(pods, PATIENCE).await
    }

    /// Pods by name, and their nodes.
    async fn bound(&self) -> Result<BTreeMap<String, String>, kube::Error> {
        let pods = self.pods.list(&ListParams::default()).await?;
        let one = |pod: Pod| Some((pod.metadata.name?, pod.spec?.node_name?));
        Ok(pods.items.into_iter().filter_map(one).collect())
    }

    async fn describe(
        &self,
        plan: &Plan,
        homes: &BTreeMap<String, String>,
        bound: &BTreeMap<String, String>,
        nominated: &BTreeSet<String>,
    ) -> Result<String> {
        let (on, left, why) = (instances(plan), said_of(plan), self.why_pending().await?);
        Ok(format!(
            "planned {homes:?} on {on:?}; bound {bound:?}; left {left:?}; nominated {nominated:?}; kube-scheduler says {why:?}"
        ))
    }

    /// The messages of kube-scheduler about pending pods.
    async fn why_pending(&self) -> Result<BTreeMap<String, String>, kube::Error> {
        let pods = self.pods.list(&ListParams::default()).await?;
        let one = |pod: Pod| {
            let conditions = pod.status?.conditions?;
            let failed = conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
            Some((pod.metadata.name?, failed.message?))
        };
        Ok(pods.items.into_iter().filter_map(one).collect())
    }

    /// Waits until each of these pods is bound or was refused. One that kube-scheduler has chosen a node for is neither until
    /// its volumes are there, and others count it.
    async fn all_tried(&self, pods: &BTreeSet<String>) -> Result<()> {
        let untried = async || {
            let all = self.pods.list(&ListParams::default()).await?.items.into_iter();
            let untried = all.filter(|pod| pods.contains(&pod.name_any()) && !is_tried(pod));
            Ok(untried.map(|pod| pod.name_any()).collect())
        };
        self.wait_for_none("every pod tried", PATIENCE, untried).await
    }

    /// Deletes the `infeasible` pods of groups that had some bound: before others that their reasons depend on, or after
    /// others that made room for them in a spread. Their copies show whether they could be bound beside those. Returns the
    /// groups.
    async fn take_back(
        &self,
        opened: &Opened<'_>,
        infeasible: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Reason>> {
        let bound = self.bound().await?;
        let early = infeasible.iter().filter(|name| opened.is_surplus(name, &bound));
        let early: BTreeMap<String, Reason> =
            early.map(|name| (group_of(name).to_owned(), Reason::Early)).collect();
        let now = DeleteParams::default().grace_period(0);
        // Pending ones would take the places of the bound.
        for pod in opened.pods_of(infeasible).iter().filter(|pod| early.contains_key(group_of(key(pod).1))) {
            let (namespace, name) = key(pod);
            self.pods_in(namespace).delete(name, &now).await?;
        }
        Ok(early)
    }

    async fn add_bound(&self, cluster: &mut Cluster) -> Result<()> {
        for pod in self.pods.list(&ListParams::default()).await?.items {
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                cluster.upsert_pod(&pod)?;
            }
        }
        Ok(())
    }

    /// The cluster as it is now.
    async fn now(&self, scene: &Scene) -> Result<Cluster> {
        let mut cluster = scene.cluster();
        for coming in &scene.coming {
            cluster.remove_coming(&coming.claim);
        }
        for node in self.nodes.list(&ListParams::default()).await?.items {
            cluster.upsert_node(&node)?;
        }
        self.add_bound(&mut cluster).await?;
        Ok(cluster)
    }

    /// Pods that kube-scheduler binds although Croft called them infeasible, with a node of every offering. Groups that Croft
    /// plans more of once the others are bound aren't evaluated: bound pods may make room for them, in a spread by their
    /// counts.
    async fn evaluate_infeasible(&self, opened: &Opened<'_>, plan: &Plan, report: &mut Report) -> Result<()> {
        let Opened { scene, homes, .. } = opened;
        // Reasons that depend on other pods hold only if those are where they were planned and none is missing.
        let as_planned = report.home == report.planned && opened.limited.is_empty();
        let mut infeasible = infeasible(plan, as_planned);
        if infeasible.is_empty() {
            return Ok(());
        }
        self.all_tried(&infeasible).await?;
        report.by_order.extend(self.take_back(opened, &infeasible).await?);
        let again = solve(&self.now(scene).await?, &Options::default(), &|| false);
        let later = self::homes(&again);
        let later: BTreeSet<&str> = later.keys().map(|pod| group_of(pod)).collect();
        infeasible.retain(|pod| !later.contains(group_of(pod)));
        report.infeasible = infeasible.len();
        if infeasible.is_empty() {
            return Ok(());
        }
        let every: Vec<Value> = scene.pools.iter().flat_map(every_node).collect();
        self.make_nodes(every, scene.daemon).await?;
        // Copies are created after the nodes; once a younger feasible pod is bound, each has been tried.
        for mut copy in opened.pods_of(&infeasible) {
            copy["metadata"]["name"] = json!(format!("{COPY}{}", key(&copy).1));
            self.make_pod(&copy).await?;
        }
        self.bind_sentinel().await?;
        let bound = self.bound().await?;
        let wrong: Vec<String> = infeasible
            .iter()
            .flat_map(|name| [name.clone(), format!("{COPY}{name}")])
            .filter(|name| opened.is_surplus(name, &bound))
            .map(|name| format!("{name} on {}", bound[&name]))
            .collect();
        if !wrong.is_empty() {
            let said = said_of(plan);
            report.problem = Some(format!(
                "called infeasible and bound: {wrong:?}; said {said:?}; planned {homes:?} on {:?}",
                instances(plan)
            ));
        }
        Ok(())
    }
}

/// True if the pod is bound, if kube-scheduler found no node for it, or if it is gated since its turn didn't come.
fn is_tried(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    spec.is_some_and(|spec| spec.node_name.is_some() || spec.scheduling_gates.is_some())
        || conditions.any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
}

/// The pods that were called infeasible, for reasons that are evaluated.
fn infeasible(plan: &Plan, as_planned: bool) -> BTreeSet<String> {
    let is_infeasible =
        |u: &&croft_scheduler::Unschedulable| u.reasons.iter().all(|r| is_evaluated(r.reason, as_planned));
    plan.unschedulable.iter().filter(is_infeasible).map(|u| u.pod.name.to_string()).collect()
}

/// True for reasons that hold on every node, and with `as_planned` for those that depend only on other pods.
fn is_evaluated(reason: ReasonKind, as_planned: bool) -> bool {
    match reason {
        ReasonKind::TaintNotTolerated
        | ReasonKind::NodeAffinityMismatch
        | ReasonKind::InsufficientResources
        | ReasonKind::VolumeTopology => true,
        ReasonKind::TopologySpread | ReasonKind::PodAffinity | ReasonKind::PodAntiAffinity => as_planned,
        _ => false,
    }
}

fn said_of(plan: &Plan) -> Vec<String> {
    let one = |u: &croft_scheduler::Unschedulable| {
        let reasons: Vec<String> =
            u.reasons.iter().map(|r| format!("{} {}: {}", r.pool, r.reason, r.detail)).collect();
        format!("{} {}", u.pod, reasons.join("; "))
    };
    plan.unschedulable.iter().map(one).collect()
}

/// The launched instances.
fn instances(plan: &Plan) -> Vec<String> {
    plan.instances.iter().map(|m| format!("{} {} {}", m.name, m.instance_type, m.zone)).collect()
}

/// The planned node of each pod.
fn homes(plan: &Plan) -> BTreeMap<String, String> {
    let new = plan.instances.iter().flat_map(|m| m.pods.iter().map(|p| (p.name.to_string(), m.name.clone())));
    let old = plan.existing.iter().flat_map(|e| e.pods.iter().map(|p| (p.name.to_string(), e.node.clone())));
    new.chain(old).collect()
}

/// The nominated pods with their nodes: of each node as it registers, while the others are on their way.
fn nominations(nodes: &Nodes, mut cluster: Cluster, plan: &Plan) -> Result<BTreeMap<String, String>> {
    let new = plan.instances.iter().map(|m| (&m.name, &m.pods, true));
    let old = plan.existing.iter().map(|e| (&e.node, &e.pods, e.coming));
    let all: Vec<(&String, &Vec<PodKey>, bool)> = old.chain(new).collect();
    let nominate = |cluster: &mut Cluster, node: &str, pods: &[PodKey], coming| {
        pods.iter().for_each(|pod| cluster.nominate(pod, node, coming));
    };
    for (node, pods, coming) in &all {
        nominate(&mut cluster, node, pods, *coming);
    }
    let mut result = BTreeMap::new();
    for (name, pods, _) in all {
        let Some(node) = nodes.get(name) else { continue };
        cluster.remove_coming(name);
        cluster.upsert_node(node)?;
        nominate(&mut cluster, name, pods, false);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        result.extend(
            cluster.nominable(pods, &labels).into_iter().map(|pod| (pod.name.to_string(), name.clone())),
        );
    }
    Ok(result)
}

/// Number of pods of each group.
fn by_group<'a>(pods: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    pods.fold(BTreeMap::new(), |mut groups, pod| {
        *groups.entry(group_of(pod)).or_default() += 1;
        groups
    })
}
