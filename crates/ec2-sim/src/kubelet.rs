//! The kubelet of a booting instance: it registers a Node.
//!
//! The Node is written with the instance's own identity (`system:node:<private DNS name>`, group `system:nodes`),
//! signed by the cluster's CA like a kubelet's certificate. Labels and taints come only from the user data and from
//! what every kubelet reports. The zone, region and type labels and the providerID, which the cloud controller manager
//! writes in a real cluster, are present from the start, since none runs here. A kubelet that is given a label it may
//! not set exits; no Node appears, and the console says why. The Node is NotReady until KWOK, which selects it by
//! label, plays its kubelet.
//!
//! When an instance ends, its kubelet stops: the label is removed, heartbeats end, and the Node stays until the
//! controller (or a cloud controller manager) deletes it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_cloud::kubelet::may_set_label;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams, PostParams},
    config::AuthInfo,
};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    resources::Instance,
    server::Simulator,
    userdata::{self, KubeletSettings},
    world::{Happening, World},
};

/// The cluster that instances join.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Address of the API server.
    pub url: String,
    /// CA of the API server's certificate, in PEM.
    pub server_ca: String,
    /// CA that signs kubelets' certificates, in PEM.
    pub client_ca: String,
    /// Its key, in PEM.
    pub client_ca_key: String,
    /// The label by which KWOK selects its nodes.
    pub played: (String, String),
    /// Time from `running` to the registration of the Node.
    pub boot: Duration,
    /// Version that the kubelets report.
    pub kubelet_version: String,
}

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The CA can't sign.
    #[error("failed to sign a certificate for {node}: {source}")]
    Certificate {
        /// The node.
        node: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// The API server's address can't be read.
    #[error("failed to read the API server's address {0}")]
    Address(String),
    /// The API server refused.
    #[error("failed to {what} node {node}: {source}")]
    Api {
        /// The attempted request.
        what: &'static str,
        /// The node.
        node: String,
        /// The cause.
        source: Box<kube::Error>,
    },
}

/// Plays the boot and the end of instances until `happenings` closes.
pub async fn run(
    simulator: Arc<Simulator>,
    cluster: Cluster,
    mut happenings: mpsc::UnboundedReceiver<Happening>,
) {
    let cluster = Arc::new(cluster);
    while let Some(happening) = happenings.recv().await {
        let (simulator, cluster) = (Arc::clone(&simulator), Arc::clone(&cluster));
        // Instances boot concurrently; one that can't join delays no other.
        tokio::spawn(async move {
            match happening {
                Happening::Running(id) => {
                    tokio::time::sleep(cluster.boot).await;
                    boot(&simulator, &cluster, &id).await;
                }
                Happening::Gone(id) => stop(&simulator, &cluster, &id).await,
            }
        });
    }
}

async fn boot(simulator: &Simulator, cluster: &Cluster, id: &str) {
    if !simulator.with(|world| world.settings.boots) {
        simulator.with(|world| world.write_console(id, "Kernel panic - not syncing: No working init found."));
        return;
    }
    let Some(plan) = plan(simulator, cluster, id) else { return };
    let name = plan.node.metadata.name.clone().unwrap_or_default();
    // A kubelet retries until the API server accepts it.
    let mut pause = Duration::from_millis(200);
    loop {
        match register(cluster, &plan).await {
            Ok(()) => {
                simulator
                    .with(|world| world.write_console(id, &format!("Successfully registered node {name}")));
                break;
            }
            Err(error) => {
                let line = format!("Unable to register node with API server: {error}");
                tracing::warn!(instance = id, error = %error, "a node could not register");
                simulator.with(|world| world.write_console(id, &line));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
        if simulator.with(|world| world.instance(id).is_none_or(|i| !i.state.is_alive())) {
            return;
        }
    }
    // The instance may have ended between the registration and this point.
    if simulator.with(|world| world.instance(id).is_none_or(|i| !i.state.is_alive())) {
        stop(simulator, cluster, id).await;
    }
}

struct Plan {
    node: Node,
}

/// The Node that an instance will register; `None`, with a line on the console, if its kubelet doesn't start.
fn plan(simulator: &Simulator, cluster: &Cluster, id: &str) -> Option<Plan> {
    simulator.with(|world| {
        let instance = world.instance(id).filter(|i| i.state.is_alive())?.clone();
        let settings = match userdata::read(&instance.data.user_data) {
            Ok(settings) => settings,
            Err(error) => {
                world.write_console(id, &error.to_string());
                return None;
            }
        };
        let refused: Vec<&str> =
            settings.labels.keys().map(String::as_str).filter(|key| !may_set_label(key)).collect();
        if !refused.is_empty() {
            // The message of kubernetes/cmd/kubelet/app/options/options.go.
            let line = format!(
                "Error: failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]",
                refused.join(" ")
            );
            tracing::warn!(instance = id, labels = refused.join(","), "a kubelet exited on its labels");
            world.write_console(id, &line);
            return None;
        }
        if settings.endpoint.trim_end_matches('/') != cluster.url.trim_end_matches('/') {
            let line = format!("Unable to register node with API server: {}: no such host", settings.endpoint);
            tracing::warn!(instance = id, endpoint = settings.endpoint, "an instance was told to join another cluster");
            world.write_console(id, &line);
            return None;
        }
        node_of(world, cluster, id, &instance, &settings).map(|node| Plan { node })
    })
}

/// The Node that the instance's kubelet registers.
fn node_of(
    world: &World,
    cluster: &Cluster,
    id: &str,
    instance: &Instance,
    settings: &KubeletSettings,
) -> Option<Node> {
    let facts = &world.market.entry(&instance.instance_type)?.facts;
    let (capacity, allocatable) = world.node_resources(id)?;
    // A kubelet reports only resources with capacity.
    let quantities = |r: &croft_scheduler::Resources| -> BTreeMap<String, String> {
        r.to_quantities()
            .into_iter()
            .filter(|(name, _)| capacity.get(name) > 0)
            .map(|(name, quantity)| (name, quantity.to_string()))
            .collect()
    };
    let region = world.settings.region.clone();
    let name = instance.dns_name(&region);
    let arch = facts.arch.as_str();
    let mut labels = settings.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
        ("node.kubernetes.io/instance-type", &instance.instance_type),
        ("topology.kubernetes.io/zone", &instance.zone),
        ("topology.kubernetes.io/region", &region),
        (&cluster.played.0, &cluster.played.1),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let now =
        jiff::Timestamp::from_millisecond(i64::try_from(world.now).unwrap_or_default()).ok()?.to_string();
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "providerID": format!("aws:///{}/{id}", instance.zone),
            "taints": settings.taints.iter().map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect})).collect::<Vec<_>>(),
        },
        "status": {
            "capacity": quantities(&capacity),
            "allocatable": quantities(&allocatable),
            "addresses": [
                {"type": "InternalIP", "address": instance.address},
                {"type": "Hostname", "address": name},
                {"type": "InternalDNS", "address": name},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "False", "KubeletNotReady"),
            ],
            "nodeInfo": {
                "architecture": arch, "operatingSystem": "linux", "kubeletVersion": cluster.kubelet_version,
                "kubeProxyVersion": "", "kernelVersion": "6.12.0-simulated", "osImage": "simulated",
                "containerRuntimeVersion": "containerd://2.2.0", "bootID": id, "machineID": id, "systemUUID": id,
            },
        },
    });
    serde_json::from_value(node).ok()
}

async fn register(cluster: &Cluster, plan: &Plan) -> Result<(), JoinError> {
    let name = plan.node.metadata.name.clone().unwrap_or_default();
    let api: Api<Node> = Api::all(client(cluster, &name)?);
    match api.create(&PostParams::default(), &plan.node).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(JoinError::Api { what: "register", node: name, source: Box::new(source) }),
    }
}

async fn stop(simulator: &Simulator, cluster: &Cluster, id: &str) {
    let Some(name) = simulator.with(|world| {
        let region = world.settings.region.clone();
        world.instance(id).map(|instance| instance.dns_name(&region))
    }) else {
        return;
    };
    for pause in [1, 2, 4, 8, 16] {
        let gone: Value = json!({"metadata": {"labels": {cluster.played.0.as_str(): null}}});
        let result = match client(cluster, &name) {
            Ok(client) => {
                let api: Api<Node> = Api::all(client);
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&gone)).await.map(|_| ()).map_err(
                    |source| JoinError::Api {
                        what: "stop the kubelet of",
                        node: name.clone(),
                        source: Box::new(source),
                    },
                )
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => return,
            // It never registered, or its Node was deleted already.
            Err(JoinError::Api { source, .. }) if is_not_found(&source) => return,
            Err(error) => tracing::warn!(instance = id, error = %error, "a kubelet could not be stopped"),
        }
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// A client with the identity of node `name`.
fn client(cluster: &Cluster, name: &str) -> Result<Client, JoinError> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let failed = |source| JoinError::Certificate { node: name.to_owned(), source };
    let ca_key = KeyPair::from_pem(&cluster.client_ca_key).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&cluster.client_ca, ca_key).map_err(failed)?;
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, format!("system:node:{name}"));
    params.distinguished_name = subject;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    let url = cluster.url.parse().map_err(|_| JoinError::Address(cluster.url.clone()))?;
    let mut config = Config::new(url);
    config.root_cert = Some(ders(&cluster.server_ca));
    config.auth_info = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(certificate.pem())),
        client_key_data: Some(STANDARD.encode(key.serialize_pem()).into()),
        ..AuthInfo::default()
    };
    Client::try_from(config).map_err(|source| JoinError::Api {
        what: "make a client for",
        node: name.to_owned(),
        source: Box::new(source),
    })
}

/// The certificates of a PEM text, as DER.
fn ders(pem: &str) -> Vec<Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    pem.split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|rest| rest.split("-----END CERTIFICATE-----").next())
        .filter_map(|body| STANDARD.decode(body.split_whitespace().collect::<String>()).ok())
        .collect()
}
