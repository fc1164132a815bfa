//! Keeps the Secret as [`material`] wants it, while its Lease says that this replica may.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};

use super::material::{self, Material, MaterialError, Rotation, Wish};
use crate::clock::Clock;

/// Annotation on the Secret with which a person asks for a new `leaf` or `authority`; gone when done.
pub const ROTATE: &str = "croft.dev/rotate";

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The API server said no, or nothing.
    #[error("failed to {verb} the Secret {name}: {source}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// The Secret.
        name: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// Nothing was installed that could hold the certificate.
    #[error(
        "failed to find the Secret {name}: apply the manifests again, which make it empty; the webhook may fill it and may not \
         create one"
    )]
    Missing {
        /// The Secret.
        name: String,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Material(#[from] MaterialError),
}

/// Writes the Secret.
pub struct Keeper {
    /// Secrets of our namespace.
    pub api: Api<Secret>,
    /// Our Secret's name.
    pub name: String,
    /// Names and addresses that API servers reach us by.
    pub names: Vec<String>,
    /// Life times.
    pub rotation: Rotation,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// What a round found.
pub struct Round {
    /// What the Secret holds now, or is to hold next.
    pub material: Material,
    write: Option<Secret>,
}

impl Keeper {
    /// Reads the Secret and decides what it should hold. Nothing is written: what the API servers trust must
    /// be widened before [`Keeper::commit`], so that no replica serves what they don't trust yet.
    ///
    /// # Errors
    /// When the Secret isn't there or can't be read, or no certificate be made.
    pub async fn plan(&self) -> Result<Round, KeeperError> {
        let secret = self.api.get_opt(&self.name).await.map_err(|source| self.named("read", source))?;
        let secret = secret.ok_or_else(|| KeeperError::Missing { name: self.name.clone() })?;
        let held = secret.data.as_ref().and_then(Material::read);
        let annotations = secret.metadata.annotations.as_ref();
        let asked = annotations.and_then(|annotations| annotations.get(ROTATE));
        let wish = asked.and_then(|value| Wish::read(value));
        if let (Some(value), None) = (asked, wish) {
            tracing::warn!(secret = self.name, value, "{ROTATE} must be leaf or authority");
        }
        let material = material::next(held.as_ref(), &self.names, &self.rotation, wish, self.clock.wall())?;
        let changed = wish.is_some() || held.as_ref() != Some(&material);
        let write = changed.then(|| Self::filled(secret, &material));
        Ok(Round { material, write })
    }

    /// Writes what `plan` decided; false if somebody else wrote in between, and it is to be planned anew.
    ///
    /// # Errors
    /// When the Secret can't be written.
    pub async fn commit(&self, round: &Round) -> Result<bool, KeeperError> {
        let Some(secret) = &round.write else { return Ok(true) };
        match self.api.replace(&self.name, &PostParams::default(), secret).await {
            Ok(_) => {
                tracing::info!(secret = self.name, "wrote a new certificate or authority");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
            Err(source) => Err(self.named("update", source)),
        }
    }

    fn filled(mut secret: Secret, material: &Material) -> Secret {
        secret.metadata.managed_fields = None;
        if let Some(annotations) = &mut secret.metadata.annotations {
            annotations.remove(ROTATE);
        }
        secret.data = Some(material.write());
        secret
    }

    fn named(&self, verb: &'static str, source: kube::Error) -> KeeperError {
        KeeperError::Api { verb, name: self.name.clone(), source: Box::new(source) }
    }
}
