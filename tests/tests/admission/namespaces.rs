//! Writes of namespaces by ordinary tools: backups that bring Croft's label and annotations, tools that remove what they don't
//! know, tools that mark what they create; and the deletion of Croft's own Namespace. On the real API server, in both modes.

use std::collections::BTreeMap;

use croft_policy::{
    Config, Mutation, NamespaceCreation, Owner, Phase, Subject, Tenant, Tenants,
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    evaluate, review,
};
use croft_testkit::{
    Component, ControlPlane, Croft, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{
        self, Answer, POOLS_OF_A, SOON, create, end_taking_back, in_mode, kept_arena, mark, of_croft, pod,
        settings, settled, tenant,
    },
    cli::croft,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const OWN: &str = "croft-system";
/// Another tenant's pool, as the controller would write it.
const FOREIGN: &str = "node-pool=pool-b:NoSchedule:pool-b";

fn namespace(name: &str, labels: Value, annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels, "annotations": annotations}})
}

/// A namespace of tenant a as a backup brings it, from a time when it was of no tenant and every pool was shared with it, or
/// from a forger.
fn restored(name: &str) -> Value {
    namespace(
        name,
        json!({"team": "a", TENANCY_LABEL: "none", "velero.io/backup-name": "nightly"}),
        json!({POOLS_ANNOTATION: FOREIGN, SHARED_ANNOTATION: "*", "policy.croft.dev/pod-security-enforce": "baseline:-"}),
    )
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Waits until the controller has written exactly this onto the namespace.
async fn marked(api: &Api<Namespace>, name: &str, wanted: &[(&str, &str)]) {
    let wanted = text(wanted);
    until(&format!("the marks of {name}"), SOON, async || {
        let found = of_croft(&api.get(name).await?.metadata);
        Ok::<_, kube::Error>(Seen::from_option((found == wanted).then_some(()), format!("{found:?}")))
    })
    .await
    .unwrap();
}

/// The namespace is created as it is, without anything of Croft's.
async fn comes_without_croft(admin: &Client, namespace: &Value) {
    match create(admin, namespace, false).await.unwrap() {
        Answer::Done(made) => assert_eq!(of_croft(&made.metadata), BTreeMap::new(), "{namespace}"),
        refused @ Answer::Refused(_) => panic!("{namespace}: {}", refused.sentence()),
    }
}

/// Restorations, removals and forgeries are accepted, and change nothing of Croft's.
async fn tools_write(admin: &Client, suffix: &str) {
    let api: Api<Namespace> = Api::all(admin.clone());
    let (free, of_a) = (format!("free-{suffix}"), format!("of-a-{suffix}"));
    comes_without_croft(admin, &namespace(&free, json!({TENANCY_LABEL: "none"}), json!({}))).await;
    comes_without_croft(admin, &restored(&of_a)).await;
    marked(&api, &free, &[(TENANCY_LABEL, "none")]).await;
    marked(&api, &of_a, &[(POOLS_ANNOTATION, POOLS_OF_A)]).await;
    for name in [&*free, &of_a, "tenant-b", OWN] {
        let before = api.get(name).await.unwrap();
        let mut replacing = before.clone();
        let labels = replacing.metadata.labels.get_or_insert_default();
        labels.retain(|key, _| key != TENANCY_LABEL);
        let annotations = replacing.metadata.annotations.take().unwrap_or_default();
        // The identity of the installation is the operator's to remove.
        let identity = annotations.into_iter().filter(|(key, _)| key.starts_with("identity.croft.dev/"));
        replacing.metadata.annotations = Some(identity.collect());
        replacing.metadata.resource_version = None;
        let after = api.replace(name, &PostParams::default(), &replacing).await.unwrap();
        assert_eq!(of_croft(&after.metadata), of_croft(&before.metadata), "{name}: replaced without Croft's");
        for (what, patch) in forgeries() {
            let params = PatchParams::default();
            let direct = api.patch(name, &params, &Patch::Merge(&patch)).await;
            let status = api.patch_status(name, &params, &Patch::Merge(&patch)).await;
            for after in [direct, status] {
                let after = after.unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
                assert_eq!(of_croft(&after.metadata), of_croft(&before.metadata), "{name}, {what}");
            }
        }
    }
    let apply = PatchParams::apply("terraform").force();
    let applied = api.patch(&of_a, &apply, &Patch::Apply(restored(&of_a))).await.unwrap();
    assert_eq!(of_croft(&applied.metadata), text(&[(POOLS_ANNOTATION, POOLS_OF_A)]), "server-side apply");
}

/// Writes that the controller alone may make.
fn forgeries() -> [(&'static str, Value); 5] {
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    [
        ("off the webhook", json!({"metadata": {"labels": {TENANCY_LABEL: "none"}}})),
        ("onto the webhook", json!({"metadata": {"labels": {TENANCY_LABEL: null}}})),
        ("another's pools", annotations(json!({POOLS_ANNOTATION: FOREIGN, SHARED_ANNOTATION: "*"}))),
        ("no pools", annotations(json!({POOLS_ANNOTATION: null}))),
        (
            "other parameters",
            annotations(json!({"policy.croft.dev/keys": "x", "policy.croft.dev/tenants": null})),
        ),
    ]
}

/// From the restoration of a tenant's namespace on, no pod is evaluated by what the backup brought: until the controller has
/// written, each is refused or pinned to the tenant's own pool, and one that asks for the other's is refused.
async fn no_pod_is_evaluated_by_a_backup(
    plane: &ControlPlane,
    croft: &mut Croft,
    admin: &Client,
    mode: Mutation,
) {
    let api: Api<Namespace> = Api::all(admin.clone());
    for round in 0..3 {
        // In the last round no controller writes the metadata.
        let is_unled = round == 2;
        if is_unled {
            croft.kill(Part::Controller).unwrap();
        }
        let name = format!("moment-{}-{round}", mode.as_str().to_lowercase());
        comes_without_croft(admin, &restored(&name)).await;
        let foreign = json!({"nodeSelector": {"node-pool": "pool-b"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-b", "effect": "NoSchedule"}]});
        let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
        for turn in 0..20 {
            for (what, spec) in
                [("plain", json!({})), ("tolerant", tolerant.clone()), ("foreign", foreign.clone())]
            {
                let answer = create(admin, &pod(&name, "early", spec), true).await.unwrap();
                let Answer::Done(made) = &answer else { continue };
                let pinned = made.data["spec"]["nodeSelector"]["node-pool"] == "pool-a" && what != "foreign";
                assert!(pinned, "{mode:?}, turn {turn}: a {what} pod: {}", answer.sentence());
                // Without the controller only the webhook knows whose the namespace is.
                assert!(!is_unled || mode == Mutation::Webhook, "{mode:?}: evaluated without the metadata");
            }
        }
        if is_unled {
            croft.resume(plane, Part::Controller).await.unwrap();
        }
        marked(&api, &name, &[(POOLS_ANNOTATION, POOLS_OF_A)]).await;
        arena::enforced(admin, &pod(&name, "later", json!({})), "\"node-pool\":\"pool-a\"").await.unwrap();
    }
}

/// Croft's own Namespace stays while there are Tenants or pools, unless enforcement is stopped.
async fn own_namespace_stays(plane: &ControlPlane) {
    let delete = ["delete", "namespace", OWN, "--dry-run=server"];
    let refused = plane.kubectl(delete).await.unwrap_err().to_string();
    assert!(refused.contains("croft uninstall") && refused.contains("croft break-glass on"), "{refused}");
    plane.kubectl(["delete", "namespace", "no-tenant", "--dry-run=server"]).await.unwrap();

    let (code, said) = croft(plane, "break-glass on").await.unwrap();
    assert_eq!(code, 0, "{said}");
    deletable(plane).await;
    let (code, said) = croft(plane, "break-glass off").await.unwrap();
    assert_eq!(code, 0, "{said}");
}

async fn deletable(plane: &ControlPlane) {
    until("the deletion allowed", SOON, async || {
        let deleted = plane.kubectl(["delete", "namespace", OWN, "--dry-run=server"]).await;
        let said = deleted.as_ref().err().map(ToString::to_string).unwrap_or_default();
        anyhow::Ok(Seen::from_option(deleted.is_ok().then_some(()), said))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn namespaces_that_tools_write_keep_what_is_crofts_in_both_modes() {
    // Pods are asked about before their namespace has a ServiceAccount.
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .flag(Component::ApiServer, "--disable-admission-plugins=ServiceAccount");
    let (plane, mut croft) = kept_arena(options).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let api: Api<Namespace> = Api::all(admin.clone());
    marked(&api, "tenant-a", &[(POOLS_ANNOTATION, POOLS_OF_A)]).await;
    // Neither webhook nor policy takes it back: refused.
    end_taking_back(&plane).await.unwrap();
    croft.kill(Part::Webhook).unwrap();
    own_namespace_stays(&plane).await;
    let forged = namespace("forged", json!({TENANCY_LABEL: "none"}), json!({}));
    arena::enforced(&admin, &forged, "is kept by Croft alone").await.unwrap();
    // The webhook alone.
    croft.resume(&plane, Part::Webhook).await.unwrap();
    settled(&admin).await.unwrap();
    tools_write(&admin, "webhook").await;
    no_pod_is_evaluated_by_a_backup(&plane, &mut croft, &admin, Mutation::Webhook).await;

    // The policy alone.
    let file = croft.manifests().join("overlays/policy-mode/mutation.yaml");
    plane
        .kubectl(["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()])
        .await
        .unwrap();
    croft.kill(Part::Webhook).unwrap();
    until("the policy", SOON, async || {
        let answer = create(&admin, &forged, true).await?;
        anyhow::Ok(Seen::from_option(answer.is_done().then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
    tools_write(&admin, "policy").await;
    croft.resume(&plane, Part::Webhook).await.unwrap();

    plane.apply(&settings(Mutation::Policy)).await.unwrap();
    in_mode(&admin, Mutation::Policy).await.unwrap();
    croft.kill(Part::Webhook).unwrap();
    tools_write(&admin, "mode").await;
    no_pod_is_evaluated_by_a_backup(&plane, &mut croft, &admin, Mutation::Policy).await;

    plane.kubectl(["delete", "tenants", "--all"]).await.unwrap();
    plane.kubectl(["delete", "nodes", "--all"]).await.unwrap();
    plane.kubectl(["delete", "tenantpools", "--all"]).await.unwrap();
    croft.resume(&plane, Part::Webhook).await.unwrap();
    deletable(&plane).await;
    croft.check().unwrap();
}

/// The answer of the policy crate: the labels and annotations that are stored, or a refusal.
fn expected(
    tenants: &Tenants,
    user: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(Value, Value), String> {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "name": new["metadata"]["name"], "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": user}, "object": new, "oldObject": old}})
    .to_string();
    let outcome = evaluate(tenants, &review::parse(body.as_bytes()).unwrap(), Phase::Both);
    if let Some(denial) = outcome.denial {
        return Err(denial.message);
    }
    let mut object = new.clone();
    let patch: json_patch::Patch = serde_json::from_str(&outcome.patch.into_json()).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    Ok(written(&object))
}

/// Labels and annotations, without an empty map.
fn written(object: &Value) -> (Value, Value) {
    let of = |field: &str| match &object["metadata"][field] {
        Value::Null => json!({}),
        map => map.clone(),
    };
    (of("labels"), of("annotations"))
}

/// Labels and annotations as tools leave them.
fn states() -> Vec<(Value, Value)> {
    let own = "kubernetes.io/metadata.name";
    let keys = "policy.croft.dev/keys";
    vec![
        (json!({own: "x"}), json!(null)),
        (json!({own: "x"}), json!({})),
        (json!({own: "x", TENANCY_LABEL: "none"}), json!(null)),
        (json!({own: "x", TENANCY_LABEL: "other", "a": "b"}), json!({"a": "b"})),
        (json!({own: "x"}), json!({POOLS_ANNOTATION: "p"})),
        (json!({own: "x"}), json!({POOLS_ANNOTATION: "q", "a": "b", "croft.dev/pool": "p"})),
        (json!({own: "x", "a": "b"}), json!({POOLS_ANNOTATION: "", keys: "k", "policy.croft.dev/a_b": "z"})),
        (json!({own: "x", TENANCY_LABEL: ""}), json!({SHARED_ANNOTATION: "*", keys: "l"})),
    ]
}

#[tokio::test]
async fn policies_write_what_the_policy_crate_does() {
    let (plane, _croft) = arena::quiet().await.unwrap();
    let webhooks = ["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all"];
    plane.kubectl(webhooks).await.unwrap();
    let creation = NamespaceCreation { prefix: "loom-".to_owned(), maximum: 9 };
    let carla = Owner { subject: Subject::User("carla".to_owned()), roles: vec!["admin".to_owned()] };
    let weavers = Tenant { creation: Some(creation), owners: vec![carla], ..tenant("weavers", &[], &[]) };
    // Beyond the schema, which refuses the last three.
    let owner_metadata =
        ["example.com/", "croft.dev/", "pod-security.kubernetes.io/", "scheduler.alpha.kubernetes.io/"];
    let config = Config { owner_metadata: owner_metadata.map(str::to_owned).to_vec(), ..Config::default() };
    let tenants = Tenants::offline(config, vec![weavers], vec![], vec![], vec![]);
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "carla"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "croft-namespace-creator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carla"}]});
    plane.apply(&bound.to_string()).await.unwrap();
    mark(&plane, tenants.declarations(), &[]).await.unwrap();
    taken_back(&plane, &tenants).await;
    given_by_owners(&plane, &tenants).await;
}

/// From every state to every other.
async fn taken_back(plane: &ControlPlane, tenants: &Tenants) {
    let controller =
        plane.client_for(&tenants.declarations().controller_user(), &["system:masters"]).await.unwrap();
    let admin = plane.admin().await.unwrap();
    arena::enforced(&admin, &namespace("x", json!({TENANCY_LABEL: "none"}), json!({})), "allowed")
        .await
        .unwrap();
    let (own, others) = (Api::<Namespace>::all(controller), Api::<Namespace>::all(admin.clone()));
    let read = |namespace: &Namespace| serde_json::to_value(namespace).unwrap();
    for (labels, annotations) in states() {
        let new = namespace("x", labels, annotations);
        let answer = create(&admin, &new, true).await.unwrap();
        let Answer::Done(made) = &answer else { panic!("{}", answer.sentence()) };
        let made = json!({"metadata": made.metadata});
        assert_eq!(Ok(written(&made)), expected(tenants, "admin", None, &new), "created: {new}");
    }
    for (number, (labels, annotations)) in states().into_iter().enumerate() {
        let name = format!("x-{number}");
        let typed = |object: Value| -> Namespace { serde_json::from_value(object).unwrap() };
        let labelled = |mut labels: Value| {
            labels["kubernetes.io/metadata.name"] = json!(name);
            labels
        };
        let stored = typed(namespace(&name, labelled(labels), annotations));
        let stored = own.create(&PostParams::default(), &stored).await.unwrap();
        for (labels, annotations) in states() {
            let new = namespace(&name, labelled(labels), annotations);
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let found = others.replace(&name, &params, &typed(new.clone())).await.unwrap();
            let old = read(&stored);
            assert_eq!(
                Ok(written(&read(&found))),
                expected(tenants, "admin", Some(&old), &new),
                "from {:?} to {new}",
                written(&old)
            );
        }
    }
}

/// Labels and annotations that owners give to the namespaces that they create.
async fn given_by_owners(plane: &ControlPlane, tenants: &Tenants) {
    let carla = plane.client_for("carla", &[]).await.unwrap();
    for (labels, annotations, is_allowed) in [
        (json!({}), json!({}), true),
        (json!({"name": "loom-x"}), json!({}), true),
        (json!({"name": "other"}), json!({}), false),
        (json!({"example.com/a": "b"}), json!({"example.com/c": "d"}), true),
        (json!({"example.org/a": "b"}), json!({}), false),
        (json!({"example.com": "b"}), json!({}), false),
        (json!({}), json!({"example.org/a": "b"}), false),
        (json!({}), json!({"app.kubernetes.io/name": "x", "kubernetes.io/description": "y"}), true),
        (json!({}), json!({"croft.dev/pool": "pool-b"}), false),
        (json!({"croft.dev/x": "y"}), json!({}), false),
        (json!({"x.croft.dev/x": "y"}), json!({}), false),
        (json!({}), json!({"identity.croft.dev/region": "x"}), false),
        (json!({"pod-security.kubernetes.io/enforce": "privileged"}), json!({}), false),
        (json!({}), json!({"scheduler.alpha.kubernetes.io/node-selector": "a=b"}), false),
        (json!({TENANCY_LABEL: "none"}), json!({POOLS_ANNOTATION: FOREIGN}), true),
    ] {
        let new = namespace("loom-x", labels, annotations);
        let answer = create(&carla, &new, true).await.unwrap();
        let wanted = expected(tenants, "carla", None, &new);
        assert_eq!(
            (answer.is_done(), wanted.is_ok()),
            (is_allowed, is_allowed),
            "{new}: {wanted:?} {}",
            answer.sentence()
        );
        if let Answer::Done(made) = &answer {
            assert_eq!(of_croft(&made.metadata), BTreeMap::new(), "{new}");
        }
    }
}
