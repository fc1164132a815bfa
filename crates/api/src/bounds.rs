//! Schemas of fields that several resources have: names, labels, taints, amounts, durations. The messages of their
//! rules say what to write instead.
//!
//! A rule in CEL is preferred to a `pattern`, whose message is the regular expression. Every list, map and string has a
//! maximum size: the API server multiplies these to estimate the cost of rules, and refuses a CRD above its limit
//! (`k8s.io/apiextensions-apiserver`, `StaticEstimatedCostLimit`). [`crate::rules`] checks files and stored objects by
//! the same schemas.
//!
//! The kinds import their bounds, so a list takes the type of its items as a parameter: no kind is imported here.

mod amounts;
mod disruption;
mod ec2;
mod given;
mod network;

pub(crate) use amounts::*;
pub(crate) use disruption::*;
pub(crate) use ec2::*;
pub(crate) use given::*;
pub(crate) use network::*;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::definitions::{KARPENTER_NODE_POOL_LABEL, KARPENTER_PROVISIONER_LABEL};

/// A DNS label, such as the name of a namespace.
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
/// A DNS subdomain, such as the names of most objects.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The key of a label, a taint or a resource: a name, or a DNS subdomain, a slash and a name.
const QUALIFIED: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// The value of a label or a taint.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
/// Characters of a label's value. Lists of many values are checked by these alone, within the estimate of costs.
pub(crate) const LABEL_CHARACTERS: &str = "^[A-Za-z0-9_.-]*$";
/// A Go duration. The digits are few enough that no sum of parts overflows.
const DURATION: &str =
    r"^([0-9]{1,5}(\\.[0-9]{1,3})?h|[0-9]{1,7}(\\.[0-9]{1,3})?m|[0-9]{1,9}(\\.[0-9]{1,3})?s|[0-9]{1,12}ms)+$";
/// Domains whose labels Kubernetes, the cloud or Croft itself writes, and subdomains of them.
const WRITTEN_BY_OTHERS: &str =
    r"^(([^/]*\\.)?(kubernetes\\.io|k8s\\.io)|(.*\\.)?croft\\.dev|karpenter\\.sh|karpenter\\.k8s\\.aws)/";

/// Maximum length of a label key: a DNS subdomain, a slash and a name.
const KEY_LENGTH: u32 = 317;

fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}

fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({"rule": rule.into(), "message": message})
}

/// Names of namespaces, each once.
pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 253},
        "maxItems": 10_000,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [rule(
            format!("self.all(n, n.matches('{DNS_LABEL}'))"),
            "write exact names of namespaces: at most 63 lower-case letters, digits and '-'. A pattern such as team-* is no name: list each namespace, or select a Tenant's by label with namespaceSelector",
        )],
    }))
}

/// Names of TenantPools, each once.
pub(crate) fn pools(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 253},
        "minItems": 1,
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [rule(
            format!("self.all(p, size(p) <= 40 && p.matches('{SUBDOMAIN}'))"),
            "write exact names of TenantPools: at most 40 lower-case letters, digits, '-' and '.'",
        )],
    }))
}

/// Names of schedulers, each once, without that of kube-scheduler's default profile.
pub(crate) fn scheduler_names(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [rule(
            "self.all(s, s != 'default-scheduler')",
            "pods of default-scheduler are the demand that Croft launches nodes for: name others, such as volcano",
        )],
    }))
}

/// User names, each once.
pub(crate) fn users(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 253},
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [rule(
            "self.all(u, u.matches('^[^*[:space:]]+$'))",
            "write exact user names such as system:kube-scheduler: names are compared as they are, without patterns",
        )],
    }))
}

/// Beginnings of labels and annotations, each once.
pub(crate) fn owner_metadata(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 128},
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "x-kubernetes-validations": [
            rule(
                r"self.all(m, m.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[-A-Za-z0-9_.]*$'))",
                "write beginnings of keys with their domain, such as argocd.argoproj.io/ or app.kubernetes.io/managed-by, without patterns",
            ),
            rule(
                r"self.all(m, !m.matches('^((.*\\.)?croft\\.dev|pod-security\\.kubernetes\\.io|scheduler\\.alpha\\.kubernetes\\.io)/'))",
                "owners may never write what decides where pods run and what they may do: leave out croft.dev, pod-security.kubernetes.io and scheduler.alpha.kubernetes.io",
            ),
        ],
    }))
}

/// A selector of namespaces by label.
pub(crate) fn selector(_: &mut SchemaGenerator) -> Schema {
    let operator = json!({
        "type": "string",
        "description": "How the label's value relates to `values`.",
        "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
    });
    let values = json!({
        "type": "array",
        "description": "Values for In and NotIn, at least one; none for Exists and DoesNotExist.",
        "items": {"type": "string", "maxLength": 63},
        "maxItems": 500,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [rule(format!("self.all(v, v.matches('{LABEL_CHARACTERS}'))"), VALUE_WORDS)],
    });
    schema(json!({
        "type": "object",
        "properties": {
            "matchLabels": label_map("Labels that the namespace must have, with these values."),
            "matchExpressions": {
                "type": "array",
                "description": "Requirements on labels of the namespace, all of which must hold.",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "description": "The label's key.",
                            "maxLength": KEY_LENGTH,
                            "x-kubernetes-validations": [rule(format!("self.matches('{QUALIFIED}')"), KEY_WORDS)],
                        },
                        "operator": operator,
                        "values": values,
                    },
                    "x-kubernetes-validations": [
                        rule(
                            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
                            "operators In and NotIn need values: write at least one. NotIn without values would claim every namespace",
                        ),
                        rule(
                            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
                            "operators Exists and DoesNotExist take no values: leave values out, or write In or NotIn",
                        ),
                    ],
                },
            },
        },
        "x-kubernetes-validations": [rule(
            "(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "an empty namespaceSelector would claim every namespace: write at least one matchLabels entry or matchExpressions requirement",
        )],
    }))
}

const KEY_WORDS: &str = "write a label's key such as team or example.com/team: a name of at most 63 letters, digits, '-', '_' and '.', behind a DNS name and a slash if it has a prefix";
const VALUE_WORDS: &str = "write a label's value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit";

fn label_map(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": 253,
            "x-kubernetes-validations": [rule(format!("self.matches('{LABEL_VALUE}')"), VALUE_WORDS)],
        },
        "x-kubernetes-validations": [rule_of_keys(
            &format!("size(k) <= {KEY_LENGTH} && k.matches('{QUALIFIED}')"),
            KEY_WORDS,
        )],
    })
}

/// The key of a label.
pub(crate) fn key(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_LENGTH,
        "x-kubernetes-validations": [rule(format!("self.matches('{QUALIFIED}')"), KEY_WORDS)],
    }))
}

/// Values of a label: with so many values in so many requirements, a rule in CEL would cost more than the API server
/// allows.
pub(crate) fn label_values(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": {"type": "string", "maxLength": 63, "pattern": LABEL_CHARACTERS},
        "maxItems": 1_000,
    }))
}

/// Labels as a NodeClaim records them.
pub(crate) fn recorded_labels(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 200,
        "additionalProperties": {"type": "string", "maxLength": 253},
    }))
}

/// The capacity type of an instance.
pub(crate) fn capacity_type(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "enum": ["on-demand", "spot", "reserved"]}))
}

/// The largest part of a pool that some of its nodes may be.
pub(crate) fn max_share(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 8,
        "x-kubernetes-validations": [rule(
            "self.matches('^[1-9][0-9]?%$')",
            "write a part of the pool's vCPU from 1% to 99%, such as 70%",
        )],
    }))
}

/// The key of a pool's label and taint.
pub(crate) fn pool_key(_: &mut SchemaGenerator) -> Schema {
    let own = "self.matches('^([^/]*\\\\.)?node-restriction\\\\.kubernetes\\\\.io/')";
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_LENGTH,
        "x-kubernetes-validations": [
            rule(format!("self.matches('{QUALIFIED}')"), KEY_WORDS),
            rule(
                format!("{own} || !self.matches('{WRITTEN_BY_OTHERS}')"),
                "this label is written by Kubernetes, the cloud, Karpenter or Croft: write a key of your own such as example.com/pool, or one under node-restriction.kubernetes.io/",
            ),
        ],
    }))
}

/// The value of a pool's label and taint.
pub(crate) fn pool_value(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [rule(format!("self.matches('{LABEL_VALUE}')"), VALUE_WORDS)],
    }))
}

/// Labels of a pool's nodes: those that a kubelet may register with, and that say nothing about the instance.
/// Source: kubernetes, cmd/kubelet/app/options/options.go (`ValidateKubeletFlags`).
///
/// Two of Karpenter's labels name a pool and no instance: pods that were written for Karpenter select them. Its others are facts of an
/// instance, such as the capacity type, or marks by which it knows its own nodes, such as `karpenter.sh/registered`.
pub(crate) fn template_labels(_: &mut SchemaGenerator) -> Schema {
    let mut labels = label_map("");
    let allowed = "k.matches('^([^/]*\\\\.)?(kubelet|node)\\\\.kubernetes\\\\.io/')";
    let of_karpenter = format!("k in ['{KARPENTER_NODE_POOL_LABEL}', '{KARPENTER_PROVISIONER_LABEL}']");
    push(
        &mut labels,
        rule_of_keys(
            &format!(
                "!k.matches('{WRITTEN_BY_OTHERS}') || {of_karpenter} || ({allowed} && k != 'node.kubernetes.io/instance-type')"
            ),
            "no kubelet may set a label under kubernetes.io, k8s.io or node-restriction.kubernetes.io, but for kubelet.kubernetes.io/ and node.kubernetes.io/; labels of zone, type, architecture and capacity type follow from the instance; of those under karpenter.sh/ a template may have karpenter.sh/nodepool and karpenter.sh/provisioner-name. Write a key of your own such as example.com/team, and choose instances by requirements",
        ),
    );
    schema(labels)
}

/// Annotations of a pool's nodes.
pub(crate) fn template_annotations(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 4_096},
        "x-kubernetes-validations": [
            rule_of_keys(&format!("size(k) <= {KEY_LENGTH} && k.matches('{QUALIFIED}')"), KEY_WORDS),
            rule_of_keys(
                "!k.matches('^((.*\\\\.)?croft\\\\.dev|karpenter\\\\.sh)/') || k.endsWith('/do-not-disrupt')",
                "Croft writes annotations under croft.dev/ itself: of those write only croft.dev/do-not-disrupt or karpenter.sh/do-not-disrupt",
            ),
        ],
    }))
}

/// Requirements of a pool on its nodes' labels, for keys that an instance can have.
pub(crate) fn requirements<Requirement: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let capacity = "['on-demand', 'spot', 'reserved']";
    let among = |key: &str, values: &str| {
        format!(
            "self.all(r, !(r.key in {key}) || !(r.operator in ['In', 'NotIn']) || !has(r.values) || r.values.all(v, v in {values}))"
        )
    };
    schema(json!({
        "type": "array",
        "items": generator.subschema_for::<Requirement>(),
        "maxItems": 100,
        "x-kubernetes-validations": [
            rule(
                "self.all(r, !r.key.matches('^(.*\\\\.)?croft\\\\.dev/') || r.key == 'croft.dev/capacity-type')",
                "of the keys under croft.dev/ only croft.dev/capacity-type says something about an instance: write that one, or the well-known key that you mean",
            ),
            rule(
                "self.all(r, !r.key.startsWith('karpenter.sh/') || r.key == 'karpenter.sh/capacity-type')",
                "of the keys under karpenter.sh/ only karpenter.sh/capacity-type says something about an instance: write that one, or a label in template.metadata.labels: karpenter.sh/nodepool, karpenter.sh/provisioner-name or one of your own",
            ),
            rule(
                "self.all(r, !(r.key in ['kubernetes.io/hostname']) && !r.key.matches('^([^/]*\\\\.)?(node-restriction|node-role)\\\\.kubernetes\\\\.io/'))",
                "an instance has no such label before it is launched: leave the requirement out, and choose by type, zone, architecture or capacity type",
            ),
            rule(
                among("['karpenter.sh/capacity-type', 'croft.dev/capacity-type']", capacity),
                "karpenter.sh/capacity-type is on-demand, spot or reserved: write one of these",
            ),
            rule(
                among("['kubernetes.io/arch', 'beta.kubernetes.io/arch']", "['amd64', 'arm64']"),
                "kubernetes.io/arch is amd64 or arm64: write one of these",
            ),
        ],
    }))
}

/// Taints of a pool's nodes.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    schema(taint_list(
        "!self.exists(t, t.key.matches('^((.*\\\\.)?croft\\\\.dev|karpenter\\\\.sh|([^/]*\\\\.)?node\\\\.kubernetes\\\\.io|([^/]*\\\\.)?node\\\\.cloudprovider\\\\.kubernetes\\\\.io)/'))",
        "Kubernetes, the cloud or Croft writes taints under node.kubernetes.io, node.cloudprovider.kubernetes.io, croft.dev and karpenter.sh, and takes them away: write a key of your own such as example.com/gpu",
    ))
}

/// Taints that a process on the node removes.
pub(crate) fn startup_taints(_: &mut SchemaGenerator) -> Schema {
    schema(taint_list(
        "!self.exists(t, t.key.matches('^((.*\\\\.)?croft\\\\.dev|karpenter\\\\.sh|([^/]*\\\\.)?node\\\\.kubernetes\\\\.io)/'))",
        "Kubernetes or Croft writes taints under node.kubernetes.io, croft.dev and karpenter.sh: write the key of the taint that your own DaemonSet takes away",
    ))
}

/// Taints as a NodeClaim records them.
pub(crate) fn recorded_taints(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "array", "maxItems": 200, "items": taint(json!([]), json!([]))}))
}

fn taint(key: Value, value: Value) -> Value {
    json!({
        "type": "object",
        "description": "A taint of a node.",
        "required": ["key", "effect"],
        "properties": {
            "key": {
                "type": "string",
                "description": "The taint's key.",
                "minLength": 1,
                "maxLength": KEY_LENGTH,
                "x-kubernetes-validations": key,
            },
            "value": {
                "type": "string",
                "description": "The taint's value.",
                "maxLength": 253,
                "x-kubernetes-validations": value,
            },
            "effect": {
                "type": "string",
                "description": "What happens to pods that don't tolerate the taint.",
                "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
            },
        },
    })
}

fn taint_list(allowed: &str, words: &str) -> Value {
    let key = json!([rule(format!("self.matches('{QUALIFIED}')"), KEY_WORDS)]);
    let value = json!([rule(format!("self.matches('{LABEL_VALUE}')"), VALUE_WORDS)]);
    json!({
        "type": "array",
        "maxItems": 32,
        "items": taint(key, value),
        "x-kubernetes-validations": [
            rule(allowed, words),
            rule(
                "self.all(t, self.exists_one(u, u.key == t.key && u.effect == t.effect))",
                "a node has one taint per key and effect: write each pair once",
            ),
        ],
    })
}

/// A rule for each key `k` of a map. The API server's error names the first key that breaks it, besides `message`.
fn rule_of_keys(valid: &str, message: &str) -> Value {
    let said = message.replace('\'', "\\'");
    json!({
        "rule": format!("self.all(k, {valid})"),
        "message": message,
        "messageExpression": format!("self.filter(k, !({valid}))[0] + ': {said}'"),
    })
}

fn push(schema: &mut Value, rule: Value) {
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.push(rule);
    }
}

/// A condition on a duration, and what to write instead.
type Bound = (&'static str, &'static str);

const AT_MOST_TEN_YEARS: Bound = (
    "duration(self) <= duration('87600h')",
    "write at most 87600h, which is ten years, or leave the field out",
);

fn duration(never: bool, bounds: &[Bound]) -> Schema {
    let (or_never, words) = if never {
        ("self == 'Never' || ", "write a duration such as 30s, 5m, 1h30m or 720h, or Never")
    } else {
        ("", "write a duration such as 30s, 5m, 1h30m or 720h")
    };
    let mut rules = vec![rule(format!("{or_never}self.matches('{DURATION}')"), words)];
    // Applies only to what is a duration, so that one mistake is one message.
    let only = |bound: &str| format!("!self.matches('{DURATION}') || {bound}");
    rules.extend(bounds.iter().map(|(bound, words)| rule(only(bound), words)));
    schema(json!({"type": "string", "maxLength": 32, "x-kubernetes-validations": rules}))
}

/// The maximum age of a node. A replacement needs minutes to boot: with a lower age, each node would expire before its
/// replacement is ready, and the pool would replace its nodes for ever.
pub(crate) fn expire_after(_: &mut SchemaGenerator) -> Schema {
    let least = "nodes that live for less than 5m would be replaced for ever: write 5m or more, or Never";
    duration(true, &[("duration(self) >= duration('5m')", least), AT_MOST_TEN_YEARS])
}

/// The time that pods have to end. Kubernetes gives a pod 30 s.
pub(crate) fn termination_grace_period(_: &mut SchemaGenerator) -> Schema {
    let least = "pods get 30 s to end from Kubernetes: write 30s or more, or leave the field out for as long as it takes";
    duration(false, &[("duration(self) >= duration('30s')", least), AT_MOST_TEN_YEARS])
}

/// A reference to an EC2NodeClass.
pub(crate) fn class_group(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "enum": ["croft.dev"]}))
}

/// The kind of a class.
pub(crate) fn class_kind(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "enum": ["EC2NodeClass"]}))
}

/// The name of a template of a pool, which is a label's value and a part of names.
pub(crate) fn template_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 40,
        "x-kubernetes-validations": [rule(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "write a name of at most 40 lower-case letters, digits and '-', such as spot",
        )],
    }))
}

/// The name of an object.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [rule(
            format!("self.matches('{SUBDOMAIN}')"),
            "write the name of an object: lower-case letters, digits, '-' and '.'",
        )],
    }))
}
