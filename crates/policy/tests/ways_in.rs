//! Rules besides a pod's own placement: mirror pods, taints of nodes, names of namespaces, and objects that state a
//! deletion timestamp.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use croft_policy::{
    Config, Index, Namespace, NamespaceCreation, Owner, Phase, Provisioner, Rule, Subject, Tenant, Tenants,
    audit::open_pools,
    definitions::{POOL_ANNOTATION, POOL_NAME_LABEL, POOLS_ANNOTATION},
    evaluate, node, plan_pod, plan_recreated, review, stored, view,
};
use serde_json::{Value, json};

const CONTROLLER: &str = "system:serviceaccount:croft-system:croft-controller";

struct Asked<'a> {
    user: &'a str,
    kind: &'a str,
    namespace: &'a str,
    object: Value,
    old: Value,
}

/// The message of the refusal, empty if the request is allowed, and whether there is a patch.
fn answer(tenants: &Tenants, asked: &Asked<'_>) -> (String, bool) {
    let Asked { user, kind, namespace, object, old } = asked;
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let group = if *kind == "DaemonSet" { "apps" } else { "" };
    let body = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": {"group": group, "version": "v1", "kind": kind}, "namespace": namespace,
            "operation": operation, "userInfo": {"username": user}, "object": object, "oldObject": old,
        },
    })
    .to_string();
    let outcome = evaluate(tenants, &review::parse(body.as_bytes()).unwrap(), Phase::Both);
    let patched = !outcome.patch.is_empty();
    (outcome.denial.map(|denial| denial.message).unwrap_or_default(), patched)
}

fn refused(tenants: &Tenants, asked: &Asked<'_>) -> String {
    answer(tenants, asked).0
}

#[test]
fn mirror_pod_in_a_tenants_namespace_is_admitted_only_on_the_tenants_nodes() {
    let tenants = world::world(Config::default());
    let cases = [
        ("tenant-a", "a-1", None),
        ("tenant-a", "gpu-1", None),
        ("tenant-a", "b-1", Some("pool-a, pool-a-gpu")),
        ("tenant-a", "free-1", Some("not a node")),
        ("tenant-a", "unheard-of", Some("not a node")),
        // Registered with its taint, not labelled yet: the kubelet retries.
        ("tenant-b", "b-2", Some("not a node")),
        ("non-tenant", "a-1", None),
        ("agents", "a-1", None),
        ("kube-system", "a-1", None),
    ];
    for (namespace, node, part) in cases {
        let object = json!({
            "metadata": {"name": "static", "annotations": {"kubernetes.io/config.mirror": "hash"}},
            "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}]},
        });
        let user = format!("system:node:{node}");
        let asked = Asked { user: &user, kind: "Pod", namespace, object, old: Value::Null };
        let (said, patched) = answer(&tenants, &asked);
        assert!(!patched, "a mirror pod is never patched");
        match part {
            None => assert_eq!(said, "", "{namespace} {node}"),
            Some(part) => {
                assert!(said.contains(part) && said.contains("static pod"), "{namespace} {node}: {said}")
            }
        }
    }
}

#[test]
fn taint_of_a_pool_stays_while_its_label_stays() {
    let tenants = world::world(Config::default());
    let taint =
        |value: &str, effect: &str| json!({"key": "example.com/gpu", "value": value, "effect": effect});
    let labels = || json!({"example.com/gpu": "a", POOL_NAME_LABEL: "pool-a-gpu"});
    let node = |labels: Value, taints: Value| json!({"metadata": {"name": "gpu-1", "labels": labels}, "spec": {"taints": taints}});
    let both = || json!([taint("a", "NoSchedule"), taint("a", "NoExecute")]);
    let other = json!({"key": "example.com/other", "effect": "NoSchedule"});
    let cases = [
        ("removed", labels(), json!([]), true),
        ("one effect removed", labels(), json!([taint("a", "NoSchedule")]), true),
        ("another value", labels(), json!([taint("b", "NoSchedule"), taint("b", "NoExecute")]), true),
        ("another effect", labels(), json!([taint("a", "PreferNoSchedule"), taint("a", "NoExecute")]), true),
        (
            "untouched, another added",
            labels(),
            json!([other, taint("a", "NoExecute"), taint("a", "NoSchedule")]),
            false,
        ),
        ("label and taint", json!({POOL_NAME_LABEL: "pool-a-gpu"}), json!([]), false),
        ("label alone", json!({POOL_NAME_LABEL: "pool-a-gpu"}), both(), false),
    ];
    for (what, after, taints, is_refused) in cases {
        for user in ["jane", "system:serviceaccount:kube-system:node-controller", CONTROLLER] {
            let (object, old) = (node(after.clone(), taints.clone()), node(labels(), both()));
            let asked = Asked { user, kind: "Node", namespace: "", object, old };
            let said = refused(&tenants, &asked);
            assert_eq!(said.contains("remove the label"), is_refused, "{what} by {user}: {said}");
        }
    }
    // Taints of no pool, and taints without the label of the same value, may be removed.
    let old = node(json!({"example.com/gpu": "b"}), json!([taint("a", "NoSchedule"), other]));
    let asked = Asked {
        user: "jane",
        kind: "Node",
        namespace: "",
        object: node(json!({"example.com/gpu": "b"}), json!([])),
        old,
    };
    assert_eq!(refused(&tenants, &asked), "");
}

#[test]
fn kubelet_may_not_relabel_a_node_that_is_being_deleted() {
    let tenants = world::world(Config::default());
    let node = |labels: Value| json!({"metadata": {"name": "b-1", "labels": labels, "deletionTimestamp": "2026-01-02T03:04:05Z"}});
    let kubelet = "system:node:b-1";
    let (object, old) = (node(json!({"node-pool": "pool-a"})), node(json!({"node-pool": "pool-b"})));
    let asked = Asked { user: kubelet, kind: "Node", namespace: "", object, old };
    assert!(refused(&tenants, &asked).contains("may not change"));
    let asked = Asked {
        user: kubelet,
        kind: "Node",
        namespace: "",
        object: node(json!({"node-pool": "pool-a"})),
        old: Value::Null,
    };
    assert!(refused(&tenants, &asked).contains("may not register"));
    let asked = Asked {
        user: kubelet,
        kind: "Node",
        namespace: "",
        object: node(json!({"a": "b"})),
        old: node(json!({})),
    };
    assert_eq!(refused(&tenants, &asked), "");
}

/// The node has no pool label yet: without the starting label, a pod that tolerates everything would run there.
#[test]
fn kubelet_keeps_the_starting_label_and_taint_until_its_node_is_labelled() {
    let tenants = world::world(Config::default());
    let taint = json!({"key": "croft.dev/unregistered", "effect": "NoExecute"});
    let node = |labels: &Value, taints: &Value| json!({"metadata": {"name": "b-9", "labels": labels}, "spec": {"taints": taints}});
    let (starting, none) = (json!({"croft.dev/unregistered": "true"}), json!({}));
    let (tainted, bare) = (json!([taint]), json!([]));
    for (what, after, old, part) in [
        ("label removed", node(&none, &tainted), node(&starting, &tainted), "may not change the pool label"),
        ("label added", node(&starting, &bare), node(&none, &bare), "may not change the pool label"),
        ("taint removed", node(&starting, &bare), node(&starting, &tainted), "may not change taints of key"),
        ("registered with both", node(&starting, &tainted), Value::Null, ""),
        ("nothing of them", node(&starting, &tainted), node(&starting, &tainted), ""),
    ] {
        let asked = Asked { user: "system:node:b-9", kind: "Node", namespace: "", object: after, old };
        let said = refused(&tenants, &asked);
        assert_eq!((said.is_empty(), said.contains(part)), (part.is_empty(), true), "{what}: {said}");
    }
}

#[test]
fn created_object_with_a_deletion_timestamp_is_evaluated() {
    let tenants = world::world(Config::default());
    let metadata = || json!({"name": "x", "deletionTimestamp": "2026-01-02T03:04:05Z"});
    let pod = |namespace, spec: Value| Asked {
        user: "jane",
        kind: "Pod",
        namespace,
        object: json!({"metadata": metadata(), "spec": spec}),
        old: Value::Null,
    };
    let everything = json!({"tolerations": [{"operator": "Exists"}]});
    assert!(
        answer(&tenants, &pod("agents", everything.clone())).1,
        "kept out of the pools that aren't shared"
    );
    assert!(answer(&tenants, &pod("tenant-a", json!({}))).1, "pinned");
    assert!(
        refused(&tenants, &pod("non-tenant", json!({"nodeName": "a-1"}))).contains("belongs to no tenant")
    );
    let daemonset = Asked {
        user: "jane",
        kind: "DaemonSet",
        namespace: "tenant-a",
        old: Value::Null,
        object: json!({"metadata": metadata(), "spec": {"template": {"spec": {}}}}),
    };
    assert!(answer(&tenants, &daemonset).1, "planned");
    let namespace = Asked {
        user: "jane",
        kind: "Namespace",
        namespace: "",
        old: Value::Null,
        object: json!({"metadata": {"name": "x", "labels": {"croft.dev/tenancy": "none"}, "deletionTimestamp": "2026-01-02T03:04:05Z"}}),
    };
    assert_eq!(answer(&tenants, &namespace), (String::new(), true), "what is brought is taken back");
}

/// The metadata that is stored of a namespace `x`, in the mutating phase, and the message of the validating phase for the
/// namespace as it was sent.
fn stored_namespace(tenants: &Tenants, user: &str, old: &Value, new: &Value) -> (Value, String) {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let object =
        |metadata: &Value| if metadata.is_null() { Value::Null } else { json!({"metadata": metadata}) };
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "namespace": "x", "name": "x",
        "operation": operation, "userInfo": {"username": user}, "object": object(new), "oldObject": object(old)}})
    .to_string();
    let request = review::parse(body.as_bytes()).unwrap();
    let mutated = evaluate(tenants, &request, Phase::Mutate);
    assert!(mutated.allowed(), "nothing is refused before others have changed it");
    assert_eq!(mutated.rule == Rule::MetadataKept, !mutated.patch.is_empty());
    let patch: json_patch::Patch = serde_json::from_str(&mutated.patch.into_json()).unwrap();
    let mut stored = object(new);
    json_patch::patch(&mut stored, &patch).unwrap();
    let refused = evaluate(tenants, &request, Phase::Validate).denial;
    (
        stored.get("metadata").cloned().unwrap_or_default(),
        refused.map(|denial| denial.message).unwrap_or_default(),
    )
}

#[test]
fn metadata_of_croft_that_others_bring_change_or_remove_is_put_back() {
    let tenants = world::world(Config::default());
    let kept = "kept by Croft alone";
    let both = || json!({"labels": {"croft.dev/tenancy": "none"}, "annotations": {POOLS_ANNOTATION: "p"}});
    let cases = [
        ("a restoration", json!(null), both(), json!({"labels": {}, "annotations": {}}), kept),
        ("nothing of Croft's", json!(null), json!({"labels": {"a": "b"}}), json!({"labels": {"a": "b"}}), ""),
        (
            "a default pool",
            json!({}),
            json!({"annotations": {POOL_ANNOTATION: "p"}}),
            json!({"annotations": {POOL_ANNOTATION: "p"}}),
            "",
        ),
        ("all maps removed", both(), json!({}), both(), kept),
        ("maps of null", both(), json!({"labels": null, "annotations": null}), both(), kept),
        (
            "the label removed",
            both(),
            json!({"labels": {"a": "b"}, "annotations": {POOLS_ANNOTATION: "p"}}),
            json!({"labels": {"a": "b", "croft.dev/tenancy": "none"}, "annotations": {POOLS_ANNOTATION: "p"}}),
            kept,
        ),
        (
            "another value, and one brought",
            both(),
            json!({"labels": {"croft.dev/tenancy": "x"}, "annotations": {POOLS_ANNOTATION: "q", "policy.croft.dev/shared": "*"}}),
            both(),
            kept,
        ),
        (
            "an unknown one of Croft's",
            json!({}),
            json!({"annotations": {"policy.croft.dev/to-come": "x", "a": "b"}}),
            json!({"annotations": {"a": "b"}}),
            kept,
        ),
        ("untouched", both(), both(), both(), ""),
    ];
    for (what, old, new, wanted, part) in cases {
        let (stored, said) = stored_namespace(&tenants, "jane", &old, &new);
        assert_eq!(stored, wanted, "{what}");
        assert!(said.contains(part), "{what}: {said}");
        assert_eq!(said.is_empty(), part.is_empty(), "{what}: {said}");
        let by_controller = stored_namespace(&tenants, CONTROLLER, &old, &new);
        assert_eq!(by_controller, (new, String::new()), "{what}, by the controller");
    }
}

#[test]
fn owner_may_give_what_the_settings_open_and_nothing_reserved() {
    let creation = NamespaceCreation { prefix: "shop-".to_owned(), maximum: 1 };
    let olga = Owner { subject: Subject::User("olga".to_owned()), roles: vec!["admin".to_owned()] };
    let tenant =
        Tenant { name: "shop".to_owned(), creation: Some(creation), owners: vec![olga], ..Tenant::default() };
    let tenants = Tenants::offline(Config::default(), vec![tenant], vec![], vec![], vec![]);
    let create = |labels: Value, annotations: Value| {
        let object = json!({"metadata": {"name": "shop-1", "labels": labels, "annotations": annotations}});
        refused(&tenants, &Asked { user: "olga", kind: "Namespace", namespace: "", object, old: Value::Null })
    };
    let flux = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "name": "shop-1"});
    let argo = json!({"argocd.argoproj.io/tracking-id": "x", "app.kubernetes.io/version": "1"});
    assert_eq!(create(flux, argo), "");
    for (labels, annotations, what) in [
        (json!({"name": "other"}), json!({}), "the label name"),
        (json!({"team": "a"}), json!({}), "the label team"),
        (
            json!({"pod-security.kubernetes.io/warn": "x"}),
            json!({}),
            "the label pod-security.kubernetes.io/warn",
        ),
        (json!({}), json!({POOL_ANNOTATION: "p"}), "the annotation croft.dev/pool"),
        (
            json!({}),
            json!({"argocd.argoproj.io/managed-by": "p"}),
            "the annotation argocd.argoproj.io/managed-by",
        ),
    ] {
        let said = create(labels, annotations);
        assert!(
            said.contains(what) && said.contains("spec.ownerMetadata of the CroftConfig"),
            "{what}: {said}"
        );
    }
}

#[test]
fn own_namespace_stays_while_there_are_tenants() {
    let delete = |tenants: &Tenants, name: &str| {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "namespace": name, "name": name,
            "operation": "DELETE", "userInfo": {"username": "admin"}, "object": null,
            "oldObject": {"metadata": {"name": name}}}})
        .to_string();
        evaluate(tenants, &review::parse(body.as_bytes()).unwrap(), Phase::Both).denial
    };
    let tenants = world::world(Config::default());
    let denial = delete(&tenants, "croft-system").unwrap();
    assert_eq!(denial.rule, Rule::OwnNamespace);
    assert!(denial.message.contains("croft uninstall") && denial.message.contains("croft break-glass on"));
    assert_eq!(delete(&tenants, "tenant-a"), None);
    let none = Tenants::offline(Config::default(), vec![], vec![], vec![], vec![]);
    assert_eq!(delete(&none, "croft-system"), None);
}

#[test]
fn namespace_to_which_pools_are_open_by_name_needs_assign() {
    let config = Config {
        exempt: vec!["left-alone".to_owned()],
        shared_with: vec!["everywhere".to_owned()],
        ..Config::default()
    };
    let tenants = world::world(config);
    let create = |name: &str| {
        let object = json!({"metadata": {"name": name}});
        refused(&tenants, &Asked { user: "jane", kind: "Namespace", namespace: "", object, old: Value::Null })
    };
    assert!(create("agents").contains("assign on tenantpools/pool-c"));
    assert!(create("left-alone").contains("assign on croftconfigs/default"));
    assert!(create("everywhere").contains("assign on croftconfigs/default"));
    for name in ["ordinary", "kube-system", "croft-system"] {
        assert_eq!(create(name), "", "{name}");
    }
    let object = json!({"metadata": {"name": "agents", "labels": {"a": "b"}}});
    let asked = Asked {
        user: "jane",
        kind: "Namespace",
        namespace: "",
        object,
        old: json!({"metadata": {"name": "agents"}}),
    };
    assert_eq!(refused(&tenants, &asked), "", "one that is there may be changed");
}

#[test]
fn nodes_of_other_provisioners_are_repaired_until_their_label_is_removed() {
    let mut pools = world::pools();
    pools.iter_mut().for_each(|pool| pool.provisioner = Provisioner::Karpenter);
    let of = |name: &str| pools.iter().find(|pool| pool.name == name);
    let tenants = Tenants::offline(Config::default(), world::tenants(), pools.clone(), vec![], vec![]);
    let repair = |node: &croft_policy::Node| node::repair(tenants.declarations(), node);
    let whole = world::node("gpu-1", of("pool-a-gpu"));
    assert_eq!(repair(&whole), None);
    let mut bare = whole.clone();
    bare.taints.clear();
    bare.labels.remove(POOL_NAME_LABEL);
    let lacks = repair(&bare).unwrap();
    assert_eq!((lacks.pool_name.as_deref(), lacks.taints.len()), (Some("pool-a-gpu"), 2));
    let mut untainted = whole.clone();
    untainted.taints[0].value = "b".to_owned();
    assert_eq!(repair(&untainted).unwrap().taints, whole.taints[..1]);
    let mut left = whole.clone();
    left.labels.remove("example.com/gpu");
    let lacks = repair(&left).unwrap();
    assert_eq!(
        (lacks.pool_name, lacks.taints.len()),
        (None, 0),
        "the pool-name label alone holds no node in a pool"
    );
    let mut two = whole.clone();
    two.labels.insert("node-pool".to_owned(), "pool-b".to_owned());
    assert_eq!(repair(&two), None, "which of the two isn't ours to say");
    let built_in = world::node("d-1", of("pool-d"));
    let mut left = built_in.clone();
    left.labels.remove(POOL_NAME_LABEL);
    assert_eq!((repair(&built_in), repair(&left)), (None, None));
    // The controller repairs nodes of Croft's own pools by their NodeClaims.
    let own = world::world(Config::default());
    assert_eq!(node::repair(own.declarations(), &bare), None);
}

#[test]
fn pod_of_a_surplus_namespace_is_refused_for_good_and_that_of_an_incomplete_one_for_now() {
    let mut index = Index::new();
    let spec = json!({"pools": ["pool-a"], "namespaceCreation": {"prefix": "shop-", "maximum": 1}});
    index.upsert_tenant(stored::tenant("a".to_owned(), Some(1), &spec).object);
    let mut namespace = Namespace { name: "shop-new".to_owned(), ..Namespace::default() };
    index.upsert_namespace(&namespace);
    let pod = json!({"metadata": {"name": "p"}, "spec": {}});
    let body = |namespace: &str| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": namespace,
            "operation": "CREATE", "userInfo": {"username": "jane"}, "object": pod}})
        .to_string()
    };
    let denial = |tenants: &Tenants| {
        let outcome = evaluate(tenants, &review::parse(body("shop-new").as_bytes()).unwrap(), Phase::Mutate);
        assert_eq!(outcome.tenant, Some("a"));
        outcome.denial.unwrap()
    };
    let waiting = denial(&index.snapshot());
    assert_eq!((waiting.rule, waiting.is_retryable()), (Rule::NamespaceIncomplete, true));
    namespace.name = "shop-old".to_owned();
    namespace.annotations.insert(POOLS_ANNOTATION.to_owned(), "-".to_owned());
    index.upsert_namespace(&namespace);
    let surplus = denial(&index.snapshot());
    assert_eq!((surplus.rule, surplus.is_retryable()), (Rule::NamespaceSurplus, false));
    assert_eq!(
        surplus.message,
        "namespace \"shop-new\" is beyond spec.namespaceCreation.maximum of tenant \"a\", which is 1, so it gets no pools: \
         the namespaces that count are shop-old; use one of these, or ask the cluster's operator to delete one or to raise \
         the maximum"
    );
}

#[test]
fn pod_that_was_kept_out_before_its_namespace_got_a_tenant_is_refused_and_recreated() {
    let tenants = world::world(Config::default());
    let pod = |terms: Value| {
        json!({"metadata": {"name": "p"}, "spec": {"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
    };
    let expression = |operator: &str, values: &[&str]| match values {
        [] => json!({"key": POOL_NAME_LABEL, "operator": operator}),
        values => json!({"key": POOL_NAME_LABEL, "operator": operator, "values": values}),
    };
    let term =
        |expression: Value| json!({"matchExpressions": [{"key": "os", "operator": "Exists"}, expression]});
    let out = expression("DoesNotExist", &[]);
    for (terms, is_refused) in [
        (json!([term(out.clone())]), true),
        (json!([term(out.clone()), term(expression("NotIn", &["pool-b", "pool-a"]))]), true),
        (json!([term(expression("NotIn", &["pool-a"]))]), false),
        (json!([term(out.clone()), term(expression("Exists", &[]))]), false),
        (json!([term(out), {}]), false),
    ] {
        let text = pod(terms.clone()).to_string();
        let pod: view::Pod<'_> = serde_json::from_str(&text).unwrap();
        let planned = plan_pod(&tenants, "tenant-b", &pod);
        let rule = planned.denial.map(|denial| denial.rule);
        assert_eq!(rule, is_refused.then_some(Rule::ExcludesPool), "{terms}");
        // Its ReplicaSet makes it from a template without the affinity.
        assert!(plan_recreated(&tenants, "tenant-b", &pod).allowed(), "{terms}");
    }
}

/// Pods that wait since before the pools were declared.
#[test]
fn a_waiting_pod_holds_the_pools_that_it_could_enter_and_no_others() {
    let tenants = world::world(Config::default());
    let all = json!([{"operator": "Exists"}]);
    let terms = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let on = |names: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
    let off = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    let every = ["arm", "gpu", "pool-a", "pool-a-gpu", "pool-b", "pool-c", "pool-d", "spot", "team", "x86"];
    let foreign = |own: &[&'static str]| every.iter().copied().filter(|pool| !own.contains(pool)).collect();
    let cases: Vec<(&str, &str, Value, Vec<&str>)> = vec![
        ("tolerates all", "non-tenant", json!({"tolerations": all}), foreign(&[])),
        ("with which one is shared", "agents", json!({"tolerations": all}), foreign(&["pool-c"])),
        (
            "tolerates one",
            "non-tenant",
            json!({"tolerations": [{"key": "node-pool", "value": "pool-b"}]}),
            vec!["pool-b"],
        ),
        ("of a tenant", "tenant-b", json!({"tolerations": all}), foreign(&["pool-b"])),
        (
            "pinned to a pool that was its tenant's",
            "tenant-a",
            json!({"tolerations": all, "nodeSelector": {"node-pool": "pool-b"}}),
            vec!["pool-b"],
        ),
        (
            "selects its own pool and would be refused",
            "tenant-a-bad",
            json!({"tolerations": all, "nodeSelector": {"node-pool": "pool-a"}, "schedulerName": "mine",
                "affinity": terms(json!([{"matchExpressions": [off(POOL_NAME_LABEL)]}]))}),
            vec![],
        ),
        ("gated", "non-tenant", json!({"tolerations": all, "schedulingGates": [{"name": "wait"}]}), vec![]),
        (
            "kept off every pool",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([{"matchExpressions":
                [off(POOL_NAME_LABEL), off("croft.dev/unregistered")]}]))}),
            vec![],
        ),
        (
            "tied elsewhere",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([on(&["free-1"])]))}),
            vec![],
        ),
        (
            "tied to a node of a pool",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([on(&["b-2"])]))}),
            vec!["pool-b"],
        ),
        (
            "tied to a node that isn't there",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([on(&["later"])]))}),
            foreign(&[]),
        ),
        (
            "tied in one term of two",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([on(&["free-1"]), {"matchExpressions": [off("zone")]}]))}),
            foreign(&[]),
        ),
        (
            "tied to one of two",
            "non-tenant",
            json!({"tolerations": all, "affinity": terms(json!([on(&["free-1", "later"])]))}),
            foreign(&[]),
        ),
    ];
    for (what, namespace, spec, expected) in cases {
        let text = json!({"metadata": {"name": "waits"}, "spec": spec}).to_string();
        let pod: view::Pod<'_> = serde_json::from_str(&text).unwrap();
        let mut open: Vec<&str> =
            open_pools(&tenants, namespace, &pod).iter().map(|pool| &*pool.name).collect();
        open.sort_unstable();
        assert_eq!(open, expected, "{what}");
    }
}
