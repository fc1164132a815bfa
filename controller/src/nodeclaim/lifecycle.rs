//! The lifecycle of claims, from creation to initialized nodes.
//!
//! ```text
//!   (created) ──Launch──▶ Launched ──Register──▶ Registered ──initialize──▶ Initialized = Ready
//!       │                    │                       │
//!       └── refused, or ─────┴── node never ─────────┴── not in time, or node ────▶ deleted ──▶ termination
//!           timeout              registered               or instance gone
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    NodeClaim, NodeClaimStatus, TenantPool,
    condition::{DRIFTED, INITIALIZED, INTERRUPTED, LAUNCHED, REGISTERED, Statement},
    pool::DeclaredResources,
};
use croft_cloud::{LaunchRequest, ObservedNode};
use croft_scheduler::{CapacityType, PodKey, Quantity, Resources, resources};
use k8s_openapi::api::core::v1::Taint;

use crate::{
    action::{Action, Key, Launch, Registration},
    definitions::{conditions as reasons, events, keys},
    in_flight::InFlight,
    kube_api::Verb,
    nodeclaim::{
        conditions::{find_condition, set_with_ready},
        initialization_timeout, launch_failures, node_patch,
        termination::Termination,
        writes::{delete_claim, patch_node, status_action},
    },
    reconcile::{ReconcileContext, object_reference},
    state::{Evidence, NodeView, Snapshot, has_condition, instance_of, is_accepted},
};

/// Taints of a node whose components are still starting; such a node isn't initialized.
const STARTING_TAINTS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];
/// The condition Initialized is written as False only this long after the registration: most nodes are initialized by
/// then, and a write per step and node would be most of the writes while many nodes start.
const NOT_INITIALIZED_AFTER: Duration = Duration::from_secs(5);
/// A node counts as initialized so long after its registration, though it lacks what its template declares.
const DECLARED_RESOURCES_WITHIN: Duration = Duration::from_secs(600);

/// Reconciles claims.
#[derive(Debug, Default)]
pub struct Lifecycle {
    /// Claims whose node was found as it should be, and the node's version then.
    maintained: BTreeMap<String, (Arc<NodeClaim>, u64)>,
    /// Claims whose node lacks labels that it should have, and since when.
    labels_changed_since: BTreeMap<String, Duration>,
    /// Claims whose node's capacity was reported to the cloud provider.
    capacity_reported: BTreeSet<String>,
    /// Claims whose node should have been initialized by now, and what it lacks.
    overdue: BTreeMap<String, String>,
    termination: Termination,
}

impl Lifecycle {
    /// Since when the labels of a claim's node differ from what they should be, on the monotonic clock.
    #[must_use]
    pub fn labels_changed_since(&self, claim: &str) -> Option<Duration> {
        self.labels_changed_since.get(claim).copied()
    }

    /// The claims whose node should have been initialized by now, each with what its node lacks.
    #[must_use]
    pub const fn overdue(&self) -> &BTreeMap<String, String> {
        &self.overdue
    }

    /// The termination of claims.
    pub fn termination_mut(&mut self) -> &mut Termination {
        &mut self.termination
    }

    /// Forgets deleted claims and pods.
    pub fn retain_known(&mut self, snapshot: &Snapshot) {
        self.capacity_reported.retain(|claim| snapshot.claims().contains_key(claim));
        self.termination.retain_known(snapshot);
    }

    /// Takes the next step of every dirty claim. `cordoned_since` tells since when nodes are cordoned as empty.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, cordoned_since: &BTreeMap<String, Duration>) {
        let snapshot = ctx.snapshot;
        if self.maintained.len() > snapshot.claims().len() {
            self.maintained.retain(|name, _| snapshot.claims().contains_key(name));
        }
        self.labels_changed_since.retain(|name, _| snapshot.claims().contains_key(name));
        let waits = |claim: &NodeClaim| {
            claim.metadata.deletion_timestamp.is_none() && !has_condition(claim, INITIALIZED)
        };
        self.overdue.retain(|name, _| snapshot.claims().get(name).is_some_and(|claim| waits(claim)));
        self.termination.begin_pass(ctx);
        for (name, claim) in snapshot.dirty_claims() {
            if !ctx.is_idle(&Key::Claim(name.clone())) {
                continue;
            }
            if claim.metadata.deletion_timestamp.is_some() {
                self.termination.reconcile(ctx, cordoned_since, name, claim);
            } else if claim.status.as_ref().is_none_or(|s| s.provider_id.is_none()) {
                launch(ctx, name, claim);
            } else if !has_condition(claim, REGISTERED) {
                register(ctx, name, claim, &self.termination);
            } else {
                self.maintain(ctx, name, claim);
            }
        }
        self.report_capacity(ctx);
    }

    /// Reports the capacity of nodes to the cloud provider, once for each: the next plan for their type uses it.
    fn report_capacity(&mut self, ctx: &mut ReconcileContext<'_>) {
        if !ctx.is_idle(&Key::Capacity) {
            return;
        }
        let snapshot = ctx.snapshot;
        let mut observed = Vec::new();
        for (name, claim) in snapshot.dirty_claims() {
            // A drifted node was set up in another way than the next one will be.
            let skipped = !has_condition(claim, INITIALIZED) || has_condition(claim, DRIFTED);
            if skipped || self.capacity_reported.contains(name) {
                continue;
            }
            let (Some((_, node)), Some(status)) = (snapshot.node_of(claim), &claim.status) else { continue };
            let (Some(instance_type), Some(image_id)) = (&status.instance_type, &status.image_id) else {
                continue;
            };
            self.capacity_reported.insert(name.clone());
            observed.push(ObservedNode {
                class: claim.spec.node_class_ref.name.clone(),
                instance_type: instance_type.clone(),
                image_id: image_id.clone(),
                capacity: node.capacity.clone(),
                allocatable: node.allocatable.clone(),
            });
        }
        if !observed.is_empty() {
            ctx.request(Action::ObserveCapacity(observed));
        }
    }

    /// True if a claim needs no pass until something changes: it is initialized, and its node is Ready and not empty.
    #[must_use]
    pub fn is_settled(
        &self,
        snapshot: &Snapshot,
        evidence: &Evidence,
        in_flight: &InFlight,
        name: &str,
        claim: &Arc<NodeClaim>,
    ) -> bool {
        if claim.metadata.deletion_timestamp.is_some()
            || !has_condition(claim, INITIALIZED)
            || has_condition(claim, INTERRUPTED)
        {
            return false;
        }
        let Some((node_name, node)) = snapshot.node_of(claim) else { return false };
        let free = |key: Key| !in_flight.is_in_flight(&key) && in_flight.failures(&key) == 0;
        self.is_maintained(name, claim, node)
            && !instance_of(claim).is_some_and(|id| evidence.is_in_doubt(id))
            && node.ready
            && node.defects.is_empty()
            && !snapshot.fails_checks(claim)
            && !node.deleting
            && !node.has_taint(keys::DISRUPTED_TAINT)
            && (self.capacity_reported.contains(name) || has_condition(claim, DRIFTED))
            && snapshot.pods_on(node_name).any(|(_, pod)| pod.counts_as_work())
            && free(Key::Claim(name.to_owned()))
            && free(Key::Node(node_name.to_owned()))
    }

    fn is_maintained(&self, name: &str, claim: &Arc<NodeClaim>, node: &NodeView) -> bool {
        let known = self.maintained.get(name);
        known.is_some_and(|(c, version)| Arc::ptr_eq(c, claim) && *version == node.version)
    }

    /// Keeps labels, taints, annotations and finalizer of a registered node, and initializes it.
    fn maintain(&mut self, ctx: &mut ReconcileContext<'_>, name: &str, claim: &Arc<NodeClaim>) {
        let snapshot = ctx.snapshot;
        let node = snapshot.node_of(claim);
        if node.is_some() {
            ctx.evidence.forget_node_of(name);
        }
        let Some((node_name, node)) = node.filter(|(_, node)| !node.deleting) else {
            delete_without_node(ctx, name, claim, node.map(|(name, _)| name));
            return;
        };
        // Labels are many: those of an unchanged node need no comparison.
        if node.version != 0 && self.is_maintained(name, claim, node) {
            return;
        }
        let template = snapshot.template_of(claim).map(|template| &**template);
        let repair = node_patch::repair(claim, node);
        if repair.as_ref().is_some_and(|repair| repair.labels) {
            self.labels_changed_since.entry(name.to_owned()).or_insert(ctx.now.mono);
            let note = format!("labels of node {node_name} were changed; they are restored");
            ctx.event(object_reference(&**claim), true, events::LABELS_RESTORED, note);
        } else {
            self.labels_changed_since.remove(name);
        }
        if repair.as_ref().is_some_and(|repair| repair.taints) {
            let note = format!("taints of its pool were removed from node {node_name}; they are restored");
            ctx.event(object_reference(&**claim), true, events::TAINTS_RESTORED, note);
        }
        let repair = repair.map(|repair| Verb::JsonPatch(repair.patch));
        let write = repair.or_else(|| node_patch::missing_marks(claim, template, node).map(Verb::Patch));
        let write = write.or_else(|| node_patch::add_finalizer(node).map(Verb::JsonPatch));
        let as_it_should_be = write.is_none();
        if let Some(verb) = write {
            ctx.request(patch_node(node_name, verb));
        }
        if has_condition(claim, INITIALIZED) {
            if as_it_should_be {
                self.maintained.insert(name.to_owned(), (Arc::clone(claim), node.version));
            }
            return;
        }
        let (missing, write) = initialize(ctx, name, claim, node_name, node);
        let overdue = missing.filter(|_| initialization_timeout::is_overdue(ctx, claim));
        let replaced = overdue
            .as_ref()
            .is_some_and(|missing| initialization_timeout::replace(ctx, name, claim, node_name, missing));
        if let Some(action) = write.filter(|_| !replaced) {
            ctx.request(action);
        }
        let Some(missing) = overdue else {
            self.overdue.remove(name);
            return;
        };
        if self.overdue.insert(name.to_owned(), missing).is_none() {
            // The next pass counts it.
            ctx.requeue_after(Duration::ZERO);
        }
    }
}

fn launch(ctx: &mut ReconcileContext<'_>, name: &str, claim: &Arc<NodeClaim>) {
    let status = claim.status.as_ref();
    let open = status.and_then(|s| s.attempt.as_ref()).is_some_and(|a| a.request.is_some());
    let refused = status
        .and_then(|s| find_condition(s, LAUNCHED))
        .filter(|c| c.status == "False" && !open)
        .map(|c| c.message.clone());
    if let Some(message) = refused {
        ctx.event(object_reference(&**claim), true, events::LAUNCH_FAILED, message);
        ctx.request(delete_claim(name, claim));
        return;
    }
    let created = ctx.snapshot.milestones(name).created;
    if ctx.has_lasted(created, ctx.settings.launch_timeout) {
        let after = ctx.settings.launch_timeout.as_secs();
        let note =
            format!("no instance after {after} s; the claim is deleted and its pods are planned again");
        ctx.event(object_reference(&**claim), true, events::LAUNCH_TIMEOUT, note);
        ctx.request(delete_claim(name, claim));
        return;
    }
    if claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(keys::ADOPTS)) {
        ctx.request(Action::FindInstance(Arc::clone(claim)));
        return;
    }
    if let Some(request) = launch_request(ctx, name, claim) {
        ctx.request(Action::Launch(Box::new(Launch { claim: Arc::clone(claim), request })));
    } else {
        let class = &claim.spec.node_class_ref.name;
        let note = format!("EC2NodeClass {class} not found; create it, or change the pool's nodeClassRef");
        ctx.event(object_reference(&**claim), true, events::CLASS_NOT_FOUND, note);
    }
}

/// The claim's launch request; none if its class doesn't exist.
fn launch_request(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim) -> Option<LaunchRequest> {
    let spec = &claim.spec;
    let class = &ctx.snapshot.classes().get(&spec.node_class_ref.name)?.object;
    let mut taints = spec.taints.clone();
    taints.extend(spec.startup_taints.clone());
    taints.push(Taint {
        key: keys::UNREGISTERED_TAINT.to_owned(),
        effect: "NoExecute".to_owned(),
        value: None,
        time_added: None,
    });
    let pool_key = ctx.snapshot.pools().get(&spec.pool).map(|p| p.spec.key.as_str());
    let labels = spec
        .labels
        .iter()
        .filter(|(key, _)| Some(key.as_str()) != pool_key && *key != keys::POOL_NAME_LABEL)
        .map(|(k, v)| (k.clone(), v.clone()))
        .chain([(keys::UNREGISTERED_LABEL.to_owned(), "true".to_owned())])
        .collect();
    let last = claim.status.as_ref().and_then(|s| s.attempt.as_ref()).map_or(0, |a| a.number);
    Some(LaunchRequest {
        claim_name: name.to_owned(),
        claim_uid: claim.metadata.uid.clone()?,
        pool: spec.pool.clone(),
        tenant: ctx.snapshot.tenant_of_pool(&spec.pool).map(str::to_owned),
        attempt: last.saturating_add(1),
        class: Arc::clone(class),
        instance_types: spec.instance_types.clone(),
        zones: spec.zones.clone(),
        capacity_type: CapacityType::parse(&spec.capacity_type)?,
        requests: requests(claim),
        labels,
        taints,
        tags: BTreeMap::new(),
    })
}

/// The requests of the claim's pods. The controller wrote them itself, so an unreadable one is left out.
fn requests(claim: &NodeClaim) -> Resources {
    let mut requests = Resources::new();
    for (resource, amount) in &claim.spec.requests {
        if let Ok(quantity) = amount.0.parse::<Quantity>() {
            requests.set_quantity(resource, quantity);
        }
    }
    requests
}

fn register(ctx: &mut ReconcileContext<'_>, name: &str, claim: &Arc<NodeClaim>, termination: &Termination) {
    let Some(status) = claim.status.as_ref() else { return };
    let snapshot = ctx.snapshot;
    let mut is_refused = false;
    if let Some((node_name, node)) = snapshot.node_of(claim) {
        let pool = snapshot.pools().get(&claim.spec.pool);
        // The node keeps its starting taint while the pool takes none: the pool's condition says why.
        is_refused = pool.is_some_and(|pool| !is_accepted(pool));
        if !is_refused {
            ctx.request(Action::Register(Box::new(registration(
                snapshot,
                name,
                claim,
                snapshot.template_of(claim).map(|template| &**template),
                (node_name, node),
            ))));
            let Some(why) = termination.refusal(node_name) else { return };
            is_refused = true;
            let note = format!(
                "node {node_name} can't be registered, since its kubelet started without the taint {}: {why}. Start it with \
                 the labels and taints of Croft's user data",
                keys::UNREGISTERED_TAINT
            );
            ctx.event(object_reference(&**claim), true, events::REGISTRATION_REFUSED, note);
        }
    }
    report_mismatch(ctx, claim, status);
    let launched = snapshot.milestones(name).launched.unwrap_or(ctx.now.mono);
    // Counted first: a launch that is forgotten with its claim would be repeated without end.
    if ctx.has_lasted(launched, ctx.settings.registration_timeout)
        && launch_failures::is_counted(ctx, name, claim)
    {
        let what = if is_refused { "could not register its node" } else { "has registered no node" };
        let note = format!(
            "instance {} {what} {} in {} s; see its console output and user data. It is terminated",
            status.provider_id.as_deref().unwrap_or_default(),
            status.node_name.as_deref().unwrap_or_default(),
            ctx.settings.registration_timeout.as_secs(),
        );
        ctx.event(object_reference(&**claim), true, events::REGISTRATION_TIMEOUT, note);
        ctx.request(delete_claim(name, claim));
    }
}

/// The registration of the claim's node, and the nominations of the pods that are planned onto it.
fn registration(
    snapshot: &Snapshot,
    name: &str,
    claim: &Arc<NodeClaim>,
    pool: Option<&TenantPool>,
    (node_name, node): (&str, &NodeView),
) -> Registration {
    let planned: Vec<PodKey> = snapshot.nominated_to(name).map(|(key, _)| key.clone()).collect();
    // Pods that can't be nominated are scheduled by their own constraints.
    let nominable = if snapshot.cluster().interchangeable(&planned) {
        Vec::new()
    } else {
        let zone = claim.status.as_ref().and_then(|status| status.zone.clone());
        let mut labels = claim.spec.labels.clone();
        labels.extend(zone.map(|zone| (keys::ZONE_LABEL.to_owned(), zone)));
        snapshot.cluster().nominable(&planned, &labels)
    };
    let pods = nominable
        .into_iter()
        .filter_map(|key| Some((key, snapshot.pods().get(key)?)))
        .filter(|(_, pod)| pod.nominated.as_deref() != Some(node_name))
        .map(|(key, pod)| (key.clone(), pod.uid.clone()))
        .collect();
    Registration {
        claim: Arc::clone(claim),
        node: node_name.to_owned(),
        patch: node_patch::registration(claim, pool, node),
        pods,
    }
}

/// Reports a node that has the name of the instance's node and another provider id.
fn report_mismatch(ctx: &mut ReconcileContext<'_>, claim: &NodeClaim, status: &NodeClaimStatus) {
    let Some(name) = status.node_name.as_deref() else { return };
    let Some(node) = ctx.snapshot.nodes().get(name) else { return };
    if let Some(other) = node.provider_id.as_deref() {
        let note = format!(
            "node {name} has the provider id {other}, but this claim's instance is {}: it gets no label and keeps its \
             taint. Find out which process registered it",
            status.provider_id.as_deref().unwrap_or_default(),
        );
        ctx.event(object_reference(claim), true, events::NODE_MISMATCH, note);
    }
}

/// What a registered node lacks, and the write of its condition Initialized.
fn initialize(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &NodeClaim,
    node_name: &str,
    node: &NodeView,
) -> (Option<String>, Option<Action>) {
    let registered = claim.status.as_ref().and_then(|s| find_condition(s, REGISTERED));
    let registered = registered.map_or(ctx.now.wall, |c| c.last_transition_time.0);
    // A plugin that never comes keeps no node for ever, nor does a declaration that was taken back.
    let snapshot = ctx.snapshot;
    let template = snapshot.template_of(claim);
    // A node is replaced at its initializationTimeout: a shorter one would leave the declaration no time.
    let pool = snapshot.pools().get(&claim.spec.pool);
    let timeout = pool.and_then(|pool| pool.spec.disruption.initialization_timeout());
    let within = DECLARED_RESOURCES_WITHIN.min(timeout.unwrap_or(Duration::MAX));
    let is_late = !claim.spec.resources.is_empty() && ctx.is_older(registered, within);
    let declares =
        |all: &[DeclaredResources], name: &str| all.iter().any(|one| one.amounts.contains_key(name));
    let awaited = |name: &str| {
        !declares(&claim.spec.resources, name)
            || template.is_some_and(|template| declares(template.declared_resources(), name)) && !is_late
    };
    let missing = initialization_blocker(claim, node, awaited);
    let absent = initialization_blocker(claim, node, |_| true);
    if missing.is_some() && !ctx.is_older(registered, NOT_INITIALIZED_AFTER) {
        return (missing, None);
    }
    let mut status = claim.status.clone().unwrap_or_default();
    let mut statement = initialized_statement(node_name, missing.clone());
    if let (Some(true), Some(absent)) = (statement.status, absent) {
        statement.message = format!("node {node_name} is Ready, and is used although {absent}");
    }
    set_with_ready(&mut status, statement, claim.metadata.generation, ctx.now.wall);
    (missing, status_action(name, claim, &status))
}

/// Deletes a registered claim whose Node is being deleted (`deleting`) or gone: its instance is drained and terminated.
fn delete_without_node(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &Arc<NodeClaim>,
    deleting: Option<&str>,
) {
    let node = claim.status.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
    let note = match deleting {
        Some(node) => format!(
            "node {node} is being deleted: its pods are evicted within their PodDisruptionBudgets, then its instance is \
             terminated"
        ),
        // The watch may lag: the API server itself is asked.
        None if !ctx.evidence.has_no_node(name) => {
            ctx.request(Action::VerifyNoNode(Arc::clone(claim)));
            return;
        }
        None => format!("node {node} is gone; its instance is drained and terminated"),
    };
    ctx.event(object_reference(&**claim), false, events::NODE_GONE, note);
    ctx.request(delete_claim(name, claim));
}

/// The condition Initialized of a registered node, given what it still lacks.
#[must_use]
pub fn initialized_statement(node: &str, missing: Option<String>) -> Statement {
    match missing {
        None => Statement {
            kind: INITIALIZED,
            status: Some(true),
            reason: reasons::INITIALIZED,
            message: format!("node {node} is Ready and has the resources of its instance type"),
        },
        Some(message) => {
            Statement { kind: INITIALIZED, status: Some(false), reason: reasons::WAITING, message }
        }
    }
}

/// The reasons why a registered node is not initialized yet. Of its devices, only those that `is_awaited` names count.
#[must_use]
pub fn initialization_blocker(
    claim: &NodeClaim,
    node: &NodeView,
    is_awaited: impl Fn(&str) -> bool,
) -> Option<String> {
    if !node.ready {
        return Some("the node is not Ready yet".to_owned());
    }
    let starting = |t: &&Taint| {
        STARTING_TAINTS.contains(&t.key.as_str())
            || claim.spec.startup_taints.iter().any(|s| s.key == t.key && s.effect == t.effect)
    };
    if let Some(taint) = node.taints.iter().find(starting) {
        return Some(format!("the node still has taint {}:{}", taint.key, taint.effect));
    }
    let known = claim.status.as_ref().map(|s| &s.allocatable);
    // A device whose plugin hasn't reported yet is absent or zero.
    let missing = known.into_iter().flatten().find(|(resource, amount)| {
        resources::is_given_later(resource)
            && is_awaited(resource)
            && amount.0.parse::<Quantity>().is_ok_and(|q| q > Quantity::ZERO)
            && node.allocatable.get(resource) == 0
    });
    missing.map(|(resource, _)| format!("the node hasn't reported {resource} yet"))
}
