//! Instances in doubt: described by id, which is the evidence that an instance is gone.
//!
//! ```text
//!   a list lacks it, or shows it going    ──┐                       ┌── going: nothing on it can be waited for
//!   a message that it stops or terminates ──┼──▶ described by id ───┼── works: its tag is lost, and is written again
//!   its termination met an unknown id     ──┘                       └── unknown: gone once that has lasted, for an
//!                                                                       hour if the cloud showed it before, and its
//!                                                                       node isn't Ready
//! ```
//!
//! A list is filtered by a tag that any tool can overwrite, and it shows only the account and region that the process
//! calls. Neither says anything about an instance that the list lacks, so the instance is described by its id. One that
//! lost its claim as well is found by its node, or by the claim as it was last seen. Once lists show it again it is adopted
//! or terminated.

use std::collections::BTreeMap;

use croft_api::{
    NodeClaim,
    condition::{INSTANCE_TAGGED, Statement, set},
};
use croft_cloud::{CloudInstance, instance_id, tags};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    action::Action,
    definitions::{conditions as reasons, keys},
    nodeclaim::{
        conditions::{find_condition, is_instance_going},
        writes::status_action,
    },
    reconcile::{ReconcileContext, node_reference, object_reference},
    state::{InstanceList, NodeView, instance_of},
};

/// True if the instance no longer exists: terminated, or certainly unknown while `node` isn't Ready.
#[must_use]
pub fn is_gone(ctx: &ReconcileContext<'_>, id: &str, node: Option<&NodeView>) -> bool {
    ctx.evidence.is_terminated(id) || is_lost(ctx, id, node)
}

/// True if the cloud hasn't known the id for long, and the node, if there is one, isn't Ready.
#[must_use]
pub fn is_lost(ctx: &ReconcileContext<'_>, id: &str, node: Option<&NodeView>) -> bool {
    node.is_none_or(|node| !node.ready) && ctx.evidence.is_unknown_for(id, ctx.settings.orphan_grace)
}

/// Describes the instances in doubt, and restores the tag of those that work and lack it.
pub fn reconcile(ctx: &mut ReconcileContext<'_>) {
    let snapshot = ctx.snapshot;
    let mut ids = Vec::new();
    for (name, claim) in snapshot.dirty_claims() {
        let Some(id) = instance_of(claim) else { continue };
        if !is_in_doubt(ctx, name, claim, id) {
            ctx.evidence.forget_description(id);
            record_restored_tag(ctx, name, claim);
            continue;
        }
        let described = ctx.evidence.description_requested(id);
        if described.is_none_or(|at| ctx.has_lasted(at, ctx.settings.list_instances_every)) {
            ids.push(id.to_owned());
        }
        restore_tag(ctx, name, claim, id);
    }
    if !ids.is_empty() {
        ctx.request(Action::DescribeInstances(ids));
    }
}

/// Describes the instances without a claim that `last` lacks, and restores the tag of those that work: no list names them, so
/// they would be paid for as long as they run.
pub fn restore_tags_of_unclaimed(ctx: &mut ReconcileContext<'_>, last: &InstanceList) {
    let mut ids = restore_tags_of_nodes(ctx, last);
    ids.extend(restore_tags_of_lost_claims(ctx, last));
    if !ids.is_empty() {
        ctx.request(Action::DescribeInstances(ids));
    }
}

/// The instances of claims that were deleted by force or are missing in a restored backup, as this process last saw them.
fn restore_tags_of_lost_claims(ctx: &mut ReconcileContext<'_>, last: &InstanceList) -> Vec<String> {
    let snapshot = ctx.snapshot;
    let mut ids = Vec::new();
    for (claim, since) in snapshot.lost_claims() {
        let Some(id) = instance_of(claim) else { continue };
        let node =
            claim.status.as_ref().and_then(|status| snapshot.nodes().get(status.node_name.as_deref()?));
        // An instance whose Node names its claim is the node's matter.
        let is_of_node = node.is_some_and(|node| {
            node.provider_id.as_deref().map(instance_id) == Some(id)
                && node.annotations.contains_key(keys::CLAIM_ANNOTATION)
        });
        if last.instances.contains_key(id) || is_of_node {
            continue;
        }
        if last.asked.mono < since.mono.saturating_add(ctx.settings.orphan_grace) {
            continue;
        }
        if ctx.evidence.is_description_due(id, ctx.now.mono, ctx.settings.list_instances_every) {
            ids.push(id.to_owned());
        }
        let described = described_of_late(ctx, id).filter(|instance| instance.state.is_alive());
        let Some(instance) = described.filter(|m| m.claim_uid == claim.metadata.uid) else { continue };
        let (reason, message) = tag_lost(instance);
        ctx.event(object_reference(claim), true, reason, message);
        ctx.request(Action::Tag { id: id.to_owned(), tags: own_tags(claim) });
    }
    ids
}

/// The instances of Croft's Ready nodes that no claim names.
///
/// A Node is an object that anyone with the right to write nodes can make, and one of a restored backup names an instance
/// of another cluster. So the node is Ready, its kubelet reports here, and the instance's own tags name the same claim.
fn restore_tags_of_nodes(ctx: &mut ReconcileContext<'_>, last: &InstanceList) -> Vec<String> {
    let mut ids = Vec::new();
    for (name, node) in ctx.snapshot.nodes() {
        let Some(id) = node.provider_id.as_deref().map(instance_id) else { continue };
        let Some(claim) = node.annotations.get(keys::CLAIM_ANNOTATION) else { continue };
        if !node.ready || last.instances.contains_key(id) || !was_visible(ctx, node, last) {
            continue;
        }
        if ctx.snapshot.registered_claim_of(name).is_some() {
            continue;
        }
        if ctx.evidence.is_description_due(id, ctx.now.mono, ctx.settings.list_instances_every) {
            ids.push(id.to_owned());
        }
        let Some(instance) = works_unlisted(ctx, name, node) else { continue };
        let (reason, message) = tag_lost(instance);
        ctx.event(node_reference(name, node), true, reason, message);
        // The pool is what it is adopted by. The node's label may be another than the pool's name.
        let pool = ctx.snapshot.pool_of_node(name).map(|pool| (tags::POOL.to_owned(), pool.to_owned()));
        let own = [(tags::CLAIM.to_owned(), claim.clone())].into_iter().chain(pool);
        ctx.request(Action::Tag { id: id.to_owned(), tags: own.collect() });
    }
    ids
}

/// True if the list was requested when the instance of a node must have been visible.
pub fn was_visible(ctx: &ReconcileContext<'_>, node: &NodeView, list: &InstanceList) -> bool {
    list.asked.mono >= node.seen_at.saturating_add(ctx.settings.orphan_grace)
}

/// True for a Ready node whose instance lists lack, until a description by id says that it doesn't work, or isn't the node's.
#[must_use]
pub fn may_lack_tag(ctx: &ReconcileContext<'_>, name: &str, node: &NodeView) -> bool {
    let is_asked = |id: &str| ctx.evidence.description_requested(instance_id(id)).is_some();
    node.ready
        && node.annotations.contains_key(keys::CLAIM_ANNOTATION)
        && (!node.provider_id.as_deref().is_some_and(is_asked) || works_unlisted(ctx, name, node).is_some())
}

/// The instance of a node of Croft that works, by a description of late whose node and claim are this node's.
fn works_unlisted<'c>(
    ctx: &'c ReconcileContext<'_>,
    name: &str,
    node: &NodeView,
) -> Option<&'c CloudInstance> {
    let id = instance_id(node.provider_id.as_deref()?);
    let claim = node.annotations.get(keys::CLAIM_ANNOTATION)?;
    let instance = described_of_late(ctx, id)?;
    let is_its_instance = instance.node_name == name && instance.claim.as_ref() == Some(claim);
    (instance.state.is_alive() && is_its_instance).then_some(instance)
}

/// The instance, if it was described not long ago.
fn described_of_late<'c>(ctx: &'c ReconcileContext<'_>, id: &str) -> Option<&'c CloudInstance> {
    let described = ctx.evidence.description_requested(id)?;
    let is_late =
        ctx.now.mono >= described.saturating_add(ctx.settings.list_instances_every.saturating_mul(2));
    ctx.evidence.described(id).filter(|_| !is_late)
}

fn is_in_doubt(ctx: &ReconcileContext<'_>, name: &str, claim: &NodeClaim, id: &str) -> bool {
    if ctx.evidence.is_termination_unknown(id) || is_instance_going(claim) {
        return true;
    }
    let Some(list) = ctx.snapshot.instances() else { return false };
    match list.instances.get(id) {
        Some(listed) => !listed.state.is_alive(),
        None => {
            let known = ctx.snapshot.milestones(name).launched;
            known.is_some_and(|at| list.asked.mono >= at.saturating_add(ctx.settings.orphan_grace))
        }
    }
}

fn is_listed(ctx: &ReconcileContext<'_>, id: &str) -> bool {
    ctx.snapshot.instances().is_some_and(|list| list.instances.contains_key(id))
}

/// An instance that works and that no list shows has lost the tag by which lists find it.
fn restore_tag(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, id: &str) {
    let Some(instance) = ctx.evidence.described(id) else { return };
    if is_listed(ctx, id) || !instance.state.is_alive() {
        return;
    }
    let (reason, message) = tag_lost(instance);
    ctx.event(object_reference(claim), true, reason, message.clone());
    let statement = Statement { kind: INSTANCE_TAGGED, status: Some(false), reason, message };
    write_condition(ctx, name, claim, statement);
    ctx.request(Action::Tag { id: id.to_owned(), tags: own_tags(claim) });
}

/// The tags of an instance that name its claim.
fn own_tags(claim: &NodeClaim) -> BTreeMap<String, String> {
    let meta = &claim.metadata;
    [
        (tags::CLAIM_UID.to_owned(), meta.uid.clone().unwrap_or_default()),
        (tags::CLAIM.to_owned(), meta.name.clone().unwrap_or_default()),
        (tags::POOL.to_owned(), claim.spec.pool.clone()),
    ]
    .into()
}

/// Why lists lack an instance that works, and what is done about it.
fn tag_lost(instance: &CloudInstance) -> (&'static str, String) {
    let id = &instance.id;
    let (reason, what) = match instance.tags.get(tags::CLUSTER) {
        None => (reasons::TAG_MISSING, format!("instance {id} has no tag {}", tags::CLUSTER)),
        Some(value) => {
            (reasons::TAG_OVERWRITTEN, format!("instance {id} has the tag {}={value}", tags::CLUSTER))
        }
    };
    let message = format!(
        "{what}, so that the list of this cluster's instances lacks it. Croft writes the tag again; if the cloud refuses \
         that, write it by hand: aws ec2 create-tags --resources {id} --tags \"Key={},Value=$(kubectl get namespace \
         kube-system -o jsonpath={{.metadata.uid}})\"",
        tags::CLUSTER,
    );
    (reason, message)
}

fn record_restored_tag(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim) {
    let condition = claim.status.as_ref().and_then(|s| find_condition(s, INSTANCE_TAGGED));
    let was_lost = condition.is_some_and(|c| c.status == "False");
    if was_lost && instance_of(claim).is_some_and(|id| is_listed(ctx, id)) {
        let message = format!("the instance has the tag {} of this cluster", tags::CLUSTER);
        let kind = INSTANCE_TAGGED;
        write_condition(
            ctx,
            name,
            claim,
            Statement { kind, status: Some(true), reason: reasons::TAGGED, message },
        );
    }
}

fn write_condition(ctx: &mut ReconcileContext<'_>, name: &str, claim: &NodeClaim, statement: Statement) {
    let mut status = claim.status.clone().unwrap_or_default();
    set(&mut status.conditions, statement, claim.metadata.generation, Time(ctx.now.wall));
    if let Some(action) = status_action(name, claim, &status) {
        ctx.request(action);
    }
}
