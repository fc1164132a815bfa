//! Namespaces: the metadata that only Croft writes, and the tenants that a write moves a namespace into or out of.

use crate::{
    definitions::parameter::{self, PREFIX},
    policies::{
        cel,
        policy::{Policy, constraints},
    },
};

const RESOURCES: [&str; 3] = ["namespaces", "namespaces/status", "namespaces/finalize"];
/// The number of tenants that are checked one by one. An authorization check costs 350,000 of the 1,000,000 that the
/// API server grants an expression, so each has an expression of its own. A move of more tenants needs `assign` on all.
const CHECKS: usize = 4;

/// Only Croft writes the label and the annotations that webhooks and policies read.
pub(super) fn reserved() -> Policy {
    let of = |object: &str, field: &str| format!("{object}.metadata.?{field}.orValue({{}})");
    Policy {
        name: "croft-reserved-metadata",
        constraints: constraints("", &RESOURCES, &["CREATE", "UPDATE"], false),
        conditions: vec![
            ("not-croft", format!("!({})", cel::by_controller())),
        ],
        variables: vec![
            ("written", of("object", "annotations")),
            ("before", format!("oldObject == null ? {{}} : {}", of("oldObject", "annotations"))),
            (
                "changed",
                format!(
                    "variables.written.filter(k, k.startsWith('{PREFIX}') && \
                     variables.before[?k] != variables.written[?k]) + \
                     variables.before.filter(k, k.startsWith('{PREFIX}') && !(k in variables.written))"
                ),
            ),
        ],
        validations: vec![
            (
                "object.metadata.?labels[?'croft.dev/tenancy'] == (oldObject == null ? optional.none() : \
                 oldObject.metadata.?labels[?'croft.dev/tenancy'])"
                    .to_owned(),
                "'the label croft.dev/tenancy is kept by Croft alone; leave it out or as it is'".to_owned(),
            ),
            (
                "size(variables.changed) == 0".to_owned(),
                "'the annotation ' + variables.changed[0] + ' is kept by Croft alone; leave it out or as it is, and use \
                 kubectl apply instead of kubectl replace'"
                    .to_owned(),
            ),
        ],
        parameters: true,
    }
}

/// Only a user with the verb `assign` on a Tenant may begin or end its claim on a namespace.
pub(super) fn moves() -> Policy {
    let needs = "that needs the verb assign on tenants.croft.dev";
    let mut validations: Vec<(String, String)> = (0..CHECKS)
        .map(|i| {
            let tenant = format!("variables.moved[{i}]");
            (
                format!(
                    "size(variables.moved) <= {i} || variables.assigns || \
                     authorizer.group('croft.dev').resource('tenants').name({tenant}).check('assign').allowed()"
                ),
                format!(
                    "'this moves namespace ' + object.metadata.name + ' into or out of tenant ' + {tenant} + '; {needs} ' + \
                     {tenant} + ': ask the cluster\\'s operator'"
                ),
            )
        })
        .collect();
    validations.push((
        format!("size(variables.moved) <= {CHECKS} || variables.assigns"),
        format!(
            "'this moves namespace ' + object.metadata.name + ' into or out of ' + string(size(variables.moved)) + ' tenants; \
             {needs}, of every name: ask the cluster\\'s operator'"
        ),
    ));
    validations.push((
        format!(
            "!({}) || ({}) || variables.assigns",
            cel::more_tenants(),
            cel::by_controller()
        ),
        format!(
            "'there are more tenants than the policy croft-namespace-moves holds, so this may move namespace ' + \
             object.metadata.name + '; {needs}, of every name: ask the cluster\\'s operator'"
        ),
    ));
    Policy {
        name: "croft-namespace-moves",
        constraints: constraints("", &RESOURCES, &["CREATE", "UPDATE"], true),
        conditions: vec![
            (
                "labels-change",
                "oldObject == null || object.metadata.?labels != oldObject.metadata.?labels".to_owned(),
            ),
            (
                "not-exempt",
                format!(
                    "object.metadata.name != params.metadata.name && !(object.metadata.name in {})",
                    cel::words(parameter::EXEMPT)
                ),
            ),
        ],
        variables: vec![
            ("labels", "object.metadata.?labels.orValue({})".to_owned()),
            ("before", "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})".to_owned()),
            ("tenants", cel::all_tenants()),
            (
                "moved",
                format!(
                    "variables.tenants.filter(t, {} != (oldObject != null && {})).map(t, t[0])",
                    cel::is_claimed("object.metadata.name", "variables.labels"),
                    cel::is_claimed("object.metadata.name", "variables.before")
                ),
            ),
            (
                "assigns",
                "authorizer.group('croft.dev').resource('tenants').check('assign').allowed()".to_owned(),
            ),
        ],
        validations,
        parameters: true,
    }
}

/// Only a user with the verb `assign` on each TenantPool that is shared with a name, and on the CroftConfig that lists
/// it, may create a namespace of that name.
pub(super) fn names() -> Policy {
    let opened = |i: usize| format!("variables.opened_by[{i}]");
    let check = |i: usize| {
        let part = |at: usize| format!("{}.split('/')[{at}]", opened(i));
        format!(
            "authorizer.group('croft.dev').resource({}).name({}).check('assign').allowed()",
            part(0),
            part(1)
        )
    };
    let message = |what: String| {
        format!(
            "'pods of a namespace that is named ' + object.metadata.name + ' may run in pools, by ' + {what} + '; to create it \
             takes the verb assign on ' + {what} + ': ask the cluster\\'s operator, or choose another name'"
        )
    };
    let mut validations: Vec<(String, String)> = (0..CHECKS)
        .map(|i| (format!("size(variables.opened_by) <= {i} || {}", check(i)), message(opened(i))))
        .collect();
    validations.push((
        format!(
            "size(variables.opened_by) <= {CHECKS} || \
             authorizer.group('croft.dev').resource('tenantpools').check('assign').allowed()"
        ),
        message("'tenantpools of every name'".to_owned()),
    ));
    Policy {
        name: "croft-namespace-names",
        constraints: constraints("", &["namespaces"], &["CREATE"], false),
        conditions: Vec::new(),
        variables: vec![("opened_by", cel::opened_by())],
        validations,
        parameters: true,
    }
}
