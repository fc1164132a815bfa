//! The needs of a pod on a node, compiled. Pods of one controller share one shape.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};

use crate::{
    ids::ids,
    model::error::InputError,
    state::{
        claim::{Claim, Ephemeral},
        interner::{Interner, NamespacedName, Sym, Symbols},
        node_requirement::{Expr, NodeReq, Term},
        requests::{self, Port, Problem, ResourceId, ResourceNames},
        selector::{self, Ident, Namespaces, OneSelector, Selector},
        taint::Toleration,
    },
};

ids! {
    /// An interned [`NodeReq`].
    NodeReqId
    /// An interned set of tolerations.
    TolerationsId
    /// An interned [`Selector`].
    SelectorId
    /// An interned [`Filter`].
    FilterId
    /// An interned [`Ident`].
    IdentId
    /// An interned [`Shape`].
    ShapeId
}

/// Which nodes count for a topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// All of them must hold.
    pub(crate) reqs: Box<[NodeReqId]>,
    /// Whose hard taints must be tolerated; `None`: taints don't matter.
    pub(crate) tolerations: Option<TolerationsId>,
    /// Labels that must be there.
    pub(crate) keys: Box<[Sym]>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spread {
    pub(crate) key: Sym,
    pub(crate) selector: SelectorId,
    pub(crate) filter: FilterId,
    pub(crate) max_skew: i32,
    pub(crate) min_domains: i32,
    /// DoNotSchedule.
    pub(crate) hard: bool,
}

/// The required pod affinity of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodAffinity {
    /// Pods that match all terms.
    pub(crate) selector: SelectorId,
    /// The topologies of the terms, sorted.
    pub(crate) keys: Box<[Sym]>,
}

/// A required pod anti-affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodAntiAffinity {
    pub(crate) selector: SelectorId,
    pub(crate) key: Sym,
}

/// A preferred pod affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodPreference {
    pub(crate) weight: i32,
    pub(crate) selector: SelectorId,
    pub(crate) key: Sym,
    pub(crate) anti: bool,
}

/// The PersistentVolumeClaims of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimNames {
    /// That of the pod.
    pub(crate) namespace: Sym,
    /// Sorted.
    pub(crate) names: Box<[Sym]>,
}

impl ClaimNames {
    /// One claim after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NamespacedName> {
        self.names.iter().map(|name| NamespacedName { namespace: self.namespace, name: *name })
    }
}

/// The needs of a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Sorted, without zeroes.
    pub(crate) requests: Box<[(ResourceId, i64)]>,
    /// All of them must hold.
    pub(crate) reqs: Box<[NodeReqId]>,
    pub(crate) tolerations: TolerationsId,
    pub(crate) ports: Box<[Port]>,
    pub(crate) spreads: Box<[Spread]>,
    /// Required pod affinity, all terms together.
    pub(crate) affinity: Option<PodAffinity>,
    /// Required pod anti-affinity, term by term.
    pub(crate) anti_affinity: Box<[PodAntiAffinity]>,
    pub(crate) preferred_nodes: Box<[(i32, Term)]>,
    pub(crate) preferred_pods: Box<[PodPreference]>,
    pub(crate) claims: Option<ClaimNames>,
    /// The ones among `claims` that the ephemeral volume controller creates.
    pub(crate) ephemeral: Box<[Ephemeral]>,
    /// Has resource claims.
    pub(crate) devices: bool,
}

/// Everything that shapes refer to by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) symbols: Symbols,
    pub(crate) resources: ResourceNames,
    pub(crate) reqs: Interner<NodeReqId, NodeReq>,
    pub(crate) tolerations: Interner<TolerationsId, [Toleration]>,
    pub(crate) selectors: Interner<SelectorId, Selector>,
    pub(crate) filters: Interner<FilterId, Filter>,
    pub(crate) idents: Interner<IdentId, Ident>,
    pub(crate) shapes: Interner<ShapeId, Shape>,
}

impl Tables {
    pub(crate) fn req(&mut self, req: NodeReq) -> NodeReqId {
        match self.reqs.find(&req) {
            Some(id) => id,
            None => self.reqs.id(Arc::new(req)),
        }
    }

    fn selector(&mut self, mut parts: Vec<OneSelector>, live_only: bool) -> SelectorId {
        parts.dedup();
        let selector = Selector { parts: parts.into(), live_only };
        match self.selectors.find(&selector) {
            Some(id) => id,
            None => self.selectors.id(Arc::new(selector)),
        }
    }

    fn filter(&mut self, filter: Filter) -> FilterId {
        match self.filters.find(&filter) {
            Some(id) => id,
            None => self.filters.id(Arc::new(filter)),
        }
    }
}

fn in_field<T>(field: &str, result: Result<T, String>) -> Result<T, Problem> {
    result.map_err(|problem| Problem { field: field.to_owned(), problem })
}

/// Reads the needs of a pod, and interns them.
pub(crate) fn compile(tables: &mut Tables, pod: &Pod) -> Result<ShapeId, InputError> {
    read(tables, pod).map_err(|Problem { field, problem }| InputError {
        kind: "Pod",
        name: format!(
            "{}/{}",
            pod.metadata.namespace.as_deref().unwrap_or("default"),
            pod.metadata.name.as_deref().unwrap_or("?")
        ),
        field,
        problem,
    })
}

/// The fields of `pod` that selectors read.
pub(crate) fn ident(tables: &mut Tables, pod: &Pod) -> IdentId {
    let namespace = tables.symbols.sym(pod.metadata.namespace.as_deref().unwrap_or("default"));
    let labels = crate::state::interner::labels(&mut tables.symbols, pod.metadata.labels.iter().flatten());
    let ident = Ident { namespace, labels, terminating: pod.metadata.deletion_timestamp.is_some() };
    match tables.idents.find(&ident) {
        Some(id) => id,
        None => tables.idents.id(Arc::new(ident)),
    }
}

fn read(tables: &mut Tables, pod: &Pod) -> Result<ShapeId, Problem> {
    let requests = requests::of_pod(&mut tables.resources, pod)?;
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let no_labels = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
    let namespace = tables.symbols.sym(pod.metadata.namespace.as_deref().unwrap_or("default"));

    let mut reqs = Vec::new();
    if let Some(selector) = spec.node_selector.as_ref().filter(|s| !s.is_empty()) {
        let exprs = selector.iter().map(|(k, v)| {
            let key = tables.symbols.sym(k);
            Expr::is(key, tables.symbols.sym(v))
        });
        let req = NodeReq::all_of(exprs.collect());
        reqs.push(tables.req(req));
    }
    let node_affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    if let Some(required) =
        node_affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())
    {
        let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        let req = in_field(field, NodeReq::from_api(&mut tables.symbols, required))?;
        reqs.push(tables.req(req));
    }
    let mut preferred_nodes = Vec::new();
    for p in node_affinity
        .and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .flatten()
    {
        let field = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        preferred_nodes
            .push((p.weight, in_field(field, Term::from_api(&mut tables.symbols, &p.preference))?));
    }
    preferred_nodes.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));

    let mut tolerations = Vec::new();
    for t in spec.tolerations.iter().flatten() {
        tolerations.extend(in_field("spec.tolerations", Toleration::from_api(&mut tables.symbols, t))?);
    }
    tolerations.sort_unstable();
    tolerations.dedup();
    let tolerations = match tables.tolerations.find(&tolerations) {
        Some(id) => id,
        None => tables.tolerations.id(tolerations),
    };

    let spreads = read_spreads(tables, spec, labels, namespace, &reqs, tolerations)?;
    let (claims, ephemeral) = read_claims(tables, pod, spec, namespace)?;
    let mut shape = Shape {
        requests,
        reqs: reqs.into(),
        tolerations,
        ports: read_ports(tables, spec).into(),
        spreads: spreads.into(),
        preferred_nodes: preferred_nodes.into(),
        claims,
        ephemeral,
        devices: spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()),
        affinity: None,
        anti_affinity: Box::default(),
        preferred_pods: Box::default(),
    };
    read_pod_terms(tables, spec, labels, namespace, &mut shape)?;
    Ok(match tables.shapes.find(&shape) {
        Some(id) => id,
        None => tables.shapes.id(Arc::new(shape)),
    })
}

fn read_spreads(
    tables: &mut Tables,
    spec: &PodSpec,
    labels: &BTreeMap<String, String>,
    namespace: Sym,
    reqs: &[NodeReqId],
    tolerations: TolerationsId,
) -> Result<Vec<Spread>, Problem> {
    let field = "spec.topologySpreadConstraints";
    let refuse = |problem| Problem { field: field.to_owned(), problem };
    let list = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    let hard = |c: &TopologySpreadConstraint| c.when_unsatisfiable != "ScheduleAnyway";
    // kube-scheduler counts only nodes that have every key of the pod's constraints of the same kind.
    let mut keys: Vec<_> =
        list.iter().filter(|c| hard(c)).map(|c| tables.symbols.sym(&c.topology_key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut result = Vec::new();
    for c in list {
        if !matches!(c.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
            let problem = format!(
                "unknown whenUnsatisfiable {:?}: write DoNotSchedule or ScheduleAnyway",
                c.when_unsatisfiable
            );
            return Err(refuse(problem));
        }
        if c.max_skew < 1 {
            return Err(refuse(format!("maxSkew {} must be 1 or more", c.max_skew)));
        }
        if c.min_domains.is_some_and(|d| d < 1) {
            return Err(refuse("minDomains must be 1 or more".to_owned()));
        }
        let honor = |policy: &Option<String>, default: bool| match policy.as_deref() {
            None | Some("") => Ok(default),
            Some("Honor") => Ok(true),
            Some("Ignore") => Ok(false),
            Some(other) => Err(refuse(format!("unknown node policy {other:?}: write Honor or Ignore"))),
        };
        let by_affinity = honor(&c.node_affinity_policy, true)?;
        let by_taints = honor(&c.node_taints_policy, false)?;
        let match_keys = c.match_label_keys.as_deref().unwrap_or_default();
        let exprs = in_field(
            field,
            selector::exprs(&mut tables.symbols, c.label_selector.as_ref(), match_keys, &[], labels),
        )?;
        let part = OneSelector { namespaces: Namespaces::Named(Box::new([namespace])), exprs };
        let key = tables.symbols.sym(&c.topology_key);
        let filter = Filter {
            reqs: if by_affinity { reqs.into() } else { Box::default() },
            tolerations: by_taints.then_some(tolerations),
            keys: if hard(c) { keys.clone().into() } else { Box::new([key]) },
        };
        result.push(Spread {
            key,
            selector: tables.selector(vec![part], true),
            filter: tables.filter(filter),
            max_skew: c.max_skew,
            min_domains: c.min_domains.unwrap_or(1),
            hard: hard(c),
        });
    }
    Ok(result)
}

fn read_ports(tables: &mut Tables, spec: &PodSpec) -> Vec<Port> {
    let mut ports = Vec::new();
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    for p in spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten()) {
        let host_network = spec.host_network == Some(true);
        let port = p.host_port.filter(|port| *port > 0).or(host_network.then_some(p.container_port));
        if let Some(port) = port.filter(|port| *port > 0) {
            let address = p.host_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "0.0.0.0");
            ports.push(Port {
                protocol: tables.symbols.sym(p.protocol.as_deref().unwrap_or("TCP")),
                port,
                address: address.map(|ip| tables.symbols.sym(ip)),
            });
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// All claims, and the templates of those that a controller creates.
type Claims = (Option<ClaimNames>, Box<[Ephemeral]>);

/// A generic ephemeral volume uses the claim `<pod>-<volume>`, if the pod controls that
/// (`k8s.io/component-helpers/storage/ephemeral`).
fn read_claims(tables: &mut Tables, pod: &Pod, spec: &PodSpec, namespace: Sym) -> Result<Claims, Problem> {
    let symbols = &mut tables.symbols;
    let (mut names, mut ephemeral) = (Vec::new(), Vec::new());
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            names.push(symbols.sym(&claim.claim_name));
        } else if let Some(source) = &volume.ephemeral {
            let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
            let name = symbols.sym(&format!("{pod_name}-{}", volume.name));
            let template = source.volume_claim_template.as_ref();
            let field = "spec.volumes.ephemeral.volumeClaimTemplate.spec.resources.requests.storage";
            let claim = in_field(field, Claim::read(symbols, template.map(|t| &t.spec)))?;
            let owner = pod.metadata.uid.as_deref().map(|uid| symbols.sym(uid));
            let template = Claim { owner, is_new: owner.is_none(), ..claim };
            ephemeral.push(Ephemeral { name, template });
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    ephemeral.sort_unstable_by_key(|volume| volume.name);
    Ok(((!names.is_empty()).then(|| ClaimNames { namespace, names: names.into() }), ephemeral.into()))
}

fn read_pod_terms(
    tables: &mut Tables,
    spec: &PodSpec,
    labels: &BTreeMap<String, String>,
    namespace: Sym,
    shape: &mut Shape,
) -> Result<(), Problem> {
    let Some(affinity) = &spec.affinity else { return Ok(()) };
    let mut preferred = Vec::new();
    if let Some(pods) = &affinity.pod_affinity {
        let field = "spec.affinity.podAffinity";
        let required =
            pods.required_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default();
        let (mut parts, mut keys) = (Vec::new(), Vec::new());
        for term in required {
            parts.push(in_field(field, pod_term(tables, term, labels, namespace))?);
            keys.push(tables.symbols.sym(&term.topology_key));
        }
        if !required.is_empty() {
            keys.sort_unstable();
            keys.dedup();
            let selector = tables.selector(parts, false);
            shape.affinity = Some(PodAffinity { selector, keys: keys.into() });
        }
        for p in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            let part = in_field(field, pod_term(tables, &p.pod_affinity_term, labels, namespace))?;
            let key = tables.symbols.sym(&p.pod_affinity_term.topology_key);
            let selector = tables.selector(vec![part], false);
            preferred.push(PodPreference { weight: p.weight, selector, key, anti: false });
        }
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        let field = "spec.affinity.podAntiAffinity";
        let mut anti = Vec::new();
        for term in pods.required_during_scheduling_ignored_during_execution.iter().flatten() {
            let part = in_field(field, pod_term(tables, term, labels, namespace))?;
            let key = tables.symbols.sym(&term.topology_key);
            anti.push(PodAntiAffinity { selector: tables.selector(vec![part], false), key });
        }
        anti.sort_unstable();
        anti.dedup();
        shape.anti_affinity = anti.into();
        for p in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            let part = in_field(field, pod_term(tables, &p.pod_affinity_term, labels, namespace))?;
            let key = tables.symbols.sym(&p.pod_affinity_term.topology_key);
            let selector = tables.selector(vec![part], false);
            preferred.push(PodPreference { weight: p.weight, selector, key, anti: true });
        }
    }
    preferred.sort_by_key(|p| std::cmp::Reverse(p.weight));
    shape.preferred_pods = preferred.into();
    Ok(())
}

fn pod_term(
    tables: &mut Tables,
    term: &PodAffinityTerm,
    labels: &BTreeMap<String, String>,
    namespace: Sym,
) -> Result<OneSelector, String> {
    let exprs = selector::exprs(
        &mut tables.symbols,
        term.label_selector.as_ref(),
        term.match_label_keys.as_deref().unwrap_or_default(),
        term.mismatch_label_keys.as_deref().unwrap_or_default(),
        labels,
    )?;
    let mut names: Vec<_> = term.namespaces.iter().flatten().map(|n| tables.symbols.sym(n)).collect();
    names.sort_unstable();
    names.dedup();
    let namespaces = match &term.namespace_selector {
        Some(s) => {
            let exprs = selector::exprs(&mut tables.symbols, Some(s), &[], &[], &BTreeMap::new())?;
            Namespaces::Labelled(names.into(), exprs.unwrap_or_default())
        }
        None if names.is_empty() => Namespaces::Named(Box::new([namespace])),
        None => Namespaces::Named(names.into()),
    };
    Ok(OneSelector { namespaces, exprs })
}
