//! Absurd input gives an error or a reason; nothing panics, overflows or hangs.

use croft_scheduler::{Cluster, Operator, Options, Requirement, solve};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::build::{cluster, kind, kinds, node, plan, pod, pool, requirement, why};

fn refused(more: Value) -> String {
    Cluster::new().upsert_pod(&pod("a", "1", "1Gi", more)).unwrap_err().to_string()
}

#[test]
fn bad_pods_are_refused_with_object_field_and_value() {
    let requests =
        |v: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": v}}}]}});
    assert_eq!(
        refused(requests("-1")),
        "failed to read Pod default/a: spec.containers[c].resources.requests.cpu: -1 is negative: write 0 or more"
    );
    assert!(refused(requests("lots")).contains("failed to read \"lots\" as a quantity"));
    let toleration = json!({"spec": {"tolerations": [{"key": "a", "operator": "Like"}]}});
    assert_eq!(
        refused(toleration),
        "failed to read Pod default/a: spec.tolerations: unknown operator \"Like\": write Equal or Exists"
    );
    let affinity = |operator: &str| {
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": operator, "values": ["x"]}]}]}}}}})
    };
    assert!(refused(affinity("Matches")).contains("unknown operator \"Matches\" on k"));
    assert!(refused(affinity("Gt")).contains("Gt on k needs exactly one integer"));
    let spread = |when: &str, skew: i32| json!({"spec": {"topologySpreadConstraints": [{"maxSkew": skew, "topologyKey": "z", "whenUnsatisfiable": when}]}});
    assert!(refused(spread("Perhaps", 1)).contains("unknown whenUnsatisfiable \"Perhaps\""));
    assert!(refused(spread("DoNotSchedule", 0)).contains("maxSkew 0 must be 1 or more"));
}

#[test]
fn absurd_sizes_stay_pending_with_a_reason() {
    for (cpu, memory) in
        [("9E", "1Gi"), ("1", "16Ei"), ("1e999999", "1e-999999"), ("9223372036854775807", "1")]
    {
        let pods: Vec<_> = (0..3).map(|i| pod(&format!("p{i}"), cpu, memory, json!({}))).collect();
        let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
        assert_eq!(plan.unschedulable.len(), 3, "{cpu} {memory}");
        assert!(
            why(&plan)[0].starts_with("p InsufficientResources: largest allocatable"),
            "{:?}",
            why(&plan)
        );
    }
}

#[test]
fn empty_and_contradictory_pools_say_so() {
    let one = [pod("a", "1", "1Gi", json!({}))];
    assert_eq!(why(&plan(&cluster(vec![], &one))), [" NoPools: there is no pool"]);
    assert_eq!(
        why(&plan(&cluster(vec![pool("p", vec![])], &one))),
        ["p NoOfferings: the requirements of p exclude every offering"]
    );
    let mut p = pool("p", kinds());
    p.requirements =
        vec![requirement("kubernetes.io/arch", &["amd64"]), requirement("kubernetes.io/arch", &["arm64"])];
    assert_eq!(
        why(&plan(&cluster(vec![p], &one))),
        [
            "p NoOfferings: the requirements of p exclude every offering: some would be left without kubernetes.io/arch = \
          arm64"
        ]
    );
    let mut p = pool("p", kinds());
    p.requirements = vec![
        requirement("kubernetes.io/arch", &["amd64"]),
        Requirement { key: "team".to_owned(), operator: Operator::Exists, values: vec![], min_values: None },
    ];
    assert_eq!(
        why(&plan(&cluster(vec![p], &one))),
        [
            "p NoOfferings: the requirements of p exclude every offering: some would be left without team Exists"
        ]
    );
    let mut p = pool("p", kinds());
    p.requirements = vec![requirement("kubernetes.io/os", &["windows"])];
    assert_eq!(
        why(&plan(&cluster(vec![p], &one))),
        [
            "p NoOfferings: the requirements of p exclude every offering: some would be left without kubernetes.io/os = windows"
        ]
    );
    let mut p = pool("p", kinds());
    p.requirements = vec![Requirement {
        key: "a".to_owned(),
        operator: Operator::Gt,
        values: vec!["x".to_owned()],
        min_values: None,
    }];
    let error = Cluster::new().upsert_pool(p).unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to read TenantPool p: spec.template.spec.requirements: Gt on a needs exactly one integer"
    );
}

#[test]
fn prices_of_zero_and_none() {
    let free = kind("free", "2", "8Gi", 0.0);
    let plan1 = plan(&cluster(vec![pool("p", vec![free])], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!((plan1.instances.len(), plan1.cost.micros(), plan1.bound.micros()), (1, 0, 0));
    assert!(plan1.gap().abs() < f64::EPSILON);
    let mut unpriced = kind("unpriced", "2", "8Gi", 1.0);
    unpriced.offerings.iter_mut().for_each(|o| o.price = None);
    let both = vec![unpriced.clone(), kind("dear", "2", "8Gi", 1e6)];
    let plan2 = plan(&cluster(vec![pool("p", both)], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!(plan2.instances[0].instance_type, "dear");
    let plan3 = plan(&cluster(vec![pool("p", vec![unpriced])], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!((plan3.instances[0].price, plan3.unpriced()), (None, 1));
    for bad in [r#"{"price":"cheap"}"#, r#"{"price":-1}"#, r#"{"price":1e999}"#] {
        let text = bad.replacen('{', r#"{"zone":"z","capacityType":"spot","#, 1);
        assert!(serde_json::from_str::<croft_scheduler::Offering>(&text).is_err(), "{bad}");
    }
}

#[test]
fn overcommitted_nodes_take_nothing() {
    let mut c = cluster(vec![], &[]);
    c.upsert_node(&node("n", "1", "1Gi", json!({}))).unwrap();
    for i in 0..4 {
        let running = json!({"spec": {"nodeName": "n"}});
        c.upsert_pod(&pod(&format!("r{i}"), "9E", "9E", running)).unwrap();
    }
    c.upsert_pod(&pod("a", "1m", "1", json!({}))).unwrap();
    assert_eq!(plan(&c).existing.len(), 0);
}

#[test]
fn what_goes_and_comes_back_leaves_no_trace() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    let before = format!("{:?}", plan(&c).instances);
    c.upsert_node(&node("n", "4", "8Gi", json!({"node-pool": "p"}))).unwrap();
    for i in 0..10 {
        c.upsert_pod(&pod(&format!("p{i}"), "1", "1Gi", json!({"spec": {"nodeName": "n"}}))).unwrap();
        c.upsert_pod(&pod(&format!("p{i}"), "1", "1Gi", json!({}))).unwrap();
    }
    assert_eq!(c.pending(), 10);
    for i in 0..10 {
        c.remove_pod("default", &format!("p{i}"));
    }
    c.remove_node("n");
    assert_eq!((c.pending(), format!("{:?}", plan(&c).instances)), (0, before));
}

#[test]
fn a_million_pods_get_their_places() {
    const PODS: usize = 1_000_000;
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    let mut one = pod("p", "1", "1Gi", json!({}));
    for i in 0..PODS {
        one.metadata.name = Some(i.to_string());
        c.upsert_pod(&one).unwrap();
    }
    let plan = solve(&c, &Options { effort: 0, ..Options::default() }, &|| false);
    assert_eq!(
        plan.instances.iter().map(|instance| instance.pods.len()).sum::<usize>() + plan.unschedulable.len(),
        PODS
    );
    assert_eq!(plan.unschedulable.len(), 0);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("100m".to_owned()),
        Just("3Gi".to_owned()),
        Just("9E".to_owned()),
        "[0-9]{1,22}(\\.[0-9]{1,5})?(m|k|Mi|Ei|e[0-9]{1,4})?",
        "[a-zA-Z0-9.+-]{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(
        sizes in prop::collection::vec((text(), text(), 0..6usize, 0..4usize), 0..12),
        capacity in text(),
        limit in text(),
        price in prop::num::f64::ANY,
        effort in 0..3u32,
    ) {
        let mut c = Cluster::new();
        let mut all = kinds();
        let mut odd = kind("odd", "1", "1Gi", 1.0);
        if let Ok(quantity) = capacity.parse() {
            odd.capacity.set_quantity("cpu", quantity);
        }
        odd.offerings.iter_mut().for_each(|o| o.price = croft_scheduler::Price::from_dollars(price));
        all.push(odd);
        let mut p = pool("p", all);
        if let Ok(quantity) = limit.parse::<croft_scheduler::Quantity>() {
            p.limits.insert("cpu".to_owned(), quantity);
        }
        let _ = c.upsert_pool(p);
        let mut accepted = 0;
        for (i, (cpu, memory, kind, app)) in sizes.iter().enumerate() {
            let key = if kind % 2 == 0 { "topology.kubernetes.io/zone" } else { "kubernetes.io/hostname" };
            let selector = json!({"matchLabels": {"app": format!("a{app}")}});
            let term = json!([{"topologyKey": key, "labelSelector": selector}]);
            let spec = match kind {
                0 | 1 => json!({"topologySpreadConstraints": [{"topologyKey": key, "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
                2 | 3 => json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}),
                _ => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}),
            };
            let more = json!({"metadata": {"labels": {"app": format!("a{}", i % 3)}}, "spec": spec});
            accepted += usize::from(c.upsert_pod(&pod(&format!("p{i}"), cpu, memory, more)).is_ok());
        }
        let plan = solve(&c, &Options { effort, ..Options::default() }, &|| false);
        let placed: usize = plan.instances.iter().map(|instance| instance.pods.len()).sum();
        prop_assert_eq!(placed + plan.unschedulable.len(), accepted);
        prop_assert!(plan.bound <= plan.cost);
        for instance in &plan.instances {
            for (name, amount) in instance.requests.iter() {
                prop_assert!(amount <= instance.allocatable.get(name).max(0), "{} {}", name, amount);
            }
        }
    }

    /// An offering or a limit added never turns a pod that is alone in the batch from placeable to impossible.
    #[test]
    fn more_never_hurts_a_pod_alone(cpu in 1..20_000i64, memory in 1..100_000i64, kept in 1..5usize, limit in 1..64i64) {
        let one = [pod("a", &format!("{cpu}m"), &format!("{memory}Mi"), json!({}))];
        let some: Vec<_> = kinds().into_iter().take(kept).collect();
        let mut p = pool("p", some);
        p.limits.insert("cpu".to_owned(), croft_scheduler::Quantity::from_units(limit));
        let before = plan(&cluster(vec![p.clone()], &one)).unschedulable.len();
        let mut more = p.clone();
        more.instance_types = kinds().into();
        prop_assert!(plan(&cluster(vec![more.clone()], &one)).unschedulable.len() <= before);
        more.limits.insert("cpu".to_owned(), croft_scheduler::Quantity::from_units(limit * 2));
        prop_assert!(plan(&cluster(vec![more.clone()], &one)).unschedulable.len() <= before);
        // A limit may keep it waiting, but the pod doesn't become impossible: the reason is the limit.
        more.limits.insert("memory".to_owned(), croft_scheduler::Quantity::from_units(1));
        for left in plan(&cluster(vec![more], &one)).unschedulable.iter().filter(|_| before == 0) {
            prop_assert!(left.reasons.iter().all(|r| r.reason.is_limit()), "{:?}", left.reasons);
        }
    }
}
