//! Writes of namespaces: the tenants that a write moves the namespace into or out of, and the metadata that only Croft
//! writes.
//!
//! The webhook evaluates them offline only (`croft admit`); in a cluster the policies of `policies/namespaces.rs` do,
//! which can check the verb `assign`.

use std::collections::BTreeSet;

use crate::{
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, SURPLUS_ANNOTATION, TENANCY_LABEL},
    denial::Denial,
    request::{review::User, view::Labelled},
    tenancy::{
        declarations::{Declarations, DeclaredPool},
        model::{SINGLETON, Subject},
    },
};

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

/// Checks the write of a namespace by `user`. Assumes that the user lacks the verb `assign`, since no API server can be
/// asked.
///
/// # Errors
/// If the write moves the namespace, creates one to which something is open by name, or changes metadata that only Croft
/// writes.
pub(crate) fn check(
    declarations: &Declarations,
    user: &User<'_>,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Result<(), Denial> {
    if user.username != *declarations.controller_user() {
        let reserved = [
            (
                old.and_then(|o| o.labels.get(TENANCY_LABEL)),
                new.labels.get(TENANCY_LABEL),
                "the label croft.dev/tenancy",
            ),
            (
                old.and_then(|o| o.annotations.get(POOLS_ANNOTATION)),
                new.annotations.get(POOLS_ANNOTATION),
                "the annotation policy.croft.dev/pools",
            ),
            (
                old.and_then(|o| o.annotations.get(SHARED_ANNOTATION)),
                new.annotations.get(SHARED_ANNOTATION),
                "the annotation policy.croft.dev/shared",
            ),
            (
                old.and_then(|o| o.annotations.get(SURPLUS_ANNOTATION)),
                new.annotations.get(SURPLUS_ANNOTATION),
                "the annotation policy.croft.dev/surplus",
            ),
        ];
        if let Some((_, _, what)) = reserved.iter().find(|(before, after, _)| before != after) {
            return Err(Denial::reserved_metadata(name, what));
        }
    }
    let opened_by = opened_by(declarations, name);
    if old.is_none() && !opened_by.is_empty() {
        return Err(Denial::namespace_name(name, &opened_by));
    }
    let mut moves = moves(declarations, name, old, new);
    moves.retain(|tenant| old.is_some() || !may_create(declarations, user, name, tenant));
    if moves.is_empty() { Ok(()) } else { Err(Denial::namespace_move(name, &moves)) }
}
