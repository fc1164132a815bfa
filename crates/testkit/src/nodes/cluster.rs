//! The inner half: control plane, nodes and cloud, and Croft on them by its charts.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::json;

use crate::{
    control_plane::ControlPlane,
    croft::{Croft, CroftOptions},
    http,
    nodes::{
        Inside, Parts, network,
        real_node::{Place, RealNode},
    },
    options::Options,
    process::{Process, Recipe, Status},
    wait::{Seen, until},
};

/// Where ec2-sim listens.
pub const CLOUD: SocketAddr = SocketAddr::new(IpAddr::V4(network::FIRST), 4599);
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// A control plane with two real nodes, and ec2-sim for what Croft launches.
#[derive(Debug)]
pub struct NodeCluster {
    // In this order they end: nodes before what they talk to.
    /// The nodes.
    pub nodes: Vec<RealNode>,
    cloud: Process,
    _second: Process,
    /// The control plane.
    pub plane: ControlPlane,
}

impl NodeCluster {
    /// Starts everything in the present namespaces and waits until both nodes are Ready. `tag`: the tag of the images.
    ///
    /// # Errors
    /// The step that failed, with the end of its log.
    pub async fn start(options: Options, parts: &Parts, inside: &Inside, tag: &str) -> anyhow::Result<Self> {
        network::prepare().await?;
        let plane = ControlPlane::start(options.folder(&inside.folder).address(network::FIRST)).await?;
        let second = network::connect(&plane, &parts.programs.join("pause")).await?;
        let cloud = cloud(&plane, parts).await?;
        let mut nodes = Vec::new();
        for (number, address, network) in
            [(1, network::FIRST, None), (2, network::SECOND, Some(second.pid()))]
        {
            let place = Place { number, address, network };
            nodes.push(RealNode::start(&plane, parts, &inside.cgroups, tag, place).await?);
        }
        Ok(Self { nodes, cloud, _second: second, plane })
    }

    /// Installs the charts, with two replicas of the webhook, the page, and EC2 at [`CLOUD`].
    ///
    /// # Errors
    /// If Helm fails.
    pub async fn install(&self) -> anyhow::Result<()> {
        // The name of the cloud is resolved by /etc/hosts of the pod: the image has to resolve names.
        let values = json!({
            "webhook": {"replicas": 2},
            "page": {"enabled": true},
            "controller": {
                "settings": {
                    "clusterName": "croft", "awsRegion": "us-east-1",
                    "awsEndpointUrl": format!("http://ec2.test.internal:{}", CLOUD.port()),
                },
                "env": [
                    {"name": "AWS_ACCESS_KEY_ID", "value": "test"},
                    {"name": "AWS_SECRET_ACCESS_KEY", "value": "test"},
                    {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
                ],
                "hostAliases": [{"ip": CLOUD.ip(), "hostnames": ["ec2.test.internal"]}],
            },
        });
        let file = self.plane.write("values.yaml", &values.to_string())?;
        let options = CroftOptions::find()?;
        let charts = options.manifests.join("chart");
        let values = format!("--values={}", file.display());
        Croft::install(&self.plane, options.by_helm(&charts, "croft-system", &[&values])).await?;
        Ok(())
    }

    /// Waits until every replica of a Deployment of Croft is available, of its newest revision.
    ///
    /// # Errors
    /// If it isn't in time.
    pub async fn until_rolled_out(&self, deployment: &str) -> anyhow::Result<()> {
        let target = format!("deployment/{deployment}");
        let arguments = ["rollout", "status", "--namespace=croft-system", "--timeout=180s", &target];
        let waited = self.plane.kubectl(arguments).await;
        waited.map(drop).with_context(|| format!("{deployment} didn't become available"))
    }

    /// State of every process.
    ///
    /// # Errors
    /// If a process can't be waited for.
    pub fn status(&mut self) -> anyhow::Result<Vec<Status>> {
        let mut all = self.plane.status()?;
        all.push(self.cloud.status()?);
        for node in &mut self.nodes {
            all.extend(node.status()?);
        }
        Ok(all)
    }
}

/// Starts ec2-sim, on the address that pods reach.
async fn cloud(plane: &ControlPlane, parts: &Parts) -> anyhow::Result<Process> {
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
        Ok::<_, crate::Error>(Seen::from_option((answer.status == 200).then_some(()), answer.status))
    })
    .await?;
    process.check()?;
    Ok(process)
}
