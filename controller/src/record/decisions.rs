//! Entries about plans, actions and their results.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{hash::hash, sentence::shortened};
use croft_policy::Tenants;
use croft_record::entry::{Entry, EntryKind, ObjectRef, PODS_PER_ENTRY, PlanFigures};
use croft_scheduler::PodKey;

use super::{
    buffer::Buffer,
    nodes::{claim_entry, claims_by_instance, tenants_of_pool},
};
use crate::{
    action::{Action, NewClaim, UserEvent},
    definitions::{events::NOMINATED, keys},
    kube_api::{Target, Verb},
    provisioning::planning::RunSummary,
    state::{BoundPod, Snapshot, resource_version},
    time::Now,
};

/// The facts that entries are made from, beside the decision itself.
pub(crate) struct Facts<'a> {
    /// The snapshot.
    pub(crate) snapshot: &'a Snapshot,
    /// The tenant of each namespace.
    pub(crate) tenancy: &'a Tenants,
    /// The time.
    pub(crate) now: Now,
}

impl Facts<'_> {
    fn entry(&self, kind: EntryKind) -> Entry {
        Entry::new(self.now.wall.as_millisecond(), kind)
    }

    fn tenants_of_pods<'p>(&self, pods: impl IntoIterator<Item = &'p PodKey>) -> Vec<String> {
        let namespaces: BTreeSet<&str> = pods.into_iter().map(|pod| &*pod.namespace).collect();
        let tenants: BTreeSet<String> =
            namespaces.into_iter().filter_map(|namespace| self.tenant_of_namespace(namespace)).collect();
        tenants.into_iter().collect()
    }

    fn tenant_of_namespace(&self, namespace: &str) -> Option<String> {
        self.tenancy.tenancy(namespace).tenant().map(|tenant| tenant.name.to_string())
    }

    /// An entry about a claim by name, which may not exist yet or any more.
    fn of_claim(&self, name: &str, kind: EntryKind) -> Entry {
        match self.snapshot.claims().get(name) {
            Some(claim) => claim_entry(self.snapshot, name, claim, kind, self.now),
            None => Entry { object: ObjectRef::cluster("NodeClaim", name), ..self.entry(kind) },
        }
    }

    /// An entry about a node, with its claim.
    fn of_node(&self, node: &str, kind: EntryKind) -> Entry {
        let claim = self.snapshot.claim_of_node(node);
        let named = claim.and_then(|claim| Some((claim.metadata.name.as_deref()?, claim)));
        let of_claim = named.map(|(name, claim)| claim_entry(self.snapshot, name, claim, kind, self.now));
        let entry = of_claim.unwrap_or_else(|| self.entry(kind));
        Entry {
            claim: entry.object.name,
            object: ObjectRef::cluster("Node", node),
            node: node.to_owned(),
            ..Entry { object: ObjectRef::default(), ..entry }
        }
    }

    /// An entry about a pod, with its node and claim.
    fn of_pod(&self, namespace: &str, name: &str, kind: EntryKind) -> Entry {
        let view = self.snapshot.pods().get(&PodKey::new(namespace, name));
        let node = view.and_then(|pod| pod.node.as_deref());
        let entry = node.map_or_else(|| self.entry(kind), |node| self.of_node(node, kind));
        Entry {
            object: ObjectRef::namespaced("Pod", namespace, name),
            tenants: self.tenant_of_namespace(namespace).into_iter().collect(),
            ..entry
        }
    }
}

/// Records a scheduling run and the pods that it leaves pending, if they differ from the last run's.
pub(super) fn observe_run(buffer: &mut Buffer, facts: &Facts<'_>, run: &RunSummary, events: &[UserEvent]) {
    let RunSummary { instances, pods, placed, unschedulable, cost, bound, steps } = *run;
    let result = format!("{pods} {placed} {unschedulable}");
    if buffer.is_news("plan".to_owned(), &result, "", facts.now) || instances > 0 {
        let inputs = inputs(facts.snapshot);
        let figures = PlanFigures {
            inputs,
            instances,
            pods,
            placed,
            unschedulable,
            cost: cost.micros(),
            bound: bound.micros(),
            steps,
        };
        buffer.push(Entry { plan: Some(figures), ..facts.entry(EntryKind::Plan) }, facts.now);
    }
    let mut pending: BTreeMap<(&str, &str), Vec<PodKey>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.reason != NOMINATED) {
        let (namespace, name) = (event.regarding.namespace.as_deref(), event.regarding.name.as_deref());
        let pod = PodKey::new(namespace.unwrap_or_default(), name.unwrap_or_default());
        if buffer.is_news(format!("pending/{pod}"), &event.reason, &event.note, facts.now) {
            pending.entry((&event.reason, &event.note)).or_default().push(pod);
        }
    }
    for ((reason, note), pods) in pending {
        for some in pods.chunks(PODS_PER_ENTRY) {
            let entry = Entry {
                pods: some.iter().map(PodKey::to_string).collect(),
                tenants: facts.tenants_of_pods(some),
                reason: reason.to_owned(),
                message: note.to_owned(),
                ..facts.entry(EntryKind::Pending)
            };
            buffer.push(entry, facts.now);
        }
    }
}

/// Records an action that is about to start.
pub(super) fn observe_action(buffer: &mut Buffer, facts: &Facts<'_>, action: &Action) {
    match action {
        Action::CreateClaims(new) => {
            for claim in &new.claims {
                observe_new_claim(buffer, facts, &new.pool, claim);
            }
        }
        Action::RecordEvent(event) => observe_event(buffer, facts, event),
        Action::Terminate { ids } => {
            let claims = claims_by_instance(facts.snapshot);
            for id in ids {
                let entry = claims.get(id.as_str()).map_or_else(
                    || facts.entry(EntryKind::Terminate),
                    |name| facts.of_claim(name, EntryKind::Terminate),
                );
                let entry =
                    Entry { claim: entry.object.name, object: ObjectRef::cluster("Instance", id), ..entry };
                buffer.push_change(format!("terminate/{id}"), entry, facts.now);
            }
        }
        Action::Write { call, .. } if matches!(call.verb, Verb::Delete { .. }) => {
            let entry = match &call.target {
                Target::Claim(name) => facts.of_claim(name, EntryKind::Delete),
                Target::Node(name) => facts.of_node(name, EntryKind::Delete),
                Target::Pod(namespace, name) => facts.of_pod(namespace, name, EntryKind::Delete),
                _ => return,
            };
            let key = format!("delete/{}/{}", entry.object, call.uid().unwrap_or_default());
            buffer.push_change(key, entry, facts.now);
        }
        _ => {}
    }
}

fn observe_new_claim(buffer: &mut Buffer, facts: &Facts<'_>, pool: &str, claim: &NewClaim) {
    let pods: Vec<PodKey> = facts
        .snapshot
        .nominated_to(&claim.name)
        .map(|(pod, _)| pod.clone())
        .filter(|pod| !Snapshot::is_headroom(pod))
        .collect();
    let annotations = claim.object.pointer("/metadata/annotations");
    let annotation = |key: &str| annotations?.get(key)?.as_str();
    let of_pods = facts.tenants_of_pods(&pods);
    let replaces = annotation(keys::REPLACES).map(|names| format!(", to replace {names}"));
    let spec = &claim.spec;
    let message = format!(
        "one of {} in {}, {}{}",
        shortened(&spec.instance_types, 4),
        shortened(&spec.zones, 4),
        spec.capacity_type,
        replaces.unwrap_or_default(),
    );
    let entry = Entry {
        object: ObjectRef::cluster("NodeClaim", &claim.name),
        pool: pool.to_owned(),
        tenants: if of_pods.is_empty() { tenants_of_pool(facts.snapshot, pool) } else { of_pods },
        reason: annotation(keys::DISRUPTION_REASON).unwrap_or_default().to_owned(),
        message,
        ..facts.entry(EntryKind::Create)
    };
    let mut rest = pods.chunks(PODS_PER_ENTRY);
    let named = |some: &[PodKey]| some.iter().map(PodKey::to_string).collect();
    let first = rest.next().map(named).unwrap_or_default();
    buffer.push(Entry { pods: first, ..entry.clone() }, facts.now);
    for some in rest {
        buffer.push(Entry { pods: named(some), ..entry.clone() }, facts.now);
    }
}

fn observe_event(buffer: &mut Buffer, facts: &Facts<'_>, event: &UserEvent) {
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    let (kind, namespace, name) =
        (of(&event.regarding.kind), of(&event.regarding.namespace), of(&event.regarding.name));
    let entry = match kind.as_str() {
        "NodeClaim" => facts.of_claim(&name, EntryKind::Event),
        "Node" => facts.of_node(&name, EntryKind::Event),
        "Pod" => facts.of_pod(&namespace, &name, EntryKind::Event),
        "TenantPool" => Entry {
            tenants: tenants_of_pool(facts.snapshot, &name),
            pool: name.clone(),
            ..facts.entry(EntryKind::Event)
        },
        "Tenant" => Entry { tenants: vec![name.clone()], ..facts.entry(EntryKind::Event) },
        _ => facts.entry(EntryKind::Event),
    };
    let object = ObjectRef { kind, namespace, name };
    let key = format!("event/{object}/{}", event.reason);
    let (reason, message) = (event.reason.to_string(), event.note.clone());
    buffer.push_change(key, Entry { object, reason, message, ..entry }, facts.now);
}

/// Records that the API server accepted the eviction of a pod.
pub(super) fn observe_eviction(buffer: &mut Buffer, facts: &Facts<'_>, pod: &PodKey) {
    let entry = facts.of_pod(&pod.namespace, &pod.name, EntryKind::Evicted);
    buffer.push(entry, facts.now);
}

/// Records that the API server refused the eviction of a pod.
pub(super) fn observe_blocked_eviction(buffer: &mut Buffer, facts: &Facts<'_>, pod: &PodKey, why: &str) {
    let entry = facts.of_pod(&pod.namespace, &pod.name, EntryKind::EvictionBlocked);
    buffer.push_change(format!("blocked/{pod}"), Entry { message: why.to_owned(), ..entry }, facts.now);
}

/// Records pods that were bound to the nodes that were launched for them.
pub(super) fn observe_bound(buffer: &mut Buffer, facts: &Facts<'_>, bound: &[BoundPod]) {
    for pod in bound {
        let entry = facts.of_pod(&pod.namespace, &pod.name, EntryKind::Bound);
        let message = format!("after {} s", pod.waited.as_secs());
        buffer.push(Entry { message, ..entry }, facts.now);
    }
}

/// A digest of what a scheduling run reads: pods, nodes, NodeClaims, pools, classes, Tenants and the CroftConfig by uid and
/// version, and the offerings. Two runs of equal inputs give equal plans, whichever process makes them.
fn inputs(snapshot: &Snapshot) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let mut add = |uid: &str, version: u64| {
        // A string takes every write.
        let _ = write!(text, "{uid} {version};");
    };
    snapshot.pods().values().for_each(|pod| add(&pod.uid, pod.version));
    snapshot.nodes().values().for_each(|node| add(&node.uid, node.version));
    let mut object = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let uid = meta.uid.as_deref().unwrap_or_default();
        add(uid, resource_version(meta.resource_version.as_deref()));
    };
    snapshot.claims().values().for_each(|claim| object(&claim.metadata));
    snapshot.pools().values().for_each(|pool| object(&pool.metadata));
    snapshot.classes().values().for_each(|class| object(&class.object.metadata));
    snapshot.tenants().values().for_each(|tenant| object(&tenant.metadata));
    snapshot.config().into_iter().for_each(|config| object(&config.metadata));
    for kind in snapshot.classes().values().filter_map(|class| class.types.as_deref()).flatten() {
        for offering in &kind.offerings {
            let price = offering.price.map(croft_scheduler::Price::micros);
            let _ = write!(
                text,
                "{} {} {} {price:?} {};",
                kind.name,
                offering.zone,
                offering.capacity_type.as_str(),
                offering.available
            );
        }
    }
    hash(&[&text], 16)
}
