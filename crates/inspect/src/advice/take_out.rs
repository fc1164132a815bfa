//! Takes a constraint out of an input: the edit that its advice names.

use std::collections::HashSet;

use croft_api::disruption::{ConsolidationPolicy, Disruption, Preference};
use croft_disruption::blockers::{SAFE_TO_EVICT, is_do_not_disrupt};
use croft_manifest::Input;
use k8s_openapi::{
    api::core::v1::{
        NodeSelectorRequirement, PodAffinityTerm, PodSpec, PodTemplateSpec, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;

use super::constraint::{Constraint, NodeLabel};
use crate::workload::{WorkloadName, controller, workload_of};

/// The least weight of a preferred affinity.
const LEAST_WEIGHT: i32 = 1;

/// Takes `constraint` out of `input`. `names` has the workloads that pods belong to.
pub(super) fn take_out(constraint: &Constraint, names: &Input, input: &mut Input) {
    match constraint {
        Constraint::PodDisruptionBudget { namespace, name } => input
            .budgets
            .retain(|b| b.namespace().as_deref() != Some(namespace.as_str()) || b.name_any() != *name),
        Constraint::PodDoNotDisrupt(workload) => {
            change_pods(input, names, workload, &|metadata, _| allow_disruption(metadata));
        }
        Constraint::NodeDoNotDisrupt(node) => allow_disruption_of_node(input, node),
        Constraint::PoolDoNotDisrupt(name) => {
            input.pools.for_each_mut(|pool| {
                if pool.name_any() == *name {
                    allow_disruption(&mut pool.metadata);
                }
            });
        }
        Constraint::BarePod(workload) => {
            change_pods(input, names, workload, &|metadata, _| give_controller(metadata));
        }
        Constraint::TopologySpread { workload, key } => {
            change_pods(input, names, workload, &|_, spec| prefer_spread(spec, key));
        }
        Constraint::PodAntiAffinity { workload, key } => {
            change_pods(input, names, workload, &|_, spec| prefer_apart(spec, key));
        }
        Constraint::PodAffinity { workload, key } => {
            change_pods(input, names, workload, &|_, spec| prefer_together(spec, key));
        }
        Constraint::NodeSelector { workload, label } => {
            change_pods(input, names, workload, &|_, spec| allow_any(spec, *label));
        }
        Constraint::PoolRequirement { .. }
        | Constraint::MinSavings(_)
        | Constraint::EvictionCost(_)
        | Constraint::ConsolidationPolicy(_)
        | Constraint::ConsolidateAfter(_)
        | Constraint::PoolBudget(_)
        | Constraint::PoolLimit { .. }
        | Constraint::TemplateLimit { .. }
        | Constraint::TemplateWeights(_) => change_pool(constraint, input),
        Constraint::TenantLimit { tenant, resource } => input.tenants.for_each_mut(|one| {
            if one.name_any() == *tenant {
                one.spec.limits.remove(resource);
            }
        }),
        Constraint::ClusterLimit(resource) => input.configs.for_each_mut(|config| {
            config.spec.limits.remove(resource);
        }),
    }
}

/// The settings beside which a pool's `evictionCost` counts as high: those of its preference, and never those of a calmer one
/// than the default.
pub(super) fn usual(own: &Disruption) -> Disruption {
    let preference = match own.preference {
        Preference::Cheapest => Preference::Cheapest,
        Preference::Balanced | Preference::Calm => Preference::default(),
    };
    Disruption { preference, ..Disruption::default() }
}

/// Takes out what a pool's own fields say.
fn change_pool(constraint: &Constraint, input: &mut Input) {
    input.pools.for_each_mut(|pool| {
        let own = pool.name_any();
        let spec = &mut pool.spec;
        match constraint {
            Constraint::PoolRequirement { pool, label } if *pool == own => {
                for nodes in spec.node_specs_mut() {
                    nodes.requirements.retain(|wanted| !label.is(&wanted.key));
                }
            }
            Constraint::MinSavings(pool) if *pool == own => {
                spec.disruption.min_savings = Some("0".to_owned());
            }
            Constraint::EvictionCost(pool) if *pool == own => {
                spec.disruption.eviction_cost = Some(usual(&spec.disruption).eviction_cost().to_owned());
            }
            Constraint::ConsolidationPolicy(pool) if *pool == own => {
                spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
            }
            Constraint::ConsolidateAfter(pool) if *pool == own => {
                spec.disruption.consolidate_after = Some("30s".to_owned());
            }
            Constraint::PoolBudget(pool) if *pool == own => {
                spec.disruption.budgets = Disruption::default().budgets;
            }
            Constraint::PoolLimit { pool, resource } if *pool == own => {
                spec.limits.remove(resource);
            }
            Constraint::TemplateLimit { pool, template, resource } if *pool == own => {
                let its = spec.templates.iter_mut().filter(|one| one.name == *template);
                its.for_each(|one| {
                    one.limits.remove(resource);
                });
            }
            Constraint::TemplateWeights(pool) if *pool == own => {
                spec.templates.iter_mut().for_each(|template| template.weight = 0);
            }
            _ => {}
        }
    });
}

type Change<'c> = &'c dyn Fn(&mut ObjectMeta, &mut PodSpec);

/// Changes the pods of a workload, and its template. `names` has the workloads that pods belong to.
fn change_pods(input: &mut Input, names: &Input, workload: &WorkloadName, change: Change<'_>) {
    let own: HashSet<String> = input
        .pods
        .iter()
        .filter(|pod| workload_of(names, &pod.object) == *workload)
        .map(|pod| pod.name_any())
        .collect();
    input.pods.for_each_mut(|pod| {
        if pod.namespace().as_deref() == Some(workload.namespace.as_str()) && own.contains(&pod.name_any()) {
            change(&mut pod.metadata, pod.spec.get_or_insert_default());
        }
    });
    change_template(input, workload, change);
}

fn change_template(input: &mut Input, workload: &WorkloadName, change: Change<'_>) {
    let template = |template: &mut PodTemplateSpec| {
        change(template.metadata.get_or_insert_default(), template.spec.get_or_insert_default());
    };
    let named = |metadata: &ObjectMeta| {
        metadata.namespace.as_deref() == Some(workload.namespace.as_str())
            && metadata.name.as_deref() == Some(workload.name.as_str())
    };
    macro_rules! change_templates {
        ($field:ident) => {
            input.$field.for_each_mut(|one| {
                if let Some(spec) = one.spec.as_mut().filter(|_| named(&one.metadata)) {
                    template(&mut spec.template);
                }
            })
        };
    }
    match workload.kind.as_str() {
        "Deployment" => {
            change_templates!(deployments);
            // Its ReplicaSets count for themselves if the input lacks the Deployment.
            input.replica_sets.for_each_mut(|set| {
                let ours = controller(&set.metadata).is_some_and(|o| o.name == workload.name)
                    && set.metadata.namespace.as_deref() == Some(workload.namespace.as_str());
                if let Some(found) = set.spec.as_mut().filter(|_| ours) {
                    template(found.template.get_or_insert_default());
                }
            });
        }
        "StatefulSet" => change_templates!(stateful_sets),
        "Job" => change_templates!(jobs),
        "CronJob" => input.cron_jobs.for_each_mut(|cron| {
            let ours = named(&cron.metadata);
            if let Some(spec) = cron.spec.job_template.spec.as_mut().filter(|_| ours) {
                template(&mut spec.template);
            }
        }),
        "ReplicaSet" => input.replica_sets.for_each_mut(|set| {
            if let Some(spec) = set.spec.as_mut().filter(|_| named(&set.metadata)) {
                template(spec.template.get_or_insert_default());
            }
        }),
        "ReplicationController" => input.replication_controllers.for_each_mut(|set| {
            if let Some(spec) = set.spec.as_mut().filter(|_| named(&set.metadata)) {
                template(spec.template.get_or_insert_default());
            }
        }),
        _ => {}
    }
}

fn allow_disruption(metadata: &mut ObjectMeta) {
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| !is_do_not_disrupt(key) && key != SAFE_TO_EVICT);
    }
}

fn allow_disruption_of_node(input: &mut Input, name: &str) {
    input.nodes.for_each_mut(|node| {
        if node.name_any() == name {
            allow_disruption(&mut node.metadata);
        }
    });
    input.claims.for_each_mut(|claim| {
        if claim.status.as_ref().and_then(|s| s.node_name.as_deref()) == Some(name) {
            allow_disruption(&mut claim.metadata);
        }
    });
}

/// A controller of the pod's own, as if a ReplicaSet of one had created it.
fn give_controller(metadata: &mut ObjectMeta) {
    let name = metadata.name.clone().unwrap_or_default();
    let namespace = metadata.namespace.clone().unwrap_or_default();
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        uid: format!("{namespace}/{name}"),
        name,
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
}

fn prefer_spread(spec: &mut PodSpec, key: &str) {
    for spread in spec.topology_spread_constraints.iter_mut().flatten().filter(|s| s.topology_key == key) {
        "ScheduleAnyway".clone_into(&mut spread.when_unsatisfiable);
        // Kubernetes allows it with DoNotSchedule only.
        spread.min_domains = None;
    }
}

fn prefer_apart(spec: &mut PodSpec, key: &str) {
    let affinity = spec.affinity.as_mut().and_then(|affinity| affinity.pod_anti_affinity.as_mut());
    let Some(terms) = affinity else { return };
    soften(
        &mut terms.required_during_scheduling_ignored_during_execution,
        &mut terms.preferred_during_scheduling_ignored_during_execution,
        key,
    );
}

fn prefer_together(spec: &mut PodSpec, key: &str) {
    let affinity = spec.affinity.as_mut().and_then(|affinity| affinity.pod_affinity.as_mut());
    let Some(terms) = affinity else { return };
    soften(
        &mut terms.required_during_scheduling_ignored_during_execution,
        &mut terms.preferred_during_scheduling_ignored_during_execution,
        key,
    );
}

/// Moves the required terms over `key` to the preferred ones.
fn soften(
    required: &mut Option<Vec<PodAffinityTerm>>,
    preferred: &mut Option<Vec<WeightedPodAffinityTerm>>,
    key: &str,
) {
    let Some(terms) = required else { return };
    let (soft, hard): (Vec<_>, Vec<_>) =
        std::mem::take(terms).into_iter().partition(|term| term.topology_key == key);
    *terms = hard;
    let weighted = |term| WeightedPodAffinityTerm { pod_affinity_term: term, weight: LEAST_WEIGHT };
    preferred.get_or_insert_default().extend(soft.into_iter().map(weighted));
}

/// Leaves a label out of the node selector and of the required node affinity.
fn allow_any(spec: &mut PodSpec, label: NodeLabel) {
    if let Some(selector) = &mut spec.node_selector {
        selector.retain(|key, _| !label.is(key));
    }
    let affinity = spec.affinity.as_mut().and_then(|affinity| affinity.node_affinity.as_mut());
    let Some(affinity) = affinity else { return };
    let Some(required) = &mut affinity.required_during_scheduling_ignored_during_execution else { return };
    let is_other = |wanted: &NodeSelectorRequirement| !label.is(&wanted.key);
    for term in &mut required.node_selector_terms {
        if let Some(expressions) = &mut term.match_expressions {
            expressions.retain(is_other);
        }
    }
    // One of the terms must match, and an empty one matches no node: without its expressions it would match each.
    let is_empty = |list: &Option<Vec<NodeSelectorRequirement>>| list.as_ref().is_none_or(Vec::is_empty);
    let terms = &required.node_selector_terms;
    if terms.iter().any(|term| is_empty(&term.match_expressions) && is_empty(&term.match_fields)) {
        affinity.required_during_scheduling_ignored_during_execution = None;
    }
}
