//! CEL expressions that several policies share: readers of each [`parameter`].

use crate::{
    definitions::parameter,
    policies::parameters::{INACTIVE, MORE},
};

/// CEL: the text of a parameter; empty before the controller has written it.
pub(super) fn text(annotation: &str) -> String {
    format!("params.metadata.?annotations[?'{annotation}'].orValue('')")
}

/// CEL: the items of a parameter that is a list. The list of an empty text holds one empty item.
pub(super) fn words(annotation: &str) -> String {
    format!("{}.split(',')", text(annotation))
}

/// CEL: the request is made by Croft's controller.
pub(super) fn by_controller() -> String {
    "request.userInfo.username == 'system:serviceaccount:' + params.metadata.name + ':croft-controller'"
        .to_owned()
}

/// CEL: the namespace of the request is exempt, or every pool is shared with it.
pub(super) fn in_free_namespace() -> String {
    format!(
        "request.namespace == params.metadata.name || request.namespace in {} || request.namespace in {}",
        words(parameter::EXEMPT),
        words(parameter::SHARED_WITH)
    )
}

/// CEL: non-tenant pods are not subject to any rule.
pub(super) fn non_tenant_pods_allowed() -> String {
    format!("{} in ['', 'Allow', '{INACTIVE}']", text(parameter::NON_TENANT_PODS))
}

/// CEL: nothing is enforced, since there was no Tenant yet, or neither Tenant nor pool is left.
pub(super) fn is_inactive() -> String {
    format!("{} in ['', '{INACTIVE}']", text(parameter::NON_TENANT_PODS))
}

/// CEL: the tenants of [`parameter::TENANTS`] as lists of words: name, namespaces, selector, and perhaps a prefix.
pub(super) fn all_tenants() -> String {
    format!("{}.split(';').filter(t, t != '').map(t, t.split(':'))", text(parameter::TENANTS))
}

/// CEL: the tenant `t` of [`all_tenants`] claims the namespace `name` with `labels`.
pub(super) fn is_claimed(name: &str, labels: &str) -> String {
    format!(
        "({name} in t[1].split(',') || (size(t) > 3 && {name}.startsWith(t[3])) || (t[2] != '' && t[2].split('&').map(r, r.split(' ')).all(r, \
         r[1] == 'In' ? (r[0] in {labels} && {labels}[r[0]] in r[2].split(',')) : \
         r[1] == 'NotIn' ? !(r[0] in {labels} && {labels}[r[0]] in r[2].split(',')) : \
         r[1] == 'Exists' ? r[0] in {labels} : !(r[0] in {labels}))))"
    )
}

/// The variable `claimed`: a tenant claims the namespace of the request.
pub(super) fn claimed() -> (&'static str, String) {
    let labels = "(namespaceObject == null ? {} : namespaceObject.metadata.?labels.orValue({}))";
    let claims = is_claimed("request.namespace", labels);
    ("claimed", format!("{}.exists(t, t[0] == '{MORE}' || {claims})", all_tenants()))
}

/// CEL: the objects that open pools to a namespace of the object's name, as `resource/name`.
pub(super) fn opened_by() -> String {
    format!(
        "{}.split(';').filter(e, e.startsWith(object.metadata.name + '=') || e.startsWith('{MORE}=')).map(e, e.split('=')[1]).join(',')\
         .split(',').filter(o, o != '')",
        text(parameter::OPEN_NAMES)
    )
}

/// CEL: the entries of [`parameter::NAMESPACE_CREATION`] that list the user of the request, as lists of words: tenant,
/// prefix, maximum, `open`, `full` or `pending`, owners. No other word of an entry has a colon.
pub(super) fn created_by_user() -> String {
    format!(
        "{}.split('\\n').filter(e, e != '').map(e, e.split(' ')).filter(e, ('U:' + request.userInfo.username) in e || \
         request.userInfo.?groups.orValue([]).exists(g, ('G:' + g) in e))",
        text(parameter::NAMESPACE_CREATION)
    )
}

/// CEL: there are more tenants than [`parameter::TENANTS`] holds.
pub(super) fn more_tenants() -> String {
    format!("variables.tenants.exists(t, t[0] == '{MORE}')")
}
