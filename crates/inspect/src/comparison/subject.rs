//! What is compared: the nodes by group, and their pods as their controllers would create them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_api::{
    TenantPool,
    convert::scheduler::{pool_name_label, value},
    pool::{DEFAULT_KEY, Provisioner},
};
use croft_manifest::{Input, Objects, Origin};
use croft_policy::definitions::MIRROR_ANNOTATION;
use croft_scheduler::{InstanceType, PodKey};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod, PodSpec},
};
use kube::ResourceExt as _;

use super::{
    derived::{self, DECLARED, DERIVED, GROUP, ORIGIN},
    launcher::{Launcher, LeftOut, group, left_out},
    model::Uncounted,
};
use crate::{
    admission::{Admission, Outcome, Verdict, unbound},
    inventory::{NodeInfo, active_pods, described, node_of},
    node_index::{NodeIndex, OfferingIndex},
    workload::{WorkloadKind, controller, workloads},
};

/// A node that is compared.
pub(super) struct ComparedNode<'i> {
    node: &'i Node,
    pub(super) info: NodeInfo,
    pub(super) launcher: Launcher,
    /// The TenantPool whose label it carries.
    pool: Option<&'i TenantPool>,
    /// The name of that pool, or the title of its group.
    pub(super) place: String,
}

impl ComparedNode<'_> {
    /// True for a node of a pool that Croft doesn't provision: it stays, whatever is planned.
    pub(super) fn stays(&self) -> bool {
        self.pool.is_some_and(|pool| pool.spec.provisioner != Provisioner::Croft)
    }
}

/// A pod that is planned again.
pub(super) struct ComparedPod {
    /// The place of its node; `None` for a pending pod.
    pub(super) from: Option<String>,
    /// The Tenant of its namespace.
    pub(super) tenant: Option<String>,
    /// The only pool that may have it, if there is only one.
    pub(super) pool: Option<String>,
}

/// A pod that admission would refuse.
pub(super) struct RefusedPod {
    pub(super) key: PodKey,
    pub(super) from: Option<String>,
    pub(super) why: String,
}

/// Nodes and pods that are compared, and the input of the plan.
pub(super) struct Subject<'i> {
    pub(super) nodes: BTreeMap<String, ComparedNode<'i>>,
    /// The pods on each compared node, without those of DaemonSets.
    pub(super) running: BTreeMap<String, usize>,
    /// Those of them that stay there.
    pub(super) kept: BTreeMap<String, usize>,
    pub(super) pods: BTreeMap<PodKey, ComparedPod>,
    pub(super) refused: Vec<RefusedPod>,
    pub(super) uncounted: Uncounted,
    /// Pools that no TenantPool declares, one for each group of nodes.
    pub(super) derived: Vec<TenantPool>,
    pub(super) planned: Input,
    pub(super) warnings: Vec<String>,
}

impl<'i> Subject<'i> {
    /// Sorts the objects of `input`, whose tenancy `admission` knows.
    pub(super) fn new(input: &'i Input, types: &Arc<[InstanceType]>, admission: &Admission) -> Self {
        let offerings = OfferingIndex::new(types);
        let (nodes, left) = nodes(input, &offerings);
        let mut subject = Self {
            derived: derived_pools(&nodes, &offerings),
            nodes,
            running: BTreeMap::new(),
            kept: BTreeMap::new(),
            pods: BTreeMap::new(),
            refused: Vec::new(),
            uncounted: Uncounted { missing_pods: missing_pods(input), ..Uncounted::default() },
            planned: input.clone(),
            warnings: Vec::new(),
        };
        for why in left.values() {
            *subject.uncounted.nodes.entry(*why).or_default() += 1;
        }
        subject.planned.pods = Objects::default();
        for pod in active_pods(input) {
            subject.pod(pod, input, admission, &left);
        }
        subject.plan_nodes();
        subject.plan_pools();
        subject.plan_daemon_sets(input, admission);
        subject
    }

    /// Puts a pod into the plan, or counts why it isn't there.
    fn pod(&mut self, pod: &Pod, input: &Input, admission: &Admission, left: &BTreeMap<String, LeftOut>) {
        let name = node_of(pod);
        let here = name.and_then(|name| self.nodes.get(name));
        if let (Some(name), None) = (name, here) {
            let is_left = left.contains_key(name);
            let uncounted = &mut self.uncounted;
            let count = if is_left { &mut uncounted.pods_on_them } else { &mut uncounted.pods_elsewhere };
            *count = count.saturating_add(1);
            return;
        }
        if pod.annotations().contains_key(MIRROR_ANNOTATION) {
            self.uncounted.static_pods = self.uncounted.static_pods.saturating_add(1);
            return;
        }
        let namespace = pod.namespace().unwrap_or_default();
        let stays = here.is_some_and(ComparedNode::stays);
        if let Some(owner) = controller(&pod.metadata).filter(|owner| owner.kind == "DaemonSet") {
            if stays {
                self.planned.pods.put(pod.clone(), origin());
            } else if input.daemon_sets.get(&namespace, &owner.name).is_none() {
                let count = &mut self.uncounted.pods_of_unknown_daemon_sets;
                *count = count.saturating_add(1);
            }
            return;
        }
        if let Some(name) = name {
            *self.running.entry(name.to_owned()).or_default() += 1;
        }
        let from = here.map(|node| node.place.clone());
        let key = PodKey::new(&namespace, &pod.name_any());
        // Croft's admission pinned pods of its pools' nodes alone: what others select, their templates say.
        let again = if here.is_some_and(|node| node.pool.is_some()) {
            admission.recreated(pod)
        } else {
            unbound(pod)
        };
        let Verdict { outcome, tenant, pool, is_kept_out: _, warnings: _, patch: _ } = admission.pod(&again);
        let admitted = match outcome {
            Outcome::Denied(why) => {
                self.refused.push(RefusedPod { key, from, why });
                return;
            }
            Outcome::Changed(changed) => *changed,
            Outcome::Unchanged => again.clone(),
        };
        if stays && pool.as_ref().is_none_or(|pool| Some(pool) == from.as_ref()) {
            self.planned.pods.put(pod.clone(), origin());
            *self.kept.entry(name.unwrap_or_default().to_owned()).or_default() += 1;
            return;
        }
        let of_declared = here.is_some_and(|node| node.pool.is_some()) || selects_pool(&admitted, input);
        let is_declared = pool.is_some() || of_declared || self.derived.is_empty();
        let (planned, pool) = match (is_declared, &from) {
            (true, _) => (admitted, pool),
            (false, Some(title)) => (selecting(again, GROUP, title), from.clone()),
            (false, None) => (selecting(again, ORIGIN, DERIVED), None),
        };
        self.planned.pods.put(planned, origin());
        self.pods.insert(key, ComparedPod { from, tenant, pool });
    }

    /// Leaves only the nodes that stay.
    fn plan_nodes(&mut self) {
        let staying: BTreeSet<&String> =
            self.nodes.iter().filter(|(_, node)| node.stays()).map(|(name, _)| name).collect();
        self.planned.claims = Objects::default();
        self.planned.nodes.retain(|node| staying.contains(&node.name_any()));
        self.planned.csi_nodes.retain(|node| staying.contains(&node.name_any()));
    }

    /// Adds the derived pools to the declared ones. Nodes say by a label of which of them they are.
    fn plan_pools(&mut self) {
        let mark = |labels: &mut BTreeMap<String, String>| {
            labels.insert(ORIGIN.to_owned(), DECLARED.to_owned());
        };
        self.planned.pools.for_each_mut(|pool| {
            pool.spec.template.iter_mut().for_each(|template| mark(&mut template.metadata.labels));
            pool.spec.templates.iter_mut().for_each(|template| mark(&mut template.metadata.labels));
        });
        if self.derived.is_empty() {
            return;
        }
        for pool in &self.derived {
            self.planned.pools.put(pool.clone(), origin());
        }
        // They are of Croft's nodes, and most of these wouldn't be.
        let has_limits = self.planned.configs.iter().any(|config| !config.spec.limits.is_empty());
        if has_limits {
            self.planned.configs.for_each_mut(|config| config.spec.limits.clear());
            self.warnings.push(
                "the limits of the CroftConfig aren't counted: groups without a TenantPool are planned as well"
                    .to_owned(),
            );
        }
    }

    /// The DaemonSets as admission leaves them for nodes of TenantPools, and as they are for nodes of derived pools.
    fn plan_daemon_sets(&mut self, input: &Input, admission: &Admission) {
        self.planned.daemon_sets = Objects::default();
        for stored in input.daemon_sets.iter().filter(|set| set.metadata.deletion_timestamp.is_none()) {
            let set = &stored.object;
            let is_tenants = admission.daemon_set(set).tenant.is_some();
            let declared =
                (!input.pools.is_empty()).then(|| (DECLARED, admission.create_pods_of(set, input)));
            let derived = (!self.derived.is_empty() && !is_tenants)
                .then(|| (DERIVED, admission.with_plugins(set.clone(), input)));
            for (of, created) in declared.into_iter().chain(derived) {
                match created {
                    Ok(set) => {
                        self.planned.daemon_sets.put(on_pools(set, of), stored.origin.clone());
                    }
                    Err(why) => self.warnings.push(format!(
                        "DaemonSet {}/{} creates no pods: {why}",
                        set.namespace().unwrap_or_default(),
                        set.name_any()
                    )),
                }
            }
        }
    }
}

/// The nodes that are compared, and why the others aren't, by name.
fn nodes<'i>(
    input: &'i Input,
    offerings: &OfferingIndex<'_>,
) -> (BTreeMap<String, ComparedNode<'i>>, BTreeMap<String, LeftOut>) {
    let index = NodeIndex::new(input);
    let (mut compared, mut left) = (BTreeMap::new(), BTreeMap::new());
    for node in input.nodes.iter().map(|node| &node.object) {
        if let Some(why) = left_out(node) {
            left.insert(node.name_any(), why);
            continue;
        }
        let info = described(node, &index, offerings);
        let pool = index.pool_of(node);
        let (by_label, title) = group(node);
        // A file without NodeClaims has nodes of Croft's pools alone.
        let is_croft = info.claim.is_some()
            || (by_label == Launcher::Unknown
                && pool.is_some_and(|pool| pool.spec.provisioner == Provisioner::Croft));
        let launcher = if is_croft { Launcher::Croft } else { by_label };
        let place = pool.map_or(title, |pool| pool.name_any());
        compared.insert(node.name_any(), ComparedNode { node, info, launcher, pool, place });
    }
    (compared, left)
}

/// A pool for each group of nodes that are of no TenantPool.
fn derived_pools(
    nodes: &BTreeMap<String, ComparedNode<'_>>,
    offerings: &OfferingIndex<'_>,
) -> Vec<TenantPool> {
    let mut groups: BTreeMap<&str, Vec<(&Node, &NodeInfo)>> = BTreeMap::new();
    for one in nodes.values().filter(|one| one.pool.is_none()) {
        groups.entry(&one.place).or_default().push((one.node, &one.info));
    }
    groups.into_iter().map(|(title, nodes)| derived::pool(title, &nodes, offerings)).collect()
}

/// Pods that are wanted and not there. A CronJob's are wanted from time to time only.
fn missing_pods(input: &Input) -> usize {
    let all = workloads(input);
    let lasting = all.iter().filter(|workload| workload.kind != WorkloadKind::CronJob);
    lasting.map(|workload| workload.missing).sum()
}

/// True if the pod selects the label of a TenantPool.
fn selects_pool(pod: &Pod, input: &Input) -> bool {
    let Some(selector) = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()) else { return false };
    let selects = |key: &str, value: &String| selector.get(key) == Some(value);
    input
        .pools
        .iter()
        .any(|pool| selects(&pool.spec.key, &value(pool)) || selects(DEFAULT_KEY, &pool_name_label(pool)))
}

fn selecting(mut pod: Pod, key: &str, value: &str) -> Pod {
    select(pod.spec.get_or_insert_default(), key, value);
    pod
}

fn select(spec: &mut PodSpec, key: &str, value: &str) {
    spec.node_selector.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

/// The DaemonSet on nodes of one kind of pools alone.
fn on_pools(mut set: DaemonSet, of: &str) -> DaemonSet {
    set.metadata.name = Some(format!("{} ({of})", set.name_any()));
    if let Some(spec) = &mut set.spec {
        select(spec.template.spec.get_or_insert_default(), ORIGIN, of);
    }
    set
}

/// Nothing of a file.
fn origin() -> Origin {
    Origin { file: "planned".into(), line: 0 }
}
