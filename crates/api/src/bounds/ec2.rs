//! Schemas of the fields of an EC2NodeClass: what EC2 accepts.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{QUALIFIED, rule, rule_of_keys, schema};

/// Characters of a tag. Source: the AWS tagging guide.
const TAG: &str = r"^[\\p{L}\\p{Z}\\p{N}_.:/=+@-]*$";
/// Maximum length of the key and the value of a tag.
const TAG_KEY: u32 = 128;
const TAG_VALUE: u32 = 256;

/// Matches an id with this prefix, such as `subnet-0123456789abcdef0`.
fn id(prefix: &str) -> String {
    format!("matches('^{prefix}-[0-9a-zA-Z-]{{1,64}}$')")
}

fn tag_map(most: u32, mut rules: Vec<Value>) -> Value {
    rules.insert(
        0,
        rule_of_keys(
            &format!("size(k) > 0 && size(k) <= {TAG_KEY} && k.matches('{TAG}') && self[k].matches('{TAG}')"),
            "a tag's key has 1 to 128 characters, its value up to 256: write letters, digits, spaces and _ . : / = + - @",
        ),
    );
    json!({
        "type": "object",
        "maxProperties": most,
        "additionalProperties": {"type": "string", "maxLength": TAG_VALUE},
        "x-kubernetes-validations": rules,
    })
}

/// Tags of all resources that are launched. EC2 accepts 50 on one resource, of which Croft needs seven.
pub(crate) fn tags(_: &mut SchemaGenerator) -> Schema {
    schema(tag_map(
        40,
        vec![rule_of_keys(
            "!k.startsWith('croft.dev/') && !k.startsWith('aws:') && !k.startsWith('kubernetes.io/cluster/')",
            "tags under croft.dev/, aws: and kubernetes.io/cluster/ are reserved, since Croft and AWS tell instances by them: write a key of your own such as cost-center",
        )],
    ))
}

/// Tags to select by; `*` stands for any value.
pub(crate) fn selected_tags(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 20,
        "additionalProperties": {"type": "string", "maxLength": TAG_VALUE},
        "x-kubernetes-validations": [rule_of_keys(
            &format!("size(k) > 0 && size(k) <= {TAG_KEY}"),
            "a tag's key has 1 to 128 characters: write the key that the resource carries",
        )],
    }))
}

/// A list of terms whose ids begin with `prefix`.
fn terms<Term: JsonSchema>(generator: &mut SchemaGenerator, least: u32, prefix: &str, words: &str) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Term>(),
        "minItems": least,
        "maxItems": 30,
        "x-kubernetes-validations": [rule(format!("self.all(t, !has(t.id) || t.id.{})", id(prefix)), words)],
    })
}

/// Terms that select subnets.
pub(crate) fn subnet_terms<Term: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    terms::<Term>(
        generator,
        1,
        "subnet",
        "write a subnet's id such as subnet-0123456789abcdef0, or select by tags",
    )
}

/// Terms that select security groups.
pub(crate) fn group_terms<Term: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    terms::<Term>(
        generator,
        1,
        "sg",
        "write a security group's id such as sg-0123456789abcdef0, or select by tags",
    )
}

/// Terms that select capacity reservations.
pub(crate) fn reservation_terms<Term: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    terms::<Term>(
        generator,
        0,
        "cr",
        "write a capacity reservation's id such as cr-0123456789abcdef0, or select by tags",
    )
}

fn text(most: u32, expression: impl Into<String>, words: &str) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": most,
        "x-kubernetes-validations": [rule(expression, words)],
    }))
}

/// An id to select by.
pub(crate) fn selected_id(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "minLength": 1, "maxLength": 128}))
}

/// An image's id.
pub(crate) fn image_id(_: &mut SchemaGenerator) -> Schema {
    text(128, format!("self.{}", id("ami")), "write an image's id such as ami-0123456789abcdef0")
}

/// A snapshot's id.
pub(crate) fn snapshot_id(_: &mut SchemaGenerator) -> Schema {
    text(128, format!("self.{}", id("snap")), "write a snapshot's id such as snap-0123456789abcdef0")
}

/// Family and version of an image.
pub(crate) fn alias(_: &mut SchemaGenerator) -> Schema {
    text(
        64,
        "self.matches('^(al2023|al2|bottlerocket)@(latest|v?[0-9.-]+)$')",
        "write a family and a version: al2023, al2 or bottlerocket, '@', and latest, a date such as v20260715 or a release such as v1.20.0",
    )
}

/// The name of an SSM parameter.
pub(crate) fn parameter(_: &mut SchemaGenerator) -> Schema {
    text(
        1_024,
        "self.matches('^[a-zA-Z0-9_.:/-]+$')",
        "write the name of an SSM parameter such as /my/images/latest, or its ARN",
    )
}

/// The name of an IAM role or instance profile.
pub(crate) fn iam_name(_: &mut SchemaGenerator) -> Schema {
    text(
        128,
        "self.matches('^[a-zA-Z0-9_+=,.@-]+$')",
        "write the name alone, without arn: and path, such as croft-node",
    )
}

/// User data. EC2 accepts 16 KiB.
pub(crate) fn user_data(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 16_384}))
}

/// Disks, each with a device name of its own.
pub(crate) fn disks<Disk: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Disk>(),
        "maxItems": 28,
        "x-kubernetes-validations": [rule(
            "self.all(b, self.exists_one(o, o.deviceName == b.deviceName))",
            "each disk has a deviceName of its own: write each name once",
        )],
    })
}

/// The name of a device.
pub(crate) fn device_name(_: &mut SchemaGenerator) -> Schema {
    text(
        64,
        "self.matches('^(/dev/)?[a-z0-9]+$')",
        "write the name of a device as the image knows it, such as /dev/xvda",
    )
}

/// The size of a volume.
pub(crate) fn volume_size(_: &mut SchemaGenerator) -> Schema {
    let size = "self.matches('^[0-9]{1,6}(\\\\.[0-9]{1,3})?(Gi|Ti|G|T)$')";
    schema(json!({
        "type": "string",
        "maxLength": 16,
        "x-kubernetes-validations": [
            rule(size, "write a size with its unit, such as 100Gi or 1Ti"),
            rule(
                format!("!{size} || (quantity(self).compareTo(quantity('1Gi')) >= 0 && quantity(self).compareTo(quantity('64Ti')) <= 0)"),
                "EC2 has volumes from 1Gi to 64Ti: write a size between these",
            ),
        ],
    }))
}

/// The type of a volume.
pub(crate) fn volume_type(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "enum": ["gp3", "gp2", "io1", "io2", "st1", "sc1", "standard"]}))
}

/// A key of KMS.
pub(crate) fn kms_key(_: &mut SchemaGenerator) -> Schema {
    text(
        2_048,
        "self.matches('^[a-zA-Z0-9:/_-]+$')",
        "write the id, the ARN or the alias of a KMS key, such as alias/disks",
    )
}

/// The name of a placement group.
pub(crate) fn placement_group(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "minLength": 1, "maxLength": 255}))
}

/// The number of pods that a kubelet accepts.
pub(crate) fn max_pods(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1_000}))
}

/// Addresses of DNS servers.
pub(crate) fn addresses(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 64},
        "maxItems": 3,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [rule("self.all(a, isIP(a))", "write addresses such as 10.100.0.10")],
    }))
}

/// Resources reserved for processes that aren't pods.
pub(crate) fn reserved(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {"x-kubernetes-int-or-string": true},
        "x-kubernetes-validations": [
            rule_of_keys(
                "type(self[k]) == int ? self[k] >= 0 : (isQuantity(self[k]) && !self[k].startsWith('-'))",
                "write amounts that aren't negative, such as 100m or 500Mi",
            ),
            rule_of_keys(
                "k in ['cpu', 'memory', 'ephemeral-storage', 'pid']",
                "a kubelet reserves cpu, memory, ephemeral-storage and pid: write one of these",
            ),
        ],
    }))
}

/// Eviction thresholds by signal.
pub(crate) fn thresholds(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 32},
        "x-kubernetes-validations": [
            rule_of_keys(
                "k in ['memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree', 'containerfs.available', 'containerfs.inodesFree', 'pid.available']",
                "a kubelet evicts by memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree and pid.available: write one of these",
            ),
            rule_of_keys(
                "self[k].matches('^(100|[0-9]{1,2})(\\\\.[0-9]{1,3})?%$') || (isQuantity(self[k]) && !self[k].startsWith('-'))",
                "write a share such as 5%, or an amount such as 200Mi",
            ),
        ],
    }))
}

/// A resource by name, with the amount for which an instance was planned.
pub(crate) fn recorded_amounts(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 200,
        "additionalProperties": {"x-kubernetes-int-or-string": true},
        "x-kubernetes-validations": [rule_of_keys(
            &format!("k.matches('{QUALIFIED}')"),
            "write names of resources such as cpu or nvidia.com/gpu",
        )],
    }))
}
