//! The cluster of the fixtures and properties.

use croft_policy::{
    Config, Namespace, Node, OnConflict, Pool, Provisioner, Tenant, Tenants,
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL},
    selector::{Requirement, Selector, Test},
    taint::{Effect, Effects, Taint},
};

pub fn pool(name: &str, key: &str, value: &str, effects: &[Effect]) -> Pool {
    Pool {
        name: name.to_owned(),
        created: Some(1),
        key: key.to_owned(),
        value: value.to_owned(),
        effects: effects.iter().copied().collect::<Effects>(),
        shared_with: Vec::new(),
        provisioner: Provisioner::Croft,
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

pub fn pools() -> Vec<Pool> {
    let mut agents = pool("pool-c", "node-pool", "pool-c", &[Effect::NoSchedule]);
    agents.shared_with = vec!["agents".to_owned()];
    vec![
        pool("pool-a", "node-pool", "pool-a", &[Effect::NoSchedule]),
        pool("pool-a-gpu", "example.com/gpu", "a", &[Effect::NoSchedule, Effect::NoExecute]),
        pool("pool-b", "node-pool", "pool-b", &[Effect::NoSchedule]),
        agents,
        pool("pool-d", POOL_NAME_LABEL, "pool-d", &[Effect::NoExecute]),
    ]
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
    ]
}

pub fn world(config: Config) -> Tenants {
    let pools = pools();
    let by_name = |name: &str| pools.iter().find(|p| p.name == name);
    let nodes = vec![
        node("free-1", None),
        node("a-1", by_name("pool-a")),
        node("gpu-1", by_name("pool-a-gpu")),
        node("b-1", by_name("pool-b")),
        node("c-1", by_name("pool-c")),
        node("d-1", by_name("pool-d")),
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
        namespace("non-tenant", None),
        namespace("agents", None),
    ];
    Tenants::offline(config, tenants(), pools.clone(), namespaces, nodes)
}
