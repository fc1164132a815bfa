//! Pods that select the label of registering nodes, tolerate a pool's key, and are given the toleration of the starting taint by
//! an update.

use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::deployment,
    stack::{EVENTUALLY, Stack, running},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{FRIENDS, OUTSIDE, STARTING, bare, tried_and_unbound, with_pool};

/// The ways to write a pod.
const WAYS: [&str; 5] = ["json", "merge", "strategic", "apply", "put"];

async fn write(api: &Api<Pod>, pod: &Pod, way: &str, added: &Value) -> kube::Result<Pod> {
    let name = pod.name_any();
    let mut tolerations = json!(pod.spec.as_ref().unwrap().tolerations);
    tolerations.as_array_mut().unwrap().push(added.clone());
    let spec = json!({"spec": {"tolerations": tolerations}});
    match way {
        "json" => {
            let patch = json!([{"op": "add", "path": "/spec/tolerations/-", "value": added}]);
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            api.patch(&name, &PatchParams::default(), &Patch::Json::<()>(patch)).await
        }
        "merge" => api.patch(&name, &PatchParams::default(), &Patch::Merge(spec)).await,
        "strategic" => api.patch(&name, &PatchParams::default(), &Patch::Strategic(spec)).await,
        "apply" => {
            let mut object = spec;
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("Pod");
            api.patch(&name, &PatchParams::apply("jane").force(), &Patch::Apply(object)).await
        }
        // kube-scheduler writes the pod's status in between.
        _ => loop {
            let mut object = json!(api.get(&name).await?);
            object["spec"]["tolerations"] = tolerations.clone();
            let pod = serde_json::from_value(object).unwrap();
            match api.replace(&name, &PostParams::default(), &pod).await {
                Err(kube::Error::Api(why)) if why.code == 409 => {}
                answer => return answer,
            }
        },
    }
}

/// A namespace with which another pool is shared attacks as well.
async fn share_a_pool(stack: &Stack, jane: &Client) {
    stack.plane.apply(&with_pool("common", "common", &json!({"sharedWith": [FRIENDS]}))).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(jane.clone(), FRIENDS);
    let guest = bare(
        FRIENDS,
        "guest",
        &json!({"nodeSelector": {"common": "common"},
        "tolerations": [{"key": "common", "operator": "Exists"}]}),
    );
    until("the pool is shared", EVENTUALLY, async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let said = pods.create(&dry, &guest).await;
        Ok::<_, kube::Error>(Seen::from_option(said.is_ok().then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
}

/// The cost of an update grows with the pod's tolerations, and a bound that is said takes the place of the evaluator's.
async fn cost_what_the_pod_is_long(jane: &Client) {
    let api: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    let many = |of: &dyn Fn(usize) -> Value| Value::Array((0..1000).map(of).collect());
    let ordinary = many(&|n| json!({"key": format!("ordinary-{n}"), "operator": "Exists"}));
    let foreign = many(&|n| json!({"key": "dedicated", "operator": "Equal", "value": format!("v{n}")}));
    for (name, tolerations) in [("many-ordinary", ordinary), ("many-foreign", foreign)] {
        let pod = bare(OUTSIDE, name, &json!({"tolerations": tolerations}));
        let pod = api.create(&PostParams::default(), &pod).await.unwrap();
        let more = json!({"key": "one-more", "operator": "Exists"});
        let pod = write(&api, &pod, "json", &more).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let refused = write(&api, &pod, "json", &json!({"key": "dedicated", "operator": "Exists"})).await;
        let why = refused.unwrap_err().to_string();
        let said = if name == "many-foreign" { "more than 100 tolerations" } else { "that has no pool yet" };
        assert!(why.contains(said), "{name}: {why}");
        api.delete(name, &Default::default()).await.unwrap();
    }
}

pub async fn widen_no_pod_that_waits_for_a_registering_node(
    stack: &mut Stack,
    admin: &Client,
    jane: &Client,
) {
    share_a_pool(stack, jane).await;
    cost_what_the_pod_is_long(jane).await;
    let added = [
        json!({"key": STARTING, "operator": "Exists"}),
        json!({"key": STARTING, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}),
        json!({"key": STARTING, "operator": "Equal", "value": "", "effect": "NoExecute"}),
        json!({"key": STARTING, "operator": "Exists", "effect": "NoSchedule"}),
    ];
    let mut number = 0;
    for namespace in [OUTSIDE, FRIENDS] {
        let api: Api<Pod> = Api::namespaced(jane.clone(), namespace);
        for way in WAYS {
            for added in &added {
                number += 1;
                let spec = json!({"nodeSelector": {STARTING: "true"},
                    "tolerations": [{"key": "dedicated", "operator": "Exists"}]});
                let pod = bare(namespace, &format!("widened-{number}"), &spec);
                let pod = api.create(&PostParams::default(), &pod).await.unwrap();
                let refused = write(&api, &pod, way, added).await;
                let Err(kube::Error::Api(why)) = refused else {
                    panic!("{namespace}, {way}, {added}: the toleration of the starting taint was added")
                };
                assert!(why.message.contains("of a node that has no pool yet"), "{}", why.message);
            }
        }
    }
    // One that tolerates the starting taint from the beginning, and would be given the pool's.
    let api: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    let spec =
        json!({"nodeSelector": {STARTING: "true"}, "tolerations": [{"key": STARTING, "operator": "Exists"}]});
    let pod = api.create(&PostParams::default(), &bare(OUTSIDE, "begun", &spec)).await.unwrap();
    write(&api, &pod, "json", &json!({"key": "dedicated", "operator": "Exists"})).await.unwrap_err();
    // kube-scheduler tries it on no node whose taint it doesn't tolerate, and so never counts them.
    api.delete("begun", &Default::default()).await.unwrap();
    // Three more nodes of the pool register.
    stack.plane.apply(&deployment("lab", "large", 3, "1500m", "256Mi").to_string()).await.unwrap();
    running(admin, "lab", 4).await.unwrap();
    tried_and_unbound(&mut stack.plane, admin).await;
}
