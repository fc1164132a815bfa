//! The controller's own decisions, by its own functions: `tenant::reconcile` and the engine.

use std::time::Duration;

use croft_api::{EC2NodeClass, NodeClaim, convert};
use croft_controller::{
    action::{Action, Key},
    config::settings::Settings,
    engine::Engine,
    kube_api::{Call, Change, Kind, Verb},
    nodeclaim::node_patch,
    state::{NodeView, Snapshot, is_accepted},
    tenant::{reconcile::reconcile, state::State},
    time::Now,
};
use croft_policy::{
    audit,
    definitions::parameter::REVISION,
    node, policies,
    replica_status::{ObservedGenerations, ReplicaStatus},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{Value, json};

use crate::{
    declared::{Objects, POOL, PoolKind},
    nodes::{NODE, Node},
    pods,
    world::{World, registered_mode},
};

/// A write of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Of the parameters of the policies: a merge patch of Croft's own namespace.
    Parameters(Value),
    /// Of the pod's namespace: a merge patch.
    Namespace(Value),
}

/// The controller's decisions in one cluster.
pub struct Decisions {
    /// The writes that are due. Each may be the next, or none.
    pub steps: Vec<Step>,
    /// True if the policies know the pool, so that it is accepted unless a waiting pod could enter.
    pub knows_pool: bool,
}

/// The controller's decisions about the cluster, whatever time has passed.
#[must_use]
pub fn decide(world: &World, kind: PoolKind) -> Decisions {
    let (mut state, snapshot) = observe(world, kind);
    let report = replica(world, kind);
    let mut actions = Vec::new();
    // A decision that waits for time has waited: for absences to be confirmed, and for webhooks to be the same everywhere.
    for mono in [100, 1_000].map(Duration::from_secs) {
        state.observe_replica("webhook", report.clone(), mono);
        actions = reconcile(&mut state, &snapshot, mono, Timestamp::UNIX_EPOCH);
    }
    let view = World { seen: world.current(), ..world.clone() }.tenants(kind, None);
    let declarations = view.declarations();
    let pool = declarations.pool_id(POOL).and_then(|id| declarations.pool(id));
    let knows_pool = pool.is_some_and(|pool| state.parameters.pool_in_force(pool) == Some(true));
    let steps = actions.into_iter().filter_map(|action| match action {
        Action::Write { key, call: Call { verb: Verb::Patch(patch), .. }, .. } => match key {
            Key::Parameters => Some(Step::Parameters(patch)),
            Key::Namespace(name) if name == world.namespace.name() => Some(Step::Namespace(patch)),
            _ => None,
        },
        _ => None,
    });
    Decisions { steps: steps.collect(), knows_pool }
}

/// True if the pool is open to a pod that waits, by the decision of the controller.
#[must_use]
pub fn is_open(world: &World, kind: PoolKind, spec: &Value) -> bool {
    let pod: Pod = *typed(pods::pod(world.namespace, spec));
    let tenants = World { seen: world.current(), ..world.clone() }.tenants(kind, None);
    let open = audit::open_pools(&tenants, world.namespace.name(), &convert::policy::pod(&pod));
    open.iter().any(|pool| *pool.name == *POOL)
}

/// True if the pool takes nodes.
#[must_use]
pub fn takes_nodes(world: &World, kind: PoolKind) -> bool {
    Objects::of(&world.declared, kind).with_condition(world.accepted).pool().is_some_and(is_accepted)
}

/// The node after the controller's next write of it, if it didn't launch the node; `None` if no write is due, as while the
/// node is starting and its pool `is_open` to a pod that waits. The controller writes none before a Tenant is enforced, which
/// isn't asked here: more steps are searched than it takes.
#[must_use]
pub fn repair(world: &World, kind: PoolKind, node: &Node, is_open: bool) -> Option<Node> {
    let tenants = World { seen: world.current(), ..world.clone() }.tenants(kind, None);
    let object = node.typed();
    let missing = node::repair(tenants.declarations(), &convert::policy::node(&object))?;
    let waits = missing.is_starting && is_open;
    (!waits).then(|| node.patched(&node_patch::repair_membership(&NodeView::read(&object), &missing)))
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).expect("the object is of its kind"))
}

fn observe(world: &World, kind: PoolKind) -> (State, Snapshot) {
    let objects = Objects::of(&world.declared, kind).with_condition(world.accepted);
    let mut state = State::new(crate::world::OWN_NAMESPACE);
    let mut snapshot = Snapshot::default();
    let config = Change::from(objects.config);
    state.observe(&config, snapshot.invalid_objects(), at(0).mono);
    snapshot.observe(config, at(0));
    let valid = snapshot.invalid_objects();
    for pool in objects.pools {
        state.observe(&Change::from(pool), valid, at(0).mono);
    }
    for tenant in objects.tenants {
        state.observe(&Change::from(tenant), valid, at(0).mono);
    }
    for namespace in [world.namespace_object(), world.own_namespace_object()] {
        state.observe(&Change::from(typed::<Namespace>(namespace)), valid, at(0).mono);
    }
    // A probe is answered at once: policies and parameters are one API server's.
    if let Some(revision) = world.parameters.get(REVISION) {
        state.parameters.confirm(revision);
    }
    state.parameters.mutated_by = Some(policies::mutation::version());
    (state, snapshot)
}

fn replica(world: &World, kind: PoolKind) -> ReplicaStatus {
    let mut observed = ObservedGenerations::default();
    for tenant in Objects::of(&world.seen.declared, kind).tenants {
        observed.insert(tenant.metadata.uid.as_deref().unwrap_or_default(), 1);
    }
    let registered = world.registered.as_ref().map(|seen| registered_mode(seen, kind));
    ReplicaStatus { observed, certificate_error: None, registered }
}

fn at(seconds: u64) -> Now {
    let second = 1_780_000_000 + i64::try_from(seconds).expect("a test is short");
    Now {
        wall: Timestamp::from_second(second).expect("a second of this century"),
        mono: Duration::from_secs(seconds),
    }
}

/// A controller with a claim of the pool, and perhaps its node.
fn engine(world: &World, kind: PoolKind, claim: NodeClaim, node: Option<&Node>) -> Vec<Action> {
    let mut engine = Engine::new(Settings::default());
    for kind in Kind::awaited_by_capacity() {
        engine.observe(Change::Synced(kind), at(0));
    }
    let class = json!({
        "metadata": {"name": "class", "uid": "class", "resourceVersion": "1", "generation": 1},
        "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [],
            "securityGroupSelectorTerms": []},
    });
    engine.observe(Change::from(typed::<EC2NodeClass>(class)), at(0));
    let objects = Objects::of(&world.declared, kind).with_condition(world.accepted);
    for pool in objects.pools {
        engine.observe(Change::from(pool), at(0));
    }
    for tenant in objects.tenants {
        engine.observe(Change::from(tenant), at(0));
    }
    engine.observe(Change::from(claim), at(1));
    if let Some(node) = node {
        engine.observe(Change::from(node.typed()), at(1));
    }
    engine.step(at(1)).actions
}

/// A claim of the pool, as it is declared now; `None` if there is no pool.
fn claim(world: &World, kind: PoolKind) -> Option<Value> {
    let objects = Objects::of(&world.declared, kind);
    let (_, pool) = objects.pool()?.by_template().next()?;
    let of_template = pool.spec.template.iter().flat_map(|template| template.metadata.labels.clone());
    let labels: std::collections::BTreeMap<_, _> =
        convert::policy::node_labels(&pool).into_iter().chain(of_template).collect();
    Some(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
        "metadata": {"name": "pool-b-1", "uid": "claim", "resourceVersion": "10",
            "creationTimestamp": at(0).wall.to_string(), "finalizers": ["croft.dev/termination"]},
        "spec": {"pool": POOL, "nodeClassRef": {"name": "class"}, "instanceTypes": ["m5.large"],
            "zones": ["us-east-1a"], "capacityType": "on-demand", "labels": labels,
            "taints": convert::scheduler::taints(&pool)},
    }))
}

/// The node that registers once Croft has launched an instance for the pool, as the launch request says; `None` if there is
/// no pool.
#[must_use]
pub fn launch(world: &World, kind: PoolKind) -> Option<Node> {
    let claim = claim(world, kind)?;
    let actions = engine(world, kind, *typed(claim.clone()), None);
    let request = actions.into_iter().find_map(|action| match action {
        Action::Launch(launch) => Some(launch.request),
        _ => None,
    });
    let request = request.expect("a new claim is launched");
    Some(Node::registering(&request.labels, &request.taints, Some(claim)))
}

/// The node after its registration by the controller.
#[must_use]
pub fn register(world: &World, kind: PoolKind, node: &Node) -> Option<Node> {
    let mut claim = node.claim.clone()?;
    let launched = json!({"type": "Launched", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": at(0).wall.to_string()});
    claim["status"] = json!({"providerId": "aws:///us-east-1a/i-1", "nodeName": NODE, "instanceType": "m5.large",
        "zone": "us-east-1a", "capacityType": "on-demand", "conditions": [launched]});
    let actions = engine(world, kind, *typed(claim), Some(node));
    let patch = actions.into_iter().find_map(|action| match action {
        Action::Register(registration) => Some(registration.patch),
        _ => None,
    })?;
    Some(node.patched(&patch))
}
