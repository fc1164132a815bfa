//! The `webhooks` of Croft's webhook configurations, which the manifests install without any.
//!
//! Only the webhook writes that list: once a replica can answer, and again whenever it differs. It never empties the list,
//! so that an outage fails closed.

use croft_policy::Mutation;
use croft_runtime::tls::TlsSlot;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, api::PostParams};

use crate::registration::{
    hooks::{Address, Hooks},
    scope::Scope,
};

/// A webhook configuration can't be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} the {kind} {name}: {source}")]
pub struct RegistrationError {
    verb: &'static str,
    kind: &'static str,
    name: String,
    source: Box<kube::Error>,
}

/// Croft's webhook configurations.
pub struct Registration {
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating_names: Vec<String>,
    validating_names: Vec<String>,
    hooks: Hooks,
    address: Address,
}

impl Registration {
    /// The configurations of these names; API servers reach the webhook at `address`.
    #[must_use]
    pub fn new(
        client: Client,
        mutating: Vec<String>,
        validating: Vec<String>,
        hooks: Hooks,
        address: Address,
    ) -> Self {
        Self {
            mutating: Api::all(client.clone()),
            validating: Api::all(client),
            mutating_names: mutating,
            validating_names: validating,
            hooks,
            address,
        }
    }

    /// Writes the webhooks that differ: with `bundle` as their authority (without it, each keeps its own), for the requests
    /// of `scope`. Empty lists are filled only with `fill`. An absent configuration is left to the manifests. Returns the
    /// mode that the mutating webhooks are written for; `None` if there are none.
    ///
    /// # Errors
    /// If one can't be read or written. A conflict is an error as well; the next round retries.
    pub async fn ensure(
        &self,
        bundle: Option<&str>,
        scope: Option<&Scope>,
        fill: bool,
    ) -> Result<Option<Mutation>, RegistrationError> {
        let Some(scope) = scope else { return Ok(None) };
        let mut mode = None;
        for name in &self.mutating_names {
            let api_error = |verb| {
                move |source| RegistrationError::of(verb, "MutatingWebhookConfiguration", name, source)
            };
            let Some(mut found) = self.mutating.get_opt(name).await.map_err(api_error("read"))? else {
                continue;
            };
            let before = found.webhooks.take().unwrap_or_default();
            let scope = scope.settled(&before);
            let wanted = self.hooks.mutating(&self.address, bundle, &scope, &before);
            if fill || !before.is_empty() {
                // One configuration that isn't written for Policy mode asks about every pod.
                mode = mode.filter(|mode| *mode == Mutation::Webhook).or(Some(scope.mutation()));
            }
            if wanted != before && (fill || !before.is_empty()) {
                found.webhooks = Some(wanted);
                self.mutating
                    .replace(name, &PostParams::default(), &found)
                    .await
                    .map_err(api_error("update"))?;
                tracing::info!(configuration = name, "updated the mutating webhooks");
            }
        }
        for name in &self.validating_names {
            let api_error = |verb| {
                move |source| RegistrationError::of(verb, "ValidatingWebhookConfiguration", name, source)
            };
            let Some(mut found) = self.validating.get_opt(name).await.map_err(api_error("read"))? else {
                continue;
            };
            let before = found.webhooks.take().unwrap_or_default();
            let wanted = self.hooks.validating(&self.address, bundle, scope, &before);
            if wanted != before && (fill || !before.is_empty()) {
                found.webhooks = Some(wanted);
                self.validating
                    .replace(name, &PostParams::default(), &found)
                    .await
                    .map_err(api_error("update"))?;
                tracing::info!(configuration = name, "updated the validating webhooks");
            }
        }
        Ok(mode)
    }

    /// True if every registered webhook has an authority and the right address.
    ///
    /// # Errors
    /// If a configuration can't be read.
    pub async fn is_complete(&self) -> Result<bool, RegistrationError> {
        let complete = |config: &WebhookClientConfig| {
            let trusted = config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty());
            let url = config.url.as_deref().unwrap_or_default();
            trusted
                && match &self.address {
                    Address::Url(base) => url.starts_with(base.as_str()),
                    Address::Service { .. } => config.service.is_some(),
                }
        };
        for name in &self.mutating_names {
            let api_error =
                |source| RegistrationError::of("read", "MutatingWebhookConfiguration", name, source);
            let Some(found) = self.mutating.get_opt(name).await.map_err(api_error)? else { continue };
            if !found.webhooks.iter().flatten().all(|hook| complete(&hook.client_config)) {
                return Ok(false);
            }
        }
        for name in &self.validating_names {
            let api_error =
                |source| RegistrationError::of("read", "ValidatingWebhookConfiguration", name, source);
            let Some(found) = self.validating.get_opt(name).await.map_err(api_error)? else { continue };
            if !found.webhooks.iter().flatten().all(|hook| complete(&hook.client_config)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why API servers don't ask the webhook, or don't trust the certificate in `slot` for `name` at `now`, by the configurations;
    /// `None` if they do both.
    ///
    /// # Errors
    /// If a configuration can't be read.
    pub async fn distrust(
        &self,
        slot: &TlsSlot,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<String>, RegistrationError> {
        let distrust_of = |kind: &str, of: &str, config: &WebhookClientConfig| {
            let bundle =
                config.ca_bundle.as_ref().map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
            let error = slot.trusted_by(&bundle.unwrap_or_default(), name, now).err()?;
            Some(format!(
                "API servers don't trust the certificate in use, by the caBundle of the {kind} {of}: {error}; see certs/README.md"
            ))
        };
        let absence = |kind: &str, of: &str| {
            Some(format!(
                "API servers don't ask it, since there is no {kind} {of}: apply manifests/install again"
            ))
        };
        for of in &self.mutating_names {
            const KIND: &str = "MutatingWebhookConfiguration";
            let api_error = |source| RegistrationError::of("read", KIND, of, source);
            let Some(found) = self.mutating.get_opt(of).await.map_err(api_error)? else {
                return Ok(absence(KIND, of));
            };
            let mut configs = found.webhooks.iter().flatten().map(|hook| &hook.client_config);
            if let Some(why) = configs.find_map(|config| distrust_of(KIND, of, config)) {
                return Ok(Some(why));
            }
        }
        for of in &self.validating_names {
            const KIND: &str = "ValidatingWebhookConfiguration";
            let api_error = |source| RegistrationError::of("read", KIND, of, source);
            let Some(found) = self.validating.get_opt(of).await.map_err(api_error)? else {
                return Ok(absence(KIND, of));
            };
            let mut configs = found.webhooks.iter().flatten().map(|hook| &hook.client_config);
            if let Some(why) = configs.find_map(|config| distrust_of(KIND, of, config)) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }
}

impl RegistrationError {
    fn of(verb: &'static str, kind: &'static str, name: &str, source: kube::Error) -> Self {
        Self { verb, kind, name: name.to_owned(), source: Box::new(source) }
    }
}
