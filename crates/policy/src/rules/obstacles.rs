//! The parts of a pod that keep it off the nodes of a pool.

use crate::{
    request::view::{PodSpec, Term},
    tenancy::{
        node_template::{NodeTemplate, Siblings},
        taint::Taint,
    },
};

/// A reason why nodes of a template can't hold a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle<'o> {
    /// No node has this label, which the node selector asks for.
    Selector {
        /// Its key.
        key: &'o str,
        /// Its value.
        value: &'o str,
    },
    /// No term of the required node affinity can hold.
    Affinity,
    /// The pod doesn't tolerate this taint.
    Taint(&'o Taint),
    /// No node has this extended resource, which nodes of another pool have.
    Resource(&'o str),
}

/// The obstacles of a pod on nodes of `template`, where `siblings` are the declarations of the tenant's pools.
pub(crate) fn obstacles<'o>(
    template: &'o NodeTemplate,
    spec: &'o PodSpec<'_>,
    siblings: &Siblings,
) -> impl Iterator<Item = Obstacle<'o>> {
    let selector: Vec<Obstacle<'_>> = spec
        .node_selector
        .iter()
        .flat_map(|selector| selector.iter())
        .filter(|(key, value)| !template.can_meet(key, "In", &[value], siblings))
        .map(|(key, value)| Obstacle::Selector { key, value })
        .collect();
    let can_match = |term: &Term<'_>| {
        !term.is_empty()
            && term.expressions().iter().all(|expression| {
                let values: Vec<&str> = expression.values.iter().map(|value| &**value).collect();
                template.can_meet(&expression.key, &expression.operator, &values, siblings)
            })
    };
    let affinity = spec.terms().is_some_and(|terms| !terms.iter().any(can_match));
    let taints = template.taints().iter().filter(|taint| !tolerates(spec, taint)).map(Obstacle::Taint);
    let lacks = |name: &&str| template.lacks(name) && siblings.have(name);
    let resources: Vec<Obstacle<'_>> =
        spec.extended_resources().filter(lacks).map(Obstacle::Resource).collect();
    selector.into_iter().chain(affinity.then_some(Obstacle::Affinity)).chain(taints).chain(resources)
}

/// True if each instance of the pool has an extended resource that the pod needs.
pub(crate) fn is_dedicated(template: &NodeTemplate, spec: &PodSpec<'_>) -> bool {
    spec.extended_resources().any(|name| template.is_dedicated_to(name))
}

fn tolerates(spec: &PodSpec<'_>, taint: &Taint) -> bool {
    let mut parsed = spec.tolerations().iter().filter_map(|toleration| toleration.parse());
    parsed.any(|t| t.tolerates_by_default(&taint.key, &taint.value, taint.effect))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::tenancy::{node_template::LABELS_LIMIT_BYTES, stored::node_template, taint::Effect};

    fn template(spec: &Value, resources: &[&str]) -> NodeTemplate {
        let resources: Vec<Value> =
            resources.iter().map(|name| json!({"name": name, "dedicated": false})).collect();
        node_template(&json!({"template": spec}), &json!({"extendedResources": resources}))
    }

    fn requiring(key: &str, operator: &str, values: &[&str]) -> NodeTemplate {
        template(
            &json!({"spec": {"requirements": [{"key": key, "operator": operator, "values": values}]}}),
            &[],
        )
    }

    /// The obstacles of a pod with this spec, as words.
    fn obstacles(template: &NodeTemplate, spec: &Value, siblings: &[&NodeTemplate]) -> Vec<String> {
        let text = spec.to_string();
        let spec: PodSpec<'_> = serde_json::from_str(&text).unwrap();
        super::obstacles(template, &spec, &of(siblings)).map(|obstacle| format!("{obstacle:?}")).collect()
    }

    fn of(templates: &[&NodeTemplate]) -> Siblings {
        Siblings::of(templates.iter().copied())
    }

    fn could_hold(template: &NodeTemplate, spec: &Value) -> bool {
        obstacles(template, spec, &[template]).is_empty()
    }

    #[test]
    fn requirements_decide_which_labels_a_node_can_have() {
        let cpu = "karpenter.k8s.aws/instance-cpu";
        let arch = "kubernetes.io/arch";
        let expression = |key: &str, operator: &str, values: &[&str]| {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [term]}}}})
        };
        let arm = requiring(arch, "In", &["arm64"]);
        let not_arm = requiring(arch, "NotIn", &["arm64"]);
        let sizes = requiring(cpu, "In", &["4", "8", "large"]);
        let large = requiring(cpu, "Gt", &["4"]);
        let cases = [
            (&arm, json!({"nodeSelector": {arch: "arm64"}}), true),
            (&arm, json!({"nodeSelector": {arch: "amd64"}}), false),
            (&arm, json!({"nodeSelector": {"beta.kubernetes.io/arch": "arm64"}}), true),
            (&arm, json!({"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}}), false),
            (&not_arm, json!({"nodeSelector": {arch: "amd64"}}), true),
            (&not_arm, json!({"nodeSelector": {arch: "arm64"}}), false),
            // Nothing is declared: the pool may be right.
            (&arm, json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}}), true),
            (&arm, json!({"nodeSelector": {"example.com/team": "a"}}), true),
            // The defaults of a pool.
            (&arm, json!({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}), false),
            (&arm, json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), false),
            (&arm, expression(arch, "In", &["amd64", "arm64"]), true),
            (&arm, expression(arch, "NotIn", &["amd64"]), true),
            (&arm, expression(arch, "NotIn", &["arm64"]), false),
            (&arm, expression(arch, "Exists", &[]), true),
            (&arm, expression(arch, "DoesNotExist", &[]), false),
            (&sizes, expression(cpu, "Gt", &["4"]), true),
            (&sizes, expression(cpu, "Gt", &["8"]), false),
            (&sizes, expression(cpu, "Lt", &["5"]), true),
            (&sizes, expression(cpu, "Lt", &["4"]), false),
            (&large, expression(cpu, "Lt", &["4"]), true),
            (
                &arm,
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{}]}}}}),
                false,
            ),
        ];
        for (template, spec, expected) in cases {
            assert_eq!(could_hold(template, &spec), expected, "{spec} on {template:?}");
        }
        let both = template(
            &json!({"spec": {"requirements": [
                {"key": cpu, "operator": "In", "values": ["2", "4", "8"]}, {"key": cpu, "operator": "Gte", "values": ["4"]},
                {"key": cpu, "operator": "NotIn", "values": ["8"]}]}}),
            &[],
        );
        assert!(
            both.text(&of(&[])).contains("karpenter.k8s.aws/instance-cpu=in=4 "),
            "{}",
            both.text(&of(&[]))
        );
        let none = requiring("kubernetes.io/os", "DoesNotExist", &[]);
        assert!(!could_hold(&none, &json!({"nodeSelector": {"kubernetes.io/os": "linux"}})));
    }

    #[test]
    fn taints_and_extended_resources_keep_pods_off() {
        let taints = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"}]);
        let gpu = template(&json!({"spec": {"taints": taints}}), &["nvidia.com/gpu"]);
        let tolerations = json!([{"key": "gpu", "operator": "Exists"}]);
        let other = template(&json!({"spec": {}}), &["amd.com/gpu"]);
        let could_hold =
            |template: &NodeTemplate, spec: &Value| obstacles(template, spec, &[template, &other]).is_empty();
        let asks = |name: &str, field: &str, amount: Value| json!({"tolerations": tolerations, "containers": [{"resources": {field: {name: amount, "cpu": 1}}}]});
        assert!(could_hold(&gpu, &asks("nvidia.com/gpu", "requests", json!("1"))));
        assert!(could_hold(&gpu, &asks("nvidia.com/gpu", "limits", json!(1))));
        assert!(!could_hold(&gpu, &asks("amd.com/gpu", "limits", json!(1))));
        assert!(could_hold(&gpu, &asks("amd.com/gpu", "limits", json!(0))));
        assert!(could_hold(&gpu, &asks("amd.com/gpu", "requests", json!("0"))));
        assert!(could_hold(&gpu, &asks("hugepages-2Mi", "limits", json!("4Mi"))));
        assert!(!could_hold(
            &gpu,
            &json!({"initContainers": [{"resources": {"limits": {"amd.com/gpu": "1"}}}],
            "tolerations": tolerations})
        ));
        assert!(!could_hold(&gpu, &json!({})));
        assert!(!could_hold(&gpu, &json!({"tolerations": [{"key": "gpu", "value": "no"}]})));
        assert!(could_hold(&gpu, &json!({"tolerations": [{"key": "gpu", "value": "yes"}]})));
        let paged = template(&json!({"spec": {}}), &["hugepages-2Mi"]);
        let pages = asks("hugepages-2Mi", "limits", json!("4Mi"));
        assert!(obstacles(&paged, &pages, &[&gpu, &paged]).is_empty());
        assert_eq!(
            obstacles(&gpu, &pages, &[&gpu, &paged]),
            ["Resource(\"hugepages-2Mi\")"],
            "another pool has them"
        );
        let unknown = node_template(&json!({"template": {}}), &Value::Null);
        assert!(could_hold(&unknown, &asks("amd.com/gpu", "limits", json!(1))), "unknown is not none");
        let soft = Taint { key: "k".to_owned(), value: String::new(), effect: Effect::PreferNoSchedule };
        assert!(could_hold(&NodeTemplate::default().with_taints([soft]), &json!({})));
    }

    #[test]
    fn pool_of_several_templates_could_hold_what_one_of_them_could() {
        let requires = |key: &str, values: &[&str]| json!([{"key": key, "operator": "In", "values": values}]);
        let taint = json!([{"key": "ci", "value": "yes", "effect": "NoSchedule"}]);
        let capacity = "karpenter.sh/capacity-type";
        let pool = node_template(
            &json!({"templates": [
                {"name": "spot", "metadata": {"labels": {"team": "web", "disk": "fast"}},
                    "spec": {"requirements": requires(capacity, &["spot"])}},
                {"name": "steady", "metadata": {"labels": {"team": "ci"}},
                    "spec": {"taints": taint, "requirements": requires("kubernetes.io/arch", &["arm64"])}},
            ]}),
            &Value::Null,
        );
        for (key, value, expected) in [
            (capacity, "spot", true),
            (capacity, "on-demand", true),
            (capacity, "reserved", false),
            ("croft.dev/template", "spot", true),
            ("croft.dev/template", "other", false),
            ("kubernetes.io/arch", "amd64", true),
            ("team", "ci", true),
            ("team", "shop", false),
            ("disk", "fast", true),
            ("kubernetes.io/os", "windows", false),
        ] {
            assert_eq!(could_hold(&pool, &json!({"nodeSelector": {key: value}})), expected, "{key}={value}");
        }
        assert!(could_hold(&pool, &json!({})), "a taint of one template keeps no pod off the other's nodes");
        let alone =
            node_template(&json!({"templates": [{"name": "a", "spec": {"taints": taint}}]}), &Value::Null);
        assert!(!could_hold(&alone, &json!({})));
        // A node of another pool of the tenant has no label of a template.
        let other = node_template(&json!({"template": {}}), &Value::Null);
        let named = json!({"nodeSelector": {"croft.dev/template": "spot"}});
        assert_eq!(obstacles(&other, &named, &[&pool, &other]).len(), 1);
        assert!(obstacles(&pool, &named, &[&pool, &other]).is_empty());
        let fast = json!({"nodeSelector": {"disk": "fast"}});
        assert_eq!(
            obstacles(&other, &fast, &[&pool, &other]).len(),
            1,
            "also a label that one template gives"
        );
    }

    #[test]
    fn resources_count_where_a_pool_is_known_to_have_them() {
        let with = |resources: Value| {
            node_template(&json!({"template": {}}), &json!({"extendedResources": resources}))
        };
        let gpu = |dedicated: bool| with(json!([{"name": "nvidia.com/gpu", "dedicated": dedicated}]));
        let (some, dedicated, none) = (gpu(false), gpu(true), with(json!([])));
        let unknown = node_template(&json!({"template": {}}), &Value::Null);
        let asks = |name: &str| json!({"containers": [{"resources": {"limits": {name: "1"}}}]});
        let spec = asks("nvidia.com/gpu");
        let all = [&some, &dedicated, &none, &unknown];
        for (template, expected) in [(&some, 0), (&dedicated, 0), (&none, 1), (&unknown, 0)] {
            assert_eq!(obstacles(template, &spec, &all).len(), expected, "{template:?}");
            assert!(
                obstacles(template, &asks("example.com/fpga"), &all).is_empty(),
                "no pool is known to have it"
            );
            let text = spec.to_string();
            let spec: PodSpec<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(is_dedicated(template, &spec), std::ptr::eq(template, &raw const dedicated));
        }
        assert!(none.text(&of(&all)).ends_with("||nvidia.com/gpu|"), "{}", none.text(&of(&all)));
        assert!(dedicated.text(&of(&all)).ends_with("|||nvidia.com/gpu"), "{}", dedicated.text(&of(&all)));
    }

    #[test]
    fn labels_of_the_instances_count_beside_the_requirements() {
        let pool = |requirements: Value, labels: Value| {
            let spec = json!({"template": {"spec": {"requirements": requirements}}});
            node_template(&spec, &json!({"instanceLabels": labels}))
        };
        let family =
            json!([{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m7g"]}]);
        let arm = json!([{"key": "kubernetes.io/arch", "values": ["arm64"]}]);
        let selects = |key: &str, value: &str| json!({"nodeSelector": {key: value}});
        let graviton = pool(family, arm.clone());
        for (key, value, expected) in [
            ("kubernetes.io/arch", "arm64", true),
            ("kubernetes.io/arch", "amd64", false),
            ("beta.kubernetes.io/arch", "amd64", false),
            ("karpenter.k8s.aws/instance-category", "m", true),
        ] {
            assert_eq!(could_hold(&graviton, &selects(key, value)), expected, "{key}={value}");
        }
        assert!(graviton.text(&of(&[])).contains("kubernetes.io/arch=in=arm64 "));
        // The status is of an earlier requirement: what is required counts.
        let edited = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        assert!(could_hold(&pool(edited, arm), &selects("kubernetes.io/arch", "amd64")));
        for bad in [json!([]), json!([{"key": "a b", "values": ["c"]}]), json!([{"key": "a", "values": []}])]
        {
            assert_eq!(pool(json!([]), bad), pool(json!([]), Value::Null));
        }
    }

    #[test]
    fn parts_that_would_break_the_text_are_left_out() {
        let template = node_template(
            &json!({"template": {"metadata": {"labels": {"a;b": "c", "d": "e|f"}}, "spec": {
                "requirements": [{"key": "k", "operator": "In", "values": ["a b"]}],
                "taints": [{"key": "x y", "effect": "NoSchedule"}]}}}),
            &json!({"extendedResources": [{"name": "x;node-pool=b:NoSchedule:b", "dedicated": true}, {"name": "*"}]}),
        );
        assert_eq!(template, node_template(&json!({"template": {}}), &json!({"extendedResources": []})));
    }

    #[test]
    fn every_number_of_labels_has_a_text_within_the_limit() {
        for count in 0..100_usize {
            let labels: Map<String, Value> = (0..count)
                .map(|at| {
                    (format!("example.com/{}{at}", "k".repeat(at * 7 % 50)), json!("v".repeat(at % 60)))
                })
                .collect();
            let template = template(&json!({"metadata": {"labels": labels}}), &[]);
            // Labels with another name are there twice.
            assert!(template.text(&of(&[])).len() < 2 * LABELS_LIMIT_BYTES, "{count}");
        }
        let long = |at: usize| requiring(&format!("example.com/{at}"), "In", &["v".repeat(60).as_str()]);
        let many: Vec<NodeTemplate> = (0..60).map(long).collect();
        assert!(Siblings::of(many.iter()).is_unknown && !Siblings::of(many.iter().take(3)).is_unknown);
    }

    #[test]
    fn a_pool_of_another_provisioner_may_have_every_label() {
        let labelled = template(&json!({"metadata": {"labels": {"team": "b"}}}), &[]);
        let other = NodeTemplate::default().with_own_labels([("node-pool", "other")]);
        let spec = json!({"nodeSelector": {"team": "b"}});
        assert!(obstacles(&other, &spec, &[&other, &labelled]).is_empty());
        assert_eq!(other.text(&of(&[&other, &labelled])), "node-pool=in=other|||");
    }

    #[test]
    fn a_label_of_another_pool_alone_is_absent() {
        let labelled = template(&json!({"metadata": {"labels": {"team": "b"}}, "spec": {}}), &[]);
        let plain = template(&json!({"spec": {}}), &[]);
        let siblings = [&plain, &labelled];
        let spec = json!({"nodeSelector": {"team": "b"}});
        assert_eq!(obstacles(&plain, &spec, &siblings), ["Selector { key: \"team\", value: \"b\" }"]);
        assert!(obstacles(&labelled, &spec, &siblings).is_empty());
        assert!(plain.text(&of(&siblings)).contains(" team=absent=|"), "{}", plain.text(&of(&siblings)));
        // The cloud gives every node a zone, whether or not a pool requires one.
        let zonal = requiring("topology.kubernetes.io/zone", "In", &["a"]);
        let spec = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}});
        assert!(obstacles(&plain, &spec, &[&plain, &zonal]).is_empty());
    }

    #[test]
    fn karpenters_labels_choose_the_pool_whose_template_gives_them() {
        for key in ["karpenter.sh/nodepool", "karpenter.sh/provisioner-name"] {
            let of_pool =
                |name: &str| template(&json!({"metadata": {"labels": {key: name}}, "spec": {}}), &[]);
            let (own, other, plain) =
                (of_pool("team1"), of_pool("team2"), template(&json!({"spec": {}}), &[]));
            let siblings = [&own, &other, &plain];
            let spec = json!({"nodeSelector": {key: "team1"}});
            assert!(obstacles(&own, &spec, &siblings).is_empty(), "{key}");
            assert_eq!(obstacles(&other, &spec, &siblings).len(), 1, "{key}");
            assert_eq!(obstacles(&plain, &spec, &siblings).len(), 1, "{key}");
        }
    }

    #[test]
    fn a_long_list_of_values_counts_as_unknown() {
        let types: Vec<String> = (0..300).map(|number| format!("m{number}.large")).collect();
        let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]);
        let long = template(&json!({"spec": {"requirements": requirements}}), &[]);
        assert!(long.text(&of(&[])).len() < LABELS_LIMIT_BYTES, "{}", long.text(&of(&[])).len());
        assert!(could_hold(
            &long,
            &json!({"nodeSelector": {"node.kubernetes.io/instance-type": "c5.large"}})
        ));
        assert!(!could_hold(&long, &json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})));
    }
}
