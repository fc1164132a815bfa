//! The webhooks of Croft's configurations: those of `hooks.yaml`, with address, authority and scope.

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, ServiceReference, ValidatingWebhook,
        ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};

use crate::registration::scope::Scope;

const TEXT: &str = include_str!("hooks.yaml");

/// The address at which API servers reach the webhook.
#[derive(Clone, Debug)]
pub enum Address {
    /// The Service `name` in `namespace`.
    Service {
        /// Croft's own namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
    /// A URL without a path.
    Url(String),
}

/// `hooks.yaml` can't be parsed.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the webhooks in hooks.yaml: {0}")]
pub struct HooksError(String);

/// The webhooks of both configurations.
#[derive(Clone, Debug)]
pub struct Hooks {
    mutating: Vec<MutatingWebhook>,
    validating: Vec<ValidatingWebhook>,
}

/// Completes `hooks`, where `found` are registered. A macro, since Kubernetes' two types of webhooks share fields and no
/// trait.
macro_rules! complete {
    ($hooks:expr, $address:expr, $bundle:expr, $scope:expr, $found:expr) => {{
        let mut hooks = $hooks;
        for hook in &mut hooks {
            let old = $found.iter().find(|old| old.name == hook.name).map(|old| &old.client_config);
            hook.client_config = client(&hook.client_config, $address, $bundle, old);
            $scope.restrict(&hook.name, &mut hook.namespace_selector);
            $scope.condition(&hook.name, &mut hook.match_conditions);
            hook.object_selector.get_or_insert_default();
        }
        hooks
    }};
}

impl Hooks {
    /// The built-in webhooks.
    ///
    /// # Errors
    /// If the text is invalid, which a test rules out.
    pub fn built_in() -> Result<Self, HooksError> {
        let error = |error: &dyn std::fmt::Display| HooksError(error.to_string());
        let (first, second) =
            TEXT.split_once("\n---\n").ok_or_else(|| error(&"there is no second document"))?;
        let mutating: MutatingWebhookConfiguration =
            serde_saphyr::from_str(first).map_err(|found| error(&found))?;
        let validating: ValidatingWebhookConfiguration =
            serde_saphyr::from_str(second).map_err(|found| error(&found))?;
        Ok(Self {
            mutating: mutating.webhooks.unwrap_or_default(),
            validating: validating.webhooks.unwrap_or_default(),
        })
    }

    /// The desired mutating webhooks, where `found` are registered. Without `bundle`, each keeps its authority.
    #[must_use]
    pub fn mutating(
        &self,
        address: &Address,
        bundle: Option<&str>,
        scope: &Scope,
        found: &[MutatingWebhook],
    ) -> Vec<MutatingWebhook> {
        complete!(self.mutating.clone(), address, bundle, scope, found)
    }

    /// The desired validating webhooks, as [`Self::mutating`].
    #[must_use]
    pub fn validating(
        &self,
        address: &Address,
        bundle: Option<&str>,
        scope: &Scope,
        found: &[ValidatingWebhook],
    ) -> Vec<ValidatingWebhook> {
        complete!(self.validating.clone(), address, bundle, scope, found)
    }
}

/// The client configuration for the path of `template` at `address`.
fn client(
    template: &WebhookClientConfig,
    address: &Address,
    bundle: Option<&str>,
    old: Option<&WebhookClientConfig>,
) -> WebhookClientConfig {
    let path = template.service.as_ref().and_then(|service| service.path.clone()).unwrap_or_default();
    let ca_bundle = match bundle {
        Some(bundle) => Some(ByteString(bundle.as_bytes().to_vec())),
        None => old.and_then(|old| old.ca_bundle.clone()),
    };
    match address {
        Address::Url(base) => {
            WebhookClientConfig { url: Some(format!("{base}{path}")), service: None, ca_bundle }
        }
        Address::Service { namespace, name } => WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                path: Some(path),
                port: template.service.as_ref().and_then(|service| service.port),
            }),
            url: None,
            ca_bundle,
        },
    }
}

#[cfg(test)]
mod tests {
    use croft_policy::definitions::webhook;

    use super::*;

    fn service() -> Address {
        Address::Service { namespace: "own".to_owned(), name: "croft-webhook".to_owned() }
    }

    #[test]
    fn every_webhook_but_those_that_refuse_nothing_fails_closed_within_three_seconds() {
        let hooks = Hooks::built_in().unwrap();
        let mutating = hooks.mutating(&service(), None, &Scope::default(), &[]);
        let validating = hooks.validating(&service(), None, &Scope::default(), &[]);
        assert_eq!((mutating.len(), validating.len()), (3, 4));
        let all = mutating
            .iter()
            .map(|h| (&h.name, &h.failure_policy, h.timeout_seconds))
            .chain(validating.iter().map(|h| (&h.name, &h.failure_policy, h.timeout_seconds)));
        for (name, policy, timeout) in all {
            let wanted = match name.as_str() {
                "warnings.croft.dev" => ("Ignore", 1),
                "namespaces.croft.dev" => ("Ignore", 3),
                _ => ("Fail", 3),
            };
            assert_eq!((policy.as_deref(), timeout), (Some(wanted.0), Some(wanted.1)), "{name}");
        }
    }

    #[test]
    fn a_namespace_that_loses_its_label_in_between_is_of_one_of_the_two_webhooks() {
        let hooks = Hooks::built_in().unwrap();
        let mutating = hooks.mutating(&service(), None, &Scope::default(), &[]);
        // The API server looks a namespace up anew for each, in their order.
        let place = |name: &str| mutating.iter().position(|hook| hook.name == name).unwrap();
        assert!(place(webhook::NON_TENANT) < place(webhook::PODS));
    }

    #[test]
    fn service_and_url_have_the_same_path() {
        let hooks = Hooks::built_in().unwrap();
        let of =
            |address: &Address| hooks.mutating(address, None, &Scope::default(), &[]).remove(0).client_config;
        let service = of(&service()).service.unwrap();
        assert_eq!(
            (service.namespace.as_str(), service.path.as_deref(), service.port),
            ("own", Some("/mutate"), Some(443))
        );
        let by_url = of(&Address::Url("https://127.0.0.1:1".to_owned()));
        assert_eq!((by_url.url.as_deref(), by_url.service), (Some("https://127.0.0.1:1/mutate"), None));
    }

    #[test]
    fn authority_stays_without_a_bundle() {
        let hooks = Hooks::built_in().unwrap();
        let mut found = hooks.mutating(&service(), Some("A"), &Scope::default(), &[]);
        let bundle = |hooks: &[MutatingWebhook]| hooks[0].client_config.ca_bundle.clone().unwrap().0;
        assert_eq!(bundle(&hooks.mutating(&service(), None, &Scope::default(), &found)), b"A");
        found = hooks.mutating(&service(), Some("B"), &Scope::default(), &found);
        assert_eq!(bundle(&found), b"B");
    }
}
