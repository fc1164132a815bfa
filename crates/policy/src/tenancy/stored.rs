//! Decodes the stored specs of Tenants, TenantPools and the CroftConfig, field by field.
//!
//! The API server refuses invalid specs. A stored spec can be invalid all the same: an older CRD may have accepted it,
//! or a newer one may have fields and values that this version doesn't know. Unknown fields are ignored, and an unknown
//! value of an enum counts as the strictest one.
//!
//! If a field can't be decoded, [`Decoded::error`] says so. The caller keeps the last valid version, or else uses what
//! is left, which never opens anything. Webhook and controller call the same functions.

use serde_json::{Map, Value};

use crate::{
    definitions::{OWNERS_ROLE, POOL_NAME_LABEL, TEMPLATE_LABEL},
    tenancy::{
        model::{
            Config, Mutation, NamespaceCreation, NonTenantPods, OnConflict, Owner, Pool, PoolTenants,
            Provisioner, Subject, Tenant,
        },
        node_template::{LabelRequirement, NodeTemplate},
        selector::{Requirement, Selector, Test},
        taint::{Effect, Taint},
    },
};

/// An object, and the first error of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<T> {
    /// The fields that could be decoded.
    pub object: T,
    /// The path of the first field that couldn't, and what to write instead.
    pub error: Option<String>,
}

/// Decodes a Tenant; `created` in seconds since 1970. If some of its claims can't be decoded,
/// [`Tenant::unreadable_claims`] is set: namespaces that it may own are kept as they are.
#[must_use]
pub fn tenant(name: String, created: Option<i64>, spec: &Value) -> Decoded<Tenant> {
    let mut errors = Vec::new();
    let namespaces = names(spec, "namespaces", is_namespace, &mut errors);
    let selector = match spec.get("namespaceSelector") {
        None | Some(Value::Null) => None,
        Some(value) => selector(value).map_err(|problem| errors.push(problem)).ok(),
    };
    let creation = creation(spec).map_err(|problem| errors.push(problem)).ok().flatten();
    let pools = names(spec, "pools", |name| !name.is_empty() && name.len() <= 253, &mut errors);
    let on_conflict = match spec.get("onConflict").and_then(Value::as_str) {
        Some("Override") => OnConflict::Override,
        _ => OnConflict::Reject,
    };
    let unreadable_claims = !errors.is_empty();
    let object = Tenant {
        name,
        created,
        namespaces: namespaces.unwrap_or_default(),
        selector,
        creation,
        owners: owners(spec),
        peers: peers(spec),
        // The first pool is the default: if one of several were left out, pods would go to a wrong pool.
        pools: pools.unwrap_or_default(),
        on_conflict,
        unreadable_claims,
        needs_objects: needs_objects(spec),
    };
    Decoded { object, error: errors.into_iter().next() }
}

/// The prefix of the namespaces that owners may create.
///
/// # Errors
/// A sentence that says what to write instead, if it can't be decoded.
fn creation(spec: &Value) -> Result<Option<NamespaceCreation>, String> {
    let Some(creation) = spec.get("namespaceCreation").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let prefix = creation.get("prefix").and_then(Value::as_str).filter(|prefix| is_prefix(prefix));
    let maximum =
        creation.get("maximum").and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    match (prefix, maximum) {
        (Some(prefix), Some(maximum)) => Ok(Some(NamespaceCreation { prefix: prefix.to_owned(), maximum })),
        _ => Err(format!(
            "spec.namespaceCreation is {creation}; write a prefix that ends with '-', such as shop-, and a maximum"
        )),
    }
}

/// The owners that can be decoded. One that can't has no role.
fn owners(spec: &Value) -> Vec<Owner> {
    let owner = |owner: &Value| {
        let text = |field: &str| owner.get(field).and_then(Value::as_str);
        let roles = match owner.get("clusterRoles") {
            None | Some(Value::Null) => vec![OWNERS_ROLE.to_owned()],
            Some(roles) => {
                roles.as_array()?.iter().filter_map(|role| Some(role.as_str()?.to_owned())).collect()
            }
        };
        let subject = Subject::new(text("kind")?, text("name")?, text("namespace").unwrap_or_default())?;
        Some(Owner { subject, roles })
    };
    spec.get("owners").and_then(Value::as_array).into_iter().flatten().filter_map(owner).collect()
}

/// The namespaces that a closed network names.
fn peers(spec: &Value) -> Vec<String> {
    let Some(isolation) = spec.get("networkIsolation") else { return Vec::new() };
    let of = |field: &str| isolation.get(field).and_then(Value::as_array).into_iter().flatten();
    let is_on = |field: &str, value: Value| isolation.get(field) == Some(&value);
    let from = of("allowFrom").filter(|_| is_on("enabled", true.into()));
    let to = of("allowTo").filter(|_| is_on("enabled", true.into()) && is_on("egress", "Restricted".into()));
    from.chain(to).filter_map(|peer| Some(peer.get("namespace")?.as_str()?.to_owned())).collect()
}

fn is_prefix(text: &str) -> bool {
    text.strip_suffix('-').is_some_and(is_namespace)
}

/// True if a Tenant declares what must be in a namespace before its first pod. A value that can't be read counts as such.
fn needs_objects(spec: &Value) -> bool {
    let isolation = spec.get("networkIsolation").filter(|value| !value.is_null());
    let is_isolated =
        isolation.is_some_and(|value| !matches!(value.get("enabled"), None | Some(Value::Bool(false))));
    let limits = ["quota", "defaults", "podSecurity", "namespaceCreation"].map(|field| spec.get(field));
    is_isolated
        || limits.into_iter().flatten().any(|value| !(value.is_null() || *value == Value::Object(Map::new())))
}

/// Decodes a TenantPool; `created` in seconds since 1970. A pool whose label can't be decoded has no nodes.
#[must_use]
pub fn pool(name: String, created: Option<i64>, spec: &Value, status: &Value) -> Decoded<Pool> {
    let mut errors = Vec::new();
    let key = match spec.get("key") {
        None | Some(Value::Null) => POOL_NAME_LABEL.to_owned(),
        Some(Value::String(key)) if is_pool_key(key) => key.clone(),
        Some(other) => {
            errors.push(format!(
                "spec.key is {other}; write a label's key of your own, such as example.com/pool"
            ));
            String::new()
        }
    };
    let value = match spec.get("value") {
        None | Some(Value::Null) => name.clone(),
        Some(Value::String(value)) if !value.is_empty() && is_label_text(value) => value.clone(),
        Some(other) => {
            errors.push(format!("spec.value is {other}; write a label's value"));
            String::new()
        }
    };
    let shared_with = names(spec, "sharedWith", is_namespace, &mut Vec::new());
    let effects = spec.get("effects").and_then(Value::as_array).into_iter().flatten();
    let provisioner = match spec.get("provisioner").and_then(Value::as_str) {
        Some("Karpenter") => Provisioner::Karpenter,
        Some("None") => Provisioner::None,
        // An unknown provisioner counts as Croft, whose nodes have the strictest rules.
        _ => Provisioner::Croft,
    };
    let object = Pool {
        created,
        key,
        value,
        effects: effects.filter_map(|effect| Effect::parse(effect.as_str()?)).collect(),
        shared_with: shared_with.unwrap_or_default(),
        provisioner,
        template: match provisioner {
            Provisioner::Croft => node_template(spec, status),
            Provisioner::Karpenter | Provisioner::None => NodeTemplate::default(),
        },
        tenants: pool_tenants(spec),
        name,
    };
    Decoded { object, error: errors.into_iter().next() }
}

/// The tenants that a pool is for. What can't be read is for none.
fn pool_tenants(spec: &Value) -> PoolTenants {
    match (spec.get("perTenant"), spec.get("forTenant")) {
        (None | Some(Value::Null | Value::Bool(false)), None | Some(Value::Null)) => {
            PoolTenants::AllThatNameIt
        }
        (None | Some(Value::Null | Value::Bool(false)), Some(of)) => {
            let text = |field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            PoolTenants::One { made_from: text("pool"), tenant: text("tenant") }
        }
        _ => PoolTenants::Each,
    }
}

/// The declarations of a pool that Croft launches about its nodes, by the spec and the status of the TenantPool: of its templates together.
/// A part that can't be decoded doesn't count: a pod goes to a pool that may not hold it sooner than past one that does.
#[must_use]
pub fn node_template(spec: &Value, status: &Value) -> NodeTemplate {
    let one = spec.get("template").filter(|template| template.is_object());
    let several = spec.get("templates").and_then(Value::as_array).into_iter().flatten();
    let Some(template) = one.into_iter().chain(several).map(kind_of_node).reduce(NodeTemplate::or) else {
        return NodeTemplate::default();
    };
    let labels = status.get("instanceLabels").and_then(Value::as_array).into_iter().flatten();
    let template = template.with_instance_labels(labels.filter_map(instance_label));
    let resources = status.get("extendedResources").and_then(Value::as_array);
    template.with_resources(resources.map(|resources| resources.iter().filter_map(extended_resource)))
}

/// The declarations of one template.
fn kind_of_node(template: &Value) -> NodeTemplate {
    let list = |field: &str| template.pointer(field).and_then(Value::as_array).into_iter().flatten();
    let requirements = list("/spec/requirements").filter_map(|requirement| {
        let values = requirement.get("values").and_then(Value::as_array).into_iter().flatten();
        Some(LabelRequirement {
            key: requirement.get("key")?.as_str()?,
            operator: requirement.get("operator")?.as_str()?,
            values: values.filter_map(Value::as_str).collect(),
        })
    });
    let labels = template.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let name = template.get("name").and_then(Value::as_str).map(|name| (TEMPLATE_LABEL, name));
    let taints = list("/spec/taints").filter_map(|taint| {
        let text = |field: &str| taint.get(field).and_then(Value::as_str);
        Some(Taint {
            key: text("key")?.to_owned(),
            value: text("value").unwrap_or_default().to_owned(),
            effect: Effect::parse(text("effect")?)?,
        })
    });
    NodeTemplate::new(requirements, labels.chain(name)).with_taints(taints)
}

/// The key of a label that follows from the instance, and its values.
fn instance_label(label: &Value) -> Option<(&str, Vec<&str>)> {
    let values = label.get("values")?.as_array()?.iter().map(Value::as_str);
    Some((label.get("key")?.as_str()?, values.collect::<Option<_>>()?))
}

/// The name of an extended resource, and whether the pool is dedicated to it.
fn extended_resource(resource: &Value) -> Option<(&str, bool)> {
    let is_dedicated = resource.get("dedicated").and_then(Value::as_bool) == Some(true);
    Some((resource.get("name")?.as_str()?, is_dedicated))
}

/// Decodes the CroftConfig of a Croft that is installed in `namespace`. Entries of its lists that can't be the name of
/// a namespace or user are left out; the others are in force.
#[must_use]
pub fn config(spec: &Value, namespace: &str) -> Decoded<Config> {
    let mut errors = Vec::new();
    let defaults = Config::installed_in(namespace);
    let mut list = |field: &str, default: Vec<String>, is_valid: fn(&str) -> bool| match spec.get(field) {
        None | Some(Value::Null) => default,
        Some(Value::Array(items)) => {
            let (good, bad): (Vec<&Value>, Vec<&Value>) =
                items.iter().partition(|item| item.as_str().is_some_and(is_valid));
            errors.extend(bad.first().map(|item| left_out(field, item)));
            good.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(other) => {
            errors.push(left_out(field, other));
            default
        }
    };
    let object = Config {
        namespace: defaults.namespace,
        exempt: list("exemptNamespaces", defaults.exempt, is_namespace),
        schedulers: list("schedulers", defaults.schedulers, is_user),
        shared_with: list("sharedWith", Vec::new(), is_namespace),
        owner_metadata: list("ownerMetadata", defaults.owner_metadata, is_owner_metadata),
        non_tenant_pods: match spec.get("nonTenantPods").and_then(Value::as_str) {
            Some("Allow") => NonTenantPods::Allow,
            Some("Reject") => NonTenantPods::Reject,
            _ => NonTenantPods::KeepOut,
        },
        mutation: spec
            .pointer("/admission/mutation")
            .and_then(|mode| Mutation::parse(mode.as_str()?))
            .unwrap_or_default(),
    };
    Decoded { object, error: errors.into_iter().next() }
}

fn left_out(field: &str, item: &Value) -> String {
    let write = match field {
        "ownerMetadata" => "beginnings of keys with their domain, such as example.com/, and none of Croft's",
        _ => "exact names",
    };
    format!("spec.{field} has {item}, which is left out; write {write}")
}

/// A list of names that pass `is_valid`; `None` if the field is no list.
fn names(
    spec: &Value,
    field: &str,
    is_valid: fn(&str) -> bool,
    errors: &mut Vec<String>,
) -> Option<Vec<String>> {
    let items = match spec.get(field) {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => {
            errors.push(format!("spec.{field} is {other}; write a list of names"));
            return None;
        }
    };
    if let Some(bad) = items.iter().find(|item| !item.as_str().is_some_and(is_valid)) {
        errors.push(format!("spec.{field} has {bad}; write exact names"));
    }
    Some(items.iter().filter_map(Value::as_str).filter(|name| is_valid(name)).map(str::to_owned).collect())
}

/// Decodes `spec.namespaceSelector`.
///
/// # Errors
/// If a requirement can't be decoded or there is none. None of the other requirements counts then, since a selector
/// with fewer requirements selects more.
pub fn selector(value: &Value) -> Result<Selector, String> {
    const AT: &str = "spec.namespaceSelector";
    let map = value.as_object().ok_or_else(|| format!("{AT} is {value}; write a label selector"))?;
    let mut requirements = Vec::new();
    let none = Map::new();
    let labels = match map.get("matchLabels") {
        None | Some(Value::Null) => &none,
        Some(labels) => {
            labels.as_object().ok_or_else(|| format!("{AT}.matchLabels is {labels}; write labels"))?
        }
    };
    for (key, value) in labels {
        let value = value.as_str().ok_or_else(|| format!("{AT}.matchLabels.{key} is {value}; write text"))?;
        requirements.push(Requirement { key: key.clone(), test: Test::In(vec![value.to_owned()]) });
    }
    let expressions = match map.get("matchExpressions") {
        None | Some(Value::Null) => &Vec::new(),
        Some(Value::Array(expressions)) => expressions,
        Some(other) => return Err(format!("{AT}.matchExpressions is {other}; write a list")),
    };
    for (index, expression) in expressions.iter().enumerate() {
        let at = format!("{AT}.matchExpressions[{index}]");
        requirements.push(requirement(expression).map_err(|problem| format!("{at}{problem}"))?);
    }
    if requirements.is_empty() {
        return Err(format!("{AT} is empty and would claim every namespace; write at least one requirement"));
    }
    Ok(Selector::new(requirements))
}

fn requirement(expression: &Value) -> Result<Requirement, String> {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values: Vec<String> = match expression.get("values") {
        None | Some(Value::Null) => Vec::new(),
        Some(values) => values
            .as_array()
            .and_then(|values| values.iter().map(|v| v.as_str().map(str::to_owned)).collect())
            .ok_or_else(|| format!(".values is {values}; write a list of text"))?,
    };
    let (key, operator, none) = (text("key"), text("operator"), values.is_empty());
    if key.is_empty() {
        return Err(".key is empty; write a label's key".to_owned());
    }
    let test = Test::parse(operator, values)
        .ok_or_else(|| format!(".operator is {operator:?}; write In, NotIn, Exists or DoesNotExist"))?;
    match (&test, none) {
        (Test::In(_) | Test::NotIn(_), true) => {
            Err(format!(".values is empty; {operator} needs at least one"))
        }
        (Test::Exists | Test::DoesNotExist, false) => {
            Err(format!(".values must be left out with {operator}"))
        }
        _ => Ok(Requirement { key: key.to_owned(), test }),
    }
}

/// True if a namespace can have this name.
#[must_use]
pub fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && is_dns_label(name)
}

/// True if `name` is an exact user name: not empty, at most 253 bytes, without wildcards and white space.
#[must_use]
pub fn is_user(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && !name.contains(|c: char| c == '*' || c.is_whitespace())
}

/// True if the label and taint of a pool may have this key: one that neither Kubernetes nor the cloud nor Croft writes.
#[must_use]
pub fn is_pool_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    if name.is_empty() || !is_label_text(name) {
        return false;
    }
    let Some(domain) = domain else { return true };
    let within = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let others = within("kubernetes.io")
        || within("k8s.io")
        || within("croft.dev")
        || matches!(domain, "karpenter.sh" | "karpenter.k8s.aws");
    domain.len() <= 253
        && domain.split('.').all(is_dns_label)
        && (within("node-restriction.kubernetes.io") || !others)
}

/// The domain of Croft's labels and annotations. Its subdomains are Croft's as well.
pub(crate) const OWN_DOMAIN: &str = "croft.dev";
/// The domains by which the API server itself decides what pods may do and where they run.
pub(crate) const PLACING_DOMAINS: [&str; 2] = ["pod-security.kubernetes.io", "scheduler.alpha.kubernetes.io"];

/// True if owners may never give a label or annotation with this beginning to a namespace, whatever the settings say: Croft's
/// own, and those by which the API server itself decides what pods may do and where they run.
#[must_use]
pub fn is_reserved_for_owners(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    let is_own = domain.strip_suffix(OWN_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    is_own || PLACING_DOMAINS.contains(&domain)
}

/// True if the settings may open labels and annotations with this beginning to owners: a domain, a slash, and perhaps the
/// beginning of a name.
#[must_use]
pub fn is_owner_metadata(beginning: &str) -> bool {
    let Some((domain, name)) = beginning.split_once('/') else { return false };
    beginning.len() <= 128
        && domain.split('.').all(is_dns_label)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !is_reserved_for_owners(beginning)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// True if a label can have this value.
fn is_label_text(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_none_or(|b| b.is_ascii_alphanumeric())
        && text.bytes().next_back().is_none_or(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_selector_claims_nothing_and_sets_unreadable_claims() {
        for (bad, word) in [
            (
                json!({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}),
                "write In, NotIn",
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}), "needs at least one"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
                "needs at least one",
            ),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}), "left out"),
            (json!({"matchExpressions": "all"}), "write a list"),
            (json!({"matchLabels": {"a": 1}}), "write text"),
            (json!({}), "every namespace"),
            (json!("a=b"), "label selector"),
        ] {
            let spec = json!({"namespaces": ["x"], "pools": ["p"], "namespaceSelector": bad});
            let Decoded { object, error } = tenant("t".to_owned(), Some(1), &spec);
            assert!(error.as_deref().is_some_and(|error| error.contains(word)), "{bad}: {error:?}");
            assert_eq!((object.selector, object.unreadable_claims), (None, true));
            assert_eq!((object.namespaces, object.pools), (vec!["x".to_owned()], vec!["p".to_owned()]));
        }
        let good =
            json!({"pools": ["p"], "namespaceSelector": {"matchLabels": {"a": "b"}}, "mood": {"new": 1}});
        let Decoded { object, error } = tenant("t".to_owned(), None, &good);
        assert_eq!((error, object.unreadable_claims), (None, false));
        assert!(object.selector.unwrap().matches(|key| (key == "a").then_some("b")));
    }

    #[test]
    fn owners_and_peers_are_decoded_and_odd_ones_are_left_out() {
        let spec = json!({"pools": ["p"], "owners": [
                {"kind": "User", "name": "jane"},
                {"kind": "ServiceAccount", "name": "ci", "namespace": "build", "clusterRoles": ["view", 3]},
                {"kind": "Robot", "name": "x"}, 5],
            "networkIsolation": {"enabled": true, "egress": "Restricted",
                "allowFrom": [{"namespace": "ingress"}, {"cidr": "10.0.0.0/8"}], "allowTo": [{"namespace": "shared"}]}});
        let Decoded { object, error } = tenant("t".to_owned(), None, &spec);
        let owner = |subject: Option<Subject>, role: &str| Owner {
            subject: subject.unwrap(),
            roles: vec![role.to_owned()],
        };
        let expected = [
            owner(Subject::new("User", "jane", ""), "admin"),
            owner(Subject::new("ServiceAccount", "ci", "build"), "view"),
        ];
        assert_eq!((object.owners.as_slice(), error, object.unreadable_claims), (&expected[..], None, false));
        assert_eq!(object.peers, ["ingress", "shared"]);
        for (field, value, left) in [("egress", json!("Open"), 1), ("enabled", json!(false), 0)] {
            let mut spec = spec.clone();
            spec["networkIsolation"][field] = value;
            assert_eq!(tenant("t".to_owned(), None, &spec).object.peers.len(), left, "{field}");
        }
    }

    #[test]
    fn invalid_names_are_left_out_of_lists() {
        let Decoded { object, error } =
            tenant("t".to_owned(), None, &json!({"namespaces": ["team-*", "x", 5], "pools": "p"}));
        assert!(error.unwrap().contains("team-*"));
        assert_eq!((object.namespaces, object.pools), (vec!["x".to_owned()], Vec::new()));
        let spec = json!({"exemptNamespaces": ["team-*", "x"], "schedulers": 3, "nonTenantPods": "Maybe", "sharedWith": ["Y"]});
        let Decoded { object, error } = config(&spec, "ours");
        assert!(error.unwrap().contains("team-*"));
        assert_eq!((object.exempt, object.namespace.as_str()), (vec!["x".to_owned()], "ours"));
        assert_eq!(object.schedulers, Config::default().schedulers);
        assert_eq!((object.non_tenant_pods, object.shared_with), (NonTenantPods::KeepOut, Vec::new()));
    }

    #[test]
    fn owner_metadata_is_refused_without_a_domain_and_in_reserved_ones() {
        for good in ["example.com/", "meta.helm.sh/release-", "app.kubernetes.io/managed-by", "mycroft.dev/x"]
        {
            assert!(is_owner_metadata(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "team",
            "croft.dev/",
            "policy.croft.dev/pools",
            "pod-security.kubernetes.io/",
            "scheduler.alpha.kubernetes.io/node-selector",
            "a,b/",
            "a b/c",
            "a/b/c",
            "*.dev/",
        ] {
            assert!(!is_owner_metadata(bad), "{bad}");
        }
        let Decoded { object, error } =
            config(&json!({"ownerMetadata": ["example.com/", "croft.dev/", 3]}), "ours");
        assert!(error.unwrap().contains("croft.dev/"));
        assert_eq!(object.owner_metadata, ["example.com/"]);
        assert_eq!(config(&json!({}), "ours").object.owner_metadata, Config::default().owner_metadata);
        assert!(Config::default().owner_metadata.iter().all(|beginning| is_owner_metadata(beginning)));
    }

    #[test]
    fn pool_key_is_refused_in_reserved_domains() {
        for good in [
            "node-pool",
            "example.com/pool",
            POOL_NAME_LABEL,
            "x.node-restriction.kubernetes.io/pool",
            "mykubernetes.io/x",
        ] {
            assert!(is_pool_key(good), "{good}");
        }
        for bad in [
            "",
            "a b",
            "kubernetes.io/os",
            "node-role.kubernetes.io/worker",
            "croft.dev/pool",
            "policy.croft.dev/x",
            "karpenter.sh/nodepool",
            "foo.k8s.io/x",
            "/x",
            "a/",
        ] {
            assert!(!is_pool_key(bad), "{bad}");
        }
        let Decoded { object, error } = pool(
            "p".to_owned(),
            None,
            &json!({"effects": ["NoExecute", "Tickle"], "provisioner": "Magic"}),
            &Value::Null,
        );
        assert_eq!((object.key.as_str(), object.value.as_str(), error), (POOL_NAME_LABEL, "p", None));
        assert_eq!(object.effects, [Effect::NoExecute].into_iter().collect());
        assert_eq!(object.provisioner, Provisioner::Croft);
        assert!(pool("p".to_owned(), None, &json!({"key": 5}), &Value::Null).error.is_some());
    }
}
