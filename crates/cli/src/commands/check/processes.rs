//! The webhook's replicas and the controller's leader, by their Leases.

use anyhow::Context as _;
use croft_runtime::clock::{Clock as _, SystemClock};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams};

use super::report::{Finding, Problem, fail};
use crate::{failure::told, table::counted};

/// Name of the controller's Lease.
const LEADER: &str = "croft-controller";
/// A Lease that wasn't renewed for this many of its durations has expired.
const LEASE_GRACE: i64 = 2;

fn is_held(lease: &Lease) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let Some(renewed) = &spec.renew_time else { return false };
    let age = SystemClock.wall().as_second().saturating_sub(renewed.0.as_second());
    let life = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    spec.holder_identity.as_deref().is_some_and(|h| !h.is_empty()) && age <= life.saturating_mul(LEASE_GRACE)
}

/// At least one replica of the webhook renews its Lease.
pub(super) async fn webhook_replicas(client: &Client, namespace: &str) -> Finding {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let label = croft_policy::definitions::REPLICA_LABEL;
    let selected =
        ListParams::default().labels(&format!("{label}={}", croft_policy::replica_status::WEBHOOK));
    let remedy = format!(
        "look at its pods: kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/croft-webhook"
    );
    let leases = api.list(&selected).await;
    let leases = leases.map_err(|error| Problem::unread("failed to list the replicas' Leases", &error))?;
    match leases.items.iter().filter(|lease| is_held(lease)).count() {
        0 => fail("no replica of the webhook renews its Lease: pods of tenants can't be created", remedy),
        n => Ok(counted(n, "replica")),
    }
}

/// The controller that leads, if one does.
///
/// # Errors
/// If its Lease can't be read.
pub(crate) async fn leader_of(client: &Client, namespace: &str) -> anyhow::Result<Option<String>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = api.get_opt(LEADER).await.with_context(|| format!("failed to read the Lease {LEADER}"))?;
    Ok(lease.filter(is_held).and_then(|lease| lease.spec?.holder_identity))
}

/// A controller leads.
pub(super) async fn leader(client: &Client, namespace: &str) -> Finding {
    let remedy = format!(
        "look at its pods: kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/croft-controller"
    );
    match leader_of(client, namespace).await {
        Ok(Some(holder)) => Ok(format!("{holder} leads")),
        Ok(None) => fail("no controller leads: no instance is launched or terminated", remedy),
        Err(error) => fail(told(&error), "ask for the ClusterRole croft-view"),
    }
}
