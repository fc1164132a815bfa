//! Whether Fargate takes Croft's pods, where no node does. A node of Fargate comes with its pod, so none is there before.

use std::collections::BTreeMap;

use croft_cloud_aws::{AccountReader, FargateProfile, FargateSelector};
use k8s_openapi::api::apps::v1::Deployment;
use regex_lite::Regex;

use super::room;
use crate::commands::check::{
    installed::Subject,
    report::{Finding, Problem},
};

/// The finding of `room` once more, if its pods fit onto no node: well if a profile takes every pod, else also with what the
/// profiles lack.
pub(super) async fn instead(failed: Problem, subject: &Subject<'_>) -> Finding {
    let failed = |why: &str| Problem { what: format!("{}; {why}", failed.what), ..failed.clone() };
    let access = subject.aws.access(None).await;
    let access = access.map_err(|why| failed(&format!("Fargate profiles are not checked: {why}")))?;
    let Some(cluster) = subject.cluster_name else {
        return Err(failed("Fargate profiles are not checked: give --cluster-name"));
    };
    let Some(reader) = AccountReader::connect(&access).await else {
        return Err(failed("Fargate profiles are not checked: no region is set"));
    };
    let profiles = reader.fargate_profiles(cluster).await;
    let profiles = profiles.map_err(|why| failed(&format!("Fargate profiles are not known: {why}")))?;
    let deployments = room::deployments(subject.namespace)?;
    match taking(&profiles, subject.namespace, &deployments) {
        Some(profile) => Ok(format!("Croft's pods run on Fargate, by the profile {}", profile.name)),
        None => Err(failed(&format!(
            "and of {} active Fargate profiles of {cluster} none selects the namespace {}",
            profiles.len(),
            subject.namespace
        ))),
    }
}

/// The profile that takes every pod of `deployments`.
fn taking<'a>(
    profiles: &'a [FargateProfile],
    namespace: &str,
    deployments: &[Deployment],
) -> Option<&'a FargateProfile> {
    let none = BTreeMap::new();
    let labels: Vec<_> = deployments
        .iter()
        .map(|deployment| {
            let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
            template.and_then(|metadata| metadata.labels.as_ref()).unwrap_or(&none)
        })
        .collect();
    profiles.iter().find(|profile| {
        labels
            .iter()
            .all(|labels| profile.selectors.iter().any(|selector| selects(selector, namespace, labels)))
    })
}

fn selects(selector: &FargateSelector, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
    let FargateSelector { namespace: pattern, labels: wanted } = selector;
    matches(pattern, namespace)
        && wanted.iter().all(|(key, value)| labels.iter().any(|(k, v)| matches(key, k) && matches(value, v)))
}

/// `*` stands for any text, `?` for one character.
fn matches(pattern: &str, text: &str) -> bool {
    let pattern = regex_lite::escape(pattern).replace(r"\*", ".*").replace(r"\?", ".");
    Regex::new(&format!("^{pattern}$")).is_ok_and(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(selectors: &[(&str, &[(&str, &str)])]) -> bool {
        let selectors = selectors
            .iter()
            .map(|(namespace, labels)| FargateSelector {
                namespace: (*namespace).to_owned(),
                labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            })
            .collect();
        let profile = FargateProfile { name: "p".to_owned(), selectors };
        taking(&[profile], "croft-system", &room::deployments("croft-system").unwrap()).is_some()
    }

    #[test]
    fn a_profile_must_select_both_deployments() {
        for namespace in ["croft-system", "croft-*", "*", "croft-syste?"] {
            assert!(taken(&[(namespace, &[])]), "{namespace}");
        }
        for namespace in ["croft", "croft.system", "croft-system-?", ""] {
            assert!(!taken(&[(namespace, &[])]), "{namespace}");
        }
        let webhook = ("croft-system", [("app.kubernetes.io/name", "croft-webhook")].as_slice());
        let controller = ("croft-system", [("app.kubernetes.io/*", "croft-c*")].as_slice());
        assert!(!taken(&[webhook]));
        assert!(taken(&[webhook, controller]));
    }
}
