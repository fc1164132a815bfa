//! Writes of namespaces: the metadata that only Croft writes, the tenants that a write moves the namespace into or out of,
//! and what owners may write.
//!
//! A change of Croft's label and annotations by others is taken back, so that a backup is restored without what it has of
//! Croft's, and a tool that removes what it doesn't know removes nothing of it. The webhook does that, or the policy
//! `croft-namespace-metadata` where the API server serves mutating ones. What reaches the API server unchanged is refused by
//! `croft-reserved-metadata`: isolation depends on neither of them.
//!
//! Everything else the webhook evaluates offline only (`croft admit`); in a cluster the policies of
//! `policies/namespaces.rs` do, which can check the verb `assign`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    definitions::{Rule, TENANCY_LABEL, parameter::PREFIX},
    denial::Denial,
    outcome::Outcome,
    patch::{Patch, Path},
    request::{
        review::{Kind, Request, User},
        text::{Map, Text},
        view::Labelled,
    },
    tenancy::{
        declarations::{Declarations, DeclaredPool},
        index::Tenants,
        model::{SINGLETON, Subject},
        stored::is_reserved_for_owners,
    },
};

/// The labels that owners may give to a namespace that they create, with its own name as value. Other labels decide what a
/// namespace may do, such as levels of Pod Security, or which namespaces a NetworkPolicy lets in.
pub(crate) const OWNERS_LABELS: [&str; 2] = ["kubernetes.io/metadata.name", "name"];
/// The beginnings of annotations that owners may give to it. Others decide where pods run.
pub(crate) const OWNERS_ANNOTATIONS: [&str; 3] =
    ["app.kubernetes.io/", "kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/description"];

/// The tenants whose claim on the namespace begins or ends with this write. No tenant can claim an exempt namespace.
#[must_use]
pub fn moves<'t>(
    declarations: &'t Declarations,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Vec<&'t str> {
    if declarations.is_exempt(name) {
        return Vec::new();
    }
    let before = |key: &str| old.and_then(|o| o.labels.get(key)).map(|v| v.as_str());
    let after = |key: &str| new.labels.get(key).map(|v| v.as_str());
    let concerned = declarations
        .tenants()
        .iter()
        .filter(|t| (old.is_some() && t.claims(name, before)) != t.claims(name, after));
    concerned.map(|t| &*t.name).collect()
}

/// In [`opened_by`], all Tenants.
pub(crate) const EVERY_TENANT: &str = "tenants/*";
/// The tenants that [`opened_by`] names one by one. More of them are `tenants/*`: the policies check four objects.
const MAX_TENANTS: usize = 3;

/// The objects that open something to any namespace of this name, as `resource/name`: each pool that is shared with it, the
/// CroftConfig if it exempts the namespace or shares every pool with it, and each Tenant whose closed network names it or
/// that is owned by one of its ServiceAccounts.
///
/// Creating such a namespace needs the verb `assign` on each, and for `tenants/*` on every Tenant. Namespaces that are
/// exempt in every cluster are left out: the API server and Croft's installation create those. So are, for Tenants, those
/// that a Tenant claims by name or prefix: only its own people create them.
#[must_use]
pub fn opened_by(declarations: &Declarations, name: &str) -> Vec<String> {
    let pools = declarations.pools().iter().filter(|pool| pool.is_shared_with(name));
    let settings = declarations.is_exempt_by_settings(name) || declarations.is_shared_with(name);
    let pools = pools.map(|pool| format!("tenantpools/{}", pool.name));
    let settings = settings.then(|| format!("croftconfigs/{SINGLETON}"));
    settings.into_iter().chain(pools).chain(opened_by_tenants(declarations, name)).collect()
}

fn opened_by_tenants(declarations: &Declarations, name: &str) -> Vec<String> {
    let tenants = declarations.opened_by_tenants(name).take(MAX_TENANTS + 1);
    let tenants: Vec<String> = tenants.map(|tenant| format!("tenants/{}", tenant.name)).collect();
    if tenants.len() > MAX_TENANTS { vec![EVERY_TENANT.to_owned()] } else { tenants }
}

/// The names of namespaces for which [`opened_by`] isn't empty, sorted.
#[must_use]
pub(crate) fn open_names(declarations: &Declarations) -> BTreeSet<&str> {
    let shared = declarations.pools().iter().flat_map(DeclaredPool::shared_names);
    let exempt = declarations.exempt().into_iter().filter(|name| declarations.is_exempt_by_settings(name));
    shared
        .chain(exempt)
        .chain(declarations.shared_with())
        .chain(declarations.names_opened_by_tenants())
        .collect()
}

/// True if `user` is an owner who may create a namespace of this name in `tenant`.
fn may_create(declarations: &Declarations, user: &User<'_>, name: &str, tenant: &str) -> bool {
    let tenant = declarations.tenant_named(tenant).filter(|tenant| tenant.has_prefix_of(name));
    tenant.is_some_and(|tenant| {
        tenant.owners().iter().any(|owner| match &owner.subject {
            Subject::User(owner) => *user.username == **owner,
            Subject::Group(group) => user.groups.iter().any(|of| **of == **group),
        })
    })
}

/// True if `user` is an owner who may create a namespace of this name in any tenant.
fn is_created_by_owner(declarations: &Declarations, user: &User<'_>, name: &str) -> bool {
    declarations.tenants().iter().any(|tenant| may_create(declarations, user, name, &tenant.name))
}

/// A label or annotation that owners may not give to the namespace `name`, if it has one.
fn not_for_owners(declarations: &Declarations, name: &str, new: &Labelled<'_>) -> Option<String> {
    let allowed = declarations.owner_metadata();
    let is_open = |key: &str| {
        !is_reserved_for_owners(key) && allowed.iter().any(|beginning| key.starts_with(beginning))
    };
    let label = new
        .labels
        .iter()
        .find(|(key, value)| !(is_open(key) || OWNERS_LABELS.contains(&&***key) && ***value == *name));
    let annotation = new.annotations.iter().find(|(key, _)| {
        !OWNERS_ANNOTATIONS.iter().any(|beginning| key.starts_with(beginning)) && !is_open(key)
    });
    let label = label.map(|(key, _)| format!("the label {key}"));
    label.or_else(|| annotation.map(|(key, _)| format!("the annotation {key}")))
}

fn is_own_label(key: &str) -> bool {
    key == TENANCY_LABEL
}

fn is_own_annotation(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// The label or annotation of Croft that differs, if one does.
fn changed(old: Option<&Labelled<'_>>, new: &Labelled<'_>) -> Option<String> {
    let label = |of: &Labelled<'_>| of.labels.get(TENANCY_LABEL).map(|value| value.to_string());
    if old.and_then(label) != label(new) {
        return Some(format!("the label {TENANCY_LABEL}"));
    }
    let keys = new.annotations.iter().chain(old.into_iter().flat_map(|old| old.annotations.iter()));
    let differs = |key: &str| old.and_then(|old| old.annotations.get(key)) != new.annotations.get(key);
    let mut own = keys.map(|(key, _)| key).filter(|key| is_own_annotation(key));
    own.find(|key| differs(key)).map(|key| format!("the annotation {key}"))
}

/// The metadata that a write by `user` leaves: Croft's label and annotations are as they are in `old`, unless the controller
/// writes them. With the patch that makes them so.
pub(crate) fn take_back<'a>(
    declarations: &Declarations,
    user: &User<'_>,
    old: Option<&Labelled<'a>>,
    new: &Labelled<'a>,
) -> (Labelled<'a>, Patch) {
    let (mut kept, mut patch) = (new.clone(), Patch::default());
    if user.username == *declarations.controller_user() {
        return (kept, patch);
    }
    let path = Path::new("/metadata");
    let (labels, annotations) = (old.map(|old| &old.labels), old.map(|old| &old.annotations));
    put_back(labels, &mut kept.labels, is_own_label, &path.key("labels"), &mut patch);
    put_back(annotations, &mut kept.annotations, is_own_annotation, &path.key("annotations"), &mut patch);
    (kept, patch)
}

/// Makes the entries of `now` that are Croft's those of `before`.
fn put_back<'a>(
    before: Option<&Map<'a>>,
    now: &mut Map<'a>,
    is_own: fn(&str) -> bool,
    path: &Path,
    patch: &mut Patch,
) {
    let entries = before.into_iter().flat_map(Map::iter).filter(|(key, _)| is_own(key));
    let before: BTreeMap<&str, &Text<'a>> = entries.map(|(key, value)| (key.as_str(), value)).collect();
    let brought: Vec<Text<'a>> = now.iter().map(|(key, _)| key.clone()).filter(|key| is_own(key)).collect();
    for key in brought.iter().filter(|key| !before.contains_key(key.as_str())) {
        now.remove(key);
        patch.remove(&path.key(key));
    }
    let lost: BTreeMap<&str, &Text<'a>> =
        before.into_iter().filter(|(key, value)| now.get(key) != Some(value)).collect();
    if now.is_empty() && !lost.is_empty() {
        patch.add(path, &lost);
    } else {
        lost.iter().for_each(|(key, value)| patch.add(&path.key(key), value));
    }
    for (key, value) in lost {
        now.insert(Text::from(key.to_owned()), value.clone());
    }
}

/// Evaluates the deletion of an object. Croft's own Namespace holds what the policies read: it stays while there are Tenants or pools.
pub(crate) fn evaluate_delete<'t>(tenants: &'t Tenants, request: &Request<'_>) -> Outcome<'t> {
    let declarations = tenants.declarations();
    let is_own = request.kind == Kind::Namespace
        && request.subresource.is_empty()
        && *request.name == *declarations.own_namespace();
    if is_own && declarations.is_active() {
        return Outcome::deny(Denial::own_namespace(&request.name));
    }
    Outcome::allow(Rule::NotApplicable)
}

/// Checks the write of a namespace by `user`. Assumes that the user lacks the verb `assign`, since no API server can be
/// asked.
///
/// # Errors
/// If the write changes metadata that only Croft writes, moves the namespace, creates one to which something is open by name, or gives
/// it what owners may not give.
pub(crate) fn check(
    declarations: &Declarations,
    user: &User<'_>,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Result<(), Denial> {
    if user.username != *declarations.controller_user()
        && let Some(what) = changed(old, new)
    {
        return Err(Denial::reserved_metadata(name, &what));
    }
    let opened_by = opened_by(declarations, name);
    if old.is_none() && !opened_by.is_empty() {
        return Err(Denial::namespace_name(name, &opened_by));
    }
    let mut moves = moves(declarations, name, old, new);
    moves.retain(|tenant| old.is_some() || !may_create(declarations, user, name, tenant));
    if !moves.is_empty() {
        return Err(Denial::namespace_move(name, &moves));
    }
    let is_owners = old.is_none() && is_created_by_owner(declarations, user, name);
    match is_owners.then(|| not_for_owners(declarations, name, new)).flatten() {
        Some(what) => Err(Denial::owner_metadata(name, &what)),
        None => Ok(()),
    }
}
