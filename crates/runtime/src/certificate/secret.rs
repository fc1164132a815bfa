//! Reconciles the Secret with [`bundle`]'s decision. Called by the webhook replica that holds the certificate's Lease.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};

use super::bundle::{self, BundleError, CertificateBundle, Rotation, RotationRequest};
use crate::clock::Clock;

/// Why the Secret can't be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The API server refused a request or didn't answer.
    #[error("failed to {verb} the Secret {name}: {source}")]
    Api {
        /// The request.
        verb: &'static str,
        /// The Secret.
        name: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The manifests, which create the Secret, aren't installed.
    #[error(
        "failed to find the Secret {name}: apply the manifests again, which create it empty; the webhook may fill it and may not \
         create one"
    )]
    Missing {
        /// The Secret.
        name: String,
    },
    /// A certificate can't be created.
    #[error(transparent)]
    CertificateBundle(#[from] BundleError),
}

/// Reads and writes the Secret.
pub struct SecretReconciler {
    /// Secrets of Croft's own namespace.
    pub api: Api<Secret>,
    /// The name of the Secret.
    pub name: String,
    /// Names and addresses by which API servers reach the webhook.
    pub names: Vec<String>,
    /// Lifetimes.
    pub rotation: Rotation,
    /// Annotation of the Secret by which a user requests a new `leaf` or `authority`; removed when done.
    pub rotate_annotation: &'static str,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The decision of one reconciliation.
pub struct SecretPlan {
    /// The content that the Secret has, or is to get.
    pub bundle: CertificateBundle,
    write: Option<Secret>,
}

impl SecretReconciler {
    /// Reads the Secret and decides its next content. Writes nothing: API servers must trust the bundle before
    /// [`SecretReconciler::commit`], so that no replica serves a certificate that they don't trust yet.
    ///
    /// # Errors
    /// If the Secret is absent or can't be read, or a certificate can't be created.
    pub async fn plan(&self) -> Result<SecretPlan, SecretError> {
        let secret = self.api.get_opt(&self.name).await.map_err(|source| self.api_error("read", source))?;
        let secret = secret.ok_or_else(|| SecretError::Missing { name: self.name.clone() })?;
        let held = secret.data.as_ref().and_then(CertificateBundle::parse);
        let annotations = secret.metadata.annotations.as_ref();
        let requested = annotations.and_then(|annotations| annotations.get(self.rotate_annotation));
        let request = requested.and_then(|value| RotationRequest::parse(value));
        if let (Some(value), None) = (requested, request) {
            tracing::warn!(secret = self.name, value, "{} must be leaf or authority", self.rotate_annotation);
        }
        let bundle =
            bundle::next_bundle(held.as_ref(), &self.names, &self.rotation, request, self.clock.wall())?;
        let changed = request.is_some() || held.as_ref() != Some(&bundle);
        let write = changed.then(|| self.filled(secret, &bundle));
        Ok(SecretPlan { bundle, write })
    }

    /// Writes the planned content. Returns false if another process wrote in between, so that it must be planned again.
    ///
    /// # Errors
    /// If the Secret can't be written.
    pub async fn commit(&self, plan: &SecretPlan) -> Result<bool, SecretError> {
        let Some(secret) = &plan.write else { return Ok(true) };
        match self.api.replace(&self.name, &PostParams::default(), secret).await {
            Ok(_) => {
                tracing::info!(secret = self.name, "wrote a new certificate or authority");
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
            Err(source) => Err(self.api_error("update", source)),
        }
    }

    fn filled(&self, mut secret: Secret, bundle: &CertificateBundle) -> Secret {
        secret.metadata.managed_fields = None;
        if let Some(annotations) = &mut secret.metadata.annotations {
            annotations.remove(self.rotate_annotation);
        }
        secret.data = Some(bundle.data());
        secret
    }

    fn api_error(&self, verb: &'static str, source: kube::Error) -> SecretError {
        SecretError::Api { verb, name: self.name.clone(), source: Box::new(source) }
    }
}
