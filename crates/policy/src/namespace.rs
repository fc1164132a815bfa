//! A namespace that changes hands, and the metadata on it that only Croft writes.

use std::collections::BTreeSet;

use crate::{
    denial::Denial,
    index::{PoolRule, Rules},
    model::{POOLS_ANNOTATION, SHARED_ANNOTATION, SINGLETON, TENANCY_LABEL},
    view::Labelled,
};

/// The tenants whose claim on a namespace begins or ends with this write. An exempt namespace is nobody's claim.
#[must_use]
pub fn moves<'t>(
    rules: &'t Rules,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Vec<&'t str> {
    if rules.is_exempt(name) {
        return Vec::new();
    }
    let before = |key: &str| old.and_then(|o| o.labels.get(key)).map(|v| v.as_str());
    let after = |key: &str| new.labels.get(key).map(|v| v.as_str());
    let concerned =
        rules.tenants().iter().filter(|t| (old.is_some() && t.claims(name, before)) != t.claims(name, after));
    concerned.map(|t| &*t.name).collect()
}

/// What opens pools to any namespace of this name: the pools that are shared with it, and the settings if they exempt it
/// or share every pool with it, as `resource/name`. Creating such a namespace takes the verb `assign` on each. The
/// namespaces that are exempt in every cluster are made by the API server and by Croft's installation.
#[must_use]
pub fn opened_by(rules: &Rules, name: &str) -> Vec<String> {
    let pools = rules.pools().iter().filter(|pool| pool.is_shared_with(name));
    let settings = rules.is_exempt_by_settings(name) || rules.is_shared_with(name);
    let pools = pools.map(|pool| format!("tenantpools/{}", pool.name));
    settings.then(|| format!("croftconfigs/{SINGLETON}")).into_iter().chain(pools).collect()
}

/// The names of namespaces for which [`opened_by`] says something, sorted.
#[must_use]
pub(crate) fn open_names(rules: &Rules) -> BTreeSet<&str> {
    let shared = rules.pools().iter().flat_map(PoolRule::shared_names);
    let exempt = rules.exempt().into_iter().filter(|name| rules.is_exempt_by_settings(name));
    shared.chain(exempt).chain(rules.shared_with()).collect()
}

/// Judges the write of a namespace as if nobody could be asked for the verb `assign`.
///
/// # Errors
/// If it moves the namespace, creates one that pools are open to, or writes what only Croft writes.
pub(crate) fn judge(
    rules: &Rules,
    user: &str,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Result<(), Denial> {
    if user != rules.controller_user() {
        let guarded = [
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
        ];
        if let Some((_, _, what)) = guarded.iter().find(|(before, after, _)| before != after) {
            return Err(Denial::guarded(name, what));
        }
    }
    let opened_by = opened_by(rules, name);
    if old.is_none() && !opened_by.is_empty() {
        return Err(Denial::namespace_name(name, &opened_by));
    }
    let moves = moves(rules, name, old, new);
    if moves.is_empty() { Ok(()) } else { Err(Denial::namespace_move(name, &moves)) }
}
