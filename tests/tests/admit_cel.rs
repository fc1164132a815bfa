//! The evaluator of CEL by which `croft-prove` searches, held against the real API server: the pods of its alphabet are
//! created and updated by dry run, and each answer must be the evaluator's.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use croft_policy::definitions::parameter::{PREFIX, REVISION};
use croft_prove::{
    declared::{Declared, NamespaceKind, PoolKind, PoolSpec},
    model::{Scope, settled},
    pods::{Alphabet, names_node},
    policies::{Policies, Request, Surroundings},
    world::World,
};
use croft_testkit::{ControlPlane, croft::NAMESPACE};
use croft_tests::arena::{self, Answer};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

/// Requests at the same time.
const AT_ONCE: usize = 8;

/// The fields that policies decide by.
fn placement(spec: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["nodeSelector", "affinity", "schedulingGates"] {
        let value = spec.get(field).filter(|value| !value.is_null());
        kept.extend(value.map(|value| (field.to_owned(), value.clone())));
    }
    // Every pod gets two of the API server's own.
    let own = |toleration: &&Value| {
        !toleration["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"))
    };
    let tolerations: Vec<&Value> = spec["tolerations"].as_array().into_iter().flatten().filter(own).collect();
    kept.insert("tolerations".to_owned(), json!(tolerations));
    Value::Object(kept)
}

/// Writes what the controller has written in `world`, and waits until the policies read it.
async fn write(plane: &ControlPlane, admin: &Client, world: &World) -> Surroundings {
    let user = format!("system:serviceaccount:{NAMESPACE}:croft-controller");
    let api: Api<Namespace> = Api::all(plane.client_for(&user, &["system:masters"]).await.unwrap());
    let name = world.namespace.name();
    for (name, labels, annotations) in [
        (NAMESPACE, None, &world.parameters),
        (name, Some(&world.written.labels), &world.written.annotations),
    ] {
        let held = Api::<Namespace>::all(admin.clone()).get(name).await.unwrap().metadata;
        let mut annotations = json!(annotations);
        for key in held.annotations.unwrap_or_default().keys().filter(|key| key.starts_with(PREFIX)) {
            annotations.as_object_mut().unwrap().entry(key).or_insert(Value::Null);
        }
        let mut labels = json!(labels.cloned().unwrap_or_default());
        for key in held.labels.unwrap_or_default().keys().filter(|key| key.starts_with("croft.dev/")) {
            labels.as_object_mut().unwrap().entry(key).or_insert(Value::Null);
        }
        let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    arena::in_force(&api, &world.parameters[REVISION]).await.unwrap();
    let read = async |name: &str| json!(Api::<Namespace>::all(admin.clone()).get(name).await.unwrap());
    Surroundings::new(read(name).await, &read(NAMESPACE).await)
}

/// The evaluator's answer to a request: the placement of the stored pod, or the policy that refuses it.
fn expected(policies: &Policies, request: &Request<'_>) -> Result<Value, String> {
    let object = policies.mutate(request).ok_or("an error of a mutating policy")?;
    match policies.refusal(&Request { object: &object, ..*request }) {
        Some(policy) => Err(policy.to_owned()),
        None => Ok(placement(&object["spec"])),
    }
}

/// Compares an answer with the evaluator's. Returns true if the request was allowed, or `None` if Kubernetes itself refused it.
fn compare(what: &str, found: Answer, wanted: &Result<Value, String>) -> Option<bool> {
    let found = match found {
        Answer::Done(object) => Ok(placement(&object.data["spec"])),
        Answer::Refused(status) if status.message.contains("ValidatingAdmissionPolicy") => {
            Err(status.message)
        }
        Answer::Refused(status) => {
            assert_eq!(status.code, 422, "{what}: {}", status.message);
            return None;
        }
    };
    match (&found, wanted) {
        (Err(found), Err(policy)) => {
            assert!(found.contains(policy.as_str()), "{what}: {policy}, but {found}")
        }
        (found, wanted) => assert_eq!(found, wanted, "{what}"),
    }
    Some(found.is_ok())
}

fn api_of(client: &Client, namespace: NamespaceKind) -> Api<DynamicObject> {
    let pods = ApiResource::erase::<Pod>(&());
    Api::namespaced_with(client.clone(), namespace.name(), &pods)
}

/// Creates every pod of the alphabet, and updates some in every way. Returns how many were allowed and refused.
async fn compare_all(
    admin: &Client,
    (policies, alphabet): (&Policies, &Alphabet),
    world: &World,
    surroundings: &Surroundings,
) -> (usize, usize) {
    let kind = world.namespace;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let specs: Vec<Value> = alphabet.created().into_iter().filter(|spec| !names_node(spec)).collect();
    let created = stream::iter(specs.iter().enumerate()).map(|(at, spec)| {
        let dry = &dry;
        async move {
            let object = arena::pod(kind.name(), &format!("pod-{at}"), spec.clone());
            let wanted = expected(policies, &Request { object: &object, old: None, surroundings });
            let post: DynamicObject = serde_json::from_value(object).unwrap();
            let api = api_of(admin, kind);
            let answer = arena::answer(api.create(dry, &post).await).unwrap();
            let allowed = compare(&format!("{kind:?} creates {spec}"), answer, &wanted);
            // Every twelfth, and every gated one of three, is stored and updated.
            let is_sampled = at % 12 == 0 || (spec.get("schedulingGates").is_some() && at % 3 == 0);
            let mut answers = vec![allowed];
            if is_sampled && allowed == Some(true) {
                let stored = api.create(&PostParams::default(), &post).await.unwrap();
                let old = json!(stored);
                for next in alphabet.updated(&old["spec"]) {
                    let mut object = old.clone();
                    object["spec"] = next;
                    let request = Request { object: &object, old: Some(&old), surroundings };
                    let wanted = expected(policies, &request);
                    let put: DynamicObject = serde_json::from_value(object.clone()).unwrap();
                    let name = stored.metadata.name.as_deref().unwrap();
                    let answer = arena::answer(api.replace(name, dry, &put).await).unwrap();
                    answers.push(compare(
                        &format!("{kind:?} updates {} to {}", old["spec"], object["spec"]),
                        answer,
                        &wanted,
                    ));
                }
                api.delete(stored.metadata.name.as_deref().unwrap(), &Default::default()).await.unwrap();
            }
            answers
        }
    });
    let answers: Vec<Vec<Option<bool>>> = created.buffer_unordered(AT_ONCE).collect().await;
    let count = |allowed| answers.iter().flatten().filter(|answer| **answer == Some(allowed)).count();
    (count(true), count(false))
}

#[tokio::test]
async fn evaluator_answers_as_the_api_server_in_both_modes() {
    let (plane, _croft) = arena::quiet().await.unwrap();
    let webhooks = ["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all"];
    plane.kubectl(webhooks).await.unwrap();
    let manifests: Vec<String> = NamespaceKind::ALL
        .iter()
        .flat_map(|kind| {
            let name = kind.name();
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": name}});
            [namespace.to_string(), account.to_string()]
        })
        .collect();
    plane.apply(&manifests.join("\n---\n")).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let (policies, alphabet) = (Policies::installed(), Alphabet::small());
    let pool = Some(PoolSpec { no_execute: true, shared: true });
    for (policy_mode, kind) in
        [(false, PoolKind::CroftOwnKey), (true, PoolKind::CroftOwnKey), (true, PoolKind::CroftBuiltInKey)]
    {
        let (mut allowed, mut refused) = (0, 0);
        for namespace in NamespaceKind::ALL {
            let scope = Scope {
                name: String::new(),
                pool: kind,
                namespace,
                initial: Vec::new(),
                edits: Vec::new(),
                max_edits: 0,
                max_updates: 0,
                alphabet: Alphabet::small(),
            };
            let world = settled(Declared { pool, ..Declared::all(policy_mode) }, &scope);
            let surroundings = write(&plane, &admin, &world).await;
            let (more, less) = compare_all(&admin, (&policies, &alphabet), &world, &surroundings).await;
            println!("policy mode {policy_mode}, {kind:?}, {namespace:?}: {more} allowed, {less} refused");
            allowed += more;
            refused += less;
        }
        assert!(allowed > 500 && refused > 100, "{allowed} allowed, {refused} refused");
    }
}
