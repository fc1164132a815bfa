//! Does the API server get an answer from the webhook? A dry run shows it: it takes the same way as a pod of a tenant, and
//! nothing is created.

use croft_api::{CroftConfig, Tenant, config::SINGLETON};
use croft_policy::{definitions::INJECTED_ANNOTATION, model};
use croft_runtime::clock::{Clock as _, SystemClock};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Namespace};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use super::report::{Finding, Problem, fail, unknown};
use crate::failure::said;

/// The namespace of a dry run where no tenant has one.
const ANY: &str = "default";
/// The name of what a dry run creates.
const NAME: &str = "croft-check";

/// The webhook answers a review of the API server.
pub(super) async fn check(client: &Client, namespace: &str) -> Finding {
    let found = subject(client, namespace).await;
    let found = found.map_err(|error| Problem::unsaid("failed to list tenants and namespaces", &error))?;
    let Some((owned, subject)) = found else {
        return unknown("there is no Tenant, so that no review is sent to the webhook");
    };
    let object: DaemonSet =
        serde_json::from_value(daemon_set(owned)).map_err(|error| Problem::unknown(error.to_string()))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let start = SystemClock.monotonic();
    let answer = Api::<DaemonSet>::namespaced(client.clone(), &subject).create(&dry, &object).await;
    let took = SystemClock.monotonic().saturating_duration_since(start).as_millis();
    match answer {
        Ok(created) if is_planned(&created) => Ok(format!(
            "the API server got the webhook's answer, in a dry run of {took} ms in namespace {subject}"
        )),
        Ok(_) => unknown(format!(
            "the dry run in namespace {subject} was accepted and changed by nothing, as in the mode Observe"
        )),
        Err(error) => explain(&said(&error), &subject),
    }
}

/// A namespace whose DaemonSets are reviewed, and whether it is a tenant's; `None` without a Tenant.
async fn subject(client: &Client, own: &str) -> kube::Result<Option<(bool, String)>> {
    let all = ListParams::default();
    let tenants = Api::<Tenant>::all(client.clone()).list(&all).await?.items;
    let namespaces = Api::<Namespace>::all(client.clone()).list(&all).await?.items;
    let config = Api::<CroftConfig>::all(client.clone()).get_opt(SINGLETON).await?;
    let exempt = config.map(|config| config.spec.exempt_namespaces).unwrap_or_default();
    let is_usable = |name: &str| {
        let exists =
            |found: &Namespace| found.name_any() == name && found.metadata.deletion_timestamp.is_none();
        name != own
            && !model::BUILT_IN_EXEMPT.contains(&name)
            && !exempt.iter().any(|exempt| exempt == name)
            && namespaces.iter().any(exists)
    };
    if tenants.is_empty() {
        return Ok(None);
    }
    let of_tenants =
        tenants.iter().filter_map(|tenant| tenant.status.as_ref()).flat_map(|status| &status.namespaces);
    let owned = of_tenants.into_iter().find(|name| is_usable(name)).map(|name| (true, name.clone()));
    Ok(owned.or_else(|| is_usable(ANY).then(|| (false, ANY.to_owned()))))
}

/// A DaemonSet that is reviewed: one of a tenant, or one that tolerates every taint.
fn daemon_set(owned: bool) -> Value {
    let tolerations = if owned { json!([]) } else { json!([{"operator": "Exists"}]) };
    json!({
        "metadata": {"name": NAME},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"tolerations": tolerations, "containers": [{"name": "none", "image": NAME}]},
            },
        },
    })
}

fn is_planned(created: &DaemonSet) -> bool {
    let template = created.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    template.is_some_and(|meta| meta.annotations.iter().flatten().any(|(key, _)| key == INJECTED_ANNOTATION))
}

/// The meaning of the API server's refusal for the webhook.
fn explain(message: &str, namespace: &str) -> Finding {
    let failed = message.contains("failed calling webhook \"") && message.contains(".croft.dev\"");
    if !failed {
        // The webhook is called before whatever else refuses.
        return unknown(format!("a dry run in namespace {namespace} was refused: {message}"));
    }
    let any = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let cause = if any(&["x509:", "tls:"]) {
        "its certificate isn't the one that the API server expects: see certs/README.md"
    } else if any(&["no endpoints available", "service \"croft-webhook\" not found"]) {
        "no replica is ready behind the Service: kubectl get pods, endpointslices in Croft's namespace"
    } else if any(&["connection refused"]) {
        "nothing listens on its port: see webhook.ports.reviews, and that the pods run"
    } else if any(&["no route to host", "network is unreachable"]) {
        "the control plane has no way to the pod network, as with a custom CNI: set webhook.hostNetwork \
         (docs/install.md#networks)"
    } else {
        "the control plane's packets to its port (8443) are dropped. On EKS allow it from the cluster's security group to \
         that of the nodes: aws ec2 authorize-security-group-ingress --group-id NODE_GROUP --protocol tcp --port 8443 \
         --source-group CLUSTER_GROUP; check webhook.networkPolicy.apiServers and, with a custom CNI, webhook.hostNetwork \
         (docs/aws.md#from-the-control-plane-to-the-webhook)"
    };
    fail(format!("the webhook doesn't answer the API server: {message}"), cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::report::Status;

    #[test]
    fn failures_of_the_webhook_have_a_remedy_by_their_cause() {
        let call = |why: &str| {
            format!(
                "Internal error occurred: failed calling webhook \"pods.croft.dev\": failed to call webhook: Post \
                 \"https://croft-webhook.croft-system.svc:443/mutate?timeout=3s\": {why}"
            )
        };
        for (why, remedy) in [
            ("context deadline exceeded", "authorize-security-group-ingress"),
            ("dial tcp 10.0.3.7:8443: i/o timeout", "authorize-security-group-ingress"),
            ("dial tcp 10.0.3.7:8443: connect: connection refused", "webhook.ports.reviews"),
            ("dial tcp 10.0.3.7:8443: connect: no route to host", "webhook.hostNetwork"),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                "certs/README.md",
            ),
            ("no endpoints available for service \"croft-webhook\"", "no replica is ready"),
        ] {
            let found = explain(&call(why), "a");
            let Err(failed @ Problem { status: Status::Fail, .. }) = found else { panic!("{found:?}") };
            assert!(failed.what.contains(why) && failed.remedy.contains(remedy), "{failed:?}");
        }
    }

    #[test]
    fn refusals_of_others_say_nothing_about_the_webhook() {
        for message in [
            "daemonsets.apps is forbidden: User \"a\" cannot create resource \"daemonsets\"",
            "failed calling webhook \"other.example\": context deadline exceeded",
        ] {
            assert!(
                matches!(explain(message, "a"), Err(Problem { status: Status::Unknown, .. })),
                "{message}"
            );
        }
    }

    #[test]
    fn dry_run_is_a_valid_daemon_set() {
        for owned in [true, false] {
            serde_json::from_value::<DaemonSet>(daemon_set(owned)).unwrap();
        }
    }
}
