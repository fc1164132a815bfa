//! The ValidatingAdmissionPolicies.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};

use super::report::{Finding, fail};
use crate::{failure::said, table::counted};

/// Every policy exists, compiles, and is bound with the action Deny.
pub(super) async fn check(client: &Client) -> Finding {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let remedy = "install them again: kubectl apply -f manifests/install/policies.yaml";
    let names = croft_policy::policies::names();
    for name in &names {
        let policy = match api.get_opt(name).await {
            Ok(Some(policy)) => policy,
            Ok(None) => return fail(format!("the policy {name} doesn't exist"), remedy),
            Err(error) => {
                return fail(
                    format!("failed to read the policy {name}: {}", said(&error)),
                    "ask for the ClusterRole croft-view",
                );
            }
        };
        let odd: Vec<String> = policy
            .status
            .iter()
            .filter_map(|s| s.type_checking.as_ref())
            .flat_map(|t| t.expression_warnings.iter().flatten())
            .map(|w| w.warning.clone())
            .collect();
        if let Some(warning) = odd.first() {
            return fail(format!("the API server warns about {name}: {warning}"), remedy);
        }
        match bindings.get_opt(name).await {
            Ok(Some(binding)) => {
                let actions = binding.spec.validation_actions;
                if !actions.iter().any(|a| a == "Deny") {
                    return fail(format!("the binding {name} denies nothing"), remedy);
                }
            }
            Ok(None) => return fail(format!("the policy {name} isn't bound"), remedy),
            Err(error) => {
                return fail(
                    format!("failed to read the binding {name}: {}", said(&error)),
                    "ask for the ClusterRole croft-view",
                );
            }
        }
    }
    let in_force = counted(names.len(), "policy").replace("policys", "policies");
    Ok(format!("{in_force} in force"))
}
