//! Pools for many tenants: each Tenant that names one gets a pool that is made from it, and keeps it while it names it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::{
    TenantPool,
    per_tenant::{is_of, name_of, pool_of},
};
use serde_json::json;

use crate::{
    action::Action,
    definitions::{events, keys},
    kube_api::{Kind, Target, Verb},
    merge_patch,
    nodeclaim::writes::WATCH_LAG,
    reconcile::{ReconcileContext, object_reference},
    state::Snapshot,
};

/// How long a Tenant must name other pools before the one that was made for it is deleted: a deletion can't be taken back.
const UNNAMED_FOR: Duration = Duration::from_secs(10);
/// How long a Tenant must be gone. It may be deleted and created again within seconds (`kubectl replace --force`), and with a
/// CRD all Tenants are.
const GONE_FOR: Duration = Duration::from_secs(60);

/// Makes pools for tenants.
#[derive(Debug, Default)]
pub struct PoolsForTenants {
    /// Since when a pool that was made for a tenant hasn't been wanted.
    unwanted_since: BTreeMap<String, Duration>,
}

impl PoolsForTenants {
    /// Makes the pools that are missing, brings the others in line with what they are made from, and deletes those that no Tenant names.
    pub fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>) {
        let snapshot = ctx.snapshot;
        for (name, pool) in many(snapshot) {
            for (tenant, _) in snapshot.tenants_of_pool(name) {
                keep(ctx, &name_of(name, tenant), pool, tenant);
            }
        }
        let made = snapshot.pools().iter().filter(|(name, pool)| is_unwanted(snapshot, name, pool));
        let unwanted: BTreeSet<&String> = made.map(|(name, _)| name).collect();
        self.unwanted_since.retain(|name, _| unwanted.contains(name));
        for name in unwanted {
            let since = *self.unwanted_since.entry(name.clone()).or_insert(ctx.now.mono);
            let Some(pool) = snapshot.pools().get(name) else { continue };
            let tenant = pool.spec.for_tenant.as_ref().map(|of| of.tenant.as_str());
            let is_there = tenant.is_some_and(|tenant| snapshot.tenants().contains_key(tenant));
            let wait = if is_there { UNNAMED_FOR } else { GONE_FOR };
            if pool.metadata.deletion_timestamp.is_none() && ctx.has_lasted(since, wait) {
                let uid = pool.metadata.uid.clone().unwrap_or_default();
                ctx.request(write(name, Verb::Delete { uid, grace_seconds: None }));
            }
        }
    }
}

/// The pools from which others are made, as they are declared. None follows one that can't be read.
fn many(snapshot: &Snapshot) -> impl Iterator<Item = (&String, &Arc<TenantPool>)> {
    let many = snapshot.pools().iter().filter(|(_, pool)| pool.spec.per_tenant);
    let many = many.filter(|(name, _)| !snapshot.is_stand_in(Kind::TenantPool, name));
    many.filter_map(|(name, _)| Some((name, snapshot.declared_pool(name)?)))
}

/// True if a pool was made for a Tenant that doesn't name it any more. What a Tenant names that can't be read isn't known.
fn is_unwanted(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> bool {
    pool.spec.for_tenant.as_ref().is_some_and(|of| {
        snapshot.tenants_of_pool(name).next().is_none() && !snapshot.is_stand_in(Kind::Tenant, &of.tenant)
    })
}

/// Makes the pool of a tenant, or brings it in line.
fn keep(ctx: &mut ReconcileContext<'_>, name: &str, made_from: &Arc<TenantPool>, tenant: &str) {
    let mut made = pool_of(made_from, tenant);
    let Some(held) = ctx.snapshot.declared_pool(name) else {
        // From its first moment: a pool is only let go once its nodes are gone.
        made.metadata.finalizers = Some(vec![keys::POOL_FINALIZER.to_owned()]);
        let object = serde_json::to_value(&made).unwrap_or_default();
        return ctx.request(write(name, Verb::Create(object)));
    };
    let own = made_from.metadata.name.as_deref().unwrap_or_default();
    if !is_of(held, own, tenant) {
        let note = format!(
            "the pool for Tenant {tenant} would be called {name}, and there is another TenantPool of that name: rename that one, or the \
             Tenant has no nodes of this pool"
        );
        return ctx.event(object_reference(&**made_from), true, events::POOL_NAME_TAKEN, note);
    }
    if held.spec.key != made.spec.key {
        let note = format!(
            "TenantPool {name} has the key {} of an earlier TenantPool {own}, and the key of a pool is immutable: take {own} out of \
             spec.pools of Tenant {tenant} until {name} is gone",
            held.spec.key
        );
        return ctx.event(object_reference(&**made_from), true, events::POOL_NAME_TAKEN, note);
    }
    // Also where its deletion has begun: while the Tenant names it, it works.
    if let Some(patch) = merge_patch::diff_of(&held.spec, &made.spec) {
        let metadata = json!({"uid": held.metadata.uid, "resourceVersion": held.metadata.resource_version});
        ctx.request(write(name, Verb::Patch(json!({"metadata": metadata, "spec": patch}))));
    }
}

fn write(name: &str, verb: Verb) -> Action {
    Action::write_and_wait(Target::Pool(name.to_owned()), verb, WATCH_LAG)
}
