//! Volumes, as far as they say where a pod can run.

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec},
    storage::v1::{CSINode, StorageClass},
};
use rustc_hash::FxHashMap;

use crate::{
    model::{
        error::InputError,
        well_known::{REGION, ZONE},
    },
    state::{
        claim::{Claim, size},
        cluster::Cluster,
        interner::{NamespacedName, Sym},
        node_requirement::{Expr, NodeReq, Term},
        pod_shape::NodeReqId,
    },
};

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    /// Requirements on the node.
    pub(crate) reqs: Box<[NodeReqId]>,
    pub(crate) class: Option<Sym>,
    pub(crate) claimed: bool,
    pub(crate) size: i64,
    pub(crate) driver: Option<Sym>,
}

#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) waits: bool,
    pub(crate) topologies: Option<NodeReqId>,
    /// The driver; `None` for volumes that are made by hand.
    pub(crate) driver: Option<Sym>,
    default: bool,
}

/// All of them, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    pub(crate) claims: FxHashMap<NamespacedName, Claim>,
    /// Of the pods' generic ephemeral volumes, by the claim that each gets.
    pub(super) templates: FxHashMap<NamespacedName, Claim>,
    pub(crate) volumes: FxHashMap<Sym, Volume>,
    pub(crate) classes: FxHashMap<Sym, Class>,
    /// Attach limits by node: (driver, count).
    pub(crate) limits: FxHashMap<Sym, Box<[(Sym, i64)]>>,
}

impl Volumes {
    /// Every string and requirement that volumes name.
    pub(super) fn symbols(&self, mut see: impl FnMut(Sym), mut see_req: impl FnMut(NodeReqId)) {
        for (key, claim) in self.claims.iter().chain(&self.templates) {
            [key.namespace, key.name].into_iter().chain(claim.symbols()).for_each(&mut see);
        }
        for (name, volume) in &self.volumes {
            [Some(*name), volume.class, volume.driver].into_iter().flatten().for_each(&mut see);
            volume.reqs.iter().copied().for_each(&mut see_req);
        }
        for (name, class) in &self.classes {
            [Some(*name), class.driver].into_iter().flatten().for_each(&mut see);
            class.topologies.into_iter().for_each(&mut see_req);
        }
        for (name, limits) in &self.limits {
            see(*name);
            limits.iter().for_each(|(driver, _)| see(*driver));
        }
    }

    /// The class that claims get which name none.
    pub(crate) fn default_class(&self) -> Option<Sym> {
        self.classes.iter().filter(|(_, c)| c.default).map(|(name, _)| *name).max()
    }

    /// The driver that attaches the volume of a claim, or of one that is still to be created.
    pub(crate) fn driver(&self, claim: NamespacedName) -> Option<Sym> {
        let claim = self.claims.get(&claim).or_else(|| self.templates.get(&claim))?;
        match claim.volume.and_then(|v| self.volumes.get(&v)) {
            Some(volume) => volume.driver,
            None => {
                let class = claim.class.or_else(|| self.default_class())?;
                self.classes.get(&class).and_then(|c| c.driver)
            }
        }
    }
}

/// The annotations of a default class: the API server still honours the older one (`pkg/volume/util/storageclass.go`).
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The CSI driver that took over from an in-tree plugin, whose volumes count as its own (k8s.io/csi-translation-lib).
fn migrated(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        other => other,
    }
}

/// The CSI driver that attaches a volume.
fn driver_of(volume: &PersistentVolumeSpec) -> Option<&str> {
    if let Some(csi) = &volume.csi {
        return Some(&csi.driver);
    }
    let plugins = [
        (volume.aws_elastic_block_store.is_some(), "kubernetes.io/aws-ebs"),
        (volume.gce_persistent_disk.is_some(), "kubernetes.io/gce-pd"),
        (volume.azure_disk.is_some(), "kubernetes.io/azure-disk"),
        (volume.cinder.is_some(), "kubernetes.io/cinder"),
        (volume.vsphere_volume.is_some(), "kubernetes.io/vsphere-volume"),
    ];
    plugins.into_iter().find(|(is_it, _)| *is_it).map(|(_, plugin)| migrated(plugin))
}

impl Cluster {
    /// Takes in a PersistentVolumeClaim, or its new state.
    ///
    /// # Errors
    /// A size that can't be read.
    pub fn upsert_pvc(&mut self, pvc: &PersistentVolumeClaim) -> Result<(), InputError> {
        self.tidy();
        let namespace = pvc.metadata.namespace.as_deref().unwrap_or("default");
        let name = pvc.metadata.name.as_deref().unwrap_or_default();
        let symbols = &mut self.tables.symbols;
        let read = Claim::read(symbols, pvc.spec.as_ref()).map_err(|problem| InputError {
            kind: "PersistentVolumeClaim",
            name: format!("{namespace}/{name}"),
            field: "spec.resources.requests.storage".to_owned(),
            problem,
        })?;
        let owner = pvc.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
        let claim = Claim {
            lost: pvc.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost"),
            deleting: pvc.metadata.deletion_timestamp.is_some(),
            is_new: pvc.metadata.uid.is_none() && pvc.status.as_ref().is_none_or(|s| s.phase.is_none()),
            owner: owner.map(|o| symbols.sym(&o.uid)),
            ..read
        };
        let key = NamespacedName { namespace: symbols.sym(namespace), name: symbols.sym(name) };
        self.volumes.claims.insert(key, claim);
        Ok(())
    }

    /// Forgets a PersistentVolumeClaim.
    pub fn remove_pvc(&mut self, namespace: &str, name: &str) {
        let symbols = &self.tables.symbols;
        if let (Some(namespace), Some(name)) = (symbols.find(namespace), symbols.find(name)) {
            self.volumes.claims.remove(&NamespacedName { namespace, name });
        }
    }

    /// Takes in a PersistentVolume, or its new state.
    ///
    /// # Errors
    /// A node affinity or size that can't be read.
    pub fn upsert_pv(&mut self, pv: &PersistentVolume) -> Result<(), InputError> {
        self.tidy();
        let name = pv.metadata.name.as_deref().unwrap_or_default();
        let error = |field: &str, problem: String| InputError {
            kind: "PersistentVolume",
            name: name.to_owned(),
            field: field.to_owned(),
            problem,
        };
        let spec = pv.spec.as_ref();
        let mut reqs = Vec::new();
        if let Some(required) = spec.and_then(|s| s.node_affinity.as_ref()).and_then(|a| a.required.as_ref())
        {
            let req = NodeReq::from_api(&mut self.tables.symbols, required)
                .map_err(|p| error("spec.nodeAffinity", p))?;
            reqs.push(self.tables.req(req));
        }
        // Old volumes say their zones by label, several joined by two underscores (the VolumeZone plugin).
        let old = [
            ZONE,
            REGION,
            "failure-domain.beta.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region",
        ];
        for key in old {
            if let Some(text) = pv.metadata.labels.as_ref().and_then(|l| l.get(key)) {
                let values = text.split("__").map(|v| self.tables.symbols.sym(v)).collect();
                let key = self.tables.symbols.sym(key);
                reqs.push(self.tables.req(NodeReq::all_of(vec![Expr::any_of(key, values)])));
            }
        }
        let size =
            size(spec.and_then(|s| s.capacity.as_ref())).map_err(|p| error("spec.capacity.storage", p))?;
        let symbols = &mut self.tables.symbols;
        let class = spec.and_then(|s| s.storage_class_name.as_deref()).unwrap_or_default();
        let volume = Volume {
            reqs: reqs.into(),
            class: Some(symbols.sym(class)),
            claimed: spec.is_some_and(|s| s.claim_ref.is_some()),
            size,
            driver: spec.and_then(driver_of).map(|driver| symbols.sym(driver)),
        };
        let name = symbols.sym(name);
        self.volumes.volumes.insert(name, volume);
        Ok(())
    }

    /// Forgets a PersistentVolume.
    pub fn remove_pv(&mut self, name: &str) {
        if let Some(name) = self.tables.symbols.find(name) {
            self.volumes.volumes.remove(&name);
        }
    }

    /// Takes in a StorageClass, or its new state.
    ///
    /// # Errors
    /// None as yet; what can't be read is the API server's to refuse.
    pub fn upsert_storage_class(&mut self, class: &StorageClass) -> Result<(), InputError> {
        self.tidy();
        let symbols = &mut self.tables.symbols;
        let name = symbols.sym(class.metadata.name.as_deref().unwrap_or_default());
        let mut terms = Vec::new();
        for term in class.allowed_topologies.iter().flatten() {
            let exprs = term.match_label_expressions.iter().flatten().map(|e| {
                let values = e.values.iter().map(|v| symbols.sym(v)).collect();
                Expr::any_of(symbols.sym(&e.key), values)
            });
            terms.push(Term { labels: exprs.collect(), fields: Box::default() });
        }
        let by_hand = class.provisioner == "kubernetes.io/no-provisioner";
        let driver = (!by_hand).then(|| symbols.sym(migrated(&class.provisioner)));
        let topologies = (!terms.is_empty()).then(|| self.tables.req(NodeReq { terms: terms.into() }));
        let mut annotations = class.metadata.annotations.iter().flatten();
        let default =
            annotations.any(|(key, value)| DEFAULT_CLASS.contains(&key.as_str()) && value == "true");
        let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
        self.volumes.classes.insert(name, Class { waits, topologies, driver, default });
        Ok(())
    }

    /// Forgets a StorageClass.
    pub fn remove_storage_class(&mut self, name: &str) {
        if let Some(name) = self.tables.symbols.find(name) {
            self.volumes.classes.remove(&name);
        }
    }

    /// Takes in how many volumes a node can attach.
    ///
    /// # Errors
    /// None as yet; what can't be read is the API server's to refuse.
    pub fn upsert_csi_node(&mut self, node: &CSINode) -> Result<(), InputError> {
        self.tidy();
        let symbols = &mut self.tables.symbols;
        let name = symbols.sym(node.metadata.name.as_deref().unwrap_or_default());
        let limits = node.spec.drivers.iter().map(|d| {
            // A driver that names no limit has none.
            let count = d.allocatable.as_ref().and_then(|a| a.count).map_or(i64::MAX, i64::from);
            (symbols.sym(&d.name), count)
        });
        let limits = limits.collect();
        self.volumes.limits.insert(name, limits);
        Ok(())
    }

    /// Forgets how many volumes a node can attach.
    pub fn remove_csi_node(&mut self, name: &str) {
        if let Some(name) = self.tables.symbols.find(name) {
            self.volumes.limits.remove(&name);
        }
    }
}
