//! Capacity that pools keep without any pod that requests it, as demand for the scheduler: the nodes of a pool or template
//! with `replicas`, and headroom. The controller and `croft simulate` plan both with these functions.

use std::collections::BTreeMap;

use croft_policy::definitions::TEMPLATE_LABEL;
use croft_scheduler::{Cluster, InputError, Options, Plan, PodKey, Pool, Reason, ReasonKind, Resources};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::ResourceExt;
use serde_json::json;

use super::scheduler as convert;
use crate::{
    NodeClaim, TenantPool,
    definitions::REPLACES,
    pool::{DEFAULT_KEY, Provisioner},
};

/// Only an instance that is being planned has this label.
const SLOT: &str = "croft.dev/slot";
/// A namespace name that no namespace can have, for the pods that stand for replicas.
const REPLICAS: &str = "croft.dev/replicas";
/// A namespace name that no namespace can have, for the pods that stand for headroom.
const HEADROOM: &str = "croft.dev/headroom";

/// A fixed number of nodes: those of a pool, or those of one of its templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSize<'a> {
    /// The name of the template; `None` if the number is that of all nodes of the pool.
    pub template: Option<&'a str>,
    /// The number of nodes.
    pub replicas: usize,
}

impl FixedSize<'_> {
    /// True if a node of the pool by this template is one of these.
    #[must_use]
    pub fn has(&self, template: Option<&str>) -> bool {
        self.template.is_none() || self.template == template
    }

    /// The pool, or its template, in words.
    #[must_use]
    pub fn describe(&self, pool: &str) -> String {
        match self.template {
            None => format!("pool {pool}"),
            Some(template) => format!("template {template} of pool {pool}"),
        }
    }
}

/// The fixed sizes in a pool; none if it is scaled by demand, or if it has no nodes itself (`perTenant`).
pub fn sizes(pool: &TenantPool) -> impl Iterator<Item = FixedSize<'_>> {
    let spec = Some(&pool.spec).filter(|spec| spec.provisioner == Provisioner::Croft && !spec.per_tenant);
    let of_pool = spec.and_then(|spec| spec.replicas).map(|replicas| (None, replicas));
    let of_templates =
        spec.filter(|spec| spec.replicas.is_none()).into_iter().flat_map(|spec| &spec.templates);
    let of_templates = of_templates.filter_map(|one| Some((Some(one.name.as_str()), one.replicas?)));
    of_pool.into_iter().chain(of_templates).filter_map(|(template, replicas)| {
        Some(FixedSize { template, replicas: usize::try_from(replicas).ok()? })
    })
}

/// The fixed size that a node of the pool by this template belongs to; `None` if such nodes follow the demand.
#[must_use]
pub fn size_of<'a>(pool: &'a TenantPool, template: Option<&str>) -> Option<FixedSize<'a>> {
    sizes(pool).find(|size| size.has(template))
}

/// The fixed size that a node of the pool belongs to, likewise.
#[must_use]
pub fn size_of_node<'a>(pool: &'a TenantPool, node: &Node) -> Option<FixedSize<'a>> {
    size_of(pool, node.labels().get(TEMPLATE_LABEL).map(String::as_str))
}

/// True if no node of the pool follows the demand.
#[must_use]
pub fn is_fixed(pool: &TenantPool) -> bool {
    let templates = &pool.spec.templates;
    pool.spec.replicas.is_some()
        || !templates.is_empty() && templates.iter().all(|template| template.replicas.is_some())
}

/// True if a NodeClaim counts towards the `replicas` of its pool or template: it is not being deleted, and doesn't replace one that
/// still counts. `find` looks up a NodeClaim by name.
pub fn counts<'a>(claim: &NodeClaim, find: impl Fn(&str) -> Option<&'a NodeClaim>) -> bool {
    let stays = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none();
    let replaced = claim.annotations().get(REPLACES).into_iter().flat_map(|names| names.split(','));
    stays(claim) && !replaced.filter_map(find).any(stays)
}

/// Why a pool or template with `replicas` gets fewer nodes than it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The reason why the pool launches nothing; `None` if the pool itself can't be planned.
    pub reason: Option<ReasonKind>,
    /// The reason as a sentence.
    pub detail: String,
}

impl Shortfall {
    fn invalid_pool(error: &InputError) -> Self {
        Self { reason: None, detail: error.to_string() }
    }
}

/// Plans `count` new nodes of a fixed size in addition to those of `cluster`, each the cheapest that the pool may launch by its heaviest
/// template, or by the one whose size it is, as far as limits and capacity allow; and why there aren't more. `plannable` are the pool's
/// templates with what they may launch. Pending pods are ignored. `solve` makes the plan.
#[must_use]
pub fn new_nodes(
    cluster: &Cluster,
    pool: &TenantPool,
    size: &FixedSize<'_>,
    plannable: Result<Vec<Pool>, InputError>,
    count: usize,
    solve: impl FnOnce(&Cluster, &Options) -> Plan,
) -> (Plan, Option<Shortfall>) {
    let name = pool.name_any();
    let mut cluster = cluster.at_rest();
    // The pods that stand for nodes count for nothing.
    cluster.set_pods_without_requests(&Resources::new());
    let mut plannable = match plannable {
        Ok(templates) => templates,
        Err(error) => return (Plan::default(), Some(Shortfall::invalid_pool(&error))),
    };
    for template in &mut plannable {
        // The others stay, since their nodes count for the pool's limits.
        template.launches = size.has(Some(template.template.as_str()));
        (template.replicas, template.template_replicas) = (None, None);
        template.labels.insert(SLOT.to_owned(), "new".to_owned());
    }
    let slots = (0..count).filter_map(|n| slot(pool, n));
    let upserted = cluster
        .upsert_templates(plannable)
        .and_then(|()| slots.into_iter().try_for_each(|pod| cluster.upsert_pod(&pod)));
    if let Err(error) = upserted {
        return (Plan::default(), Some(Shortfall::invalid_pool(&error)));
    }
    let mut plan = solve(&cluster, &Options { effort: 0, ..Options::default() });
    let shortfall = plan.unschedulable.first().map(|left| {
        let is_own =
            |reason: &&Reason| reason.pool == name && reason.reason != ReasonKind::PoolNotProvisioned;
        let own = left.reasons.iter().find(is_own);
        let detail = own.map_or("no node of it can be planned", |reason| reason.detail.as_str());
        // Whose nodes they are is said already.
        let prefix = size.template.map_or_else(String::new, |template| format!("template {template}: "));
        let detail = detail.strip_prefix(&prefix).unwrap_or(detail).to_owned();
        Shortfall { reason: own.map(|reason| reason.reason), detail }
    });
    for instance in &mut plan.instances {
        instance.labels.remove(SLOT);
        instance.requirements.retain(|r| r.key != SLOT);
        instance.pods.clear();
    }
    plan.existing.clear();
    plan.unschedulable.clear();
    (plan, shortfall)
}

/// A pod that needs a new node of the pool for itself.
fn slot(pool: &TenantPool, number: usize) -> Option<Pod> {
    let name = pool.name_any();
    serde_json::from_value(json!({
        "metadata": {"namespace": REPLICAS, "name": format!("{name}/{number}"), "labels": {SLOT: name}},
        "spec": {
            "nodeSelector": {DEFAULT_KEY: convert::pool_name_label(pool), SLOT: "new"},
            "tolerations": tolerations(pool.by_template().flat_map(|(_, pool)| convert::taints(&pool))),
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {SLOT: name}}},
            ]}},
            "containers": [{"name": "slot"}],
        },
    }))
    .ok()
}

/// The taints that nodes of each template have: pods that tolerate the taint of one template aren't those that headroom waits for.
fn shared_taints(pool: &TenantPool) -> Vec<Taint> {
    let mut templates = pool.by_template().map(|(_, pool)| convert::taints(&pool));
    let mut shared = templates.next().unwrap_or_default();
    for taints in templates {
        shared.retain(|taint| taints.contains(taint));
    }
    shared
}

fn tolerations(taints: impl IntoIterator<Item = Taint>) -> Vec<Toleration> {
    let own = |taint: Taint| Toleration {
        key: Some(taint.key),
        operator: Some("Equal".to_owned()),
        value: Some(taint.value.unwrap_or_default()),
        effect: Some(taint.effect),
        ..Toleration::default()
    };
    taints.into_iter().map(own).collect()
}

/// The pods that stand for a pool's headroom: of the lowest priority, each with the requests of one headroom pod. None for a pool that
/// has no nodes itself (`perTenant`).
pub fn headroom_pods(pool: &TenantPool) -> impl Iterator<Item = Pod> {
    let headroom = pool.spec.headroom.as_ref().filter(|_| !pool.spec.per_tenant);
    let wanted = headroom.map_or(0, |headroom| usize::try_from(headroom.pods).unwrap_or(0));
    (0..wanted).filter_map(|number| headroom_pod(pool, number))
}

/// The key of a headroom pod.
#[must_use]
pub fn headroom_key(pool: &str, number: usize) -> PodKey {
    PodKey::new(HEADROOM, &format!("{pool}/{number}"))
}

/// The pool of a headroom pod; `None` for any other pod.
#[must_use]
pub fn headroom_of(pod: &PodKey) -> Option<&str> {
    let pool = pod.name.rsplit_once('/').map(|(pool, _)| pool);
    pool.filter(|_| &*pod.namespace == HEADROOM)
}

fn headroom_pod(pool: &TenantPool, number: usize) -> Option<Pod> {
    let name = pool.name_any();
    let key = headroom_key(&name, number);
    let headroom = pool.spec.headroom.as_ref()?;
    let requests: BTreeMap<&String, &String> = headroom.requests.iter().map(|(k, v)| (k, &v.0)).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": &*key.namespace, "name": &*key.name},
        "spec": {
            "priority": i32::MIN,
            "nodeSelector": {DEFAULT_KEY: convert::pool_name_label(pool), pool.spec.key.clone(): convert::value(pool)},
            "tolerations": tolerations(shared_taints(pool)),
            "containers": [{"name": "headroom", "resources": {"requests": requests}}],
        },
    }))
    .ok()
}
