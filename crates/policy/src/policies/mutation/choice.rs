//! The pool of a tenant's pod, and the patches that pin the pod there: `pool_choice` and `injection` as
//! CEL.

use crate::{
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL},
    policies::{mutation::subject::Subject, namespace_metadata::OVERRIDE, policy::Variable},
};

/// The variables that choose the pool, up to `tenantRefusal`. A pool is the list of its label, effects, pool-name label and name.
pub(super) fn choosing() -> Vec<Variable> {
    let is_own =
        |label: &str| format!("o[1] != '-' && ({label} == o[0] || {label} == '{POOL_NAME_LABEL}=' + o[2])");
    let named = |name: &str| format!("variables.own.filter(o, {name} != '' && o[3] == {name})");
    vec![
        ("override", format!("variables.ownPools.startsWith('{OVERRIDE}')")),
        (
            "own",
            format!(
                "variables.ownPools.split(';').filter(o, o.contains(':') && o != '{OVERRIDE}').map(o, o.split(':'))\
                 .map(o, [o[0], o[1], o[2], o[?3].orValue(o[2])])"
            ),
        ),
        ("chosen", format!("variables.own.filter(o, variables.selected.exists(l, {}))", is_own("l"))),
        (
            "foreign",
            format!(
                "variables.selector.filter(k, k in variables.keys && !variables.own.exists(o, {}))",
                is_own("k + '=' + variables.selector[k]")
            ),
        ),
        (
            "missing",
            format!(
                "variables.foreign.exists(k, variables.own.exists(o, o[1] == '-' && o[3] == variables.selector[k]) && \
                 !variables.pools.exists(p, k + '=' + variables.selector[k] in [p[0], '{POOL_NAME_LABEL}=' + p[2]]))"
            ),
        ),
        (
            "wanted",
            format!(
                "size(variables.chosen) > 0 ? variables.chosen : {} + {} + variables.own",
                named("variables.annotated"),
                named("variables.defaulted")
            ),
        ),
        ("tenantRefusal", refusal()),
    ]
}

/// The variables of the pool that a pod is pinned to: all empty for a pod that isn't.
pub(super) fn pinning() -> Vec<Variable> {
    vec![
        ("pin", "variables.refusal == '' && variables.tenancy == 'tenant' ? variables.wanted[0] : ['=', '', '', '']".to_owned()),
        ("key", "variables.pin[0].split('=')[0]".to_owned()),
        ("value", "variables.pin[0].split('=')[1]".to_owned()),
    ]
}

fn refusal() -> String {
    let pools = "variables.own.map(o, o[3]).join(', ')";
    let write =
        "'write one of the tenant\\'s pools (' + ".to_owned() + pools + " + '), or remove the annotation'";
    [
        (
            "size(variables.chosen) > 1".to_owned(),
            "'spec.nodeSelector asks for two pools at once, ' + variables.chosen.map(o, o[3]).join(' and ') + '; no node is \
             in both: keep one of them'"
                .to_owned(),
        ),
        (
            "variables.missing || (!variables.override && size(variables.foreign) > 0)".to_owned(),
            format!(
                "'the tenant may not use what spec.nodeSelector asks for: ' + variables.foreign[0] + '=' + \
                 variables.selector[variables.foreign[0]] + '; its pools are ' + {pools} + ': remove ' + variables.foreign[0] + \
                 ' from spec.nodeSelector, or choose one of them with the annotation {POOL_ANNOTATION}'"
            ),
        ),
        (
            "!variables.override && variables.annotated != '' && !variables.own.exists(o, o[3] == variables.annotated)"
                .to_owned(),
            format!(
                "'the tenant may not use pool ' + variables.annotated + ', which the annotation {POOL_ANNOTATION} asks for: ' + {write}"
            ),
        ),
        (
            "!variables.override && variables.defaulted != '' && !variables.own.exists(o, o[3] == variables.defaulted)"
                .to_owned(),
            format!(
                "'the tenant may not use pool ' + variables.defaulted + ', which the annotation {POOL_ANNOTATION} of namespace ' + \
                 request.namespace + ' makes the default: ' + {write}"
            ),
        ),
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
    ]
    .into_iter()
    .map(|(condition, sentence)| format!("({condition}) ? {sentence} : "))
    .chain(["''".to_owned()])
    .collect()
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

/// The variables `tolerating`, `limited`, and `pinned`: `tolerations`, a variable, with an exact one for each taint of
/// the pin that they don't cover for good.
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
        ("extended", format!("{tolerations} + {}.map(e, {EXACT})", uncovered(tolerations))),
        (
            "tolerating",
            format!(
                "variables.limitedAt < 0 ? variables.extended : variables.extended.slice(0, variables.limitedAt) + \
                 ['NoExecute'].map(e, {EXACT}) + variables.extended.slice(variables.limitedAt, size(variables.extended))"
            ),
        ),
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
    let (spec, path) = (subject.spec(), subject.pointer());
    format!(
        "variables.foreign.filter(k, k != variables.key).map(k, JSONPatch{{op: 'remove', path: '{path}/nodeSelector/' + \
         jsonpatch.escapeKey(k)}}) + (!has({spec}.nodeSelector) ? \
         [JSONPatch{{op: 'add', path: '{path}/nodeSelector', value: {{variables.key: variables.value}}}}] : \
         {selector}[?variables.key] == optional.of(variables.value) ? [] : \
         [JSONPatch{{op: 'add', path: '{path}/nodeSelector/' + jsonpatch.escapeKey(variables.key), value: variables.value}}])"
    )
}

/// CEL: the patch that replaces the tolerations by `wanted`, a variable, if they differ.
pub(super) fn tolerations_patch(subject: Subject, wanted: &str) -> String {
    let (path, there) = (subject.pointer(), subject.tolerations());
    format!(
        "({wanted} == {there} ? [] : [JSONPatch{{op: 'add', path: '{path}/tolerations', value: {wanted}}}])"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::namespace_metadata::NO_POOL;

    #[test]
    fn entries_of_the_annotation_have_three_parts_before_the_name() {
        assert_eq!((OVERRIDE.split(':').count(), NO_POOL.split(':').count()), (3, 3));
        assert!(
            NO_POOL.split(':').all(|part| part == "-"),
            "variables take a dash for effects that don't exist"
        );
    }
}
