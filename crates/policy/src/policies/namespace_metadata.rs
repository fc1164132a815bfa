//! The label and the annotations that the controller writes on each namespace, for webhooks and policies.

use std::collections::BTreeMap;

use crate::{
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    tenancy::{
        declarations::{Declarations, DeclaredTenant},
        model::{NonTenantPods, OnConflict, TENANCY_NONE},
        taint::Effect,
    },
};

/// The entry of a tenant whose pods are moved to an allowed pool, in place of being refused.
pub(super) const OVERRIDE: &str = "Override:-:-";
/// The parts of a pool that doesn't exist, but for its name.
pub(super) const NO_POOL: &str = "-:-:-";

/// Labels or annotations by key; `None` for a key that must be absent.
pub type MetadataEntries = BTreeMap<&'static str, Option<String>>;

/// The labels and the annotations that a namespace must carry for webhooks and policies. `owner` is the tenant that
/// owns it.
#[must_use]
pub fn namespace_metadata(
    declarations: &Declarations,
    namespace: &str,
    owner: Option<&DeclaredTenant>,
) -> (MetadataEntries, MetadataEntries) {
    let exempt = declarations.is_exempt(namespace);
    let owner = owner.filter(|_| !exempt);
    // Without a tenant and a pool nothing is isolated, and no namespace is changed.
    let is_non_tenant = owner.is_none() && !exempt && declarations.is_active();
    let label = is_non_tenant.then(|| TENANCY_NONE.to_owned());
    let pools = owner.map(|tenant| pools_annotation(declarations, tenant));
    let shared = is_non_tenant.then(|| shared_annotation(declarations, namespace)).flatten();
    (
        BTreeMap::from([(TENANCY_LABEL, label)]),
        BTreeMap::from([(POOLS_ANNOTATION, pools), (SHARED_ANNOTATION, shared)]),
    )
}

/// The entry of a pool that doesn't exist in the annotation with a tenant's pools.
#[must_use]
pub fn missing_pool(name: &str) -> String {
    format!("{NO_POOL}:{name}")
}

/// The label of a pool's entry in that annotation, or the whole entry of what is no pool.
#[must_use]
pub fn pool_label(entry: &str) -> &str {
    entry.split(':').next().filter(|label| label.contains('=')).unwrap_or(entry)
}

/// A tenant's pools, the default first, as `key=value:effect,effect:label:name`, separated by semicolons. None of these
/// characters can be in a label's key or value. `label` is the pool-name label; the name is left out if it is the same. Where there
/// are pools to choose from, the name is followed by what the pool's nodes can be, as the text of a
/// [`NodeTemplate`](crate::NodeTemplate).
///
/// A pool that doesn't exist is `-:-:-:name`, which no pod can have. With `onConflict: Override`, the first entry is
/// [`OVERRIDE`]. A tenant without pools gets a dash.
fn pools_annotation(declarations: &Declarations, tenant: &DeclaredTenant) -> String {
    let overrides = (tenant.on_conflict == OnConflict::Override).then(|| OVERRIDE.to_owned());
    let mut entries: Vec<String> = overrides.into_iter().collect();
    let siblings = &tenant.siblings;
    for (name, id) in &tenant.pools {
        let entry = match id.and_then(|id| declarations.pool(id)) {
            None => missing_pool(name),
            Some(pool) => {
                let effects: Vec<&str> = pool.effects.iter().map(Effect::as_str).collect();
                let label = pool.pool_name_label();
                let name = if tenant.pools.len() > 1 && !siblings.is_unknown {
                    format!(":{}:{}", pool.name, pool.template.text(siblings))
                } else if label == &*pool.name {
                    String::new()
                } else {
                    format!(":{}", pool.name)
                };
                format!("{}={}:{}:{label}{name}", pool.key, pool.value, effects.join(","))
            }
        };
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    if entries.is_empty() { "-".to_owned() } else { entries.join(";") }
}

/// The pools that are open to a non-tenant namespace, as `key=value`; a star for all.
fn shared_annotation(declarations: &Declarations, namespace: &str) -> Option<String> {
    if declarations.is_shared_with(namespace) || declarations.non_tenant_pods() == NonTenantPods::Allow {
        return Some("*".to_owned());
    }
    let shared = declarations.pools().iter().filter(|pool| pool.is_shared_with(namespace));
    let entries: Vec<String> = shared.map(|pool| format!("{}={}", pool.key, pool.value)).collect();
    (!entries.is_empty()).then(|| entries.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_annotation_have_three_parts_before_the_name() {
        assert_eq!((OVERRIDE.split(':').count(), NO_POOL.split(':').count()), (3, 3));
        assert!(
            NO_POOL.split(':').all(|part| part == "-"),
            "variables take a dash for effects that don't exist"
        );
    }
}
