//! A matrix of values: every object is valid for the API server, field by field, every pod meets the Pod Security level of
//! its namespace, and every argument is one that its process has. Values that can't be meant are refused.

use std::{collections::BTreeMap, process::Command};

use croft_testkit::{
    Component, ControlPlane, CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::SOON,
    manifests::{cert_manager, prometheus_operator},
};
use serde_json::{Value, json};

use super::render::{chart, deployment, helm, name, objects, rendered, text};

/// A namespace that enforces Pod Security `restricted`, and one for pods on the node's network.
const RESTRICTED: &str = "platform";
const PRIVILEGED: &str = "on-nodes";

const EVERYTHING: &str = r#"
alerts: {enabled: true, labels: {release: prometheus}, runbooks: "https://runbooks.example/croft"}
certificates: {secretName: another-secret}
config: {nonTenantPods: Reject, sharedWith: [agents], limits: {nodes: 20, costPerHour: "12.5"}}
dashboards: {enabled: true, annotations: {grafana_folder: Croft}, labels: {grafana_dashboard: "1"}}
imagePullSecrets: [{name: pull}]
imageRegistry: registry.example:5000/team
labels: {team: platform}
scrapers: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}, podSelector: {matchLabels: {app.kubernetes.io/name: prometheus}}}, {ipBlock: {cidr: 10.1.0.0/16}}]
serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}
controller:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: role, operator: In, values: [system]}]
        - matchFields: [{key: metadata.name, operator: In, values: [n-1]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/name: croft-controller}}}}
  args: [--effort=2]
  env: [{name: HTTPS_PROXY, valueFrom: {configMapKeyRef: {name: proxy, key: url, optional: true}}}]
  envFrom: [{secretRef: {name: more, optional: true}}]
  image: {tag: v1, pullPolicy: Always}
  podAnnotations: {prometheus.io/scrape: "false"}
  podDisruptionBudget: {maxUnavailable: 50%}
  podLabels: {color: green}
  priorityClassName: ""
  replicas: 1
  serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/croft"}}
  settings: {awsRegion: eu-central-1, clusterName: prod, interruptionQueue: croft, log: "info,croft=debug", prefixDelegation: true}
  tolerations: [{key: CriticalAddonsOnly, operator: Exists}]
  topologySpreadConstraints: []
  volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch, emptyDir: {}}]
webhook:
  image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
  networkPolicy: {apiServers: [10.0.0.0/24]}
  nodeSelector: {kubernetes.io/os: linux, role: system}
  replicas: 2
  settings: {drain: 30, maxInflightBytes: 33554432, clientName: [a, b], clientCa: /etc/clients/ca.crt}
  topologySpreadConstraints:
  - {maxSkew: 2, topologyKey: example.com/rack, whenUnsatisfiable: DoNotSchedule}
"#;

/// Name, namespace, and arguments of helm; `EVERYTHING` stands for the file with these values.
const MATRIX: [(&str, &str, &[&str]); 13] = [
    ("defaults", RESTRICTED, &[]),
    ("everything", RESTRICTED, &["EVERYTHING"]),
    ("alerts", RESTRICTED, &["--set=alerts.enabled=true"]),
    ("dashboards", RESTRICTED, &["--set=dashboards.enabled=true"]),
    ("the namespace as well", "croft-system", &["--set=createNamespace=true"]),
    ("a namespace of digits", "1234", &["--set=createNamespace=true"]),
    ("cert-manager", RESTRICTED, &["--set=certificates.mode=cert-manager"]),
    (
        "cert-manager with an issuer",
        RESTRICTED,
        &[
            "--set=certificates.mode=cert-manager,certificates.certManager.issuerRef.name=a,certificates.certManager.issuerRef.kind=ClusterIssuer",
        ],
    ),
    ("files", RESTRICTED, &["--set=certificates.mode=files,certificates.secretName=mine"]),
    (
        "files without an authority",
        RESTRICTED,
        &["--set=certificates.mode=files,certificates.registerAuthority=false"],
    ),
    (
        "webhook on the node's network",
        PRIVILEGED,
        &["--set=webhook.hostNetwork=true,webhook.ports.reviews=9443"],
    ),
    (
        "both on the node's network",
        PRIVILEGED,
        &["--set=webhook.hostNetwork=true,controller.hostNetwork=true,controller.ports.health=8082"],
    ),
    (
        "IPv6, without NetworkPolicies and spread",
        RESTRICTED,
        &[
            "--set=listenAddress=[::],webhook.networkPolicy.enabled=false,controller.networkPolicy.enabled=false,webhook.topologySpreadConstraints=null",
        ],
    ),
];

async fn start() -> ControlPlane {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    let crds = helm(&["template", "crds", chart("croft-crds").to_str().unwrap()]).unwrap();
    plane.apply(&[crds.as_str(), &cert_manager(), &prometheus_operator()].join("\n---\n")).await.unwrap();
    plane.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await.unwrap();
    for (namespace, level) in [
        (RESTRICTED, "restricted"),
        (PRIVILEGED, "privileged"),
        ("croft-system", "restricted"),
        ("1234", "restricted"),
    ] {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let mut manifests = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}),
        ];
        for account in ["croft-controller", "croft-webhook"] {
            // Pods are created by dry run, for which their ServiceAccount must exist.
            let metadata = json!({"name": account, "namespace": namespace});
            manifests.push(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
        }
        plane.apply(&croft_tests::manifests::joined(&manifests)).await.unwrap();
    }
    plane
}

async fn dry_run(plane: &ControlPlane, manifests: &str) -> String {
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-o",
        "name",
        "-f",
        "-",
    ];
    // The API server serves a custom resource a moment after accepting its definition.
    until("the manifests to be valid", SOON, async || {
        let answer = plane.kubectl_with(arguments, manifests).await;
        let retry = answer.as_ref().is_err_and(|error| error.to_string().contains("no matches for kind"));
        Ok::<_, String>(if retry {
            Seen::NotYet("a kind isn't served yet".to_owned())
        } else {
            Seen::Yes(answer)
        })
    })
    .await
    .unwrap()
    .unwrap()
}

/// The process takes the container's arguments and variables: it gets as far as the kubeconfig, which doesn't exist here; bad
/// arguments end it with another exit code. Its help names the variables.
fn understood(options: &CroftOptions, process: &str, container: &Value, case: &str) {
    let binary = options.binaries.join(format!("croft-{process}"));
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let variables = container["env"].as_array().into_iter().flatten();
    let variables: Vec<(&str, &str)> = variables
        .map(|variable| (text(variable, "/name"), text(variable, "/value")))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let run = |further: &[&str]| {
        let output = Command::new(&binary)
            .args(&arguments)
            .args(further)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = run(&["--kubeconfig=/nowhere/kubeconfig"]);
    assert!(code == Some(1) && said.contains("/nowhere/kubeconfig"), "{case}: {process}: {said}");
    let (_, help) = run(&["--help"]);
    for (name, _) in &variables {
        assert!(help.contains(&format!("[env: {name}=")), "{case}: {process} reads no {name}");
    }
}

#[tokio::test]
async fn every_value_of_the_matrix_renders_valid_objects_that_the_processes_understand() {
    let (plane, options) = (start().await, CroftOptions::find().unwrap());
    let mut everything = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut everything, EVERYTHING.as_bytes()).unwrap();
    let path = everything.path().to_str().unwrap().to_owned();
    for (case, namespace, arguments) in MATRIX {
        let arguments =
            if arguments == ["EVERYTHING"] { vec!["-f", path.as_str()] } else { arguments.to_vec() };
        let text_of_all = rendered(namespace, &arguments).unwrap_or_else(|error| panic!("{case}: {error}"));
        let all = objects(&text_of_all);
        let answers = dry_run(&plane, &text_of_all).await;
        assert_eq!(answers.lines().count(), all.len(), "{case}: {answers}");
        for object in &all {
            let inside = object.pointer("/metadata/namespace").is_some_and(|found| found != namespace);
            assert!(!inside, "{case}: {} is in another namespace", name(object));
            assert_eq!(
                text(object, "/metadata/labels/app.kubernetes.io~1part-of"),
                "croft",
                "{case}: {}",
                name(object)
            );
        }
        for process in ["controller", "webhook"] {
            let template = deployment(&all, process)["spec"]["template"].clone();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                "metadata": {"name": process, "namespace": namespace, "labels": template["metadata"]["labels"]},
            });
            dry_run(&plane, &pod.to_string()).await;
            understood(&options, process, &template["spec"]["containers"][0], case);
            // The controller terminates nodes of pools, whatever else decides where it runs.
            if process == "controller" {
                let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
                let terms = template.pointer(terms).and_then(Value::as_array).unwrap();
                assert!(
                    terms.iter().all(|term| term["matchExpressions"]
                        .to_string()
                        .contains("node-restriction.kubernetes.io/pool")),
                    "{case}: {terms:?}"
                );
            }
        }
    }
}

#[test]
fn bad_values_are_refused_with_their_name() {
    for (argument, said) in [
        ("webhook.replicas=0", "/webhook/replicas"),
        ("webhok.replicas=1", "webhok"),
        ("controller.settings.batchIdl=1s", "batchIdl"),
        ("controller.settings.batchIdle=soon", "/controller/settings/batchIdle"),
        ("certificates.mode=selfmade", "/certificates/mode"),
        ("webhook.networkPolicy.apiServers[0]=api.example", "/webhook/networkPolicy/apiServers"),
        ("webhook.ports.health=8443", "choose two ports"),
        ("webhook.hostNetwork=true,controller.hostNetwork=true", "set controller.ports.health"),
        ("certificates.certManager.issuerRef.name=a", "set certificates.mode to cert-manager"),
        ("webhook.image.digest=sha256:1", "/webhook/image/digest"),
        ("serviceMonitor.enabled=true", "serviceMonitor.enabled needs scrapers"),
        ("scrapers[0].namespace=monitoring", "/scrapers/0"),
    ] {
        let error = rendered("platform", &["--set", argument]).unwrap_err();
        assert!(error.contains(said), "{argument}: {error}");
    }
}

#[tokio::test]
async fn manifests_for_kustomize_declare_what_the_chart_does() {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    let manifests = CroftOptions::find().unwrap().manifests;
    // The ConfigMap of an overlay, and the CRDs, which have a chart of their own.
    let by_name = |text: &str| -> BTreeMap<String, Value> {
        let all = objects(text).into_iter().map(without_overlay);
        let all = all.map(|object| (name(&object), object));
        all.filter(|(name, _)| {
            !name.starts_with("CustomResourceDefinition") && !name.starts_with("ConfigMap")
        })
        .collect()
    };
    for (folder, mode) in [("deploy", "self"), ("overlays/cert-manager", "cert-manager")] {
        let built = plane.kubectl(["kustomize", manifests.join(folder).to_str().unwrap()]).await.unwrap();
        let arguments = ["--set=createNamespace=true", &format!("--set=certificates.mode={mode}")];
        let (built, wanted) = (by_name(&built), by_name(&rendered("croft-system", &arguments).unwrap()));
        assert_eq!(built.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{folder}");
        for (name, object) in &wanted {
            assert_eq!(&built[name], object, "{folder}: {name}");
        }
    }
}

/// The object without what an overlay merges into the controller's environment.
fn without_overlay(mut object: Value) -> Value {
    if let Some(container) =
        object.pointer_mut("/spec/template/spec/containers/0").and_then(Value::as_object_mut)
    {
        container.remove("envFrom");
    }
    object
}
