//! The cluster of the fixtures and properties.

use croft_policy::{
    Config, Namespace, Node, NodeTemplate, OnConflict, Pool, Provisioner, Tenant, Tenants,
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL},
    selector::{Requirement, Selector, Test},
    stored,
    taint::{Effect, Effects, Taint},
};
use serde_json::{Value, json};

pub fn pool(name: &str, key: &str, value: &str, effects: &[Effect]) -> Pool {
    Pool {
        name: name.to_owned(),
        created: Some(1),
        key: key.to_owned(),
        value: value.to_owned(),
        effects: effects.iter().copied().collect::<Effects>(),
        shared_with: Vec::new(),
        provisioner: Provisioner::Croft,
        template: NodeTemplate::default(),
        tenants: croft_policy::PoolTenants::default(),
    }
}

pub fn tenant(name: &str, namespaces: &[&str], pools: &[&str]) -> Tenant {
    Tenant {
        name: name.to_owned(),
        created: Some(1),
        namespaces: namespaces.iter().map(|w| (*w).to_owned()).collect(),
        selector: None,
        creation: None,
        owners: Vec::new(),
        peers: Vec::new(),
        pools: pools.iter().map(|w| (*w).to_owned()).collect(),
        on_conflict: OnConflict::Reject,
        unreadable_claims: false,
        needs_objects: false,
    }
}

pub fn namespace(name: &str, default_pool: Option<&str>) -> Namespace {
    Namespace {
        name: name.to_owned(),
        labels: [("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into(),
        annotations: default_pool.map(|p| (POOL_ANNOTATION.to_owned(), p.to_owned())).into_iter().collect(),
    }
}

/// A node of `pool`, labelled and tainted as Croft does it; without one, a node of no pool.
pub fn node(name: &str, pool: Option<&Pool>) -> Node {
    let mut node = Node { name: name.to_owned(), ..Node::default() };
    if let Some(pool) = pool {
        let mark = if pool.key == POOL_NAME_LABEL { &pool.value } else { &pool.name };
        node.labels.insert(POOL_NAME_LABEL.to_owned(), mark.clone());
        node.labels.insert(pool.key.clone(), pool.value.clone());
        node.taints = pool
            .effects
            .iter()
            .map(|effect| Taint { key: pool.key.clone(), value: pool.value.clone(), effect })
            .collect();
    }
    node
}

/// Pools of one tenant, whose nodes are of different kinds.
fn kinds() -> Vec<Pool> {
    let kind = |name: &str, requirements: Vec<[&str; 3]>, resources: &[&str]| {
        let requirements: Vec<_> = requirements
            .into_iter()
            .map(|[key, operator, value]| json!({"key": key, "operator": operator, "values": [value]}))
            .collect();
        let template = |name: Option<&str>, labels: Value, taints: Value| {
            let spec = json!({"requirements": requirements, "taints": taints});
            json!({"name": name, "metadata": {"labels": labels}, "spec": spec})
        };
        let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
        let spec = if name == "team" {
            // What two templates have in common holds for the pool; of what differs, either may be.
            let fast = template(
                Some("first"),
                json!({"team": "x", "lane": "fast"}),
                json!([taint("team", "x"), taint("lane", "fast")]),
            );
            let slow =
                template(Some("second"), json!({"team": "x", "lane": "slow"}), json!([taint("team", "x")]));
            json!({"templates": [fast, slow]})
        } else {
            json!({"template": template(None, json!({}), json!([]))})
        };
        let resources: Vec<_> =
            resources.iter().map(|resource| json!({"name": resource, "dedicated": name == "gpu"})).collect();
        let template = stored::node_template(&spec, &json!({"extendedResources": resources}));
        Pool { template, ..pool(name, "node-pool", name, &[Effect::NoSchedule]) }
    };
    let (arch, cpu) = ("kubernetes.io/arch", "karpenter.k8s.aws/instance-cpu");
    vec![
        kind("x86", vec![[arch, "In", "amd64"], [cpu, "Lt", "64"]], &[]),
        kind("team", vec![[arch, "In", "amd64"]], &[]),
        kind("arm", vec![[arch, "NotIn", "amd64"], [cpu, "In", "4"]], &[]),
        kind("gpu", vec![[arch, "Exists", ""], ["zone", "DoesNotExist", ""]], &["nvidia.com/gpu"]),
        kind("spot", vec![["karpenter.sh/capacity-type", "In", "spot"]], &["nvidia.com/gpu", "amd.com/gpu"]),
    ]
}

pub fn pools() -> Vec<Pool> {
    let mut agents = pool("pool-c", "node-pool", "pool-c", &[Effect::NoSchedule]);
    agents.shared_with = vec!["agents".to_owned()];
    let mut pools = vec![
        pool("pool-a", "node-pool", "pool-a", &[Effect::NoSchedule]),
        pool("pool-a-gpu", "example.com/gpu", "a", &[Effect::NoSchedule, Effect::NoExecute]),
        pool("pool-b", "node-pool", "pool-b", &[Effect::NoSchedule]),
        agents,
        pool("pool-d", POOL_NAME_LABEL, "pool-d", &[Effect::NoExecute]),
    ];
    pools.extend(kinds());
    pools
}

pub fn tenants() -> Vec<Tenant> {
    let by_label = Selector::new(vec![Requirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        test: Test::In(vec!["labelled".to_owned()]),
    }]);
    vec![
        tenant("acme", &["tenant-a", "tenant-a-gpu", "tenant-a-bad"], &["pool-a", "pool-a-gpu"]),
        Tenant { selector: Some(by_label), ..tenant("bolt", &["tenant-b"], &["pool-b"]) },
        Tenant {
            on_conflict: OnConflict::Override,
            ..tenant("calm", &["tenant-c", "tenant-c-bad"], &["pool-c", "pool-a-gpu"])
        },
        tenant("dune", &["tenant-d"], &["pool-d"]),
        tenant("lost", &["tenant-lost"], &["pool-gone"]),
        tenant("edge", &["tenant-e"], &["x86", "team", "arm", "gpu", "spot"]),
    ]
}

pub fn world(config: Config) -> Tenants {
    world_of(config, tenants())
}

/// [`world`] with these tenants.
pub fn world_of(config: Config, tenants: Vec<Tenant>) -> Tenants {
    let pools = pools();
    let by_name = |name: &str| pools.iter().find(|p| p.name == name);
    let nodes = vec![
        node("free-1", None),
        node("a-1", by_name("pool-a")),
        node("gpu-1", by_name("pool-a-gpu")),
        node("b-1", by_name("pool-b")),
        node("c-1", by_name("pool-c")),
        node("d-1", by_name("pool-d")),
        node("x86-1", by_name("x86")),
        node("spot-1", by_name("spot")),
        // Registered with its taint, not labelled yet.
        Node { labels: Default::default(), ..node("b-2", by_name("pool-b")) },
    ];
    let namespaces = vec![
        namespace("tenant-a", None),
        namespace("tenant-a-gpu", Some("pool-a-gpu")),
        namespace("tenant-a-bad", Some("pool-b")),
        namespace("tenant-b", None),
        namespace("labelled", None),
        namespace("tenant-c", None),
        namespace("tenant-c-bad", Some("pool-b")),
        namespace("tenant-d", None),
        namespace("tenant-lost", None),
        namespace("tenant-e", None),
        namespace("non-tenant", None),
        namespace("agents", None),
    ];
    Tenants::offline(config, tenants, pools.clone(), namespaces, nodes)
}
