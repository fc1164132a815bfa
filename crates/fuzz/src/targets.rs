//! The targets, and the laws that must hold for them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_policy::{
    Config, Index, Namespace, Node, OnConflict, Pool, Provisioner, Tenant, Tenants,
    taint::{Effect, Taint},
};
use croft_scheduler::Quantity;
use croft_webhook::{
    admit::{Answer, respond},
    outcome::Phase,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{Target, scheduling::solve, selectors::selector};

/// Every target by its name.
pub const ALL: [(&str, Target); 5] =
    [("review", review), ("patch", patch), ("selector", selector), ("quantity", quantity), ("solve", solve)];

/// True if captured reviews are inputs of the target, too.
#[must_use]
pub fn reads_reviews(name: &str) -> bool {
    matches!(name, "review" | "patch")
}

/// The index of every target: the tenants of the captured reviews.
#[must_use]
pub fn tenants() -> Tenants {
    let mut index = Index::new();
    index.set_config(Config::default());
    for (name, key, effects) in [
        ("pool-a", "node-pool", vec![Effect::NoSchedule]),
        ("pool-a-gpu", "node-pool", vec![Effect::NoSchedule, Effect::NoExecute]),
        ("pool-b", "node-restriction.kubernetes.io/pool", vec![Effect::NoSchedule]),
    ] {
        index.upsert_pool(Pool {
            name: name.to_owned(),
            created: None,
            key: key.to_owned(),
            value: name.to_owned(),
            effects: effects.into_iter().collect(),
            shared_with: Vec::new(),
            provisioner: Provisioner::None,
            template: croft_policy::NodeTemplate::default(),
            tenants: croft_policy::PoolTenants::default(),
        });
    }
    for (name, pools, on_conflict) in
        [("a", vec!["pool-a", "pool-a-gpu"], OnConflict::Reject), ("b", vec!["pool-b"], OnConflict::Override)]
    {
        index.upsert_tenant(Tenant {
            name: name.to_owned(),
            namespaces: vec![format!("tenant-{name}")],
            pools: pools.into_iter().map(str::to_owned).collect(),
            on_conflict,
            ..Tenant::default()
        });
    }
    for name in ["tenant-a", "tenant-b", "non-tenant"] {
        index.upsert_namespace(&Namespace { name: name.to_owned(), ..Namespace::default() });
    }
    index.upsert_node(&Node {
        name: "node-a".to_owned(),
        labels: [("node-pool", "pool-a"), ("node-restriction.kubernetes.io/pool", "pool-a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        taints: vec![Taint {
            key: "node-pool".to_owned(),
            value: "pool-a".to_owned(),
            effect: Effect::NoSchedule,
        }],
    });
    index.upsert_node(&Node { name: "node-x".to_owned(), ..Node::default() });
    index.snapshot()
}

thread_local! {
    static TENANTS: Tenants = tenants();
}

const PHASES: [Phase; 4] = [Phase::Mutate, Phase::Validate, Phase::Warn, Phase::Both];

/// A body of any kind gets an answer that Kubernetes can read, for the request that was asked about, or a reason.
fn review(input: &[u8]) -> Result<String, String> {
    TENANTS.with(|tenants| {
        let mut signature = String::new();
        for phase in PHASES {
            match respond(input, tenants, phase) {
                Answer::Malformed(reason) if reason.is_empty() => {
                    return Err("refused without a reason".to_owned());
                }
                Answer::Malformed(reason) => {
                    // Where in the input is the input's own; what is wrong isn't.
                    let what: String = reason.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
                    signature.push_str(&what);
                }
                Answer::Review { body, .. } | Answer::UnknownNamespace { body, .. } => {
                    let answer: Value = serde_json::from_slice(&body).map_err(|e| format!("no JSON: {e}"))?;
                    let response = &answer["response"];
                    serde_json::from_slice::<IgnoredAny>(input)
                        .map_err(|e| format!("what isn't JSON got an answer ({e})"))?;
                    // A lone surrogate in a field that is not read is allowed, as the API server's own decoder does;
                    // the body has no `Value` then.
                    let asked = serde_json::from_slice::<Value>(input).ok();
                    if asked.as_ref().is_some_and(|asked| response["uid"] != asked["request"]["uid"]) {
                        return Err(format!("an answer for another request: {answer}"));
                    }
                    if let Some(asked) = &asked {
                        shaped(&asked["request"])?;
                    }
                    if response["allowed"] == false
                        && response["status"]["message"].as_str().is_none_or(str::is_empty)
                    {
                        return Err("denied without a message".to_owned());
                    }
                    if phase != Phase::Mutate && phase != Phase::Both && response.get("patch").is_some() {
                        return Err("a validation that changes".to_owned());
                    }
                    signature.push_str(&format!(
                        "{}{}{}",
                        response["allowed"],
                        response["auditAnnotations"],
                        response["warnings"].as_array().map_or(0, Vec::len).min(3)
                    ));
                }
            }
            signature.push('|');
        }
        Ok(signature)
    })
}

/// An answered review is valid: an operation that exists, and a spec that is an object.
fn shaped(request: &Value) -> Result<(), String> {
    let operation = request["operation"].as_str().unwrap_or_default();
    if !matches!(operation, "CREATE" | "UPDATE" | "DELETE" | "CONNECT") {
        return Err(format!("an answer to the operation {}", request["operation"]));
    }
    let kind = (request["kind"]["group"].as_str().unwrap_or_default(), request["kind"]["kind"].as_str());
    let has_spec = matches!(kind, ("", Some("Pod")) | ("apps", Some("DaemonSet")));
    let spec = &request["object"]["spec"];
    if has_spec && matches!(operation, "CREATE" | "UPDATE") && !spec.is_object() {
        return Err(format!("an answer to the spec {spec}"));
    }
    Ok(())
}

/// The patch of a pod's creation, applied as the API server applies it, makes the pod what the plan says: pinned where it
/// is a tenant's, with nothing left to do, and let through by the validation.
fn patch(input: &[u8]) -> Result<String, String> {
    TENANTS.with(|tenants| {
        let Answer::Review { body, .. } = respond(input, tenants, Phase::Mutate) else {
            return Ok(String::new());
        };
        let answer: Value = serde_json::from_slice(&body).map_err(|e| format!("no JSON: {e}"))?;
        let response = &answer["response"];
        let Ok(mut asked) = serde_json::from_slice::<Value>(input) else { return Ok(String::new()) };
        let mut operations = 0;
        if let Some(encoded) = response["patch"].as_str() {
            let text = STANDARD.decode(encoded).map_err(|e| format!("no base64: {e}"))?;
            let patch: json_patch::Patch =
                serde_json::from_slice(&text).map_err(|e| format!("no patch: {e}"))?;
            operations = patch.0.len();
            let object = asked.pointer_mut("/request/object").ok_or("a patch for no object")?;
            json_patch::patch(object, &patch).map_err(|e| format!("a patch that doesn't apply: {e}"))?;
        }
        let rule = response["auditAnnotations"]["rule"].as_str().unwrap_or_default().to_owned();
        if response["allowed"] != true || is_doubled(input, &asked) {
            return Ok(rule);
        }
        let patched = asked.to_string().into_bytes();
        let Answer::Review { body, .. } = respond(&patched, tenants, Phase::Mutate) else {
            return Err("what was patched can't be read any more".to_owned());
        };
        let again: Value = serde_json::from_slice(&body).map_err(|e| format!("no JSON: {e}"))?;
        if again["response"].get("patch").is_some() {
            return Err(format!("twice isn't once: {}", again["response"]["auditAnnotations"]));
        }
        if matches!(rule.as_str(), "Pinned" | "NoChange") {
            pinned(&asked, response["auditAnnotations"]["pool"].as_str().unwrap_or_default())?;
        }
        if rule == "Pinned" || rule == "KeptOut" {
            let Answer::Review { body, .. } = respond(&patched, tenants, Phase::Validate) else {
                return Err("what was patched can't be read any more".to_owned());
            };
            let last: Value = serde_json::from_slice(&body).map_err(|e| format!("no JSON: {e}"))?;
            if last["response"]["allowed"] != true {
                return Err(format!(
                    "Croft refuses what Croft made: {}",
                    last["response"]["status"]["message"]
                ));
            }
        }
        Ok(format!("{rule}{}{operations}", response["auditAnnotations"]["pool"]))
    })
}

/// True if the text says something that the value doesn't: a key twice. What is read of it then is another question.
fn is_doubled(input: &[u8], asked: &Value) -> bool {
    let colons = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b':').count();
    serde_json::from_slice::<Value>(input)
        .map_or(true, |plain| colons(plain.to_string().as_bytes()) != colons(input))
        || asked.is_null()
}

fn pinned(asked: &Value, pool: &str) -> Result<(), String> {
    // Other fields of a grafted document are not read: a Pod with a template is a Pod.
    let path = match asked.pointer("/request/kind/kind").and_then(Value::as_str) {
        Some("DaemonSet") => "/request/object/spec/template/spec",
        _ => "/request/object/spec",
    };
    let Some(spec) = asked.pointer(path) else { return Ok(()) };
    let key = if pool == "pool-b" { "node-restriction.kubernetes.io/pool" } else { "node-pool" };
    if spec["nodeSelector"][key] == pool {
        Ok(())
    } else {
        Err(format!("said to be in {pool:?}: {}", spec["nodeSelector"]))
    }
}

/// Quantities are read or refused; what is read says the same when it is written and read again.
fn quantity(input: &[u8]) -> Result<String, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(String::new()) };
    match text.parse::<Quantity>() {
        Err(error) => {
            let what: String = error.to_string().replace(text, "").chars().take(40).collect();
            Ok(what)
        }
        Ok(read) => {
            let written = read.to_string();
            match written.parse::<Quantity>() {
                Ok(again) if again == read => Ok(format!("{}{}", written.len().min(9), text.len().min(9))),
                other => Err(format!("{text:?} is {read:?}, written {written:?}, and read again {other:?}")),
            }
        }
    }
}
