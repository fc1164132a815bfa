//! What the nodes of a pool can be, as far as it is declared. Among a tenant's pools, a pod goes to the first whose nodes could
//! hold it.
//!
//! Unknown is no reason against a pool: a label that the cloud, the kubelet or an agent writes may have any value until the pool's
//! requirements say which, and an extended resource counts once the controller has said which pools have it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    request::view::{Expression, PodSpec, Term},
    tenancy::taint::{Effects, Operator, Taint},
};

/// The operating system of nodes whose pool requires none.
const DEFAULT_OS: (&str, &str) = ("kubernetes.io/os", "linux");
/// The capacity type of nodes whose pool requires none.
const DEFAULT_CAPACITY_TYPE: (&str, &str) = ("karpenter.sh/capacity-type", "on-demand");

/// Other names of a label, by which nodes are selected as well: the name, and the one that is used here.
const ALIASES: [(&str, &str); 7] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
    ("croft.dev/capacity-type", "karpenter.sh/capacity-type"),
];

/// Beginnings of labels that nodes get from the cloud and the kubelet, whatever their pool declares.
const WRITTEN_BY_OTHERS: [&str; 11] = [
    "beta.kubernetes.io/",
    "croft.dev/capacity-type",
    "eks.amazonaws.com/",
    "failure-domain.beta.kubernetes.io/",
    "karpenter.k8s.aws/",
    "karpenter.sh/capacity-type",
    "kubernetes.io/",
    "node.kubernetes.io/",
    "topology.ebs.csi.aws.com/",
    "topology.k8s.aws/",
    "topology.kubernetes.io/",
];

/// Characters that separate the parts of a template's text, and of the annotation that it is a part of. No valid key, value or name
/// has one.
const SEPARATORS: [char; 8] = [' ', ';', ':', ',', '=', '|', '*', '\n'];
/// Bytes of the labels of a template's text. Of more, the longest lists of values are left out: they count as unknown.
const LABELS_LIMIT_BYTES: usize = 2_000;
/// Bytes of the texts of a tenant's templates. Of more, each counts as unknown: an object has 256 KiB of annotations at most.
const TENANT_LIMIT_BYTES: usize = 64 * 1024;

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
    /// Some have it.
    Some,
    /// Each has it.
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
    /// No node has this extended resource, which nodes of another pool have.
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

/// What the pools of one tenant declare together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Siblings {
    /// Keys of the pools' own labels: a node of another pool doesn't have them.
    keys: BTreeSet<Box<str>>,
    /// Labels that some template gives: a node of another template doesn't have them.
    labels: BTreeSet<Box<str>>,
    /// Extended resources that some pool has.
    resources: BTreeSet<Box<str>>,
    /// True if the templates are too many or too long to count.
    pub(crate) is_unknown: bool,
}

impl Siblings {
    /// True if nodes of a template that doesn't have the label lack it.
    fn exclude(&self, key: &str, is_declared: bool) -> bool {
        self.keys.contains(key) || (is_declared && self.labels.contains(key))
    }

    pub(crate) fn of<'t>(templates: impl Iterator<Item = &'t NodeTemplate> + Clone) -> Self {
        let given = templates.clone().flat_map(NodeTemplate::given_labels);
        let mut siblings = Self {
            keys: templates.clone().flat_map(|t| t.keys.iter().cloned()).collect(),
            labels: given.map(Into::into).collect(),
            resources: templates
                .clone()
                .flat_map(|t| t.resources.iter().flatten())
                .map(|(k, _)| k.clone())
                .collect(),
            is_unknown: false,
        };
        let bytes = |template: &NodeTemplate| template.text(&siblings).len();
        siblings.is_unknown = templates.map(bytes).sum::<usize>() > TENANT_LIMIT_BYTES;
        siblings
    }
}

/// What a pool declares about its nodes; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTemplate {
    /// True if Croft launches its nodes, so that they have no label but these and those that others write.
    is_declared: bool,
    /// Keys of the pool's own labels.
    keys: BTreeSet<Box<str>>,
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
        // Lists first, so that comparisons find the values that they compare.
        let (lists, others): (Vec<_>, Vec<_>) = requirements
            .into_iter()
            .filter(is_readable)
            .partition(|requirement| requirement.operator == "In");
        for requirement in lists.into_iter().chain(others) {
            let key = canonical(&requirement.key);
            let known = values.remove(key).unwrap_or(Values::NoneOf(BTreeSet::new()));
            values.insert(key.into(), known.narrowed(&requirement));
        }
        for (key, value) in [DEFAULT_OS, DEFAULT_CAPACITY_TYPE] {
            values.entry(key.into()).or_insert_with(|| Values::of(value));
        }
        let labels = labels.into_iter().filter(|(key, value)| is_plain(key) && is_plain(value));
        values.extend(labels.map(|(key, value)| (canonical(key).into(), Values::of(value))));
        forget_long_lists(&mut values);
        for (alias, key) in ALIASES {
            if let Some(known) = values.get(key).cloned() {
                values.insert(alias.into(), known);
            }
        }
        Self { is_declared: true, labels: values, ..Self::default() }
    }

    /// Adds the pool's own labels, which every node has.
    #[must_use]
    pub fn with_own_labels<'l>(mut self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> Self {
        for (key, value) in labels {
            self.keys.insert(key.into());
            self.labels.insert(key.into(), Values::of(value));
        }
        self
    }

    /// Adds taints: those that a pod must tolerate count.
    #[must_use]
    pub fn with_taints(mut self, taints: impl IntoIterator<Item = Taint>) -> Self {
        let counts = |taint: &Taint| {
            Effects::HARD.contains(taint.effect) && is_plain(&taint.key) && is_plain(&taint.value)
        };
        self.taints.extend(taints.into_iter().filter(counts));
        self
    }

    /// Says which extended resources its instances can have, and whether each instance has it; `None` if that isn't known.
    #[must_use]
    pub fn with_resources<'r>(
        mut self,
        resources: Option<impl IntoIterator<Item = (&'r str, bool)>>,
    ) -> Self {
        let supply = |(name, is_dedicated): (&str, bool)| {
            (name.into(), if is_dedicated { Supply::Dedicated } else { Supply::Some })
        };
        let readable = |(name, _): &(&str, bool)| is_plain(name);
        self.resources =
            resources.map(|resources| resources.into_iter().filter(readable).map(supply).collect());
        self
    }

    /// What keeps the pod off the nodes, where `siblings` is what the tenant's pools declare.
    pub(crate) fn obstacles<'o>(
        &'o self,
        spec: &'o PodSpec<'_>,
        siblings: &Siblings,
    ) -> impl Iterator<Item = Obstacle<'o>> {
        let can_have = |key: &str, operator: &str, wanted: &[&str]| match self.labels.get(key) {
            Some(values) => values.can(operator, wanted),
            None if siblings.exclude(key, self.is_declared) => Values::Absent.can(operator, wanted),
            None => true,
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
        let lacks = |name: &&str| self.lacks(name) && siblings.resources.contains(*name);
        let resources: Vec<Obstacle<'_>> =
            spec.extended_resources().filter(lacks).map(Obstacle::Resource).collect();
        selector.into_iter().chain(affinity.then_some(Obstacle::Affinity)).chain(taints).chain(resources)
    }

    /// True if it is known that no instance has the extended resource.
    pub(crate) fn lacks(&self, resource: &str) -> bool {
        self.resources.as_ref().is_some_and(|known| !known.contains_key(resource))
    }

    /// True if each instance has an extended resource that the pod needs.
    pub(crate) fn is_dedicated_to(&self, spec: &PodSpec<'_>) -> bool {
        let Some(known) = &self.resources else { return false };
        spec.extended_resources().any(|name| known.get(name) == Some(&Supply::Dedicated))
    }

    /// The labels that the template itself gives, so that nodes of other templates don't have them.
    fn given_labels(&self) -> impl Iterator<Item = &str> {
        let is_others = |key: &str| WRITTEN_BY_OTHERS.iter().any(|start| key.starts_with(start));
        let given = self.labels.iter().filter(|(_, values)| matches!(values, Values::OneOf(_)));
        given.map(|(key, _)| &**key).filter(move |key| !is_others(key))
    }

    /// The template as policies read it: labels, taints, and the extended resources that it lacks and that it is dedicated to, each
    /// separated by blanks, and the four by bars. Labels are `key=in=value,value`, `key=not=value` and `key=absent=`, taints
    /// `key=value=effect`.
    pub(crate) fn text(&self, siblings: &Siblings) -> String {
        let others = siblings.keys.union(&siblings.labels);
        let absent =
            others.filter(|key| !self.labels.contains_key(*key) && siblings.exclude(key, self.is_declared));
        let absent = absent.map(|key| (key, &Values::Absent));
        let all: BTreeMap<_, _> = self.labels.iter().chain(absent).collect();
        let labels = all.into_iter().filter_map(|(key, values)| {
            let text = values.text();
            (!text.is_empty()).then(|| format!("{key}={text}"))
        });
        let taints = self.taints.iter().map(|t| format!("{}={}={}", t.key, t.value, t.effect));
        let lacking = siblings.resources.iter().filter(|name| self.lacks(name)).map(ToString::to_string);
        let dedicated = self.resources.iter().flatten().filter(|(_, supply)| **supply == Supply::Dedicated);
        let dedicated = dedicated.map(|(name, _)| name.to_string());
        let words = |words: Vec<String>| words.join(" ");
        let parts = [labels.collect(), taints.collect(), lacking.collect(), dedicated.collect()];
        parts.map(words).join("|")
    }
}

/// The name of a label that is used here.
fn canonical(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

fn is_plain(text: &str) -> bool {
    !text.contains(SEPARATORS)
}

fn is_readable(requirement: &Expression<'_>) -> bool {
    is_plain(&requirement.key) && requirement.values.iter().all(|value| is_plain(value))
}

fn forget_long_lists(labels: &mut BTreeMap<Box<str>, Values>) {
    let bytes = |(key, values): (&Box<str>, &Values)| {
        let text = values.text();
        if text.is_empty() { 0 } else { key.len() + text.len() + 2 }
    };
    while labels.iter().map(bytes).sum::<usize>() > LABELS_LIMIT_BYTES {
        // One that is forgotten has no bytes, so this one isn't.
        let longest = labels.iter().max_by_key(|label| bytes(*label)).map(|(key, _)| key.clone());
        let Some(key) = longest else { return };
        labels.insert(key, Values::NoneOf(BTreeSet::new()));
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
    use serde_json::{Map, Value, json};

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
        template.obstacles(&spec, &of(siblings)).map(|obstacle| format!("{obstacle:?}")).collect()
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
        let unknown = node_template(&json!({"template": {}}), &Value::Null);
        assert!(could_hold(&unknown, &asks("amd.com/gpu", "limits", json!(1))), "unknown is not none");
        let soft = Taint { key: "k".to_owned(), value: String::new(), effect: Effect::PreferNoSchedule };
        assert!(could_hold(&NodeTemplate::default().with_taints([soft]), &json!({})));
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
            assert_eq!(template.is_dedicated_to(&spec), std::ptr::eq(template, &raw const dedicated));
        }
        assert!(none.text(&of(&all)).ends_with("||nvidia.com/gpu|"), "{}", none.text(&of(&all)));
        assert!(dedicated.text(&of(&all)).ends_with("|||nvidia.com/gpu"), "{}", dedicated.text(&of(&all)));
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
