//! Requests of a pod, as kube-scheduler counts them (k8s.io/component-helpers/resource, PodRequests).

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use smallvec::SmallVec;

use crate::{
    ids::ids,
    model::{
        quantity::Quantity,
        resources::{CPU, EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY, PODS, native},
    },
    state::interner::{Interner, Sym},
};

/// The names of resources. The first four keep their ids, which have names of their own.
#[derive(Clone, Debug)]
pub(crate) struct ResourceNames(pub(crate) Interner<ResourceId, str>);

ids! {
    /// The name of a resource.
    ResourceId
}

impl ResourceId {
    pub(crate) const CPU: Self = Self(0);
    pub(crate) const MEMORY: Self = Self(1);
    pub(crate) const PODS: Self = Self(2);
    pub(crate) const EPHEMERAL_STORAGE: Self = Self(3);
}

impl Default for ResourceNames {
    fn default() -> Self {
        let mut names = Interner::default();
        for name in [CPU, MEMORY, PODS, EPHEMERAL_STORAGE] {
            names.id(std::sync::Arc::<str>::from(name));
        }
        Self(names)
    }
}

impl ResourceNames {
    pub(crate) fn id(&mut self, name: &str) -> ResourceId {
        match self.0.find(name) {
            Some(id) => id,
            None => self.0.id(std::sync::Arc::<str>::from(name)),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<ResourceId> {
        self.0.find(name)
    }

    pub(crate) fn name(&self, id: ResourceId) -> &str {
        self.0.get(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Amounts of resources, in native units.
pub(crate) type Amounts = SmallVec<[(ResourceId, i64); 4]>;

/// The amount of a resource or a dimension; zero if it isn't listed.
pub(crate) fn amount<I: Copy + Eq>(amounts: &[(I, i64)], id: I) -> i64 {
    amounts.iter().find(|(i, _)| *i == id).map_or(0, |(_, v)| *v)
}

fn add(to: &mut Amounts, id: ResourceId, value: i64) {
    match to.iter_mut().find(|(i, _)| *i == id) {
        Some((_, v)) => *v = v.saturating_add(value),
        None => to.push((id, value)),
    }
}

fn raise(to: &mut Amounts, id: ResourceId, value: i64) {
    match to.iter_mut().find(|(i, _)| *i == id) {
        Some((_, v)) => *v = (*v).max(value),
        None => to.push((id, value)),
    }
}

type ApiMap = BTreeMap<String, ApiQuantity>;

/// A field of a pod that can't be read.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) field: String,
    pub(crate) problem: String,
}

fn read(
    names: &mut ResourceNames,
    map: Option<&ApiMap>,
    field: impl Fn() -> String,
) -> Result<Amounts, Problem> {
    let refuse = |name: &str, problem| Problem { field: format!("{}.{name}", field()), problem };
    let mut result = Amounts::new();
    for (name, text) in map.into_iter().flatten() {
        let quantity = text.0.parse::<Quantity>().map_err(|e| refuse(name, e.to_string()))?;
        if quantity.is_negative() {
            return Err(refuse(name, format!("{} is negative: write 0 or more", text.0)));
        }
        result.push((names.id(name), native(name, quantity)));
    }
    Ok(result)
}

/// The larger of what the kubelet has given and what it has promised.
fn held(
    names: &mut ResourceNames,
    actual: Option<&ApiMap>,
    allocated: Option<&ApiMap>,
    field: &str,
) -> Result<Amounts, Problem> {
    let mut held = read(names, actual, || format!("{field}.resources"))?;
    for (id, value) in read(names, allocated, || format!("{field}.allocatedResources"))? {
        raise(&mut held, id, value);
    }
    Ok(held)
}

fn container(
    names: &mut ResourceNames,
    c: &Container,
    status: Option<&ContainerStatus>,
    infeasible_resize: bool,
    list: &str,
) -> Result<Amounts, Problem> {
    let spec = c.resources.as_ref().and_then(|r| r.requests.as_ref());
    let mut result = read(names, spec, || format!("spec.{list}[{}].resources.requests", c.name))?;
    // A limit without a request is its request: the API server defaults it, a file may not have been there.
    let limits = c.resources.as_ref().and_then(|r| r.limits.as_ref());
    for (id, value) in read(names, limits, || format!("spec.{list}[{}].resources.limits", c.name))? {
        if !result.iter().any(|(i, _)| *i == id) {
            result.push((id, value));
        }
    }
    // In-place resize, once the kubelet has said what the container has (determineEffectiveRequests).
    if let Some((status, actual)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) {
        let held = held(
            names,
            actual.requests.as_ref(),
            status.allocated_resources.as_ref(),
            &format!("status.{list}[{}]", c.name),
        )?;
        if infeasible_resize {
            return Ok(held);
        }
        for (id, value) in held {
            raise(&mut result, id, value);
        }
    }
    Ok(result)
}

/// Requests of a pod, its place on the node included; zeroes left out, sorted.
pub(crate) fn of_pod(names: &mut ResourceNames, pod: &Pod) -> Result<Box<[(ResourceId, i64)]>, Problem> {
    let Some(spec) = &pod.spec else { return Ok(Box::new([(ResourceId::PODS, 1)])) };
    let status = pod.status.as_ref();
    let infeasible = status.and_then(|s| s.conditions.as_ref()).is_some_and(|conditions| {
        conditions.iter().any(|c| c.type_ == "PodResizePending" && c.reason.as_deref() == Some("Infeasible"))
    });
    total(names, spec, status, infeasible)
}

fn total(
    names: &mut ResourceNames,
    spec: &PodSpec,
    status: Option<&PodStatus>,
    infeasible: bool,
) -> Result<Box<[(ResourceId, i64)]>, Problem> {
    let statuses = status.and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
    let init_statuses = status.and_then(|s| s.init_container_statuses.as_deref()).unwrap_or_default();
    let mut sum = Amounts::new();
    for c in &spec.containers {
        let status = statuses.iter().find(|s| s.name == c.name);
        for (id, value) in container(names, c, status, infeasible, "containers")? {
            add(&mut sum, id, value);
        }
    }
    let (mut sidecars, mut init_peak) = (Amounts::new(), Amounts::new());
    for c in spec.init_containers.iter().flatten() {
        let restarts = c.restart_policy.as_deref() == Some("Always");
        let status = init_statuses.iter().find(|s| restarts && s.name == c.name);
        let mut own = container(names, c, status, infeasible, "initContainers")?;
        if restarts {
            for (id, value) in own {
                add(&mut sum, id, value);
                add(&mut sidecars, id, value);
            }
            own = sidecars.clone();
        } else {
            for (id, value) in &sidecars {
                add(&mut own, *id, *value);
            }
        }
        for (id, value) in own {
            raise(&mut init_peak, id, value);
        }
    }
    for (id, value) in init_peak {
        raise(&mut sum, id, value);
    }
    let pod_level = spec.resources.as_ref();
    let requests = pod_level.and_then(|r| r.requests.as_ref());
    let mut level = read(names, requests, || "spec.resources.requests".to_owned())?;
    let limits = pod_level.and_then(|r| r.limits.as_ref());
    for (id, value) in read(names, limits, || "spec.resources.limits".to_owned())? {
        // The API server defaults pod-level requests from pod-level limits only where the containers ask for nothing.
        if !level.iter().any(|(i, _)| *i == id) && amount(&sum, id) == 0 {
            level.push((id, value));
        }
    }
    if let Some((status, actual)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) {
        let held = held(names, actual.requests.as_ref(), status.allocated_resources.as_ref(), "status")?;
        for (id, value) in &mut level {
            let least = if infeasible { 0 } else { *value };
            *value = least.max(amount(&held, *id));
        }
    }
    for (id, value) in level {
        let name = names.name(id);
        if name == CPU || name == MEMORY || name.starts_with(HUGE_PAGES) {
            sum.retain(|(i, _)| *i != id);
            sum.push((id, value));
        }
    }
    for (id, value) in read(names, spec.overhead.as_ref(), || "spec.overhead".to_owned())? {
        add(&mut sum, id, value);
    }
    sum.retain(|(id, value)| *value != 0 && *id != ResourceId::PODS);
    sum.push((ResourceId::PODS, 1));
    sum.sort_unstable();
    Ok(sum.to_vec().into())
}

/// Amounts of a public map.
pub(crate) fn from_resources(
    names: &mut ResourceNames,
    resources: &crate::Resources,
) -> Box<[(ResourceId, i64)]> {
    let mut list: Vec<_> = resources.iter().map(|(name, value)| (names.id(name), value)).collect();
    list.sort_unstable();
    list.into()
}

/// A host port that a pod takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Port {
    pub(crate) protocol: Sym,
    pub(crate) port: i32,
    /// `None`: every address.
    pub(crate) address: Option<Sym>,
}

impl Port {
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.port == other.port
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}
