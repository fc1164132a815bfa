//! A cluster after pending pods have a place and after consolidation has nothing left to do: plan and search, repeated on an input
//! that each result is applied to.
//!
//! Pods are bound as planned. Evictions, launches and consolidateAfter take no time here, and nothing is interrupted, so the end is
//! what the settings lead to while demand and prices stay.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use croft_api::{
    NodeClaim, NodeClaimSpec, NodeClaimStatus,
    convert::static_capacity::{FixedSize, size_of_node, sizes},
    disruption::{Budget, DisruptionReason},
    pool::NodeClassRef,
};
use croft_manifest::{Input, InputError, Origin, Sourced};
use croft_scheduler::{
    ComingNode, InstanceType, Options, Plan, PlannedInstance, PodKey, Resources, Unschedulable,
    consolidation::{Ask, Command, consolidate},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodStatus},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::ResourceExt as _;

use super::{
    consolidation::{Subject, question},
    demand::{Created, coming_node},
    eligibility::Horizon,
    outcome::{Denied, Simulation},
    schedules::put_in_force,
    simulate::{Planned, plan},
};
use crate::{
    class_types::ClassTypes,
    node_index::NodeIndex,
    workload::{controller, is_active},
};

/// Rounds of plan and search. Each lowers the cost or places pods, so that few are needed.
const MOST_ROUNDS: usize = 20;

/// An input on its way to the end of consolidation.
pub struct Settling {
    input: Input,
    types: Arc<[InstanceType]>,
    options: Options,
    /// The pools whose nodes may be removed; every pool's for none.
    pools: Option<BTreeSet<String>>,
    launched: usize,
    evicted: usize,
    unschedulable: Vec<Unschedulable>,
    denied: Vec<Denied>,
    warnings: Vec<String>,
    steps: u64,
    is_cut_short: bool,
}

impl Settling {
    /// Begins with `input`, whose NodeClaims count as registered, and whose pools are as their schedules make them at its time.
    #[must_use]
    pub fn new(mut input: Input, types: Arc<[InstanceType]>, options: Options) -> Self {
        put_in_force(&mut input);
        register_coming(&mut input, &types);
        Self {
            input,
            types,
            options,
            pools: None,
            launched: 0,
            evicted: 0,
            unschedulable: Vec::new(),
            denied: Vec::new(),
            warnings: Vec::new(),
            steps: 0,
            is_cut_short: false,
        }
    }

    /// Removes nodes of these pools only.
    pub(crate) fn only(self, pools: BTreeSet<String>) -> Self {
        Self { pools: Some(pools), ..self }
    }

    /// The objects as they are by now.
    pub(crate) fn into_input(self) -> Input {
        self.input
    }

    /// The objects as they are by now.
    #[must_use]
    pub const fn input(&self) -> &Input {
        &self.input
    }

    /// How many pods consolidation moved.
    pub(crate) const fn evicted(&self) -> usize {
        self.evicted
    }

    /// Pods that found no place in the last plan, and why.
    #[must_use]
    pub fn unschedulable(&self) -> &[Unschedulable] {
        &self.unschedulable
    }

    /// Pods that admission refused.
    #[must_use]
    pub fn denied(&self) -> &[Denied] {
        &self.denied
    }

    /// Warnings of the first plan.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Work steps of plans and searches.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// True if a search ended before it found nothing more.
    #[must_use]
    pub const fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Launches what pending pods need, and binds them. Pods of nodes beyond their pool's fixed number are among them.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn place_pending(&mut self) -> Result<(), InputError> {
        self.remove_surplus_replicas();
        let Planned { simulation, created, .. } =
            plan(&self.input, Arc::clone(&self.types), &self.options, true)?;
        self.create(created);
        self.warnings.clone_from(&simulation.warnings);
        self.denied.clone_from(&simulation.denied);
        self.apply_plan(&simulation);
        Ok(())
    }

    /// Carries out commands of consolidation until none is found.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub fn consolidate(&mut self) -> Result<(), InputError> {
        for _ in 0..MOST_ROUNDS {
            if self.round(Horizon::End, None)? == 0 {
                return Ok(());
            }
        }
        self.is_cut_short = true;
        Ok(())
    }

    /// Carries out what may be done at the input's time, by one search. `changed` says when pods last came to a node or left it.
    /// Returns how many times the disruption budgets were used up for it; zero if there was nothing.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub(crate) fn consolidate_now(
        &mut self,
        changed: &BTreeMap<String, Timestamp>,
    ) -> Result<usize, InputError> {
        self.round(Horizon::Now, Some(changed))
    }

    /// One plan, and one search if it places nothing. Returns how many times the disruption budgets were used up; zero if nothing
    /// was found.
    fn round(
        &mut self,
        horizon: Horizon,
        changed: Option<&BTreeMap<String, Timestamp>>,
    ) -> Result<usize, InputError> {
        let Planned { simulation, cluster, .. } =
            plan(&self.input, Arc::clone(&self.types), &self.options, false)?;
        // Room that a limit or a node has gained.
        if has_placements(&simulation.plan) {
            self.apply_plan(&simulation);
            return Ok(1);
        }
        self.observe(&simulation);
        let subject = Subject { horizon, pools: self.pools.as_ref(), changed, simulation: &simulation };
        let question = question(&self.input, &self.types, &self.options, &subject).within_shares(&cluster);
        if !question.empty.is_empty() {
            self.remove(&question.empty.into_iter().map(|one| one.node).collect());
            return Ok(1);
        }
        let found = consolidate(&cluster, &question.ask, &|| false);
        self.steps = self.steps.saturating_add(found.steps);
        if found.commands.is_empty() {
            self.is_cut_short |= found.cut_short;
            return Ok(0);
        }
        self.apply_commands(&simulation, &found.commands);
        Ok(budgets_used(&question.ask, &found.commands))
    }

    /// Puts the pods of workloads into the input, in place of the workloads.
    fn create(&mut self, created: Created) {
        let Created { pods, volume_claims } = created;
        let input = &mut self.input;
        for (pod, origin) in pods {
            input.pods.put(pod, origin);
        }
        for (claim, origin) in volume_claims {
            input.volume_claims.put(claim, origin);
        }
        input.deployments.retain(|_| false);
        input.replica_sets.retain(|_| false);
        input.stateful_sets.retain(|_| false);
        input.replication_controllers.retain(|_| false);
        input.jobs.retain(|_| false);
        input.cron_jobs.retain(|_| false);
    }

    fn observe(&mut self, simulation: &Simulation) {
        self.steps = self.steps.saturating_add(simulation.plan.steps);
        self.is_cut_short |= simulation.plan.cut_short;
        self.unschedulable.clone_from(&simulation.plan.unschedulable);
    }

    fn apply_plan(&mut self, simulation: &Simulation) {
        self.observe(simulation);
        let mut bound = HashMap::new();
        for instance in &simulation.plan.instances {
            let node = self.launch(instance, simulation.is_estimate(instance));
            bound.extend(instance.pods.iter().map(|pod| (pod.clone(), node.clone())));
        }
        for place in &simulation.plan.existing {
            bound.extend(place.pods.iter().map(|pod| (pod.clone(), place.node.clone())));
        }
        self.bind(&bound);
    }

    fn apply_commands(&mut self, simulation: &Simulation, commands: &[Command]) {
        let mut bound = HashMap::new();
        let mut removed = HashSet::new();
        for command in commands {
            removed.extend(command.nodes.iter().cloned());
            for instance in &command.instances {
                let node = self.launch(instance, simulation.is_estimate(instance));
                bound.extend(instance.pods.iter().map(|pod| (pod.clone(), node.clone())));
            }
            for place in &command.onto {
                bound.extend(place.pods.iter().map(|pod| (pod.clone(), place.node.clone())));
            }
        }
        // Headroom pods are moved too, and exist in no cluster.
        let moved = bound.keys().filter(|pod| self.input.pods.get(&pod.namespace, &pod.name).is_some());
        self.evicted = self.evicted.saturating_add(moved.count());
        self.bind(&bound);
        self.remove(&removed);
    }

    /// Removes nodes beyond the fixed number of their pool, those with the fewest pods first. Their pods wait for a place again.
    fn remove_surplus_replicas(&mut self) {
        let surplus = self.surplus_replicas();
        if surplus.is_empty() {
            return;
        }
        let is_moved =
            |pod: &&Sourced<Pod>| is_demand(pod) && node_of(pod).is_some_and(|node| surplus.contains(node));
        let moved: Vec<Sourced<Pod>> = self.input.pods.iter().filter(is_moved).cloned().collect();
        self.evicted = self.evicted.saturating_add(moved.len());
        for Sourced { object: mut pod, origin } in moved {
            pod.spec.get_or_insert_default().node_name = None;
            pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
            self.input.pods.put(pod, origin);
        }
        self.remove(&surplus);
    }

    fn surplus_replicas(&self) -> HashSet<String> {
        let input = &self.input;
        if input.pools.iter().all(|pool| sizes(pool).next().is_none()) {
            return HashSet::new();
        }
        let mut pods: HashMap<&str, usize> = HashMap::new();
        for node in input.pods.iter().filter(|pod| is_demand(pod)).filter_map(|pod| node_of(pod)) {
            let count = pods.entry(node).or_default();
            *count = count.saturating_add(1);
        }
        let index = NodeIndex::new(input);
        let mut nodes: BTreeMap<_, (usize, Vec<(usize, String)>)> = BTreeMap::new();
        for node in &input.nodes {
            let Some(pool) = index.pool_of(&node.object) else { continue };
            let Some(FixedSize { template, replicas }) = size_of_node(pool, &node.object) else { continue };
            let name = node.name_any();
            let (_, there) =
                nodes.entry((pool.name_any(), template)).or_insert_with(|| (replicas, Vec::new()));
            there.push((pods.get(name.as_str()).copied().unwrap_or_default(), name));
        }
        let mut surplus = HashSet::new();
        for (wanted, mut there) in nodes.into_values() {
            there.sort();
            there.truncate(there.len().saturating_sub(wanted));
            surplus.extend(there.into_iter().map(|(_, name)| name));
        }
        surplus
    }

    /// Removes nodes whose pods have moved.
    fn remove(&mut self, removed: &HashSet<String>) {
        let input = &mut self.input;
        input.nodes.retain(|node| !removed.contains(&node.name_any()));
        input.claims.retain(|claim| {
            let node = claim.status.as_ref().and_then(|status| status.node_name.as_ref());
            node.is_none_or(|node| !removed.contains(node))
        });
        // Pods of DaemonSets end with their node, and so do those that have ended.
        input.pods.retain(|pod| node_of(pod).is_none_or(|node| !removed.contains(node)));
    }

    /// Adds a planned instance as a Ready node with its NodeClaim. Returns the node's name.
    fn launch(&mut self, instance: &PlannedInstance, estimated: bool) -> String {
        let name = loop {
            self.launched += 1;
            let name = format!("new-{}", self.launched);
            if self.input.nodes.get("", &name).is_none() && self.input.claims.get("", &name).is_none() {
                break name;
            }
        };
        let coming = instance.coming(&name);
        let template = Some(instance.template.as_str()).filter(|name| !name.is_empty());
        let pool = self.input.pools.get("", &instance.pool).and_then(|pool| pool.of_template(template));
        let class = pool.and_then(|pool| Some(pool.spec.template.as_ref()?.spec.node_class_ref.clone()));
        let claim = new_claim(&coming, class, instance, estimated);
        self.input.claims.put(claim, origin());
        self.input.nodes.put(new_node(&coming, &name), origin());
        name
    }

    /// Binds pods to nodes, as if they ran there.
    fn bind(&mut self, nodes: &HashMap<PodKey, String>) {
        for (key, node) in nodes {
            let Some(found) = self.input.pods.get(&key.namespace, &key.name) else { continue };
            let (mut pod, origin) = (found.object.clone(), found.origin.clone());
            pod.spec.get_or_insert_default().node_name = Some(node.clone());
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Running".to_owned());
            status.nominated_node_name = None;
            self.input.pods.put(pod, origin);
        }
    }
}

/// How many times a pool's disruption budget is used up by `commands`: a command with launches removes its nodes step by step.
fn budgets_used(ask: &Ask, commands: &[Command]) -> usize {
    let mut removed: BTreeMap<&str, usize> = BTreeMap::new();
    let pools: HashMap<&str, &str> =
        ask.candidates.iter().map(|one| (one.node.as_str(), one.pool.as_str())).collect();
    for node in commands.iter().flat_map(|command| &command.nodes) {
        let count = removed.entry(pools.get(node.as_str()).copied().unwrap_or_default()).or_default();
        *count = count.saturating_add(1);
    }
    let used = removed.into_iter().map(|(pool, removed)| {
        let allowed = ask.constraints.get(pool).map_or(usize::MAX, |constraints| constraints.nodes);
        removed.div_ceil(allowed.max(1))
    });
    used.max().unwrap_or(1)
}

/// True for a budget that never lets a node be removed for `reason`.
pub(crate) fn allows_nothing(budget: &Budget, reason: DisruptionReason) -> bool {
    budget.schedule.is_none()
        && (budget.reasons.is_empty() || budget.reasons.contains(&reason))
        && matches!(budget.nodes.as_str(), "0" | "0%")
}

/// True for a pod that needs another node when its own goes.
fn is_demand(pod: &Pod) -> bool {
    let owner = controller(&pod.metadata).map(|owner| owner.kind.as_str());
    is_active(pod) && !matches!(owner, Some("DaemonSet" | "Node"))
}

fn has_placements(plan: &Plan) -> bool {
    !plan.instances.is_empty() || plan.existing.iter().any(|place| !place.pods.is_empty())
}

fn node_of(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref()
}

/// Nothing of a file.
fn origin() -> Origin {
    Origin { file: "simulated".into(), line: 0 }
}

/// Adds a Node for each NodeClaim that has none and isn't being deleted: it costs already, and pods will run there.
pub fn register_coming(input: &mut Input, types: &Arc<[InstanceType]>) {
    let index = NodeIndex::new(input);
    let waits = |claim: &&Sourced<NodeClaim>| {
        claim.metadata.deletion_timestamp.is_none() && index.node_of(claim).is_none()
    };
    let coming: Vec<_> = input.claims.iter().filter(waits).cloned().collect();
    if coming.is_empty() {
        return;
    }
    let types = ClassTypes::new(input, types);
    for claim in coming {
        let planned = coming_node(&claim.object, &types);
        let status = claim.status.clone().unwrap_or_default();
        let name = status.node_name.clone().unwrap_or_else(|| claim.name_any());
        input.nodes.put(new_node(&planned, &name), claim.origin.clone());
        let status = NodeClaimStatus {
            node_name: Some(name),
            // The Node that is made here has no provider id.
            provider_id: None,
            ..status
        };
        input.claims.put(NodeClaim { status: Some(status), ..claim.object }, claim.origin);
    }
}

fn amounts(resources: &Resources) -> BTreeMap<String, Quantity> {
    let quantities = resources.to_quantities().into_iter();
    quantities.map(|(name, amount)| (name, Quantity(amount.to_string()))).collect()
}

fn new_node(coming: &ComingNode, name: &str) -> Node {
    let mut labels = coming.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    let ready =
        NodeCondition { type_: "Ready".to_owned(), status: "True".to_owned(), ..NodeCondition::default() };
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            taints: Some(coming.taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(amounts(&coming.capacity)),
            allocatable: Some(amounts(&coming.allocatable)),
            conditions: Some(vec![ready]),
            ..NodeStatus::default()
        }),
    }
}

fn new_claim(
    coming: &ComingNode,
    class: Option<NodeClassRef>,
    instance: &PlannedInstance,
    price_estimated: bool,
) -> NodeClaim {
    let none = || NodeClassRef {
        group: croft_api::GROUP.to_owned(),
        kind: "EC2NodeClass".to_owned(),
        name: String::new(),
    };
    let spec = NodeClaimSpec {
        pool: coming.pool.clone(),
        node_class_ref: class.unwrap_or_else(none),
        instance_types: instance.options.clone(),
        zones: instance.zones.clone(),
        capacity_type: coming.capacity_type.as_str().to_owned(),
        requirements: Vec::new(),
        requests: BTreeMap::new(),
        taints: coming.taints.clone(),
        startup_taints: Vec::new(),
        labels: coming.labels.clone(),
        // The Node is there, and shows what it has.
        resources: Vec::new(),
        termination_grace_period: None,
    };
    let status = NodeClaimStatus {
        node_name: Some(coming.claim.clone()),
        instance_type: Some(coming.instance_type.clone()),
        zone: Some(coming.zone.clone()),
        capacity_type: Some(coming.capacity_type.as_str().to_owned()),
        price_per_hour: instance.price.map(|price| price.to_string()),
        price_estimated,
        ..NodeClaimStatus::default()
    };
    NodeClaim {
        metadata: ObjectMeta { name: Some(coming.claim.clone()), ..ObjectMeta::default() },
        spec,
        status: Some(status),
    }
}
