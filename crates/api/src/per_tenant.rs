//! One pool for many tenants: what a TenantPool with `perTenant` makes for each Tenant that names it.
//!
//! ```text
//!  TenantPool dev {perTenant: true} ──▶ TenantPool dev-shop {value: shop, forTenant: {pool: dev, tenant: shop}}
//!        ▲ spec.pools                           ▲ its pods are pinned here
//!  Tenant shop ──────────────────────────────────┘
//! ```
//!
//! The controller keeps these pools; files of commands get them by the same function. To everything else they are pools as any
//! other, and the pool that they were made from has neither a label nor nodes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::{Tenant, TenantPool, TenantPoolSpec, hash::hash, pool::ForTenant};

/// A pool's name is a label value and the prefix of its claims' names.
const LONGEST_NAME: usize = 40;
/// Of a label's value.
const LONGEST_VALUE: usize = 63;
/// Digits of the hash that ends a shortened name.
const DIGITS: usize = 8;

/// The name of the pool that `pool` makes for a tenant.
#[must_use]
pub fn name_of(pool: &str, tenant: &str) -> String {
    shortened(format!("{pool}-{tenant}"), LONGEST_NAME, &[pool, tenant])
}

/// The pool that `pool` makes for a tenant.
///
/// It has no owner reference: the garbage collector would delete it as soon as `pool` is made again under another uid, by a restored
/// backup for example, while Tenants name it.
#[must_use]
pub fn pool_of(pool: &TenantPool, tenant: &str) -> TenantPool {
    let name = pool.name_any();
    let spec = TenantPoolSpec {
        per_tenant: false,
        for_tenant: Some(ForTenant { pool: name.clone(), tenant: tenant.to_owned() }),
        value: Some(shortened(tenant.to_owned(), LONGEST_VALUE, &[tenant])),
        ..pool.spec.clone()
    };
    let metadata = ObjectMeta { name: Some(name_of(&name, tenant)), ..ObjectMeta::default() };
    TenantPool { metadata, spec, status: None }
}

/// True if `pool` is what the pool `made_from` makes for this tenant.
#[must_use]
pub fn is_of(pool: &TenantPool, made_from: &str, tenant: &str) -> bool {
    pool.spec.for_tenant.as_ref().is_some_and(|of| of.pool == made_from && of.tenant == tenant)
}

/// The names of the pools that a tenant's pods use: of a pool for many tenants the one that it makes for this tenant, if that is there;
/// none that was made for another. `find` looks up a pool by name.
pub fn pools_of<'t, 'p>(
    tenant: &'t Tenant,
    find: impl Fn(&str) -> Option<&'p TenantPool>,
) -> impl Iterator<Item = Cow<'t, str>> {
    let own = tenant.name_any();
    tenant.spec.pools.iter().filter_map(move |name| {
        let (made, named) = (name_of(name, &own), find(name));
        let may_make = named.is_none_or(|pool| pool.spec.per_tenant);
        if may_make && find(&made).is_some_and(|pool| is_of(pool, name, &own)) {
            return Some(Cow::Owned(made));
        }
        let made_for = named.and_then(|pool| pool.spec.for_tenant.as_ref());
        made_for.is_none_or(|of| of.tenant == own).then_some(Cow::Borrowed(name.as_str()))
    })
}

/// `text`, or its beginning with a hash if it is too long.
fn shortened(text: String, longest: usize, parts: &[&str]) -> String {
    if text.len() <= longest {
        return text;
    }
    let kept: String = text.chars().take(longest.saturating_sub(DIGITS + 1)).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), hash(parts, DIGITS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool() -> TenantPool {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "dev", "uid": "u"},
            "spec": {"perTenant": true, "key": "node-pool", "limits": {"nodes": 3},
                "template": {"spec": {"nodeClassRef": {"name": "c"}}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_pool_of_a_tenant_is_as_declared_with_the_tenants_name_as_its_value() {
        let made = pool_of(&pool(), "shop");
        assert_eq!(made.name_any(), "dev-shop");
        assert_eq!((made.spec.value.as_deref(), made.spec.per_tenant), (Some("shop"), false));
        assert_eq!((&made.spec.limits, &made.spec.template), (&pool().spec.limits, &pool().spec.template));
        assert!(is_of(&made, "dev", "shop") && !is_of(&made, "dev", "web") && !is_of(&pool(), "dev", "shop"));
        assert_eq!(made.metadata.owner_references, None, "Tenants keep it, whatever becomes of the other");
    }

    #[test]
    fn long_names_end_with_a_hash_and_stay_apart() {
        let long = "a".repeat(70);
        let (name, other) = (name_of("dev", &long), name_of("dev", &format!("{long}b")));
        assert_eq!((name.len(), other.len()), (40, 40));
        assert_ne!(name, other);
        let value = pool_of(&pool(), &long).spec.value.unwrap();
        assert!(value.len() <= 63 && value.starts_with("aaa"), "{value}");
        assert!(!name_of(&"p".repeat(30), "-a-long-name").contains("--"), "no separator before the hash");
    }

    #[test]
    fn a_tenant_uses_the_pool_that_was_made_for_it_and_no_other_of_that_name() {
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "shop"},
            "spec": {"namespaces": ["shop"], "pools": ["dev", "gpu"]},
        }))
        .unwrap();
        let made = pool_of(&pool(), "shop");
        let names: Vec<_> = pools_of(&tenant, |name| (name == "dev-shop").then_some(&made)).collect();
        assert_eq!(names, ["dev-shop", "gpu"]);
        let mut foreign = made.clone();
        foreign.spec.for_tenant = None;
        let names: Vec<_> = pools_of(&tenant, |name| (name == "dev-shop").then_some(&foreign)).collect();
        assert_eq!(names, ["dev", "gpu"]);
        let others = pool_of(&pool(), "web");
        let names: Vec<_> = pools_of(&tenant, |name| (name == "gpu").then_some(&others)).collect();
        assert_eq!(names, ["dev"], "one that was made for another tenant isn't its own by any name");
    }
}
