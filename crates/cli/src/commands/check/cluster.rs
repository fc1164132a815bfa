//! The API server, Croft's CRDs and Croft's namespace.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{
    api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    },
};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::timeout;

use super::report::{Finding, Problem, fail};
use crate::{failure::said, table::counted};

/// The time of the first answer, which needs nothing but a way to the API server.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// The API server answers.
pub(super) async fn api_server(client: &Client) -> Finding {
    let error = match timeout(FIRST_ANSWER, client.apiserver_version()).await {
        Ok(Ok(version)) => return Ok(format!("Kubernetes {}", version.git_version)),
        Ok(Err(error)) => said(&error),
        Err(_) => format!("the API server didn't say its version within {} s", FIRST_ANSWER.as_secs()),
    };
    fail(error, "look at the kubeconfig and the network: kubectl version")
}

/// The CRDs are installed, established, and of this version.
pub(super) async fn crds(client: &Client) -> Finding {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let remedy = "install this version's CRDs: kubectl apply --server-side -k manifests/crds";
    let mut old = Vec::new();
    let wanted = croft_api::crds();
    for crd in &wanted {
        let name = crd.name_any();
        let found = match api.get_opt(&name).await {
            Ok(Some(found)) => found,
            Ok(None) => return fail(format!("{name} isn't installed"), remedy),
            Err(error) => return Err(Problem::unread(&format!("failed to read {name}"), &error)),
        };
        if found.metadata.deletion_timestamp.is_some() {
            return fail(
                format!("{name} is being deleted, and waits for the finalizers of its objects"),
                "install the CRDs that are gone, which the controller needs to start: kubectl apply --server-side -k manifests/crds; \
                 it drains the nodes and removes the finalizers. Then install the CRDs once more, or finish with croft uninstall \
                 --crds",
            );
        }
        let established = found
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten())
            .any(|c| c.type_ == "Established" && c.status == "True");
        if !established {
            return fail(format!("{name} isn't established"), format!("kubectl describe crd {name}"));
        }
        // The API server fills in defaults, so only the field names are compared.
        if fields(&found) != fields(crd) {
            old.push(name);
        }
    }
    if old.is_empty() {
        Ok(format!("{}, as in this version", counted(wanted.len(), "CRD")))
    } else {
        fail(format!("{} are of another version than this command", old.join(", ")), remedy)
    }
}

fn collect_fields(schema: &JSONSchemaProps, path: &str, into: &mut BTreeSet<String>) {
    for (name, inner) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        collect_fields(inner, &path, into);
        into.insert(path);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
        collect_fields(inner, &format!("{path}[]"), into);
    }
}

/// Paths of every field of the served versions.
fn fields(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for version in crd.spec.versions.iter().filter(|v| v.served) {
        if let Some(schema) = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()) {
            collect_fields(schema, &version.name, &mut all);
        }
    }
    all
}

/// Croft's namespace exists.
pub(super) async fn namespace(client: &Client, namespace: &str) -> Finding {
    match Api::<Namespace>::all(client.clone()).get_opt(namespace).await {
        Ok(Some(_)) => Ok(namespace.to_owned()),
        Ok(None) => fail(
            format!("there is no namespace {namespace}"),
            "install Croft: kubectl apply -k manifests/deploy; or name its namespace with --namespace",
        ),
        Err(error) => fail(
            format!("failed to read the namespace {namespace}: {}", said(&error)),
            "look at your rights: kubectl auth can-i get namespaces",
        ),
    }
}
