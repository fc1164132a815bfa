//! The objects that edited Tenants give to their namespaces: created, changed or removed; and quotas that are used up
//! already.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{
    Tenant,
    amount::Amount,
    convert::{given, tenant_objects},
};
use croft_manifest::Input;
use croft_policy::Tenants;
use croft_scheduler::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::model::{Edited, GivenImpact};

/// Contents by kind, namespace and name.
type Given = BTreeMap<String, Value>;

/// A cluster, and the namespaces of each of its tenants in order.
pub(super) struct Side<'i> {
    input: &'i Input,
    tenants: &'i Tenants,
    namespaces: BTreeMap<&'i str, Vec<&'i str>>,
}

impl<'i> Side<'i> {
    /// A cluster and the index of its tenants.
    pub(super) fn new(input: &'i Input, tenants: &'i Tenants) -> Self {
        let mut namespaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in input.namespaces.iter().filter_map(|namespace| namespace.metadata.name.as_deref()) {
            if let Some(owner) = tenants.tenancy(name).tenant() {
                namespaces.entry(&*owner.name).or_default().push(name);
            }
        }
        namespaces.values_mut().for_each(|names| names.sort_unstable());
        Self { input, tenants, namespaces }
    }

    fn tenant(&self, name: &str) -> Option<&'i Tenant> {
        self.input.tenants.get("", name).map(|tenant| &tenant.object)
    }

    fn namespaces_of(&self, tenant: &str) -> &[&'i str] {
        self.namespaces.get(tenant).map(Vec::as_slice).unwrap_or_default()
    }

    /// Its namespaces within the number that owners may create.
    fn open(&self, tenant: &str) -> Vec<&'i str> {
        let mut open = self.namespaces_of(tenant).to_vec();
        open.retain(|namespace| self.tenants.surplus(namespace).is_none());
        open
    }

    /// Its namespaces beyond that number.
    fn closed(&self, tenant: &str) -> Vec<&'i str> {
        let mut closed = self.namespaces_of(tenant).to_vec();
        closed.retain(|namespace| self.tenants.surplus(namespace).is_some());
        closed
    }
}

/// Compares what the edited Tenants give before and after the edit.
pub(super) fn compare(objects: &[Edited], before: &Side<'_>, after: &Side<'_>) -> Vec<GivenImpact> {
    let pods = OnceCell::new();
    let mut found = Vec::new();
    for edited in objects.iter().filter(|edited| edited.kind == "Tenant" && edited.change != "unchanged") {
        let name = edited.name.as_str();
        let old = before.tenant(name);
        let Some(new) = after.tenant(name) else { continue };
        let had = old.map(|tenant| all_of(tenant, before)).unwrap_or_default();
        let has = all_of(new, after);
        let keys: BTreeSet<&String> = had.keys().chain(has.keys()).collect();
        for key in keys {
            let action = match (had.get(key), has.get(key)) {
                (None, Some(_)) => "created",
                (Some(_), None) => "removed",
                (had, has) if had != has => "changed",
                _ => continue,
            };
            found.push(GivenImpact { object: key.clone(), action, why: format!("for Tenant {name}") });
        }
        found.extend(surplus(new, after));
        let pods = pods.get_or_init(|| counted_pods(after.input));
        found.extend(exceeded(old, new, after.namespaces_of(name), pods));
    }
    found
}

/// The objects of a tenant, as the controller keeps them, and the levels of Pod Security.
fn all_of(tenant: &Tenant, side: &Side<'_>) -> Given {
    let spec = &tenant.spec;
    let name = tenant.metadata.name.as_deref().unwrap_or_default();
    let open = side.open(name);
    let mut each: Vec<(String, Value)> = Vec::new();
    let policy = tenant_objects::network_policy(spec.network_isolation.as_ref(), &open);
    each.extend(
        policy.map(|policy| (object("NetworkPolicy", &tenant_objects::network_policy_name()), json!(policy))),
    );
    let quota = spec.quota.as_ref().and_then(|quota| given::resource_quota(&quota.per_namespace));
    each.extend(quota.map(|quota| (object("ResourceQuota", &given::quota_name()), quota)));
    // Shares change all the time: what counts is what they add up to.
    let total = spec.quota.as_ref().map(|quota| &quota.total).filter(|total| !total.is_empty());
    each.extend(total.map(|total| (object("ResourceQuota", &given::share_name()), json!(total))));
    let defaults = spec.defaults.as_ref().and_then(given::limit_range);
    each.extend(defaults.map(|defaults| (object("LimitRange", &given::defaults_name()), defaults)));
    let bindings = given::role_bindings(&spec.owners).into_iter();
    each.extend(bindings.map(|(name, binding)| (object("RoleBinding", &name), binding)));
    let levels = given::pod_security(spec.pod_security.as_ref()).into_iter();
    each.extend(levels.filter_map(|(mode, level)| {
        Some((format!("label {{}} {}{mode}", given::POD_SECURITY_PREFIX), json!(level?.as_str())))
    }));
    let mut all: Given = open
        .iter()
        .flat_map(|namespace| each.iter().map(|(key, value)| (key.replace("{}", namespace), value.clone())))
        .collect();
    if spec.namespace_creation.is_some() && !spec.owners.is_empty() {
        let key = format!("ClusterRoleBinding {}", given::creators_name(name));
        all.insert(key, given::creators_binding(&spec.owners));
    }
    all
}

fn object(kind: &str, name: &str) -> String {
    format!("{kind} {{}}/{name}")
}

fn surplus(tenant: &Tenant, side: &Side<'_>) -> Vec<GivenImpact> {
    let name = tenant.name_any();
    let why = format!(
        "is beyond spec.namespaceCreation.maximum of Tenant {name}: it gets no pools, and its pods are refused"
    );
    let closed = side.closed(&name).into_iter();
    let entry = |namespace| GivenImpact {
        object: format!("Namespace {namespace}"),
        action: "closed",
        why: why.clone(),
    };
    closed.map(entry).collect()
}

/// Quotas that are new or changed, and below what is used.
fn exceeded(
    old: Option<&Tenant>,
    new: &Tenant,
    own: &[&str],
    pods: &BTreeMap<&str, Vec<&Pod>>,
) -> Vec<GivenImpact> {
    let quota =
        |tenant: Option<&Tenant>| tenant.and_then(|tenant| tenant.spec.quota.clone()).unwrap_or_default();
    let (had, has) = (quota(old), quota(Some(new)));
    let mut found = Vec::new();
    let mut check = |what: &str, limits: &BTreeMap<String, Amount>, namespaces: &[&str]| {
        for (resource, Amount(text)) in limits {
            let (Ok(limit), Some(used)) = (text.parse::<Quantity>(), used(pods, namespaces, resource)) else {
                continue;
            };
            if used > limit.millis() {
                let used = Quantity::from_millis(used);
                let why = format!(
                    "{resource}: {used} are used and {limit} allowed; pods run on, and no more are created"
                );
                found.push(GivenImpact { object: what.to_owned(), action: "exceeded", why });
            }
        }
    };
    if had.total != has.total {
        check(&format!("quota.total of Tenant {}", new.name_any()), &has.total, own);
    }
    if had.per_namespace != has.per_namespace {
        for namespace in own {
            check(
                &format!("ResourceQuota {namespace}/{}", given::quota_name()),
                &has.per_namespace,
                &[namespace],
            );
        }
    }
    found
}

/// The amount that the pods of namespaces use, in thousandths; `None` for resources that pods don't use.
fn used(pods: &BTreeMap<&str, Vec<&Pod>>, namespaces: &[&str], resource: &str) -> Option<i64> {
    let (limits, name) = match (resource.strip_prefix("requests."), resource.strip_prefix("limits.")) {
        (Some(name), _) => (false, name),
        (_, Some(name)) => (true, name),
        _ if ["pods", "cpu", "memory", "ephemeral-storage"].contains(&resource) => (false, resource),
        _ => return None,
    };
    if name == "storage" {
        return None;
    }
    let pods = namespaces.iter().filter_map(|namespace| pods.get(*namespace)).flatten();
    Some(pods.map(|pod| if name == "pods" { 1_000 } else { of_pod(pod, name, limits) }).sum())
}

/// The pods that quotas count, by namespace.
fn counted_pods(input: &Input) -> BTreeMap<&str, Vec<&Pod>> {
    let is_counted = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.uid.is_some() && !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in input.pods.iter().map(|pod| &pod.object).filter(is_counted) {
        if let Some(namespace) = pod.metadata.namespace.as_deref() {
            pods.entry(namespace).or_default().push(pod);
        }
    }
    pods
}

/// As the API server counts a pod: the sum of its containers, or a larger init container, and the overhead.
fn of_pod(pod: &Pod, name: &str, limits: bool) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let of = |container: &Container| {
        let resources = container.resources.as_ref();
        let map = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
        let amount = map.and_then(|map| map.get(name)?.0.parse::<Quantity>().ok());
        amount.map_or(0, Quantity::millis)
    };
    let init = spec.init_containers.iter().flatten();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let (sidecars, init): (Vec<&Container>, Vec<&Container>) = init.partition(is_sidecar);
    let sidecars: i64 = sidecars.into_iter().map(of).sum();
    let running = spec.containers.iter().map(of).sum::<i64>() + sidecars;
    let starting = init.into_iter().map(of).max().unwrap_or(0);
    let overhead = spec.overhead.as_ref().and_then(|map| map.get(name)?.0.parse::<Quantity>().ok());
    running.max(starting) + overhead.map_or(0, Quantity::millis)
}
