//! PodDisruptionBudgets.

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString};

use super::{metadata::FieldErrors, pod};

/// Numbers, shares and selector of a budget: a wrong one would guard nothing, or everything
/// (`pkg/apis/policy/validation/validation.go`).
pub(crate) fn budget(budget: &PodDisruptionBudget, errors: &mut FieldErrors) {
    let Some(spec) = &budget.spec else { return };
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        let message = "a budget has minAvailable or maxUnavailable: write one of them";
        errors.push(("spec.maxUnavailable".to_owned(), message.to_owned()));
    }
    for (field, value) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
        if let Some(message) = value.as_ref().and_then(wrong_number) {
            errors.push((format!("spec.{field}"), message));
        }
    }
    let policy = spec.unhealthy_pod_eviction_policy.as_deref();
    if let Some(policy) = policy.filter(|policy| !matches!(*policy, "IfHealthyBudget" | "AlwaysAllow")) {
        let message = format!("{policy:?} is no policy; write IfHealthyBudget or AlwaysAllow");
        errors.push(("spec.unhealthyPodEvictionPolicy".to_owned(), message));
    }
    pod::selector("spec.selector", spec.selector.as_ref(), errors);
}

/// Why the API server refuses a number or share of pods.
fn wrong_number(value: &IntOrString) -> Option<String> {
    match value {
        IntOrString::Int(number) => (*number < 0).then(|| format!("{number} is below zero")),
        IntOrString::String(text) => {
            let share = text.strip_suffix('%').and_then(|share| share.parse::<u32>().ok());
            match share {
                Some(share) => (share > 100).then(|| format!("{text} is more than 100%")),
                None => Some(format!("{text:?} is no share; write a number, or a share such as 30%")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{LoadOptions, parse};

    #[test]
    fn budgets_that_the_api_server_refuses_are_refused() {
        for (spec, expected) in [
            ("minAvailable: 1", None),
            ("maxUnavailable: 0", None),
            ("minAvailable: 100%", None),
            ("selector: {}, unhealthyPodEvictionPolicy: AlwaysAllow", None),
            ("minAvailable: 1, maxUnavailable: 1", Some("spec.maxUnavailable: a budget has")),
            ("minAvailable: -1", Some("spec.minAvailable: -1 is below zero")),
            ("maxUnavailable: 150%", Some("spec.maxUnavailable: 150% is more than 100%")),
            ("minAvailable: '2'", Some("is no share; write a number")),
            ("unhealthyPodEvictionPolicy: Always", Some("write IfHealthyBudget or AlwaysAllow")),
            ("selector: {matchExpressions: [{key: a, operator: Is}]}", Some("spec.selector")),
        ] {
            let text = format!(
                "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: a}}, spec: {{{spec}}}}}"
            );
            let said =
                parse("budget.yaml", &text, &LoadOptions::default()).err().map(|error| error.to_string());
            let is_expected = match expected {
                Some(part) => said.as_ref().is_some_and(|said| said.contains(part)),
                None => said.is_none(),
            };
            assert!(is_expected, "{spec}: {said:?}");
        }
    }
}
