//! A namespace that changes hands, and the metadata on it that only Croft writes.

use crate::{
    denial::Denial,
    index::Rules,
    model::{CONTROLLER_USER, POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
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

/// Judges the write of a namespace as if nobody could be asked for the verb `assign`.
///
/// # Errors
/// If it moves the namespace, or writes what only Croft writes.
pub(crate) fn judge(
    rules: &Rules,
    user: &str,
    name: &str,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
) -> Result<(), Denial> {
    if user != CONTROLLER_USER {
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
    let moves = moves(rules, name, old, new);
    if moves.is_empty() { Ok(()) } else { Err(Denial::namespace_move(name, &moves)) }
}
