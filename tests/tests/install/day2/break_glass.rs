//! `croft break-glass` with the webhook down: pods can be created again, and rules that need no webhook still hold.

use croft_testkit::{
    Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{SOON, create, kept_arena, pod, settled},
    attacks::{self, Stream},
    cli::croft,
};
use kube::Client;
use serde_json::{Value, json};

async fn created(client: &Client, namespace: &str, spec: Value, wanted: bool) {
    until(&format!("a pod in {namespace} {spec} created: {wanted}"), SOON, async || {
        let answer = create(client, &pod(namespace, "probe", spec.clone()), true).await?;
        anyhow::Ok(Seen::from_option((answer.is_done() == wanted).then_some(()), answer.sentence()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn enforcement_stops_and_starts_by_one_command() {
    let (plane, mut processes) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let bare = json!({"tolerations": [{"operator": "Exists"}]});
    processes.kill(Part::Webhook).unwrap();
    created(&admin, "tenant-a", json!({}), false).await;
    created(&admin, "no-tenant", bare.clone(), false).await;

    let (code, text) = croft(&plane, "break-glass on").await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("enforcement is stopped") && text.contains("what still holds"), "{text}");
    created(&admin, "tenant-a", json!({}), true).await;
    created(&admin, "no-tenant", bare.clone(), true).await;

    // Rules on kubelets hold, also after applying the manifests again.
    let install = processes.manifests().join("install");
    plane
        .kubectl(["apply", "--server-side", "--force-conflicts", "-k", install.to_str().unwrap()])
        .await
        .unwrap();
    created(&admin, "tenant-a", json!({}), true).await;
    let stream = Stream::start(attacks::kubelets(&plane).await.unwrap());
    until("attacks", SOON, async || {
        let answered = stream.answered();
        anyhow::Ok(Seen::from_option((answered > 50).then_some(()), answered))
    })
    .await
    .unwrap();
    let tally = stream.stop().await;
    assert!(tally.is_clean(), "{:?}", tally.breaches);

    let (code, text) = croft(&plane, "break-glass off").await.unwrap();
    assert_eq!(code, 0, "{text}");
    created(&admin, "tenant-a", json!({}), false).await;
    created(&admin, "no-tenant", bare, false).await;
    processes.resume(&plane, Part::Webhook).await.unwrap();
    settled(&admin).await.unwrap();
}
