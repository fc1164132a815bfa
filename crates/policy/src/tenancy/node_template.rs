//! The nodes that a pool can have, as far as it declares them. Among a tenant's pools, a pod goes to the first whose nodes could hold
//! it: [`obstacles`](crate::rules::obstacles) compares them.
//!
//! Unknown is no reason against a pool: a label that the cloud, the kubelet or an agent writes may have any value until the pool's
//! requirements say which, and an extended resource counts once the controller has said which pools have it.

use std::collections::{BTreeMap, BTreeSet};

use crate::tenancy::taint::{Effects, Taint};

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
pub(crate) const LABELS_LIMIT_BYTES: usize = 2_000;
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

/// A requirement on a label of a pool's nodes.
#[derive(Clone, Debug)]
pub struct LabelRequirement<'a> {
    /// The label's key.
    pub key: &'a str,
    /// Its operator, as a TenantPool names it.
    pub operator: &'a str,
    /// Its values.
    pub values: Vec<&'a str>,
}

/// The declarations of one tenant's pools together.
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
    /// True if some pool is known to have the extended resource.
    pub(crate) fn have(&self, resource: &str) -> bool {
        self.resources.contains(resource)
    }

    /// True if nodes of a template that doesn't have the label lack it.
    fn exclude(&self, key: &str, is_declared: bool) -> bool {
        self.keys.contains(key) || (is_declared && self.labels.contains(key))
    }

    pub(crate) fn of<'t>(templates: impl Iterator<Item = &'t NodeTemplate> + Clone) -> Self {
        let mut siblings = Self {
            keys: templates.clone().flat_map(|t| t.keys.iter().cloned()).collect(),
            labels: templates.clone().flat_map(|t| t.given.iter().cloned()).collect(),
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

/// A pool's declarations about its nodes; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTemplate {
    /// True if Croft launches its nodes, so that they have no label but these and those that others write.
    is_declared: bool,
    /// Keys of the pool's own labels.
    keys: BTreeSet<Box<str>>,
    labels: BTreeMap<Box<str>, Values>,
    /// Labels that some of its nodes are given, so that nodes of other pools don't have them.
    given: BTreeSet<Box<str>>,
    taints: Vec<Taint>,
    /// The extended resources of its instances; `None` until they are known.
    resources: Option<BTreeMap<Box<str>, Supply>>,
}

impl NodeTemplate {
    /// The template with these requirements and labels.
    #[must_use]
    pub fn new<'a>(
        requirements: impl IntoIterator<Item = LabelRequirement<'a>>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut values: BTreeMap<Box<str>, Values> = BTreeMap::new();
        // Lists first, so that comparisons find the values that they compare.
        let (lists, others): (Vec<_>, Vec<_>) = requirements
            .into_iter()
            .filter(is_readable)
            .partition(|requirement| requirement.operator == "In");
        for requirement in lists.into_iter().chain(others) {
            let key = canonical(requirement.key);
            let known = values.remove(key).unwrap_or(Values::NoneOf(BTreeSet::new()));
            values.insert(key.into(), known.narrowed(&requirement));
        }
        for (key, value) in [DEFAULT_OS, DEFAULT_CAPACITY_TYPE] {
            values.entry(key.into()).or_insert_with(|| Values::of(value));
        }
        let labels = labels.into_iter().filter(|(key, value)| is_plain(key) && is_plain(value));
        values.extend(labels.map(|(key, value)| (canonical(key).into(), Values::of(value))));
        let mut template = Self { is_declared: true, ..Self::default() }.with_labels(values);
        template.given = template.given_by_one().collect();
        template
    }

    fn with_labels(mut self, mut labels: BTreeMap<Box<str>, Values>) -> Self {
        forget_long_lists(&mut labels);
        for (alias, key) in ALIASES {
            if let Some(known) = labels.get(key).cloned() {
                labels.insert(alias.into(), known);
            }
        }
        self.labels = labels;
        self
    }

    /// The template of nodes that are of this one or of the other. It says less than both where they differ: it may allow what neither
    /// does alone, and never excludes what one allows.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        let keys: BTreeSet<Box<str>> = self.labels.keys().chain(other.labels.keys()).cloned().collect();
        let either = keys.into_iter().filter(|key| canonical(key) == &**key).map(|key| {
            let values = match (self.labels.get(&key), other.labels.get(&key)) {
                (Some(one), Some(two)) => one.or(two),
                _ => Values::NoneOf(BTreeSet::new()),
            };
            (key, values)
        });
        let labels = either.collect();
        self.given.extend(other.given);
        self.taints.retain(|taint| other.taints.contains(taint));
        self.with_labels(labels)
    }

    /// Narrows labels to the values that instances of the pool have. Where none of these is required, they are those of an earlier
    /// requirement, and don't count.
    #[must_use]
    pub fn with_instance_labels<'l>(
        mut self,
        known: impl IntoIterator<Item = (&'l str, Vec<&'l str>)>,
    ) -> Self {
        let mut labels = std::mem::take(&mut self.labels);
        for (key, values) in known {
            let list = LabelRequirement { key, operator: "In", values };
            let required = labels.get(canonical(key)).cloned().unwrap_or(Values::NoneOf(BTreeSet::new()));
            if let (true, narrowed @ Values::OneOf(_)) = (is_readable(&list), required.narrowed(&list)) {
                labels.insert(canonical(key).into(), narrowed);
            }
        }
        self.with_labels(labels)
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

    /// True if a node can meet the expression, where `siblings` are the declarations of the tenant's pools.
    pub(crate) fn can_meet(&self, key: &str, operator: &str, values: &[&str], siblings: &Siblings) -> bool {
        match self.labels.get(key) {
            Some(known) => known.can_meet(operator, values),
            None if siblings.exclude(key, self.is_declared) => Values::Absent.can_meet(operator, values),
            None => true,
        }
    }

    /// The taints that a pod must tolerate.
    pub(crate) fn taints(&self) -> &[Taint] {
        &self.taints
    }

    /// True if it is known that no instance has the extended resource.
    pub(crate) fn lacks(&self, resource: &str) -> bool {
        self.resources.as_ref().is_some_and(|known| !known.contains_key(resource))
    }

    /// True if each instance has the extended resource.
    pub(crate) fn is_dedicated_to(&self, resource: &str) -> bool {
        self.resources.as_ref().is_some_and(|known| known.get(resource) == Some(&Supply::Dedicated))
    }

    /// The labels that the only template itself gives.
    fn given_by_one(&self) -> impl Iterator<Item = Box<str>> {
        let is_others = |key: &str| WRITTEN_BY_OTHERS.iter().any(|start| key.starts_with(start));
        let given = self.labels.iter().filter(|(_, values)| matches!(values, Values::OneOf(_)));
        given.map(|(key, _)| key.clone()).filter(move |key| !is_others(key))
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

fn is_readable(requirement: &LabelRequirement<'_>) -> bool {
    is_plain(requirement.key) && requirement.values.iter().all(|value| is_plain(value))
}

fn forget_long_lists(labels: &mut BTreeMap<Box<str>, Values>) {
    fn bytes(key: &str, values: &Values) -> usize {
        let text = values.text();
        if text.is_empty() { 0 } else { key.len() + text.len() + 2 }
    }
    while labels.iter().map(|(key, values)| bytes(key, values)).sum::<usize>() > LABELS_LIMIT_BYTES {
        // One that is forgotten has no bytes, so this one isn't.
        let longest = labels.iter_mut().max_by_key(|(key, values)| bytes(key, values));
        let Some((_, values)) = longest else { return };
        *values = Values::NoneOf(BTreeSet::new());
    }
}

impl Values {
    fn of(value: &str) -> Self {
        Self::OneOf([value.into()].into())
    }

    /// The values that these or the others allow.
    fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::OneOf(one), Self::OneOf(two)) => Self::OneOf(one.union(two).cloned().collect()),
            (Self::NoneOf(one), Self::NoneOf(two)) => Self::NoneOf(one.intersection(two).cloned().collect()),
            (Self::OneOf(allowed), Self::NoneOf(excluded))
            | (Self::NoneOf(excluded), Self::OneOf(allowed)) => {
                Self::NoneOf(excluded.difference(allowed).cloned().collect())
            }
            (Self::Absent, Self::Absent) => Self::Absent,
            (Self::Absent, _) | (_, Self::Absent) => Self::NoneOf(BTreeSet::new()),
        }
    }

    /// The values that meet the requirement as well.
    fn narrowed(self, requirement: &LabelRequirement<'_>) -> Self {
        let named: BTreeSet<Box<str>> = requirement.values.iter().map(|value| (*value).into()).collect();
        let kept: BTreeSet<Box<str>> = match (self, requirement.operator) {
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
    fn can_meet(&self, operator: &str, wanted: &[&str]) -> bool {
        let number_meets = |meets: fn(&i64, &i64) -> bool| match self {
            Self::OneOf(known) => {
                let bound = if let [bound] = wanted { number(bound) } else { None };
                let meets_bound = |value: &str| number(value).zip(bound).is_some_and(|(v, b)| meets(&v, &b));
                known.iter().any(|value| meets_bound(value))
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

/// A number as CEL reads it here.
fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = (1..=18).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}
