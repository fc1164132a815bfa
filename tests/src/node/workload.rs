//! Installs Croft by its manifests, with an overlay as their README has it, and two tenants.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use croft_testkit::{
    ControlPlane, CroftOptions, Process, Recipe, http,
    wait::{Seen, until},
};

use crate::node::{Parts, network::FIRST};

/// Where ec2-sim listens.
pub const CLOUD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(FIRST), 4599);
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// Starts ec2-sim, on the address that pods reach.
///
/// # Errors
/// If it doesn't start, with the end of its log.
pub async fn cloud(plane: &ControlPlane, parts: &Parts) -> anyhow::Result<Process> {
    let (certificate, key) = plane.authority_files();
    let recipe = Recipe::new("ec2-sim", parts.binaries.join("ec2-sim"), plane.log("ec2-sim"))
        .arguments([format!("--listen={CLOUD}"), format!("--apiserver={}", plane.url())])
        .arguments([
            format!("--node-ca-cert={}", certificate.display()),
            format!("--node-ca-key={}", key.display()),
        ]);
    let mut process = plane.spawn(&recipe)?;
    until("ec2-sim", STARTED_WITHIN, || async {
        let answer = http::get(CLOUD, "/_control/state").await?;
        Ok::<_, croft_testkit::Error>(Seen::from_option((answer.status == 200).then_some(()), answer.status))
    })
    .await?;
    process.check()?;
    Ok(process)
}

/// Installs Croft: the overlay that manifests/deploy/README.md describes, two replicas of the webhook, and EC2 at
/// [`CLOUD`]. Waits until every replica is available.
///
/// # Errors
/// If a manifest is refused, or a Deployment doesn't become available.
pub async fn install(plane: &ControlPlane) -> anyhow::Result<PathBuf> {
    let manifests = CroftOptions::find()?.manifests;
    // kustomize takes bases by relative paths only.
    copy(&manifests, &plane.folder().join("manifests"))?;
    let overlay = plane.folder().join("overlay");
    fs::create_dir_all(&overlay)?;
    // The name of the cloud is resolved by /etc/hosts of the pod: the image has to resolve names.
    let kustomization = format!(
        r"apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../manifests/deploy]
replicas:
- {{name: croft-webhook, count: 2}}
configMapGenerator:
- name: croft-controller-settings
  namespace: croft-system
  behavior: merge
  literals:
  - CLUSTER_NAME=croft
  - AWS_REGION=us-east-1
  - AWS_ENDPOINT_URL=http://ec2.test.internal:{port}
  - AWS_ACCESS_KEY_ID=test
  - AWS_SECRET_ACCESS_KEY=test
  - AWS_EC2_METADATA_DISABLED=true
patches:
- target: {{kind: Deployment, name: croft-controller}}
  patch: |
    - {{op: add, path: /spec/template/spec/hostAliases, value: [{{ip: {address}, hostnames: [ec2.test.internal]}}]}}
",
        port = CLOUD.port(),
        address = CLOUD.ip(),
    );
    fs::write(overlay.join("kustomization.yaml"), kustomization)?;
    let path = overlay.display().to_string();
    // The Namespace and the CRDs have to be known before what is in them: applied again, nothing is missing.
    until("the manifests to be accepted", STARTED_WITHIN, || async {
        plane.kubectl(["apply", "--server-side", "--force-conflicts", "-k", &path]).await.map(Seen::Yes)
    })
    .await?;
    Ok(overlay)
}

/// Waits until every replica of a Deployment of Croft is available, of its newest revision.
///
/// # Errors
/// If it isn't in time.
pub async fn until_rolled_out(plane: &ControlPlane, deployment: &str) -> anyhow::Result<()> {
    let target = format!("deployment/{deployment}");
    let arguments = ["rollout", "status", "--namespace=croft-system", "--timeout=180s", &target];
    plane.kubectl(arguments).await.map(drop).with_context(|| format!("{deployment} didn't become available"))
}

/// The two tenants of the example. Waits until their pods run on nodes that Croft launched.
///
/// # Errors
/// If a manifest is refused, or a pod doesn't run.
pub async fn tenants(plane: &ControlPlane) -> anyhow::Result<()> {
    let example = plane.folder().join("manifests/examples/two-tenants");
    let path = |file: &str| example.join(file).display().to_string();
    plane.kubectl(["apply", "--server-side", "-f", &path("platform.yaml")]).await?;
    plane.kubectl(["wait", "--for=condition=Ready", "--timeout=120s", "tenant", "--all"]).await?;
    plane.kubectl(["apply", "--server-side", "-f", &path("workloads.yaml")]).await?;
    for (namespace, deployment) in [("tenant-a", "web"), ("tenant-a", "api"), ("tenant-b", "workers")] {
        let (namespace, target) = (format!("--namespace={namespace}"), format!("deployment/{deployment}"));
        plane.kubectl(["rollout", "status", "--timeout=180s", &namespace, &target]).await?;
    }
    Ok(())
}

/// One more pod than the tenant's nodes have room for. Waits until it runs.
///
/// # Errors
/// If it doesn't run.
pub async fn grow(plane: &ControlPlane) -> anyhow::Result<()> {
    let nodes = async || plane.kubectl(["get", "nodes", "-l", "node-pool=pool-b", "-o", "name"]).await;
    let before = nodes().await?.lines().count();
    plane.kubectl(["scale", "--namespace=tenant-b", "deployment/workers", "--replicas=40"]).await?;
    let arguments = ["rollout", "status", "--timeout=180s", "--namespace=tenant-b", "deployment/workers"];
    plane.kubectl(arguments).await?;
    let after = nodes().await?.lines().count();
    anyhow::ensure!(after > before, "40 pods run on {after} nodes, as 3 did: no instance was launched");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
