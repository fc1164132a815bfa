//! Conversions for admission: tenants, pools, settings, namespaces, nodes, and views of pods. Called by the CLI and the
//! controller; the webhook decodes its own views.

use std::collections::BTreeMap;

use croft_policy::{
    self as policy, LabelRequirement, NodeTemplate, Subject,
    definitions::POOL_NAME_LABEL,
    selector::{Requirement, Selector, Test},
    taint::{Effect, Taint},
    view,
};
use k8s_openapi::{
    api::{apps, core::v1 as core},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use kube::ResourceExt;
use thiserror::Error;

use crate::{
    config,
    given::Owner,
    pool,
    tenant::{self, NetworkPeer},
};

/// Why the selector of a Tenant can't be converted.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "failed to read Tenant {tenant}: spec.namespaceSelector.matchExpressions[{index}].operator is {operator:?}; write In, NotIn, Exists or DoesNotExist"
)]
pub struct SelectorError {
    /// The tenant's name.
    pub tenant: String,
    /// Index of the expression.
    pub index: usize,
    /// Its operator.
    pub operator: String,
}

/// Converts a Tenant.
///
/// # Errors
/// If its selector has an unknown operator. The API server refuses such a Tenant.
pub fn tenant(tenant: &crate::Tenant) -> Result<policy::Tenant, SelectorError> {
    let name = tenant.name_any();
    let selector = tenant.spec.namespace_selector.as_ref().map(selector).transpose();
    let selector =
        selector.map_err(|(index, operator)| SelectorError { tenant: name.clone(), index, operator })?;
    Ok(policy::Tenant {
        name,
        created: created(&tenant.metadata),
        namespaces: tenant.spec.namespaces.clone(),
        // An empty selector would claim every namespace there is.
        selector: selector.filter(|s| !s.requirements().is_empty()),
        creation: tenant.spec.namespace_creation.as_ref().map(|declared| policy::NamespaceCreation {
            prefix: declared.prefix.clone(),
            maximum: declared.maximum,
        }),
        owners: tenant.spec.owners.iter().filter_map(owner).collect(),
        peers: peers(tenant.spec.network_isolation.as_ref()),
        pools: tenant.spec.pools.clone(),
        on_conflict: match tenant.spec.on_conflict {
            tenant::OnConflict::Reject => policy::OnConflict::Reject,
            tenant::OnConflict::Override => policy::OnConflict::Override,
        },
        unreadable_claims: false,
        needs_objects: false,
    })
}

fn owner(owner: &Owner) -> Option<policy::Owner> {
    let subject =
        Subject::new(owner.kind.as_str(), &owner.name, owner.namespace.as_deref().unwrap_or_default())?;
    Some(policy::Owner { subject, roles: owner.cluster_roles.clone() })
}

/// The namespaces that a closed network names.
fn peers(isolation: Option<&tenant::NetworkIsolation>) -> Vec<String> {
    let Some(isolation) = isolation.filter(|isolation| isolation.enabled) else { return Vec::new() };
    let to: &[NetworkPeer] =
        if isolation.egress == tenant::Egress::Restricted { &isolation.allow_to } else { &[] };
    isolation.allow_from.iter().chain(to).filter_map(|peer| peer.namespace.clone()).collect()
}

/// Converts a label selector.
///
/// # Errors
/// The index and the operator of an expression whose operator is unknown.
pub fn selector(selector: &LabelSelector) -> Result<Selector, (usize, String)> {
    let labels = selector.match_labels.iter().flatten();
    let equal =
        labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
    let mut requirements: Vec<Requirement> = equal.collect();
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let test = Test::parse(&expression.operator, expression.values.clone().unwrap_or_default())
            .ok_or_else(|| (index, expression.operator.clone()))?;
        requirements.push(Requirement { key: expression.key.clone(), test });
    }
    Ok(Selector::new(requirements))
}

fn created(metadata: &ObjectMeta) -> Option<i64> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second())
}

/// Converts a TenantPool.
#[must_use]
pub fn pool(pool: &crate::TenantPool) -> policy::Pool {
    let name = pool.name_any();
    policy::Pool {
        created: created(&pool.metadata),
        key: pool.spec.key.clone(),
        value: pool.spec.value.clone().unwrap_or_else(|| name.clone()),
        effects: pool.spec.effects.iter().map(effect).collect(),
        shared_with: pool.spec.shared_with.clone(),
        provisioner: match pool.spec.provisioner {
            pool::Provisioner::Croft => policy::Provisioner::Croft,
            pool::Provisioner::Karpenter => policy::Provisioner::Karpenter,
            pool::Provisioner::None => policy::Provisioner::None,
        },
        template: node_template(pool),
        tenants: match &pool.spec.for_tenant {
            _ if pool.spec.per_tenant => policy::PoolTenants::Each,
            Some(of) => policy::PoolTenants::One { made_from: of.pool.clone(), tenant: of.tenant.clone() },
            None => policy::PoolTenants::AllThatNameIt,
        },
        name,
    }
}

/// The declarations of `pool` about its nodes.
fn node_template(pool: &crate::TenantPool) -> NodeTemplate {
    let is_declared = pool.spec.provisioner == pool::Provisioner::Croft;
    let templates = pool.by_template().filter_map(|(_, pool)| pool.spec.template.as_ref().map(one_kind));
    let any = templates.reduce(NodeTemplate::or).filter(|_| is_declared);
    let Some(template) = any else { return NodeTemplate::default() };
    let status = pool.status.as_ref();
    let labels = status.and_then(|status| status.instance_labels.as_ref()).into_iter().flatten();
    let labels =
        labels.map(|one| (one.key.as_str(), one.values.iter().map(String::as_str).collect::<Vec<_>>()));
    let resources = status.and_then(|status| status.extended_resources.as_ref());
    let resources = resources.map(|all| all.iter().map(|one| (one.name.as_str(), one.dedicated)));
    template.with_instance_labels(labels).with_resources(resources)
}

fn one_kind(template: &pool::NodeTemplate) -> NodeTemplate {
    let requirements = template.spec.requirements.iter().map(|requirement| LabelRequirement {
        key: &requirement.key,
        operator: super::scheduler::requirement(requirement).operator.as_str(),
        values: requirement.values.iter().map(String::as_str).collect(),
    });
    let labels = template.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    NodeTemplate::new(requirements, labels).with_taints(template.spec.taints.iter().filter_map(taint))
}

fn taint(taint: &core::Taint) -> Option<Taint> {
    let value = taint.value.clone().unwrap_or_default();
    Some(Taint { key: taint.key.clone(), value, effect: Effect::parse(&taint.effect)? })
}

const fn effect(effect: &pool::Effect) -> Effect {
    match effect {
        pool::Effect::NoSchedule => Effect::NoSchedule,
        pool::Effect::NoExecute => Effect::NoExecute,
    }
}

/// The labels of the nodes of `pool`: the pool's own, and the pool-name label.
#[must_use]
pub fn node_labels(pool: &crate::TenantPool) -> [(String, String); 2] {
    let (name, key) = (pool.name_any(), pool.spec.key.clone());
    let value = pool.spec.value.clone().unwrap_or_else(|| name.clone());
    let mark = if key == POOL_NAME_LABEL { value.clone() } else { name };
    [(key, value), (POOL_NAME_LABEL.to_owned(), mark)]
}

/// Converts the settings of a Croft that is installed in `namespace`.
#[must_use]
pub fn config(config: &config::CroftConfigSpec, namespace: &str) -> policy::Config {
    policy::Config {
        namespace: namespace.to_owned(),
        non_tenant_pods: match config.non_tenant_pods {
            config::NonTenantPods::KeepOut => policy::NonTenantPods::KeepOut,
            config::NonTenantPods::Reject => policy::NonTenantPods::Reject,
            config::NonTenantPods::Allow => policy::NonTenantPods::Allow,
        },
        mutation: match config.admission.mutation {
            config::Mutation::Webhook => policy::Mutation::Webhook,
            config::Mutation::Policy => policy::Mutation::Policy,
        },
        exempt: config.exempt_namespaces.clone(),
        schedulers: config.schedulers.clone(),
        shared_with: config.shared_with.clone(),
        owner_metadata: config.owner_metadata.clone(),
    }
}

/// Converts the metadata of a namespace.
#[must_use]
pub fn namespace(metadata: &ObjectMeta) -> policy::Namespace {
    policy::Namespace {
        name: metadata.name.clone().unwrap_or_default(),
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations: metadata.annotations.clone().unwrap_or_default(),
    }
}

/// Converts a node.
#[must_use]
pub fn node(node: &core::Node) -> policy::Node {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    policy::Node {
        name: node.name_any(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: taints.filter_map(taint).collect(),
    }
}

/// A view of a pod.
#[must_use]
pub fn pod(pod: &core::Pod) -> view::Pod<'_> {
    view::Pod {
        metadata: metadata(&pod.metadata),
        spec: pod.spec.as_ref().map(pod_spec).unwrap_or_default(),
        ..view::Pod::default()
    }
}

/// A view of a DaemonSet.
#[must_use]
pub fn daemonset(daemonset: &apps::v1::DaemonSet) -> view::DaemonSet<'_> {
    let template = daemonset.spec.as_ref().map(|spec| template(&spec.template)).unwrap_or_default();
    view::DaemonSet {
        metadata: metadata(&daemonset.metadata),
        spec: view::DaemonSetSpec { template },
        ..view::DaemonSet::default()
    }
}

/// A view of a pod template.
#[must_use]
pub fn template(template: &core::PodTemplateSpec) -> view::Template<'_> {
    view::Template {
        metadata: template.metadata.as_ref().map(metadata),
        spec: template.spec.as_ref().map(pod_spec).unwrap_or_default(),
    }
}

fn metadata(metadata: &ObjectMeta) -> view::Metadata<'_> {
    view::Metadata {
        name: text(metadata.name.as_ref()),
        generate_name: text(metadata.generate_name.as_ref()),
        deletion_timestamp: metadata.deletion_timestamp.as_ref().map(|t| t.0.to_string().into()),
        annotations: metadata.annotations.as_ref().map(|annotations| {
            let get = |key: &str| annotations.get(key).map(policy::Text::from);
            view::Annotations {
                pool: get(policy::definitions::POOL_ANNOTATION),
                injected: get(policy::definitions::INJECTED_ANNOTATION),
                mirror: get(policy::definitions::MIRROR_ANNOTATION),
                do_not_disrupt: get(policy::do_not_disrupt::DO_NOT_DISRUPT),
                karpenter_do_not_disrupt: get(policy::do_not_disrupt::KARPENTER_DO_NOT_DISRUPT),
            }
        }),
    }
}

fn text(text: Option<&String>) -> policy::Text<'_> {
    text.map(policy::Text::from).unwrap_or_default()
}

/// A view of a pod's spec.
#[must_use]
pub fn pod_spec(spec: &core::PodSpec) -> view::PodSpec<'_> {
    view::PodSpec {
        node_name: text(spec.node_name.as_ref()),
        node_selector: spec.node_selector.as_ref().map(|s| s.iter().collect()),
        tolerations: spec.tolerations.as_ref().map(|t| t.iter().map(toleration).collect()),
        affinity: spec.affinity.as_ref().map(|affinity| view::Affinity {
            node_affinity: affinity.node_affinity.as_ref().map(|node_affinity| view::NodeAffinity {
                required: node_affinity.required_during_scheduling_ignored_during_execution.as_ref().map(
                    |selector| view::NodeSelector {
                        node_selector_terms: selector.node_selector_terms.iter().map(term).collect(),
                    },
                ),
            }),
        }),
        scheduling_gates: spec
            .scheduling_gates
            .iter()
            .flatten()
            .map(|gate| view::Gate { name: (&gate.name).into() })
            .collect(),
        containers: spec.containers.iter().map(container).collect(),
        init_containers: spec.init_containers.iter().flatten().map(container).collect(),
    }
}

fn container(container: &core::Container) -> view::Container<'_> {
    let resources = container.resources.as_ref();
    view::Container {
        resources: view::ContainerResources {
            requests: extended(resources.and_then(|resources| resources.requests.as_ref())),
            limits: extended(resources.and_then(|resources| resources.limits.as_ref())),
        },
    }
}

fn extended(amounts: Option<&BTreeMap<String, Quantity>>) -> policy::ExtendedResources<'_> {
    let amounts = amounts.into_iter().flatten();
    policy::ExtendedResources::among(amounts.map(|(name, Quantity(amount))| (name.as_str(), amount.as_str())))
}

fn toleration(toleration: &core::Toleration) -> view::Toleration<'_> {
    view::Toleration {
        key: text(toleration.key.as_ref()),
        operator: text(toleration.operator.as_ref()),
        value: text(toleration.value.as_ref()),
        effect: text(toleration.effect.as_ref()),
        toleration_seconds: toleration.toleration_seconds,
    }
}

fn term(term: &core::NodeSelectorTerm) -> view::Term<'_> {
    view::Term {
        match_expressions: term.match_expressions.as_ref().map(|list| list.iter().map(expression).collect()),
        match_fields: term.match_fields.as_ref().map(|list| list.iter().map(expression).collect()),
    }
}

fn expression(expression: &core::NodeSelectorRequirement) -> view::Expression<'_> {
    view::Expression {
        key: (&expression.key).into(),
        operator: (&expression.operator).into(),
        values: expression.values.iter().flatten().map(policy::Text::from).collect(),
    }
}
