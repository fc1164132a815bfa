//! Two tenants on pools of their own and a shared one, each with running pods and one that fits no instance type. Everything of
//! the second has its name.

use croft_testkit::{
    CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{class, deployment, joined, on_demand, tenant},
    page_reader::PageReader,
    stack::{EVENTUALLY, Stack, claims, node_of, nodes, pods},
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) const TENANTS: [&str; 2] = ["alpha", "bravo"];
pub(crate) const SHARED: &str = "pool-shared";
/// The account of a tenant's people, in the tenant's namespace of the same name.
pub(crate) const READER: &str = "reader";

/// Everything that runs, and clients.
pub(crate) struct World {
    pub(crate) stack: Stack,
    pub(crate) admin: Client,
    pub(crate) anonymous: PageReader,
}

/// A Deployment whose pods may also use the shared pool.
fn on_pool(mut workload: Value, pool: &str) -> Value {
    workload["spec"]["template"]["metadata"]["annotations"] = json!({"croft.dev/pool": pool});
    workload
}

fn account(namespace: &str, name: &str, role: Option<&str>) -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
    ];
    objects.extend(role.map(|role| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        })
    }));
    objects
}

fn objects() -> Vec<Value> {
    let spec = || on_demand(&["m5.large"], json!({"consolidateAfter": "2s"}));
    let mut objects = vec![
        class("default"),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": SHARED}, "spec": spec()}),
    ];
    for name in TENANTS {
        let [namespace, pool, mut declared] = tenant(name, &format!("pool-{name}"), &spec());
        declared["spec"]["pools"] = json!([format!("pool-{name}"), SHARED]);
        objects.extend([namespace, pool, declared]);
        objects.extend(account(name, READER, Some("view")));
        objects.extend(account(name, "without-rights", None));
        let named = |what: &str| format!("{name}-{what}");
        objects.extend([
            deployment(name, &named("web"), 1, "1", "1Gi"),
            deployment(name, &named("huge"), 1, "64", "1Gi"),
            on_pool(deployment(name, &named("shared"), 1, "500m", "512Mi"), SHARED),
        ]);
    }
    objects
}

impl World {
    /// Starts everything, and waits until each tenant's pods run but the one that fits no type, and the page shows it.
    pub(crate) async fn start(options: Options) -> Self {
        let mut stack = Stack::start_with(options, CroftOptions::find().unwrap().page()).await.unwrap();
        let admin = stack.plane.admin().await.unwrap();
        let anonymous = PageReader::anonymous(&stack.plane, &mut stack.croft).unwrap();
        stack.plane.apply(&joined(&objects())).await.unwrap();
        let world = Self { stack, admin, anonymous };
        for name in TENANTS {
            until("two running pods", EVENTUALLY, async || {
                let pods = pods(&world.admin, name).await?;
                let bound = pods.iter().filter(|pod| !node_of(pod).is_empty()).count();
                Ok::<_, kube::Error>(Seen::from_option(
                    (bound == 2).then_some(()),
                    format!("{bound} of {}", pods.len()),
                ))
            })
            .await
            .unwrap();
        }
        world
            .shown("why pods are pending", "/api/v1/overview", |overview| {
                let pending = overview["pendingGroups"].as_array().unwrap();
                pending.iter().filter_map(|group| group["count"].as_u64()).sum::<u64>() == 2
                    && pending.iter().all(|group| group["reason"] == json!("InsufficientResources"))
            })
            .await;
        // The log is written in order: launches, and with them costs, come before.
        for name in TENANTS {
            let path = format!("/api/v1/history?tenant={name}");
            world
                .shown("the binding of both pods", &path, |history| {
                    let entries = history["entries"].as_array().unwrap();
                    entries.iter().filter(|entry| entry["k"] == json!("bound")).count() == 2
                })
                .await;
        }
        world
    }

    /// A reader with a token of `account` for the page.
    pub(crate) async fn reader(&self, account: (&str, &str)) -> PageReader {
        self.anonymous.with_account(&self.stack.plane, account).await.unwrap()
    }

    /// Waits until the page shows an operator what is wanted at `path`.
    pub(crate) async fn shown(&self, what: &str, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let operator = self.reader(croft_tests::page_reader::OPERATOR).await;
        until(what, EVENTUALLY, async || {
            let answer = operator.get(path).await?;
            let json = answer.json();
            anyhow::Ok(Seen::from_option(
                (answer.status == 200 && is_right(&json)).then_some(json),
                answer.text,
            ))
        })
        .await
        .unwrap()
    }

    /// The node and the NodeClaim of a pool's only node.
    pub(crate) async fn node(&self, pool: &str) -> (String, String) {
        let claim = claims(&self.admin, pool).await.unwrap()[0].name_any();
        let label = croft_policy::definitions::POOL_NAME_LABEL;
        let nodes = nodes(&self.admin).await.unwrap();
        let node = nodes.into_values().find(|node| node.labels().get(label).is_some_and(|of| of == pool));
        (node.unwrap().name_any(), claim)
    }

    /// The name of the pod of a Deployment.
    pub(crate) async fn pod(&self, namespace: &str, deployment: &str) -> String {
        let pods = pods(&self.admin, namespace).await.unwrap();
        pods.iter()
            .map(|pod| pod.name_any())
            .find(|name| name.starts_with(&format!("{deployment}-")))
            .unwrap()
    }

    /// Names that only the tenant's own people may see: of the tenant, its nodes, claims and instances.
    pub(crate) async fn names_of(&self, tenant: &str) -> Vec<String> {
        let pool = format!("pool-{tenant}");
        let label = croft_policy::definitions::POOL_NAME_LABEL;
        let mut names = vec![tenant.to_owned()];
        for node in nodes(&self.admin).await.unwrap().into_values() {
            if node.labels().get(label) == Some(&pool) {
                let provider =
                    node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                names.extend([node.name_any(), provider.rsplit('/').next().unwrap_or_default().to_owned()]);
            }
        }
        names.extend(claims(&self.admin, &pool).await.unwrap().iter().map(|claim| claim.name_any()));
        names
    }
}
