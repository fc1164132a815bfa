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
        declarations::{Declarations, DeclaredPool, DeclaredTenant},
        model::{Creator, SINGLETON},
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

/// The objects that open pools to any namespace of this name, as `resource/name`: each pool that is shared with it, and
/// the CroftConfig if it exempts the namespace or shares every pool with it.
///
/// Creating such a namespace needs the verb `assign` on each. Namespaces that are exempt in every cluster are left out:
/// the API server and Croft's installation create those.
#[must_use]
pub fn opened_by(declarations: &Declarations, name: &str) -> Vec<String> {
    let pools = declarations.pools().iter().filter(|pool| pool.is_shared_with(name));
    let settings = declarations.is_exempt_by_settings(name) || declarations.is_shared_with(name);
    let pools = pools.map(|pool| format!("tenantpools/{}", pool.name));
    settings.then(|| format!("croftconfigs/{SINGLETON}")).into_iter().chain(pools).collect()
}

/// The names of namespaces for which [`opened_by`] isn't empty, sorted.
#[must_use]
pub(crate) fn open_names(declarations: &Declarations) -> BTreeSet<&str> {
    let shared = declarations.pools().iter().flat_map(DeclaredPool::shared_names);
    let exempt = declarations.exempt().into_iter().filter(|name| declarations.is_exempt_by_settings(name));
    shared.chain(exempt).chain(declarations.shared_with()).collect()
}

/// True if `user` is an owner who may create a namespace of this name in `tenant`.
fn may_create(declarations: &Declarations, user: &User<'_>, name: &str, tenant: &str) -> bool {
    let tenant = declarations.tenant_named(tenant).filter(|tenant| tenant.has_prefix_of(name));
    tenant.and_then(DeclaredTenant::creation).is_some_and(|creation| {
        creation.creators.iter().any(|creator| match creator {
            Creator::User(owner) => *user.username == **owner,
            Creator::Group(group) => user.groups.iter().any(|of| **of == **group),
        })
    })
}

/// Checks the write of a namespace by `user`. Assumes that the user lacks the verb `assign`, since no API server can be
/// asked.
///
/// # Errors
/// If the write moves the namespace, creates one that pools are open to, or changes metadata that only Croft writes.
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
