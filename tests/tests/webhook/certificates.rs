//! Certificates from cert-manager, in files, and of the API servers themselves. Their errors are written to the
//! replica's Lease, from which the controller copies them into the Tenants' conditions.

use std::{fs, net::SocketAddr, os::unix::fs::symlink, path::Path, time::Duration};

use croft_policy::definitions::CERTIFICATE_ERROR_ANNOTATION;
use croft_runtime::{
    certificate::bundle::{self, Rotation},
    tls,
};
use croft_testkit::{
    Authority, Component, ControlPlane, Croft, CroftOptions, Identity, Options,
    reviewer::{self, Reviewer, Trust},
    wait::{Seen, until},
};
use croft_tests::{pods, replicas::Replicas};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        coordination::v1::Lease,
        core::v1::{Pod, Secret},
    },
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

const TENANT: &str = "
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: a}
spec: {namespaces: [tenant-a], pools: [pool-a]}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: tenant-a}
";

async fn plane(options: Options) -> (ControlPlane, Client) {
    croft_runtime::process::install_crypto();
    let options = options
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    plane.apply(TENANT).await.unwrap();
    let client = plane.admin().await.unwrap();
    (plane, client)
}

/// The authority that API servers trust, as cert-manager's injector writes it.
async fn inject(client: &Client, bundle: &str) {
    let bundle = ByteString(bundle.as_bytes().to_vec());
    let params = kube::api::PostParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    until("the caBundles written", SOON, async || {
        // The webhook writes into them too.
        let mut one = mutating.get("croft-webhook").await?;
        one.webhooks
            .iter_mut()
            .flatten()
            .for_each(|hook| hook.client_config.ca_bundle = Some(bundle.clone()));
        let mut other = validating.get("croft-webhook").await?;
        other
            .webhooks
            .iter_mut()
            .flatten()
            .for_each(|hook| hook.client_config.ca_bundle = Some(bundle.clone()));
        let there = one.webhooks.is_some() && other.webhooks.is_some();
        let written = there
            && mutating.replace("croft-webhook", &params, &one).await.is_ok()
            && validating.replace("croft-webhook", &params, &other).await.is_ok();
        Ok::<_, kube::Error>(Seen::from_option(written.then_some(()), "no webhooks, or a conflict"))
    })
    .await
    .unwrap();
}

/// The Secret as cert-manager writes it.
async fn issue(client: &Client, identity: &Identity, authority: &str) {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let secret: Value = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {
            "name": "croft-webhook-tls",
            "annotations": {
                "cert-manager.io/alt-names": "", "cert-manager.io/ip-sans": "127.0.0.1",
                "cert-manager.io/certificate-name": "croft-webhook", "cert-manager.io/issuer-kind": "Issuer",
                "cert-manager.io/issuer-name": "croft-webhook"},
            "labels": {"controller.cert-manager.io/fao": "true"},
        },
        "data": {"ca.crt": bytes(authority), "tls.crt": bytes(&identity.certificate), "tls.key": bytes(&identity.key)},
    });
    let api: Api<Secret> = Api::namespaced(client.clone(), "croft-system");
    let params = PatchParams::apply("cert-manager-certificates-issuing").force();
    api.patch("croft-webhook-tls", &params, &Patch::Apply(&secret)).await.unwrap();
}

async fn until_pinned(client: &Client) {
    let api: Api<Pod> = Api::namespaced(client.clone(), "tenant-a");
    until("pods to be pinned", SOON, async || {
        let seen = match pods::create(&api).await {
            Ok(pod) if pods::selects(&pod, "node-pool", "pool-a") => return Ok(Seen::Yes(())),
            Ok(_) => "unpinned".to_owned(),
            Err(error) => error.to_string(),
        };
        Ok::<_, kube::Error>(Seen::NotYet(seen))
    })
    .await
    .unwrap();
}

async fn until_served(address: SocketAddr, identity: &Identity) {
    let held = tls::certificates("certificate", &identity.certificate).unwrap();
    until("the certificate to be served", SOON, async || {
        let served = reviewer::presented(address).await?;
        Ok::<_, std::io::Error>(Seen::from_option((held[0].as_ref() == served).then_some(()), "another"))
    })
    .await
    .unwrap();
}

/// Waits until one of the replicas reports this error on its Lease: the leader, which may change meanwhile.
async fn until_one_said(client: &Client, replicas: &[String], part: &str) {
    let api: Api<Lease> = Api::namespaced(client.clone(), "croft-system");
    until(&format!("a replica to say {part:?}"), SOON, async || {
        let mut said = Vec::new();
        for replica in replicas {
            let lease = api.get_opt(replica).await?;
            said.extend(
                lease
                    .and_then(|l| l.metadata.annotations)
                    .and_then(|mut a| a.remove(CERTIFICATE_ERROR_ANNOTATION)),
            );
        }
        let found = said.iter().any(|said| said.contains(part));
        Ok::<_, kube::Error>(Seen::from_option(found.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
}

/// Waits until a replica reports this error, or none, on its Lease.
async fn until_said(client: &Client, replica: &str, part: Option<&str>) {
    let api: Api<Lease> = Api::namespaced(client.clone(), "croft-system");
    until(&format!("{replica} to say {part:?}"), SOON, async || {
        let lease = api.get_opt(replica).await?;
        let said = lease
            .and_then(|l| l.metadata.annotations)
            .and_then(|mut a| a.remove(CERTIFICATE_ERROR_ANNOTATION));
        let right = match (part, &said) {
            (None, None) => true,
            (Some(part), Some(said)) => said.contains(part),
            _ => false,
        };
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
}

/// An expired certificate.
fn expired() -> Identity {
    let then = "2024-01-01T00:00:00Z".parse().unwrap();
    let made =
        bundle::next_bundle(None, &["127.0.0.1".to_owned()], &Rotation::default(), None, then).unwrap();
    let identity = made.identity();
    Identity { certificate: identity.chain_pem.clone(), key: identity.key_pem.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn cert_managers_secret_is_reloaded_and_its_errors_are_named() {
    let (plane, client) = plane(Options::default()).await;
    let first = Authority::new("first").unwrap();
    let leaf = first.server("croft-webhook", &[]).unwrap();
    // The overlay for cert-manager leaves the Secret to it, and its type, which is immutable.
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "croft-system");
    secrets.delete("croft-webhook-tls", &DeleteParams::default()).await.unwrap();
    issue(&client, &leaf, first.certificate()).await;
    let mut replicas = Replicas::new(&plane, &["--drain=1", "--tls-mode=cert-manager"]).await.unwrap();
    // The injector finds the webhooks once a replica has written them.
    let one = replicas.add(&plane).await.unwrap();
    inject(&client, first.certificate()).await;
    let names = [one, replicas.add(&plane).await.unwrap()];
    until_pinned(&client).await;
    let addresses: Vec<SocketAddr> = names.iter().map(|name| replicas.addresses(name).unwrap().0).collect();

    // Renewed: another leaf with another key, of the same authority.
    let renewed = first.server("croft-webhook", &[]).unwrap();
    issue(&client, &renewed, first.certificate()).await;
    for address in &addresses {
        until_served(*address, &renewed).await;
    }
    until_pinned(&client).await;

    // Another authority, which API servers learn of first, as the injector's bundle has both.
    let second = Authority::new("second").unwrap();
    let moved = second.server("croft-webhook", &[]).unwrap();
    inject(&client, &format!("{}{}", first.certificate(), second.certificate())).await;
    issue(&client, &moved, second.certificate()).await;
    for address in &addresses {
        until_served(*address, &moved).await;
    }
    until_pinned(&client).await;

    // A leaf that API servers don't trust: the leading replica reports it until the injector has updated the bundle.
    let third = Authority::new("third").unwrap();
    let strange = third.server("croft-webhook", &[]).unwrap();
    issue(&client, &strange, third.certificate()).await;
    until_one_said(&client, &names, "API servers don't trust the certificate in use").await;
    inject(&client, third.certificate()).await;
    for name in &names {
        until_said(&client, name, None).await;
    }
    until_pinned(&client).await;

    // A key that doesn't match the certificate: the old one is still served, and the error is reported.
    let torn = Identity { key: leaf.key.clone(), ..third.server("croft-webhook", &[]).unwrap() };
    issue(&client, &torn, third.certificate()).await;
    for name in &names {
        until_said(&client, name, Some("can't be used")).await;
    }
    until_pinned(&client).await;

    // An expired certificate: no replica is ready with it, and each reports why.
    issue(&client, &expired(), third.certificate()).await;
    for name in &names {
        until_said(&client, name, Some("is valid from 2023-12-31")).await;
        let (_, health) = replicas.addresses(name).unwrap();
        let answer = croft_testkit::http::get(health, "/readyz").await.unwrap();
        assert!(answer.status == 503 && answer.body.contains("[-] certificate"), "{}", answer.body);
    }
    issue(&client, &strange, third.certificate()).await;
    for name in &names {
        until_said(&client, name, None).await;
    }
    until_pinned(&client).await;
}

/// Replaces the folder's files as a kubelet does: a new folder, and one symlink that changes atomically.
fn mount(folder: &Path, version: u32, identity: &Identity, authority: &str) {
    let fresh = format!("..version-{version}");
    fs::create_dir(folder.join(&fresh)).unwrap();
    for (name, text) in
        [("tls.crt", identity.certificate.as_str()), ("tls.key", &identity.key), ("ca.crt", authority)]
    {
        fs::write(folder.join(&fresh).join(name), text).unwrap();
        if version == 1 {
            symlink(format!("..data/{name}"), folder.join(name)).unwrap();
        }
    }
    symlink(&fresh, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_files_are_reloaded_through_their_symlink() {
    let (plane, client) = plane(Options::default()).await;
    let folder = plane.folder().join("mounted");
    fs::create_dir(&folder).unwrap();
    let authority = Authority::new("own").unwrap();
    let first = authority.server("croft-webhook", &[]).unwrap();
    mount(&folder, 1, &first, authority.certificate());
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let flags = [
        "--drain=1".to_owned(),
        "--tls-mode=files".to_owned(),
        file("tls-cert", "tls.crt"),
        file("tls-key", "tls.key"),
        file("tls-ca", "ca.crt"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut replicas = Replicas::new(&plane, &flags).await.unwrap();
    let name = replicas.add(&plane).await.unwrap();
    let (address, _) = replicas.addresses(&name).unwrap();
    until_pinned(&client).await;

    let second = authority.server("croft-webhook", &[]).unwrap();
    mount(&folder, 2, &second, authority.certificate());
    until_served(address, &second).await;
    until_pinned(&client).await;

    // Another authority: the webhook writes it into the caBundle itself.
    let other = Authority::new("other").unwrap();
    let third = other.server("croft-webhook", &[]).unwrap();
    mount(&folder, 3, &third, other.certificate());
    until_served(address, &third).await;
    until_pinned(&client).await;
    until_said(&client, &name, None).await;

    // The files are removed: the old certificate is still served, and the error is reported.
    fs::remove_file(folder.join("..data")).unwrap();
    until_said(&client, &name, Some("failed to read")).await;
    until_pinned(&client).await;
    mount(&folder, 4, &third, other.certificate());
    until_said(&client, &name, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_api_servers_connect_if_client_certificates_are_required() {
    let clients = Authority::new("clients").unwrap();
    let shown = clients.client("kube-apiserver", &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let authority = write("clients.crt", clients.certificate());
    let (certificate, key) = (write("client.crt", &shown.certificate), write("client.key", &shown.key));
    let kubeconfig = write(
        "webhooks.kubeconfig",
        &json!({"apiVersion": "v1", "kind": "Config", "users": [
            {"name": "*", "user": {"client-certificate": certificate, "client-key": key}}]})
        .to_string(),
    );
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": kubeconfig}})
    };
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    let admission = write("admission.json", &admission.to_string());
    let flag = format!("--admission-control-config-file={admission}");
    let (plane, client) = plane(Options::default().flag(Component::ApiServer, flag)).await;

    let ca = format!("--client-ca={authority}");
    let mut replicas =
        Replicas::new(&plane, &["--drain=1", &ca, "--client-name=kube-apiserver"]).await.unwrap();
    let name = replicas.add(&plane).await.unwrap();
    let (address, _) = replicas.addresses(&name).unwrap();
    until_pinned(&client).await;

    let hooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let bundle = hooks
        .get("croft-webhook")
        .await
        .unwrap()
        .webhooks
        .unwrap()
        .remove(0)
        .client_config
        .ca_bundle
        .unwrap();
    let bundle = String::from_utf8(bundle.0).unwrap();
    let foreign = Authority::new("foreign").unwrap().client("kube-apiserver", &[]).unwrap();
    let named = clients.client("another-user", &[]).unwrap();
    let trust = |identity: Option<&Identity>| match identity {
        None => Trust::new(&bundle, "127.0.0.1").unwrap(),
        Some(identity) => Trust::with_identity(&bundle, "127.0.0.1", identity).unwrap(),
    };
    for (what, identity, answered) in [
        ("the API server's certificate", Some(&shown), true),
        ("no certificate", None, false),
        ("one of another authority", Some(&foreign), false),
        ("one with another name", Some(&named), false),
    ] {
        // With TLS 1.3 a client learns only while reading that its certificate was refused.
        let asked = async {
            let mut reviewer = Reviewer::connect(address, &trust(identity)).await?;
            reviewer.post("/mutate?timeout=3s", b"{}").await
        };
        assert_eq!(asked.await.is_ok(), answered, "{what}");
    }
    until_pinned(&client).await;
}
