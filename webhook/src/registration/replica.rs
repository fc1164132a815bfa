//! The Lease of one replica: a heartbeat, the generation of each Tenant that it enforces, and certificate errors. The
//! controller reads it.

use std::{sync::Arc, time::Duration};

use croft_policy::{
    Mutation,
    definitions::REPLICA_LABEL,
    replica_status::{ObservedGenerations, ReplicaStatus, WEBHOOK},
};
use croft_runtime::{
    clock::Clock,
    restore::{RestoreDetector, Restores},
    shutdown::Shutdown,
};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// Interval of the heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time after which a replica without a heartbeat counts as gone.
const LIFETIME: Duration = Duration::from_secs(15);
/// Time in which changes are collected for one write.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(1);
/// Time after the last heartbeat after which a Lease is deleted.
const DELETE_AFTER: Duration = Duration::from_secs(10 * 60);
/// Time for the last request.
const LAST_REQUEST: Duration = Duration::from_secs(2);
const MANAGER: &str = "croft-webhook";

/// The sources of a replica's status.
pub struct Reports {
    /// The generation of each Tenant that it enforces.
    pub observed: watch::Receiver<ObservedGenerations>,
    /// Errors of the certificate, each `None` while there is none.
    pub errors: [watch::Receiver<Option<String>>; 2],
    /// The mode that it has written the webhook configurations for.
    pub registered: watch::Receiver<Option<Mutation>>,
}

/// The Lease of one replica.
pub struct Replica {
    api: Api<Lease>,
    name: String,
    clock: Arc<dyn Clock>,
    detector: RestoreDetector,
}

impl Replica {
    /// The Lease of the replica `name` in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, clock: Arc<dyn Clock>) -> Self {
        let (api, detector) = (Api::namespaced(client, namespace), RestoreDetector::default());
        Self { api, name: name.to_owned(), clock, detector }
    }

    /// Restorations of older data, which the heartbeat notices.
    #[must_use]
    pub fn restores(&self) -> Restores {
        self.detector.restores()
    }

    /// Renews the Lease until `stop` begins, and then deletes it. Nothing is written before the first snapshot.
    pub async fn run(mut self, mut reports: Reports, stop: Shutdown) {
        tokio::select! {
            () = stop.wait() => return,
            changed = reports.observed.changed() => if changed.is_err() { return },
        }
        loop {
            let current = status(&mut reports);
            let pause = match self.write(&current).await {
                Ok(()) => HEARTBEAT,
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "failed to write which generations of tenants are enforced");
                    RETRY
                }
            };
            tokio::select! {
                () = stop.wait() => break,
                () = sleep(pause) => {}
                () = async {
                    // Without senders there are no more changes, and the heartbeat goes on.
                    while status(&mut reports) == current {
                        let Reports { observed, errors: [certificate, trust], registered } = &mut reports;
                        tokio::select! {
                            Ok(()) = observed.changed() => {}
                            Ok(()) = registered.changed() => {}
                            Ok(()) = certificate.changed() => {}
                            Ok(()) = trust.changed() => {}
                            else => std::future::pending::<()>().await,
                        }
                    }
                    sleep(BATCH_TIME).await;
                } => {}
            }
        }
        let gone = timeout(LAST_REQUEST, self.api.delete(&self.name, &DeleteParams::default())).await;
        if !matches!(gone, Ok(Ok(_))) {
            tracing::info!(lease = self.name, "failed to delete the replica's lease; it expires by itself");
        }
    }

    async fn write(&mut self, status: &ReplicaStatus) -> kube::Result<()> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some([(REPLICA_LABEL.to_owned(), WEBHOOK.to_owned())].into()),
                annotations: Some(status.write()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: i32::try_from(LIFETIME.as_secs()).ok(),
                renew_time: Some(MicroTime(self.clock.wall())),
                ..LeaseSpec::default()
            }),
        };
        let params = PatchParams::apply(MANAGER).force();
        let written = self.api.patch(&self.name, &params, &Patch::Apply(&lease)).await?;
        self.detector.observe(&written.metadata);
        Ok(())
    }

    /// Deletes the Leases of replicas that are gone for a long time.
    ///
    /// # Errors
    /// If they can't be listed or deleted.
    pub async fn delete_expired(&self) -> kube::Result<()> {
        let ours = ListParams::default().labels(&format!("{REPLICA_LABEL}={WEBHOOK}"));
        let now = self.clock.wall();
        for lease in self.api.list(&ours).await?.items.into_iter().filter(|lease| is_expired(lease, now)) {
            if let Some(name) = &lease.metadata.name {
                // The version that was checked: a replica that came back has written since.
                let same = kube::api::Preconditions {
                    resource_version: lease.metadata.resource_version.clone(),
                    uid: lease.metadata.uid.clone(),
                };
                match self.api.delete(name, &DeleteParams::default().preconditions(same)).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                    other => drop(other?),
                }
            }
        }
        Ok(())
    }
}

fn status(reports: &mut Reports) -> ReplicaStatus {
    let Reports { observed, errors, registered } = reports;
    let [certificate, trust] = errors;
    let certificate =
        certificate.borrow_and_update().clone().map(|why| format!("{why}; see certs/README.md"));
    let errors = [certificate, trust.borrow_and_update().clone()];
    let error = errors.into_iter().flatten().collect::<Vec<_>>().join("; ");
    ReplicaStatus {
        observed: observed.borrow_and_update().clone(),
        certificate_error: Some(error).filter(|text| !text.is_empty()),
        registered: *registered.borrow_and_update(),
    }
}

fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    renewed.and_then(|time| time.checked_add(DELETE_AFTER).ok()).is_some_and(|end| end < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_expires_only_long_after_its_last_heartbeat() {
        let lease = |renewed: Option<&str>| Lease {
            spec: Some(LeaseSpec {
                renew_time: renewed.map(|time| MicroTime(time.parse().unwrap())),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let now = "2026-01-01T00:20:00Z".parse().unwrap();
        assert!(is_expired(&lease(Some("2026-01-01T00:09:59Z")), now));
        assert!(!is_expired(&lease(Some("2026-01-01T00:10:01Z")), now));
        assert!(!is_expired(&lease(None), now));
    }
}
