//! Pods: the final pod at its creation, and its changes.

use super::{Policy, constraints};
use crate::{
    index::Rules,
    model::{MARK_KEY, Unassigned},
};

/// A variable, since the API server turns the whole pod into CEL's form once for a policy's match conditions and once
/// more for its validations, which takes longer than evaluating them: what every created pod meets has none.
const MIRROR: (&str, &str) = (
    "mirror",
    "'kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}) && \
     request.userInfo.username == 'system:node:' + object.spec.?nodeName.orValue('')",
);

const NOT_DELETED: (&str, &str) = ("not-being-deleted", "!has(object.metadata.deletionTimestamp)");

fn owned(condition: (&'static str, &str)) -> (&'static str, String) {
    (condition.0, condition.1.to_owned())
}

fn annotation(name: &str) -> String {
    format!(
        "namespaceObject == null ? '' : namespaceObject.metadata.?annotations[?'policy.croft.dev/{name}'].orValue('')"
    )
}

/// The labels that `object` selects, as `key=value`.
fn selected(object: &str) -> String {
    format!("{object}.spec.?nodeSelector.orValue({{}}).map(k, k + '=' + {object}.spec.nodeSelector[k])")
}

/// True if the pod tolerates, for ever, every taint of the pool `p` of the annotation.
fn tolerates(pool: &str) -> String {
    format!(
        "{pool}.split(':')[1].split(',').all(effect, variables.tolerations.exists(t, \
         t.?effect.orValue('') in ['', effect] && (effect != 'NoExecute' || !has(t.tolerationSeconds)) && \
         (t.?operator.orValue('Equal') == 'Exists' ? t.?key.orValue('') in ['', {pool}.split('=')[0]] : \
         t.?operator.orValue('Equal') in ['', 'Equal'] && \
         t.?key.orValue('') + '=' + t.?value.orValue('') == {pool}.split(':')[0])))"
    )
}

/// The pod's tolerations reach pools' taints by key.
fn reaches(keys: &str) -> String {
    format!(
        "object.spec.?tolerations.orValue([]).exists(t, (t.?key.orValue('') == '' || t.key in {keys}) && \
         t.?effect.orValue('') != 'PreferNoSchedule')"
    )
}

/// Every term of the required node affinity rules out the mark.
fn kept_out() -> String {
    format!(
        "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.hasValue() && \
         object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.all(t, \
         (size(t.?matchExpressions.orValue([])) == 0 && size(t.?matchFields.orValue([])) == 0) || \
         t.?matchExpressions.orValue([]).exists(e, e.key == '{MARK_KEY}' && e.operator == 'DoesNotExist'))"
    )
}

/// The final pod of a tenant is pinned to one of its pools and tolerates its taints. A namespace that isn't marked
/// yet passes: the webhook, which fails closed, has judged its pods.
pub(super) fn tenants(rules: &Rules) -> Policy {
    Policy {
        name: "croft-tenant-pods",
        constraints: constraints("", &["pods"], &["CREATE"], &rules.exempt()),
        conditions: Vec::new(),
        variables: vec![
            owned(MIRROR),
            ("pools", annotation("pools")),
            ("selected", selected("object")),
            ("tolerations", "object.spec.?tolerations.orValue([])".to_owned()),
            ("mine", "variables.pools.split(';').filter(p, p.split(':')[0] in variables.selected)".to_owned()),
        ],
        validations: vec![
            (
                "variables.pools == '' || size(variables.mine) > 0 || variables.mirror".to_owned(),
                "'the pod selects none of the pools of its tenant (' + variables.pools + '), though Croft pins every pod \
                 of a tenant: look for another mutating webhook that rewrites spec.nodeSelector'"
                    .to_owned(),
            ),
            (
                format!(
                    "variables.pools == '' || size(variables.mine) == 0 || variables.mine.exists(p, {}) || variables.mirror",
                    tolerates("p")
                ),
                "'the pod does not tolerate the taints of its pool (' + variables.mine[0] + '), though Croft adds the \
                 tolerations: look for another mutating webhook that rewrites spec.tolerations'"
                    .to_owned(),
            ),
        ],
        per_tenant: false,
    }
}

/// The final pod of nobody doesn't reach a pool. In a namespace with which a pool is shared, only the webhook can
/// tell what is closed; in one that isn't marked yet, a pod that selects a pool is a tenant's.
pub(super) fn strangers(rules: &Rules, keys: &str) -> Policy {
    let off = rules.unassigned() == Unassigned::Allow;
    let mut except = rules.exempt();
    except.extend(rules.shared_with());
    except.sort_unstable();
    except.dedup();
    let reaches = if off { "false".to_owned() } else { reaches(keys) };
    Policy {
        name: "croft-strangers",
        constraints: constraints("", &["pods"], &["CREATE"], &except),
        conditions: Vec::new(),
        variables: vec![
            ("reaches", reaches),
            owned(MIRROR),
            ("pools", annotation("pools")),
            ("shared", annotation("shared")),
            (
                "nobodys",
                "namespaceObject != null && \
                 namespaceObject.metadata.?labels[?'croft.dev/tenancy'].orValue('') == 'none'"
                    .to_owned(),
            ),
        ],
        validations: vec![(
            format!(
                "variables.pools != '' || !variables.reaches || variables.shared != '' || variables.mirror || \
                 (!variables.nobodys && object.spec.?nodeSelector.orValue({{}}).exists(k, k in {keys})) || ({})",
                kept_out()
            ),
            format!(
                "'the pod belongs to no tenant and tolerates the taints of tenants\\' pools, and no required node affinity \
                 ({MARK_KEY} DoesNotExist in every term) keeps it off them: tolerate only the taints that you mean'"
            ),
        )],
        per_tenant: false,
    }
}

/// A change of a pod adds no toleration of a foreign pool, loses no pool, and lifts no gate before the pod is placed.
pub(super) fn updates(rules: &Rules, keys: &str) -> Policy {
    let mut except = rules.exempt();
    if rules.unassigned() == Unassigned::Allow {
        except.extend(rules.shared_with());
    }
    let changed = ["tolerations", "nodeSelector", "affinity", "schedulingGates"]
        .map(|field| format!("object.spec.?{field} != oldObject.spec.?{field}"))
        .join(" || ");
    let same = ["key", "operator", "value", "effect"]
        .map(|field| format!("o.?{field}.orValue('') == t.?{field}.orValue('')"))
        .join(" && ");
    let lenient = if rules.unassigned() == Unassigned::Allow { "variables.pools == ''" } else { "false" };
    Policy {
        name: "croft-pod-updates",
        constraints: constraints("", &["pods"], &["UPDATE"], &except),
        conditions: vec![owned(NOT_DELETED), ("placement-changes", changed)],
        variables: vec![
            ("pools", annotation("pools")),
            ("shared", annotation("shared")),
            ("free", format!("variables.shared == '*' || {lenient}")),
            (
                "own",
                format!(
                    "variables.pools == '' ? variables.shared.split(';') : variables.pools.split(';').map(p, \
                     p.split(':')[0]) + variables.pools.split(';').map(p, '{MARK_KEY}=' + p.split(':')[?2].orValue(''))"
                ),
            ),
            ("selected", selected("object")),
            ("before", selected("oldObject")),
            ("tolerations", "object.spec.?tolerations.orValue([])".to_owned()),
            ("tolerated", "oldObject.spec.?tolerations.orValue([])".to_owned()),
            ("mine", "variables.pools.split(';').filter(p, p.split(':')[0] in variables.selected)".to_owned()),
            (
                "lifted",
                "size(oldObject.spec.?schedulingGates.orValue([])) > 0 && \
                 size(object.spec.?schedulingGates.orValue([])) == 0"
                    .to_owned(),
            ),
        ],
        validations: vec![
            (
                format!(
                    "variables.free || variables.tolerations.all(t, variables.tolerated.exists(o, {same}) || \
                     t.?effect.orValue('') == 'PreferNoSchedule' || (t.?key.orValue('') != '' && (!(t.key in {keys}) || \
                     (t.?operator.orValue('') in ['', 'Equal'] && (t.key + '=' + t.?value.orValue('')) in variables.own))))"
                ),
                "'the update adds a toleration of the taint of a pool that is not the pod\\'s to use; leave it out'"
                    .to_owned(),
            ),
            (
                "variables.pools == '' || variables.before.all(l, !(l in variables.own)) || \
                 variables.selected.exists(l, l in variables.own)"
                    .to_owned(),
                "'the update takes out of spec.nodeSelector what keeps the pod in its tenant\\'s pool; leave it in'"
                    .to_owned(),
            ),
            (
                format!(
                    "variables.free || object.spec.?nodeSelector.orValue({{}}).all(k, !(k in {keys}) || \
                     (k + '=' + object.spec.nodeSelector[k]) in variables.before || \
                     (k + '=' + object.spec.nodeSelector[k]) in variables.own)"
                ),
                "'the update selects a pool that is not the pod\\'s to use; leave it out'".to_owned(),
            ),
            (
                format!(
                    "!variables.lifted || variables.free || (variables.pools != '' ? \
                     variables.mine.exists(p, {}) : variables.shared != '' || !({}) || ({}))",
                    tolerates("p"),
                    reaches(keys),
                    kept_out()
                ),
                "'the update lifts the last scheduling gate of a pod that was made before Croft could place it; delete the \
                 pod and make it again, or add spec.nodeSelector and tolerations of its pool while it is gated'"
                    .to_owned(),
            ),
        ],
        per_tenant: false,
    }
}
