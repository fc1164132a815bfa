//! Limits of cost: of the cluster, of each Tenant, of each pool.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{
    CroftConfig, Tenant, TenantPool,
    condition::Statement,
    config::SINGLETON,
    convert::{
        scheduler,
        unlimited::{self, REMEDY},
    },
    per_tenant,
    pool::Provisioner,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::report::{Finding, Problem, fail};
use crate::table::{counted, shortened};

/// A limit bounds the cost of every Tenant's and every pool's nodes.
pub(super) async fn check(client: &Client) -> Finding {
    let all = ListParams::default();
    let listed = async {
        let tenants = Api::<Tenant>::all(client.clone()).list(&all).await?.items;
        let pools = Api::<TenantPool>::all(client.clone()).list(&all).await?.items;
        let config = Api::<CroftConfig>::all(client.clone()).get_opt(SINGLETON).await?;
        Ok::<_, kube::Error>((tenants, pools, config))
    };
    let listed = listed.await.map_err(|error| Problem::unread("failed to list them", &error));
    let (tenants, pools, config) = listed?;
    let is_unlimited = |statement: Statement| statement.status == Some(true);
    let mut open: Vec<String> = Vec::new();
    let by_name: BTreeMap<String, &TenantPool> = pools.iter().map(|pool| (pool.name_any(), pool)).collect();
    let mut naming: BTreeMap<Cow<'_, str>, Vec<&Tenant>> = BTreeMap::new();
    for tenant in &tenants {
        let names: BTreeSet<Cow<'_, str>> =
            per_tenant::pools_of(tenant, |name| by_name.get(name).copied()).collect();
        names.iter().for_each(|name| naming.entry(name.clone()).or_default().push(tenant));
        let own = names.iter().filter_map(|name| by_name.get(&**name).copied());
        if is_unlimited(unlimited::of_tenant(tenant, own)) {
            open.push(format!("Tenant {}", tenant.name_any()));
        }
    }
    // A pool for many tenants has no nodes itself.
    let has_nodes = |pool: &&TenantPool| pool.spec.provisioner == Provisioner::Croft && !pool.spec.per_tenant;
    for pool in pools.iter().filter(has_nodes) {
        let name = pool.name_any();
        let naming = naming.get(name.as_str()).into_iter().flatten().copied();
        if is_unlimited(unlimited::of_pool(pool, naming)) {
            open.push(format!("TenantPool {name}"));
        }
    }
    if !open.is_empty() {
        let within = match config {
            Some(config) if scheduler::bounds_cost(&config.spec.limits) => {
                "; one of them may use up the limits of the whole cluster, which the CroftConfig has"
            }
            _ => "",
        };
        return fail(
            format!("no limit bounds the cost of the nodes of {}{within}", shortened(&open, 5)),
            format!("{REMEDY} in each, or in the CroftConfig for the whole cluster"),
        );
    }
    Ok(format!("{} and {} have limits", counted(tenants.len(), "tenant"), counted(pools.len(), "pool")))
}
