//! Croft's admission of the input's pods and DaemonSets, by the functions that the webhook calls.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{
    TenantPool,
    convert::{given, policy as convert},
};
use croft_cloud::pool_types;
use croft_manifest::{Input, InputError, Problem, apply_admission_plugins_with};
use croft_policy::{
    self as policy, NamespaceTenancy, Tenants, lost_pins, model::DEFAULT_NAMESPACE, plan_created,
    plan_daemonset,
};
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{LimitRange, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;
use rustc_hash::FxHashMap;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::class_types::ClassTypes;

/// The tenants, pools and settings of an input, ready to admit objects.
pub struct Admission {
    tenants: Tenants,
    warnings: Vec<String>,
    /// Of each Tenant with `defaults`: the LimitRange that its namespaces get.
    defaults: BTreeMap<String, LimitRange>,
    /// The LimitRanges of the input by namespace, in its order: each pod asks for those of its own.
    limit_ranges: FxHashMap<String, Vec<LimitRange>>,
}

/// The result of admitting a pod or a DaemonSet.
#[derive(Clone, Debug)]
pub struct Verdict<T = Pod> {
    /// How it is stored, or why it isn't.
    pub outcome: Outcome<T>,
    /// The tenant that owns its namespace.
    pub tenant: Option<String>,
    /// The pool that it is placed in.
    pub pool: Option<String>,
    /// True for a pod of no tenant that tolerates taints of pools, and is kept off their nodes.
    pub is_kept_out: bool,
    pub(crate) warnings: Vec<String>,
    /// The changes as JSON Patch.
    pub(crate) patch: Value,
}

/// How an object is stored, or why it isn't.
#[derive(Clone, Debug)]
pub enum Outcome<T = Pod> {
    /// As it was written.
    Unchanged,
    /// With the changes of the policy.
    Changed(Box<T>),
    /// Not at all, with the message of the denial.
    Denied(String),
}

impl<T> Verdict<T> {
    /// A refusal by another admission plugin.
    pub(crate) fn denied(refusal: String) -> Self {
        Self {
            outcome: Outcome::Denied(refusal),
            tenant: None,
            pool: None,
            is_kept_out: false,
            warnings: Vec::new(),
            patch: Value::Array(Vec::new()),
        }
    }

    /// For an object of which no pod can be admitted.
    pub(crate) fn unchanged() -> Self {
        Self { outcome: Outcome::Unchanged, ..Self::denied(String::new()) }
    }
}

impl Admission {
    /// Reads the Tenants, pools, settings, namespaces and nodes of `input`.
    ///
    /// # Errors
    /// A Tenant whose selector can't be read.
    pub fn new(input: &Input) -> Result<Self, InputError> {
        Self::with_types(input, &ClassTypes::new(input, &croft_cloud::builtin_catalog()))
    }

    /// [`new`](Self::new), with the instance types of the pools' classes, by which pods choose among pools.
    pub(crate) fn with_types(input: &Input, types: &ClassTypes) -> Result<Self, InputError> {
        let mut warnings = Vec::new();
        let mut tenants = Vec::new();
        for tenant in &input.tenants {
            tenants.push(convert::tenant(&tenant.object).map_err(|error| Problem {
                origin: tenant.origin.clone(),
                object: format!("Tenant {}", tenant.name_any()),
                field: "spec.namespaceSelector".to_owned(),
                message: error.to_string(),
            })?);
            for pool in input.pools_of_tenant(tenant).filter(|pool| input.pools.get("", pool).is_none()) {
                let name = tenant.name_any();
                warnings.push(format!("Tenant {name} names the pool {pool}, which isn't in the input: pods that need it are refused"));
            }
        }
        // As the controller lets in those that owners created: the oldest first.
        let mut namespaces: Vec<&ObjectMeta> = input.namespaces.iter().map(|n| &n.metadata).collect();
        namespaces.sort_by_key(|meta| (meta.creation_timestamp.clone(), meta.name.clone()));
        let defaults = input.tenants.iter().filter_map(|tenant| {
            let content = given::limit_range(tenant.spec.defaults.as_ref()?)?;
            Some((tenant.name_any(), serde_json::from_value(content).ok()?))
        });
        let settings = input.configs.first().map(|config| config.spec.clone()).unwrap_or_default();
        let tenants = Tenants::offline(
            convert::config(&settings, DEFAULT_NAMESPACE),
            tenants,
            pools_of(input, types),
            namespaces.into_iter().map(convert::namespace).collect(),
            input.nodes.iter().map(|node| convert::node(&node.object)).collect(),
        );
        let mut limit_ranges: FxHashMap<String, Vec<LimitRange>> = FxHashMap::default();
        for range in &input.limit_ranges {
            let Some(namespace) = range.namespace() else { continue };
            limit_ranges.entry(namespace).or_default().push(range.object.clone());
        }
        Ok(Self { tenants, warnings, defaults: defaults.collect(), limit_ranges })
    }

    /// The index of tenants and pools.
    #[must_use]
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Findings about tenants and pools.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// The pod as the API server's plugins leave it, and the result of Croft's admission after them. `input` is the one
    /// that this was made of.
    #[must_use]
    pub(crate) fn create(&self, pod: &Pod, input: &Input) -> (Pod, Verdict) {
        let mut created = pod.clone();
        let verdict = match self.apply_plugins(&mut created, input) {
            Ok(()) => self.pod(&created),
            Err(refusal) => Verdict::denied(refusal),
        };
        (created, verdict)
    }

    /// The DaemonSet as it is stored, with what the API server adds to each of its pods in the template, as they will
    /// request it.
    ///
    /// # Errors
    /// Why it creates no pods.
    pub(crate) fn create_pods_of(&self, set: &DaemonSet, input: &Input) -> Result<DaemonSet, String> {
        let stored = match self.daemon_set(set).outcome {
            Outcome::Unchanged => set.clone(),
            Outcome::Changed(changed) => *changed,
            Outcome::Denied(refusal) => return Err(refusal),
        };
        self.with_plugins(stored, input)
    }

    /// The DaemonSet with what the API server's plugins add to each of its pods in the template.
    ///
    /// # Errors
    /// Why it creates no pods.
    pub(crate) fn with_plugins(&self, mut set: DaemonSet, input: &Input) -> Result<DaemonSet, String> {
        let namespace = set.metadata.namespace.clone();
        if let Some(spec) = &mut set.spec {
            let metadata = ObjectMeta { namespace, ..spec.template.metadata.clone().unwrap_or_default() };
            let mut pod = Pod { metadata, spec: spec.template.spec.take(), status: None };
            self.apply_plugins(&mut pod, input)?;
            spec.template.spec = pod.spec;
        }
        Ok(set)
    }

    /// A tenant's namespaces have the LimitRange of its `defaults`, whether or not the controller has written it yet.
    fn apply_plugins(&self, pod: &mut Pod, input: &Input) -> Result<(), String> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let tenant = match self.tenants.tenancy(&namespace) {
            NamespaceTenancy::Tenant { tenant, .. } => Some(&*tenant.name),
            _ => None,
        };
        let defaults_name = given::defaults_name();
        let stays = |range: &&LimitRange| {
            tenant.is_none() || range.metadata.name.as_deref() != Some(defaults_name.as_str())
        };
        let ranges = self.limit_ranges.get(&namespace).into_iter().flatten().filter(stays);
        let ranges: Vec<&LimitRange> =
            ranges.chain(tenant.and_then(|tenant| self.defaults.get(tenant))).collect();
        apply_admission_plugins_with(pod, input, &ranges)
    }

    /// Admits a pod that is about to be created.
    #[must_use]
    pub fn pod(&self, pod: &Pod) -> Verdict {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        verdict(plan_created(&self.tenants, namespace, &convert::pod(pod)), pod)
    }

    /// The pod as its controller creates it again, before admission: without its node, and without what pins it to pools that its
    /// namespace may not use any more.
    #[must_use]
    pub fn recreated(&self, pod: &Pod) -> Pod {
        let mut again = unbound(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let lost = lost_pins(&self.tenants, namespace, &convert::pod(pod).spec);
        if let Some(selector) = again.spec.as_mut().and_then(|spec| spec.node_selector.as_mut()) {
            selector.retain(|key, _| !lost.contains(key));
        }
        again
    }

    /// Admits a DaemonSet that is about to be written.
    #[must_use]
    pub fn daemon_set(&self, set: &DaemonSet) -> Verdict<DaemonSet> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        verdict(plan_daemonset(&self.tenants, namespace, &convert::daemonset(set)), set)
    }
}

/// The pools of an input, as admission knows them.
#[must_use]
pub fn pools(input: &Input) -> Vec<policy::Pool> {
    pools_of(input, &ClassTypes::new(input, &croft_cloud::builtin_catalog()))
}

/// The pools, with the extended resources and labels of their instances, which the controller would write into their status. They count
/// only where a tenant has a choice.
fn pools_of(input: &Input, types: &ClassTypes) -> Vec<policy::Pool> {
    let several = input.tenants.iter().filter(|tenant| tenant.spec.pools.len() > 1);
    let chosen: BTreeSet<Cow<'_, str>> = several.flat_map(|tenant| input.pools_of_tenant(tenant)).collect();
    let with_resources = |pool: &TenantPool| {
        let mut pool = pool.clone();
        let is_known = pool.status.as_ref().is_some_and(|status| status.extended_resources.is_some());
        if !is_known && chosen.contains(&*pool.name_any()) {
            let of_template = |template: &TenantPool| {
                let possible = pool_types::possible(template, types.of_pool(template));
                (pool_types::extended_resources(&possible), pool_types::instance_labels(&possible))
            };
            let known: Vec<_> = pool.by_template().map(|(_, template)| of_template(&template)).collect();
            let (resources, labels): (Vec<_>, Vec<_>) =
                known.iter().map(|(resources, labels)| (resources.as_slice(), labels.as_slice())).unzip();
            let status = pool.status.get_or_insert_default();
            status.extended_resources = Some(pool_types::any_of(&resources));
            status.instance_labels = Some(pool_types::instance_labels_of_any(&labels));
        }
        convert::pool(&pool)
    };
    input.pools.iter().map(|pool| with_resources(&pool.object)).collect()
}

/// The pod before it got a node.
pub(crate) fn unbound(pod: &Pod) -> Pod {
    let mut again = pod.clone();
    if let Some(spec) = &mut again.spec {
        spec.node_name = None;
    }
    again.status = None;
    again
}

fn verdict<T: Serialize + DeserializeOwned>(outcome: policy::Outcome<'_>, object: &T) -> Verdict<T> {
    let policy::Outcome { rule, denial, patch, warnings, tenant, pool, source: _ } = outcome;
    let unchanged = patch.is_empty();
    let text = patch.into_json();
    let result = match denial {
        Some(denial) => Err(denial.to_string()),
        None if unchanged => Ok(None),
        None => patched(object, &text).map(Some),
    };
    Verdict {
        outcome: match result {
            Ok(None) => Outcome::Unchanged,
            Ok(Some(object)) => Outcome::Changed(Box::new(object)),
            Err(refusal) => Outcome::Denied(refusal),
        },
        tenant: tenant.map(str::to_owned),
        pool: pool.map(str::to_owned),
        is_kept_out: rule == policy::Rule::KeptOut,
        warnings,
        patch: serde_json::from_str(&text).unwrap_or_default(),
    }
}

/// Applies the patch as the API server would.
fn patched<T: Serialize + DeserializeOwned>(object: &T, patch: &str) -> Result<T, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("failed to apply Croft's own patch {patch}: {error}");
    let mut value = serde_json::to_value(object).map_err(|e| failed(&e))?;
    let patch: json_patch::Patch = serde_json::from_str(patch).map_err(|e| failed(&e))?;
    json_patch::patch(&mut value, &patch).map_err(|e| failed(&e))?;
    serde_json::from_value(value).map_err(|e| failed(&e))
}
