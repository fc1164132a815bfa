//! The ValidatingAdmissionPolicies.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};

use super::report::{Finding, Problem, fail};
use crate::table::counted;

/// Every policy exists, compiles, and is bound with the action Deny.
pub(super) async fn check(client: &Client) -> Finding {
    let api: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let remedy = "install them again: kubectl apply -f manifests/install/policies.yaml";
    let names = croft_policy::policies::names();
    for name in &names {
        let unread = |what: &'static str| {
            move |error| Problem::unread(&format!("failed to read the {what} {name}"), &error)
        };
        let Some(policy) = api.get_opt(name).await.map_err(unread("policy"))? else {
            return fail(format!("the policy {name} doesn't exist"), remedy);
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
        let Some(binding) = bindings.get_opt(name).await.map_err(unread("binding"))? else {
            return fail(format!("the policy {name} isn't bound"), remedy);
        };
        if !binding.spec.validation_actions.iter().any(|action| action == "Deny") {
            return fail(format!("the binding {name} denies nothing"), remedy);
        }
    }
    let in_force = counted(names.len(), "policy").replace("policys", "policies");
    Ok(format!("{in_force} in force"))
}
