//! The API server's version, and the features that Croft depends on.

use croft_runtime::kubernetes::{self, Concern, NEWEST, OLDEST, Release, Support};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    commands::check::report::{Finding, Problem, fail},
    failure::said,
    own_objects,
    table::{counted, shortened},
};

const RIGHTS: &str = "check with the credentials that will install Croft: it takes cluster-admin";

/// The release is one that Croft supports.
pub(in crate::commands::check) async fn version(client: &Client) -> Finding {
    verdict(release(client).await?)
}

fn verdict(found: Release) -> Finding {
    match found.support() {
        Support::TooOld => fail(
            format!("Kubernetes {found} is older than {OLDEST}: webhook and controller don't start"),
            format!("upgrade the cluster to Kubernetes {OLDEST} or later"),
        ),
        Support::Tested => Ok(format!("Kubernetes {found} is supported ({OLDEST} to {NEWEST})")),
        Support::Untested => fail(
            format!(
                "Kubernetes {found} is newer than {NEWEST}, the newest that this version of Croft was tested with"
            ),
            format!("use a version of Croft that supports {found} (croft version)"),
        ),
    }
}

/// The release has the features that Croft uses.
pub(in crate::commands::check) async fn features(client: &Client) -> Finding {
    lacks(release(client).await?)
}

async fn release(client: &Client) -> Result<Release, Problem> {
    let found = kubernetes::release(client).await;
    found.map_err(|error| Problem::fail(error.to_string(), "kubectl version"))
}

fn lacks(found: Release) -> Finding {
    match found.shortcomings(&Concern::ALL) {
        None => Ok(format!("Kubernetes {found} has each that Croft uses")),
        Some(missing) => fail(
            format!("Kubernetes {found} lacks {missing}"),
            "upgrade the cluster to have them: docs/reference/kubernetes.md",
        ),
    }
}

/// Creates `object` as a dry run; an object that exists is valid, too.
async fn accepts<K>(client: &Client, object: &K) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match Api::<K>::all(client.clone()).create(&dry, object).await {
        Ok(created) => Ok(Some(created)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

fn refused(what: &str, name: &str, error: &kube::Error, remedy: &str) -> Problem {
    let remedy = match error {
        kube::Error::Api(status) if status.is_forbidden() => RIGHTS,
        _ => remedy,
    };
    Problem::fail(format!("the API server doesn't accept the {what} {name}: {}", said(error)), remedy)
}

/// The API server compiles every admission policy of Croft.
pub(super) async fn policies(client: &Client, namespace: &str) -> Finding {
    let remedy = "enable the API admissionregistration.k8s.io/v1 with ValidatingAdmissionPolicies, and the admission plugin \
                  ValidatingAdmissionPolicy, on every API server";
    let mut accepted = 0;
    for document in croft_policy::policies::documents(namespace) {
        let name = document.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default().to_owned();
        let is_policy = document.get("kind").and_then(|k| k.as_str()) == Some("ValidatingAdmissionPolicy");
        let unreadable = |error: serde_json::Error| {
            Problem::bug(&format!("this command can't write the policy {name}"), &error)
        };
        let answer = if is_policy {
            let policy: ValidatingAdmissionPolicy = serde_json::from_value(document).map_err(unreadable)?;
            accepts(client, &policy).await.map(|_| ())
        } else {
            let binding: ValidatingAdmissionPolicyBinding =
                serde_json::from_value(document).map_err(unreadable)?;
            accepts(client, &binding).await.map(|_| ())
        };
        answer.map_err(|error| refused("policy", &name, &error, remedy))?;
        accepted += usize::from(is_policy);
    }
    Ok(format!("the API server accepts all {accepted} (dry run)"))
}

/// The API server keeps the matchConditions of webhooks.
pub(super) async fn webhooks(client: &Client) -> Finding {
    const NAME: &str = "croft-preflight";
    let remedy = "upgrade the API server: matchConditions of webhooks are in Kubernetes from 1.30 on";
    let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": croft_policy::definitions::webhook::PODS,
            "clientConfig": {"service": {"namespace": "default", "name": NAME}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "none", "expression": "request.kind.kind == ''"}],
        }],
    }))
    .map_err(|error| Problem::bug("this command can't write the webhook configuration", &error))?;
    let created = accepts(client, &configuration)
        .await
        .map_err(|error| refused("webhook configuration", NAME, &error, remedy))?;
    let kept = created.is_none_or(|created| {
        created
            .webhooks
            .iter()
            .flatten()
            .all(|webhook| webhook.match_conditions.iter().flatten().count() == 1)
    });
    if kept {
        Ok("the API server accepts them with matchConditions (dry run)".to_owned())
    } else {
        fail("the API server drops the matchConditions of webhooks", remedy)
    }
}

/// The API server compiles the rules of Croft's CRDs.
pub(super) async fn crds(client: &Client) -> Finding {
    let crds = croft_api::crds();
    for crd in &crds {
        let name = crd.name_any();
        accepts::<CustomResourceDefinition>(client, crd).await.map_err(|error| {
            refused("CRD", &name, &error, "upgrade the API server to a supported version")
        })?;
    }
    let stored = own_objects::crds(client).await.unwrap_or_default();
    let unready: Vec<String> = stored
        .iter()
        .filter(|crd| crd.metadata.deletion_timestamp.is_some())
        .map(ResourceExt::name_any)
        .collect();
    if unready.is_empty() {
        Ok(format!("the API server accepts {} (dry run)", counted(crds.len(), "CRD")))
    } else {
        fail(
            format!("{} are being deleted and still hold objects", shortened(&unready, 5)),
            "finish that first: croft uninstall --crds says what they wait for",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(finding: Finding) -> String {
        match finding {
            Ok(text) => text,
            Err(Problem { what, remedy, .. }) => format!("{what} | {remedy}"),
        }
    }

    #[test]
    fn releases_outside_the_range_fail_with_what_to_do() {
        let text = |minor| text(verdict(Release::new(minor)));
        assert_eq!(text(33), "Kubernetes 1.33 is supported (1.33 to 1.37)");
        assert!(text(32).contains("older than 1.33") && text(32).contains("| upgrade the cluster"));
        assert!(text(40).contains("newer than 1.37") && text(40).contains("supports 1.40"));
    }

    #[test]
    fn a_release_without_features_says_what_does_not_work() {
        assert_eq!(text(lacks(Release::new(36))), "Kubernetes 1.36 has each that Croft uses");
        let text = text(lacks(Release::new(33)));
        assert!(text.starts_with("Kubernetes 1.33 lacks PodLevelResources (in Kubernetes 1.34): "), "{text}");
        assert!(text.contains("| upgrade the cluster"), "{text}");
    }
}
