//! Schemas of amounts of resources: requests, limits, and what an instance's type doesn't say.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{KEY_LENGTH, QUALIFIED, push, rule, rule_of_keys, schema};

/// A key is a resource that nodes have, or one of `more`.
pub(super) fn resource_name(more: &str) -> String {
    format!("k in ['cpu', 'memory', 'ephemeral-storage', 'pods'{more}] || {}", device_or_huge_pages())
}

/// A key is a resource that some nodes have: a device, or huge pages.
fn device_or_huge_pages() -> String {
    format!(
        "k.startsWith('hugepages-') || (k.contains('/') && size(k) <= {KEY_LENGTH} && k.matches('{QUALIFIED}'))"
    )
}

/// Amounts by resource name, none of them negative. An int-or-string counts as large as a whole request in the estimate
/// of costs, hence the few entries and the one call.
pub(super) fn amounts(names: Value) -> Value {
    at_most(24, names)
}

pub(super) fn at_most(most: u32, names: Value) -> Value {
    json!({
        "type": "object",
        "maxProperties": most,
        "additionalProperties": {"x-kubernetes-int-or-string": true},
        "x-kubernetes-validations": [
            rule_of_keys(
                "type(self[k]) == int ? self[k] >= 0 : (isQuantity(self[k]) && !self[k].startsWith('-'))",
                "write amounts that aren't negative: a number with an optional suffix, such as 500m, 100 or 64Gi",
            ),
            names,
        ],
    })
}

/// One amount that isn't negative.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [rule(
            "type(self) == int ? self >= 0 : (isQuantity(self) && !self.startsWith('-'))",
            "write an amount that isn't negative: a number with an optional suffix, such as 500m, 100 or 64Gi",
        )],
    }))
}

/// Limits: amounts of resources, nodes and dollars per hour.
pub(crate) fn limits(_: &mut SchemaGenerator) -> Schema {
    limits_of(24)
}

/// Limits of one of a pool's templates: there are several, which the estimate of costs multiplies.
pub(crate) fn template_limits(_: &mut SchemaGenerator) -> Schema {
    limits_of(6)
}

/// Limits of one of a pool's schedules. A pattern costs nothing in the estimate, which multiplies rules by schedules and entries.
pub(crate) fn schedule_limits(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 6,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "pattern": AMOUNT,
        },
        "x-kubernetes-validations": [names_of_limits()],
    }))
}

/// An amount that isn't negative, as a pattern.
const AMOUNT: &str = "^[0-9]{1,15}([.][0-9]{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$";

fn names_of_limits() -> Value {
    rule_of_keys(
        &resource_name(", 'nodes', 'costPerHour'"),
        "there are limits of cpu, memory, ephemeral-storage, pods, nodes, costPerHour (dollars), hugepages-* and devices such as nvidia.com/gpu: write one of these",
    )
}

fn limits_of(most: u32) -> Schema {
    let mut limits = at_most(most, names_of_limits());
    push(
        &mut limits,
        rule(
            "!('nodes' in self) || type(self['nodes']) == int || self['nodes'].matches('^[0-9]+$')",
            "nodes is a whole number: write for example 50",
        ),
    );
    schema(limits)
}

/// Amounts of resources that nodes have beside those of their instance type.
pub(crate) fn declared_amounts(_: &mut SchemaGenerator) -> Schema {
    let names = rule_of_keys(
        &device_or_huge_pages(),
        "an instance's type says how much cpu and memory it has: write devices such as smarter-devices/fuse, and hugepages-*",
    );
    // A pattern costs nothing in the estimate, which multiplies rules by templates and entries.
    schema(json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "pattern": AMOUNT,
        },
        "x-kubernetes-validations": [names],
    }))
}

/// The requests of one pod.
pub(crate) fn requests(_: &mut SchemaGenerator) -> Schema {
    let names = rule_of_keys(
        &resource_name(""),
        "pods ask for cpu, memory, ephemeral-storage, hugepages-* and devices such as nvidia.com/gpu: write one of these",
    );
    let mut requests = amounts(names);
    push(&mut requests, rule("size(self) > 0", "write what each pod asks for, such as cpu: 500m"));
    schema(requests)
}
