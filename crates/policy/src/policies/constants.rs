//! Rust's constants that the `.cel` files read, as `$NAME`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use serde_json::json;

use crate::{
    definitions::{
        CLAIM_ANNOTATION, CREATE_NAMESPACES_VERB, IDENTITY_PREFIX, INJECTED_ANNOTATION, MIRROR_ANNOTATION,
        NAMESPACE_CREATOR_ROLE, POD_SECURITY_RECORD, POOL_ANNOTATION, POOL_NAME_LABEL, POOLS_ANNOTATION,
        REPLICA_LABEL, SHARED_ANNOTATION, SURPLUS_ANNOTATION, TENANCY_LABEL, TENANT_LABEL,
        TENANT_OBJECT_PREFIX, UNREGISTERED_LABEL, UNREGISTERED_TAINT,
        parameter::{
            ALL_POOLS, EXEMPT, KUBELET_LABELS, MUTATION, NAMESPACE_CREATION, NON_TENANT_PODS, ON_CONFLICT,
            OPEN_NAMES, OWNER_METADATA, POOL_KEYS, PREFIX, PROBE, PROBED_MUTATION, REVISION, SHARED_WITH,
            TENANTS,
        },
    },
    policies::{
        namespace_metadata::OVERRIDE,
        parameters::{IN_FORCE, INACTIVE, MORE, MUTATED_BY},
        pod_security::NO_LABEL,
        policy::{BREAK_GLASS_SUBJECT, BREAK_GLASS_VERB},
    },
    rules::{earlier_record, namespace::OWNERS_LABELS},
    tenancy::{
        model::{BUILT_IN_EXEMPT, CERTIFICATE_LEASE, CONTROLLER_LEASE, TENANCY_NONE},
        replica_status::WEBHOOK,
        stored::{OWN_DOMAIN, PLACING_DOMAINS},
    },
};

/// The names of Croft's ServiceAccounts.
const CONTROLLER: &str = "croft-controller";
const WEBHOOK_ACCOUNT: &str = "croft-webhook";
/// Labels of nodes that run the control plane.
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";
const MASTER_LABEL: &str = "node-role.kubernetes.io/master";
/// Fields that the API server itself writes with every change: the items of a CEL list.
const KEPT_BY_THE_SERVER: &str = r#""managedFields","resourceVersion","generation""#;
/// Tolerations of foreign pools, and pools, that are compared one by one; more tolerations may only stay as they are.
const MAX_COMPARED: usize = 100;
/// The number of tenants that are checked one by one. An authorization check costs 350,000 of the 1,000,000 that the
/// API server grants an expression, so each has an expression of its own. A move of more tenants needs `assign` on all.
pub(super) const CHECKS: usize = 4;
/// The field of required node affinity.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// Regular expressions of a record's words: a key, value or name; the index of a term.
const RECORD_PART: &str = "[^=:;,]+";
const RECORD_INDEX: &str = "(0|[1-9][0-9]{0,5})";

/// Each constant by its name.
pub(super) static CONSTANTS: LazyLock<FxHashMap<&'static str, String>> = LazyLock::new(|| {
    let (namespace, name) = BREAK_GLASS_SUBJECT;
    let derived = [
        ("BREAK_GLASS_NAMESPACE", namespace.to_owned()),
        ("BREAK_GLASS_NAME", name.to_owned()),
        // JSON strings are CEL strings.
        ("BUILT_IN_EXEMPT", json!(BUILT_IN_EXEMPT).to_string()),
        ("OWNERS_LABELS", json!(OWNERS_LABELS).to_string()),
        ("PLACING_DOMAINS", format!("[{}]", PLACING_DOMAINS.map(|domain| format!("'{domain}'")).join(", "))),
        ("EARLIER_RECORD", earlier_record::START.to_string()),
        ("CHECKS", CHECKS.to_string()),
        ("MAX_COMPARED", MAX_COMPARED.to_string()),
    ];
    derived.into_iter().chain(texts().map(|(name, text)| (name, text.to_owned()))).collect()
});

/// The constants that are texts.
fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    macro_rules! named {
        ($($name:ident)+) => { [$((stringify!($name), $name)),+] };
    }
    let of_users = named!(
        CLAIM_ANNOTATION CREATE_NAMESPACES_VERB IDENTITY_PREFIX INJECTED_ANNOTATION MIRROR_ANNOTATION NAMESPACE_CREATOR_ROLE
        POD_SECURITY_RECORD POOL_ANNOTATION POOL_NAME_LABEL POOLS_ANNOTATION REPLICA_LABEL SHARED_ANNOTATION SURPLUS_ANNOTATION
        TENANCY_LABEL TENANT_LABEL TENANT_OBJECT_PREFIX UNREGISTERED_LABEL UNREGISTERED_TAINT BREAK_GLASS_VERB
    );
    let parameters = named!(
        ALL_POOLS EXEMPT KUBELET_LABELS MUTATION NAMESPACE_CREATION NON_TENANT_PODS ON_CONFLICT OPEN_NAMES OWNER_METADATA POOL_KEYS
        PREFIX PROBE PROBED_MUTATION REVISION SHARED_WITH TENANTS IN_FORCE INACTIVE MORE MUTATED_BY
    );
    let others = named!(
        OVERRIDE NO_LABEL CERTIFICATE_LEASE CONTROLLER_LEASE TENANCY_NONE WEBHOOK OWN_DOMAIN CONTROLLER WEBHOOK_ACCOUNT
        CONTROL_PLANE_LABEL MASTER_LABEL KEPT_BY_THE_SERVER REQUIRED RECORD_PART RECORD_INDEX
    );
    of_users.into_iter().chain(parameters).chain(others)
}
