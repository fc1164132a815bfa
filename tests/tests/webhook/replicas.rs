//! Three replicas behind a Service, under a stream of pod creations through the real API server: whatever happens to
//! replicas and certificates, no review fails and every admitted pod is placed in its pool.

use std::time::Duration;

use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options,
    reviewer::{self, Reviewer, Trust},
    wait,
};
use croft_tests::{
    pods::{self, Stream},
    replicas::Replicas,
};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        coordination::v1::Lease,
        core::v1::{Pod, Secret},
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

const KEY: &str = "node-pool";
const POOL: &str = "pool-a";
const SOON: Duration = Duration::from_secs(60);
/// Longer than the replicas' drain of 3 s, with its grace.
const GRACE: Duration = Duration::from_secs(30);

const TENANTS: &str = "
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: a}
spec: {namespaces: [tenant-a, tenant-late], pools: [pool-a]}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: tenant-a}
";

struct Setup {
    plane: ControlPlane,
    client: Client,
    replicas: Replicas,
    names: Vec<String>,
}

async fn setup(replicas: usize) -> Setup {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    let client = plane.admin().await.unwrap();
    plane.apply(TENANTS).await.unwrap();
    let mut replicas_of = Replicas::new(&plane, &["--drain=3", "--ca-propagation-delay=2"]).await.unwrap();
    let mut names = Vec::new();
    for _ in 0..replicas {
        names.push(replicas_of.add(&plane).await.unwrap());
    }
    let setup = Setup { plane, client, replicas: replicas_of, names };
    setup.until_pinned().await;
    setup
}

impl Setup {
    /// Waits until the API server calls the webhook and trusts it.
    async fn until_pinned(&self) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "tenant-a");
        wait::until("pods to be pinned", SOON, || async {
            let pod = pods::create(&pods).await?;
            Ok::<_, kube::Error>(wait::Seen::from_option(
                pods::selects(&pod, KEY, POOL).then_some(()),
                "unpinned",
            ))
        })
        .await
        .unwrap();
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "croft-system")
    }

    async fn held(&self, key: &str) -> Vec<u8> {
        let secret = self.secrets().get("croft-webhook-tls").await.unwrap();
        secret.data.unwrap_or_default().remove(key).unwrap_or_default().0
    }

    /// Applies the manifests' Secret, as an upgrade does.
    async fn apply_secret(&self) {
        let file = CroftOptions::find().unwrap().manifests.join("install/secret.yaml");
        self.plane
            .kubectl(["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()])
            .await
            .unwrap();
    }

    /// Waits until a replica serves the Secret's certificate to a client that trusts the API server's bundle.
    async fn until_served(&self, name: &str, certificate: &[u8]) {
        let (address, _) = self.replicas.addresses(name).unwrap();
        let certificate = String::from_utf8(certificate.to_vec()).unwrap();
        let trust = Trust::new(&certificate, "127.0.0.1");
        assert!(trust.is_ok(), "{certificate}");
        wait::until("the new certificate to be served", SOON, || async {
            let served = served(address).await?;
            let held = croft_runtime::tls::certificates("certificate", &certificate)?;
            let same = held.first().is_some_and(|held| held.as_ref() == served.as_slice());
            Ok::<_, anyhow::Error>(wait::Seen::from_option(same.then_some(()), "the old one"))
        })
        .await
        .unwrap();
    }

    async fn rotate(&self, what: &str) {
        let patch = json!({"metadata": {"annotations": {"croft.dev/rotate": what}}});
        self.secrets()
            .patch("croft-webhook-tls", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn bundle(&self) -> String {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = api.get("croft-webhook").await.unwrap();
        let config = found.webhooks.unwrap().remove(0).client_config;
        String::from_utf8(config.ca_bundle.unwrap().0).unwrap()
    }
}

/// The leaf certificate of a server, from any issuer.
async fn served(address: std::net::SocketAddr) -> anyhow::Result<Vec<u8>> {
    Ok(reviewer::presented(address).await?)
}

fn started() {
    croft_runtime::process::install_crypto();
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_under_load_fails_no_review() {
    started();
    let mut setup = setup(3).await;
    let stream = Stream::start(&setup.client, 8, "tenant-a", KEY, POOL);
    stream.pass(100).await;
    for old in std::mem::take(&mut setup.names) {
        setup.replicas.add(&setup.plane).await.unwrap();
        stream.pass(50).await;
        setup.replicas.terminate(&old, GRACE).await.unwrap();
        stream.pass(50).await;
    }
    let tally = stream.stop().await;
    assert!(tally.wrong.is_empty(), "{} of {}: {:#?}", tally.wrong.len(), tally.right, tally.wrong);
    assert!(tally.right >= 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_rotate_under_load_and_broken_ones_are_repaired() {
    started();
    let setup = setup(2).await;
    let stream = Stream::start(&setup.client, 4, "tenant-a", KEY, POOL);
    stream.pass(50).await;

    // A new leaf of the same authority.
    let (leaf, authority) = (setup.held("tls.crt").await, setup.held("ca.crt").await);
    setup.rotate("leaf").await;
    let changed = until_other(&setup, "tls.crt", &leaf).await;
    assert_eq!(setup.held("ca.crt").await, authority);
    for name in &setup.names {
        setup.until_served(name, &changed).await;
    }
    stream.pass(50).await;

    // A new authority: trusted first, then used.
    setup.rotate("authority").await;
    let bundle = until_other(&setup, "ca.crt", &authority).await;
    assert!(String::from_utf8(bundle).unwrap().matches("BEGIN").count() == 2, "old and new are trusted");
    let signed = until_other(&setup, "tls.crt", &changed).await;
    for name in &setup.names {
        setup.until_served(name, &signed).await;
    }
    assert_eq!(setup.bundle().await.into_bytes(), setup.held("ca.crt").await);
    stream.pass(50).await;
    let tally = stream.stop().await;
    assert!(tally.wrong.is_empty(), "{} of {}: {:#?}", tally.wrong.len(), tally.right, tally.wrong);

    // A user replaces the Secret by another authority's certificate, and empties the caBundle.
    let foreign = croft_runtime::certificate::bundle::next_bundle(
        None,
        &["127.0.0.1".to_owned()],
        &croft_runtime::certificate::bundle::Rotation::default(),
        None,
        "2026-01-01T00:00:00Z".parse().unwrap(),
    )
    .unwrap();
    let mut secret = setup.secrets().get("croft-webhook-tls").await.unwrap();
    let data = secret.data.as_mut().unwrap();
    data.insert("tls.crt".to_owned(), ByteString(foreign.identity().chain_pem.clone().into_bytes()));
    data.insert("tls.key".to_owned(), ByteString(foreign.identity().key_pem.clone().into_bytes()));
    setup.secrets().replace("croft-webhook-tls", &Default::default(), &secret).await.unwrap();
    until_other(&setup, "tls.crt", foreign.identity().chain_pem.as_bytes()).await;
    setup.until_pinned().await;

    // The Secret is emptied: a new authority is created.
    let before = setup.held("ca.crt").await;
    let empty = Patch::Merge(json!({"data": null}));
    setup.secrets().patch("croft-webhook-tls", &PatchParams::default(), &empty).await.unwrap();
    let refilled = until_other(&setup, "ca.crt", &before).await;
    setup.until_pinned().await;

    // The Secret is deleted: the served certificate is kept, and the manifests create the Secret again.
    setup.secrets().delete("croft-webhook-tls", &Default::default()).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(setup.client.clone(), "croft-system");
    let name = setup.names.first().unwrap();
    wait::until("the missing Secret to be reported", SOON, || async {
        let said = leases.get(name).await?.metadata.annotations.unwrap_or_default();
        let missing = said.values().any(|text| text.contains("the Secret croft-webhook-tls isn't there"));
        Ok::<_, kube::Error>(wait::Seen::from_option(missing.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
    setup.until_pinned().await;
    setup.apply_secret().await;
    until_other(&setup, "ca.crt", &refilled).await;
    setup.until_pinned().await;

    // The manifests are applied again: the webhook's certificate is kept.
    let held = setup.held("tls.key").await;
    setup.apply_secret().await;
    assert_eq!(setup.held("tls.key").await, held);
    setup.until_pinned().await;

    // A user empties a caBundle.
    let api: Api<MutatingWebhookConfiguration> = Api::all(setup.client.clone());
    let mut found = api.get("croft-webhook").await.unwrap();
    for hook in found.webhooks.iter_mut().flatten() {
        hook.client_config.ca_bundle = None;
    }
    api.replace("croft-webhook", &Default::default(), &found).await.unwrap();
    wait::until("the caBundle to be written again", SOON, || async {
        let found = api.get("croft-webhook").await?;
        let full = found.webhooks.iter().flatten().all(|hook| hook.client_config.ca_bundle.is_some());
        Ok::<_, kube::Error>(wait::Seen::from_option(full.then_some(()), "empty"))
    })
    .await
    .unwrap();
    setup.until_pinned().await;
}

async fn until_other(setup: &Setup, key: &str, old: &[u8]) -> Vec<u8> {
    wait::until("the Secret to change", SOON, || async {
        let held = setup.held(key).await;
        let other = (!held.is_empty() && held != old).then_some(held);
        Ok::<_, kube::Error>(wait::Seen::from_option(other, "the old value"))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_from_cache_without_an_api_server() {
    started();
    let mut setup = setup(1).await;
    let name = setup.names.first().unwrap().clone();
    let (address, health) = setup.replicas.addresses(&name).unwrap();
    let trust = Trust::new(&setup.bundle().await, "127.0.0.1").unwrap();
    let mut reviewer = Reviewer::connect(address, &trust).await.unwrap();
    let review = review("tenant-a");
    let before = reviewer.post("/mutate?timeout=3s", &review).await.unwrap();
    assert!(String::from_utf8_lossy(&before.1).contains("\"patch\""));

    setup.plane.kill(Component::ApiServer).unwrap();
    setup.plane.kill(Component::Etcd).unwrap();
    for _ in 0..20 {
        assert_eq!(reviewer.post("/mutate?timeout=3s", &review).await.unwrap(), before);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut fresh = Reviewer::connect(address, &trust).await.unwrap();
    assert_eq!(fresh.post("/mutate?timeout=3s", &review).await.unwrap(), before);
    assert_eq!(croft_testkit::http::get(health, "/readyz").await.unwrap().status, 200);
    let (status, body) = fresh.post("/mutate?timeout=1s", &self::review("never-seen")).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &answer["response"]["status"]["code"]),
        (200, &json!(503)),
        "refused for now, never guessed"
    );

    setup.plane.resume(Component::Etcd).await.unwrap();
    setup.plane.resume(Component::ApiServer).await.unwrap();
    setup.until_pinned().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_and_first_pod_created_together_are_admitted() {
    started();
    let setup = setup(1).await;
    let pods: Api<Pod> = Api::namespaced(setup.client.clone(), "tenant-late");
    setup
        .plane
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant-late}}\n---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: tenant-late}}")
        .await
        .unwrap();
    let pod = pods::create(&pods).await.unwrap();
    assert!(pods::selects(&pod, KEY, POOL), "{:?}", pod.spec);
}

fn review(namespace: &str) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": namespace, "operation": "CREATE",
        "userInfo": {"username": "someone"}, "object": {"metadata": {"name": "p"}, "spec": {}}, "dryRun": false}})
    .to_string()
    .into_bytes()
}
