//! Namespaces of tenants enforce a Pod Security level that keeps pods from taking over their nodes.

use croft_api::{CroftConfig, Tenant, convert::policy as convert};
use croft_policy::Tenants;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::report::{Finding, Problem, fail};
use crate::{
    failure::said,
    table::{counted, shortened},
};

/// The label with the level that a namespace enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// The levels that forbid host namespaces, host paths and privileged containers.
const ENOUGH: [&str; 2] = ["baseline", "restricted"];
/// At most this many namespaces are named.
const NAMED: usize = 5;

/// The namespaces of tenants that enforce less than `baseline`. `namespace` is Croft's own.
pub(super) async fn check(client: &Client, namespace: &str) -> Finding {
    let failed = |error: kube::Error| {
        Problem::fail(
            format!("failed to list tenants and namespaces: {}", said(&error)),
            "ask for the ClusterRole croft-view, and for the right to list namespaces",
        )
    };
    let all = ListParams::default();
    let tenants = Api::<Tenant>::all(client.clone()).list(&all).await.map_err(failed)?.items;
    let configs = Api::<CroftConfig>::all(client.clone()).list(&all).await.map_err(failed)?.items;
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await.map_err(failed)?.items;
    let settings = configs.into_iter().next().map(|config| config.spec).unwrap_or_default();
    let index = Tenants::offline(
        convert::config(&settings, namespace),
        tenants.iter().filter_map(|tenant| convert::tenant(tenant).ok()).collect(),
        Vec::new(),
        namespaces.iter().map(|namespace| convert::namespace(&namespace.metadata)).collect(),
        Vec::new(),
    );
    let open = open(&index, &namespaces);
    if open.is_empty() {
        return Ok("every tenant's namespace enforces baseline or restricted".to_owned());
    }
    let names: Vec<&str> = open.iter().map(|(name, _)| name.as_str()).collect();
    fail(
        format!(
            "{} of tenants enforce less than baseline ({}): a pod there may take over its node by hostPath, hostNetwork or \
             a privileged container, and use the node's credentials",
            counted(open.len(), "namespace"),
            shortened(
                &open.iter().map(|(name, level)| format!("{name}: {level}")).collect::<Vec<_>>(),
                NAMED
            ),
        ),
        format!(
            "kubectl label --overwrite namespace {} {ENFORCE}=baseline; see docs/isolation-assumptions.md",
            names.iter().take(NAMED).copied().collect::<Vec<_>>().join(" ")
        ),
    )
}

/// Namespaces of tenants below `baseline`, with their level.
fn open(index: &Tenants, namespaces: &[Namespace]) -> Vec<(String, String)> {
    let of_tenants = namespaces.iter().filter(|namespace| {
        namespace.metadata.deletion_timestamp.is_none()
            && index.tenancy(&namespace.name_any()).tenant().is_some()
    });
    let levels = of_tenants.map(|namespace| (namespace.name_any(), namespace.labels().get(ENFORCE).cloned()));
    let open = levels.filter(|(_, level)| !level.as_deref().is_some_and(|level| ENOUGH.contains(&level)));
    open.map(|(name, level)| (name, level.unwrap_or_else(|| "none".to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use croft_policy::{Config, model};
    use serde_json::json;

    use super::*;

    #[test]
    fn tenant_namespaces_below_baseline_are_named_with_their_level() {
        let namespaces: Vec<Namespace> = serde_json::from_value(json!([
            {"metadata": {"name": "a"}},
            {"metadata": {"name": "b", "labels": {ENFORCE: "privileged"}}},
            {"metadata": {"name": "c", "labels": {ENFORCE: "baseline"}}},
            {"metadata": {"name": "d", "labels": {ENFORCE: "restricted"}}},
            {"metadata": {"name": "e", "labels": {ENFORCE: "Baseline"}}},
            {"metadata": {"name": "non-tenant"}},
            {"metadata": {"name": "kube-system"}},
        ]))
        .unwrap();
        let tenant = model::Tenant {
            name: "t".to_owned(),
            namespaces: ["a", "b", "c", "d", "e", "kube-system"].map(str::to_owned).into(),
            ..model::Tenant::default()
        };
        let held = namespaces.iter().map(|namespace| convert::namespace(&namespace.metadata)).collect();
        let index = Tenants::offline(Config::default(), vec![tenant], Vec::new(), held, Vec::new());
        let named = |name: &str, level: &str| (name.to_owned(), level.to_owned());
        assert_eq!(
            open(&index, &namespaces),
            [named("a", "none"), named("b", "privileged"), named("e", "Baseline")]
        );
    }
}
