//! The installation of `kubectl apply -k` on the real API server: it is accepted, its pods meet the namespace's pod
//! security level, and the binaries know every flag, port and path in it.

use std::{collections::BTreeSet, process::Command};

use clap::Parser as _;
use croft_runtime::kubernetes::OLDEST;
use croft_testkit::{
    Component, ControlPlane, CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{SOON, pods},
    manifests::cert_manager,
};
use croft_webhook::args::{Args, TlsMode};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Client};

const NODES: [(&str, &str); 4] = [("n-1", "z-1"), ("n-2", "z-2"), ("n-3", "z-3"), ("tenants-1", "z-1")];

async fn start() -> (ControlPlane, CroftOptions, Client) {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    for (name, zone) in NODES {
        // The last one belongs to a tenant: Croft doesn't run there.
        let (label, taints) = if name == "tenants-1" {
            (", node-restriction.kubernetes.io/pool: p", "[{key: node-pool, value: p, effect: NoSchedule}]")
        } else {
            ("", "[]")
        };
        plane
            .apply(&format!(
                "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{lab.croft.dev/kubelet: kwok, kubernetes.io/hostname: \
                 {name}, kubernetes.io/os: linux, topology.kubernetes.io/zone: {zone}{label}}}}}, spec: {{taints: {taints}}}, status: \
                 {{capacity: {{cpu: '8', memory: 32Gi, pods: '50'}}, allocatable: {{cpu: '8', memory: 32Gi, pods: '50'}}}}}}"
            ))
            .await
            .unwrap();
    }
    let client = plane.admin().await.unwrap();
    (plane, CroftOptions::find().unwrap(), client)
}

async fn apply(plane: &ControlPlane, folder: &std::path::Path) {
    let arguments = ["apply", "--server-side", "--force-conflicts", "-k", folder.to_str().unwrap()];
    // The API server serves a custom resource a moment after accepting its definition.
    until("the manifests to apply", SOON, async || {
        let applied = plane.kubectl(arguments).await;
        Ok::<_, String>(Seen::from_option(applied.is_ok().then_some(()), format!("{:?}", applied.err())))
    })
    .await
    .unwrap();
}

fn container(deployment: &Deployment) -> Container {
    deployment.spec.clone().unwrap().template.spec.unwrap().containers.remove(0)
}

/// The binary parses its arguments up to `--help`, then exits; its help names the environment variables.
fn help(options: &CroftOptions, binary: &str, arguments: &[String]) -> String {
    let output = Command::new(options.binaries.join(binary)).args(arguments).arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{binary} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one installation, checked step by step")]
async fn installed_manifests_run_and_use_only_known_flags() {
    let (plane, options, client) = start().await;
    apply(&plane, &options.manifests.join("deploy")).await;

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "croft-system");
    for (name, replicas) in [("croft-webhook", 3), ("croft-controller", 2)] {
        until(&format!("{name} to be available"), SOON, async || {
            let status = deployments.get(name).await?.status.unwrap_or_default();
            let seen = format!("{status:?}");
            Ok::<_, kube::Error>(Seen::from_option(
                (status.available_replicas == Some(replicas)).then_some(()),
                seen,
            ))
        })
        .await
        .unwrap();
    }
    // Each replica of the webhook on its own node, and no part of Croft on a tenant's.
    let placed = |name: &str, all: &[k8s_openapi::api::core::v1::Pod]| -> BTreeSet<String> {
        let ours = all.iter().filter(|p| p.metadata.name.as_deref().is_some_and(|n| n.starts_with(name)));
        ours.filter_map(|p| p.spec.as_ref()?.node_name.clone()).collect()
    };
    let all = pods(&client).await.unwrap();
    assert_eq!(placed("croft-webhook-", &all), ["n-1", "n-2", "n-3"].map(str::to_owned).into());
    assert!(!placed("croft-controller-", &all).contains("tenants-1"));

    let webhook = container(&deployments.get("croft-webhook").await.unwrap());
    let arguments = webhook.args.clone().unwrap_or_default();
    let args = Args::try_parse_from(["croft-webhook".to_owned()].iter().chain(&arguments)).unwrap();
    let ports = |container: &Container| -> Vec<(String, u16)> {
        let named = container.ports.iter().flatten();
        named.map(|p| (p.name.clone().unwrap(), u16::try_from(p.container_port).unwrap())).collect()
    };
    assert_eq!(
        ports(&webhook),
        [
            ("reviews".to_owned(), args.listen.port()),
            ("health".to_owned(), args.process.health_listen.port())
        ]
    );
    let grace = deployments.get("croft-webhook").await.unwrap().spec.unwrap().template.spec.unwrap();
    let grace = grace.termination_grace_period_seconds.unwrap();
    assert!(grace.unsigned_abs() > args.drain.as_secs() + 10, "the drain ends before the kubelet's patience");
    let service =
        Api::<Service>::namespaced(client.clone(), "croft-system").get("croft-webhook").await.unwrap();
    let port = service.spec.unwrap().ports.unwrap().remove(0);
    assert_eq!((port.port, args.registration.service.as_str()), (443, "croft-webhook"));

    for (binary, name) in [("croft-webhook", "croft-webhook"), ("croft-controller", "croft-controller")] {
        let container = container(&deployments.get(name).await.unwrap());
        let said = help(&options, binary, container.args.as_deref().unwrap_or_default());
        for variable in container.env.iter().flatten() {
            assert!(
                said.contains(&format!("[env: {}=", variable.name)),
                "{binary} reads no {}",
                variable.name
            );
        }
        for probe in [&container.liveness_probe, &container.readiness_probe, &container.startup_probe] {
            let Some(get) = probe.as_ref().and_then(|probe| probe.http_get.as_ref()) else { continue };
            assert!(["/healthz", "/readyz"].contains(&get.path.as_deref().unwrap_or_default()), "{get:?}");
        }
    }
    let said = help(&options, "croft-controller", &[]);
    let config: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), "croft-system");
    let generated = config.list(&Default::default()).await.unwrap().items.into_iter();
    let generated =
        generated.filter(|c| c.metadata.name.as_deref().is_some_and(|n| n.starts_with("croft-controller-")));
    let variables: Vec<String> = generated.flat_map(|c| c.data.unwrap_or_default().into_keys()).collect();
    assert!(!variables.is_empty());
    for variable in variables {
        assert!(said.contains(&format!("[env: {variable}=")), "croft-controller reads no {variable}");
    }

    // At most one pod may be unavailable.
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "croft-system");
    until("the budgets to be counted", SOON, async || {
        let allowed: Vec<_> = budgets
            .list(&Default::default())
            .await?
            .into_iter()
            .map(|b| b.status.map(|s| s.disruptions_allowed))
            .collect();
        Ok::<_, kube::Error>(Seen::from_option(
            (allowed == [Some(Some(1)), Some(Some(1))]).then_some(()),
            format!("{allowed:?}"),
        ))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn cert_manager_overlay_applies_and_leaves_the_certificate_to_it() {
    let (plane, options, client) = start().await;
    plane.apply(&cert_manager()).await.unwrap();
    apply(&plane, &options.manifests.join("overlays/cert-manager")).await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "croft-system");
    let arguments = container(&deployments.get("croft-webhook").await.unwrap()).args.unwrap();
    let args = Args::try_parse_from(["croft-webhook".to_owned()].iter().chain(&arguments)).unwrap();
    assert_eq!(args.tls.tls_mode, TlsMode::CertManager);
    let get = [
        "get",
        "certificates.cert-manager.io",
        "-n",
        "croft-system",
        "croft-webhook",
        "-o",
        "jsonpath={.spec.secretName} {.spec.dnsNames[0]}",
    ];
    let said = plane.kubectl(get).await.unwrap();
    assert_eq!(
        said.trim(),
        format!("{} {}", args.tls.tls_secret, args.registration.names("croft-system")[0])
    );
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let get = [
            "get",
            kind,
            "croft-webhook",
            "-o",
            "jsonpath={.metadata.annotations.cert-manager\\.io/inject-ca-from}",
        ];
        assert_eq!(plane.kubectl(get).await.unwrap().trim(), "croft-system/croft-webhook");
    }
}

/// An API server of this release that behaves as the oldest supported one, so that it knows only the functions of CEL and
/// the APIs of that time. `make test-compat` has the real one.
#[tokio::test]
async fn manifests_install_on_an_api_server_that_behaves_as_the_oldest_supported_release() {
    let emulated = format!("--emulated-version=kube=1.{}", OLDEST.minor());
    let mut options = Options::default().flag(Component::ApiServer, emulated);
    for component in [Component::ControllerManager, Component::Scheduler, Component::Kubelets] {
        options = options.without(component);
    }
    let plane = ControlPlane::start(options).await.unwrap();
    let install = CroftOptions::find().unwrap().manifests.join("install");
    let arguments = ["apply", "--server-side", "--force-conflicts", "-k", install.to_str().unwrap()];
    let applied = plane.kubectl(arguments).await.unwrap();
    assert!(
        applied.contains("validatingadmissionpolicy.admissionregistration.k8s.io/croft-daemonset-choice"),
        "{applied}"
    );
}
