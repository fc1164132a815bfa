//! The mode of `spec.admission.mutation`: the one that fits the cluster, and whether the mutating policies installed are
//! those of this version.

use croft_api::{
    CroftConfig,
    config::{Mutation, SINGLETON},
};
use croft_policy::{definitions::parameter::ALL_POOLS, policies};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use super::report::{Finding, Problem, fail, warn};
use crate::table::shortened;

const GROUP: &str = "admissionregistration.k8s.io";
const VERSION: &str = "v1";
/// At most this many objects are named.
const NAMED: usize = 3;
/// How to install the mutating policies of this version.
const INSTALL: &str = "install those of this version: upgrade the Helm release, or kubectl apply --server-side --force-conflicts -f \
                       manifests/overlays/policy-mode/mutation.yaml";

/// The mutating policies of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Installed {
    /// The API server serves none.
    NotServed,
    /// None is there.
    None,
    /// They are those of this version.
    Current,
    /// These are missing, or differ from those of this version.
    Different(Vec<String>),
}

/// Checks the mode. `namespace` is Croft's own.
pub(super) async fn check(client: &Client, namespace: &str) -> Finding {
    let read = async {
        let config = Api::<CroftConfig>::all(client.clone()).get_opt(SINGLETON).await?;
        let own = Api::<Namespace>::all(client.clone()).get_opt(namespace).await?;
        let wanted = config.map(|config| config.spec.admission.mutation).unwrap_or_default();
        let pools = own.and_then(|own| own.annotations().get(ALL_POOLS).cloned()).unwrap_or_default();
        Ok::<_, kube::Error>((
            wanted,
            policies::parameters::has_more_pools(&pools),
            installed(client, namespace).await?,
        ))
    };
    let unsaid = |error| Problem::unsaid("failed to read the settings or the mutating policies", &error);
    let (wanted, has_more_pools, installed) = read.await.map_err(unsaid)?;
    evaluate(wanted, has_more_pools, &installed)
}

fn evaluate(wanted: Mutation, has_more_pools: bool, installed: &Installed) -> Finding {
    const NOT_SERVED: &str = "the API server serves no MutatingAdmissionPolicy, as Kubernetes 1.36 does";
    const MORE_POOLS: &str = "there are more pools than the policies can hold, so Policy mode refuses non-tenant pods that \
                              tolerate or select the key of a pool";
    match (wanted, installed) {
        (Mutation::Webhook, Installed::NotServed) => Ok(format!("Webhook mode fits: {NOT_SERVED}")),
        (Mutation::Webhook, Installed::None) => warn(
            "Webhook mode is set, and without the mutating policies nodes that Croft doesn't launch are open to pods from \
             before their pool's key until the controller labels them, and no agent starts while the webhook is away",
            INSTALL,
        ),
        (Mutation::Webhook, Installed::Current) if has_more_pools => {
            Ok(format!("Webhook mode fits: {MORE_POOLS}"))
        }
        (Mutation::Webhook, Installed::Current) => Ok(
            "Webhook mode is set; Policy mode fits as well: the mutating policies of this version are installed".to_owned(),
        ),
        (Mutation::Webhook, Installed::Different(names)) => warn(
            format!(
                "Webhook mode is set, and {} missing or of another version: nodes that Croft doesn't launch may be open \
                 until the controller labels them, and Policy mode would not come into force",
                are(names)
            ),
            INSTALL,
        ),
        (Mutation::Policy, Installed::NotServed) => fail(
            format!("Policy mode is set, and {NOT_SERVED}: the webhook changes pods"),
            "set spec.admission.mutation: Webhook in the CroftConfig, or upgrade the cluster",
        ),
        (Mutation::Policy, Installed::None) => fail(
            "Policy mode is set, and the mutating policies are not installed",
            format!("{INSTALL}; or set spec.admission.mutation: Webhook in the CroftConfig"),
        ),
        (Mutation::Policy, Installed::Different(names)) => fail(
            format!("Policy mode is set, and {} missing or of another version", are(names)),
            format!("{INSTALL}; if croft is older than the installation, use the croft of its version"),
        ),
        (Mutation::Policy, Installed::Current) if has_more_pools => warn(
            MORE_POOLS,
            "set spec.admission.mutation: Webhook in the CroftConfig",
        ),
        (Mutation::Policy, Installed::Current) => {
            Ok("Policy mode is set, and fits: the mutating policies of this version are installed".to_owned())
        }
    }
}

fn are(names: &[String]) -> String {
    format!("{} {}", shortened(names, NAMED), if names.len() == 1 { "is" } else { "are" })
}

async fn installed(client: &Client, namespace: &str) -> kube::Result<Installed> {
    let documents = policies::mutation::documents(namespace);
    let (mut found, mut different) = (0_usize, Vec::new());
    for wanted in &documents {
        let text = |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        match api(client, kind).get_opt(name).await? {
            Some(object) => {
                found += 1;
                let is_current = object.data.get("spec").zip(wanted.get("spec"));
                if !is_current.is_some_and(|(live, wanted)| includes(live, wanted)) {
                    different.push(format!("{kind} {name}"));
                }
            }
            None => different.push(format!("{kind} {name}")),
        }
    }
    Ok(if different.is_empty() {
        Installed::Current
    } else if found > 0 {
        Installed::Different(different)
    } else if is_served(client).await {
        Installed::None
    } else {
        Installed::NotServed
    })
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = match kind {
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
        _ => "mutatingadmissionpolicybindings",
    };
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

async fn is_served(client: &Client) -> bool {
    let resources = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await;
    resources
        .is_ok_and(|list| list.resources.iter().any(|resource| resource.kind == "MutatingAdmissionPolicy"))
}

/// True if `live` has all that `wanted` has. The API server adds defaults, and omits empty lists.
fn includes(live: &Value, wanted: &Value) -> bool {
    const EMPTY: &Value = &Value::Array(Vec::new());
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| includes(live.get(key).unwrap_or(EMPTY), value))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| includes(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::check::report::Status;

    #[test]
    fn defaults_of_the_api_server_are_no_difference_and_another_expression_is() {
        let wanted = json!({"rules": [{"resources": ["pods"]}], "expression": "a"});
        assert!(includes(
            &json!({"rules": [{"resources": ["pods"], "scope": "*"}], "expression": "a", "matchPolicy": "x"}),
            &wanted
        ));
        assert!(!includes(&json!({"rules": [{"resources": ["pods"]}], "expression": "b"}), &wanted));
        assert!(!includes(&json!({"rules": [{"resources": ["pods"]}, {}], "expression": "a"}), &wanted));
        assert!(!includes(&json!({"expression": "a"}), &wanted));
        assert!(includes(&json!({"expression": "a"}), &json!({"expression": "a", "variables": []})));
    }

    #[test]
    fn policy_mode_needs_the_policies_of_this_version_and_pools_that_fit() {
        let different = Installed::Different(vec!["MutatingAdmissionPolicy croft-pods".to_owned()]);
        let said = |mode, more, installed: &Installed| match evaluate(mode, more, installed) {
            Ok(text) => ("ok", text),
            Err(found) => (if found.status == Status::Warn { "warn" } else { "fail" }, found.what),
        };
        let cases = [
            (Mutation::Webhook, false, &Installed::NotServed, "ok", "Webhook mode fits"),
            (Mutation::Webhook, true, &Installed::Current, "ok", "Webhook mode fits: there are more pools"),
            (Mutation::Webhook, false, &Installed::None, "warn", "without the mutating policies nodes"),
            (Mutation::Webhook, false, &Installed::Current, "ok", "Policy mode fits as well"),
            (Mutation::Webhook, false, &different, "warn", "croft-pods is missing or of another version"),
            (Mutation::Policy, false, &Installed::NotServed, "fail", "serves no MutatingAdmissionPolicy"),
            (Mutation::Policy, false, &Installed::None, "fail", "are not installed"),
            (Mutation::Policy, false, &different, "fail", "croft-pods is missing or of another version"),
            (Mutation::Policy, true, &Installed::Current, "warn", "more pools"),
            (Mutation::Policy, false, &Installed::Current, "ok", "Policy mode is set, and fits"),
        ];
        for (mode, more, installed, kind, part) in cases {
            let (found, text) = said(mode, more, installed);
            assert!(found == kind && text.contains(part), "{mode:?} {more} {installed:?}: {found} {text}");
        }
    }
}
