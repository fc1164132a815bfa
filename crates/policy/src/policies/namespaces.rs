//! Namespaces: what is written on them by Croft alone, and whose they become.

use super::{Policy, constraints};
use crate::{index::Rules, model::CONTROLLER_USER};

const RESOURCES: [&str; 3] = ["namespaces", "namespaces/status", "namespaces/finalize"];

/// The label and the annotations that the other policies and the webhook's registration read.
pub(super) fn guarded() -> Policy {
    let kept = |kind: &str, key: &str| {
        format!(
            "object.metadata.?{kind}[?'{key}'] == (oldObject == null ? optional.none() : \
             oldObject.metadata.?{kind}[?'{key}'])"
        )
    };
    let validation = |kind: &str, key: &str| {
        let what = kind.trim_end_matches('s');
        (kept(kind, key), format!("'the {what} {key} is kept by Croft alone; leave it out or as it is'"))
    };
    Policy {
        name: "croft-guarded-metadata",
        constraints: constraints("", &RESOURCES, &["CREATE", "UPDATE"], &[]),
        conditions: vec![
            ("not-croft", format!("request.userInfo.username != '{CONTROLLER_USER}'")),
            ("not-being-deleted", "!has(object.metadata.deletionTimestamp)".to_owned()),
        ],
        variables: Vec::new(),
        validations: vec![
            validation("labels", "croft.dev/tenancy"),
            validation("annotations", "policy.croft.dev/pools"),
            validation("annotations", "policy.croft.dev/shared"),
        ],
        per_tenant: false,
    }
}

/// True if the Tenant in `params` claims a namespace with the labels of `variables.<labels>`.
fn claims(labels: &str) -> String {
    let l = format!("variables.{labels}");
    format!(
        "(object.metadata.name in params.spec.?namespaces.orValue([]) || \
         (size(params.spec.?namespaceSelector.?matchLabels.orValue({{}})) + \
         size(params.spec.?namespaceSelector.?matchExpressions.orValue([])) > 0 && \
         params.spec.?namespaceSelector.?matchLabels.orValue({{}}).all(k, \
         {l}[?k].orValue('') == params.spec.namespaceSelector.matchLabels[k] && k in {l}) && \
         params.spec.?namespaceSelector.?matchExpressions.orValue([]).all(e, \
         e.operator == 'In' ? (e.key in {l} && {l}[e.key] in e.values) : \
         e.operator == 'NotIn' ? !(e.key in {l} && {l}[e.key] in e.values) : \
         e.operator == 'Exists' ? e.key in {l} : e.operator == 'DoesNotExist' && !(e.key in {l}))))"
    )
}

/// A tenant's claim on a namespace begins or ends only by somebody with the verb `assign` on that Tenant.
pub(super) fn moves(rules: &Rules) -> Policy {
    Policy {
        name: "croft-namespace-moves",
        constraints: constraints("", &RESOURCES, &["CREATE", "UPDATE"], &rules.exempt()),
        conditions: vec![
            ("labels-change", "oldObject == null || object.metadata.?labels != oldObject.metadata.?labels".to_owned()),
            ("not-being-deleted", "!has(object.metadata.deletionTimestamp)".to_owned()),
        ],
        variables: vec![
            ("labels", "object.metadata.?labels.orValue({})".to_owned()),
            ("before", "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})".to_owned()),
            ("claimed", claims("labels")),
            ("was", format!("oldObject != null && {}", claims("before"))),
        ],
        validations: vec![(
            "variables.claimed == variables.was || \
             authorizer.group('croft.dev').resource('tenants').name(params.metadata.name).check('assign').allowed()"
                .to_owned(),
            "'this moves namespace ' + object.metadata.name + ' into or out of tenant ' + params.metadata.name + '; that \
             needs the verb assign on tenants.croft.dev ' + params.metadata.name + ': ask the cluster\\'s operator'"
                .to_owned(),
        )],
        per_tenant: true,
    }
}
