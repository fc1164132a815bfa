//! The switch that stops enforcement: whether a binding gives it away, on purpose or not.

use croft_policy::policies::{BREAK_GLASS_SUBJECT, BREAK_GLASS_VERB};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::{Api, Client, api::PostParams};

use super::report::{Finding, fail, unknown};
use crate::failure::said;

/// Name of the binding of `croft break-glass on`.
const SWITCH: &str = "ClusterRoleBinding \"croft-break-glass\"";

/// The ServiceAccount of `croft break-glass` lacks its verb. A broad binding may give it as well, such as one of every
/// ServiceAccount with `*` among the verbs.
pub(super) async fn check(client: &Client) -> Finding {
    match Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review()).await {
        Ok(review) => evaluate(&review.status.unwrap_or_default()),
        Err(error) => unknown(format!(
            "failed to ask who may stop enforcement: {}; this takes create on subjectaccessreviews",
            said(&error)
        )),
    }
}

/// The policies ask for the same user.
fn review() -> SubjectAccessReview {
    let (namespace, name) = BREAK_GLASS_SUBJECT;
    let groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some("croft.dev".to_owned()),
                resource: Some("croftconfigs".to_owned()),
                name: Some("default".to_owned()),
                verb: Some(BREAK_GLASS_VERB.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn evaluate(status: &SubjectAccessReviewStatus) -> Finding {
    if !status.allowed {
        return Ok("enforcement is on".to_owned());
    }
    let why = status.reason.as_deref().unwrap_or_default();
    if why.contains(SWITCH) {
        return fail(
            format!("enforcement is stopped by croft break-glass on: {why}"),
            "once its cause is mended, start it again: croft break-glass off",
        );
    }
    fail(
        format!(
            "enforcement is stopped, and not by croft break-glass: {why}. That binding gives the verb {BREAK_GLASS_VERB} on \
             croftconfigs.croft.dev to ServiceAccounts that it doesn't name"
        ),
        "bind the role to the ServiceAccounts that need it, or write its verbs, resources and apiGroups out instead of '*'; then \
         see croft audit for what was created meanwhile",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::Status;

    #[test]
    fn a_broad_binding_that_stops_enforcement_is_told_from_the_switch() {
        let evaluated = |allowed: bool, reason: &str| {
            let reason = Some(reason.to_owned());
            evaluate(&SubjectAccessReviewStatus { allowed, reason, ..SubjectAccessReviewStatus::default() })
        };
        assert_eq!(evaluated(false, ""), Ok("enforcement is on".to_owned()));
        let switch =
            "RBAC: allowed by ClusterRoleBinding \"croft-break-glass\" of ClusterRole \"croft-break-glass\"";
        let broad = "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"all\" to Group \"system:serviceaccounts\"";
        for (reason, remedy) in [(switch, "croft break-glass off"), (broad, "instead of '*'")] {
            let failed = evaluated(true, reason).unwrap_err();
            assert_eq!(failed.status, Status::Fail);
            assert!(failed.what.contains(reason) && failed.remedy.contains(remedy), "{failed:?}");
        }
    }
}
