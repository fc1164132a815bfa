//! TenantPools and Tenants as the scheduler reads them.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{InputError, InstanceType, Operator, Pool, Quantity, Requirement, TenantLimits};
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

use crate::{
    Tenant, TenantPool,
    amount::Amount,
    pool::{self, DEFAULT_KEY, Effect, Provisioner},
};

/// A pool, with what its class may launch. A pool that Croft doesn't provision launches nothing.
///
/// # Errors
/// When a limit is no quantity, or a requirement contradicts its operator.
pub fn pool(pool: &TenantPool, instance_types: Arc<[InstanceType]>) -> Result<Pool, InputError> {
    let name = pool.name_any();
    let error = |field: String, problem: String| InputError {
        kind: "TenantPool",
        name: name.clone(),
        field,
        problem,
    };
    let spec = &pool.spec;
    let template = spec.template.as_ref();
    let mut requirements = Vec::new();
    for (index, wanted) in template.iter().flat_map(|t| &t.spec.requirements).enumerate() {
        let wanted = requirement(wanted);
        wanted
            .check()
            .map_err(|problem| error(format!("spec.template.spec.requirements[{index}]"), problem))?;
        requirements.push(wanted);
    }
    let mut labels = template.map(|t| t.metadata.labels.clone()).unwrap_or_default();
    labels.insert(DEFAULT_KEY.to_owned(), name.clone());
    labels.insert(spec.key.clone(), value(pool));
    Ok(Pool {
        name: name.clone(),
        key: spec.key.clone(),
        value: value(pool),
        weight: spec.weight,
        limits: limits(&spec.limits)
            .map_err(|(key, problem)| error(format!("spec.limits.{key}"), problem))?,
        requirements,
        labels,
        taints: taints(pool),
        startup_taints: template.map(|t| t.spec.startup_taints.clone()).unwrap_or_default(),
        instance_types,
        launches: spec.provisioner == Provisioner::Croft && template.is_some() && spec.replicas.is_none(),
        replicas: spec.replicas.and_then(|n| u32::try_from(n).ok()),
    })
}

/// What a tenant's pools may have together.
///
/// # Errors
/// When a limit is no quantity.
pub fn tenant_limits(tenant: &Tenant) -> Result<TenantLimits, InputError> {
    let limits = limits(&tenant.spec.limits).map_err(|(key, problem)| InputError {
        kind: "Tenant",
        name: tenant.name_any(),
        field: format!("spec.limits.{key}"),
        problem,
    })?;
    Ok(TenantLimits { tenant: tenant.name_any(), pools: tenant.spec.pools.clone(), limits })
}

/// The value of the pool's label and taint.
#[must_use]
pub fn value(pool: &TenantPool) -> String {
    pool.spec.value.clone().unwrap_or_else(|| pool.name_any())
}

/// Taints of the pool's nodes: the pool's own first, then the template's.
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

/// A requirement in the scheduler's words.
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
    fn a_pool_carries_its_own_label_and_taint_first() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"pool-a"},
                "spec":{"key":"node-pool","effects":["NoSchedule","NoExecute"],"limits":{"cpu":1000,"costPerHour":"2.5"},
                "template":{"spec":{"nodeClassRef":{"name":"c"},"taints":[{"key":"gpu","effect":"NoSchedule"}],
                "requirements":[{"key":"kubernetes.io/arch","operator":"In","values":["arm64"]}]}}}}"#,
        );
        let pool = super::pool(&pool, Arc::from([])).unwrap();
        let taints: Vec<_> = pool.taints.iter().map(|t| (t.key.as_str(), t.effect.as_str())).collect();
        assert_eq!(taints, [("node-pool", "NoSchedule"), ("node-pool", "NoExecute"), ("gpu", "NoSchedule")]);
        assert_eq!(pool.labels["node-pool"], "pool-a");
        assert_eq!(pool.labels[DEFAULT_KEY], "pool-a");
        assert_eq!(pool.limits["cpu"], Quantity::from_units(1000));
        assert_eq!(pool.limits["costPerHour"], Quantity::from_millis(2500));
        assert!(pool.launches);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let pool = read(
            r#"{"apiVersion":"croft.dev/v1alpha1","kind":"TenantPool","metadata":{"name":"p"},
                "spec":{"limits":{"cpu":"-1"}}}"#,
        );
        let error = super::pool(&pool, Arc::from([])).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"failed to read TenantPool p: spec.limits.cpu: "-1" is negative; write 0 or more"#
        );
    }
}
