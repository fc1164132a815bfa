//! Decodes stored objects of Croft one by one: an object that can't be decoded, or that breaks the rules of its CRD,
//! doesn't affect the others.
//!
//! ```text
//!  watch ──Stored<K>──▶ read ──▶ Ok(K): takes effect
//!                             └─▶ Err(Unread): the last valid version stays in force; else a safe stand-in, which
//!                                 launches nothing, terminates nothing and opens nothing; and a condition says why
//! ```
//!
//! The API server refuses such objects, but an older CRD without a rule, or a newer CRD before a rollback, may have
//! accepted them. Unknown fields are ignored. After a value of the wrong type the API server refuses every write of the
//! object, its status included, since it can't evaluate the rules: an event says so, existing instances stay, and a pool
//! launches nothing until it is corrected.
//!
//! Called by the controller; the webhook uses [`croft_policy::stored`].

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::ClusterResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

pub use crate::kind::{HasConditions, Kind};
use crate::rules;

/// Reason of the condition `SpecValid` of an object that can't be decoded or breaks a rule.
pub const INVALID_SPEC: &str = "InvalidSpec";

/// A stored object, not checked yet. Decoding it never fails, so that one object can't break a list.
#[derive(Clone, Debug)]
pub struct Stored<K> {
    metadata: ObjectMeta,
    decoded: Result<Box<K>, (Value, String)>,
}

/// An object that can't be decoded or breaks a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Unread<K> {
    /// Its metadata and status, with a safe spec. Every kind has one.
    pub stand_in: Option<K>,
    /// The error.
    pub flaw: Flaw,
}

/// An error of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The path of the first invalid field, and a sentence.
    pub why: String,
    /// True if fields that admission reads are invalid as well: the stand-in lacks them.
    pub concerns_admission: bool,
}

/// The generation of each object that passed all rules, so that it isn't checked again.
#[derive(Clone, Debug, Default)]
pub struct Checked(BTreeMap<String, (String, i64)>);

impl Checked {
    /// Forgets the object of this name.
    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

impl<K: Kind> Stored<K> {
    /// Returns the object, if it can be decoded and keeps the rules of its CRD.
    ///
    /// # Errors
    /// The stand-in, and what is wrong with the object.
    pub fn read(self, checked: &mut Checked) -> Result<K, Box<Unread<K>>> {
        let name = self.metadata.name.clone().unwrap_or_default();
        let generation = self.metadata.uid.clone().zip(self.metadata.generation);
        let object = match self.decoded {
            Ok(object) if !K::HELD_TO_RULES => return Ok(*object),
            Ok(object) if generation.is_some() && checked.0.get(&name) == generation.as_ref() => {
                return Ok(*object);
            }
            Ok(object) => object,
            Err((value, why)) => return Err(Box::new(Unread::new(self.metadata, &value, Err(why)))),
        };
        let rules = rules::of(&K::kind(&()));
        let mut findings = rules.map(|rules| rules.check(&*object)).unwrap_or_default();
        // Croft itself writes the status, and the name can't be changed any more.
        findings.retain(|(path, _)| path == "spec" || path.starts_with("spec."));
        if findings.is_empty() {
            checked.0.extend(generation.map(|generation| (name, generation)));
            return Ok(*object);
        }
        checked.forget(&name);
        let value = serde_json::to_value(&*object).unwrap_or_default();
        Err(Box::new(Unread::new(self.metadata, &value, Ok(findings))))
    }

    /// Returns the object, if all of it can be decoded, without checking rules.
    #[must_use]
    pub fn whole(self) -> Option<K> {
        self.decoded.ok().map(|object| *object)
    }

    /// Returns the parts of the object that can be decoded, without checking rules.
    #[must_use]
    pub fn legible(self) -> Option<K> {
        match self.decoded {
            Ok(object) => Some(*object),
            Err((value, why)) => Unread::new(self.metadata, &value, Err(why)).stand_in,
        }
    }

    /// Its spec as it is stored.
    #[must_use]
    pub fn spec(&self) -> Value {
        self.field("spec")
    }

    /// Its status as it is stored.
    #[must_use]
    pub fn status(&self) -> Value {
        self.field("status")
    }

    fn field(&self, name: &str) -> Value {
        let take = |mut value: Value| value.get_mut(name).map(Value::take).unwrap_or_default();
        match &self.decoded {
            Ok(object) => serde_json::to_value(object).map(take).unwrap_or_default(),
            Err((value, _)) => take(value.clone()),
        }
    }
}

impl<K: Kind> Unread<K> {
    /// `findings` are the broken rules, or why the whole object can't be decoded.
    fn new(metadata: ObjectMeta, value: &Value, findings: Result<rules::Findings, String>) -> Self {
        let none = Map::new();
        let spec = value.get("spec").and_then(Value::as_object).unwrap_or(&none);
        let findings = findings.unwrap_or_else(|why| {
            let mut findings = illegible::<K>(spec);
            if findings.is_empty() {
                findings.push(("spec".to_owned(), why));
            }
            findings
        });
        let is_bad = |field: &str| {
            findings.iter().any(|(at, _)| {
                let rest = at.strip_prefix("spec.").and_then(|at| at.strip_prefix(field));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let mut safe = K::stand_in();
        for name in K::KEPT {
            if let (Some(field), Some(safe)) =
                (spec.get(*name).filter(|_| !is_bad(name)), safe.as_object_mut())
            {
                safe.insert((*name).to_owned(), field.clone());
            }
        }
        let stand_in = decode::<K>(&safe, &legible_status::<K>(value.get("status")));
        let stand_in =
            stand_in.or_else(|_| decode::<K>(&K::stand_in(), &Value::Null)).ok().map(|mut object| {
                *object.meta_mut() = metadata;
                K::complete(&mut object, spec);
                object
            });
        // A rule over the whole spec of a Tenant is about its claims.
        let over_all = K::kind(&()) == "Tenant" && findings.iter().any(|(path, _)| path == "spec");
        let concerns_admission = over_all || K::KEPT.iter().any(|name| is_bad(name));
        let why = findings.first().map(|(path, message)| format!("{path}: {message}")).unwrap_or_default();
        Self { stand_in, flaw: Flaw { why, concerns_admission } }
    }
}

/// The fields of a spec that can't be decoded, or that break a rule by themselves.
fn illegible<K: Kind>(spec: &Map<String, Value>) -> rules::Findings {
    let mut findings = rules::Findings::new();
    let mut legible = K::stand_in();
    for (name, field) in spec {
        let mut one = K::stand_in();
        if let Some(one) = one.as_object_mut() {
            one.insert(name.clone(), field.clone());
        }
        match decode::<K>(&one, &Value::Null) {
            Ok(_) => {
                if let Some(legible) = legible.as_object_mut() {
                    legible.insert(name.clone(), field.clone());
                }
            }
            Err(why) => findings.push((format!("spec.{name}"), why)),
        }
    }
    if let Some(rules) = rules::of(&K::kind(&())).filter(|_| K::HELD_TO_RULES) {
        let more = rules.check_value(&json!({"spec": legible})).into_iter();
        findings.extend(
            more.filter(|(path, _)| spec.keys().any(|name| path.starts_with(&format!("spec.{name}")))),
        );
    }
    findings
}

/// The parts of a status that can be decoded.
fn legible_status<K: Kind>(status: Option<&Value>) -> Value {
    let Some(Value::Object(fields)) = status else { return Value::Null };
    let can = |status: &Value| decode::<K>(&K::stand_in(), status).is_ok();
    let whole = Value::Object(fields.clone());
    if can(&whole) {
        return whole;
    }
    let one = |(name, field): &(&String, &Value)| can(&json!({name.as_str(): field}));
    let kept = fields.iter().filter(one).map(|(name, field)| (name.clone(), field.clone()));
    Value::Object(kept.collect())
}

fn decode<K: Kind>(spec: &Value, status: &Value) -> Result<K, String> {
    let mut object = json!({
        "apiVersion": format!("{}/{}", crate::GROUP, crate::VERSION),
        "kind": K::kind(&()),
        "metadata": {},
        "spec": spec,
    });
    if let (Some(object), false) = (object.as_object_mut(), status.is_null()) {
        object.insert("status".to_owned(), status.clone());
    }
    serde_json::from_value(object).map_err(|error| error.to_string())
}

impl<'de, K: Kind> Deserialize<'de> for Stored<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let metadata = value.get_mut("metadata").map(Value::take).unwrap_or_default();
        let mut metadata: ObjectMeta = serde_json::from_value(metadata).map_err(serde::de::Error::custom)?;
        // No reader needs the owners of fields, and they take most of an object's memory.
        metadata.managed_fields = None;
        if let Some(object) = value.as_object_mut() {
            object.insert("metadata".to_owned(), json!({}));
        }
        let decoded = match K::deserialize(&value) {
            Ok(mut object) => {
                *object.meta_mut() = metadata.clone();
                Ok(Box::new(object))
            }
            Err(error) => {
                let why = error.to_string();
                let status = legible_status::<K>(value.get("status"));
                // A status that a newer version wrote is ignored rather than the spec.
                match decode::<K>(value.get("spec").unwrap_or(&Value::Null), &status) {
                    Ok(mut object) => {
                        *object.meta_mut() = metadata.clone();
                        Ok(Box::new(object))
                    }
                    Err(_) => Err((value, why)),
                }
            }
        };
        Ok(Self { metadata, decoded })
    }
}

impl<K: Kind> Resource for Stored<K> {
    type DynamicType = ();
    type Scope = ClusterResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
        amount::Amount,
        config::{
            Admission, ClusterDisruption, CroftConfigSpec, Misplaced, Mutation, NonTenantPods,
            PodsWithoutRequests,
        },
        pause::Pause,
        pool::ForTenant,
        zone::{ClosedZone, ZoneState},
    };

    fn stored<K: Kind>(spec: &Value, status: &Value) -> Stored<K> {
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": K::kind(&()), "spec": spec, "status": status,
            "metadata": {"name": "o", "uid": "u", "generation": 3, "managedFields": [{"manager": "m"}]},
        }))
        .unwrap()
    }

    fn read<K: Kind>(spec: Value) -> Result<K, Box<Unread<K>>> {
        stored(&spec, &Value::Null).read(&mut Checked::default())
    }

    #[test]
    fn every_kind_has_a_stand_in() {
        fn check<K: Kind>() {
            let unread =
                read::<K>(json!({"pool": [], "pools": 5, "template": 5, "role": [], "exemptNamespaces": 5}));
            let stand_in = unread.unwrap_err().stand_in.unwrap();
            assert_eq!((stand_in.meta().uid.as_deref(), &stand_in.meta().managed_fields), (Some("u"), &None));
        }
        check::<Tenant>();
        check::<TenantPool>();
        check::<EC2NodeClass>();
        check::<NodeClaim>();
        check::<CroftConfig>();
    }

    #[test]
    fn newer_fields_and_statuses_are_ignored() {
        let spec = json!({"namespaces": ["a"], "pools": ["p"], "mood": {"good": true}});
        let status = json!({"conditions": [], "pods": "many", "nodes": 3});
        let tenant: Tenant = stored(&spec, &status).read(&mut Checked::default()).unwrap();
        assert_eq!(tenant.spec.pools, ["p"]);
        let status = tenant.status.unwrap();
        assert_eq!((status.pods, status.nodes), (None, Some(3)));
    }

    #[test]
    fn invalid_tenant_keeps_its_valid_claims() {
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]});
        let spec = json!({"namespaces": ["a"], "pools": ["p"], "namespaceSelector": selector});
        let Unread { stand_in, flaw } = *read::<Tenant>(spec).unwrap_err();
        let spec = stand_in.unwrap().spec;
        assert_eq!((spec.namespaces, spec.pools), (vec!["a".to_owned()], vec!["p".to_owned()]));
        assert!(spec.namespace_selector.is_none() && flaw.concerns_admission);
        assert!(
            flaw.why.starts_with("spec.namespaceSelector.matchExpressions[0].operator: "),
            "{}",
            flaw.why
        );
        // The engine enforces limits: until they can be decoded, nothing is launched, and the claims are in force.
        let spec = json!({"namespaces": ["a"], "pools": ["p"], "limits": {"cpu": "-1"}});
        let Unread { stand_in, flaw } = *read::<Tenant>(spec).unwrap_err();
        assert!(!flaw.concerns_admission);
        assert_eq!(stand_in.unwrap().spec.limits["nodes"].0, "0");
    }

    #[test]
    fn invalid_pool_neither_launches_nor_terminates() {
        for template in
            [json!({"spec": {"nodeClassRef": {"name": "c"}, "expireAfter": "0s"}}), json!({"spec": 5})]
        {
            let spec = json!({"key": "node-pool", "template": template, "limits": {"cpu": 5}});
            let Unread { stand_in, flaw } = *read::<TenantPool>(spec).unwrap_err();
            let spec = stand_in.unwrap().spec;
            assert_eq!((spec.key.as_str(), spec.template.is_none()), ("node-pool", true));
            assert_eq!(spec.disruption.budgets[0].nodes, "0");
            assert_eq!(spec.disruption.initialization_timeout(), None, "nodes that are late aren't replaced");
            assert_eq!(
                spec.disruption.repair_after("Ready"),
                None,
                "nodes that are defective aren't, either"
            );
            assert!(flaw.why.starts_with("spec.template") && !flaw.concerns_admission, "{}", flaw.why);
        }
        let spec = json!({"key": "kubernetes.io/os", "provisioner": "None"});
        assert!(read::<TenantPool>(spec).unwrap_err().flaw.concerns_admission);
    }

    #[test]
    fn invalid_pool_is_for_no_more_tenants_than_the_stored_one() {
        let stand_in = |mut spec: Value| {
            spec["template"] = json!({"spec": 5});
            read::<TenantPool>(spec).unwrap_err().stand_in.unwrap().spec
        };
        assert!(stand_in(json!({"perTenant": true})).per_tenant);
        assert!(stand_in(json!({"perTenant": "each"})).per_tenant, "what can't be read is for no tenant");
        let of = ForTenant { pool: "dev".to_owned(), tenant: "shop".to_owned() };
        assert_eq!(stand_in(json!({"forTenant": {"pool": "dev", "tenant": "shop"}})).for_tenant, Some(of));
        let of = ForTenant { pool: String::new(), tenant: "shop".to_owned() };
        assert_eq!(stand_in(json!({"forTenant": {"tenant": "shop"}})).for_tenant, Some(of));
        let plain = stand_in(json!({}));
        assert!(!plain.per_tenant && plain.for_tenant.is_none());
    }

    #[test]
    fn invalid_entries_of_settings_are_left_out() {
        let spec = json!({"exemptNamespaces": ["team-*", "agents"], "misplaced": "Recreate"});
        let spec = read::<CroftConfig>(spec).unwrap_err().stand_in.unwrap().spec;
        assert_eq!((spec.exempt_namespaces, spec.limits.len()), (vec!["agents".to_owned()], 0));
        assert_eq!(spec.misplaced, crate::config::Misplaced::Recreate);
        let spec = json!({"limits": {"cpu": "-1"}});
        let spec = read::<CroftConfig>(spec).unwrap_err().stand_in.unwrap().spec;
        assert_eq!(spec.limits["nodes"].0, "0", "limits that can't be read aren't none");
    }

    #[test]
    fn every_valid_setting_stays_in_force() {
        // Without `..`: a new setting has to be listed here.
        let spec = CroftConfigSpec {
            non_tenant_pods: NonTenantPods::Reject,
            admission: Admission { mutation: Mutation::Policy },
            exempt_namespaces: vec!["agents".to_owned()],
            schedulers: vec!["system:batch".to_owned()],
            ignored_schedulers: vec!["batch".to_owned()],
            pods_without_requests: PodsWithoutRequests {
                cpu: Amount("1".to_owned()),
                memory: Amount("1Gi".to_owned()),
            },
            shared_with: vec!["monitoring".to_owned()],
            owner_metadata: vec!["example.com/".to_owned()],
            misplaced: Misplaced::Recreate,
            limits: [("nodes".to_owned(), Amount("9".to_owned()))].into(),
            disruption: ClusterDisruption {
                paused: Some(Pause { until: None, reason: "an incident".to_owned() }),
            },
            zones: vec![ClosedZone {
                name: "us-east-1a".to_owned(),
                state: ZoneState::Evacuate,
                until: None,
                reason: "an incident".to_owned(),
            }],
        };
        let mut broken = serde_json::to_value(&spec).unwrap();
        broken["misplaced"] = json!(5);
        let stand_in = read::<CroftConfig>(broken).unwrap_err().stand_in.unwrap();
        assert_eq!(stand_in.spec, CroftConfigSpec { misplaced: Misplaced::Report, ..spec });
    }

    #[test]
    fn pause_that_cannot_be_read_is_a_pause_and_an_absent_one_is_none() {
        let spec = json!({"misplaced": 5, "disruption": {"paused": {"until": "2026-12-31T18:00:00Z"}}});
        let spec = read::<CroftConfig>(spec).unwrap_err().stand_in.unwrap().spec;
        assert_eq!(spec.disruption.paused.unwrap().until, None);
        let spec = read::<CroftConfig>(json!({"misplaced": 5})).unwrap_err().stand_in.unwrap().spec;
        assert_eq!(spec.disruption, ClusterDisruption::default());
        let ignored = json!({"misplaced": 5, "ignoredSchedulers": ["batch", 7]});
        let spec = read::<CroftConfig>(ignored).unwrap_err().stand_in.unwrap().spec;
        assert_eq!(spec.ignored_schedulers, ["batch"]);
        let zone = |name: &str, state: &str| json!({"name": name, "state": state, "reason": "an incident"});
        let zones = json!({"misplaced": 5, "zones": [zone("a", "Evacuate"), zone("b", "Closed"), 7]});
        let spec = read::<CroftConfig>(zones).unwrap_err().stand_in.unwrap().spec;
        let names: Vec<&str> = spec.zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(names, ["a"], "a zone that can be read stays closed");
    }

    #[test]
    fn invalid_claim_is_decoded_as_far_as_possible() {
        let spec = json!({
            "pool": "p", "nodeClassRef": {"name": "c"}, "instanceTypes": ["m5.large"], "zones": ["z"],
            "capacityType": "block", "requirements": [{"key": "a", "operator": "Near"}],
        });
        let status = json!({"providerId": "aws:///z/i-1", "attempt": 7});
        let unread = stored::<NodeClaim>(&spec, &status).read(&mut Checked::default()).unwrap_err();
        let claim = unread.stand_in.unwrap();
        assert_eq!((claim.spec.pool.as_str(), claim.spec.capacity_type.as_str()), ("p", "block"));
        assert!(claim.spec.requirements.is_empty());
        assert_eq!(claim.status.unwrap().provider_id.as_deref(), Some("aws:///z/i-1"));
    }

    #[test]
    fn generation_is_checked_once() {
        let mut checked = Checked::default();
        let good = json!({"namespaces": ["a"], "pools": ["p"]});
        assert!(stored::<Tenant>(&good, &Value::Null).read(&mut checked).is_ok());
        assert_eq!(checked.0["o"], ("u".to_owned(), 3));
        let bad = json!({"namespaces": ["a*"], "pools": ["p"]});
        checked.forget("o");
        assert!(stored::<Tenant>(&bad, &Value::Null).read(&mut checked).is_err());
        assert!(checked.0.is_empty());
    }
}
