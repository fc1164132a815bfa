//! A pool with several templates: the heaviest that can hold a pod is launched, the next where it has no capacity, and nodes of a
//! template that is gone are replaced.

use std::collections::BTreeMap;

use croft_api::{TenantPool, condition};
use croft_policy::definitions::TEMPLATE_LABEL;
use croft_testkit::wait::{Seen, until};
use croft_tests::{
    manifests::{class, deployment, joined, tenant},
    stack::{EVENTUALLY, Stack, claims, condition_of, label, node_of, nodes, pods, running},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const NAME: &str = "shop";

fn template(name: &str, weight: i32, requirements: &[(&str, &str)]) -> Value {
    let requirement = |(key, value): &(&str, &str)| json!({"key": key, "operator": "In", "values": [value]});
    json!({"name": name, "weight": weight, "metadata": {"labels": {"example.com/kind": name}}, "spec": {
        "nodeClassRef": {"name": "default"},
        "requirements": requirements.iter().map(requirement).collect::<Vec<_>>()}})
}

fn platform() -> String {
    let capacity = "karpenter.sh/capacity-type";
    let (amd, arm) = (("kubernetes.io/arch", "amd64"), ("kubernetes.io/arch", "arm64"));
    let templates = [
        template("spot", 10, &[(capacity, "spot"), amd]),
        template("steady", 5, &[(capacity, "on-demand"), amd]),
        template("arm", 0, &[(capacity, "on-demand"), arm]),
    ];
    let spec = json!({"disruption": {"consolidateAfter": "Never"}, "templates": templates});
    let mut documents = vec![class("default")];
    documents.extend(tenant(NAME, NAME, &spec));
    joined(&documents)
}

/// The template of the node of each app's pods.
async fn templates(client: &Client) -> BTreeMap<String, String> {
    let homes = nodes(client).await.unwrap();
    let pods = pods(client, NAME).await.unwrap();
    let template = |pod: &_| (label(pod, "app"), label(&homes[&node_of(pod)], TEMPLATE_LABEL));
    pods.iter().map(template).collect()
}

#[tokio::test]
async fn heaviest_template_that_can_hold_a_pod_is_launched() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    condition_of::<TenantPool>(&client, NAME, condition::READY, "True").await.unwrap();

    // Each says its architecture: otherwise it might go to a node of the other that is there first.
    let on = |arch: &str, mut deployment: Value| {
        deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": arch});
        deployment
    };
    let on_arm = on("arm64", deployment(NAME, "arm", 1, "500m", "256Mi"));
    let web = on("amd64", deployment(NAME, "web", 1, "500m", "256Mi"));
    stack.plane.apply(&joined(&[web, on_arm])).await.unwrap();
    running(&client, NAME, 2).await.unwrap();
    let text = |name: &str| name.to_owned();
    let first = templates(&client).await;
    assert_eq!(first, [(text("arm"), text("arm")), (text("web"), text("spot"))].into());
    for node in nodes(&client).await.unwrap().values() {
        let template = label(node, TEMPLATE_LABEL);
        assert!(template.is_empty() || label(node, "example.com/kind") == template, "{:?}", node.labels());
    }

    // No spot instance can be had: the next template is launched.
    let none = json!({"do": "capacity", "rules": [{"capacityType": "spot", "count": 0}]});
    stack.control(&none).await.unwrap();
    let large = on("amd64", deployment(NAME, "large", 1, "3", "8Gi"));
    stack.plane.apply(&large.to_string()).await.unwrap();
    running(&client, NAME, 3).await.unwrap();
    assert_eq!(templates(&client).await["large"], "steady");

    // A renamed template: the nodes of the old name have drifted.
    let mut renamed: Vec<Value> = vec![template("cheap", 10, &[("karpenter.sh/capacity-type", "spot")])];
    renamed.push(template(
        "steady",
        5,
        &[("karpenter.sh/capacity-type", "on-demand"), ("kubernetes.io/arch", "amd64")],
    ));
    renamed.push(template(
        "arm",
        0,
        &[("karpenter.sh/capacity-type", "on-demand"), ("kubernetes.io/arch", "arm64")],
    ));
    let pools: Api<TenantPool> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"templates": renamed}}));
    pools.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    until("no node of the old name", EVENTUALLY, async || {
        let named: Vec<String> = claims(&client, NAME)
            .await?
            .iter()
            .map(|claim| claim.template().unwrap_or_default().to_owned())
            .collect();
        let is_gone = !named.iter().any(|name| name == "spot");
        Ok::<_, kube::Error>(Seen::from_option(is_gone.then_some(()), named.join(", ")))
    })
    .await
    .unwrap();
    running(&client, NAME, 3).await.unwrap();
    let last = templates(&client).await;
    assert_eq!(last["large"], "steady", "the others stay");
    assert_eq!(last["arm"], "arm", "the others stay");
    assert_eq!(last["web"], "steady", "there is no spot capacity for the new name either");
    stack.check().unwrap();
}
