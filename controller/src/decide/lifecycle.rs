//! Claims from wanted to ready.
//!
//! ```text
//!   (created) ──Launch──▶ Launched ──Register──▶ Registered ──initialize──▶ Initialized = Ready
//!       │                    │                       │
//!       └── refused, or ─────┴── node never came ────┴── node or machine gone ──▶ deleted ──▶ termination
//!           timeout
//! ```

use std::{sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, NodeClaimStatus,
    condition::{DRIFTED, INITIALIZED, INTERRUPTED, LAUNCHED, REGISTERED, Statement},
};
use croft_cloud::{LaunchRequest, ObservedNode};
use croft_scheduler::{CapacityType, PodKey, Quantity, Resources};
use k8s_openapi::api::core::v1::Taint;

use super::{Memory, Round, backoff, conditions, nodes, reference, termination};
use crate::{
    action::{Action, Key, Launch, Registration},
    flights::Flights,
    names,
    seam::{Call, Target, Verb},
    snapshot::{NodeView, Snapshot, is},
};

/// Taints that a node has while its parts start; a node with one of them isn't initialized.
const STARTING_TAINTS: [&str; 3] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/uninitialized",
];
/// What a node still lacks is said this long after it registered: most of it is over at once, and one write for each
/// step of each node would be most of what is written while many start.
const SAY_AFTER: Duration = Duration::from_secs(5);
/// A key that was written rests until the watch has shown the deletion.
pub(super) const WATCH_LAG: Duration = Duration::from_secs(2);

/// Decides the next step of every claim.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    if memory.kept.len() > snapshot.claims.len() {
        memory.kept.retain(|name, _| snapshot.claims.contains_key(name));
    }
    memory.relabelled_since.retain(|name, _| snapshot.claims.contains_key(name));
    for (name, claim) in snapshot.restless() {
        if !round.is_idle(&Key::Claim(name.clone())) {
            continue;
        }
        if claim.metadata.deletion_timestamp.is_some() {
            termination::decide(round, memory, name, claim);
        } else if claim.status.as_ref().is_none_or(|s| s.provider_id.is_none()) {
            launch(round, name, claim);
        } else if !is(claim, REGISTERED) {
            register(round, name, claim);
        } else {
            keep(round, memory, name, claim);
        }
    }
    observe(round, memory);
}

/// Tells the provider what nodes really have, once for each: the next plan for their type uses that.
fn observe(round: &mut Round<'_>, memory: &mut Memory) {
    if !round.is_idle(&Key::Capacity) {
        return;
    }
    let snapshot = round.snapshot;
    let mut seen = Vec::new();
    for (name, claim) in snapshot.restless() {
        // A drifted node was set up in another way than the next one will be.
        if memory.observed.contains(name) || !is(claim, INITIALIZED) || is(claim, DRIFTED) {
            continue;
        }
        let (Some((_, node)), Some(status)) = (snapshot.node_of(claim), &claim.status) else { continue };
        let (Some(instance_type), Some(image_id)) = (&status.instance_type, &status.image_id) else {
            continue;
        };
        memory.observed.insert(name.clone());
        seen.push(ObservedNode {
            class: claim.spec.node_class_ref.name.clone(),
            instance_type: instance_type.clone(),
            image_id: image_id.clone(),
            capacity: node.capacity.clone(),
            allocatable: node.allocatable.clone(),
        });
    }
    if !seen.is_empty() {
        round.act(Action::ObserveCapacity(seen));
    }
}

/// True if nothing is left to do about a claim until something touches it: it is not on its way anywhere, and its node
/// works and has work.
#[must_use]
pub fn is_quiet(
    snapshot: &Snapshot,
    memory: &Memory,
    flights: &Flights,
    name: &str,
    claim: &Arc<NodeClaim>,
) -> bool {
    if claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED) || is(claim, INTERRUPTED) {
        return false;
    }
    let Some((node_name, node)) = snapshot.node_of(claim) else { return false };
    let kept = memory.kept.get(name);
    let is_kept = kept.is_some_and(|(c, version)| Arc::ptr_eq(c, claim) && *version == node.version);
    let free = |key: Key| !flights.is_flying(&key) && flights.failures(&key) == 0;
    let in_doubt = super::instances::instance_of(claim).is_some_and(|id| memory.answers.are_about(id));
    is_kept
        && !in_doubt
        && node.ready
        && !node.deleting
        && !node.has_taint(names::DISRUPTED_TAINT)
        && (memory.observed.contains(name) || is(claim, DRIFTED))
        && snapshot.pods_on(node_name).any(|(_, pod)| pod.counts_as_work())
        && free(Key::Claim(name.to_owned()))
        && free(Key::Node(node_name.to_owned()))
}

fn launch(round: &mut Round<'_>, name: &str, claim: &Arc<NodeClaim>) {
    let status = claim.status.as_ref();
    let unanswered = status.and_then(|s| s.attempt.as_ref()).is_some_and(|a| a.request.is_some());
    let refused = status
        .and_then(|s| conditions::find(s, LAUNCHED))
        .filter(|c| c.status == "False" && !unanswered)
        .map(|c| c.message.clone());
    if let Some(message) = refused {
        round.tell(reference(&**claim), true, "LaunchFailed", message);
        round.act(delete(name, claim));
        return;
    }
    let created = round.snapshot.milestones(name).created;
    if round.has_lasted(created, round.settings.launch_timeout) {
        let after = round.settings.launch_timeout.as_secs();
        let note = format!("no machine after {after} s; the claim is given up and its pods are planned anew");
        round.tell(reference(&**claim), true, "LaunchTimeout", note);
        round.act(delete(name, claim));
        return;
    }
    if claim.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::ADOPTS)) {
        round.act(Action::FindMachine(Arc::clone(claim)));
        return;
    }
    if let Some(request) = request(round, name, claim) {
        round.act(Action::Launch(Box::new(Launch { claim: Arc::clone(claim), request })));
    } else {
        let class = &claim.spec.node_class_ref.name;
        let note = format!("EC2NodeClass {class} is not there; create it, or change the pool's nodeClassRef");
        round.tell(reference(&**claim), true, "ClassNotFound", note);
    }
}

fn request(round: &Round<'_>, name: &str, claim: &NodeClaim) -> Option<LaunchRequest> {
    let spec = &claim.spec;
    let class = &round.snapshot.classes.get(&spec.node_class_ref.name)?.object;
    let mut taints = spec.taints.clone();
    taints.extend(spec.startup_taints.clone());
    taints.push(Taint {
        key: names::UNREGISTERED_TAINT.to_owned(),
        effect: "NoExecute".to_owned(),
        value: None,
        time_added: None,
    });
    let pool_key = round.snapshot.pools.get(&spec.pool).map(|p| p.spec.key.as_str());
    let labels = spec
        .labels
        .iter()
        .filter(|(key, _)| Some(key.as_str()) != pool_key && *key != names::POOL_LABEL)
        .map(|(k, v)| (k.clone(), v.clone()))
        .chain([(names::UNREGISTERED_LABEL.to_owned(), "true".to_owned())])
        .collect();
    let last = claim.status.as_ref().and_then(|s| s.attempt.as_ref()).map_or(0, |a| a.number);
    Some(LaunchRequest {
        claim_name: name.to_owned(),
        claim_uid: claim.metadata.uid.clone()?,
        pool: spec.pool.clone(),
        tenant: round.snapshot.tenant_of_pool(&spec.pool).map(str::to_owned),
        attempt: last.saturating_add(1),
        class: Arc::clone(class),
        instance_types: spec.instance_types.clone(),
        zones: spec.zones.clone(),
        capacity_type: CapacityType::parse(&spec.capacity_type)?,
        requests: requests(claim),
        labels,
        taints,
        tags: std::collections::BTreeMap::new(),
    })
}

/// What the claim's pods ask for, as far as it can be read: the controller wrote it itself.
fn requests(claim: &NodeClaim) -> Resources {
    let mut requests = Resources::new();
    for (resource, amount) in &claim.spec.requests {
        if let Ok(quantity) = amount.0.parse::<Quantity>() {
            requests.set_quantity(resource, quantity);
        }
    }
    requests
}

fn register(round: &mut Round<'_>, name: &str, claim: &Arc<NodeClaim>) {
    let Some(status) = claim.status.as_ref() else { return };
    let snapshot = round.snapshot;
    if let Some((node_name, node)) = snapshot.node_of(claim) {
        let pool = snapshot.pools.get(&claim.spec.pool).map(|p| &**p);
        // Those that may not be told find their place by their own constraints.
        let planned: Vec<PodKey> = snapshot.nominated_to(name).map(|(key, _)| key.clone()).collect();
        let told = if snapshot.cluster.interchangeable(&planned) {
            Vec::new()
        } else {
            let mut labels = claim.spec.labels.clone();
            labels.extend(status.zone.clone().map(|zone| (names::ZONE_LABEL.to_owned(), zone)));
            snapshot.cluster.nominable(&planned, &labels)
        };
        let pods = told
            .into_iter()
            .filter_map(|key| Some((key, snapshot.pods.get(key)?)))
            .filter(|(_, pod)| pod.nominated.as_deref() != Some(node_name))
            .map(|(key, pod)| (key.clone(), pod.uid.clone()))
            .collect();
        round.act(Action::Register(Box::new(Registration {
            claim: Arc::clone(claim),
            node: node_name.to_owned(),
            patch: nodes::registration(claim, pool, node),
            pods,
        })));
        return;
    }
    impostor(round, claim, status);
    let launched = snapshot.milestones(name).launched.unwrap_or(round.now.mono);
    // Counted first: a launch that is forgotten with its claim would be repeated for ever.
    if round.has_lasted(launched, round.settings.registration_timeout)
        && backoff::is_counted(round, name, claim)
    {
        let note = format!(
            "machine {} has made no node {} in {} s; see its console output and user data. It is given back",
            status.provider_id.as_deref().unwrap_or_default(),
            status.node_name.as_deref().unwrap_or_default(),
            round.settings.registration_timeout.as_secs(),
        );
        round.tell(reference(&**claim), true, "RegistrationTimeout", note);
        round.act(delete(name, claim));
    }
}

/// A node that has the machine's name and says that it is another machine.
fn impostor(round: &mut Round<'_>, claim: &NodeClaim, status: &NodeClaimStatus) {
    let Some(name) = status.node_name.as_deref() else { return };
    let Some(node) = round.snapshot.nodes.get(name) else { return };
    if let Some(other) = node.provider_id.as_deref() {
        let note = format!(
            "node {name} says that it is {other}, but this claim's machine is {}: it gets no label and keeps its \
             taint. Find out who registered it",
            status.provider_id.as_deref().unwrap_or_default(),
        );
        round.tell(reference(claim), true, "NodeMismatch", note);
    }
}

fn keep(round: &mut Round<'_>, memory: &mut Memory, name: &str, claim: &Arc<NodeClaim>) {
    let snapshot = round.snapshot;
    let node = snapshot.node_of(claim);
    if node.is_some() {
        memory.nodeless_at.remove(name);
    }
    let Some((node_name, node)) = node.filter(|(_, node)| !node.deleting) else {
        unmade(round, memory, name, claim, node.map(|(name, _)| name));
        return;
    };
    // Labels are many: those of a node that hasn't changed since are as they were.
    let seen = memory.kept.get(name);
    if node.version != 0 && seen.is_some_and(|(c, version)| Arc::ptr_eq(c, claim) && *version == node.version)
    {
        return;
    }
    let pool = snapshot.pools.get(&claim.spec.pool).map(|p| &**p);
    let repair = nodes::repair(claim, node);
    if repair.as_ref().is_some_and(|repair| repair.labels) {
        memory.relabelled_since.entry(name.to_owned()).or_insert(round.now.mono);
        let note = format!("labels of node {node_name} were changed; they are put back");
        round.tell(reference(&**claim), true, "Relabelled", note);
    } else {
        memory.relabelled_since.remove(name);
    }
    if repair.as_ref().is_some_and(|repair| repair.taints) {
        let note = format!("taints of its pool were taken off node {node_name}; they are put back");
        round.tell(reference(&**claim), true, "TaintsRestored", note);
    }
    let repair = repair.map(|repair| Verb::JsonPatch(repair.patch));
    let write = repair.or_else(|| nodes::marks(claim, pool, node).map(Verb::Patch));
    let write = write.or_else(|| nodes::hold(node).map(Verb::JsonPatch));
    let as_it_should_be = write.is_none();
    if let Some(verb) = write {
        round.act(Action::Write {
            key: Key::Node(node_name.to_owned()),
            call: Call { target: Target::Node(node_name.to_owned()), verb },
            rest: Duration::ZERO,
        });
    }
    if is(claim, INITIALIZED) {
        if as_it_should_be {
            memory.kept.insert(name.to_owned(), (Arc::clone(claim), node.version));
        }
        return;
    }
    let waits_for = uninitialized(claim, node);
    let registered = claim.status.as_ref().and_then(|s| conditions::find(s, REGISTERED));
    let registered = registered.map_or(round.now.wall, |c| c.last_transition_time.0);
    if waits_for.is_some() && !round.is_older(registered, SAY_AFTER) {
        return;
    }
    let mut status = claim.status.clone().unwrap_or_default();
    let statement = initialized(node_name, waits_for);
    conditions::say(&mut status, statement, claim.metadata.generation, round.now.wall);
    if let Some(call) = conditions::write_status(claim, &status) {
        round.act(Action::Write { key: Key::Claim(name.to_owned()), call, rest: Duration::ZERO });
    }
}

/// The Node of a registered claim is deleted, or gone: so is the claim, and its instance is drained and terminated.
fn unmade(
    round: &mut Round<'_>,
    memory: &Memory,
    name: &str,
    claim: &Arc<NodeClaim>,
    deleting: Option<&str>,
) {
    let node = claim.status.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or_default();
    let note = match deleting {
        Some(node) => format!(
            "node {node} is deleted: its pods are evicted within their PodDisruptionBudgets, then its instance is \
             terminated"
        ),
        // A watch that hasn't shown the Node yet doesn't tell that there is none.
        None if !memory.nodeless_at.contains_key(name) => {
            round.act(Action::LookForNode(Arc::clone(claim)));
            return;
        }
        None => format!("node {node} is gone; its instance is drained and terminated"),
    };
    round.tell(reference(&**claim), false, "NodeGone", note);
    round.act(delete(name, claim));
}

/// Whether a registered node can do its work, with what it still lacks for that.
pub(crate) fn initialized(node: &str, waits_for: Option<String>) -> Statement {
    match waits_for {
        None => Statement {
            kind: INITIALIZED,
            status: Some(true),
            reason: "Initialized",
            message: format!("node {node} is ready and has what its type has"),
        },
        Some(message) => Statement { kind: INITIALIZED, status: Some(false), reason: "Waiting", message },
    }
}

/// What a registered node still lacks.
pub(crate) fn uninitialized(claim: &NodeClaim, node: &NodeView) -> Option<String> {
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
    // A device whose plugin hasn't reported is there with zero, or not at all.
    let missing = known.into_iter().flatten().find(|(resource, amount)| {
        resource.contains('/')
            && amount.0.parse::<Quantity>().is_ok_and(|q| q > Quantity::ZERO)
            && node.allocatable.get(resource) == 0
    });
    missing.map(|(resource, _)| format!("the node hasn't reported {resource} yet"))
}

/// Deletes a claim; the finalizer does the rest.
pub(super) fn delete(name: &str, claim: &NodeClaim) -> Action {
    Action::Write {
        key: Key::Claim(name.to_owned()),
        call: Call {
            target: Target::Claim(name.to_owned()),
            verb: Verb::Delete { uid: claim.metadata.uid.clone().unwrap_or_default(), grace_seconds: None },
        },
        rest: WATCH_LAG,
    }
}
