//! The incremental state of existing objects and demand.
//!
//! Upserts intern Kubernetes objects at once and keep nothing else of them; [`solve`](crate::solve) then costs what
//! is pending, not what exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Pod, Toleration},
};
use rustc_hash::FxHashMap;

use crate::{
    ids::{NodeIx, PodIx},
    index_vec::IndexVec,
    model::{
        error::InputError,
        plan::PodKey,
        pool::{Pool, TenantLimits},
        quantity::Quantity,
        resources::{self, Resources},
    },
    state::{
        catalog_index::{CatalogIndex, Keys},
        interner::{self, NamespacedName, Sym},
        node::NodeSlot,
        pod::{PodRec, QueueRank},
        pod_shape::{self, IdentId, PodAntiAffinity, ShapeId, Tables},
        pool::PoolRec,
        requests::{Problem, ResourceId, amount},
        selector::NamespaceLabels,
        volume::Volumes,
    },
};

/// A DaemonSet's requests on nodes.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    pub(crate) shape: ShapeId,
}

/// The incremental state that [`solve`](crate::solve) reads.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) tables: Tables,
    pub(crate) keys: Keys,
    /// By name; a pool of several templates has an entry for each.
    pub(crate) pools: BTreeMap<String, Vec<PoolRec>>,
    pub(crate) tenants: BTreeMap<String, TenantLimits>,
    /// The limits of the nodes of all pools.
    pub(crate) limits: BTreeMap<String, Quantity>,
    pub(crate) namespaces: NamespaceLabels,
    pub(crate) daemons: BTreeMap<NamespacedName, Daemon>,
    pub(crate) volumes: Volumes,

    pub(crate) pods: IndexVec<PodIx, Option<PodRec>>,
    pub(crate) pod_numbers: FxHashMap<Arc<PodKey>, PodIx>,
    pub(super) free_pods: Vec<PodIx>,
    pub(super) arrivals: u64,
    /// Pods to place, in the order of kube-scheduler's queue.
    pub(crate) demand: BTreeMap<QueueRank, PodIx>,
    /// CPU and memory of a pod that requests none, where an instance is launched for it.
    pub(crate) without_requests: [(ResourceId, i64); 2],
    /// Schedulers whose pending pods are no demand.
    pub(super) ignored_schedulers: BTreeSet<Box<str>>,

    pub(crate) nodes: IndexVec<NodeIx, NodeSlot>,
    pub(super) node_numbers: FxHashMap<(bool, Sym), NodeIx>,
    pub(super) free_nodes: Vec<NodeIx>,
    /// Entries of the tables after the last reuse of ids.
    pub(super) tidied: usize,
    /// Nodes and coming nodes by label.
    pub(crate) by_label: FxHashMap<(Sym, Sym), BTreeSet<NodeIx>>,
    /// Running pods by identity (what selectors read of them) and node.
    pub(crate) ident_nodes: FxHashMap<IdentId, FxHashMap<NodeIx, u32>>,
    pub(crate) idents_of: FxHashMap<Sym, BTreeSet<IdentId>>,
    /// Running pods with required anti-affinity, by term and node.
    pub(crate) holders: FxHashMap<PodAntiAffinity, FxHashMap<NodeIx, u32>>,
}

impl Default for Cluster {
    fn default() -> Self {
        let mut tables = Tables::default();
        let keys = Keys::new(&mut tables.symbols);
        Self {
            tables,
            keys,
            pools: BTreeMap::new(),
            tenants: BTreeMap::new(),
            limits: BTreeMap::new(),
            namespaces: NamespaceLabels::default(),
            daemons: BTreeMap::new(),
            volumes: Volumes::default(),
            pods: IndexVec::new(),
            pod_numbers: FxHashMap::default(),
            free_pods: Vec::new(),
            arrivals: 0,
            demand: BTreeMap::new(),
            without_requests: [(ResourceId::CPU, 100), (ResourceId::MEMORY, 200 << 20)],
            ignored_schedulers: BTreeSet::new(),
            nodes: IndexVec::new(),
            node_numbers: FxHashMap::default(),
            free_nodes: Vec::new(),
            tidied: 0,
            by_label: FxHashMap::default(),
            ident_nodes: FxHashMap::default(),
            idents_of: FxHashMap::default(),
            holders: FxHashMap::default(),
        }
    }
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a pool with only one kind of node.
    ///
    /// # Errors
    /// As [`Cluster::upsert_templates`].
    pub fn upsert_pool(&mut self, pool: Pool) -> Result<(), InputError> {
        self.upsert_templates(vec![pool])
    }

    /// Adds or replaces a pool: its templates, which share name, key and value.
    ///
    /// # Errors
    /// A requirement or a taint that can't be parsed, or a label that another pool has already; the pool's last good state
    /// stays.
    pub fn upsert_templates(&mut self, templates: Vec<Pool>) -> Result<(), InputError> {
        self.tidy();
        let Some(name) = templates.first().map(|first| first.name.clone()) else { return Ok(()) };
        let mut recs = templates
            .into_iter()
            .map(|template| self.compile(template))
            .collect::<Result<Vec<PoolRec>, InputError>>()?;
        let siblings = recs.iter().filter_map(|rec| rec.template).collect();
        if let Some(first) = recs.first_mut() {
            first.siblings = siblings;
        }
        self.pools.insert(name, recs);
        Ok(())
    }

    fn compile(&mut self, pool: Pool) -> Result<PoolRec, InputError> {
        let name = pool.name.clone();
        let error = |field: String, problem: String| InputError {
            kind: "TenantPool",
            name: name.clone(),
            field,
            problem,
        };
        let twin = self.templates().find(|other| {
            other.pool.name != pool.name && other.pool.key == pool.key && other.pool.value == pool.value
        });
        if let Some(twin) = twin {
            let problem = format!(
                "{}={} is the label of pool {} already: two pools can't share key and value",
                pool.key, pool.value, twin.pool.name
            );
            return Err(error("spec.value".to_owned(), problem));
        }
        for (resource, limit) in pool.limits.iter().chain(&pool.template_limits) {
            if limit.is_negative() {
                let problem = format!("{limit} is negative: write 0 or more");
                return Err(error(format!("spec.limits.{resource}"), problem));
            }
        }
        let catalog = self.catalog(&pool);
        let template = pool.template.clone();
        let place = move |field: String| match field.strip_prefix("spec.template.") {
            Some(rest) if !template.is_empty() => format!("spec.templates[{template}].{rest}"),
            _ => field,
        };
        PoolRec::new(&mut self.tables, &self.keys, pool, catalog)
            .map_err(|Problem { field, problem }| error(place(field), problem))
    }

    /// The templates of all pools.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &PoolRec> {
        self.pools.values().flatten()
    }

    /// The index of the pool's catalogue, shared with other pools that have the same.
    fn catalog(&mut self, pool: &Pool) -> Arc<CatalogIndex> {
        let types = &pool.instance_types;
        let known = self.templates().find(|rec| {
            Arc::ptr_eq(&rec.catalog.source, types)
                || (rec.catalog.source.len() == types.len() && rec.catalog.source == *types)
        });
        match known {
            Some(rec) => Arc::clone(&rec.catalog),
            None => Arc::new(CatalogIndex::new(&mut self.tables, &self.keys, types)),
        }
    }

    /// Removes a pool.
    pub fn remove_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// Adds or replaces the limits of a tenant.
    pub fn upsert_tenant_limits(&mut self, limits: TenantLimits) {
        self.tenants.insert(limits.tenant.clone(), limits);
    }

    /// Removes a tenant's limits.
    pub fn remove_tenant_limits(&mut self, tenant: &str) {
        self.tenants.remove(tenant);
    }

    /// Replaces how much CPU and memory a pod that requests none counts for where an instance is launched for it. By default 100m
    /// and 200Mi, as kube-scheduler counts such pods when it compares nodes.
    pub fn set_pods_without_requests(&mut self, requests: &Resources) {
        self.without_requests = [
            (ResourceId::CPU, requests.get(resources::CPU)),
            (ResourceId::MEMORY, requests.get(resources::MEMORY)),
        ];
    }

    /// Replaces what the nodes of all pools may have together, as [`Pool::limits`]; no limit if empty.
    pub fn set_limits(&mut self, limits: BTreeMap<String, Quantity>) {
        self.limits = limits;
    }

    /// Adds or replaces a namespace's labels, which pod affinity may select by.
    pub fn upsert_namespace(&mut self, namespace: &Namespace) {
        self.tidy();
        let name = self.tables.symbols.sym(namespace.metadata.name.as_deref().unwrap_or_default());
        let mut map = namespace.metadata.labels.clone().unwrap_or_default();
        // The API server sets it; a file may lack it.
        map.entry("kubernetes.io/metadata.name".to_owned())
            .or_insert_with(|| namespace.metadata.name.clone().unwrap_or_default());
        let labels = interner::labels(&mut self.tables.symbols, &map);
        self.namespaces.insert(name, labels);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        if let Some(name) = self.tables.symbols.find(name) {
            self.namespaces.remove(&name);
        }
    }

    /// Adds or replaces a DaemonSet: its requests are reserved on every node that it will run on.
    ///
    /// # Errors A field of the pod template that can't be parsed; the DaemonSet's last good state stays.
    pub fn upsert_daemonset(&mut self, daemonset: &DaemonSet) -> Result<(), InputError> {
        self.tidy();
        let namespace = daemonset.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = daemonset.metadata.name.clone().unwrap_or_default();
        let Some(spec) = &daemonset.spec else { return Ok(()) };
        let mut metadata = spec.template.metadata.clone().unwrap_or_default();
        metadata.namespace = Some(namespace.clone());
        metadata.name = Some(name.clone());
        let mut pod = Pod { metadata, spec: spec.template.spec.clone(), status: None };
        if let Some(spec) = &mut pod.spec {
            // The tolerations that the DaemonSet controller adds to each of its pods (AddOrUpdateDaemonPodTolerations).
            let tolerations = spec.tolerations.get_or_insert_default();
            for (key, effect) in [
                ("node.kubernetes.io/not-ready", "NoExecute"),
                ("node.kubernetes.io/unreachable", "NoExecute"),
                ("node.kubernetes.io/disk-pressure", "NoSchedule"),
                ("node.kubernetes.io/memory-pressure", "NoSchedule"),
                ("node.kubernetes.io/pid-pressure", "NoSchedule"),
                ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ] {
                tolerations.push(Toleration {
                    key: Some(key.to_owned()),
                    operator: Some("Exists".to_owned()),
                    effect: Some(effect.to_owned()),
                    ..Toleration::default()
                });
            }
        }
        let shape = pod_shape::compile(&mut self.tables, &pod).map_err(|error| InputError {
            kind: "DaemonSet",
            name: format!("{namespace}/{name}"),
            ..error
        })?;
        let symbols = &mut self.tables.symbols;
        let key = NamespacedName { namespace: symbols.sym(&namespace), name: symbols.sym(&name) };
        self.daemons.insert(key, Daemon { shape });
        Ok(())
    }

    /// Removes a DaemonSet.
    pub fn remove_daemonset(&mut self, namespace: &str, name: &str) {
        if let (Some(namespace), Some(name)) =
            (self.tables.symbols.find(namespace), self.tables.symbols.find(name))
        {
            self.daemons.remove(&NamespacedName { namespace, name });
        }
    }

    /// The requests of a pod, in thousandths of a CPU and bytes of memory. None for a pod that neither is demand nor holds room on a
    /// node.
    #[must_use]
    pub fn requests(&self, pod: &PodKey) -> Option<(i64, i64)> {
        let rec = self.pods.find(self.pod_number(pod)?)?.as_ref()?;
        let shape = self.tables.shapes.get(rec.shape);
        Some((amount(&shape.requests, ResourceId::CPU), amount(&shape.requests, ResourceId::MEMORY)))
    }

    /// The id of a pod.
    pub(crate) fn pod_number(&self, pod: &PodKey) -> Option<PodIx> {
        self.pod_numbers.get(pod).copied()
    }

    /// A copy without pending pods: what is added to it is all that is planned.
    #[must_use]
    pub fn at_rest(&self) -> Self {
        let mut copy = self.clone();
        for ix in self.demand.values() {
            copy.drop_pod(*ix);
        }
        copy
    }

    /// Number of pending pods that Croft plans.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.demand.len()
    }
}
