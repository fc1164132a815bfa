//! Pods: the final pod at its creation, and its updates.

use crate::{
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT, parameter},
    policies::{
        cel,
        own_pools::{defaulted, first_sentence, foreign, own_pools, wrong_requests},
        parameters::MORE,
        policy::{Keys, Policy, Variable, break_glass, constraints},
    },
};

/// A variable rather than a match condition: the API server converts the whole pod to CEL for the rules, the messages and the
/// audit annotations of a policy, and once more for its match conditions, which takes longer than evaluating them. Policies
/// that apply to every created pod have no match conditions.
pub(super) const MIRROR: (&str, &str) = (
    "mirror",
    "'kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}) && \
     request.userInfo.username == 'system:node:' + object.spec.?nodeName.orValue('')",
);

/// The namespace is labelled as one that belongs to no tenant.
pub(super) const NON_TENANT: (&str, &str) = (
    "nonTenant",
    "namespaceObject != null && namespaceObject.metadata.?labels[?'croft.dev/tenancy'].orValue('') == 'none'",
);

const NOT_DELETED: (&str, &str) = ("not-being-deleted", "!has(object.metadata.deletionTimestamp)");

const KEPT_OUT: &str = "variables.keptOut";

pub(super) fn owned(condition: (&'static str, &str)) -> (&'static str, String) {
    (condition.0, condition.1.to_owned())
}

pub(super) fn annotation(name: &str) -> String {
    format!(
        "namespaceObject == null ? '' : namespaceObject.metadata.?annotations[?'policy.croft.dev/{name}'].orValue('')"
    )
}

/// The labels that `object` selects, as `key=value`.
fn selected(object: &str) -> String {
    format!("{object}.spec.?nodeSelector.orValue({{}}).map(k, k + '=' + {object}.spec.nodeSelector[k])")
}

/// CEL: the pod tolerates, without a time limit, every taint of the pool `p` of the annotation.
fn tolerates(pool: &str) -> String {
    format!(
        "{pool}.split(':')[1].split(',').all(effect, object.spec.?tolerations.orValue([]).exists(t, \
         t.?effect.orValue('') in ['', effect] && (effect != 'NoExecute' || !has(t.tolerationSeconds)) && \
         (t.?operator.orValue('Equal') == 'Exists' ? t.?key.orValue('') in ['', {pool}.split('=')[0]] : \
         t.?operator.orValue('Equal') in ['', 'Equal'] && \
         t.?key.orValue('') + '=' + t.?value.orValue('') == {pool}.split(':')[0])))"
    )
}

/// CEL: the toleration `t` lets a pod past a taint that keeps pods off a node.
pub(super) const IS_HARD: &str = "t.?effect.orValue('') != 'PreferNoSchedule'";

/// CEL: the pod tolerates taints of pools by one of `variables.keys`, of nodes that have no pool yet, or all.
fn reaches() -> (&'static str, String) {
    (
        "reaches",
        format!(
            "object.spec.?tolerations.orValue([]).exists(t, (t.?key.orValue('') == '' || t.key in variables.keys || t.?key.orValue('') == '{UNREGISTERED_TAINT}') && \
             {IS_HARD})"
        ),
    )
}

/// CEL: every term of the required node affinity excludes the built-in key, which every node of a pool carries, the label of
/// nodes that don't carry it yet, and those of the list `keys` whose taint the pod tolerates: a node that Croft didn't launch
/// carries its pool's own key before the built-in one.
///
/// The webhook isn't asked about such a pod. A list of one element stands for a variable, which a match condition can't have.
#[must_use]
pub fn is_kept_out(keys: &str) -> String {
    let required = "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution";
    format!(
        "{required}.hasValue() && \
         [object.spec.?tolerations.orValue([]).filter(t, {IS_HARD}).map(t, t.?key.orValue(''))].all(tolerated, \
         [{keys}.filter(k, k != '' && ('' in tolerated || k in tolerated)) + ['{POOL_NAME_LABEL}', '{UNREGISTERED_LABEL}']].all(\
         excluded, {required}.?nodeSelectorTerms.orValue([]).all(t, \
         (size(t.?matchExpressions.orValue([])) == 0 && size(t.?matchFields.orValue([])) == 0) || \
         [t.?matchExpressions.orValue([]).filter(e, e.operator == 'DoesNotExist').map(e, e.key)].all(\
         absent, excluded.all(k, k in absent)))))"
    )
}

fn kept_out(keys: Keys) -> (&'static str, String) {
    let list = if keys == Keys::Declared { "variables.keys" } else { "[]" };
    ("keptOut", is_kept_out(list))
}

/// CEL: every term of the required node affinity excludes the built-in key of the pod's own pool.
fn excludes_pool() -> (&'static str, String) {
    (
        "excludesPool",
        format!(
            "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.hasValue() && \
             object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.all(t, \
             t.?matchExpressions.orValue([]).exists(e, e.key == '{POOL_NAME_LABEL}' && (e.operator == 'DoesNotExist' || \
             (e.operator == 'NotIn' && variables.mineName in e.values))))"
        ),
    )
}

fn must_be_kept_out() -> String {
    format!(
        "'the pod belongs to no tenant and tolerates the taints of tenants\\' pools, and no required node affinity keeps it off them \
         ({POOL_NAME_LABEL}, {UNREGISTERED_LABEL} and the pools\\' own keys that it tolerates, DoesNotExist in every term): tolerate \
         only the taints that you mean'"
    )
}

/// CEL: the placement refuses `foreign`, what the pod selects.
const FOREIGN_IS_REFUSED: &str = "!variables.override && size(variables.foreign) > 0";

/// The variables of what the pod asks for, which only messages read. In Policy mode a pod that asks for another's pool
/// comes here unchanged, and the API server shows the message of whichever policy refuses it.
///
/// Without parameters, the keys of pools are those of the tenant's own.
fn requested() -> Vec<Variable> {
    let mut variables = vec![
        ("selector", "object.spec.?nodeSelector.orValue({})".to_owned()),
        ("annotated", format!("object.metadata.?annotations[?'{POOL_ANNOTATION}'].orValue('')")),
        defaulted(),
    ];
    variables.extend(own_pools());
    variables.push(foreign(
        "(k in variables.keys || variables.own.exists(o, o[1] != '-' && o[0].split('=')[0] == k))",
    ));
    variables
}

/// CEL: the pod of a tenant selects a pool of its tenant, tolerates its taints, and may run there.
fn placed() -> (&'static str, String) {
    (
        "placed",
        format!(
            "variables.ownPools == '' || (variables.ownPools.split(';').exists(p, p.split(':')[0] in variables.selected && {}) && \
             !variables.excludesPool)",
            tolerates("p")
        ),
    )
}

/// CEL: why the pod of a tenant isn't placed; empty if it is. The API server evaluates the messages of a policy for every
/// object, also for those that the policy lets through, and each variable once more for them: only a refused pod may cost it.
fn misplaced() -> String {
    let unpinned = "'the pod selects none of the pools of its tenant (' + variables.ownPools.split(';').map(p, p.startsWith('-:') ? p.split(':')[3] + ', which does not exist' : p.split(':')[0]).join(', ') + '), though Croft pins every pod of a \
                    tenant: look for another mutating webhook or policy that rewrites spec.nodeSelector'";
    let intolerant = "'the pod does not tolerate the taints of its pool (' + variables.mine[0].split(':')[0] + ':' + variables.mine[0].split(':')[1] + '), though Croft adds the \
                      tolerations: look for another mutating webhook or policy that rewrites spec.tolerations'";
    let excluded = format!(
        "'every term of the required node affinity excludes {POOL_NAME_LABEL} of pool \"' + variables.mineName + '\", the pod\\'s \
         own, so the pod could never run; Croft writes that into pods of namespaces without a tenant: create the pod again \
         without it'"
    );
    let of_what_was_asked = first_sentence(
        wrong_requests(FOREIGN_IS_REFUSED),
        &format!("size(variables.mine) == 0 ? {unpinned} : {intolerant}"),
    );
    format!(
        "variables.placed ? '' : variables.mine.exists(p, {}) ? {excluded} : {of_what_was_asked}",
        tolerates("p")
    )
}

/// The variables of whether the pod of a tenant is placed. They read `ownPools` and `selected`.
fn placing() -> [Variable; 4] {
    [
        ("mine", "variables.ownPools.split(';').filter(p, p.split(':')[0] in variables.selected)".to_owned()),
        (
            "mineName",
            // The value of the built-in key's label, which a pool with that key as its own chooses.
            format!(
                "size(variables.mine) == 0 ? '' : variables.mine[0].startsWith('{POOL_NAME_LABEL}=') ? \
                 variables.mine[0].split(':')[0].split('=')[1] : variables.mine[0].split(':')[?2].orValue('')"
            ),
        ),
        excludes_pool(),
        placed(),
    ]
}

fn is_placed() -> (String, String) {
    (format!("variables.placed || variables.mirror || {}", break_glass()), misplaced())
}

/// The final pod of a tenant is pinned to one of its pools and tolerates the pool's taints. The final pod of a labelled
/// non-tenant namespace doesn't tolerate the taints of pools by a toleration without a key or of the built-in one.
///
/// A namespace that isn't labelled yet passes: the webhook, which fails closed, has evaluated its pods. In Policy mode
/// `croft-pod-placement-keys` refuses them.
pub(super) fn placement() -> Policy {
    let mut variables = vec![
        Keys::BuiltIn.variable(),
        owned(MIRROR),
        owned(NON_TENANT),
        ("ownPools", annotation("pools")),
        ("shared", annotation("shared")),
        ("selected", selected("object")),
    ];
    variables.extend(placing());
    variables.extend([reaches(), kept_out(Keys::BuiltIn)]);
    variables.extend(requested());
    Policy {
        name: "croft-pod-placement",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        conditions: Vec::new(),
        variables,
        validations: vec![
            is_placed(),
            (
                format!(
                    "!variables.nonTenant || !variables.reaches || variables.shared != '' || variables.mirror || \
                     {KEPT_OUT} || {}",
                    break_glass()
                ),
                must_be_kept_out(),
            ),
        ],
        parameters: false,
    }
}

/// The variables of [`final_rules`]. They read those of the tenancy, and `free`.
pub(super) fn final_variables() -> Vec<Variable> {
    let mut variables = vec![
        owned(MIRROR),
        reaches(),
        kept_out(Keys::Declared),
        (
            "ownLabels",
            format!(
                "variables.sharedLabels + {}.split(';').filter(p, p.split(':')[0] in variables.sharedLabels)\
                 .map(p, '{POOL_NAME_LABEL}=' + p.split(':')[?2].orValue(''))",
                cel::text(parameter::ALL_POOLS)
            ),
        ),
        ("foreignTolerations", foreign_tolerations("object")),
    ];
    variables.extend(kept_off_others());
    variables.extend(placing());
    variables
}

/// The final pod by all that is declared: that of a tenant is placed, and a non-tenant pod doesn't tolerate the taints of pools
/// by the keys that pools declare nor, in a namespace that isn't labelled yet, by any.
///
/// In a namespace with which some pools are shared, a pod is kept off the others by their names; where these are too many to compare,
/// only the webhook evaluates it. In a namespace that isn't labelled yet and that a Tenant claims, a pod that selects a pool belongs to
/// that Tenant.
pub(super) fn final_rules() -> [(String, String); 2] {
    let kept_out = format!(
        "variables.ownPools != '' || !variables.reaches || variables.free || \
         (variables.shared != '' && (size(variables.foreignTolerations) == 0 || variables.tooManyOthers || \
         variables.keptOffOthers)) || variables.mirror || {KEPT_OUT} || (!variables.nonTenant && \
         object.spec.?nodeSelector.orValue({{}}).exists(k, k in variables.keys) && variables.claimed) || {}",
        break_glass()
    );
    [is_placed(), (kept_out, must_be_kept_out())]
}

/// An update adds no toleration of a foreign pool, doesn't take the pod out of its pool, and lifts no gate before the
/// pod is placed.
pub(super) fn updates(keys: Keys) -> Policy {
    let changed = ["tolerations", "nodeSelector", "affinity", "schedulingGates"]
        .map(|field| format!("object.spec.?{field} != oldObject.spec.?{field}"))
        .join(" || ");
    let free = match keys {
        // A namespace that isn't labelled yet is left to the policy with the declared keys, where exemptions are known.
        Keys::BuiltIn => {
            "variables.shared == '*' || (!variables.nonTenant && variables.ownPools == '')".to_owned()
        }
        Keys::Declared => format!(
            "variables.shared == '*' || (variables.ownPools == '' && ({} || {}))",
            cel::non_tenant_pods_allowed(),
            cel::in_free_namespace()
        ),
    };
    let mut variables = vec![
        keys.variable(),
        owned(NON_TENANT),
        ("ownPools", annotation("pools")),
        ("shared", annotation("shared")),
        ("free", free),
        (
            "ownLabels",
            format!(
                "variables.ownPools == '' ? variables.shared.split(';') : variables.ownPools.split(';').map(p, \
                 p.split(':')[0]) + variables.ownPools.split(';').map(p, '{POOL_NAME_LABEL}=' + p.split(':')[?2].orValue(''))"
            ),
        ),
        ("selected", selected("object")),
        ("before", selected("oldObject")),
        ("foreignTolerations", foreign_tolerations("object")),
        ("foreignTolerationsBefore", foreign_tolerations("oldObject")),
        ("mine", "variables.ownPools.split(';').filter(p, p.split(':')[0] in variables.selected)".to_owned()),
        (
            "lifted",
            "size(oldObject.spec.?schedulingGates.orValue([])) > 0 && \
             size(object.spec.?schedulingGates.orValue([])) == 0"
                .to_owned(),
        ),
        reaches(),
        kept_out(keys),
    ];
    if keys == Keys::Declared {
        variables.extend(kept_off_others());
    }
    Policy {
        name: match keys {
            Keys::BuiltIn => "croft-pod-changes",
            Keys::Declared => "croft-pod-changes-keys",
        },
        constraints: constraints("", &["pods"], &["UPDATE"], true),
        conditions: vec![owned(NOT_DELETED), ("placement-changes", changed)],
        variables,
        validations: update_rules(keys),
        parameters: keys == Keys::Declared,
    }
}

/// CEL: there is a required node affinity, and `holds` for the expressions `es` of each of its terms that can match anything.
fn in_every_term(holds: &str) -> String {
    let required = "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution";
    format!(
        "{required}.hasValue() && {required}.?nodeSelectorTerms.orValue([]).all(t, \
         (size(t.?matchExpressions.orValue([])) == 0 && size(t.?matchFields.orValue([])) == 0) || \
         [t.?matchExpressions.orValue([])].all(es, {holds}))"
    )
}

/// The variables of whether a pod of a namespace with which some pools are shared is kept off all others, as admission would do it
/// now: a gate may have been there before a pool, and a replica of the webhook may not have seen the pool yet. Each pool is compared
/// with each term.
fn kept_off_others() -> [Variable; 4] {
    let pools = cel::text(parameter::ALL_POOLS);
    let absent = |key: &str| format!("es.exists(e, e.key == {key} && e.operator == 'DoesNotExist')");
    let among = |key: &str, value: &str| {
        format!("es.exists(e, e.key == {key} && e.operator == 'NotIn' && {value} in e.?values.orValue([]))")
    };
    let (name, key) = (format!("'{POOL_NAME_LABEL}'"), "p[0].split('=')[0]");
    let by_name = format!("({} || variables.others.all(p, {}))", absent(&name), among(&name, "p[2]"));
    let by_key = format!(
        "variables.others.all(p, {key} == {name} || !('' in variables.foreignKeys || {key} in variables.foreignKeys) || {} || {})",
        absent(key),
        among(key, "p[0].split('=')[1]")
    );
    let terms =
        in_every_term(&format!("{} && {by_name} && {by_key}", absent(&format!("'{UNREGISTERED_LABEL}'"))));
    [
        ("foreignKeys", "variables.foreignTolerations.map(t, t.split('\\n')[0])".to_owned()),
        (
            "others",
            format!(
                "{pools}.split(';').filter(p, p.contains(':') && !(p.split(':')[0] in variables.ownLabels)).map(p, p.split(':'))"
            ),
        ),
        ("tooManyOthers", format!("{pools}.contains('{MORE};') || size(variables.others) > {MAX_COMPARED}")),
        ("keptOffOthers", format!("!variables.tooManyOthers && {terms}")),
    ]
}

/// Tolerations of foreign pools, and pools, that are compared one by one; more tolerations may only stay as they are.
const MAX_COMPARED: usize = 100;

/// CEL: the tolerations of `object` by which it reaches pools that aren't its own, each as a line.
///
/// Ordinary tolerations are left out in one pass, so that the cost of an update grows with the pod and not with its square.
fn foreign_tolerations(object: &str) -> String {
    let line = ["key", "operator", "value", "effect"]
        .map(|field| format!("t.?{field}.orValue('')"))
        .join(" + '\\n' + ");
    format!(
        "{object}.spec.?tolerations.orValue([]).filter(t, {IS_HARD} && (t.?key.orValue('') == '' || t.?key.orValue('') == '{UNREGISTERED_TAINT}' || \
         (t.key in variables.keys && !(t.?operator.orValue('') in ['', 'Equal'] && \
         (t.key + '=' + t.?value.orValue('')) in variables.ownLabels)))).map(t, {line})"
    )
}

fn update_rules(keys: Keys) -> Vec<(String, String)> {
    let break_glass = break_glass();
    let of_sharing = match keys {
        Keys::BuiltIn => "true",
        Keys::Declared => "(size(variables.foreignTolerations) == 0 || variables.keptOffOthers)",
    };
    vec![
        (
            format!(
                "variables.free || variables.foreignTolerations == variables.foreignTolerationsBefore || (size(variables.foreignTolerations) <= {MAX_COMPARED} && \
                 variables.foreignTolerations.all(t, t in variables.foreignTolerationsBefore)) || {break_glass}"
            ),
            format!(
                "size(variables.foreignTolerations) > {MAX_COMPARED} ? 'the pod has more than {MAX_COMPARED} tolerations of the taints of pools \
                 that are not its to use, and an update may neither add to these nor reorder them; leave them as they are' : \
                 'the update adds a toleration of the taint of a pool, or of a node that has no pool yet, that is not the pod\\'s to \
                 use; leave it out'"
            ),
        ),
        (
            format!(
                "variables.ownPools == '' || variables.before.all(l, !(l in variables.ownLabels)) || \
                 variables.selected.exists(l, l in variables.ownLabels) || {break_glass}"
            ),
            "'the update takes out of spec.nodeSelector what keeps the pod in its tenant\\'s pool; leave it in'".to_owned(),
        ),
        (
            format!(
                "variables.free || object.spec.?nodeSelector.orValue({{}}).all(k, !(k in variables.keys) || \
                 (k + '=' + object.spec.nodeSelector[k]) in variables.before || \
                 (k + '=' + object.spec.nodeSelector[k]) in variables.ownLabels) || {break_glass}"
            ),
            "'the update selects a pool that is not the pod\\'s to use; leave it out'".to_owned(),
        ),
        (
            format!(
                "!variables.lifted || variables.free || (variables.ownPools != '' ? variables.mine.exists(p, {}) : \
                 !variables.reaches || {KEPT_OUT} || (variables.shared != '' && {of_sharing})) || {break_glass}",
                tolerates("p")
            ),
            "'the update lifts the last scheduling gate of a pod that was created before Croft could place it; delete \
             the pod and create it again, or add spec.nodeSelector and tolerations of its pool while it is gated'"
                .to_owned(),
        ),
    ]
}
