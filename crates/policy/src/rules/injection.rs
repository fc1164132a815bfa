//! The fields that a tenant's pod spec lacks to run in its pool: the selector entry, and one exact toleration per taint.

use std::collections::BTreeMap;

use crate::{
    denial::Denial,
    patch::{Patch, Path},
    request::view::PodSpec,
    rules::{node_affinity::RecordedExclusion, pool_choice::PoolChoice},
    tenancy::{
        declarations::{DeclaredPool, DeclaredTenant},
        taint::Effect,
    },
};

/// The fields that Croft adds to a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Injection {
    /// Key and value of the selector entry.
    pub(crate) pin: Option<(String, String)>,
    /// Taints of the pool to tolerate exactly: key, value, effect.
    pub(crate) tolerations: Vec<(String, String, Effect)>,
    /// Expressions of the required terms, by key.
    pub(crate) keep_out: BTreeMap<String, RecordedExclusion>,
}

/// How the tolerations of a spec cover one taint of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// The taint is tolerated without a time limit.
    Full,
    /// The taint is not tolerated.
    Missing,
    /// The taint is tolerated for a limited time only, by the toleration at this index.
    Limited(usize),
}

fn coverage(spec: &PodSpec<'_>, pool: &DeclaredPool, effect: Effect) -> Coverage {
    let first = spec
        .tolerations()
        .iter()
        .enumerate()
        .find(|(_, t)| t.parse().is_some_and(|p| p.tolerates_by_default(&pool.key, &pool.value, effect)));
    match first {
        None => Coverage::Missing,
        // Eviction takes the first toleration that matches, so one with a time limit must not come first.
        Some((at, t)) if effect == Effect::NoExecute && t.toleration_seconds.is_some() => {
            Coverage::Limited(at)
        }
        Some(_) => Coverage::Full,
    }
}

/// The fields that `spec` lacks to run in `pool`.
pub(crate) fn missing(spec: &PodSpec<'_>, pool: &DeclaredPool) -> Injection {
    let pinned =
        spec.node_selector.as_ref().and_then(|s| s.get(&pool.key)).is_some_and(|v| **v == *pool.value);
    Injection {
        pin: (!pinned).then(|| (pool.key.to_string(), pool.value.to_string())),
        tolerations: pool
            .effects
            .iter()
            .filter(|effect| coverage(spec, pool, *effect) != Coverage::Full)
            .map(|effect| (pool.key.to_string(), pool.value.to_string(), effect))
            .collect(),
        keep_out: BTreeMap::new(),
    }
}

#[derive(serde::Serialize)]
struct ExactToleration<'a> {
    key: &'a str,
    operator: &'static str,
    value: &'a str,
    effect: &'static str,
}

/// Writes into `patch` what the spec at `path` lacks to run in the chosen pool.
pub(crate) fn write(spec: &PodSpec<'_>, choice: &PoolChoice<'_>, path: &Path, patch: &mut Patch) {
    let pool = choice.pool;
    write_selector(spec, choice, &path.key("nodeSelector"), patch);
    let list = path.key("tolerations");
    let (mut has_list, mut shift) = (spec.tolerations.is_some(), 0);
    for effect in pool.effects.iter() {
        let own = ExactToleration {
            key: &pool.key,
            operator: "Equal",
            value: &pool.value,
            effect: effect.as_str(),
        };
        match coverage(spec, pool, effect) {
            Coverage::Full => {}
            Coverage::Missing if has_list => patch.add(&list.end(), &own),
            Coverage::Missing => {
                patch.add(&list, &[own]);
                has_list = true;
            }
            Coverage::Limited(at) => {
                patch.add(&list.at(at + shift), &own);
                shift += 1;
            }
        }
    }
}

fn write_selector(spec: &PodSpec<'_>, choice: &PoolChoice<'_>, path: &Path, patch: &mut Patch) {
    let pool = choice.pool;
    for key in choice.dropped_keys.iter().filter(|key| **key != *pool.key) {
        patch.remove(&path.key(key));
    }
    match spec.node_selector.as_ref().map(|s| s.get(&pool.key)) {
        None => patch.add(path, &BTreeMap::from([(&*pool.key, &*pool.value)])),
        Some(None) => patch.add(&path.key(&pool.key), &&*pool.value),
        Some(Some(value)) if **value != *pool.value => patch.replace(&path.key(&pool.key), &&*pool.value),
        Some(Some(_)) => {}
    }
}

/// Checks the final pod of `tenant` for everything that `pool` needs.
///
/// # Errors
/// If something is missing, with its name.
pub(crate) fn check_final(
    tenant: &DeclaredTenant,
    spec: &PodSpec<'_>,
    pool: &DeclaredPool,
) -> Result<(), Denial> {
    let missing = missing(spec, pool);
    let what = match (&missing.pin, missing.tolerations.first()) {
        (Some((key, value)), _) => format!("spec.nodeSelector {key}={value}"),
        (None, Some((key, value, effect))) => format!("a toleration of {key}={value}:{effect}"),
        (None, None) => return Ok(()),
    };
    Err(Denial::not_placed(&tenant.name, &what))
}
