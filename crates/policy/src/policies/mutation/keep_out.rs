//! The required node affinity that keeps a non-tenant pod off the pools: `keep_out` and `node_affinity`
//! as CEL.

use crate::{
    definitions::{POOL_NAME_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT, parameter},
    policies::{
        cel,
        mutation::subject::{REQUIRED, Subject},
        parameters::MORE,
        pods::IS_HARD,
        policy::Variable,
    },
};

/// The variables about what a non-tenant pod reaches, up to `nonTenantRefusal`. A pool is the list of its label, effects and pool-name label.
pub(super) fn reaching() -> Vec<Variable> {
    let keyed = "t.?key.orValue('')";
    let effect = "t.?effect.orValue('')";
    // The key for any value of it, and the label for one.
    let word = format!(
        "({keyed} == '' ? '' : t.?operator.orValue('') == 'Exists' ? string(t.key) : t.key + '=' + t.?value.orValue(''))"
    );
    vec![
        (
            "free",
            format!(
                "variables.shared == '*' || {} || {}",
                cel::non_tenant_pods_allowed(),
                cel::in_free_namespace()
            ),
        ),
        ("closed", "variables.pools.filter(p, !(p[0] in variables.sharedLabels))".to_owned()),
        (
            "openLabels",
            format!(
                "variables.pools.filter(p, p[0] in variables.sharedLabels).map(p, p[0]) + \
                 variables.pools.filter(p, p[0] in variables.sharedLabels).map(p, '{POOL_NAME_LABEL}=' + p[2])"
            ),
        ),
        // Tolerations as words, so that a pool looks for its own among them: the cost grows with their number, and not with
        // their number times that of the pools.
        ("taintWords", format!("variables.tolerations.map(t, {word})")),
        ("effectWords", format!("variables.tolerations.map(t, {word} + ':' + {effect})")),
        (
            // A pool whose taint keeps nothing off counts only for a pod that means it.
            "reached",
            format!(
                "variables.closed.filter(p, ['', '{POOL_NAME_LABEL}', p[0].split('=')[0], p[0]].exists(w, w in variables.taintWords) && \
                 p[1].split(',').all(e, e == 'PreferNoSchedule' || ['', p[0].split('=')[0], p[0]].exists(w, \
                 (w + ':') in variables.effectWords || (w + ':' + e) in variables.effectWords)))"
            ),
        ),
        (
            "toleratedKeys",
            format!(
                "variables.tolerations.filter(t, {IS_HARD} && ({keyed} == '' || {keyed} == '{UNREGISTERED_TAINT}' || \
                 (t.key in variables.keys && !(t.?operator.orValue('') in ['', 'Equal'] && \
                 (t.key + '=' + t.?value.orValue('')) in variables.openLabels)))).map(t, string({keyed}))"
            ),
        ),
        ("nonTenantRefusal", refusal()),
    ]
}

/// The variables of what the pod is kept off.
pub(super) fn excluding() -> Vec<Variable> {
    vec![
        (
            "needs",
            "variables.refusal == '' && variables.tenancy == 'none' && !variables.free && (size(variables.reached) > 0 || \
             size(variables.toleratedKeys) > 0)"
                .to_owned(),
        ),
        (
            "excludedKeys",
            format!(
                "!variables.needs ? [] : (variables.reached.map(p, p[0].split('=')[0]) + \
                 variables.keys.filter(k, k != '' && ('' in variables.toleratedKeys || k in variables.toleratedKeys)) + \
                 ['{POOL_NAME_LABEL}', '{UNREGISTERED_LABEL}']).distinct().sort()"
            ),
        ),
        ("exclusions", exclusions()),
    ]
}

/// CEL: each excluded key with its values, separated by commas: none for DoesNotExist. A key all of whose pools are
/// shared with the namespace isn't excluded.
fn exclusions() -> String {
    let of_key = format!("(k == '{POOL_NAME_LABEL}' || p[0].split('=')[0] == k)");
    let value = format!("(k == '{POOL_NAME_LABEL}' ? p[2] : p[0].split('=')[1])");
    format!(
        "variables.excludedKeys.filter(k, !variables.pools.exists(p, {of_key} && p[0] in variables.sharedLabels) || \
         variables.closed.exists(p, {of_key})).map(k, [k, \
         variables.pools.exists(p, {of_key} && p[0] in variables.sharedLabels) ? \
         variables.closed.filter(p, {of_key}).map(p, {value}).sort().join(',') : ''])"
    )
}

fn refusal() -> String {
    let namespace =
        "namespace ' + request.namespace + ' belongs to no tenant, and the pool isn\\'t shared with it";
    let selects = format!(
        "variables.selected.filter(l, variables.closed.exists(p, l in [p[0], '{POOL_NAME_LABEL}=' + p[2]]))"
    );
    let by_key = "variables.tolerations.exists(t, t.?key.orValue('') == '' || t.key in variables.keys)";
    format!(
        "variables.free ? '' : size({selects}) > 0 ? 'spec.nodeSelector asks for ' + {selects}[0] + ', which is a pool; \
         {namespace}: remove it from spec.nodeSelector, or ask the pool\\'s operator to add the namespace to a Tenant or to \
         spec.sharedWith of the TenantPool' : \
         variables.allPools.contains('{MORE};') && ({by_key} || variables.selector.exists(k, k in variables.keys)) ? \
         'there are more pools than the admission policies hold, so what the pod may reach is unknown; leave out tolerations \
         and selector entries with keys of pools, or ask the cluster\\'s operator for spec.admission.mutation Webhook' : \
         variables.tolerations.exists(t, t.?operator.orValue('') in ['Lt', 'Gt'] && t.?key.orValue('') in variables.keys) ? \
         'spec.tolerations compares a number with the taint of a pool, which the admission policies can\\'t; write Equal or \
         Exists' : \
         {} == 'Reject' && size(variables.reached) > 0 ? 'spec.tolerations would let the pod onto the nodes of pool ' + \
         variables.reached[0][2] + '; {namespace}: tolerate only the taints that you mean (a toleration without a key \
         tolerates all), or ask the pool\\'s operator to add the namespace to spec.sharedWith of the TenantPool' : ''",
        cel::text(parameter::NON_TENANT_PODS)
    )
}

/// CEL: the term `t` has a requirement. One without any matches nothing.
pub(super) const MATCHES_SOME: &str =
    "(size(t.?matchExpressions.orValue([])) > 0 || size(t.?matchFields.orValue([])) > 0)";

/// CEL: the term `t` lacks the exclusion `x`.
pub(super) const LACKS: &str = "!t.?matchExpressions.orValue([]).exists(e, e.key == x[0] && (e.operator == 'DoesNotExist' || \
                                (x[1] != '' && e.operator == 'NotIn' && x[1].split(',').all(v, v in e.?values.orValue([])))))";

/// CEL: the exclusion `x` as an expression of a term.
const EXPRESSION: &str = "(x[1] == '' ? {'key': dyn(x[0]), 'operator': dyn('DoesNotExist')} : \
                          {'key': dyn(x[0]), 'operator': dyn('NotIn'), 'values': dyn(x[1].split(','))})";

/// CEL: the patches that add every exclusion to each term of `terms`, a variable with what is kept of them, or to an affinity
/// of its own. Without kept terms (`has_terms`) and exclusions the affinity is removed. Each requirement is added by itself,
/// as [a toleration is](super::choice::toleration_patches).
pub(super) fn terms_patches(subject: Subject, has_terms: &str, terms: &str) -> String {
    let (spec, path) = (subject.spec(), subject.pointer());
    let fresh = format!(
        "{{'nodeSelectorTerms': [{{'matchExpressions': variables.exclusions.map(x, {EXPRESSION})}}]}}"
    );
    format!(
        "({has_terms} ? {additions} : size(variables.exclusions) == 0 ? \
         ({there} ? [JSONPatch{{op: 'remove', path: '{path}/affinity/nodeAffinity/{REQUIRED}'}}] : []) : \
         !has({spec}.affinity) ? [JSONPatch{{op: 'add', path: '{path}/affinity', value: \
         {{'nodeAffinity': {{'{REQUIRED}': {fresh}}}}}}}] : \
         !has({spec}.affinity.nodeAffinity) ? [JSONPatch{{op: 'add', path: '{path}/affinity/nodeAffinity', value: \
         {{'{REQUIRED}': {fresh}}}}}] : \
         [JSONPatch{{op: 'add', path: '{path}/affinity/nodeAffinity/{REQUIRED}', value: {fresh}}}])",
        additions = additions(subject, terms),
        there = subject.has_terms(),
    )
}

/// CEL: the patches that add to each of `terms` what it lacks.
fn additions(subject: Subject, terms: &str) -> String {
    let all = subject.terms();
    let lacking = format!("variables.exclusions.filter(x, {LACKS})");
    format!(
        "{terms}.transformList(n, t, {MATCHES_SOME} && variables.exclusions.exists(x, {LACKS}), \
         size({all}[n].?matchExpressions.orValue([])) == 0 ? \
         [JSONPatch{{op: 'add', path: {at}, value: {lacking}.map(x, {EXPRESSION})}}] : \
         {lacking}.map(x, JSONPatch{{op: 'add', path: {at} + '/-', value: {EXPRESSION}}})).flatten()",
        at = subject.expressions("n"),
    )
}
