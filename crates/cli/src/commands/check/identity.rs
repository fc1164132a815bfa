//! The AWS role of the controller's ServiceAccount: by IRSA, an annotation, or by EKS Pod Identity, an association.

use super::{
    installed::{CONTROLLER, Installed},
    report::{Finding, fail, unknown, warn},
};

/// The variable that each of the two writes into the controller's pods when they are created.
const OF_IRSA: &str = "AWS_ROLE_ARN";
const OF_POD_IDENTITY: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
/// The variable of an access key, which needs neither.
const OF_KEY: &str = "AWS_ACCESS_KEY_ID";

/// The controller has a role. `association` is the role of Pod Identity, or why it isn't known.
pub(super) fn check(
    installed: &Installed,
    namespace: &str,
    association: &Result<Option<String>, String>,
) -> Finding {
    let restart = format!("kubectl -n {namespace} rollout restart deploy/{CONTROLLER}");
    let without = |variable: &str| installed.pods_have(variable) == Some(false);
    match (&installed.role, association) {
        (Some(role), _) if without(OF_IRSA) => fail(
            format!("IRSA gives the ServiceAccount {CONTROLLER} {role}, and its pods are older than that"),
            format!("{restart}; if they still lack {OF_IRSA}, the cluster has no webhook of Pod Identity"),
        ),
        (Some(role), Ok(Some(other))) if role != other => warn(
            format!("IRSA gives the controller {role}, and Pod Identity {other}: that of IRSA is used"),
            "remove the annotation eks.amazonaws.com/role-arn (controller.serviceAccount.annotations), or the association",
        ),
        (Some(role), _) => Ok(format!("{role}, by IRSA")),
        (None, Ok(Some(role))) if without(OF_POD_IDENTITY) => fail(
            format!("Pod Identity gives the controller {role}, and its pods have no credentials of it"),
            format!(
                "{restart}; if that doesn't help, install the agent: aws eks create-addon --addon-name eks-pod-identity-agent. \
                 On Fargate there is no agent: use IRSA"
            ),
        ),
        (None, Ok(Some(role))) => Ok(format!("{role}, by Pod Identity")),
        (None, _) if installed.setting(OF_KEY).is_some() => {
            Ok("the controller has an access key in its environment".to_owned())
        }
        (None, Ok(None)) => warn(
            format!(
                "no Pod Identity association and no IRSA gives the ServiceAccount {namespace}/{CONTROLLER} a role: the controller \
                 has what its node has"
            ),
            "deploy manifests/aws/croft.yaml, or associate a role: aws eks create-pod-identity-association \
             (docs/aws.md#the-stack)",
        ),
        (None, Err(why)) if installed.pods_have(OF_POD_IDENTITY) == Some(true) => Ok(format!(
            "the controller's pods have the credentials of Pod Identity; of which role isn't known: {why}"
        )),
        (None, Err(why)) => unknown(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::check::report::{Problem, Status};

    fn installed(role: Option<&str>, variables: Option<&[&str]>) -> Installed {
        let pods = variables.map(|names| {
            let env: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            serde_json::from_value(json!({
                "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": CONTROLLER}},
                "spec": {"containers": [{"name": "controller", "env": env}]},
            }))
            .unwrap()
        });
        Installed { role: role.map(str::to_owned), pods: pods.into_iter().collect(), ..Installed::default() }
    }

    fn found(
        role: Option<&str>,
        variables: Option<&[&str]>,
        association: Result<Option<&str>, &str>,
    ) -> Finding {
        let association = association.map(|role| role.map(str::to_owned)).map_err(str::to_owned);
        check(&installed(role, variables), "croft-system", &association)
    }

    #[test]
    fn role_of_either_kind_is_named() {
        for outcome in [
            found(Some("r"), Some(&[OF_IRSA]), Ok(None)),
            found(None, Some(&[OF_POD_IDENTITY]), Ok(Some("r"))),
            found(None, None, Ok(Some("r"))),
        ] {
            assert!(matches!(&outcome, Ok(text) if text.starts_with("r, by ")), "{outcome:?}");
        }
    }

    #[test]
    fn pods_older_than_their_role_are_to_be_restarted() {
        for outcome in [found(Some("r"), Some(&[]), Ok(None)), found(None, Some(&[]), Ok(Some("r")))] {
            assert!(
                matches!(&outcome, Err(f) if f.status == Status::Fail && f.remedy.contains("rollout restart deploy/croft-controller")),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn no_role_and_two_roles_are_a_warning() {
        assert!(matches!(found(None, None, Ok(None)), Err(Problem { status: Status::Warn, .. })));
        assert!(matches!(found(Some("r"), None, Ok(Some("s"))), Err(Problem { status: Status::Warn, .. })));
    }

    #[test]
    fn unread_association_is_unknown_unless_the_pods_show_it() {
        assert_eq!(found(None, None, Err("no right")), unknown("no right"));
        let outcome = found(None, Some(&[OF_POD_IDENTITY]), Err("no right"));
        assert!(matches!(&outcome, Ok(text) if text.contains("no right")), "{outcome:?}");
    }
}
