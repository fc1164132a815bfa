//! The differences between the modes that `docs/concepts/admission.md` lists: each is there, and none but these is listed.

use std::{fs, path::Path};

use croft_policy::{
    Index, Namespace, NamespaceCreation, NonTenantPods, Tenant, Tenants,
    definitions::{POOLS_ANNOTATION, SURPLUS_ANNOTATION},
    taint::Effect,
};
use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use croft_tests::arena::{self, Answer, create};
use k8s_openapi::api::core::v1::Namespace as StoredNamespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};

use super::{
    PLAIN, UNMARKED,
    answers::{Asked, Wanted, expected},
    config, in_policy_mode, owned_namespaces, world,
};

/// The first column of the list, in its order: each row has a function below.
const DOCUMENTED: [&str; 6] = [
    "a non-tenant pod that tolerates a pool's key by `Lt` or `Gt`",
    "a non-tenant pod that tolerates or selects a pool's key, with more than 24 KiB of pools (about 600)",
    "a pod of a namespace that a Tenant claims, before its annotation is written",
    "a pod whose terms, tolerations and pools cost more than the API server's limit for CEL",
    "a pod of a namespace whose Tenant can't be read",
    "a pod that is allowed with a warning",
];
/// Pools that are less than the policies hold, and cost more than CEL allows with as many tolerations.
const SOME_POOLS: usize = 400;
/// Pools that are more than the policies hold.
const TOO_MANY_POOLS: usize = 900;
const TOLERATIONS: usize = 800;
/// A part of the message of the policies on final pods.
const NOT_KEPT_OUT: &str = "tolerates the taints of tenants' pools";

#[test]
fn every_documented_difference_is_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/concepts/admission.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, list) = page.split_once("These answers differ from the webhook's:").unwrap();
    let rows =
        list.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.skip(2).map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    assert_eq!(rows, DOCUMENTED);
}

/// A pod without a token, so that it needs no ServiceAccount's Secret.
fn pod(namespace: &str, spec: Value) -> Value {
    let mut pod = arena::pod(namespace, "different", spec);
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    pod
}

fn tolerating(toleration: Value) -> Value {
    json!({"tolerations": [toleration]})
}

/// The answers of the policy crate and of the policies to a creation.
async fn answers(admin: &Client, tenants: &Tenants, pod: &Value) -> (Result<Wanted, String>, Answer) {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let wanted = expected(tenants, Asked::creation(namespace, pod));
    (wanted, create(admin, pod, true).await.unwrap())
}

/// Fails unless the policy crate allows the pod, and the policies refuse it with one of these parts of a message. The API server
/// shows the message of whichever policy refuses first.
async fn refused_by_policies_alone(admin: &Client, tenants: &Tenants, pod: &Value, parts: &[&str]) {
    let (wanted, found) = answers(admin, tenants, pod).await;
    assert!(wanted.is_ok(), "{pod}: {wanted:?}");
    let said = found.sentence();
    let is_one_of_these = parts.iter().any(|part| said.contains(part));
    let start: String = said.chars().take(2_000).collect();
    assert!(!found.is_done() && is_one_of_these, "{parts:?}: {start}");
}

/// The world with more pools of one key.
fn with_pools(count: usize) -> Tenants {
    let more = (0..count).map(|n| {
        let name = format!("more-{n:03}");
        world::pool(&name, "node-pool", &name, &[Effect::NoSchedule])
    });
    let pools = world::pools().into_iter().chain(more).collect();
    Tenants::offline(config(NonTenantPods::KeepOut), world::tenants(), pools, Vec::new(), Vec::new())
}

async fn compared_by_number(admin: &Client, tenants: &Tenants) {
    for operator in ["Lt", "Gt"] {
        let spec = tolerating(json!({"key": "node-pool", "operator": operator, "value": "7"}));
        let plain = create(admin, &pod(PLAIN, spec.clone()), true).await.unwrap();
        assert!(plain.is_done(), "the gate of the operator is open: {}", plain.sentence());
        let pod = pod("non-tenant", spec);
        refused_by_policies_alone(
            admin,
            tenants,
            &pod,
            &["compares a number with the taint of a pool", NOT_KEPT_OUT],
        )
        .await;
    }
}

async fn more_pools(plane: &ControlPlane, admin: &Client) {
    let tenants = with_pools(TOO_MANY_POOLS);
    in_policy_mode(plane, admin, &tenants, &owned_namespaces()).await;
    let spec = tolerating(json!({"key": "node-pool", "operator": "Equal", "value": "pool-b"}));
    let parts = ["there are more pools than the admission policies hold", NOT_KEPT_OUT];
    refused_by_policies_alone(admin, &tenants, &pod("non-tenant", spec), &parts).await;
    let (wanted, found) = answers(admin, &tenants, &pod("non-tenant", json!({}))).await;
    assert!(wanted.is_ok() && found.is_done(), "a pod without either is no different: {}", found.sentence());
}

async fn costly(plane: &ControlPlane, admin: &Client) {
    let tenants = with_pools(SOME_POOLS);
    in_policy_mode(plane, admin, &tenants, &owned_namespaces()).await;
    let many: Vec<Value> =
        (0..TOLERATIONS).map(|n| json!({"key": format!("zone-{n}"), "operator": "Exists"})).collect();
    let costly = pod("non-tenant", json!({"tolerations": many}));
    refused_by_policies_alone(admin, &tenants, &costly, &["cost"]).await;
    let cheap = pod("non-tenant", json!({"tolerations": &many[..10]}));
    let (wanted, found) = answers(admin, &tenants, &cheap).await;
    assert!(wanted.is_ok() && found.is_done(), "few tolerations are no different: {}", found.sentence());
}

/// Before the annotation the pods are refused, with 403, which no client retries; afterwards they are pinned. Of a surplus
/// namespace the controller's annotation says why, in the sentence of the webhook.
async fn unmarked(plane: &ControlPlane, admin: &Client, tenants: &Tenants) {
    let pod = pod(UNMARKED, json!({}));
    refused_by_policies_alone(admin, tenants, &pod, &["its pools are not written on it yet"]).await;
    let Answer::Refused(status) = create(admin, &pod, true).await.unwrap() else { panic!("it is refused") };
    assert_eq!(status.code, 403);

    let of_created = surplus_world();
    let why = of_created.surplus(UNMARKED).unwrap().annotation();
    let controller =
        plane.client_for(&tenants.declarations().controller_user(), &["system:masters"]).await.unwrap();
    let annotate = async |annotations: Value| {
        let namespaces: Api<StoredNamespace> = Api::all(controller.clone());
        let patch = json!({"metadata": {"annotations": annotations}});
        namespaces.patch(UNMARKED, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    annotate(json!({SURPLUS_ANNOTATION: why})).await;
    let sentence = expected(&of_created, Asked::creation(UNMARKED, &pod)).unwrap_err();
    arena::enforced(admin, &pod, &sentence).await.unwrap();

    annotate(json!({SURPLUS_ANNOTATION: null, POOLS_ANNOTATION: "node-pool=pool-b:NoSchedule:pool-b"})).await;
    until("the pod of a marked namespace", arena::SOON, async || {
        let found = create(admin, &pod, true).await?;
        anyhow::Ok(Seen::from_option(found.is_done().then_some(()), found.sentence()))
    })
    .await
    .unwrap();
    let (wanted, found) = answers(admin, tenants, &pod).await;
    let pinned = wanted.unwrap().object["spec"]["nodeSelector"].clone();
    assert!(found.sentence().contains(&format!("\"nodeSelector\":{pinned}")), "{}", found.sentence());
}

/// The unmarked namespace as the second one that owners created, of one that may be.
fn surplus_world() -> Tenants {
    let mut index = Index::offline();
    let creation = NamespaceCreation { prefix: "label".to_owned(), maximum: 1 };
    index.upsert_tenant(Tenant {
        creation: Some(creation),
        needs_objects: true,
        ..world::tenant("bolt", &[], &["pool-b"])
    });
    index.upsert_namespace(&world::namespace(UNMARKED, None));
    let mut first = world::namespace("label-0", None);
    first.annotations.insert(POOLS_ANNOTATION.to_owned(), "-".to_owned());
    index.upsert_namespace(&first);
    index.snapshot()
}

/// The annotation stays as it was last written, and the policies pin by it.
async fn unreadable(admin: &Client) {
    let tenant = Tenant { unreadable_claims: true, ..world::tenant("acme", &[], &[]) };
    let annotations = [(POOLS_ANNOTATION.to_owned(), "-".to_owned())].into();
    let namespace = Namespace { annotations, ..world::namespace("tenant-a", None) };
    let tenants =
        Tenants::offline(config(NonTenantPods::KeepOut), vec![tenant], vec![], vec![namespace], vec![]);
    let (wanted, found) = answers(admin, &tenants, &pod("tenant-a", json!({}))).await;
    assert!(
        wanted.as_ref().is_err_and(|why| why.contains("the claims of a Tenant can't be read")),
        "{wanted:?}"
    );
    assert!(found.sentence().contains(r#""nodeSelector":{"node-pool":"pool-a"}"#), "{}", found.sentence());
}

async fn warned(admin: &Client, tenants: &Tenants) {
    let terms = json!([{"matchExpressions": [{"key": "node-pool", "operator": "In", "values": ["pool-b"]}]}]);
    let spec = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let pod = pod("tenant-a", spec);
    let wanted = expected(tenants, Asked::creation("tenant-a", &pod)).unwrap();
    assert!(
        wanted.warnings.iter().any(|warning| warning.contains("no required term can hold")),
        "{wanted:?}"
    );
    let request = http::Request::post("/api/v1/namespaces/tenant-a/pods?dryRun=All")
        .header("content-type", "application/json")
        .body(Body::from(serde_json::to_vec(&pod).unwrap()))
        .unwrap();
    let response = admin.send(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert!(
        warnings.iter().all(|w| !w.to_str().unwrap_or_default().contains("required term")),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn each_documented_difference_is_there() {
    let (plane, admin) = super::start_with_comparisons().await;
    let tenants = world::world(config(NonTenantPods::KeepOut));
    in_policy_mode(&plane, &admin, &tenants, &owned_namespaces()).await;
    compared_by_number(&admin, &tenants).await;
    unmarked(&plane, &admin, &tenants).await;
    unreadable(&admin).await;
    warned(&admin, &tenants).await;
    costly(&plane, &admin).await;
    more_pools(&plane, &admin).await;
}
