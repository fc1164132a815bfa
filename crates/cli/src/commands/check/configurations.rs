//! The webhook configurations.

use std::collections::BTreeSet;

use croft_policy::definitions::webhook;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::{Api, Client};

use super::report::{Finding, Problem, fail};
use crate::table::{counted, shortened};

/// Name of Croft's webhook configurations.
const CONFIGURATION: &str = "croft-webhook";

/// Both configurations exist, have webhooks with one caBundle, and fail closed.
pub(super) async fn check(client: &Client) -> Finding {
    let remedy = "install them again: kubectl apply -k manifests/install; the webhook writes its certificate into them";
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(CONFIGURATION).await;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(CONFIGURATION).await;
    let (mutating, validating) = match (mutating, validating) {
        (Ok(Some(mutating)), Ok(Some(validating))) => (mutating, validating),
        (Err(error), _) | (_, Err(error)) => return Err(Problem::unread("failed to read them", &error)),
        (Ok(None), _) => {
            return fail(
                "there is no MutatingWebhookConfiguration croft-webhook: no pod is placed in its pool",
                remedy,
            );
        }
        (_, Ok(None)) => return fail("there is no ValidatingWebhookConfiguration croft-webhook", remedy),
    };
    let mutating = mutating.webhooks.unwrap_or_default();
    let validating = validating.webhooks.unwrap_or_default();
    let clients: Vec<(&str, &WebhookClientConfig)> = mutating
        .iter()
        .map(|w| (w.name.as_str(), &w.client_config))
        .chain(validating.iter().map(|w| (w.name.as_str(), &w.client_config)))
        .collect();
    if mutating.is_empty() || validating.is_empty() {
        return fail(
            "they have no webhooks: no pod is placed in its pool, and the policies refuse tenants' pods",
            "see that the webhook runs and is ready; it writes them (kubectl -n croft-system logs deploy/croft-webhook)",
        );
    }
    let without: Vec<&str> = clients
        .iter()
        .filter(|(_, c)| c.ca_bundle.as_ref().is_none_or(|b| b.0.is_empty()))
        .map(|(n, _)| *n)
        .collect();
    if !without.is_empty() {
        return fail(
            format!("{} have no caBundle: the API server can't call Croft", shortened(&without, 3)),
            "see that the webhook runs; it writes the caBundle (certs/README.md)",
        );
    }
    let bundles: BTreeSet<&[u8]> =
        clients.iter().filter_map(|(_, c)| c.ca_bundle.as_ref()).map(|b| b.0.as_slice()).collect();
    if bundles.len() > 1 {
        return fail(
            "their caBundles differ",
            "wait for the webhook to rewrite them, or look at its logs (certs/README.md)",
        );
    }
    // Writes of namespaces without an answer are refused by a policy.
    let open: Vec<&str> = mutating
        .iter()
        .filter(|w| w.failure_policy.as_deref() != Some("Fail"))
        .map(|w| w.name.as_str())
        .filter(|n| *n != webhook::NAMESPACES)
        .collect();
    if !open.is_empty() {
        return fail(
            format!(
                "{} don't fail closed: pods may be scheduled outside their pools while Croft is down",
                shortened(&open, 3)
            ),
            remedy,
        );
    }
    Ok(format!("{} with one certificate authority", counted(clients.len(), "webhook")))
}
