use super::*;
use crate::tenancy::{
    model::{NamespaceCreation, Provisioner},
    selector::{Requirement, Selector, Test},
    taint::{Effect, Effects, Taint},
};

fn pool(name: &str, key: &str, value: &str, created: i64) -> Pool {
    Pool {
        name: name.to_owned(),
        created: Some(created),
        key: key.to_owned(),
        value: value.to_owned(),
        effects: Effects::NONE,
        shared_with: Vec::new(),
        provisioner: Provisioner::Croft,
        template: crate::NodeTemplate::default(),
        tenants: crate::PoolTenants::default(),
    }
}

fn tenant(name: &str, created: Option<i64>, namespaces: &[&str], label: Option<(&str, &str)>) -> Tenant {
    Tenant {
        name: name.to_owned(),
        created,
        namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
        selector: label.map(|(key, value)| {
            Selector::new(vec![Requirement { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) }])
        }),
        ..Tenant::default()
    }
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
    Namespace {
        name: name.to_owned(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Namespace::default()
    }
}

fn owner<'t>(tenants: &'t Tenants, namespace: &str) -> &'t str {
    match tenants.tenancy(namespace) {
        NamespaceTenancy::Exempt => "exempt",
        NamespaceTenancy::NonTenant => "non-tenant",
        NamespaceTenancy::Unknown => "unknown",
        NamespaceTenancy::TenantUnreadable => "unreadable_claims",
        NamespaceTenancy::Tenant { tenant, .. } => &tenant.name,
    }
}

#[test]
fn oldest_claim_owns_the_namespace_whether_by_name_or_label() {
    let mut index = Index::new();
    index.upsert_tenant(tenant("young", Some(20), &["x", "kube-system"], None));
    index.upsert_tenant(tenant("old", Some(10), &[], Some(("team", "a"))));
    index.upsert_tenant(tenant("file", None, &["x", "y"], None));
    index.upsert_namespace(&namespace("x", &[("team", "a")]));
    index.upsert_namespace(&namespace("y", &[]));
    let before = index.snapshot();
    assert_eq!(owner(&before, "x"), "old");
    assert_eq!(owner(&before, "y"), "file");
    assert_eq!(owner(&before, "z"), "unknown");
    assert_eq!(owner(&before, "kube-system"), "exempt");

    index.upsert_namespace(&namespace("x", &[("team", "b")]));
    index.upsert_namespace(&namespace("z", &[]));
    let after = index.snapshot();
    assert_eq!(owner(&after, "x"), "young");
    assert_eq!(owner(&after, "z"), "non-tenant");
    assert_eq!(owner(&before, "x"), "old", "a snapshot doesn't change");

    index.remove_tenant("young");
    index.remove_namespace("z");
    let last = index.snapshot();
    assert_eq!(owner(&last, "x"), "file");
    assert_eq!(owner(&last, "z"), "unknown");
}

#[test]
fn offline_namespace_without_a_file_has_no_labels() {
    let tenants = Tenants::offline(
        Config::default(),
        vec![tenant("a", None, &["x"], None), tenant("b", None, &[], Some(("team", "b")))],
        vec![],
        vec![namespace("z", &[("team", "b")])],
        vec![],
    );
    assert_eq!(owner(&tenants, "x"), "a");
    assert_eq!(owner(&tenants, "y"), "non-tenant");
    assert_eq!(owner(&tenants, "z"), "b");
}

#[test]
fn only_the_oldest_of_pools_with_one_label_counts() {
    let mut index = Index::new();
    index.upsert_pool(pool("b", "k", "v", 2));
    index.upsert_pool(pool("a", "k", "v", 1));
    // Its label is the pool-name label of the custom pool below.
    index.upsert_pool(pool("d", POOL_NAME_LABEL, "c", 3));
    index.upsert_pool(pool("c", "k", "c", 4));
    let tenants = index.snapshot();
    let counted: Vec<&str> = tenants.declarations().pools().iter().map(|p| &*p.name).collect();
    assert_eq!(counted, ["a", "d"]);
    assert_eq!(tenants.declarations().collisions(), [("b".into(), "a".into()), ("c".into(), "d".into())]);
}

#[test]
fn node_is_in_a_pool_by_label_and_reserved_by_taint() {
    let mut index = Index::new();
    index.upsert_pool(pool("a", "k", "v", 1));
    index.upsert_pool(pool("b", POOL_NAME_LABEL, "b", 2));
    let node = |name: &str, labels: &[(&str, &str)], taints: &[(&str, &str)]| Node {
        name: name.to_owned(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        taints: taints
            .iter()
            .map(|(k, v)| Taint { key: (*k).to_owned(), value: (*v).to_owned(), effect: Effect::NoSchedule })
            .collect(),
    };
    index.upsert_node(&node("n1", &[("k", "v"), (POOL_NAME_LABEL, "a")], &[]));
    index.upsert_node(&node("n2", &[], &[("k", "v")]));
    index.upsert_node(&node("n3", &[(POOL_NAME_LABEL, "gone")], &[]));
    index.upsert_node(&node("n4", &[("k", "other")], &[]));
    let tenants = index.snapshot();
    let names = |ids: &[PoolId]| -> Vec<&str> {
        ids.iter().map(|id| &*tenants.declarations().pool(*id).unwrap().name).collect()
    };
    let of = |name| tenants.node(name).unwrap();
    assert_eq!((names(&of("n1").labelled), names(&of("n1").reserved)), (vec!["a"], vec!["a"]));
    assert_eq!((names(&of("n2").labelled), names(&of("n2").reserved)), (vec![], vec!["a"]));
    assert_eq!((of("n3").orphan, of("n4").orphan), (true, false));
    assert!(tenants.node("n5").is_none());
    index.remove_pool("a");
    assert!(index.snapshot().node("n1").unwrap().orphan);
}

#[test]
fn exempt_namespaces_of_the_settings_add_to_the_built_in_ones() {
    let mut index = Index::new();
    index.set_config(Config { exempt: vec!["more".to_owned()], ..Config::installed_in("ours") });
    let tenants = index.snapshot();
    let declarations = tenants.declarations();
    assert_eq!(declarations.exempt(), ["kube-node-lease", "kube-public", "kube-system", "more", "ours"]);
    assert_eq!(declarations.controller_user(), "system:serviceaccount:ours:croft-controller");
    assert!(declarations.is_exempt_by_settings("more"));
    assert!(
        !declarations.is_exempt_by_settings("ours") && !declarations.is_exempt_by_settings("kube-system")
    );
}

#[test]
fn namespace_that_two_selectors_match_is_lost_by_the_younger() {
    let mut index = Index::new();
    index.upsert_tenant(tenant("old", Some(10), &["x"], None));
    index.upsert_tenant(tenant("young", Some(20), &["y"], Some(("team", "a"))));
    for (name, labels) in
        [("x", vec![("team", "a")]), ("y", vec![("team", "a")]), ("kube-system", vec![("team", "a")])]
    {
        index.upsert_namespace(&namespace(name, &labels));
    }
    let claims = |tenants: &Tenants| {
        let lost = crate::audit::lost_claims(tenants);
        lost.into_iter().map(|(tenant, lost)| (tenant.to_owned(), lost[0].to_string())).collect::<Vec<_>>()
    };
    let lost = claims(&index.snapshot());
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(
        lost[0].0 == "young"
            && lost[0]
                .1
                .starts_with("namespace x, which spec.namespaceSelector or spec.namespaceCreation matches"),
        "{lost:?}"
    );
    index.upsert_namespace(&namespace("x", &[]));
    assert_eq!(claims(&index.snapshot()), []);
}

#[test]
fn pods_wait_for_objects_until_the_annotation_that_is_written_last() {
    let mut index = Index::new();
    let spec =
        serde_json::json!({"namespaces": ["shop"], "pools": ["p"], "networkIsolation": {"enabled": true}});
    index.upsert_tenant(crate::stored::tenant("shop".to_owned(), Some(1), &spec).object);
    let mut shop = Namespace { name: "shop".to_owned(), ..Namespace::default() };
    index.upsert_namespace(&shop);
    assert!(index.snapshot().awaits_objects("shop"));
    shop.annotations.insert(POOLS_ANNOTATION.to_owned(), "-".to_owned());
    index.upsert_namespace(&shop);
    assert!(!index.snapshot().awaits_objects("shop"));
    for (isolation, waits) in
        [(serde_json::json!({"enabled": false}), false), (serde_json::json!({"enabled": "yes"}), true)]
    {
        let spec = serde_json::json!({"namespaces": ["shop"], "pools": ["p"], "networkIsolation": isolation});
        index.upsert_tenant(crate::stored::tenant("shop".to_owned(), Some(1), &spec).object);
        index.upsert_namespace(&Namespace { name: "shop".to_owned(), ..Namespace::default() });
        assert_eq!(index.snapshot().awaits_objects("shop"), waits);
    }
}

#[test]
fn prefixes_claim_names_by_age_and_leave_exempt_ones() {
    let with = |mut tenant: Tenant, prefix: &str| {
        tenant.creation = Some(NamespaceCreation { prefix: prefix.to_owned(), maximum: 2 });
        tenant
    };
    let mut index = Index::new();
    index.upsert_tenant(with(tenant("old", Some(10), &["shop-named"], None), "shop-"));
    index.upsert_tenant(with(tenant("young", Some(20), &[], None), "shop-eu-"));
    index.upsert_tenant(with(tenant("empty", Some(5), &["x"], None), ""));
    for name in ["shop-eu-1", "shop-1", "shop", "shopping", "kube-system", "shop-named"] {
        index.upsert_namespace(&namespace(name, &[]));
    }
    let tenants = index.snapshot();
    let owners: Vec<&str> = ["shop-eu-1", "shop-1", "shop", "shopping", "kube-system", "shop-named"]
        .map(|name| owner(&tenants, name))
        .into();
    assert_eq!(owners, ["old", "old", "non-tenant", "non-tenant", "exempt", "old"]);
    let old = tenants.declarations().tenant_named("old").unwrap();
    assert!(old.counts_as_created("shop-1") && !old.counts_as_created("shop-named"));
    let lost = crate::audit::lost_claims(&tenants);
    assert_eq!(lost["young"][0].namespace, "shop-eu-1");
    index.remove_tenant("old");
    assert_eq!(owner(&index.snapshot(), "shop-eu-1"), "young");
}

/// The tenant `a` whose owners may create two namespaces under `shop-`, and namespaces with pools or without.
fn index_of_created(namespaces: &[(&str, bool)]) -> Index {
    let mut index = Index::new();
    let spec = serde_json::json!({"namespaces": ["shop-named"], "pools": ["p"],
        "namespaceCreation": {"prefix": "shop-", "maximum": 2}});
    index.upsert_tenant(crate::stored::tenant("a".to_owned(), Some(1), &spec).object);
    for (name, has_pools) in namespaces {
        index.upsert_namespace(&created(name, *has_pools));
    }
    index
}

fn created(name: &str, has_pools: bool) -> Namespace {
    let pools = has_pools.then(|| (POOLS_ANNOTATION.to_owned(), "-".to_owned()));
    Namespace { annotations: pools.into_iter().collect(), ..namespace(name, &[]) }
}

#[test]
fn namespace_without_pools_is_surplus_once_as_many_others_have_them_as_owners_may_create() {
    let mut index = index_of_created(&[
        ("shop-1", true),
        ("shop-2", false),
        ("shop-3", false),
        ("shop-named", true),
        ("other", true),
    ]);
    let surplus =
        |index: &mut Index, name: &str| index.snapshot().surplus(name).map(|surplus| surplus.annotation());
    let before = index.snapshot();
    assert_eq!(surplus(&mut index, "shop-3"), None, "one place is left");
    index.upsert_namespace(&created("shop-2", true));
    assert_eq!(surplus(&mut index, "shop-3").as_deref(), Some("a;2;shop-1 and shop-2"));
    assert!(before.surplus("shop-3").is_none(), "a snapshot doesn't change");
    for open in ["shop-1", "shop-2", "shop-named", "other", "nowhere"] {
        assert_eq!(surplus(&mut index, open), None, "{open}");
    }
    // The same namespace again counts once; one without its annotation, or gone, not any more.
    index.upsert_namespace(&created("shop-2", true));
    index.upsert_namespace(&created("shop-1", false));
    assert_eq!(surplus(&mut index, "shop-3"), None);
    index.upsert_namespace(&created("shop-1", true));
    index.remove_namespace("shop-2");
    assert_eq!(surplus(&mut index, "shop-3"), None);
    // A changed declaration is counted again.
    index.upsert_namespace(&created("shop-2", true));
    index.set_config(Config { exempt: vec!["shop-2".to_owned()], ..Config::default() });
    assert_eq!(surplus(&mut index, "shop-3"), None, "an exempt namespace doesn't count");
    index.set_config(Config::default());
    assert!(surplus(&mut index, "shop-3").is_some());
    index.remove_tenant("a");
    assert_eq!(surplus(&mut index, "shop-3"), None);
}

#[test]
fn offline_namespaces_of_owners_get_pools_in_their_order_up_to_the_maximum() {
    let spec = serde_json::json!({"namespaces": ["shop-named"], "pools": ["p"],
        "namespaceCreation": {"prefix": "shop-", "maximum": 2}});
    let tenant = || crate::stored::tenant("a".to_owned(), Some(1), &spec).object;
    let surplus = |namespaces: &[(&str, bool)]| -> Vec<String> {
        let listed = namespaces.iter().map(|(name, has_pools)| created(name, *has_pools)).collect();
        let tenants = Tenants::offline(Config::default(), vec![tenant()], vec![], listed, vec![]);
        let names = namespaces.iter().map(|(name, _)| *name).chain(["shop-new", "other"]);
        names.filter(|name| tenants.surplus(name).is_some()).map(str::to_owned).collect()
    };
    assert_eq!(surplus(&[("shop-3", false), ("shop-named", false)]), Vec::<String>::new());
    assert_eq!(surplus(&[("shop-3", false), ("shop-1", false), ("shop-2", false)]), ["shop-2", "shop-new"]);
    // A namespace that the controller has let in stays in.
    assert_eq!(surplus(&[("shop-3", false), ("shop-1", true), ("shop-2", true)]), ["shop-3", "shop-new"]);
}

#[test]
fn message_names_five_of_the_namespaces_that_count() {
    let names: Vec<String> = (0..8).map(|n| format!("shop-{n}")).collect();
    let all: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), true)).collect();
    let mut index = index_of_created(&all);
    index.upsert_namespace(&created("shop-new", false));
    let tenants = index.snapshot();
    let counting = tenants.surplus("shop-new").unwrap().counting();
    assert_eq!(counting, "shop-0, shop-1, shop-2, shop-3, shop-4 and 3 more");
}

#[test]
fn nodes_are_returned_with_all_their_labels_and_taints() {
    let mut index = Index::new();
    let labels = [("k", "v"), ("l", "w")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let taints = vec![Taint { key: "k".to_owned(), value: "v".to_owned(), effect: Effect::NoExecute }];
    let node = Node { name: "n1".to_owned(), labels, taints };
    index.upsert_node(&node);
    assert_eq!(index.nodes().collect::<Vec<_>>(), [node]);
}

#[test]
fn a_tenant_equals_only_itself() {
    let mut index = Index::new();
    index.upsert_tenant(tenant("one", Some(1), &["a", "b"], None));
    index.upsert_tenant(tenant("two", Some(2), &["c"], None));
    for name in ["a", "b", "c"] {
        index.upsert_namespace(&namespace(name, &[]));
    }
    let tenants = index.snapshot();
    let of = |namespace| tenants.tenancy(namespace).tenant().unwrap();
    assert_eq!(of("a"), of("b"));
    assert_ne!(of("a"), of("c"));
}

#[test]
fn a_pool_for_many_tenants_gives_each_its_own_and_no_other() {
    let parent = Pool { tenants: crate::PoolTenants::Each, ..pool("dev", "node-pool", "dev", 1) };
    let made = |tenant: &str| Pool {
        tenants: crate::PoolTenants::One { made_from: "dev".to_owned(), tenant: tenant.to_owned() },
        ..pool(&format!("dev-{tenant}"), "node-pool", tenant, 2)
    };
    let mut index = Index::new();
    index.upsert_pool(parent.clone());
    for (name, pools) in [("shop", vec!["dev"]), ("web", vec!["dev"]), ("spy", vec!["dev-shop"])] {
        let pools = pools.into_iter().map(str::to_owned).collect();
        index.upsert_tenant(Tenant { pools, ..tenant(name, Some(1), &[name], None) });
    }
    let pools = |index: &mut Index, tenant: &str| {
        let view = index.snapshot();
        let declared = view.declarations().tenant_named(tenant).unwrap();
        declared.pools.iter().map(|(name, id)| (name.to_string(), id.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(pools(&mut index, "shop"), [("dev".to_owned(), false)], "none before its pool is there");
    assert!(index.snapshot().declarations().key("node-pool").is_some(), "but the key is guarded");
    index.upsert_pool(made("shop"));
    assert_eq!(pools(&mut index, "shop"), [("dev-shop".to_owned(), true)]);
    assert_eq!(pools(&mut index, "web"), [("dev".to_owned(), false)], "another tenant's pool isn't its own");
    assert_eq!(pools(&mut index, "spy"), [("dev-shop".to_owned(), false)], "not by its name either");
    index.upsert_pool(made("web"));
    assert_eq!(pools(&mut index, "web"), [("dev-web".to_owned(), true)]);
    assert_eq!(
        index.snapshot().declarations().pools().len(),
        2,
        "the pool that they are made from has no nodes"
    );
    // Whom a tenant's pool is shared with is declared in the one that it was made from.
    index.upsert_pool(Pool { shared_with: vec!["spy".to_owned()], ..made("shop") });
    let is_shared = |index: &mut Index, namespace: &str| {
        let view = index.snapshot();
        let declarations = view.declarations();
        let pool = declarations.pool(declarations.pool_id("dev-shop").unwrap()).unwrap();
        pool.is_shared_with(namespace)
    };
    assert!(!is_shared(&mut index, "spy"));
    index.upsert_pool(Pool { shared_with: vec!["agents".to_owned()], ..parent });
    assert!(is_shared(&mut index, "agents"));
    // A second pool that says it is the shop's moves no pod.
    index.upsert_pool(Pool {
        name: "another".to_owned(),
        value: "v".to_owned(),
        created: Some(3),
        ..made("shop")
    });
    assert_eq!(pools(&mut index, "shop"), [("dev-shop".to_owned(), true)]);
    // An ordinary pool that has the name by now is the one that Tenants name, and the other ends.
    index.upsert_pool(pool("dev", "another-key", "dev", 4));
    assert_eq!(pools(&mut index, "shop"), [("dev".to_owned(), true)]);
}
