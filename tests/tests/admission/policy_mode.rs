//! Policy mode on the real API server, with all of Croft down: the policies give the answers of the policy crate.
//!
//! Each object is created by dry run twice: in an exempt namespace, which shows it as the API server completes it, and
//! in its own. What the policy crate makes of the first must be the second. Updates and the captured reviews are compared
//! with the stored object. `CROFT_POLICY_OBJECTS` sets the number of random objects that are compared; `make policy-mode`
//! compares 10,000.

mod answers;
mod captured;
mod differences;
mod evaluator;
mod random;
mod updates;
#[path = "../../../crates/policy/tests/world/mod.rs"]
#[allow(dead_code, missing_docs, reason = "it is the world of other tests")]
mod world;

use croft_policy::{
    Config, Mutation, NonTenantPods, OnConflict, Tenant, Tenants, definitions::POOL_ANNOTATION,
};
use croft_testkit::{Component, ControlPlane, Options};
use croft_tests::{
    arena::{self, Answer, create, mark_for},
    corpus,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use self::answers::{Reference, compare_all, compare_random, expected};

const SEED: u64 = 0x00c0_ffee;
/// Random objects that `make test` compares.
const OBJECTS: usize = 1_000;
/// Fixtures and captured requests that are compared, at least.
const FIXTURES: usize = 40;
const CAPTURED: usize = 55;

/// The exempt namespace that shows what the API server itself adds.
const PLAIN: &str = "plain";
/// Namespaces of the world, with the annotation `croft.dev/pool` of some.
const NAMESPACES: [(&str, &str); 12] = [
    ("tenant-a", ""),
    ("tenant-a-gpu", "pool-a-gpu"),
    ("tenant-a-bad", "pool-b"),
    ("tenant-b", ""),
    ("tenant-c", ""),
    ("tenant-c-bad", "pool-b"),
    ("tenant-d", ""),
    ("tenant-lost", ""),
    ("tenant-e", ""),
    ("non-tenant", ""),
    ("agents", ""),
    ("all-shared", ""),
];
/// A namespace that a tenant claims by label, and that isn't marked.
const UNMARKED: &str = "labelled";

fn config(non_tenant_pods: NonTenantPods) -> Config {
    Config {
        non_tenant_pods,
        mutation: Mutation::Policy,
        exempt: vec![PLAIN.to_owned()],
        shared_with: vec!["all-shared".to_owned()],
        ..Config::default()
    }
}

/// The world without `onConflict: Override`: only there do the mutating policies leave pods out that are right already.
fn rejecting(config: Config) -> Tenants {
    let rejecting = |tenant| Tenant { on_conflict: OnConflict::Reject, ..tenant };
    world::world_of(config, world::tenants().into_iter().map(rejecting).collect())
}

/// A control plane with the world's namespaces, and no webhook.
async fn start(options: Options) -> (ControlPlane, Client) {
    let (plane, _) = arena::quiet_of(options).await.unwrap();
    let webhooks = ["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all"];
    plane.kubectl(webhooks).await.unwrap();
    let mut manifests = Vec::new();
    for (name, pool) in NAMESPACES.into_iter().chain([(PLAIN, ""), (UNMARKED, ""), ("new", "")]) {
        let annotations = if pool.is_empty() { json!({}) } else { json!({POOL_ANNOTATION: pool}) };
        manifests.push(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": annotations}}));
        manifests.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name}}));
    }
    let manifests: Vec<String> = manifests.iter().map(Value::to_string).collect();
    plane.apply(&manifests.join("\n---\n")).await.unwrap();
    let admin = plane.admin().await.unwrap();
    (plane, admin)
}

/// [`start`], with an API server that takes the operators `Lt` and `Gt` of tolerations, an alpha feature.
async fn start_with_comparisons() -> (ControlPlane, Client) {
    let gate = "--feature-gates=TaintTolerationComparisonOperators=true";
    start(Options::default().flag(Component::ApiServer, gate)).await
}

/// Marks `namespaces` for `tenants`, with the mutating policies on, and waits until they act.
async fn in_policy_mode(plane: &ControlPlane, admin: &Client, tenants: &Tenants, namespaces: &[&str]) {
    mark_for(plane, tenants.declarations(), namespaces, Mutation::Policy).await.unwrap();
    let own = json!({"nodeSelector": {}, "tolerations": []});
    croft_testkit::wait::until("the mutating policies", arena::SOON, async || {
        let answer = create(admin, &arena::pod("tenant-a", "first", own.clone()), true).await?;
        let yes = matches!(&answer, Answer::Done(_));
        anyhow::Ok(croft_testkit::wait::Seen::from_option(yes.then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
}

fn owned_namespaces() -> Vec<&'static str> {
    NAMESPACES.iter().map(|(name, _)| *name).chain([PLAIN]).collect()
}

#[tokio::test]
async fn policies_answer_as_the_policy_crate_does() {
    let (plane, admin) = start(Options::default()).await;
    let count = std::env::var("CROFT_POLICY_OBJECTS").map_or(OBJECTS, |text| text.parse().unwrap());

    for (mode, rejects, objects, changes, seed) in [
        (NonTenantPods::KeepOut, false, count, 40, SEED),
        (NonTenantPods::KeepOut, true, count / 2, 15, SEED + 4),
        (NonTenantPods::Reject, true, count / 4, 15, SEED + 1),
        (NonTenantPods::Allow, false, count / 4, 15, SEED + 3),
    ] {
        let tenants = if rejects { rejecting(config(mode)) } else { world::world(config(mode)) };
        in_policy_mode(&plane, &admin, &tenants, &owned_namespaces()).await;
        let what = |part: &str| format!("{part} with nonTenantPods {mode:?} and seed {seed:x}");
        let reference: Reference<'_> = &|asked| expected(&tenants, asked);
        let fixtures = compare_all(&admin, reference, captured::fixtures()).await.check(&what("fixtures"));
        assert!(fixtures.compared >= FIXTURES, "{fixtures:?}");
        let draw = random::creation;
        let random = compare_random(&admin, reference, draw, objects, seed).await.check(&what("random"));
        let name = format!("stored-{mode:?}-{seed:x}").to_lowercase();
        let templates =
            updates::daemonsets(&admin, &tenants, &name, changes).await.check(&what("DaemonSets"));
        assert!(templates.compared > changes * 2, "most changes are valid: {templates:?}");
        let pods = updates::pods(&admin, reference, &name).await.check(&what("updates of pods"));
        assert!(pods.compared > 80, "most changes are valid: {pods:?}");
        println!(
            "nonTenantPods {mode:?}: compared {} fixtures, {} random objects, {} updates of DaemonSets, {} of pods",
            fixtures.compared, random.compared, templates.compared, pods.compared
        );
        // Once: they store objects.
        if seed == SEED {
            others(&admin).await;
            evaluator::answers_as_the_api_server(&admin, objects / 2).await;
        }
    }

    let read = corpus::tenants(&corpus::folder().join("config.yaml")).unwrap();
    in_policy_mode(&plane, &admin, &read, &["tenant-a", "tenant-b", "non-tenant"]).await;
    let replayed = captured::replay(&plane, &admin, &read).await.check("captured requests");
    println!("compared {} captured requests; not: {:#?}", replayed.compared, replayed.skipped);
    assert!(replayed.compared >= CAPTURED, "{:#?}", replayed.skipped);
}

/// Server-side apply, and a namespace that no tenant claims and that isn't labelled yet.
async fn others(admin: &Client) {
    let pods: Api<DynamicObject> = Api::namespaced_with(
        admin.clone(),
        "tenant-a",
        &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")),
    );
    let params = PatchParams { dry_run: true, ..PatchParams::apply("tester") };
    let applied =
        pods.patch("applied", &params, &Patch::Apply(arena::pod("tenant-a", "applied", json!({})))).await;
    assert_eq!(applied.unwrap().data["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));
    let new = create(admin, &arena::pod("new", "x", json!({})), true).await.unwrap();
    assert!(new.is_done(), "no tenant claims the namespace: {}", new.sentence());
    let tolerating = json!({"tolerations": [{"operator": "Exists"}]});
    match create(admin, &arena::pod("new", "x", tolerating), true).await.unwrap() {
        Answer::Done(pod) => assert!(!pod.data["spec"]["affinity"].is_null(), "kept out: {}", pod.data),
        refused @ Answer::Refused(_) => panic!("{}", refused.sentence()),
    }
}
