//! Namespaces whose networks should be closed: each needs the NetworkPolicy that its Tenant declares.
//!
//! Read from a cluster alone: files don't hold what the controller writes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use croft_api::{
    Tenant,
    convert::tenant_objects::{network_policy, network_policy_name, tenant_label},
    stored::Stored,
    tenant::NetworkIsolation,
};
use croft_policy::{Tenants, Violation, audit::Finding, definitions::TENANT_LABEL};
use k8s_openapi::api::{
    core::v1::Namespace,
    networking::v1::{NetworkPolicy, NetworkPolicySpec},
};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::cluster_reader::list_all;

/// The tenants whose networks should be closed, and the NetworkPolicies of the cluster.
#[derive(Debug, Default)]
pub(super) struct Networks {
    /// The isolated tenants, by name. One whose field can't be read is left out: its namespaces keep what they have.
    isolated: BTreeMap<String, NetworkIsolation>,
    /// The NetworkPolicies with the name of Croft's, by namespace.
    policies: BTreeMap<String, NetworkPolicy>,
}

impl Networks {
    /// Reads the NetworkPolicies, unless no tenant is isolated.
    ///
    /// # Errors
    /// If they can't be listed.
    pub(super) async fn read(client: &Client, tenants: &[Stored<Tenant>]) -> anyhow::Result<Self> {
        let isolation = |tenant: &Stored<Tenant>| {
            let field = tenant.spec().get("networkIsolation").cloned()?;
            let isolation: NetworkIsolation = serde_json::from_value(field).ok()?;
            isolation.enabled.then(|| (tenant.name_any(), isolation))
        };
        let isolated: BTreeMap<String, NetworkIsolation> = tenants.iter().filter_map(isolation).collect();
        if isolated.is_empty() {
            return Ok(Self::default());
        }
        let all: Vec<NetworkPolicy> =
            list_all(client).await.context("failed to read the NetworkPolicies of isolated tenants")?;
        Ok(Self::new(isolated, all))
    }

    fn new(isolated: BTreeMap<String, NetworkIsolation>, all: Vec<NetworkPolicy>) -> Self {
        let own = all.into_iter().filter(|policy| policy.name_any() == network_policy_name());
        let policies = own.map(|policy| (policy.namespace().unwrap_or_default(), policy)).collect();
        Self { isolated, policies }
    }

    /// The namespaces that are open, though their Tenant closes them. A namespace beyond the number that owners may create
    /// gets no policy, and runs no pod.
    pub(super) fn open<'f>(&'f self, index: &'f Tenants, namespaces: &'f [Namespace]) -> Vec<Finding> {
        let mut own: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (namespace, tenant) in index.namespaces() {
            let tenant = tenant.filter(|tenant| self.isolated.contains_key(&*tenant.name));
            // An exempt namespace belongs to no tenant.
            if let Some(tenant) = tenant.filter(|_| index.tenancy(namespace).tenant().is_some()) {
                own.entry(&tenant.name).or_default().push(namespace.to_owned());
            }
        }
        // A closed namespace isn't among those that reach each other, and the controller names these in order.
        for names in own.values_mut() {
            names.retain(|name| index.surplus(name).is_none());
            names.sort_unstable();
        }
        let deleted: BTreeSet<String> = namespaces
            .iter()
            .filter(|namespace| namespace.metadata.deletion_timestamp.is_some())
            .map(|namespace| namespace.name_any())
            .collect();
        let mut findings = Vec::new();
        for (tenant, names) in &own {
            let reached: Vec<&str> = names.iter().map(String::as_str).collect();
            let Some(wanted) = network_policy(self.isolated.get(*tenant), &reached) else { continue };
            for namespace in reached.iter().filter(|name| !deleted.contains(**name)) {
                let Some(what) = self.difference(tenant, namespace, &wanted) else { continue };
                findings.push(Finding {
                    violation: Violation::NamespaceOpen,
                    kind: "Namespace",
                    namespace: None,
                    name: (*namespace).to_owned(),
                    tenants: vec![(*tenant).to_owned()],
                    message: format!(
                        "should be closed by networkIsolation of Tenant {tenant}, and {what}, so that others may reach its \
                         pods; the controller writes it: check that it runs, and the condition ObjectsKept of the Tenant"
                    ),
                });
            }
        }
        findings
    }

    /// The difference between the policy of a namespace and the wanted one; `None` if it is in place.
    fn difference(&self, tenant: &str, namespace: &str, wanted: &NetworkPolicySpec) -> Option<String> {
        let name = network_policy_name();
        let Some(found) = self.policies.get(namespace) else {
            return Some(format!("the NetworkPolicy {name} is missing"));
        };
        if found.labels().get(TENANT_LABEL) != Some(&tenant_label(tenant)) {
            return Some(format!("the NetworkPolicy {name} has not the label {TENANT_LABEL} of the tenant"));
        }
        (json!(found.spec) != json!(wanted))
            .then(|| format!("the NetworkPolicy {name} differs from what the Tenant declares"))
    }
}

#[cfg(test)]
mod tests {
    use croft_policy::{Config, stored};
    use serde_json::Value;

    use super::*;

    const SPEC: &str =
        r#"{"namespaces": ["a-1", "a-2"], "pools": ["p"], "networkIsolation": {"enabled": true}}"#;

    fn namespaces(names: &[&str]) -> Vec<Namespace> {
        names
            .iter()
            .map(|name| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap())
            .collect()
    }

    fn index(spec: &Value, namespaces: &[Namespace]) -> Tenants {
        let tenant = stored::tenant("a".to_owned(), Some(1), spec).object;
        let converted = namespaces.iter().map(|n| croft_api::convert::policy::namespace(&n.metadata));
        Tenants::offline(Config::default(), vec![tenant], vec![], converted.collect(), vec![])
    }

    fn policy(namespace: &str, label: &str, spec: &Value) -> NetworkPolicy {
        let metadata =
            json!({"name": "croft-tenant-network", "namespace": namespace, "labels": {TENANT_LABEL: label}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// The namespaces that are open, and the part of the message that says why.
    fn open(spec: &str, policies: Vec<NetworkPolicy>, namespaces: &[Namespace]) -> Vec<(String, String)> {
        let spec: Value = serde_json::from_str(spec).unwrap();
        let isolation: NetworkIsolation = serde_json::from_value(spec["networkIsolation"].clone()).unwrap();
        let isolated = [("a".to_owned(), isolation)].into_iter().filter(|(_, isolation)| isolation.enabled);
        let networks = Networks::new(isolated.collect(), policies);
        let found = networks.open(&index(&spec, namespaces), namespaces);
        let part =
            |message: &str| message.split(", and ").nth(1).unwrap().split(", so").next().unwrap().to_owned();
        found.into_iter().map(|finding| (finding.name, part(&finding.message))).collect()
    }

    fn wanted() -> Value {
        let isolation = NetworkIsolation { enabled: true, ..NetworkIsolation::default() };
        json!(network_policy(Some(&isolation), &["a-1", "a-2"]))
    }

    #[test]
    fn namespace_without_the_declared_policy_is_open() {
        let all = namespaces(&["a-1", "a-2", "other", "kube-system"]);
        assert_eq!(
            open(SPEC, vec![policy("a-1", "a", &wanted())], &all),
            [("a-2".to_owned(), "the NetworkPolicy croft-tenant-network is missing".to_owned())]
        );
        let mut wider = wanted();
        wider["ingress"][0]["from"] = json!([]);
        let found = open(SPEC, vec![policy("a-1", "a", &wider), policy("a-2", "b", &wanted())], &all);
        assert!(found[0].1.contains("differs from what the Tenant declares"), "{found:?}");
        assert!(found[1].1.contains("has not the label croft.dev/tenant"), "{found:?}");
        let closed = vec![policy("a-1", "a", &wanted()), policy("a-2", "a", &wanted())];
        assert_eq!(open(SPEC, closed, &all), []);
    }

    #[test]
    fn namespaces_that_need_no_policy_are_not_open() {
        let mut all = namespaces(&["a-1", "a-2"]);
        assert_eq!(open(&SPEC.replace("true", "false"), Vec::new(), &all), []);
        all[0].metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let named =
            |found: Vec<(String, String)>| found.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            named(open(SPEC, Vec::new(), &all)),
            ["a-2"],
            "one that is being deleted takes no new object"
        );
        // The second of two created namespaces is beyond the maximum.
        let spec = r#"{"pools": ["p"], "networkIsolation": {"enabled": true}, "namespaceCreation": {"prefix": "a-", "maximum": 1}}"#;
        let mut all = namespaces(&["a-1", "a-2"]);
        all[0].metadata.annotations = Some([("policy.croft.dev/pools".to_owned(), "-".to_owned())].into());
        assert_eq!(named(open(spec, Vec::new(), &all)), ["a-1"]);
    }
}
