//! What the API servers know of us: caBundle, address and scope in our webhook configurations.
//!
//! Only those fields are ever written, and only when they differ, so that rules and policies stay what the manifests
//! say. What somebody else writes into them is put right at the next round.

use croft_runtime::tls::TlsSlot;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};
use kube::{Api, Client, api::PostParams};

use crate::scope::Scope;

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} the {kind} {name}: {source}")]
pub struct RegistrationError {
    verb: &'static str,
    kind: &'static str,
    name: String,
    source: Box<kube::Error>,
}

/// Our webhook configurations.
pub struct Registration {
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating_names: Vec<String>,
    validating_names: Vec<String>,
    url: Option<String>,
}

impl Registration {
    /// For the configurations of these names. With `url`, it replaces the Service in them.
    #[must_use]
    pub fn new(client: Client, mutating: Vec<String>, validating: Vec<String>, url: Option<String>) -> Self {
        Self {
            mutating: Api::all(client.clone()),
            validating: Api::all(client),
            mutating_names: mutating,
            validating_names: validating,
            url,
        }
    }

    /// Makes the configurations trust `bundle` and ask about what `scope` says (each left alone if `None`), and point
    /// at the URL, if one is given. One that isn't there is none of our business yet.
    ///
    /// # Errors
    /// When one can't be read or written; a conflict is an error too, and the next round tries again.
    pub async fn ensure(&self, bundle: Option<&str>, scope: Option<&Scope>) -> Result<(), RegistrationError> {
        for name in &self.mutating_names {
            let named = |verb| {
                move |source| RegistrationError::of(verb, "MutatingWebhookConfiguration", name, source)
            };
            let Some(mut found) = self.mutating.get_opt(name).await.map_err(named("read"))? else { continue };
            let before = found.webhooks.clone();
            for hook in found.webhooks.iter_mut().flatten() {
                self.change(&mut hook.client_config, bundle);
                if let Some(scope) = scope {
                    scope.restrict(&hook.name, &mut hook.namespace_selector);
                    scope.condition(&hook.name, &mut hook.match_conditions);
                }
            }
            if found.webhooks != before {
                self.mutating.replace(name, &PostParams::default(), &found).await.map_err(named("update"))?;
                tracing::info!(configuration = name, "updated the mutating webhooks' caBundle or address");
            }
        }
        for name in &self.validating_names {
            let named = |verb| {
                move |source| RegistrationError::of(verb, "ValidatingWebhookConfiguration", name, source)
            };
            let Some(mut found) = self.validating.get_opt(name).await.map_err(named("read"))? else {
                continue;
            };
            let before = found.webhooks.clone();
            for hook in found.webhooks.iter_mut().flatten() {
                self.change(&mut hook.client_config, bundle);
                if let Some(scope) = scope {
                    scope.restrict(&hook.name, &mut hook.namespace_selector);
                    scope.condition(&hook.name, &mut hook.match_conditions);
                }
            }
            if found.webhooks != before {
                self.validating
                    .replace(name, &PostParams::default(), &found)
                    .await
                    .map_err(named("update"))?;
                tracing::info!(configuration = name, "updated the validating webhooks' caBundle or address");
            }
        }
        Ok(())
    }

    /// True if no webhook of ours lacks an authority or points elsewhere than it should.
    ///
    /// # Errors
    /// When one can't be read.
    pub async fn is_complete(&self) -> Result<bool, RegistrationError> {
        let complete = |config: &WebhookClientConfig| {
            let trusted = config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty());
            let url = config.url.as_deref().unwrap_or_default();
            trusted && self.url.as_ref().is_none_or(|base| url.starts_with(base.as_str()))
        };
        for name in &self.mutating_names {
            let named = |source| RegistrationError::of("read", "MutatingWebhookConfiguration", name, source);
            let found = self.mutating.get_opt(name).await.map_err(named)?;
            if !found
                .into_iter()
                .flat_map(|found| found.webhooks)
                .flatten()
                .all(|hook| complete(&hook.client_config))
            {
                return Ok(false);
            }
        }
        for name in &self.validating_names {
            let named =
                |source| RegistrationError::of("read", "ValidatingWebhookConfiguration", name, source);
            let found = self.validating.get_opt(name).await.map_err(named)?;
            if !found
                .into_iter()
                .flat_map(|found| found.webhooks)
                .flatten()
                .all(|hook| complete(&hook.client_config))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why API servers don't trust the certificate in `slot` for `name` at `now`, as far as a configuration goes.
    ///
    /// # Errors
    /// When one can't be read.
    pub async fn distrust(
        &self,
        slot: &TlsSlot,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<String>, RegistrationError> {
        let judge = |kind: &str, of: &str, config: &WebhookClientConfig| {
            let bundle =
                config.ca_bundle.as_ref().map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned());
            let error = slot.trusted_by(&bundle.unwrap_or_default(), name, now).err()?;
            Some(format!(
                "API servers don't trust the certificate in use, by the caBundle of the {kind} {of}: {error}"
            ))
        };
        for of in &self.mutating_names {
            const KIND: &str = "MutatingWebhookConfiguration";
            let named = |source| RegistrationError::of("read", KIND, of, source);
            let hooks = self.mutating.get_opt(of).await.map_err(named)?.and_then(|found| found.webhooks);
            let mut configs = hooks.iter().flatten().map(|hook| &hook.client_config);
            if let Some(why) = configs.find_map(|config| judge(KIND, of, config)) {
                return Ok(Some(why));
            }
        }
        for of in &self.validating_names {
            const KIND: &str = "ValidatingWebhookConfiguration";
            let named = |source| RegistrationError::of("read", KIND, of, source);
            let hooks = self.validating.get_opt(of).await.map_err(named)?.and_then(|found| found.webhooks);
            let mut configs = hooks.iter().flatten().map(|hook| &hook.client_config);
            if let Some(why) = configs.find_map(|config| judge(KIND, of, config)) {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    fn change(&self, config: &mut WebhookClientConfig, bundle: Option<&str>) {
        if let Some(bundle) = bundle {
            config.ca_bundle = Some(ByteString(bundle.as_bytes().to_vec()));
        }
        if let Some(base) = &self.url {
            let path = path(config).unwrap_or_default();
            config.url = Some(format!("{base}{path}"));
            config.service = None;
        }
    }
}

/// The path that a configuration sends its reviews to, wherever it is written.
fn path(config: &WebhookClientConfig) -> Option<String> {
    if let Some(service) = &config.service {
        return service.path.clone();
    }
    let url: http::Uri = config.url.as_ref()?.parse().ok()?;
    Some(url.path().to_owned())
}

impl RegistrationError {
    fn of(verb: &'static str, kind: &'static str, name: &str, source: kube::Error) -> Self {
        Self { verb, kind, name: name.to_owned(), source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ServiceReference;
    use kube::client::Body;

    use super::*;

    fn registration(url: Option<&str>) -> Registration {
        let nowhere = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("nothing is asked here"))
        });
        let client = Client::new(nowhere, "default");
        Registration::new(client, Vec::new(), Vec::new(), url.map(str::to_owned))
    }

    fn service() -> WebhookClientConfig {
        WebhookClientConfig {
            service: Some(ServiceReference {
                name: "croft-webhook".to_owned(),
                namespace: "croft-system".to_owned(),
                path: Some("/mutate".to_owned()),
                port: None,
            }),
            ..WebhookClientConfig::default()
        }
    }

    #[tokio::test]
    async fn only_the_bundle_changes_and_only_if_one_is_given() {
        let mut config = service();
        registration(None).change(&mut config, None);
        assert_eq!(config, service(), "left alone");
        registration(None).change(&mut config, Some("A"));
        assert_eq!(config, WebhookClientConfig { ca_bundle: Some(ByteString(b"A".to_vec())), ..service() });
    }

    #[tokio::test]
    async fn a_url_replaces_the_service_and_keeps_the_path() {
        let mut config = service();
        registration(Some("https://127.0.0.1:1")).change(&mut config, None);
        assert_eq!((config.url.as_deref(), &config.service), (Some("https://127.0.0.1:1/mutate"), &None));
        registration(Some("https://127.0.0.1:2")).change(&mut config, None);
        assert_eq!(config.url.as_deref(), Some("https://127.0.0.1:2/mutate"));
    }
}
