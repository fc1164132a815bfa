//! The pool of a tenant's pod, and the patches that pin the pod there: `pool_choice` and `injection` as
//! CEL.

use crate::{
    definitions::POOL_NAME_LABEL,
    policies::{
        mutation::{fit, subject::Subject},
        own_pools::{first_sentence, foreign, own_pools, wrong_requests},
        policy::Variable,
    },
};

/// The variables that choose the pool, up to `tenantRefusal`.
pub(super) fn choosing() -> Vec<Variable> {
    let named = |name: &str| format!("variables.own.filter(o, {name} != '' && o[3] == {name})");
    let mut variables = own_pools();
    variables.extend([
        foreign("k in variables.keys"),
        (
            "missing",
            format!(
                "variables.foreign.exists(k, variables.own.exists(o, o[1] == '-' && o[3] == variables.selector[k]) && \
                 !variables.pools.exists(p, k + '=' + variables.selector[k] in [p[0], '{POOL_NAME_LABEL}=' + p[2]]))"
            ),
        ),
        (
            "requested",
            format!("{} + {}", named("variables.annotated"), named("variables.defaulted")),
        ),
        (
            "fitting",
            format!(
                "size(variables.own) < 2 ? [] : variables.own.filter(o, {})",
                fit::could_hold("o[4]")
            ),
        ),
        (
            "wanted",
            format!(
                "size(variables.chosen) > 0 ? variables.chosen : size(variables.requested) > 0 ? variables.requested : \
                 variables.fitting.filter(o, {}) + variables.fitting + variables.own",
                fit::is_dedicated("o[4]")
            ),
        ),
        ("tenantRefusal", refusal()),
    ]);
    variables
}

/// The variables of the pool that a pod is pinned to: all empty for a pod that isn't.
pub(super) fn pinning() -> Vec<Variable> {
    vec![
        ("pin", "variables.refusal == '' && variables.tenancy == 'tenant' ? variables.wanted[0] : ['=', '', '', '', '']".to_owned()),
        ("key", "variables.pin[0].split('=')[0]".to_owned()),
        ("value", "variables.pin[0].split('=')[1]".to_owned()),
    ]
}

fn refusal() -> String {
    let mut sentences =
        wrong_requests("variables.missing || (!variables.override && size(variables.foreign) > 0)");
    sentences.extend([
        (
            "size(variables.wanted) == 0".to_owned(),
            "'the tenant has no pools, so its pods can\\'t run; ask the cluster\\'s operator to write spec.pools of the Tenant'"
                .to_owned(),
        ),
        (
            "variables.wanted[0][1] == '-'".to_owned(),
            "'the pod would go to pool ' + variables.wanted[0][3] + ', and there is no TenantPool of that name that counts; \
             ask the cluster\\'s operator to create it, or to correct spec.pools of the Tenant'"
                .to_owned(),
        ),
    ]);
    first_sentence(sentences, "''")
}

/// CEL: the toleration `t` covers the taint of the pin with the effect `e`, for a time at least. `Lt` and `Gt` tolerate
/// nothing while their feature gate is off.
const COVERS: &str = "t.?effect.orValue('') in ['', e] && t.?key.orValue('') in ['', variables.key] && \
                      (t.?operator.orValue('') == 'Exists' || \
                      (t.?operator.orValue('') in ['', 'Equal'] && t.?value.orValue('') == variables.value))";

/// CEL: the effects of the pin's taint that `tolerations` don't cover at all.
fn uncovered(tolerations: &str) -> String {
    format!(
        "variables.pin[1].split(',').filter(e, variables.pin[1] != '' && !{tolerations}.exists(t, {COVERS}))"
    )
}

/// CEL: the tolerations of a NoExecute taint of the pin, in their order. Eviction takes the first, so one with a time
/// limit must not come first.
fn no_execute(tolerations: &str) -> String {
    format!("['NoExecute'].map(e, {tolerations}.filter(t, e in variables.pin[1].split(',') && {COVERS}))[0]")
}

/// CEL: the exact toleration of the pin's taint with the effect `e`.
const EXACT: &str = "{'key': variables.key, 'operator': 'Equal', 'value': variables.value, 'effect': e}";

/// The variables of what `tolerations`, a variable, need for the taints of the pin: `uncovered`, the effects that they don't
/// cover at all, and `limitedAt`, where the first one stands that covers NoExecute for a time only; -1 if none does.
pub(super) fn tolerated(tolerations: &str) -> Vec<Variable> {
    vec![
        ("covering", no_execute(tolerations)),
        (
            "limitedAt",
            format!(
                "size(variables.covering) > 0 && has(variables.covering[0].tolerationSeconds) ? \
                 {tolerations}.indexOf(variables.covering[0]) : -1"
            ),
        ),
        ("uncovered", uncovered(tolerations)),
    ]
}

/// CEL: what a template lacks to run in the chosen pool, as words of its record.
pub(super) fn words() -> String {
    let limited = format!(
        "size({}) > 0 && has({}[0].tolerationSeconds)",
        no_execute("variables.tolerations"),
        no_execute("variables.tolerations")
    );
    format!(
        "(variables.selector[?variables.key] == optional.of(variables.value) ? [] : ['pin:' + variables.pin[0]]) + \
         variables.pin[1].split(',').filter(e, e in {} || (e == 'NoExecute' && {limited}))\
         .map(e, 'tolerate:' + variables.pin[0] + ':' + e)",
        uncovered("variables.tolerations"),
    )
}

/// CEL: the patches of the selector; `selector` is a variable with what is kept of it.
pub(super) fn selector_patches(subject: Subject, selector: &str) -> String {
    let (there, path) = (subject.selector(), subject.pointer());
    format!(
        "variables.foreign.filter(k, k != variables.key).map(k, JSONPatch{{op: 'remove', path: '{path}/nodeSelector/' + \
         jsonpatch.escapeKey(k)}}) + (size({there}) == 0 ? \
         [JSONPatch{{op: 'add', path: '{path}/nodeSelector', value: {{variables.key: variables.value}}}}] : \
         {selector}[?variables.key] == optional.of(variables.value) ? [] : \
         [JSONPatch{{op: 'add', path: '{path}/nodeSelector/' + jsonpatch.escapeKey(variables.key), value: variables.value}}])"
    )
}

/// CEL: the patches that add what `tolerated` found, each toleration by itself: a patch whose value holds an element of the
/// object fails the request since Kubernetes 1.37, and a copy would lose fields that this version doesn't know.
pub(super) fn toleration_patches(subject: Subject) -> String {
    let (path, there) = (subject.pointer(), subject.tolerations());
    let list = format!("{path}/tolerations");
    format!(
        "(size({there}) == 0 ? (size(variables.uncovered) == 0 ? [] : \
         [JSONPatch{{op: 'add', path: '{list}', value: variables.uncovered.map(e, {EXACT})}}]) : \
         variables.uncovered.map(e, JSONPatch{{op: 'add', path: '{list}/-', value: {EXACT}}}) + \
         (variables.limitedAt < 0 ? [] : ['NoExecute'].map(e, \
         JSONPatch{{op: 'add', path: '{list}/' + string(variables.limitedAt), value: {EXACT}}})))"
    )
}
