//! Namespace, Tenant, pool, class and Deployment in one file, in any order: every pod runs in its pool.

use croft_testkit::wait::{Seen, until};
use croft_tests::stack::{EVENTUALLY, Stack, node_of, nodes, pods, running};

/// The documents of one tenant; `NAME` stands for its name.
const DOCUMENTS: [&str; 5] = [
    "{apiVersion: v1, kind: Namespace, metadata: {name: NAME}}",
    r#"
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: NAME}
spec: {namespaces: [NAME], pools: [NAME]}
"#,
    r#"
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: NAME}
spec: {key: node-pool, template: {spec: {nodeClassRef: {name: NAME}}}}
"#,
    r#"
apiVersion: croft.dev/v1alpha1
kind: EC2NodeClass
metadata: {name: NAME}
spec:
  role: croft-node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
  securityGroupSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
"#,
    r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 500m, memory: 256M}}}]}
"#,
];

/// The Deployment last, first, and right after its namespace, before its tenant.
const ORDERS: [[usize; 5]; 4] = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 4, 1, 2, 3], [1, 0, 4, 3, 2]];

#[tokio::test]
async fn one_file_in_any_order_ends_with_every_pod_in_its_pool() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    for (index, order) in ORDERS.iter().enumerate() {
        let file = order.map(|at| DOCUMENTS[at]).join("\n---\n").replace("NAME", &format!("order-{index}"));
        // The API server refuses a Deployment before its Namespace, so a user applies the files again.
        until("the file applied", EVENTUALLY, async || stack.plane.apply(&file).await.map(Seen::Yes))
            .await
            .unwrap();
    }
    for index in 0..ORDERS.len() {
        let name = format!("order-{index}");
        let running = running(&client, &name, 2).await.unwrap();
        let homes = nodes(&client).await.unwrap();
        for pod in &running {
            let selector = pod.spec.as_ref().unwrap().node_selector.clone().unwrap_or_default();
            assert_eq!(selector.get("node-pool"), Some(&name), "{pod:?}");
            let node = &homes[&node_of(pod)];
            assert_eq!(node.metadata.labels.as_ref().unwrap().get("node-pool"), Some(&name), "{node:?}");
        }
        assert_eq!(pods(&client, &name).await.unwrap().len(), 2);
    }
    stack.check().unwrap();
}
