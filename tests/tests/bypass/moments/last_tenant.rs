//! Pods that are created once the last Tenant is gone, while its pods run on the nodes of its pools.

use croft_policy::definitions::{POOL_NAME_LABEL, parameter};
use croft_testkit::wait::{Seen, until};
use croft_tests::stack::{EVENTUALLY, Stack};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::{FRIENDS, OUTSIDE, bare, tried_and_unbound};

pub async fn keeps_its_nodes_closed_when_it_goes(stack: &mut Stack, admin: &Client, jane: &Client) {
    let nodes = Api::<Node>::all(admin.clone()).list(&ListParams::default().labels(POOL_NAME_LABEL)).await;
    let node = nodes.unwrap().items.first().expect("a node of a pool").clone();
    // Others of its namespaces run on ordinary nodes by now.
    for namespace in [OUTSIDE, FRIENDS] {
        stack.plane.kubectl(["delete", "pods", "--all", "-n", namespace, "--force"]).await.unwrap();
    }
    stack.plane.kubectl(["delete", "tenants", "--all"]).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    until("the policies without a Tenant", EVENTUALLY, async || {
        let own = namespaces.get(stack.croft.namespace()).await?;
        let written = |name: &str| own.annotations().get(name).cloned().unwrap_or_default();
        let (tenants, mode) = (written(parameter::TENANTS), written(parameter::NON_TENANT_PODS));
        assert_ne!(mode, "Inactive", "the pools are declared");
        Ok::<_, kube::Error>(Seen::from_option(tenants.is_empty().then_some(()), tenants))
    })
    .await
    .unwrap();
    let own = ["delete", "namespace", stack.croft.namespace(), "--dry-run=server"];
    let said = stack.plane.kubectl(own).await.expect_err("the pools are declared").to_string();
    assert!(said.contains("croft uninstall"), "{said}");
    let pods: Api<Pod> = Api::namespaced(jane.clone(), OUTSIDE);
    let pool = &node.labels()[POOL_NAME_LABEL];
    let selects = json!({"nodeSelector": {POOL_NAME_LABEL: pool}, "tolerations": [{"operator": "Exists"}]});
    let tolerates = json!({"tolerations": [{"operator": "Exists"}]});
    for (name, spec) in [("last-selects", selects), ("last-tolerates", tolerates)] {
        // It may also be refused.
        let _ = pods.create(&PostParams::default(), &bare(OUTSIDE, name, &spec)).await;
    }
    let named = bare(OUTSIDE, "last-named", &json!({"nodeName": node.name_any()}));
    let said = pods.create(&PostParams::default(), &named).await.expect_err("a pod on a pool's node");
    assert!(said.to_string().contains(&node.name_any()), "{said}");
    tried_and_unbound(&mut stack.plane, admin).await;
}
