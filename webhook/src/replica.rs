//! This replica's own Lease: that it lives, and which generations of Tenants it enforces.

use std::{sync::Arc, time::Duration};

use croft_policy::seen::{REPLICA_LABEL, Report, Seen, WEBHOOK};
use croft_runtime::{clock::Clock, shutdown::Shutdown};
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

/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After so long without one a replica counts as gone.
const LIFE: Duration = Duration::from_secs(15);
/// Changes closer together than this are written together.
const TOGETHER: Duration = Duration::from_millis(50);
/// After an error.
const RETRY: Duration = Duration::from_secs(1);
/// A Lease that its replica left behind is deleted after so long.
const FORGET: Duration = Duration::from_secs(10 * 60);
/// At the end, for the last request.
const LAST_REQUEST: Duration = Duration::from_secs(2);
const MANAGER: &str = "croft-webhook";

/// The Lease of one replica.
pub struct Replica {
    api: Api<Lease>,
    name: String,
    clock: Arc<dyn Clock>,
}

impl Replica {
    /// The Lease of the replica `name` in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, clock: Arc<dyn Clock>) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), clock }
    }

    /// Keeps the Lease until `stop` begins, and then deletes it. Nothing is written before something is known.
    /// `troubles` are what is wrong with the certificate, each `None` while nothing is.
    pub async fn run(
        self,
        mut seen: watch::Receiver<Seen>,
        mut troubles: [watch::Receiver<Option<String>>; 2],
        stop: Shutdown,
    ) {
        tokio::select! {
            () = stop.wait() => return,
            changed = seen.changed() => if changed.is_err() { return },
        }
        loop {
            let current = report(&mut seen, &mut troubles);
            let pause = match self.write(&current).await {
                Ok(()) => HEARTBEAT,
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "failed to say which tenants are enforced");
                    RETRY
                }
            };
            tokio::select! {
                () = stop.wait() => break,
                () = sleep(pause) => {}
                () = async {
                    // Without a sender nothing changes any more; the heartbeat goes on.
                    while report(&mut seen, &mut troubles) == current {
                        let [certificate, trust] = &mut troubles;
                        tokio::select! {
                            Ok(()) = seen.changed() => {}
                            Ok(()) = certificate.changed() => {}
                            Ok(()) = trust.changed() => {}
                            else => std::future::pending::<()>().await,
                        }
                    }
                    sleep(TOGETHER).await;
                } => {}
            }
        }
        let gone = timeout(LAST_REQUEST, self.api.delete(&self.name, &DeleteParams::default())).await;
        if !matches!(gone, Ok(Ok(_))) {
            tracing::info!(lease = self.name, "the replica's lease wasn't deleted; it expires by itself");
        }
    }

    async fn write(&self, report: &Report) -> kube::Result<()> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some([(REPLICA_LABEL.to_owned(), WEBHOOK.to_owned())].into()),
                annotations: Some(report.write()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: i32::try_from(LIFE.as_secs()).ok(),
                renew_time: Some(MicroTime(self.clock.wall())),
                ..LeaseSpec::default()
            }),
        };
        let params = PatchParams::apply(MANAGER).force();
        self.api.patch(&self.name, &params, &Patch::Apply(&lease)).await.map(drop)
    }

    /// Deletes the Leases of replicas that are long gone.
    ///
    /// # Errors
    /// When they can't be listed or deleted.
    pub async fn forget_others(&self) -> kube::Result<()> {
        let ours = ListParams::default().labels(&format!("{REPLICA_LABEL}={WEBHOOK}"));
        let now = self.clock.wall();
        for lease in self.api.list(&ours).await?.items.into_iter().filter(|lease| is_long_gone(lease, now)) {
            if let Some(name) = &lease.metadata.name {
                // The version it was judged by: a replica that came back has written since.
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

fn report(seen: &mut watch::Receiver<Seen>, troubles: &mut [watch::Receiver<Option<String>>; 2]) -> Report {
    let troubles = troubles.iter_mut().filter_map(|trouble| trouble.borrow_and_update().clone());
    let trouble = troubles.collect::<Vec<_>>().join("; ");
    Report { seen: seen.borrow_and_update().clone(), trouble: Some(trouble).filter(|text| !text.is_empty()) }
}

fn is_long_gone(lease: &Lease, now: Timestamp) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    renewed.and_then(|time| time.checked_add(FORGET).ok()).is_some_and(|end| end < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_long_silent_is_forgotten() {
        let lease = |renewed: Option<&str>| Lease {
            spec: Some(LeaseSpec {
                renew_time: renewed.map(|time| MicroTime(time.parse().unwrap())),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let now = "2026-01-01T00:20:00Z".parse().unwrap();
        assert!(is_long_gone(&lease(Some("2026-01-01T00:09:59Z")), now));
        assert!(!is_long_gone(&lease(Some("2026-01-01T00:10:01Z")), now));
        assert!(!is_long_gone(&lease(None), now));
    }
}
