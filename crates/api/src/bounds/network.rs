//! Schemas of who may reach a tenant's pods, and of what they may reach.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{DNS_LABEL, rule, schema};

const CIDR_WORDS: &str = "write a block of addresses such as 10.0.0.0/16, 203.0.113.7/32 or fd00:10::/64, with the bits behind the prefix at zero";

/// The longest block: an IPv6 address of 39 characters, a slash and three digits.
const CIDR_LENGTH: u32 = 43;

/// A block of addresses. The API server refuses a NetworkPolicy with bits behind the prefix
/// (`k8s.io/apimachinery/pkg/util/validation`, `IsValidCIDRForLegacyField` and its strict form).
fn block(description: &str) -> Value {
    json!({
        "type": "string",
        "description": description,
        "minLength": 1,
        "maxLength": CIDR_LENGTH,
        "x-kubernetes-validations": [rule("isCIDR(self) && cidr(self) == cidr(self).masked()", CIDR_WORDS)],
    })
}

/// A block of addresses.
pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    schema(block(""))
}

/// Blocks of addresses, each once.
pub(crate) fn except(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": block("A block of addresses."),
        "maxItems": 16,
        "x-kubernetes-list-type": "set",
    }))
}

/// The name of a namespace.
pub(crate) fn namespace(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [rule(
            format!("self.matches('{DNS_LABEL}')"),
            "write the exact name of a namespace: at most 63 lower-case letters, digits and '-'. A pattern such as team-* is no name",
        )],
    }))
}

/// Namespaces and blocks of addresses.
pub(crate) fn peers<Peer: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": generator.subschema_for::<Peer>(),
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
    }))
}
