//! Watches the Secret or the files and installs the certificate into the slot of new connections.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher::watch_object},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{bundle::keys, info::CertificateInfo};
use crate::{
    clock::Clock,
    health::Gate,
    restore::Restores,
    tls::{Identity, TlsSlot},
};

/// Interval at which files are read: a mounted Secret changes by a symlink, which no watch on the file sees
/// (kubernetes#111947), and a read costs a few kilobytes.
const FILES_READ_EVERY: Duration = Duration::from_secs(2);

/// Installs identities and reports their errors.
#[derive(Clone)]
pub struct CertificateWatcher {
    slot: Arc<TlsSlot>,
    gate: Gate,
    clock: Arc<dyn Clock>,
    expires: Arc<AtomicI64>,
    /// Why the newest certificate isn't in use.
    refused: Arc<ArcSwapOption<String>>,
    error_sender: watch::Sender<Option<String>>,
}

impl CertificateWatcher {
    /// `gate` is open while a valid certificate is served; `expires` holds its end in seconds since 1970, 0 before the
    /// first.
    #[must_use]
    pub fn new(slot: Arc<TlsSlot>, gate: Gate, clock: Arc<dyn Clock>, expires: Arc<AtomicI64>) -> Self {
        let (refused, error_sender) = (Arc::default(), watch::Sender::default());
        Self { slot, gate, clock, expires, refused, error_sender }
    }

    /// The error of the certificate, as a sentence, and its changes.
    #[must_use]
    pub fn error(&self) -> watch::Receiver<Option<String>> {
        self.error_sender.subscribe()
    }

    fn refuse(&self, why: String) {
        self.refused.store(Some(Arc::new(why)));
        self.check();
    }

    /// Installs `identity` if it can be used; otherwise the current one stays in use.
    pub fn apply(&self, source: &str, identity: &Identity) {
        match self.slot.install(identity) {
            Ok(true) => tracing::info!(source, "serving a new certificate"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(source, %error, "failed to take a certificate into use; the old one stays");
                return self.refuse(format!("the certificate in {source} can't be used: {error}"));
            }
        }
        self.refused.store(None);
        self.check();
    }

    /// Opens or closes the gate by the current time.
    pub fn check(&self) {
        let info = self.slot.leaf().and_then(|leaf| CertificateInfo::parse(&leaf));
        self.expires.store(info.as_ref().map_or(0, |info| info.not_after.as_second()), Ordering::Relaxed);
        let now = self.clock.wall();
        let valid = info.as_ref().is_some_and(|info| info.valid_at(now));
        if self.gate.is_open() && !valid {
            tracing::error!("the certificate in use has expired");
        }
        self.gate.set(valid);
        let outdated = info.filter(|_| !valid).map(|info| {
            format!("the certificate in use is valid from {} to {} only", info.not_before, info.not_after)
        });
        let errors = [self.refused.load().as_deref().cloned(), outdated];
        let error = errors.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let error = Some(error).filter(|text| !text.is_empty());
        self.error_sender.send_if_modified(|last| {
            let differs = *last != error;
            *last = error;
            differs
        });
    }

    /// Watches the Secret `name` for ever, from the beginning after a restoration of older data.
    pub async fn secret(self, api: Api<Secret>, name: String, mut restores: Restores) {
        let watch = || watch_object(api.clone(), &name).default_backoff().boxed();
        let mut events = watch();
        let mut tick = interval(FILES_READ_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.check(),
                () = restores.next() => events = watch(),
                event = events.next() => match event {
                    Some(Ok(Some(secret))) => match identity(&secret) {
                        Some(identity) => self.apply(&name, &identity),
                        None => {
                            tracing::warn!(secret = name, "the Secret has no certificate and key that can be read");
                            self.refuse(format!("the Secret {name} has no tls.crt and tls.key that can be read"));
                        }
                    },
                    Some(Ok(None)) => {
                        tracing::warn!(secret = name, "the Secret isn't there");
                        self.refuse(format!("the Secret {name} isn't there"));
                    }
                    Some(Err(error)) => tracing::warn!(secret = name, %error, "failed to follow the Secret"),
                    None => return,
                },
            }
        }
    }

    /// Watches a certificate and its key in files for ever.
    pub async fn files(self, certificate: PathBuf, key: PathBuf) {
        let source = certificate.display().to_string();
        let mut tick = interval(FILES_READ_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tick.tick().await;
            let read = async {
                Ok::<_, std::io::Error>(Identity {
                    chain_pem: tokio::fs::read_to_string(&certificate).await?,
                    key_pem: tokio::fs::read_to_string(&key).await?,
                })
            };
            match read.await {
                // The two files may have been read while they were replaced; if they don't match, they are read again.
                Ok(identity) if last.as_ref() != Some(&identity) => {
                    self.apply(&source, &identity);
                    last = Some(identity);
                }
                Ok(_) => self.check(),
                Err(error) => {
                    tracing::error!(source, %error, "failed to read the certificate or its key");
                    self.refuse(format!("failed to read {source} or its key: {error}"));
                    last = None;
                }
            }
        }
    }
}

fn identity(secret: &Secret) -> Option<Identity> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Identity { chain_pem: text(keys::CERTIFICATE)?, key_pem: text(keys::KEY)? })
}
