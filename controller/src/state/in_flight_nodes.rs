//! Nodes in the scheduler's cluster: those of claims, from the launch on.

use croft_api::{
    NodeClaim, TenantPool,
    convert::nodes::{in_flight_node, planned_node},
};
use croft_scheduler::{InputError, InstanceType, PodKey, Pool};

use super::snapshot::Snapshot;
use crate::definitions::keys;

impl Snapshot {
    /// The templates of a pool as the scheduler plans them, each with what it may launch now.
    ///
    /// # Errors
    /// As of [`convert::scheduler::pool`](croft_api::convert::scheduler::pool).
    pub fn plannable_templates(&self, name: &str, pool: &TenantPool) -> Result<Vec<Pool>, InputError> {
        let types = |template: &TenantPool| self.launchable_types(name, template);
        let mut templates = croft_api::convert::scheduler::pool(pool, types)?;
        for template in &mut templates {
            template.held = self.launch_hold(name, &template.template).and_then(|hold| hold.why.clone());
        }
        Ok(templates)
    }

    pub(super) fn update_cluster_pool(&mut self, name: &str) {
        self.pool_versions.bump(name);
        let Some(pool) = self.pools.get(name) else { return };
        let key = format!("TenantPool {name}");
        let read = match self.collisions.get(name) {
            None => self.plannable_templates(name, pool),
            Some(older) => Err(InputError {
                kind: "TenantPool",
                name: name.to_owned(),
                field: "spec.value".to_owned(),
                problem: format!("its nodes would carry a label of the older TenantPool {older}"),
            }),
        };
        if pool.spec.per_tenant {
            self.cluster.remove_pool(name);
        }
        match read.and_then(|templates| self.cluster.upsert_templates(templates)) {
            Ok(()) => {
                self.problems.remove(&key);
            }
            Err(problem) => {
                // A pool that can be read only in part launches nothing.
                self.cluster.remove_pool(name);
                self.problems.insert(key, problem);
            }
        }
        self.plan_version += 1;
    }

    pub(super) fn update_cluster_pools_of_class(&mut self, class: &str) {
        let pools: Vec<_> = self
            .templates
            .iter()
            .filter(|(_, templates)| templates.iter().any(|p| self.class_of(p) == Some(class)))
            .map(|(n, _)| n.clone())
            .collect();
        for pool in pools {
            self.update_cluster_pool(&pool);
        }
        let claims: Vec<_> = self
            .claims
            .iter()
            .filter(|(_, c)| c.spec.node_class_ref.name == class && self.node_of(c).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for claim in claims {
            self.update_cluster_claim(&claim);
        }
    }

    /// The class that the template of a pool with one kind of node names, if its kind is EC2NodeClass.
    pub(crate) fn class_of<'a>(&self, pool: &'a TenantPool) -> Option<&'a str> {
        let class = &pool.spec.template.as_ref()?.spec.node_class_ref;
        (class.kind == "EC2NodeClass" && class.group == croft_api::GROUP).then_some(class.name.as_str())
    }

    pub(super) fn update_cluster_claim(&mut self, name: &str) {
        let Some(claim) = self.claims.get(name).cloned() else { return };
        if let Some((node, _)) = self.node_of(&claim) {
            let node = node.to_owned();
            self.cluster.remove_coming(name);
            self.update_cluster_node(&node);
        } else {
            let coming = in_flight_node(&claim, |name| self.instance_type(&claim, name));
            self.cluster.upsert_coming(coming);
        }
        let nominated: Vec<_> = self.nominated_to(name).map(|(key, _)| key.clone()).collect();
        for pod in nominated {
            self.update_cluster_nomination(&pod, name);
        }
    }

    pub(super) fn update_cluster_node(&mut self, name: &str) {
        let Some(raw) = self.raw_nodes.get(name) else { return };
        let claim = self.registered_claim_of(name).cloned();
        let planned = planned_node(raw, claim.as_deref());
        let is_final = matches!(planned, std::borrow::Cow::Borrowed(_));
        let read = self.cluster.upsert_node(&planned);
        let waits = raw
            .spec
            .iter()
            .flat_map(|s| s.taints.iter().flatten())
            .any(|t| t.key == keys::UNREGISTERED_TAINT);
        if is_final && (claim.is_some() || !waits) {
            self.raw_nodes.remove(name);
        }
        self.record_problem("Node", name, read);
        if let Some(claim) = claim.as_ref().and_then(|c| c.metadata.name.clone()) {
            self.cluster.remove_coming(&claim);
            let nominated: Vec<_> = self.nominated_to(&claim).map(|(key, _)| key.clone()).collect();
            for pod in nominated {
                self.update_cluster_nomination(&pod, &claim);
            }
        }
    }

    pub(super) fn update_cluster_nomination(&mut self, pod: &PodKey, claim: &str) {
        let node = self.claims.get(claim).and_then(|c| self.node_of(c)).map(|(name, _)| name.to_owned());
        match node {
            Some(node) => self.cluster.nominate(pod, &node, false),
            None => self.cluster.nominate(pod, claim, true),
        }
    }

    /// An instance type by name, with the offerings of the claim's class.
    #[must_use]
    pub(crate) fn instance_type(&self, claim: &NodeClaim, name: &str) -> Option<&InstanceType> {
        let types = self.classes.get(&claim.spec.node_class_ref.name)?.types.as_ref()?;
        types.iter().find(|t| t.name == name)
    }
}
