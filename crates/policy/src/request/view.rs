//! Borrowed views of the objects that are evaluated: the fields used, and nothing else.
//!
//! The review is parsed into them; `croft_api::convert::policy` makes them from typed objects.

use serde::{Deserialize, Deserializer, de};

use crate::{
    do_not_disrupt::{DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT, unreadable},
    request::{
        amounts::ExtendedResources,
        text::{Map, Text, objects},
    },
    tenancy::taint,
};

/// Reads null as the default: Go writes null for some absent lists.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A time as Kubernetes writes it: `2006-01-02T15:04:05Z`.
fn time<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'a>>, D::Error> {
    let time: Option<Text<'a>> = Option::deserialize(deserializer)?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    let is_time = |text: &str| {
        let (date, clock) = text.strip_suffix('Z').and_then(|text| text.split_once('T')).unwrap_or_default();
        let mut date = date.splitn(3, '-');
        let year = date.next().is_some_and(|y| y.len() == 4 && y.bytes().all(|b| b.is_ascii_digit()));
        year && date.clone().count() == 2
            && date.all(digits)
            && clock.split(':').count() == 3
            && clock.split(':').all(digits)
    };
    match time {
        Some(text) if !is_time(&text) => Err(de::Error::custom(format!("{text:?} is no time"))),
        time => Ok(time),
    }
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Pod<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    /// Its spec.
    #[serde(borrow)]
    pub spec: PodSpec<'a>,
}

/// Metadata of a pod, a DaemonSet or a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Metadata<'a> {
    /// Name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
    /// Prefix of the name that the API server will generate.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub generate_name: Text<'a>,
    /// Set while the object is being deleted.
    #[serde(borrow, default, deserialize_with = "time")]
    pub deletion_timestamp: Option<Text<'a>>,
    /// The annotations that rules read; `None` if the object has no annotations.
    #[serde(borrow, default)]
    pub annotations: Option<Annotations<'a>>,
}

impl Metadata<'_> {
    /// The pool that [`crate::definitions::POOL_ANNOTATION`] names; empty is unset.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        self.annotations.as_ref()?.pool.as_deref().filter(|p| !p.is_empty())
    }

    /// What to say about annotations that can't be read.
    pub fn unreadable_annotations(&self) -> impl Iterator<Item = String> {
        let values = self.annotations.iter().flat_map(|annotations| {
            [
                (DO_NOT_DISRUPT, annotations.do_not_disrupt.as_deref()),
                (KARPENTER_DO_NOT_DISRUPT, annotations.karpenter_do_not_disrupt.as_deref()),
            ]
        });
        values.filter_map(|(key, value)| unreadable(key, value?))
    }

    /// The name, or the prefix of the name that will be generated.
    #[must_use]
    pub fn called(&self) -> &str {
        if self.name.is_empty() { &self.generate_name } else { &self.name }
    }
}

/// The annotations that rules read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Annotations<'a> {
    /// [`crate::definitions::POOL_ANNOTATION`].
    #[serde(borrow, default, rename = "croft.dev/pool")]
    pub pool: Option<Text<'a>>,
    /// [`crate::definitions::INJECTED_ANNOTATION`].
    #[serde(borrow, default, rename = "croft.dev/injected")]
    pub injected: Option<Text<'a>>,
    /// [`crate::definitions::MIRROR_ANNOTATION`].
    #[serde(borrow, default, rename = "kubernetes.io/config.mirror")]
    pub mirror: Option<Text<'a>>,
    /// [`crate::do_not_disrupt::DO_NOT_DISRUPT`].
    #[serde(borrow, default, rename = "croft.dev/do-not-disrupt")]
    pub do_not_disrupt: Option<Text<'a>>,
    /// [`crate::do_not_disrupt::KARPENTER_DO_NOT_DISRUPT`].
    #[serde(borrow, default, rename = "karpenter.sh/do-not-disrupt")]
    pub karpenter_do_not_disrupt: Option<Text<'a>>,
}

/// The fields of a pod's spec that decide where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct PodSpec<'a> {
    /// The node that it is bound to.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub node_name: Text<'a>,
    /// Labels that the node must have.
    #[serde(borrow, default)]
    pub node_selector: Option<Map<'a>>,
    /// Tolerations.
    #[serde(borrow, default)]
    pub tolerations: Option<Vec<Toleration<'a>>>,
    /// Affinities.
    #[serde(borrow, default)]
    pub affinity: Option<Affinity<'a>>,
    /// Gates that must be removed before the pod is scheduled.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub scheduling_gates: Vec<Gate<'a>>,
    /// Containers.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub containers: Vec<Container<'a>>,
    /// Containers that run before the others, or beside them.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub init_containers: Vec<Container<'a>>,
}

impl<'a> PodSpec<'a> {
    /// The tolerations; empty if absent.
    #[must_use]
    pub fn tolerations(&self) -> &[Toleration<'a>] {
        self.tolerations.as_deref().unwrap_or_default()
    }

    /// The terms of the required node affinity; `None` if the pod has none.
    #[must_use]
    pub fn terms(&self) -> Option<&[Term<'a>]> {
        let required = self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
        Some(&required.node_selector_terms)
    }

    /// The extended resources that the pod needs, some more than once.
    pub(crate) fn extended_resources(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().chain(&self.init_containers);
        containers.flat_map(|c| c.resources.requests.iter().chain(c.resources.limits.iter()))
    }
}

/// A container. Rules read the extended resources that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self")]
pub struct Container<'a> {
    /// Its requests and limits.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub resources: ContainerResources<'a>,
}

/// The requests and limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self")]
pub struct ContainerResources<'a> {
    /// The requests.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub requests: ExtendedResources<'a>,
    /// The limits: in a template, a limit without a request isn't a request yet.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub limits: ExtendedResources<'a>,
}

/// A toleration, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Toleration<'a> {
    /// The taint's key.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub key: Text<'a>,
    /// Equal, Exists, Lt, Gt, or empty for Equal.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub operator: Text<'a>,
    /// The taint's value.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub value: Text<'a>,
    /// The taint's effect; empty for all.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub effect: Text<'a>,
    /// Seconds for which a NoExecute taint is tolerated.
    #[serde(default)]
    pub toleration_seconds: Option<i64>,
}

impl Toleration<'_> {
    /// The parsed toleration; `None` if its operator is unknown.
    #[must_use]
    pub fn parse(&self) -> Option<taint::Toleration<'_>> {
        taint::Toleration::parse(&self.key, &self.operator, &self.value, &self.effect)
    }
}

/// Affinities of a pod. Rules read the node affinity only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Affinity<'a> {
    /// The node affinity.
    #[serde(borrow, default)]
    pub node_affinity: Option<NodeAffinity<'a>>,
}

/// A node affinity. Rules read its required part only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self")]
pub struct NodeAffinity<'a> {
    /// The required terms.
    #[serde(borrow, default, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector<'a>>,
}

/// Terms of which at least one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct NodeSelector<'a> {
    /// The terms.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub node_selector_terms: Vec<Term<'a>>,
}

/// A term: all its expressions must match. A term without any matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Term<'a> {
    /// Expressions on labels.
    #[serde(borrow, default)]
    pub match_expressions: Option<Vec<Expression<'a>>>,
    /// Expressions on fields.
    #[serde(borrow, default)]
    pub match_fields: Option<Vec<Expression<'a>>>,
}

impl<'a> Term<'a> {
    /// The expressions on labels; empty if absent.
    #[must_use]
    pub fn expressions(&self) -> &[Expression<'a>] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    /// True if the term has no expression and so matches no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expressions().is_empty() && self.match_fields.as_ref().is_none_or(Vec::is_empty)
    }
}

/// One expression of a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(remote = "Self")]
pub struct Expression<'a> {
    /// The label's key or the field's path.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub key: Text<'a>,
    /// The operator.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub operator: Text<'a>,
    /// The values.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub values: Vec<Text<'a>>,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self")]
pub struct Gate<'a> {
    /// Its name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
}

/// A pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Template<'a> {
    /// Its metadata; `None` if there is none.
    #[serde(borrow, default)]
    pub metadata: Option<Metadata<'a>>,
    /// The pods' spec.
    #[serde(borrow)]
    pub spec: PodSpec<'a>,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct DaemonSet<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    /// Its spec.
    #[serde(borrow)]
    pub spec: DaemonSetSpec<'a>,
}

/// The template of a DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct DaemonSetSpec<'a> {
    /// The pods' template.
    #[serde(borrow)]
    pub template: Template<'a>,
}

/// A workload of another kind, whose template is in one of several places.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Workload<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    /// Its spec.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub spec: WorkloadSpec<'a>,
    /// Template of a PodTemplate.
    #[serde(borrow, default)]
    pub template: Option<Template<'a>>,
}

/// The places of a workload's template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct WorkloadSpec<'a> {
    /// Template of a Deployment, StatefulSet, ReplicaSet, ReplicationController or Job.
    #[serde(borrow, default)]
    pub template: Option<Template<'a>>,
    /// Template of a CronJob's jobs.
    #[serde(borrow, default)]
    pub job_template: Option<JobTemplate<'a>>,
}

/// Template of a CronJob's jobs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct JobTemplate<'a> {
    /// The jobs' spec.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub spec: JobSpec<'a>,
}

/// Spec of a CronJob's jobs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct JobSpec<'a> {
    /// Template of the pods.
    #[serde(borrow, default)]
    pub template: Option<Template<'a>>,
}

impl<'a> Workload<'a> {
    /// The pods' template, from the place where the kind has it.
    #[must_use]
    pub fn template(&self) -> Option<&Template<'a>> {
        let nested = || self.spec.job_template.as_ref().and_then(|j| j.spec.template.as_ref());
        self.spec.template.as_ref().or_else(nested).or(self.template.as_ref())
    }
}

/// A binding of a pod to a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Binding<'a> {
    /// Its kind, as it says itself; empty if it doesn't.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata; the name is the pod's.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Metadata<'a>,
    /// The node.
    #[serde(borrow)]
    pub target: Target<'a>,
}

/// The target of a binding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Target<'a> {
    /// The node's name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
}

/// A RoleBinding, or a ClusterRoleBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct RoleBinding<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// The role.
    #[serde(borrow)]
    pub role_ref: RoleRef<'a>,
    /// The users that have it.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub subjects: Vec<RoleSubject<'a>>,
}

/// The role of a binding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct RoleRef<'a> {
    /// `Role` or `ClusterRole`.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
}

/// A user, a group or a ServiceAccount, as a binding spells it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct RoleSubject<'a> {
    /// `User`, `Group` or `ServiceAccount`.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
    /// The namespace of a ServiceAccount.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub namespace: Text<'a>,
}

/// A namespace, or another object of which only labels and annotations are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Namespace<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Labelled<'a>,
}

/// Metadata with all labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct Labelled<'a> {
    /// Name.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub name: Text<'a>,
    /// Set while the object is being deleted.
    #[serde(borrow, default, deserialize_with = "time")]
    pub deletion_timestamp: Option<Text<'a>>,
    /// Labels.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub labels: Map<'a>,
    /// Annotations.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub annotations: Map<'a>,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct Node<'a> {
    /// The kind that the object states; empty if it states none.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub metadata: Labelled<'a>,
    /// Its spec.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub spec: NodeSpec<'a>,
}

/// The taints of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct NodeSpec<'a> {
    /// Its taints.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub taints: Vec<NodeTaint<'a>>,
}

/// A taint, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(remote = "Self")]
pub struct NodeTaint<'a> {
    /// Its key.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub key: Text<'a>,
    /// Its value.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub value: Text<'a>,
    /// Its effect.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub effect: Text<'a>,
}

objects!(
    RoleBinding,
    RoleRef,
    RoleSubject,
    Pod,
    Metadata,
    Annotations,
    PodSpec,
    Container,
    ContainerResources,
    Toleration,
    Affinity,
    NodeAffinity,
    NodeSelector,
    Term,
    Expression,
    Gate,
    Template,
    DaemonSet,
    DaemonSetSpec,
    Workload,
    WorkloadSpec,
    JobTemplate,
    JobSpec,
    Binding,
    Target,
    Namespace,
    Labelled,
    Node,
    NodeSpec,
    NodeTaint
);
