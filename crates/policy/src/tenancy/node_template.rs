//! What the nodes of a pool can be, as far as it is declared. Among a tenant's pools, a pod goes to the first whose nodes could
//! hold it.
//!
//! Unknown is no reason against a pool: a label that the cloud, the kubelet or an agent writes may have any value until the pool's
//! requirements say which, and extended resources count once the controller has said which the pool's instances have.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    request::view::{Expression, PodSpec, Term},
    tenancy::taint::{Effects, Operator, Taint},
};

/// The operating system of nodes whose pool requires none.
const DEFAULT_OS: (&str, &str) = ("kubernetes.io/os", "linux");
/// The capacity type of nodes whose pool requires none.
const DEFAULT_CAPACITY_TYPE: (&str, &str) = ("karpenter.sh/capacity-type", "on-demand");

/// Other names of a label, which nodes are selected by as well: the name, and the one that a pool declares.
const ALIASES: [(&str, &str); 7] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
    ("croft.dev/capacity-type", "karpenter.sh/capacity-type"),
];

/// Labels that nodes get from the cloud and the kubelet, and the beginnings of such labels.
const WRITTEN_BY_OTHERS: [&str; 11] = [
    "beta.kubernetes.io/",
    "croft.dev/capacity-type",
    "eks.amazonaws.com/",
    "failure-domain.beta.kubernetes.io/",
    "karpenter.k8s.aws/",
    "karpenter.sh/capacity-type",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/",
    "topology.",
];

/// Bytes of a template's text. Of more, the longest lists of values are left out: they count as unknown.
const LIMIT_BYTES: usize = 2_000;

/// The values that a label of a node can have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Values {
    /// One of these; never empty.
    OneOf(BTreeSet<Box<str>>),
    /// Any other than these.
    NoneOf(BTreeSet<Box<str>>),
    /// The label is absent.
    Absent,
}

/// The instances of a pool that have an extended resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// Some: others have none of any kind.
    Some,
    /// The pool is made of instances with such resources.
    Dedicated,
}

/// What keeps a pod off the nodes of a template.
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
    /// No node has this extended resource.
    Resource(&'o str),
}

impl Obstacle<'_> {
    /// True if the same part of the pod is at fault.
    pub(crate) fn is_like(self, other: Obstacle<'_>) -> bool {
        match (self, other) {
            (Self::Taint(_), Obstacle::Taint(_)) => true,
            _ => self == other,
        }
    }
}

/// What a pool declares about its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTemplate {
    labels: BTreeMap<Box<str>, Values>,
    taints: Vec<Taint>,
    /// The extended resources of its instances; `None` until they are known.
    resources: Option<BTreeMap<Box<str>, Supply>>,
}

impl NodeTemplate {
    /// The template with these requirements and labels.
    #[must_use]
    pub fn new<'a>(
        requirements: impl IntoIterator<Item = Expression<'a>>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut values: BTreeMap<Box<str>, Values> = BTreeMap::new();
        for requirement in requirements {
            let known = values.remove(&*requirement.key).unwrap_or(Values::NoneOf(BTreeSet::new()));
            values.insert((&*requirement.key).into(), known.narrowed(&requirement));
        }
        for (key, value) in [DEFAULT_OS, DEFAULT_CAPACITY_TYPE] {
            values.entry(key.into()).or_insert_with(|| Values::of(value));
        }
        values.extend(labels.into_iter().map(|(key, value)| (key.into(), Values::of(value))));
        for (alias, key) in ALIASES {
            // Under either name a pool may declare the label.
            match (values.get(key).cloned(), values.get(alias).cloned()) {
                (_, Some(declared)) => values.insert(key.into(), declared),
                (Some(declared), None) => values.insert(alias.into(), declared),
                (None, None) => None,
            };
        }
        let mut template = Self { labels: values, ..Self::default() };
        template.forget_long_lists();
        template
    }

    /// Adds labels that every node has.
    #[must_use]
    pub fn with_labels<'l>(mut self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> Self {
        self.labels.extend(labels.into_iter().map(|(key, value)| (key.into(), Values::of(value))));
        self
    }

    /// Adds taints: those that a pod must tolerate count.
    #[must_use]
    pub fn with_taints(mut self, taints: impl IntoIterator<Item = Taint>) -> Self {
        self.taints.extend(taints.into_iter().filter(|taint| Effects::HARD.contains(taint.effect)));
        self
    }

    /// Says which extended resources its instances can have, and whether the pool is dedicated to them; `None` if that isn't known.
    #[must_use]
    pub fn with_resources<'r>(
        mut self,
        resources: Option<impl IntoIterator<Item = (&'r str, bool)>>,
    ) -> Self {
        let supply = |(name, is_dedicated): (&str, bool)| {
            (name.into(), if is_dedicated { Supply::Dedicated } else { Supply::Some })
        };
        self.resources = resources.map(|resources| resources.into_iter().map(supply).collect());
        self
    }

    fn forget_long_lists(&mut self) {
        let length = |(key, values): (&Box<str>, &Values)| key.len() + values.text().len() + 2;
        while self.labels.iter().map(length).sum::<usize>() > LIMIT_BYTES {
            let longest = self.labels.iter().max_by_key(|label| length(*label)).map(|(key, _)| key.clone());
            let Some(key) = longest else { return };
            self.labels.insert(key, Values::NoneOf(BTreeSet::new()));
            if self.labels.values().all(|values| *values == Values::NoneOf(BTreeSet::new())) {
                return;
            }
        }
    }

    /// What keeps the pod off the nodes, of which some label may be absent because other pools alone have it: `siblings` are the
    /// templates of the tenant's pools.
    pub(crate) fn obstacles<'o>(
        &'o self,
        spec: &'o PodSpec<'_>,
        siblings: &[&Self],
    ) -> impl Iterator<Item = Obstacle<'o>> {
        let values = |key: &str| match self.labels.get(key) {
            None if siblings.iter().any(|sibling| sibling.gives(key)) => Some(&Values::Absent),
            known => known,
        };
        let can_have = |key: &str, operator: &str, wanted: &[&str]| {
            values(key).is_none_or(|values| values.can(operator, wanted))
        };
        let selector: Vec<Obstacle<'_>> = spec
            .node_selector
            .iter()
            .flat_map(|selector| selector.iter())
            .filter(|(key, value)| !can_have(key, "In", &[value]))
            .map(|(key, value)| Obstacle::Selector { key, value })
            .collect();
        let can_match = |term: &Term<'_>| {
            !term.is_empty()
                && term.expressions().iter().all(|expression| {
                    let wanted: Vec<&str> = expression.values.iter().map(|value| &**value).collect();
                    can_have(&expression.key, &expression.operator, &wanted)
                })
        };
        let affinity = spec.terms().is_some_and(|terms| !terms.iter().any(can_match));
        let taints = self.taints.iter().filter(|taint| !tolerates(spec, taint)).map(Obstacle::Taint);
        let resources: Vec<Obstacle<'_>> = spec
            .extended_resources()
            .filter(|name| !self.has(name, siblings))
            .map(Obstacle::Resource)
            .collect();
        selector.into_iter().chain(affinity.then_some(Obstacle::Affinity)).chain(taints).chain(resources)
    }

    /// True if pods that need the extended resource could get it here. Where a pool of the tenant is dedicated to it, they go there, and
    /// not where it could be had as well.
    fn has(&self, resource: &str, siblings: &[&Self]) -> bool {
        let supply =
            |template: &Self| template.resources.as_ref().and_then(|known| known.get(resource).copied());
        match supply(self) {
            None => self.resources.is_none(),
            Some(Supply::Dedicated) => true,
            Some(Supply::Some) => !siblings.iter().any(|other| supply(other) == Some(Supply::Dedicated)),
        }
    }

    /// True if the template itself gives the label, so that a node of another one doesn't have it.
    fn gives(&self, key: &str) -> bool {
        !WRITTEN_BY_OTHERS.iter().any(|known| {
            *known == key || ((known.ends_with('/') || known.ends_with('.')) && key.starts_with(known))
        }) && self.labels.get(key).is_some_and(|values| *values != Values::Absent)
    }

    /// The template as policies read it: labels, taints and extended resources, as `key=in=value,value`, `key=not=value` and
    /// `key=absent=`, `key=value=effect`, and names, each separated by blanks, and the three by bars. A star stands for resources
    /// that aren't known. No key, value or name has one of these characters.
    pub(crate) fn text(&self, siblings: &[&Self]) -> String {
        let absent = siblings
            .iter()
            .flat_map(|sibling| sibling.labels.keys().filter(|key| sibling.gives(key)))
            .filter(|key| !self.labels.contains_key(*key))
            .map(|key| (key, &Values::Absent));
        let all: BTreeMap<_, _> = self.labels.iter().chain(absent).collect();
        let labels = all.into_iter().filter_map(|(key, values)| {
            let text = values.text();
            (!text.is_empty()).then(|| format!("{key}={text}"))
        });
        let taints = self.taints.iter().map(|t| format!("{}={}={}", t.key, t.value, t.effect));
        let resources = self.resources.as_ref().map_or_else(
            || "*".to_owned(),
            |known| {
                let names = known.keys().map(|name| &**name).filter(|name| self.has(name, siblings));
                names.collect::<Vec<_>>().join(" ")
            },
        );
        let words = |words: Vec<String>| words.join(" ");
        format!("{}|{}|{resources}", words(labels.collect()), words(taints.collect()))
    }
}

impl Values {
    fn of(value: &str) -> Self {
        Self::OneOf([value.into()].into())
    }

    /// The values that meet the requirement as well.
    fn narrowed(self, requirement: &Expression<'_>) -> Self {
        let named: BTreeSet<Box<str>> = requirement.values.iter().map(|value| (&**value).into()).collect();
        let kept: BTreeSet<Box<str>> = match (self, &*requirement.operator) {
            (_, "DoesNotExist") | (Self::Absent, _) => return Self::Absent,
            (Self::OneOf(known), "In") => known.intersection(&named).cloned().collect(),
            (Self::NoneOf(known), "In") => named.difference(&known).cloned().collect(),
            (Self::OneOf(known), "NotIn") => known.difference(&named).cloned().collect(),
            (Self::NoneOf(known), "NotIn") => return Self::NoneOf(known.union(&named).cloned().collect()),
            (Self::OneOf(known), operator) => {
                let bound = named.first().and_then(|bound| number(bound));
                let meets = |value: &str| match (operator, number(value), bound) {
                    ("Gt", Some(value), Some(bound)) => value > bound,
                    ("Gte", Some(value), Some(bound)) => value >= bound,
                    ("Lt", Some(value), Some(bound)) => value < bound,
                    ("Lte", Some(value), Some(bound)) => value <= bound,
                    ("Gt" | "Gte" | "Lt" | "Lte", ..) => false,
                    _ => true,
                };
                known.into_iter().filter(|value| meets(value)).collect()
            }
            (any @ Self::NoneOf(_), _) => return any,
        };
        // Requirements that contradict each other leave no node.
        if kept.is_empty() { Self::Absent } else { Self::OneOf(kept) }
    }

    /// True if a node can meet an expression of a pod.
    fn can(&self, operator: &str, wanted: &[&str]) -> bool {
        let number_meets = |meets: fn(&i64, &i64) -> bool| match self {
            Self::OneOf(known) => {
                let bound = if let [bound] = wanted { number(bound) } else { None };
                let meets_bound =
                    |value: &Box<str>| number(value).zip(bound).is_some_and(|(v, b)| meets(&v, &b));
                known.iter().any(meets_bound)
            }
            Self::NoneOf(_) => true,
            Self::Absent => false,
        };
        match (operator, self) {
            ("In", Self::OneOf(known)) => wanted.iter().any(|value| known.contains(*value)),
            ("In", Self::NoneOf(known)) => wanted.iter().any(|value| !known.contains(*value)),
            ("NotIn", Self::OneOf(known)) => known.iter().any(|value| !wanted.contains(&&**value)),
            ("DoesNotExist", values) => !matches!(values, Self::OneOf(_)),
            ("In" | "Exists", Self::Absent) => false,
            ("Gt", _) => number_meets(i64::gt),
            ("Lt", _) => number_meets(i64::lt),
            _ => true,
        }
    }

    /// Its words, empty if every value is possible.
    fn text(&self) -> String {
        let joined = |values: &BTreeSet<Box<str>>| values.iter().map(|v| &**v).collect::<Vec<_>>().join(",");
        match self {
            Self::OneOf(values) => format!("in={}", joined(values)),
            Self::NoneOf(values) if values.is_empty() => String::new(),
            Self::NoneOf(values) => format!("not={}", joined(values)),
            Self::Absent => "absent=".to_owned(),
        }
    }
}

/// Compares only `Equal` and `Exists`: with their feature gate off, `Lt` and `Gt` tolerate nothing.
fn tolerates(spec: &PodSpec<'_>, taint: &Taint) -> bool {
    spec.tolerations().iter().filter_map(|toleration| toleration.parse()).any(|toleration| {
        matches!(toleration.operator, Operator::Equal | Operator::Exists)
            && toleration.tolerates(&taint.key, &taint.value, taint.effect)
    })
}

/// A number as CEL reads it here.
fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tenancy::{stored::node_template, taint::Effect};

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
        template.obstacles(&spec, siblings).map(|obstacle| format!("{obstacle:?}")).collect()
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
        assert!(both.text(&[]).contains("karpenter.k8s.aws/instance-cpu=in=4 "), "{}", both.text(&[]));
        let none = requiring("kubernetes.io/os", "DoesNotExist", &[]);
        assert!(!could_hold(&none, &json!({"nodeSelector": {"kubernetes.io/os": "linux"}})));
    }

    #[test]
    fn taints_and_extended_resources_keep_pods_off() {
        let taints = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "soft", "effect": "PreferNoSchedule"}]);
        let gpu = template(&json!({"spec": {"taints": taints}}), &["nvidia.com/gpu"]);
        let tolerations = json!([{"key": "gpu", "operator": "Exists"}]);
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
        let unknown = node_template(&json!({"template": {}}), &Value::Null);
        assert!(could_hold(&unknown, &asks("amd.com/gpu", "limits", json!(1))), "unknown is not none");
        let soft = Taint { key: "k".to_owned(), value: String::new(), effect: Effect::PreferNoSchedule };
        assert!(could_hold(&NodeTemplate::default().with_taints([soft]), &json!({})));
    }

    #[test]
    fn pods_that_need_a_resource_go_to_the_pool_that_is_dedicated_to_it() {
        let of = |resources: Value| node_template(&json!({}), &json!({"extendedResources": resources}));
        let some = of(json!([{"name": "nvidia.com/gpu", "dedicated": false}]));
        let dedicated = of(json!([{"name": "nvidia.com/gpu", "dedicated": true}]));
        let spec = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
        assert!(obstacles(&some, &spec, &[&some]).is_empty());
        assert_eq!(obstacles(&some, &spec, &[&some, &dedicated]), ["Resource(\"nvidia.com/gpu\")"]);
        assert!(obstacles(&dedicated, &spec, &[&some, &dedicated]).is_empty());
        assert!(obstacles(&some, &json!({}), &[&some, &dedicated]).is_empty());
        assert!(some.text(&[&some, &dedicated]).ends_with("||"), "{}", some.text(&[&some, &dedicated]));
        assert!(dedicated.text(&[&some, &dedicated]).ends_with("||nvidia.com/gpu"));
    }

    #[test]
    fn a_label_of_another_pool_alone_is_absent() {
        let labelled = template(&json!({"metadata": {"labels": {"team": "b"}}, "spec": {}}), &[]);
        let plain = template(&json!({"spec": {}}), &[]);
        let siblings = [&plain, &labelled];
        let spec = json!({"nodeSelector": {"team": "b"}});
        assert_eq!(obstacles(&plain, &spec, &siblings), ["Selector { key: \"team\", value: \"b\" }"]);
        assert!(obstacles(&labelled, &spec, &siblings).is_empty());
        assert!(plain.text(&siblings).contains(" team=absent=|"), "{}", plain.text(&siblings));
        // The cloud gives every node a zone, whether or not a pool requires one.
        let zonal = requiring("topology.kubernetes.io/zone", "In", &["a"]);
        let spec = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}});
        assert!(obstacles(&plain, &spec, &[&plain, &zonal]).is_empty());
    }

    #[test]
    fn a_long_list_of_values_counts_as_unknown() {
        let types: Vec<String> = (0..300).map(|number| format!("m{number}.large")).collect();
        let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]);
        let long = template(&json!({"spec": {"requirements": requirements}}), &[]);
        assert!(long.text(&[]).len() < LIMIT_BYTES, "{}", long.text(&[]).len());
        assert!(could_hold(
            &long,
            &json!({"nodeSelector": {"node.kubernetes.io/instance-type": "c5.large"}})
        ));
        assert!(!could_hold(&long, &json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})));
    }
}
