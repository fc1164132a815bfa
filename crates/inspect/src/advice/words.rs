//! The words of advice: the object, its constraint, and the edit that takes it out.

use croft_api::{TenantPool, amount::Amount, disruption::DisruptionReason};
use croft_disruption::blockers::is_do_not_disrupt;
use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Pod, PodAffinityTerm, PodSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;

use super::{
    constraint::{Constraint, NodeLabel},
    take_out::usual,
};
use crate::{
    node_index::NodeIndex,
    simulation::{PodIndex, allows_nothing},
    workload::WorkloadName,
};

/// The object that has a constraint, the constraint, and what to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) object: String,
    pub(super) constraint: String,
    pub(super) change: String,
}

impl Words {
    fn new(object: impl Into<String>, constraint: impl Into<String>, change: impl Into<String>) -> Self {
        Self { object: object.into(), constraint: constraint.into(), change: change.into() }
    }
}

/// Describes a constraint of an input; `pod` is one of those that have it.
pub(super) fn words(
    index: &NodeIndex<'_>,
    pods: &PodIndex<'_>,
    constraint: &Constraint,
    pod: Option<&Pod>,
) -> Words {
    let input = index.input();
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    match constraint {
        Constraint::PodDisruptionBudget { namespace, name } => budget(pods, namespace, name, pod),
        Constraint::PodDoNotDisrupt(workload) => {
            let key = pod.and_then(|pod| pods.forbidden(pod)).map(|one| one.key).unwrap_or_default();
            let from = format!("{}metadata.annotations", template(workload));
            annotated(workload.to_string(), "its pods are", key, &from)
        }
        Constraint::NodeDoNotDisrupt(name) => node(index, name),
        Constraint::PoolDoNotDisrupt(name) => {
            let key = annotation(input.pools.get("", name).map(|pool| &pool.object));
            annotated(format!("TenantPool {name}"), "it is", &key, "metadata.annotations")
        }
        Constraint::BarePod(workload) => Words::new(
            workload.to_string(),
            "no controller would recreate it",
            "run it by a Deployment, a StatefulSet or a Job",
        ),
        Constraint::TopologySpread { workload, key } => spread(workload, key, spec),
        Constraint::PodAntiAffinity { workload, key } => {
            let affinity = spec.and_then(|s| s.affinity.as_ref()?.pod_anti_affinity.as_ref());
            let terms =
                affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
            required(workload, "podAntiAffinity", key, terms)
        }
        Constraint::PodAffinity { workload, key } => {
            let affinity = spec.and_then(|s| s.affinity.as_ref()?.pod_affinity.as_ref());
            let terms =
                affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref());
            required(workload, "podAffinity", key, terms)
        }
        Constraint::NodeSelector { workload, label } => selector(workload, *label, spec),
        Constraint::PoolRequirement { pool, .. }
        | Constraint::MinSavings(pool)
        | Constraint::EvictionCost(pool)
        | Constraint::ConsolidationPolicy(pool)
        | Constraint::ConsolidateAfter(pool)
        | Constraint::PoolBudget(pool)
        | Constraint::TemplateWeights(pool) => {
            input.pools.get("", pool).map(|pool| of_pool(constraint, &pool.object)).unwrap_or_default()
        }
        Constraint::PoolLimit { pool, resource } => {
            let limits = input.pools.get("", pool).map(|pool| &pool.spec.limits);
            limit(
                format!("TenantPool {pool}"),
                "spec",
                resource,
                limits.and_then(|limits| limits.get(resource)),
            )
        }
        Constraint::TemplateLimit { pool, template, resource } => {
            let templates = input.pools.get("", pool).map(|pool| &pool.spec.templates);
            let found = templates.into_iter().flatten().find(|one| one.name == *template);
            let amount = found.and_then(|one| one.limits.get(resource));
            limit(format!("TenantPool {pool}"), &format!("spec.templates[{template}]"), resource, amount)
        }
        Constraint::TenantLimit { tenant, resource } => {
            let limits = input.tenants.get("", tenant).map(|tenant| &tenant.spec.limits);
            limit(
                format!("Tenant {tenant}"),
                "spec",
                resource,
                limits.and_then(|limits| limits.get(resource)),
            )
        }
        Constraint::ClusterLimit(resource) => {
            let config = input.configs.first();
            let name = config.map(|config| config.name_any()).unwrap_or_default();
            let amount = config.and_then(|config| config.spec.limits.get(resource));
            limit(format!("CroftConfig {name}"), "spec", resource, amount)
        }
    }
}

/// The path from a workload to its pods' template.
fn template(workload: &WorkloadName) -> &'static str {
    match workload.kind.as_str() {
        "Pod" => "",
        "CronJob" => "spec.jobTemplate.spec.template.",
        _ => "spec.template.",
    }
}

/// The annotation by which an object blocks disruption.
fn annotation(object: Option<&impl kube::ResourceExt>) -> String {
    let annotations = object.map(|object| object.annotations()).into_iter().flatten();
    let mut blocking = annotations.filter(|(key, value)| is_do_not_disrupt(key) && *value != "false");
    blocking.next().map(|(key, _)| key.clone()).unwrap_or_default()
}

fn annotated(object: String, which: &str, key: &str, from: &str) -> Words {
    Words::new(object, format!("{which} annotated {key}"), format!("remove {key} from {from}"))
}

fn node(index: &NodeIndex<'_>, name: &str) -> Words {
    let key = annotation(index.input().nodes.get("", name).map(|node| &node.object));
    if !key.is_empty() {
        return annotated(format!("Node {name}"), "it is", &key, "metadata.annotations");
    }
    let claim = index.claim_naming(name);
    let object = claim.map(|claim| format!("NodeClaim {}", claim.name_any())).unwrap_or_default();
    annotated(object, "it is", &annotation(claim), "metadata.annotations")
}

fn budget(pods: &PodIndex<'_>, namespace: &str, name: &str, pod: Option<&Pod>) -> Words {
    let object = format!("PodDisruptionBudget {namespace}/{name}");
    let blocking = pod.map(|pod| pods.blocking_budgets(pod)).unwrap_or_default();
    if blocking.len() > 1 {
        let others: Vec<String> =
            blocking.iter().map(|(other, _)| other.name_any()).filter(|other| other != name).collect();
        return Words::new(
            object,
            format!("it covers pods of {} as well, which can't be evicted then", others.join(", ")),
            format!("delete it, or leave the pods of {} out of spec.selector", others.join(", ")),
        );
    }
    let Some((own, expected)) = blocking.first() else { return Words::new(object, "", "") };
    let spec = own.spec.as_ref();
    if let Some(least) = spec.and_then(|spec| spec.min_available.as_ref()) {
        let least = number(least);
        let change = match *expected {
            ..=1 => {
                format!("run 2 pods with spec.minAvailable 1, or set spec.minAvailable from {least} to 0")
            }
            _ => format!("set spec.minAvailable from {least} to {}", expected - 1),
        };
        let pods = if *expected == 1 { "its 1 pod".to_owned() } else { format!("its {expected} pods") };
        return Words::new(object, format!("minAvailable {least} of {pods} allows no eviction"), change);
    }
    let most = spec.and_then(|spec| spec.max_unavailable.as_ref()).map_or_else(|| "0".to_owned(), number);
    Words::new(
        object,
        format!("maxUnavailable {most} allows no eviction"),
        format!("set spec.maxUnavailable from {most} to 1"),
    )
}

fn number(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// `[0] and [2]`: the positions of what `is_meant` picks.
fn positions<T>(list: Option<&[T]>, is_meant: impl Fn(&T) -> bool) -> String {
    let numbered = list.unwrap_or_default().iter().enumerate();
    let meant: Vec<String> =
        numbered.filter(|(_, one)| is_meant(one)).map(|(at, _)| format!("[{at}]")).collect();
    meant.join(" and ")
}

fn spread(workload: &WorkloadName, key: &str, spec: Option<&PodSpec>) -> Words {
    let list = spec.and_then(|spec| spec.topology_spread_constraints.as_deref());
    let is_meant = |spread: &k8s_openapi::api::core::v1::TopologySpreadConstraint| {
        spread.topology_key == key && spread.when_unsatisfiable != "ScheduleAnyway"
    };
    let meant = || list.unwrap_or_default().iter().filter(|spread| is_meant(spread));
    let skew = meant().map(|spread| spread.max_skew).min().unwrap_or(1);
    // Kubernetes allows minDomains with DoNotSchedule only.
    let domains =
        if meant().any(|spread| spread.min_domains.is_some()) { ", and leave out minDomains" } else { "" };
    Words::new(
        workload.to_string(),
        format!("topology spread over {key}, maxSkew {skew}, DoNotSchedule"),
        format!(
            "set whenUnsatisfiable to ScheduleAnyway in {}spec.topologySpreadConstraints{}{domains}",
            template(workload),
            positions(list, is_meant)
        ),
    )
}

fn required(workload: &WorkloadName, field: &str, key: &str, terms: Option<&[PodAffinityTerm]>) -> Words {
    Words::new(
        workload.to_string(),
        format!("required {field} over {key}"),
        format!(
            "make {}spec.affinity.{field}.requiredDuringSchedulingIgnoredDuringExecution{} preferred",
            template(workload),
            positions(terms, |term: &PodAffinityTerm| term.topology_key == key)
        ),
    )
}

fn selector(workload: &WorkloadName, label: NodeLabel, spec: Option<&PodSpec>) -> Words {
    let path = template(workload);
    let condition = images(label);
    let selected = spec.and_then(|spec| in_selector(spec, label));
    let wanted = spec.and_then(|spec| in_affinity(spec, label));
    let value = match (selected, wanted) {
        (Some(value), _) => value.to_owned(),
        (None, Some(wanted)) => {
            format!("{} {}", wanted.operator, wanted.values.clone().unwrap_or_default().join(", "))
        }
        (None, None) => String::new(),
    };
    let fields: Vec<String> = [
        selected.map(|_| format!("{path}spec.nodeSelector")),
        wanted.map(|_| format!("{path}spec.affinity.nodeAffinity")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let key = key(label);
    Words::new(
        workload.to_string(),
        format!("its pods select {key} {value}"),
        format!("leave {key} out of {}{condition}", fields.join(" and ")),
    )
}

const fn key(label: NodeLabel) -> &'static str {
    match label {
        NodeLabel::Architecture => "kubernetes.io/arch",
        NodeLabel::Zone => "topology.kubernetes.io/zone",
    }
}

/// The condition of leaving a label out.
const fn images(label: NodeLabel) -> &'static str {
    match label {
        NodeLabel::Architecture => ", if the images run on other architectures",
        NodeLabel::Zone => "",
    }
}

fn of_pool(constraint: &Constraint, pool: &TenantPool) -> Words {
    let object = format!("TenantPool {}", pool.name_any());
    let disruption = &pool.spec.disruption;
    match constraint {
        Constraint::PoolRequirement { label, .. } => {
            let requirements = pool.spec.node_specs().flat_map(|nodes| &nodes.requirements);
            let place = if pool.spec.templates.is_empty() {
                "spec.template.spec.requirements"
            } else {
                "the requirements of spec.templates"
            };
            let own: Vec<String> = requirements
                .filter(|wanted| label.is(&wanted.key))
                .map(|wanted| format!("{} {:?} {}", wanted.key, wanted.operator, wanted.values.join(", ")))
                .collect();
            Words::new(
                object,
                format!("requirement {}", own.join(" and ")),
                format!("leave {} out of {place}{}", key(*label), images(*label)),
            )
        }
        Constraint::MinSavings(_) => Words::new(
            object,
            format!("minSavings of ${}/h", disruption.min_savings()),
            format!("set spec.disruption.minSavings from {} to 0", disruption.min_savings()),
        ),
        Constraint::EvictionCost(_) => Words::new(
            object,
            format!("evictionCost of ${}/h", disruption.eviction_cost()),
            format!(
                "set spec.disruption.evictionCost from {} to {}",
                disruption.eviction_cost(),
                usual(disruption).eviction_cost()
            ),
        ),
        Constraint::ConsolidationPolicy(_) => Words::new(
            object,
            "consolidationPolicy WhenEmpty",
            "set spec.disruption.consolidationPolicy to WhenEmptyOrUnderutilized",
        ),
        Constraint::ConsolidateAfter(_) => {
            Words::new(object, "consolidateAfter Never", "set spec.disruption.consolidateAfter to 30s")
        }
        Constraint::TemplateWeights(_) => {
            let weights = pool.spec.templates.iter();
            let weights: Vec<String> =
                weights.map(|template| format!("{} {}", template.name, template.weight)).collect();
            Words::new(
                object,
                format!("weights of templates, which come before price: {}", weights.join(", ")),
                "give templates the same weight in spec.templates, if the cheapest of them may be used",
            )
        }
        _ => Words::new(
            object,
            "a disruption budget of 0 nodes at all times",
            format!(
                "set nodes to 10% in spec.disruption.budgets{}",
                positions(Some(disruption.budgets.as_slice()), |budget| {
                    allows_nothing(budget, DisruptionReason::Underutilized)
                })
            ),
        ),
    }
}

/// The words of a limit; `within` is the path of the field that has the limits.
fn limit(object: String, within: &str, resource: &str, amount: Option<&Amount>) -> Words {
    let amount = amount.map(|amount| amount.0.clone()).unwrap_or_default();
    Words::new(
        object,
        format!("limit of {resource} {amount}"),
        format!("raise {within}.limits.{resource} above {amount}"),
    )
}

/// The value of a label in the node selector.
pub(super) fn in_selector(spec: &PodSpec, label: NodeLabel) -> Option<&str> {
    let mut selector = spec.node_selector.iter().flatten();
    selector.find(|(key, _)| label.is(key)).map(|(_, value)| value.as_str())
}

/// The first expression about a label in the required node affinity.
pub(super) fn in_affinity(spec: &PodSpec, label: NodeLabel) -> Option<&NodeSelectorRequirement> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let expressions = required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter());
    expressions.flatten().find(|wanted| label.is(&wanted.key))
}
