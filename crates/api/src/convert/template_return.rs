//! `spec.return`: which templates of a pool may take the place of which. The controller and `croft simulate` ask the same.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    TenantPool, duration,
    pool::{PoolTemplate, ReturnPolicy},
};

/// The default of `after`.
const AFTER: Duration = Duration::from_secs(600);

fn policy(pool: &TenantPool) -> ReturnPolicy {
    pool.spec.template_return.as_ref().map(|wanted| wanted.policy).unwrap_or_default()
}

/// The time for which a heavier template must have launched without failure before nodes return to it; `None` unless they do so
/// eagerly. An unreadable one, which the schema refuses, counts as the default.
#[must_use]
pub fn after(pool: &TenantPool) -> Option<Duration> {
    let wanted =
        pool.spec.template_return.as_ref().filter(|wanted| wanted.policy == ReturnPolicy::Eagerly)?;
    let read = wanted.after.as_deref().and_then(|text| duration::parse(text).ok().flatten());
    Some(read.unwrap_or(AFTER))
}

/// The weight of the template of this name; `None` if the pool has none.
fn weight(pool: &TenantPool, template: Option<&str>) -> Option<i32> {
    let template = template?;
    pool.spec.templates.iter().find(|one| one.name == template).map(|one| one.weight)
}

fn names<'a>(
    pool: &'a TenantPool,
    is_wanted: impl Fn(&PoolTemplate) -> bool + 'a,
) -> impl Iterator<Item = &'a str> {
    pool.spec.templates.iter().filter(move |one| is_wanted(one)).map(|one| one.name.as_str())
}

/// The templates that may take the place of a node of this one, if the policy is `Never`: those that aren't heavier. `None` if all may.
#[must_use]
pub fn not_heavier(pool: &TenantPool, template: Option<&str>) -> Option<BTreeSet<String>> {
    let own = weight(pool, template).filter(|_| policy(pool) == ReturnPolicy::Never)?;
    Some(names(pool, move |one| one.weight <= own).map(str::to_owned).collect())
}

/// The templates that may take the place of a node of this one when the cost alone is the reason. With `Eagerly` none of them is
/// lighter: its nodes would return at once. `None` if all may.
#[must_use]
pub fn of_consolidation(pool: &TenantPool, template: Option<&str>) -> Option<BTreeSet<String>> {
    if policy(pool) != ReturnPolicy::Eagerly {
        return not_heavier(pool, template);
    }
    let own = weight(pool, template)?;
    Some(names(pool, move |one| one.weight >= own).map(str::to_owned).collect())
}

/// The templates to which a node of this one returns eagerly: the heavier ones that follow the demand. None for a node of a fixed size.
pub fn heavier<'a>(pool: &'a TenantPool, template: Option<&str>) -> impl Iterator<Item = &'a str> {
    let follows_demand = super::static_capacity::size_of(pool, template).is_none();
    let own = weight(pool, template).filter(|_| follows_demand && policy(pool) == ReturnPolicy::Eagerly);
    names(pool, move |one| one.replicas.is_none() && own.is_some_and(|own| one.weight > own))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(wanted: Value) -> TenantPool {
        let template = |name: &str, weight: i32| json!({"name": name, "weight": weight, "spec": {"nodeClassRef": {"name": "c"}}});
        let mut fixed = template("fixed", 20);
        fixed["replicas"] = json!(1);
        let templates = [template("light", 0), template("middle", 5), template("heavy", 10), fixed];
        let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
            "spec": {"templates": templates, "return": wanted}});
        serde_json::from_value(object).unwrap()
    }

    fn listed(names: Option<BTreeSet<String>>) -> Option<String> {
        names.map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_policy_says_which_templates_may_take_the_place_of_which() {
        for (policy, not_heavier_one, consolidation, eager) in [
            (json!({"policy": "Never"}), Some("light middle"), Some("light middle"), ""),
            (json!({"policy": "WhenConsolidating"}), None, None, ""),
            (json!({}), None, None, ""),
            (Value::Null, None, None, ""),
            (json!({"policy": "Eagerly"}), None, Some("fixed heavy middle"), "heavy"),
        ] {
            let pool = pool(policy.clone());
            let middle = Some("middle");
            assert_eq!(listed(not_heavier(&pool, middle)).as_deref(), not_heavier_one, "{policy}");
            assert_eq!(listed(of_consolidation(&pool, middle)).as_deref(), consolidation, "{policy}");
            assert_eq!(heavier(&pool, middle).collect::<Vec<_>>().join(" "), eager, "{policy}");
            for other in [None, Some("gone"), Some("fixed")] {
                assert_eq!(heavier(&pool, other).count(), 0, "{policy}: {other:?}");
            }
            assert_eq!(not_heavier(&pool, Some("gone")), None, "{policy}");
        }
    }

    #[test]
    fn eager_nodes_wait_ten_minutes_unless_the_pool_says_for_how_long() {
        for (wanted, seconds) in [
            (json!({"policy": "Eagerly"}), Some(600)),
            (json!({"policy": "Eagerly", "after": "1h"}), Some(3_600)),
            (json!({"policy": "Never"}), None),
            (Value::Null, None),
        ] {
            assert_eq!(after(&pool(wanted.clone())), seconds.map(Duration::from_secs), "{wanted}");
        }
    }
}
