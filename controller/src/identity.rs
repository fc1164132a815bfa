//! The account, region and cluster that the process acts for, and whether earlier processes of this cluster acted
//! for the same.
//!
//! The first start records them as annotations of Croft's own Namespace. A process that finds others there doesn't
//! lead: the recorded account's instances would look lost to it, and the instances of a cluster that this one was
//! copied from would look like its own. An operator who intends the change removes the annotations.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_cloud::CloudProvider;
use croft_policy::definitions::FORMER_CLUSTERS_ANNOTATION;
use croft_runtime::{health::Gate, shutdown::Shutdown};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// The prefix of the annotations.
const PREFIX: &str = croft_policy::definitions::IDENTITY_PREFIX;
/// The annotation with the cluster's UID, without the prefix.
const CLUSTER_UID: &str = "cluster-uid";
/// How long a start waits for the account's id. Tenancy doesn't wait for an outage of the cloud: a process starts
/// without the id, and compares it once the cloud returns it.
const ACCOUNT_WITHIN: Duration = Duration::from_secs(10);
/// Between two comparisons while they differ, or fail.
const COMPARE_EVERY: Duration = Duration::from_secs(2);
/// Between two requests for the account's id after the start.
const ACCOUNT_EVERY: Duration = Duration::from_secs(30);
/// Comparisons between two equal log lines.
const LOG_EVERY: u32 = 30;

/// The identity that a process acts for. Unknown parts aren't compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cloud's account.
    pub account: Option<String>,
    /// The cloud's region.
    pub region: Option<String>,
    /// The cluster's name, by which its instances join.
    pub cluster_name: String,
    /// The uid of the Namespace kube-system.
    pub cluster_uid: String,
    /// The API server's address that instances are told, if it was given as an argument.
    pub endpoint: Option<String>,
}

impl Identity {
    /// The annotations that record the identity.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let entries = [
            ("account", self.account.as_deref()),
            ("region", self.region.as_deref()),
            ("cluster-name", Some(self.cluster_name.as_str())),
            (CLUSTER_UID, Some(self.cluster_uid.as_str())),
            ("cluster-endpoint", self.endpoint.as_deref()),
        ];
        let known = entries.into_iter().filter_map(|(key, value)| Some((key, value?)));
        known.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned())).collect()
    }

    /// Differences from `recorded`: key, recorded value, own value.
    #[must_use]
    pub fn differences(&self, recorded: &BTreeMap<String, String>) -> Vec<(String, String, String)> {
        let own = self.annotations().into_iter();
        let other = |(key, own): (String, String)| {
            let recorded = recorded.get(&key).filter(|value| **value != own)?.clone();
            Some((key, recorded, own))
        };
        own.filter_map(other).collect()
    }
}

/// The message for an operator about `differences` from what is `recorded` in the annotations of `namespace`.
#[must_use]
pub fn mismatch_message(
    namespace: &str,
    differences: &[(String, String, String)],
    recorded: &BTreeMap<String, String>,
) -> String {
    let each = |(key, recorded, own): &(String, String, String)| {
        format!("{} {recorded}, and this process has {own}", key.strip_prefix(PREFIX).unwrap_or(key))
    };
    let differences_text = differences.iter().map(each).collect::<Vec<_>>().join("; ");
    let mut annotations: Vec<String> = differences.iter().map(|(key, ..)| format!("{key}-")).collect();
    annotations.extend(former_clusters(differences, recorded));
    let annotations = annotations.join(" ");
    format!(
        "this process doesn't lead: the cluster's Croft ran with {differences_text}. Correct the arguments or the \
         credentials of this process. If the change is meant, first make sure that no NodeClaim names an instance of the \
         recorded account or cluster (in a copy of a cluster, remove the finalizers of its NodeClaims and delete them: \
         their instances belong to the original); then run: kubectl annotate namespace {namespace} {annotations}"
    )
}

/// The annotation that keeps the UID of the cluster that this one was restored from, so that `croft check` reports its
/// instances; `None` if the cluster is the same.
fn former_clusters(
    differences: &[(String, String, String)],
    recorded: &BTreeMap<String, String>,
) -> Option<String> {
    let (_, former, _) =
        differences.iter().find(|(key, ..)| key.strip_prefix(PREFIX) == Some(CLUSTER_UID))?;
    let earlier = recorded.get(FORMER_CLUSTERS_ANNOTATION).map(String::as_str).unwrap_or_default();
    let mut all: Vec<&str> = earlier.split(',').filter(|uid| !uid.is_empty() && uid != former).collect();
    all.push(former);
    Some(format!("{FORMER_CLUSTERS_ANNOTATION}={} --overwrite", all.join(",")))
}

/// Compares the process's identity with the recorded one, and records it if none is.
pub struct IdentityCheck {
    /// Client for the Namespace.
    pub client: Client,
    /// Croft's own Namespace.
    pub namespace: String,
    /// Returns the account's id.
    pub cloud: Arc<dyn CloudProvider>,
    /// The process's identity, as far as its arguments give it.
    pub own: Identity,
}

impl IdentityCheck {
    /// Waits until the recorded identity is the process's own. `None` once `stop` begins.
    pub async fn confirm(mut self, stop: &Shutdown, gate: &Gate) -> Option<Self> {
        let mut comparisons: u32 = 0;
        loop {
            if self.own.account.is_none() {
                let asked = tokio::time::timeout(ACCOUNT_WITHIN, self.fetch_account()).await;
                if !matches!(asked, Ok(true)) {
                    tracing::warn!(
                        "failed to get the account's id in time; it is compared once the cloud returns it"
                    );
                }
            }
            match self.compare().await {
                Ok(None) => {
                    gate.set(true);
                    return Some(self);
                }
                Ok(Some(why)) => {
                    if comparisons.is_multiple_of(LOG_EVERY) {
                        tracing::error!("{why}");
                    }
                    comparisons = comparisons.wrapping_add(1);
                }
                Err(error) => {
                    tracing::warn!(%error, namespace = self.namespace, "failed to compare the identity, retrying");
                }
            }
            tokio::select! {
                () = stop.wait() => return None,
                () = tokio::time::sleep(COMPARE_EVERY) => {}
            }
        }
    }

    /// Compares the account once its id is known, if it wasn't at the start; ends the process if it is another one.
    pub async fn watch(mut self, stop: Shutdown) {
        while self.own.account.is_none() {
            tokio::select! {
                () = stop.wait() => return,
                () = tokio::time::sleep(ACCOUNT_EVERY) => {}
            }
            if !self.fetch_account().await {
                continue;
            }
            match self.compare().await {
                Ok(None) => return,
                Ok(Some(why)) => {
                    tracing::error!("{why}");
                    stop.begin();
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to compare the identity, retrying");
                    self.own.account = None;
                }
            }
        }
    }

    async fn fetch_account(&mut self) -> bool {
        match self.cloud.account().await {
            Ok(account) => {
                self.own.account = Some(account.id);
                self.own.region = Some(account.region);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "failed to get the account's id");
                false
            }
        }
    }

    /// The message about differences; records what isn't recorded yet.
    async fn compare(&self) -> Result<Option<String>, kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = api.get(&self.namespace).await?;
        let recorded = namespace.metadata.annotations.unwrap_or_default();
        let differences = self.own.differences(&recorded);
        if !differences.is_empty() {
            return Ok(Some(mismatch_message(&self.namespace, &differences, &recorded)));
        }
        let own = self.own.annotations();
        if own.keys().any(|key| !recorded.contains_key(key)) {
            // Of two processes that start at once, the second compares itself with the first.
            let patch = json!({"metadata": {
                "resourceVersion": namespace.metadata.resource_version, "annotations": own,
            }});
            api.patch(&self.namespace, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Identity {
        Identity {
            account: Some("1".to_owned()),
            region: Some("us-east-1".to_owned()),
            cluster_name: "croft".to_owned(),
            cluster_uid: "uid".to_owned(),
            endpoint: None,
        }
    }

    #[test]
    fn recorded_and_known_parts_are_compared() {
        let recorded = own().annotations();
        assert_eq!(own().differences(&recorded), []);
        assert_eq!(own().differences(&BTreeMap::new()), [], "nothing is recorded before the first start");
        let unknown = Identity { account: None, region: None, ..own() };
        assert_eq!(unknown.differences(&recorded), [], "the cloud hasn't named the account yet");
        let moved = Identity {
            region: Some("eu-west-1".to_owned()),
            endpoint: Some("https://b".to_owned()),
            ..own()
        };
        let region = ("identity.croft.dev/region".to_owned(), "us-east-1".to_owned(), "eu-west-1".to_owned());
        assert_eq!(moved.differences(&recorded), [region]);
        let copy = Identity { cluster_name: "copy".to_owned(), ..own() };
        assert_eq!(copy.differences(&recorded).len(), 1);
    }

    #[test]
    fn the_message_names_the_difference_and_the_command() {
        let moved = Identity { account: Some("2".to_owned()), ..own() };
        let recorded = own().annotations();
        let why = mismatch_message("croft-system", &moved.differences(&recorded), &recorded);
        assert!(why.contains("account 1, and this process has 2"), "{why}");
        let command = "kubectl annotate namespace croft-system identity.croft.dev/account-";
        assert!(why.ends_with(command), "{why}");
    }

    #[test]
    fn the_message_keeps_the_uid_of_the_cluster_that_was_restored_from() {
        let copy = Identity { cluster_uid: "other".to_owned(), ..own() };
        let mut recorded = own().annotations();
        let command = |recorded: &BTreeMap<String, String>| {
            let why = mismatch_message("croft-system", &copy.differences(recorded), recorded);
            why.split_once("identity.croft.dev/cluster-uid- ").unwrap().1.to_owned()
        };
        assert_eq!(command(&recorded), "identity.croft.dev/former-cluster-uids=uid --overwrite");
        recorded.insert(FORMER_CLUSTERS_ANNOTATION.to_owned(), "first,uid".to_owned());
        assert_eq!(command(&recorded), "identity.croft.dev/former-cluster-uids=first,uid --overwrite");
    }
}
