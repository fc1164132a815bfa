//! The API server's version, and the features that Croft depends on.

use croft_runtime::build::KUBERNETES;
use http::Request;
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
    commands::check::report::{Failed, Finding, fail},
    own_objects,
    table::{counted, shortened},
};

const RIGHTS: &str = "check with the credentials that will install Croft: it takes cluster-admin";
/// The feature by which kube-scheduler tries a pod's nominated node first.
const NOMINATED: &str = "NominatedNodeNameForExpectation";

/// The minor version in `1.36`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.parse().ok()
}

/// The version is one that Croft supports.
pub(super) async fn version(client: &Client) -> Finding {
    let (oldest, newest) = KUBERNETES;
    match release(client).await {
        Ok(found) => verdict(&found, oldest, newest),
        Err(error) => fail(format!("failed to read the version: {error}"), "kubectl version"),
    }
}

/// The API server's release, such as `1.36`.
pub(super) async fn release(client: &Client) -> kube::Result<String> {
    let info = client.apiserver_version().await?;
    // EKS writes 36+.
    let minor: String = info.minor.chars().take_while(char::is_ascii_digit).collect();
    Ok(format!("{}.{minor}", info.major))
}

fn verdict(found: &str, oldest: &str, newest: &str) -> Finding {
    let upgrade = format!("upgrade the cluster to Kubernetes {newest}");
    match (minor(found), minor(oldest), minor(newest)) {
        (Some(is), Some(least), _) if is < least => fail(
            format!(
                "Kubernetes {found} is older than {oldest}: planned placements depend on kube-scheduler {oldest}"
            ),
            upgrade,
        ),
        (Some(is), _, Some(most)) if is > most => fail(
            format!(
                "Kubernetes {found} is newer than {newest}, the newest that this version of Croft was tested with"
            ),
            format!("use a version of Croft that supports {found} (croft version)"),
        ),
        (Some(_), ..) => Ok(format!("Kubernetes {found} is supported ({oldest} to {newest})")),
        (None, ..) => fail(format!("the version {found} can't be read"), upgrade),
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

fn refused(what: &str, name: &str, error: &kube::Error, remedy: &str) -> Failed {
    let remedy = match error {
        kube::Error::Api(status) if status.is_forbidden() => RIGHTS,
        _ => remedy,
    };
    Failed {
        what: format!("the API server doesn't accept the {what} {name}: {error}"),
        remedy: remedy.to_owned(),
    }
}

/// The API server compiles every admission policy of Croft.
pub(super) async fn policies(client: &Client, namespace: &str) -> Finding {
    let remedy = "enable the API admissionregistration.k8s.io/v1 with ValidatingAdmissionPolicies, and the admission plugin \
                  ValidatingAdmissionPolicy, on every API server";
    let mut accepted = 0;
    for document in croft_policy::policies::documents(namespace) {
        let name = document.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default().to_owned();
        let is_policy = document.get("kind").and_then(|k| k.as_str()) == Some("ValidatingAdmissionPolicy");
        let unreadable = |error: serde_json::Error| Failed {
            what: format!("this command can't write the policy {name}: {error}"),
            remedy: "report this as a bug of croft".to_owned(),
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
    .map_err(|error| Failed {
        what: error.to_string(),
        remedy: "report this as a bug of croft".to_owned(),
    })?;
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

/// kube-scheduler honours nominated nodes, as far as the API server's own metrics show it: the components of a cluster are
/// given the same feature gates.
pub(super) async fn nominations(client: &Client) -> Finding {
    let unknown = |why: &str| {
        Ok(format!(
            "whether it honours nominated nodes isn't known ({why}); from {} on it does by default",
            KUBERNETES.0
        ))
    };
    let Ok(request) = Request::get("/metrics").body(Vec::new()) else { return unknown("no request") };
    let Ok(metrics) = client.request_text(request).await else {
        return unknown("the API server's metrics can't be read");
    };
    let wanted = format!("name=\"{NOMINATED}\"");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("kubernetes_feature_enabled{") && line.contains(&wanted));
    match line.and_then(|line| line.rsplit(' ').next()) {
        Some("1") => Ok(format!("{NOMINATED} is on")),
        Some(_) => fail(
            format!("{NOMINATED} is off: planned placements are hints that kube-scheduler ignores"),
            format!("turn it on: --feature-gates={NOMINATED}=true for kube-apiserver and kube-scheduler"),
        ),
        None => unknown("the API server doesn't name the feature"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_outside_the_range_fail_with_what_to_do() {
        let text = |found: &str| match verdict(found, "1.35", "1.36") {
            Ok(text) => text,
            Err(Failed { what, remedy }) => format!("{what} | {remedy}"),
        };
        assert_eq!(text("1.35"), "Kubernetes 1.35 is supported (1.35 to 1.36)");
        assert!(text("1.34").contains("older than 1.35") && text("1.34").contains("| upgrade the cluster"));
        assert!(text("1.40").contains("newer than 1.36") && text("1.40").contains("supports 1.40"));
        assert!(text("2.0").contains("can't be read"));
    }
}
