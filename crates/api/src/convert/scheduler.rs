//! Conversions for the scheduler: TenantPools and Tenants. Called by the controller and the CLI.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use croft_scheduler::{
    CapacityType, InputError, InstanceType, LIMIT_COST, LIMIT_NODES, Operator, Pool, Quantity, Requirement,
    Resources, Share, ShareBound, ShareOf, TenantLimits, resources,
};
use k8s_openapi::api::core::v1::{Pod, PodSpec, Taint, Toleration};
use kube::ResourceExt;

use crate::{
    CroftConfig, Tenant, TenantPool,
    amount::Amount,
    convert::declared,
    duration,
    pool::{self, DEFAULT_KEY, Effect, Provisioner},
};

/// More than the weight of any template: a pool's own weight counts first.
const WEIGHT_OF_POOL: i32 = 101;

/// Converts a pool, each of its templates with the instance types that its class can launch. A pool that Croft doesn't provision
/// launches nothing, and one from which pools are made for tenants has no nodes.
///
/// # Errors
/// If a limit is no quantity, or a requirement contradicts its operator.
pub fn pool(
    pool: &TenantPool,
    instance_types: impl Fn(&TenantPool) -> Arc<[InstanceType]>,
) -> Result<Vec<Pool>, InputError> {
    if pool.spec.per_tenant {
        return Ok(Vec::new());
    }
    let convert =
        |(number, (template, narrowed)): (usize, (Option<&pool::PoolTemplate>, Cow<'_, TenantPool>))| {
            let at = |field: &str| match (template, field.strip_prefix("spec.template.")) {
                (Some(_), Some(rest)) => format!("spec.templates[{number}].{rest}"),
                _ => field.to_owned(),
            };
            let mut one = one_kind(&narrowed, instance_types(&narrowed))
                .map_err(|error| InputError { field: at(&error.field), ..error })?;
            one.weight = pool.spec.weight.saturating_mul(WEIGHT_OF_POOL);
            if let Some(template) = template {
                one.template.clone_from(&template.name);
                one.weight = one.weight.saturating_add(template.weight);
                one.replicas = count(pool.spec.replicas);
                one.template_replicas = count(template.replicas);
                one.template_limits = limits(&template.limits).map_err(|(key, problem)| InputError {
                    kind: "TenantPool",
                    name: pool.name_any(),
                    field: format!("spec.templates[{number}].limits.{key}"),
                    problem,
                })?;
            }
            Ok(one)
        };
    pool.by_template().enumerate().map(convert).collect()
}

/// Converts a pool that has only one kind of node.
fn one_kind(pool: &TenantPool, instance_types: Arc<[InstanceType]>) -> Result<Pool, InputError> {
    let name = pool.name_any();
    let error = |field: String, problem: String| InputError {
        kind: "TenantPool",
        name: name.clone(),
        field,
        problem,
    };
    let spec = &pool.spec;
    let template = spec.template.as_ref();
    expires_after_launch(pool)
        .map_err(|problem| error("spec.template.spec.expireAfter".to_owned(), problem))?;
    let mut requirements = Vec::new();
    for (index, wanted) in template.iter().flat_map(|t| &t.spec.requirements).enumerate() {
        let wanted = requirement(wanted);
        wanted
            .check()
            .map_err(|problem| error(format!("spec.template.spec.requirements[{index}]"), problem))?;
        requirements.push(wanted);
    }
    let mut labels = template.map(|t| t.metadata.labels.clone()).unwrap_or_default();
    labels.insert(DEFAULT_KEY.to_owned(), pool_name_label(pool));
    labels.insert(spec.key.clone(), value(pool));
    Ok(Pool {
        name: name.clone(),
        key: spec.key.clone(),
        value: value(pool),
        template: String::new(),
        weight: 0,
        template_limits: BTreeMap::new(),
        shares: shares(pool).map_err(|(at, problem)| error(format!("spec.shares[{at}]"), problem))?,
        limits: limits(&spec.limits)
            .map_err(|(key, problem)| error(format!("spec.limits.{key}"), problem))?,
        requirements,
        labels,
        taints: taints(pool),
        startup_taints: template.map(|t| t.spec.startup_taints.clone()).unwrap_or_default(),
        instance_types: declared::instance_types(instance_types, pool.declared_resources()),
        launches: spec.provisioner == Provisioner::Croft && template.is_some() && spec.replicas.is_none(),
        replicas: count(spec.replicas),
        template_replicas: None,
        held: None,
    })
}

fn count(nodes: Option<i32>) -> Option<u32> {
    nodes.and_then(|nodes| u32::try_from(nodes).ok())
}

/// The shares of a pool, each with one bound.
///
/// # Errors
/// The place of one that can't be read, and why.
pub fn shares(pool: &TenantPool) -> Result<Vec<Share>, (usize, String)> {
    let mut shares = Vec::new();
    for (at, share) in pool.spec.shares.iter().enumerate() {
        let of = match (&share.template, share.capacity_type.as_deref().map(CapacityType::parse)) {
            (Some(template), None) => ShareOf::Template(template.clone()),
            (None, Some(Some(capacity_type))) => ShareOf::CapacityType(capacity_type),
            _ => return Err((at, "write either a template or a capacityType".to_owned())),
        };
        if let Some(text) = &share.max {
            let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
            let Some(percent) = percent.filter(|percent| (1..100).contains(percent)) else {
                return Err((at, format!("{text:?} is no part of a pool; write max from 1% to 99%")));
            };
            shares.push(Share { of: of.clone(), bound: ShareBound::MaxPercent(percent) });
        }
        let least = share.min_nodes.and_then(|least| u32::try_from(least).ok());
        shares.extend(least.map(|least| Share { of, bound: ShareBound::MinNodes(least) }));
    }
    Ok(shares)
}

/// Checks that a node of the pool would not be due for replacement from its first moment; its replacement would be as
/// well.
fn expires_after_launch(pool: &TenantPool) -> Result<(), String> {
    let Some(text) = pool.spec.template.as_ref().and_then(|t| t.spec.expire_after.as_deref()) else {
        return Ok(());
    };
    match duration::parse(text) {
        Ok(Some(Duration::ZERO)) => {
            Err(format!("{text:?} expires every node at its launch; write a duration such as 720h, or Never"))
        }
        _ => Ok(()),
    }
}

/// A bound pod as admission would plan the pod that its controller creates in its place: it tolerates its pool's taint
/// with the current effects. Otherwise a pool whose `effects` have changed could not be replaced node by node, since
/// its pods would seem to fit on no new node.
#[must_use]
pub fn as_recreated(pod: &Pod) -> Cow<'_, Pod> {
    let is_bound = |spec: &&PodSpec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty());
    let Some(spec) = pod.spec.as_ref().filter(is_bound) else { return Cow::Borrowed(pod) };
    let tolerates_pool = |toleration: &Toleration| {
        let pair = toleration.key.as_ref().zip(toleration.value.as_ref());
        let selected = |(key, value)| spec.node_selector.as_ref().and_then(|s| s.get(key)) == Some(value);
        let equals = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"));
        equals && toleration.effect.is_some() && pair.is_some_and(selected)
    };
    if !spec.tolerations.iter().flatten().any(tolerates_pool) {
        return Cow::Borrowed(pod);
    }
    let widen = |toleration: &Toleration| {
        let effect = toleration.effect.clone().filter(|_| !tolerates_pool(toleration));
        Toleration { effect, ..toleration.clone() }
    };
    let tolerations = spec.tolerations.as_ref().map(|list| list.iter().map(widen).collect());
    Cow::Owned(Pod { spec: Some(PodSpec { tolerations, ..spec.clone() }), ..pod.clone() })
}

/// The limits of a tenant's pools together, which are `pools`.
///
/// # Errors
/// If a limit is no quantity.
pub fn tenant_limits(tenant: &Tenant, pools: Vec<String>) -> Result<TenantLimits, InputError> {
    let limits = limits(&tenant.spec.limits).map_err(|(key, problem)| InputError {
        kind: "Tenant",
        name: tenant.name_any(),
        field: format!("spec.limits.{key}"),
        problem,
    })?;
    Ok(TenantLimits { tenant: tenant.name_any(), pools, limits })
}

/// The limits of all pools together.
///
/// # Errors
/// If a limit is no quantity.
pub fn cluster_limits(config: &CroftConfig) -> Result<BTreeMap<String, Quantity>, InputError> {
    limits(&config.spec.limits).map_err(|(key, problem)| InputError {
        kind: "CroftConfig",
        name: config.name_any(),
        field: format!("spec.limits.{key}"),
        problem,
    })
}

/// How much pods without requests count for.
///
/// # Errors
/// If an amount is no quantity.
pub fn pods_without_requests(config: &CroftConfig) -> Result<Resources, InputError> {
    let wanted = &config.spec.pods_without_requests;
    let amounts = [(resources::CPU, &wanted.cpu), (resources::MEMORY, &wanted.memory)];
    let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount.clone())).into();
    let read = limits(&amounts).map_err(|(key, problem)| InputError {
        kind: "CroftConfig",
        name: config.name_any(),
        field: format!("spec.podsWithoutRequests.{key}"),
        problem,
    })?;
    let mut requests = Resources::new();
    read.iter().for_each(|(name, quantity)| requests.set_quantity(name, *quantity));
    Ok(requests)
}

/// True if `limits` bound the cost of the nodes that they count: each node has some of every resource named here. A
/// limit on GPUs alone, for example, bounds no other node.
#[must_use]
pub fn bounds_cost(limits: &BTreeMap<String, Amount>) -> bool {
    const OF_EVERY_NODE: [&str; 6] = [LIMIT_NODES, LIMIT_COST, "cpu", "memory", "pods", "ephemeral-storage"];
    OF_EVERY_NODE.iter().any(|name| limits.contains_key(*name))
}

/// The value of the pool's label and taint.
#[must_use]
pub fn value(pool: &TenantPool) -> String {
    pool.spec.value.clone().unwrap_or_else(|| pool.name_any())
}

/// The value of the pool-name label on the pool's nodes: the pool's name, unless that label is the pool's own.
#[must_use]
pub fn pool_name_label(pool: &TenantPool) -> String {
    if pool.spec.key == DEFAULT_KEY { value(pool) } else { pool.name_any() }
}

/// Taints of the nodes of a pool with only one kind of node: the pool's own first, then the template's.
#[must_use]
pub fn taints(pool: &TenantPool) -> Vec<Taint> {
    let own = pool.spec.effects.iter().map(|effect| Taint {
        key: pool.spec.key.clone(),
        value: Some(value(pool)),
        effect: match effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::NoExecute => "NoExecute",
        }
        .to_owned(),
        time_added: None,
    });
    own.chain(pool.spec.template.iter().flat_map(|t| t.spec.taints.iter().cloned())).collect()
}

/// Converts a requirement.
#[must_use]
pub fn requirement(wanted: &pool::Requirement) -> Requirement {
    Requirement {
        key: wanted.key.clone(),
        operator: match wanted.operator {
            pool::Operator::In => Operator::In,
            pool::Operator::NotIn => Operator::NotIn,
            pool::Operator::Exists => Operator::Exists,
            pool::Operator::DoesNotExist => Operator::DoesNotExist,
            pool::Operator::Gt => Operator::Gt,
            pool::Operator::Lt => Operator::Lt,
            pool::Operator::Gte => Operator::Gte,
            pool::Operator::Lte => Operator::Lte,
        },
        values: wanted.values.clone(),
        min_values: wanted.min_values.and_then(|n| u32::try_from(n).ok()),
    }
}

fn limits(limits: &BTreeMap<String, Amount>) -> Result<BTreeMap<String, Quantity>, (String, String)> {
    limits
        .iter()
        .map(|(key, Amount(text))| match text.parse::<Quantity>() {
            Ok(quantity) if quantity.is_negative() => {
                Err((key.clone(), format!("{text:?} is negative; write 0 or more")))
            }
            Ok(quantity) => Ok((key.clone(), quantity)),
            Err(error) => Err((key.clone(), error.to_string())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TenantPool {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn pool_carries_its_own_label_and_taint_first() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"pool-a"},
                "spec":{"key":"node-pool","effects":["NoSchedule","NoExecute"],"limits":{"cpu":1000,"costPerHour":"2.5"},
                "template":{"spec":{"nodeClassRef":{"name":"c"},"taints":[{"key":"gpu","effect":"NoSchedule"}],
                "requirements":[{"key":"kubernetes.io/arch","operator":"In","values":["arm64"]}]}}}}"#,
        );
        let pool = super::pool(&pool, |_| Arc::from([])).unwrap().remove(0);
        let taints: Vec<_> = pool.taints.iter().map(|t| (t.key.as_str(), t.effect.as_str())).collect();
        assert_eq!(taints, [("node-pool", "NoSchedule"), ("node-pool", "NoExecute"), ("gpu", "NoSchedule")]);
        assert_eq!(pool.labels["node-pool"], "pool-a");
        assert_eq!(pool.labels[DEFAULT_KEY], "pool-a");
        assert_eq!(pool.limits["cpu"], Quantity::from_units(1000));
        assert_eq!(pool.limits["costPerHour"], Quantity::from_millis(2500));
        assert!(pool.launches);
    }

    #[test]
    fn each_template_is_a_pool_of_its_own_with_its_name_weight_and_limits() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"p"},
                "spec":{"key":"node-pool","weight":2,"limits":{"nodes":9},"templates":[
                {"name":"spot","weight":10,"limits":{"cpu":4},"spec":{"nodeClassRef":{"name":"c"},
                    "taints":[{"key":"spot","effect":"NoSchedule"}]}},
                {"name":"steady","metadata":{"labels":{"team":"a"}},"spec":{"nodeClassRef":{"name":"d"}}}]}}"#,
        );
        let classes = std::cell::RefCell::new(Vec::new());
        let types = |template: &TenantPool| {
            let class = template.spec.template.as_ref().map(|t| t.spec.node_class_ref.name.clone());
            classes.borrow_mut().extend(class);
            Arc::from([])
        };
        let pools = super::pool(&pool, types).unwrap();
        assert_eq!(*classes.borrow(), ["c", "d"], "each has the types of its own class");
        let names: Vec<_> = pools.iter().map(|pool| (pool.name.as_str(), pool.template.as_str())).collect();
        assert_eq!(names, [("p", "spot"), ("p", "steady")]);
        let [spot, steady] = pools.as_slice() else { panic!("{pools:?}") };
        assert_eq!((spot.weight, steady.weight), (212, 202), "the pool's weight counts first");
        assert_eq!(spot.template_limits["cpu"], Quantity::from_units(4));
        assert!(steady.template_limits.is_empty() && steady.limits == spot.limits);
        assert_eq!(spot.labels["croft.dev/template"], "spot");
        assert_eq!((steady.labels["team"].as_str(), steady.labels["node-pool"].as_str()), ("a", "p"));
        assert_eq!((spot.taints.len(), steady.taints.len()), (2, 1));
        assert!(spot.launches && steady.launches);
    }

    #[test]
    fn share_is_one_bound_or_two_and_every_template_has_it() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"p"},"spec":{
                "shares":[{"capacityType":"spot","max":"70%"},{"template":"b","max":"50%","minNodes":2}],
                "templates":[{"name":"a","spec":{"nodeClassRef":{"name":"c"}}},{"name":"b","spec":{"nodeClassRef":{"name":"c"}}}]}}"#,
        );
        let of_b = ShareOf::Template("b".to_owned());
        let wanted = [
            Share { of: ShareOf::CapacityType(CapacityType::Spot), bound: ShareBound::MaxPercent(70) },
            Share { of: of_b.clone(), bound: ShareBound::MaxPercent(50) },
            Share { of: of_b, bound: ShareBound::MinNodes(2) },
        ];
        let pools = super::pool(&pool, |_| Arc::from([])).unwrap();
        assert!(pools.iter().all(|one| one.shares == wanted), "{pools:?}");

        for (share, said) in [
            (r#"{"max":"70%"}"#, "either a template or a capacityType"),
            (r#"{"capacityType":"cheap","max":"70%"}"#, "either a template or a capacityType"),
            (r#"{"capacityType":"spot","max":"100%"}"#, "from 1% to 99%"),
            (r#"{"capacityType":"spot","max":"0.7"}"#, "from 1% to 99%"),
        ] {
            let pool = read(&format!(
                r#"{{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{{"name":"p"}},"spec":{{
                "template":{{"spec":{{"nodeClassRef":{{"name":"c"}}}}}},"shares":[{share}]}}}}"#
            ));
            let error = super::pool(&pool, |_| Arc::from([])).unwrap_err();
            assert_eq!(error.field, "spec.shares[0]");
            assert!(error.problem.contains(said), "{error}");
        }
    }

    #[test]
    fn field_of_a_template_is_named_by_its_place() {
        let pool = |spec: &str| {
            read(&format!(
                r#"{{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{{"name":"p"}},"spec":{{"templates":[
                {{"name":"a","spec":{{"nodeClassRef":{{"name":"c"}}}}}}, {spec}]}}}}"#
            ))
        };
        for (spec, field) in [
            (
                r#"{"name":"b","spec":{"nodeClassRef":{"name":"c"},"expireAfter":"0s"}}"#,
                "spec.templates[1].spec.expireAfter",
            ),
            (
                r#"{"name":"b","limits":{"cpu":"-1"},"spec":{"nodeClassRef":{"name":"c"}}}"#,
                "spec.templates[1].limits.cpu",
            ),
        ] {
            assert_eq!(super::pool(&pool(spec), |_| Arc::from([])).unwrap_err().field, field);
        }
    }

    #[test]
    fn bound_pod_is_planned_with_a_toleration_of_every_effect_of_its_pool() {
        let pod = |node: &str| -> Pod {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {
                "nodeName": node, "containers": [], "nodeSelector": {"node-pool": "a", "disk": "ssd"},
                "tolerations": [
                    {"key": "node-pool", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
                    {"key": "node-pool", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
                    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            }}))
            .unwrap()
        };
        let effects = |pod: &Pod| -> Vec<Option<String>> {
            let tolerations = pod.spec.iter().flat_map(|s| s.tolerations.iter().flatten());
            tolerations.map(|t| t.effect.clone()).collect()
        };
        let kept = Some("NoSchedule".to_owned());
        assert_eq!(effects(&as_recreated(&pod("n"))), [None, kept.clone(), kept.clone()]);
        let waiting = pod("");
        assert_eq!(*as_recreated(&waiting), waiting, "a waiting pod is bound as it is, or made again");
    }

    #[test]
    fn pool_whose_nodes_expire_at_once_is_refused() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"p"},
                "spec":{"template":{"spec":{"nodeClassRef":{"name":"c"},"expireAfter":"0s"}}}}"#,
        );
        assert_eq!(
            super::pool(&pool, |_| Arc::from([])).unwrap_err().field,
            "spec.template.spec.expireAfter"
        );
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"p"},
                "spec":{"limits":{"cpu":"-1"}}}"#,
        );
        let error = super::pool(&pool, |_| Arc::from([])).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"failed to read TenantPool p: spec.limits.cpu: "-1" is negative; write 0 or more"#
        );
    }
}
