//! A launched instance becomes a Node of a real API server, as a kubelet would register it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_cloud::userdata::{Family, KubeletSetup, NodeBoot, render};
use croft_ec2_sim::{
    answer::{Answer, Call, Service},
    kubelet::{self, Cluster},
    params::Params,
    server::Simulator,
    world::Settings,
};
use croft_testkit::{
    Component, ControlPlane, Options,
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, Client};

const WITHIN: Duration = Duration::from_secs(60);

fn call(simulator: &Simulator, action: &str, pairs: &[(&str, &str)]) -> String {
    let params = Params::new(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let call = Call {
        service: Service::Ec2,
        action: action.to_owned(),
        params,
        json: serde_json::Value::Null,
        access_key: "test".to_owned(),
    };
    let now = simulator.now();
    match simulator.with(|world| world.handle(&call, now)).0 {
        Answer::Xml(text) => text,
        other => panic!("{action}: {other:?}"),
    }
}

/// Launches an m5.large that joins `endpoint`. Returns its id.
fn launch(simulator: &Simulator, name: &str, user_data: &str) -> String {
    let image = {
        let text = call(
            simulator,
            "DescribeImages",
            &[("Filter.1.Name", "name"), ("Filter.1.Value.1", "amazon-eks-node-al2023-x86_64-standard-*")],
        );
        text.split("<imageId>").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    call(
        simulator,
        "CreateLaunchTemplate",
        &[
            ("LaunchTemplateName", name),
            ("LaunchTemplateData.ImageId", &image),
            ("LaunchTemplateData.UserData", &STANDARD.encode(user_data)),
        ],
    );
    let text = call(
        simulator,
        "CreateFleet",
        &[
            ("Type", "instant"),
            ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
            ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", name),
            ("LaunchTemplateConfigs.1.Overrides.1.InstanceType", "m5.large"),
            ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", "subnet-0c0ffee000000001"),
        ],
    );
    let ids = text.split("<instanceIds><item>").nth(1).unwrap_or_else(|| panic!("{text}"));
    ids.split('<').next().unwrap().to_owned()
}

fn user_data(endpoint: &str, labels: &[(&str, &str)]) -> String {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let taints = [Taint {
        key: "node-pool".to_owned(),
        value: Some("pool-a".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }];
    render(
        Family::Al2023,
        &NodeBoot {
            cluster: "croft",
            endpoint,
            ca: "",
            service_cidr: "10.96.0.0/16",
            labels: &labels,
            taints: &taints,
            kubelet: &KubeletSetup::default(),
            instance_store: false,
            custom: None,
        },
    )
    .unwrap()
    .text
}

async fn node(client: &Client, name: &str) -> Option<Node> {
    Api::<Node>::all(client.clone()).get_opt(name).await.unwrap()
}

fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == kind).map(|c| c.status.clone())
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one life, step by step")]
async fn instance_joins_by_its_user_data_and_its_node_outlives_it() {
    croft_runtime::process::install_crypto();
    let plane = ControlPlane::start(Options::default().without(Component::Scheduler)).await.unwrap();
    let client = plane.admin().await.unwrap();
    let authority = plane.authority();
    let settings = Settings {
        cluster_endpoint: plane.url(),
        running_after_ms: 0,
        terminated_after_ms: 0,
        ..Settings::default()
    };
    let (simulator, happenings) = Simulator::real(settings);
    let cluster = Cluster {
        url: plane.url(),
        server_ca: authority.certificate().to_owned(),
        client_ca: authority.certificate().to_owned(),
        client_ca_key: authority.key().to_owned(),
        played: ("lab.croft.dev/kubelet".to_owned(), "kwok".to_owned()),
        boot: Duration::ZERO,
        kubelet_version: "v1.36.0".to_owned(),
    };
    let ticker = tokio::spawn(Arc::clone(&simulator).tick());
    let kubelets = tokio::spawn(kubelet::run(Arc::clone(&simulator), cluster, happenings));

    let id = launch(&simulator, "good", &user_data(&plane.url(), &[("team", "blue")]));
    let name = simulator.with(|world| world.instance(&id).unwrap().dns_name("us-east-1"));
    let ready = until("the node", WITHIN, async || {
        let found = node(&client, &name).await.filter(|n| condition(n, "Ready").as_deref() == Some("True"));
        Ok::<_, kube::Error>(Seen::from_option(found, "not there or not Ready"))
    })
    .await
    .unwrap();
    let spec = ready.spec.as_ref().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some(format!("aws:///us-east-1a/{id}").as_str()));
    let taints: Vec<&str> = spec.taints.iter().flatten().map(|t| t.key.as_str()).collect();
    assert!(taints.contains(&"node-pool"), "{taints:?}");
    let labels = ready.metadata.labels.as_ref().unwrap();
    for (key, value) in [
        ("team", "blue"),
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/arch", "amd64"),
        ("node.kubernetes.io/instance-type", "m5.large"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!labels.contains_key("node-pool"), "a pool's label is the controller's to write");
    let status = ready.status.as_ref().unwrap();
    assert_eq!(status.capacity.as_ref().unwrap()["memory"].0, "7577Mi");
    assert_eq!(status.allocatable.as_ref().unwrap()["cpu"].0, "1930m");

    // A kubelet that is given a label it may not set exits: the instance runs, and no Node appears.
    let mut refused = user_data(&plane.url(), &[("a", "b")]);
    refused = refused.replace("a=b", "node-restriction.kubernetes.io/pool=pool-a");
    let bad = launch(&simulator, "bad", &refused);
    let console = until("the console", WITHIN, async || {
        let text = simulator.with(|world| world.instance(&bad).unwrap().console.clone());
        Ok::<_, kube::Error>(Seen::from_option((!text.is_empty()).then_some(text), "empty"))
    })
    .await
    .unwrap();
    assert!(console.contains("unknown 'kubernetes.io' or 'k8s.io' labels"), "{console}");
    let bad_name = simulator.with(|world| world.instance(&bad).unwrap().dns_name("us-east-1"));
    assert!(node(&client, &bad_name).await.is_none());

    // An instance with the endpoint of another cluster doesn't join this one.
    let stray = launch(&simulator, "stray", &user_data("https://127.0.0.1:1", &[]));
    until("the stray's console", WITHIN, async || {
        let text = simulator.with(|world| world.instance(&stray).unwrap().console.clone());
        Ok::<_, kube::Error>(Seen::from_option(
            text.contains("Unable to register node").then_some(()),
            "no word",
        ))
    })
    .await
    .unwrap();

    // The kubelet of a terminated instance stops; its Node is left for the controller to delete.
    simulator.with(|world| world.end_instance(&id, "test"));
    let left = until("the stopped kubelet", WITHIN, async || {
        let found = node(&client, &name)
            .await
            .filter(|n| !n.metadata.labels.as_ref().is_some_and(|l| l.contains_key("lab.croft.dev/kubelet")));
        Ok::<_, kube::Error>(Seen::from_option(found, "still played"))
    })
    .await
    .unwrap();
    assert!(left.metadata.deletion_timestamp.is_none());

    ticker.abort();
    kubelets.abort();
    plane.stop().unwrap();
}
