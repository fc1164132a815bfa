//! Amounts of ResourceQuotas and LimitRanges, which the API server stores in a form of its own: `1000m` as `1`.

use std::collections::BTreeMap;

use croft_scheduler::Quantity;
use serde_json::Value;

use crate::kube_api::ObjectKind;

/// Thousandths by the name of a resource.
pub(in crate::tenant) type Amounts = BTreeMap<String, i64>;

/// The amounts of a ResourceQuota, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tenant) struct QuotaFacts {
    /// The amounts that it should allow.
    pub(in crate::tenant) declared: Amounts,
    /// The amounts that the API server's admission allows; `None` before the quota controller has seen it.
    pub(in crate::tenant) allowed: Option<Amounts>,
    pub(in crate::tenant) used: Amounts,
}

impl QuotaFacts {
    /// Admission compares with the status of a quota, and so enforces nothing before the quota controller has written it.
    pub(in crate::tenant) fn is_enforced(&self) -> bool {
        self.allowed.as_ref().is_some_and(|allowed| allowed.keys().eq(self.declared.keys()))
    }
}

const MEBIBYTE: i64 = 1 << 20;
const THOUSAND: i64 = 1_000;

/// The content of an object with its quantities in one form, so that equal ones are equal text.
pub(in crate::tenant) fn normalized(kind: ObjectKind, content: Value) -> Value {
    match kind {
        ObjectKind::ResourceQuota | ObjectKind::LimitRange => in_one_form(content),
        ObjectKind::NetworkPolicy | ObjectKind::RoleBinding | ObjectKind::ClusterRoleBinding => content,
    }
}

fn in_one_form(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, in_one_form(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(in_one_form).collect()),
        Value::String(text) => {
            let quantity = text.parse::<Quantity>().map(|quantity| quantity.to_string());
            Value::String(quantity.unwrap_or(text))
        }
        other => other,
    }
}

/// The amounts of a map of quantities; `None` if it isn't there.
pub(in crate::tenant) fn amounts(map: Option<&Value>) -> Option<Amounts> {
    let entry = |(name, value): (&String, &Value)| Some((name.clone(), millis(value.as_str()?)?));
    Some(map?.as_object()?.iter().filter_map(entry).collect())
}

/// Thousandths of a quantity.
pub(in crate::tenant) fn millis(text: &str) -> Option<i64> {
    text.parse::<Quantity>().ok().map(Quantity::millis)
}

/// An amount as a quantity that reads well.
pub(in crate::tenant) fn text(millis: i64) -> String {
    let units = millis / THOUSAND;
    if millis % THOUSAND == 0 && units < MEBIBYTE {
        return units.to_string();
    }
    Quantity::from_millis(millis).to_string()
}

/// The smallest step in which a resource is divided among namespaces.
pub(in crate::tenant) fn step(resource: &str) -> i64 {
    match resource.strip_prefix("requests.").or_else(|| resource.strip_prefix("limits.")).unwrap_or(resource)
    {
        "cpu" => 1,
        "memory" | "storage" | "ephemeral-storage" => MEBIBYTE * THOUSAND,
        _ => THOUSAND,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_quantities_are_equal_text() {
        let one = |hard: Value| normalized(ObjectKind::ResourceQuota, json!({"spec": {"hard": hard}}));
        assert_eq!(
            one(json!({"requests.cpu": "0.5", "pods": "10", "requests.memory": "1024Mi"})),
            one(json!({"requests.cpu": "500m", "pods": "10", "requests.memory": "1Gi"}))
        );
        assert_ne!(one(json!({"pods": "10"})), one(json!({"pods": "11"})));
    }

    #[test]
    fn amounts_are_written_as_people_write_them() {
        let written = [text(50_000), text(2_048_000), text(1_500), text(MEBIBYTE * 512 * THOUSAND)];
        assert_eq!(written, ["50", "2048", "1500m", "512Mi"]);
    }
}
