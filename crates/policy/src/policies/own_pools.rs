//! The pools of a tenant as CEL reads them from the annotation of its namespace, and the sentences about what a pod asks
//! for that isn't among them.
//!
//! Used by the policies of Policy mode, which choose the pool, and by the placement of final pods.

use crate::{
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL},
    policies::{namespace_metadata::OVERRIDE, policy::Variable},
};

/// CEL: the label `label` is that of the tenant's pool `o`.
fn is_own(label: &str) -> String {
    format!("o[1] != '-' && ({label} == o[0] || {label} == '{POOL_NAME_LABEL}=' + o[2])")
}

/// The variables of the tenant's pools, and of those that the pod selects. A pool is the list of its label, effects,
/// pool-name label, name, and what its nodes can be. They read `ownPools` and `selected`.
pub(super) fn own_pools() -> Vec<Variable> {
    vec![
        ("override", format!("variables.ownPools.startsWith('{OVERRIDE}')")),
        (
            "own",
            format!(
                "variables.ownPools.split(';').filter(o, o.contains(':') && o != '{OVERRIDE}').map(o, o.split(':'))\
                 .map(o, [o[0], o[1], o[2], o[?3].orValue(o[2]), o[?4].orValue('')])"
            ),
        ),
        ("chosen", format!("variables.own.filter(o, variables.selected.exists(l, {}))", is_own("l"))),
    ]
}

/// The variable `foreign`: the keys of the selector that are keys of pools by the condition `is_key` of `k`, with a value
/// that isn't the tenant's.
pub(super) fn foreign(is_key: &str) -> Variable {
    let is_own = is_own("k + '=' + variables.selector[k]");
    ("foreign", format!("variables.selector.filter(k, {is_key} && !variables.own.exists(o, {is_own}))"))
}

/// The variable `defaulted`: the pool that the annotation of the namespace names.
pub(super) fn defaulted() -> Variable {
    (
        "defaulted",
        format!(
            "namespaceObject == null ? '' : namespaceObject.metadata.?annotations[?'{POOL_ANNOTATION}'].orValue('')"
        ),
    )
}

/// CEL: what the pod, or its namespace, asks for that isn't the tenant's: conditions, each with its sentence. A selector
/// entry counts if `is_refused`. They read the variables of a subject, `own`, `chosen`, `foreign` and `override`.
pub(super) fn wrong_requests(is_refused: &str) -> Vec<(String, String)> {
    let pools = "variables.own.map(o, o[3]).join(', ')";
    let write =
        "'write one of the tenant\\'s pools (' + ".to_owned() + pools + " + '), or remove the annotation'";
    let not_own = |name: &str| {
        format!("!variables.override && {name} != '' && !variables.own.exists(o, o[3] == {name})")
    };
    vec![
        (
            "size(variables.chosen) > 1".to_owned(),
            "'spec.nodeSelector asks for two pools at once, ' + variables.chosen.map(o, o[3]).join(' and ') + '; no node is \
             in both: keep one of them'"
                .to_owned(),
        ),
        (
            is_refused.to_owned(),
            format!(
                "'the tenant may not use what spec.nodeSelector asks for: ' + variables.foreign[0] + '=' + \
                 variables.selector[variables.foreign[0]] + '; its pools are ' + {pools} + ': remove ' + variables.foreign[0] + \
                 ' from spec.nodeSelector, or choose one of them with the annotation {POOL_ANNOTATION}'"
            ),
        ),
        (
            not_own("variables.annotated"),
            format!(
                "'the tenant may not use pool ' + variables.annotated + ', which the annotation {POOL_ANNOTATION} asks for: ' + {write}"
            ),
        ),
        (
            not_own("variables.defaulted"),
            format!(
                "'the tenant may not use pool ' + variables.defaulted + ', which the annotation {POOL_ANNOTATION} of namespace ' + \
                 request.namespace + ' makes the default: ' + {write}"
            ),
        ),
    ]
}

/// CEL: the sentence of the first condition that holds, or else `last`.
pub(super) fn first_sentence(of: Vec<(String, String)>, last: &str) -> String {
    let choices = of.into_iter().map(|(condition, sentence)| format!("({condition}) ? {sentence} : "));
    choices.chain([last.to_owned()]).collect()
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
