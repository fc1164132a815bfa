//! Namespaces: the metadata that only Croft writes, and the tenants that a write moves a namespace into or out of.

use serde_json::json;

use crate::{
    definitions::{
        CREATE_NAMESPACES_VERB, TENANCY_LABEL,
        parameter::{self, PREFIX},
    },
    policies::{
        cel,
        policy::{Policy, Variable, break_glass, constraints},
    },
    rules::namespace::{OWNERS_ANNOTATIONS, OWNERS_LABELS},
    tenancy::stored::reserved_for_owners,
};

pub(super) const NAMESPACE_RESOURCES: [&str; 3] = ["namespaces", "namespaces/status", "namespaces/finalize"];
/// The number of tenants that are checked one by one. An authorization check costs 350,000 of the 1,000,000 that the
/// API server grants an expression, so each has an expression of its own. A move of more tenants needs `assign` on all.
const CHECKS: usize = 4;

/// CEL: the label by which webhooks and policies know a namespace of no tenant, as an optional: as it is written, and as it
/// was before.
pub(super) fn tenancy_labels() -> (String, String) {
    let of = |object: &str| format!("{object}.metadata.?labels[?'{TENANCY_LABEL}']");
    (of("object"), format!("(oldObject == null ? optional.none() : {})", of("oldObject")))
}

/// The variables about Croft's annotations of a namespace: all that are written and all from before, and the keys of those of
/// Croft that differ.
pub(super) fn own_annotations() -> Vec<Variable> {
    let of = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    vec![
        ("written", of("object")),
        ("before", format!("oldObject == null ? {{}} : {}", of("oldObject"))),
        (
            "changed",
            format!(
                "variables.written.filter(k, k.startsWith('{PREFIX}') && \
                 variables.before[?k] != variables.written[?k]) + \
                 variables.before.filter(k, k.startsWith('{PREFIX}') && !(k in variables.written))"
            ),
        ),
    ]
}

/// Only Croft writes the label and the annotations that webhooks and policies read. What others change is taken back before,
/// by the webhook or a mutating policy: this one refuses what neither of them has seen.
pub(super) fn reserved() -> Policy {
    let (label, before) = tenancy_labels();
    let kept = "is kept by Croft alone, and croft-webhook, which takes such a change back, didn\\'t answer: leave it out or as it \
                is, or try again once croft-webhook runs'";
    Policy {
        name: "croft-reserved-metadata",
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], false),
        conditions: vec![("not-croft", format!("!({})", cel::by_controller()))],
        variables: own_annotations(),
        validations: vec![
            (format!("{label} == {before}"), format!("'the label {TENANCY_LABEL} {kept}")),
            (
                "size(variables.changed) == 0".to_owned(),
                format!("'the annotation ' + variables.changed[0] + ' {kept}"),
            ),
        ],
        parameters: true,
    }
}

/// Croft's own Namespace, which the policies read, stays while there are Tenants or they hold for pools alone: without it they would
/// hold for no pod.
pub(super) fn own_namespace() -> Policy {
    Policy {
        name: "croft-own-namespace",
        constraints: constraints("", &["namespaces"], &["DELETE"], false),
        conditions: vec![("own-namespace", "request.name == params.metadata.name".to_owned())],
        variables: Vec::new(),
        validations: vec![(
            format!(
                "({} == '' && {}) || {}",
                cel::text(parameter::TENANTS),
                cel::is_inactive(),
                break_glass()
            ),
            "'namespace ' + request.name + ' is Croft\\'s own, and without it the admission policies would hold for no pod while \
             there are Tenants or pools; run croft uninstall to remove Croft, or croft break-glass on to stop enforcement before'"
                .to_owned(),
        )],
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
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], true),
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
            // An owner may create a namespace of the tenant whose prefix its name has.
            (
                "owned",
                format!(
                    "oldObject != null ? [] : {}.filter(e, object.metadata.name.startsWith(e[1])).map(e, e[0])",
                    cel::created_by_user()
                ),
            ),
            (
                "moved",
                format!(
                    "variables.tenants.filter(t, {} != (oldObject != null && {}) && !(t[0] in variables.owned)).map(t, t[0])",
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

/// Only a user with the verb `assign` on each object that opens something to a name may create a namespace of that name:
/// see [`opened_by`](crate::namespace::opened_by).
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
            "'what is in a namespace that is named ' + object.metadata.name + ' has pools, networks or roles of tenants open to \
             it, by ' + {what} + '; to create it takes the verb assign on ' + {what} + ': ask the cluster\\'s operator, or choose \
             another name'"
        )
    };
    let mut validations: Vec<(String, String)> = (0..CHECKS)
        .map(|i| (format!("size(variables.opened_by) <= {i} || {}", check(i)), message(opened(i))))
        .collect();
    validations.push((
        format!(
            "size(variables.opened_by) <= {CHECKS} || (authorizer.group('croft.dev').resource('tenantpools')\
             .check('assign').allowed() && authorizer.group('croft.dev').resource('tenants').check('assign').allowed())"
        ),
        message("'tenantpools and tenants of every name'".to_owned()),
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

/// The name of the policy that keeps owners to their prefix.
pub const NAMESPACE_CREATION_POLICY: &str = "croft-namespace-creation";

/// CEL: the settings let owners give the label or annotation `k` to a namespace that they create.
fn opened_to_owners() -> String {
    format!("(!{} && variables.opened.exists(o, k.startsWith(o)))", reserved_for_owners("k"))
}

/// Owners with the role [`NAMESPACE_CREATOR_ROLE`](crate::definitions::NAMESPACE_CREATOR_ROLE) create namespaces under their
/// tenants' prefixes, and none of any other name, whatever the parameters say and even while they lag.
///
/// A request is authorized when its headers have come, and evaluated when its body has, which its sender may hold back. An owner's
/// right may end meanwhile; whose right to create namespaces has ended is bound as an owner is. So is an owner in the
/// parameters: `croft-namespace-moves` leaves these to this policy, also while the role isn't bound yet.
pub(super) fn creation() -> Policy {
    let check =
        |verb: &str| format!("authorizer.group('croft.dev').resource('tenants').check('{verb}').allowed()");
    let of = |field: &str| format!("object.metadata.?{field}.orValue({{}})");
    let ask = "or ask the cluster\\'s operator";
    let (labels, beginnings) =
        (json!(OWNERS_LABELS), OWNERS_ANNOTATIONS.map(|beginning| format!("k.startsWith('{beginning}')")));
    let opened = opened_to_owners();
    Policy {
        name: NAMESPACE_CREATION_POLICY,
        constraints: constraints("", &["namespaces"], &["CREATE"], false),
        conditions: vec![
            (
                "by-an-owner-or-without-the-right-by-now",
                format!(
                    "size({}) > 0 || {} || !authorizer.group('').resource('namespaces').check('create').allowed()",
                    cel::created_by_user(),
                    check(CREATE_NAMESPACES_VERB)
                ),
            ),
            ("not-by-an-operator", format!("!{}", check("assign"))),
        ],
        variables: vec![
            ("own", cel::created_by_user()),
            ("owned", "variables.own.filter(e, object.metadata.name.startsWith(e[1]))".to_owned()),
            ("full", "variables.owned.filter(e, e[3] == 'full')".to_owned()),
            ("pending", "variables.owned.filter(e, e[3] == 'pending')".to_owned()),
            ("opened", format!("{}.filter(o, o != '')", cel::words(parameter::OWNER_METADATA))),
            (
                "labels",
                format!(
                    "{}.filter(k, !(k in {labels} && object.metadata.labels[k] == object.metadata.name) && !{opened})",
                    of("labels")
                ),
            ),
            (
                "annotations",
                format!("{}.filter(k, !({}) && !{opened})", of("annotations"), beginnings.join(" || ")),
            ),
        ],
        validations: prefix_checks(ask).into_iter().chain(metadata_checks(ask)).collect(),
        parameters: true,
    }
}

/// An owner's new namespace: its name begins with the prefix of a tenant that may have one more.
fn prefix_checks(ask: &str) -> [(String, String); 3] {
    [
        (
            "size(variables.owned) > 0".to_owned(),
            format!(
                "'namespace ' + object.metadata.name + ' has no prefix under which ' + request.userInfo.username + ' may \
                 create namespaces: choose a name that begins with ' + (size(variables.own) == 0 ? 'the prefix of \
                 spec.namespaceCreation of your Tenant' : variables.own.map(e, e[1]).join(' or ')) + ', {ask}'"
            ),
        ),
        (
            "size(variables.full) == 0".to_owned(),
            format!(
                "'tenant ' + variables.full[0][0] + ' has the ' + variables.full[0][2] + ' namespaces that its owners may \
                 create under ' + variables.full[0][1] + ' (spec.namespaceCreation.maximum): use one of those, {ask}'"
            ),
        ),
        (
            "size(variables.pending) == 0".to_owned(),
            "'the replicas of croft-webhook do not all enforce the present Tenant ' + variables.pending[0][0] + ' yet: create \
             namespace ' + object.metadata.name + ' again in some seconds'"
                .to_owned(),
        ),
    ]
}

/// Labels, annotations and finalizers that an owner may write on a new namespace.
fn metadata_checks(ask: &str) -> [(String, String); 3] {
    let allowed = "spec.ownerMetadata of the CroftConfig lists what they may give";
    [
        (
            "size(variables.labels) == 0".to_owned(),
            format!(
                "'owners of a tenant may not give the label ' + variables.labels[0] + ' to namespace ' + \
                 object.metadata.name + ': leave it out, {ask}; {allowed}'"
            ),
        ),
        (
            "size(variables.annotations) == 0".to_owned(),
            format!(
                "'owners of a tenant may not give the annotation ' + variables.annotations[0] + ' to namespace ' + \
                 object.metadata.name + ': leave it out, {ask}; {allowed}'"
            ),
        ),
        (
            // The API server itself gives every namespace the finalizer `kubernetes` in its spec.
            "size(object.metadata.?finalizers.orValue([])) == 0 && \
             object.?spec.?finalizers.orValue([]).all(f, f == 'kubernetes') && \
             size(object.metadata.?ownerReferences.orValue([])) == 0"
                .to_owned(),
            format!(
                "'owners of a tenant may not give finalizers, also not in its spec, or ownerReferences to namespace ' + \
                 object.metadata.name + ': leave them out, {ask}'"
            ),
        ),
    ]
}
