//! Garbage collection: instances without a claim, claims without an instance, and nodes without either.
//!
//! A list of instances and the snapshot of claims are never from one moment. So an instance without a claim is one that
//! two lists show, a grace period apart. If it has a Node it is adopted, and drained like any other when it is removed.
//! If it has none, the API server is asked for its pods before it is terminated. A claim or a Node is lost when the
//! cloud, asked by id, says that the instance is going, or hasn't known it for long (see [`super::instances`]).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use croft_api::{TenantPool, definitions::FINALIZER};
use croft_cloud::{CloudInstance, instance_id};
use croft_policy::definitions::TEMPLATE_LABEL;
use serde_json::json;

use crate::{
    action::{Action, Key, PodCheck},
    definitions::{events, keys},
    kube_api::{Target, Verb},
    nodeclaim::{
        instances, pod_check, termination,
        writes::{WATCH_LAG, delete_claim},
    },
    reconcile::{ReconcileContext, breaker::Cause, object_reference},
    state::{InstanceList, NodeView, Snapshot, instance_of},
};

/// However few instances there are, this many may be terminated at once.
const ALWAYS_COLLECTED: usize = 3;

/// Collects what is orphaned.
#[derive(Debug, Default)]
pub struct GarbageCollection {
    /// When the instances were last listed.
    listed: Option<Duration>,
    /// The list, and the count of claim changes, at which no instance was without a claim.
    none_orphaned: Option<(Duration, u64)>,
    /// The list with which the nodes without a claim were compared.
    looked_at: Option<Duration>,
    /// Why collection is stopped, while it is.
    stopped: Option<String>,
}

impl GarbageCollection {
    /// Why collection is stopped: it would terminate too many instances at once.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Lists instances when due, and removes what is orphaned.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>) {
        let mono = ctx.now.mono;
        if ctx.wants_instance_list() {
            self.listed = None;
        }
        let due = self.listed.is_none_or(|at| ctx.has_lasted(at, ctx.settings.list_instances_every));
        if due && ctx.is_idle(&Key::ListInstances) {
            self.listed = Some(mono);
            ctx.request(Action::ListInstances);
        }
        let snapshot = ctx.snapshot;
        let (Some(last), Some(before)) = (snapshot.instances(), snapshot.earlier_instances()) else { return };
        // The orphans follow from the list and the claims' instances; an action about one may have failed.
        let evaluated = Some((last.asked.mono, snapshot.claim_changes()));
        if self.none_orphaned != evaluated {
            let none = self.collect_instances(ctx, last, before);
            self.none_orphaned = evaluated.filter(|_| none);
        }
        collect_claims(ctx);
        collect_nodes(ctx, last);
        // Every Ready node is looked at, so once for each list.
        if self.looked_at.replace(last.asked.mono) != Some(last.asked.mono) {
            instances::restore_tags_of_unclaimed(ctx, last);
        }
    }

    /// Adopts or terminates instances without a claim. True if there is none.
    fn collect_instances(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        last: &InstanceList,
        before: &InstanceList,
    ) -> bool {
        let (adoptable, orphaned) = orphans(ctx, last, before);
        let none = adoptable.is_empty() && orphaned.is_empty();
        for instance in adoptable {
            adopt(ctx, instance);
        }
        let allowed = ALWAYS_COLLECTED.max(last.instances.len() / 10);
        if orphaned.len() > allowed {
            self.stopped = Some(format!(
                "{} of {} instances have no NodeClaim; no more than {allowed} at once are terminated automatically. If \
                 the claims are lost for good, restore them or terminate the instances: {}",
                orphaned.len(),
                last.instances.len(),
                orphaned.iter().take(10).map(|m| m.id.as_str()).collect::<Vec<_>>().join(", "),
            ));
            return none;
        }
        self.stopped = None;
        for instance in orphaned {
            let check = PodCheck {
                subject: instance.id.clone(),
                instance: instance.id.clone(),
                provider_id: instance.provider_id.clone(),
                node: instance.node_name.clone(),
                ended: BTreeSet::new(),
            };
            if pod_check::has_no_pods(ctx, check) {
                tracing::warn!(
                    instance = instance.id,
                    claim = instance.claim,
                    "terminating an instance without a claim and a node"
                );
                ctx.request(Action::Terminate { ids: vec![instance.id.clone()] });
            }
        }
        none
    }
}

/// Instances without a claim: those with a Node, and the others. Pods may run on an instance with a Node, whether or
/// not the node is Ready now, so it is adopted and never terminated here.
fn orphans<'l>(
    ctx: &ReconcileContext<'_>,
    last: &'l InstanceList,
    before: &InstanceList,
) -> (Vec<&'l CloudInstance>, Vec<&'l CloudInstance>) {
    let snapshot = ctx.snapshot;
    let claimed: BTreeSet<&str> = snapshot.claims().values().filter_map(|claim| instance_of(claim)).collect();
    let launching: BTreeSet<&str> = snapshot
        .claims()
        .values()
        .filter(|c| c.status.as_ref().is_none_or(|s| s.provider_id.is_none()))
        .filter_map(|c| c.metadata.uid.as_deref())
        .collect();
    let with_node: BTreeSet<&str> =
        snapshot.nodes().values().filter_map(|n| Some(instance_id(n.provider_id.as_deref()?))).collect();
    last.instances
        .values()
        .filter(|m| m.state.is_alive() && before.instances.contains_key(&m.id))
        .filter(|m| !claimed.contains(m.id.as_str()))
        .filter(|m| m.claim_uid.as_deref().is_none_or(|uid| !launching.contains(uid)))
        .filter(|m| {
            let listed = snapshot.listed_since(&m.id);
            listed.is_some_and(|at| last.asked.mono >= at.saturating_add(ctx.settings.orphan_grace))
        })
        .filter(|m| !ctx.evidence.is_going(&m.id))
        .partition(|m| with_node.contains(m.id.as_str()))
}

/// Creates a claim for an instance with a Node whose claim is lost, as after a restore from a backup.
fn adopt(ctx: &mut ReconcileContext<'_>, instance: &CloudInstance) {
    let snapshot = ctx.snapshot;
    let Some(pool_name) = instance.pool.as_deref() else { return };
    let Some(pool) = template_of_instance(snapshot, pool_name, instance) else { return };
    let Some(template) = &pool.spec.template else { return };
    // Named after the instance: the counter's next name may belong to the lost claim of another instance.
    let name = keys::claim_name(pool_name, &instance.id, 0);
    if snapshot.claims().contains_key(&name) || !ctx.is_idle(&Key::Claim(name.clone())) {
        return;
    }
    let mut labels = template.metadata.labels.clone();
    labels.insert(keys::POOL_NAME_LABEL.to_owned(), pool_name.to_owned());
    labels.insert(pool.spec.key.clone(), croft_api::convert::scheduler::value(pool));
    let object = json!({
        "apiVersion": format!("{}/{}", croft_api::GROUP, croft_api::VERSION),
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "finalizers": [FINALIZER],
            "labels": {keys::CLAIM_POOL_LABEL: pool_name},
            "annotations": {keys::ADOPTS: instance.id},
        },
        "spec": {
            "pool": pool_name,
            "nodeClassRef": template.spec.node_class_ref,
            "instanceTypes": [instance.instance_type],
            "zones": [instance.zone],
            "capacityType": instance.capacity_type.as_str(),
            "labels": labels,
            "resources": template.spec.resources,
            "terminationGracePeriod": template.spec.termination_grace_period,
            "taints": croft_api::convert::scheduler::taints(pool),
        },
    });
    tracing::warn!(
        instance = instance.id,
        claim = name,
        "adopting an instance with a node and without a claim"
    );
    ctx.request(Action::write_and_wait(Target::Claim(name), Verb::Create(object), WATCH_LAG));
}

/// The instance's pool, as the template describes it by whose label its Node is marked; otherwise as the first does.
fn template_of_instance<'a>(
    snapshot: &'a Snapshot,
    pool: &str,
    instance: &CloudInstance,
) -> Option<&'a Arc<TenantPool>> {
    let is_of_instance =
        |node: &&NodeView| node.provider_id.as_deref().map(instance_id) == Some(&*instance.id);
    let node = snapshot.nodes().values().find(is_of_instance);
    let named = node.and_then(|node| node.labels.get(TEMPLATE_LABEL)).map(String::as_str);
    snapshot.template(pool, named).or_else(|| snapshot.templates_of(pool).first())
}

/// Deletes claims whose instance is going or gone, by the cloud's answer about its id.
fn collect_claims(ctx: &mut ReconcileContext<'_>) {
    let snapshot = ctx.snapshot;
    for (name, claim) in snapshot.dirty_claims() {
        let Some(id) = instance_of(claim) else { continue };
        let node = snapshot.node_of(claim).map(|(_, node)| node);
        if claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // An instance that is going by its id runs nothing any more: the breaker need not cap it.
        let gone = ctx.evidence.is_going(id)
            || (instances::is_lost(ctx, id, node)
                && ctx.may_remove(Cause::InstanceMissing, &claim.spec.pool, name));
        if gone {
            let note = format!("instance {id} is gone; the claim is deleted and its pods are planned again");
            ctx.event(object_reference(&**claim), true, events::INSTANCE_GONE, note);
            ctx.request(delete_claim(name, claim));
        }
    }
}

/// Deletes Croft's nodes without a claim once their instance is gone, and releases those that are being deleted.
fn collect_nodes(ctx: &mut ReconcileContext<'_>, last: &InstanceList) {
    let snapshot = ctx.snapshot;
    let mut ids = Vec::new();
    for (name, node) in snapshot.nodes() {
        // Nodes of other provisioners have instances that the lists never show.
        let is_ours = node.annotations.contains_key(keys::CLAIM_ANNOTATION)
            || node.has_taint(keys::UNREGISTERED_TAINT)
            || node.has_finalizer();
        if !is_ours || (node.ready && !node.deleting) {
            continue;
        }
        if snapshot.registered_claim_of(name).is_some() {
            continue;
        }
        let Some(id) = node.provider_id.as_deref().map(instance_id) else { continue };
        let listed = last.instances.get(id);
        if node.deleting {
            // A node whose instance works is adopted and drained first; so is one that lists lack for want of a tag.
            let works = match listed {
                Some(listed) => listed.state.is_alive() && is_adoptable(ctx, listed),
                None => instances::may_lack_tag(ctx, name, node),
            };
            if !works {
                termination::release_node(ctx, name, node);
            }
            continue;
        }
        if listed.is_some_and(|m| m.state.is_alive()) || !instances::was_visible(ctx, node, last) {
            continue;
        }
        if ctx.evidence.is_going(id) || instances::is_lost(ctx, id, Some(node)) {
            tracing::warn!(node = name, instance = id, "deleting a node without an instance and a claim");
            termination::release_node(ctx, name, node);
        } else if ctx.evidence.is_description_due(id, ctx.now.mono, ctx.settings.list_instances_every) {
            ids.push(id.to_owned());
        }
    }
    if !ids.is_empty() {
        ctx.request(Action::DescribeInstances(ids));
    }
}

/// True if an instance's pool determines its claim.
fn is_adoptable(ctx: &ReconcileContext<'_>, instance: &CloudInstance) -> bool {
    let pool = instance.pool.as_deref().and_then(|pool| ctx.snapshot.pools().get(pool));
    pool.is_some_and(|pool| pool.spec.node_specs().next().is_some())
}
