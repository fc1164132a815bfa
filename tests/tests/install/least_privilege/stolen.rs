//! A stolen token of the controller or the webhook, as the API server issues them: each attack is denied, and Croft's
//! own writes of the same fields are allowed.

use clap::Parser as _;
use croft_policy::{Mutation, Provisioner, definitions::POOL_NAME_LABEL, taint::Effects};
use croft_testkit::{
    ControlPlane, Croft, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{self, SOON},
    manifests::daemon_set,
};
use http::{Method, header::CONTENT_TYPE};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, Config, api::PostParams, config::AuthInfo};
use serde::Deserialize;
use serde_json::{Value, json};

const NAMESPACE: &str = "croft-system";
/// The beginning of a denial by a policy of Croft.
const POLICY: &str = "ValidatingAdmissionPolicy 'croft-";
/// The beginning of a denial by RBAC.
const RBAC: &str = "is forbidden: User \"system:serviceaccount:croft-system:croft-";

/// In a denial by Croft's webhook of a role that no Tenant declares.
const UNDECLARED: &str = "admission webhook \"owners.croft.dev\" denied the request";
/// In a denial of a binding whose role the writer may not bind.
const ESCALATION: &str = "is attempting to grant RBAC permissions not currently held";

/// One request of tests/fixtures/stolen.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attack {
    what: String,
    verb: String,
    path: String,
    #[serde(default)]
    body: Value,
    refused_by: By,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Policy,
    Rbac,
    /// The API server's check of the user who writes a binding.
    Escalation,
    /// The webhook, which knows the Tenants. It says that another try may succeed, since its knowledge may lag.
    Webhook,
    Nothing,
}

/// The state before a token is stolen.
fn cluster() -> Vec<Value> {
    let node = |name: &str, labels: Value, taints: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints}})
    };
    let daemonset =
        |namespace| daemon_set(namespace, "agent", json!({"containers": [{"name": "c", "image": "good"}]}));
    // As an earlier version may have left it.
    let mut planned = daemonset("kube-system");
    planned["metadata"]["name"] = json!("planned");
    planned["spec"]["template"]["metadata"]["annotations"] = json!({"croft.dev/injected": "{}"});
    planned["spec"]["template"]["spec"]["nodeSelector"] = json!({"node-pool": "pool-a"});
    let pool_taint = json!([{"key": POOL_NAME_LABEL, "value": "pool-a", "effect": "NoSchedule"}]);
    let new_taint = json!([{"key": "croft.dev/unregistered", "effect": "NoExecute"}]);
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain",
            "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "plain"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "outside"}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "own", "namespace": "fresh"}, "spec": {"podSelector": {}}}),
        node("master", json!({"node-role.kubernetes.io/control-plane": ""}), json!([])),
        node("worker", json!({"eks.amazonaws.com/nodegroup": "own"}), json!([])),
        node("pools", json!({POOL_NAME_LABEL: "pool-a"}), pool_taint),
        node("fresh", json!({"kubernetes.io/os": "linux"}), new_taint),
        daemonset("kube-system"),
        daemonset("plain"),
        planned,
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "pool-a"},
            "spec": {"provisioner": "None"}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "a"},
            "spec": tenant()}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": NAMESPACE},
            "stringData": {"password": "hidden"}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "croft-controller", "namespace": NAMESPACE}, "spec": {"holderIdentity": "leader"}}),
    ]
}

/// A Tenant whose owners have roles, and may create namespaces. One of them is the controller itself.
fn tenant() -> Value {
    json!({"namespaces": ["tenant-a", "fresh"], "pools": ["pool-a"],
    "namespaceCreation": {"prefix": "a-", "maximum": 1},
    "owners": [
        {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "team", "clusterRoles": ["view"]},
        {"kind": "ServiceAccount", "name": "ci", "namespace": "build", "clusterRoles": ["edit"]},
        {"kind": "ServiceAccount", "name": "croft-controller", "namespace": NAMESPACE},
    ]})
}

struct Lab {
    plane: ControlPlane,
    _croft: Croft,
    controller: Client,
    webhook: Client,
}

async fn lab() -> Lab {
    let (plane, mut croft) = arena::quiet().await.unwrap();
    croft.resume(&plane, Part::Webhook).await.unwrap();
    let manifests: Vec<String> = cluster().iter().map(Value::to_string).collect();
    plane.apply(&manifests.join("\n---\n")).await.unwrap();
    let client = async |name| with_token(&plane, plane.token_for(NAMESPACE, name, None).await.unwrap()).await;
    let (controller, webhook) = (client("croft-controller").await, client("croft-webhook").await);
    let pod = arena::pod("plain", "waiting", json!({}));
    let admin = plane.admin().await.unwrap();
    until("a pod to be admitted", SOON, async || {
        let answer = arena::create(&admin, &pod, false).await?;
        anyhow::Ok(Seen::from_option(answer.is_done().then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
    // Policies take effect a moment after they are written.
    let probe = json!({"metadata": {"labels": {"probe": "x"}}});
    let path = "/api/v1/nodes/worker?dryRun=All";
    until("the policies to be in force", SOON, async || {
        let said = send(&controller, Method::PATCH, path, &probe).await.err().unwrap_or_default();
        anyhow::Ok(Seen::from_option(said.contains(POLICY).then_some(()), said))
    })
    .await
    .unwrap();
    Lab { plane, _croft: croft, controller, webhook }
}

/// The API server's answer, or its denial.
async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, String> {
    let kind = match (&method, body) {
        (&Method::PATCH, Value::Array(_)) => "application/json-patch+json",
        (&Method::PATCH, _) => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind).body(bytes);
    match client.request::<Value>(request.unwrap()).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Makes every request of a fixture, and fails with every unexpected answer.
async fn attack(client: &Client, fixture: &str) {
    let attacks: Vec<Attack> = serde_saphyr::from_str(fixture).unwrap();
    let mut wrong = Vec::new();
    for Attack { what, verb, path, body, refused_by } in attacks {
        let answer = send(client, verb.parse().unwrap(), &path, &body).await;
        let word = match refused_by {
            By::Policy => Some(POLICY),
            By::Rbac => Some(RBAC),
            By::Escalation => Some(ESCALATION),
            By::Webhook => Some(UNDECLARED),
            By::Nothing => None,
        };
        let code = if matches!(refused_by, By::Webhook) { "503 " } else { "403 " };
        match (word, answer) {
            (None, Ok(_)) => {}
            (None, Err(said)) => wrong.push(format!("{what}: refused: {said}")),
            (Some(_), Ok(_)) => wrong.push(format!("{what}: allowed")),
            (Some(word), Err(said)) if said.starts_with(code) && said.contains(word) => {}
            (Some(word), Err(said)) => wrong.push(format!("{what}: not by {word}: {said}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn stolen_tokens_write_only_what_croft_manages() {
    let lab = lab().await;
    leave_outside(&lab).await;
    attack(&lab.controller, include_str!("../../../fixtures/stolen/controller.yaml")).await;
    asked_about_owners(&lab.controller).await;
    attack(&lab.controller, ROLES).await;
    configurations(&lab).await;
    attack(&lab.webhook, include_str!("../../../fixtures/stolen/webhook.yaml")).await;
    attack(&bound(&lab).await, include_str!("../../../fixtures/stolen/pod.yaml")).await;
    in_policy_mode(&lab).await;
    attack(&lab.controller, ROLES).await;
}

/// Roles that a stolen token of the controller gives, and those that the controller itself gives.
const ROLES: &str = include_str!("../../../fixtures/stolen/roles.yaml");

/// Waits until the webhook is asked about the controller's bindings, and knows the Tenant.
async fn asked_about_owners(controller: &Client) {
    let binding = |subject: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "croft-tenant-owners-admin", "labels": {"croft.dev/tenant": "a"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "User", "name": subject, "apiGroup": "rbac.authorization.k8s.io"}]})
    };
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/fresh/rolebindings?dryRun=All";
    until("the webhook's answers about owners", SOON, async || {
        let refused = send(controller, Method::POST, path, &binding("eve")).await.err().unwrap_or_default();
        let allowed = send(controller, Method::POST, path, &binding("jane")).await;
        let done = refused.contains(UNDECLARED) && allowed.is_ok();
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{refused}; {allowed:?}")))
    })
    .await
    .unwrap();
}

/// In Policy mode the webhook is asked about the controller's bindings as well.
async fn in_policy_mode(lab: &Lab) {
    let rules = arena::rules(
        &[arena::tenant("a", &["tenant-a", "fresh"], &["pool-a"])],
        &[arena::pool("pool-a", POOL_NAME_LABEL, "pool-a", Effects::default(), Provisioner::None)],
    );
    arena::mark_for(&lab.plane, &rules, &[], Mutation::Policy).await.unwrap();
    lab.plane.apply(&arena::settings(Mutation::Policy)).await.unwrap();
    arena::in_mode(&lab.plane.admin().await.unwrap(), Mutation::Policy).await.unwrap();
}

/// Marks the namespace `outside` as belonging to no tenant, as the controller does, and waits until policies see that.
async fn leave_outside(lab: &Lab) {
    let label = json!({"metadata": {"labels": {"croft.dev/tenancy": "none"}}});
    send(&lab.controller, Method::PATCH, "/api/v1/namespaces/outside", &label).await.unwrap();
    let path = "/apis/networking.k8s.io/v1/namespaces/outside/networkpolicies?dryRun=All";
    let own = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}},
        "metadata": {"name": "croft-tenant-network", "labels": {"croft.dev/tenant": "a"}}});
    until("a namespace that is known to be outside", SOON, async || {
        let said = send(&lab.controller, Method::POST, path, &own).await.err().unwrap_or_default();
        anyhow::Ok(Seen::from_option(said.contains("belongs to no tenant").then_some(()), said))
    })
    .await
    .unwrap();
}

/// API path of one of the webhook's configurations.
fn path(kind: &str) -> String {
    let args = croft_webhook::args::Args::parse_from(["croft-webhook"]).registration;
    let name = args.mutating_configuration.first().expect("a default");
    format!("/apis/admissionregistration.k8s.io/v1/{kind}/{name}")
}

/// A change of one of the webhook's configurations by a full update.
async fn rewrite(lab: &Lab, kind: &str, change: impl Fn(&mut Value)) -> Result<Value, String> {
    let path = path(kind);
    for _ in 0..20 {
        let mut found = send(&lab.webhook, Method::GET, &path, &Value::Null).await?;
        change(&mut found);
        match send(&lab.webhook, Method::PUT, &path, &found).await {
            // The webhook itself wrote in between.
            Err(said) if said.starts_with("409 ") => {}
            other => return other,
        }
    }
    Err("a conflict, again and again".to_owned())
}

/// The verbs that the webhook's token has with its own configurations.
async fn configurations(lab: &Lab) {
    const MUTATING: &str = "mutatingwebhookconfigurations";
    const VALIDATING: &str = "validatingwebhookconfigurations";
    let secrets =
        || json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]});
    let refused = |what: &str, answer: Result<Value, String>| {
        let said = answer.err().unwrap_or_else(|| panic!("{what} is allowed"));
        assert!(said.starts_with("403 ") && said.contains(POLICY), "{what}: {said}");
    };
    until("the webhook to fill its configurations", SOON, async || {
        let mut filled = 0;
        for kind in [MUTATING, VALIDATING] {
            let found = send(&lab.webhook, Method::GET, &path(kind), &Value::Null).await.unwrap_or_default();
            filled += usize::from(found.pointer("/webhooks/0").is_some());
        }
        anyhow::Ok(Seen::from_option((filled == 2).then_some(()), format!("{filled} of 2 are filled")))
    })
    .await
    .unwrap();
    for kind in [MUTATING, VALIDATING] {
        let widened = rewrite(lab, kind, |found| {
            found["webhooks"][0]["rules"].as_array_mut().unwrap().push(secrets());
        });
        refused("a rule about Secrets", widened.await);
        let mine = rewrite(lab, kind, |found| {
            let mut own = found["webhooks"][0].clone();
            own["name"] = json!("own.example.org");
            own["rules"] = json!([secrets()]);
            found["webhooks"].as_array_mut().unwrap().push(own);
        });
        refused("one more webhook", mine.await);
        refused(
            "no answer needed",
            rewrite(lab, kind, |f| f["webhooks"][0]["failurePolicy"] = json!("Ignore")).await,
        );
        refused(
            "a webhook less",
            rewrite(lab, kind, |f| drop(f["webhooks"].as_array_mut().unwrap().remove(0))).await,
        );
        refused("a label", rewrite(lab, kind, |f| f["metadata"]["labels"]["x"] = json!("y")).await);
        let trusted = rewrite(lab, kind, |found| {
            let bundle = found["webhooks"][0]["clientConfig"]["caBundle"].clone();
            for hook in found["webhooks"].as_array_mut().unwrap() {
                hook["clientConfig"]["caBundle"] = bundle.clone();
                hook["timeoutSeconds"] = hook["timeoutSeconds"].clone();
            }
        });
        trusted.await.unwrap();
    }
}

/// A client with the token of one of the webhook's pods.
async fn bound(lab: &Lab) -> Client {
    let admin = lab.plane.admin().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
    let pod = json!({"metadata": {"name": "croft-webhook-1"}, "spec": {"serviceAccountName": "croft-webhook",
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "c", "securityContext":
            {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, NAMESPACE);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name,
                uid: pod.metadata.uid,
            }),
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let issued =
        accounts.create_token_request("croft-webhook", &PostParams::default(), &request).await.unwrap();
    with_token(&lab.plane, issued.status.unwrap().token.unwrap()).await
}

/// A client that shows the first answer: the library would ask again for minutes where one says that it may succeed then.
async fn with_token(plane: &ControlPlane, token: String) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(plane.admin_kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    config.default_retry = false;
    Client::try_from(config).unwrap()
}
