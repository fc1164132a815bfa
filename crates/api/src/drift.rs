//! Drift: an instance that differs from what its pool and class would launch now. Called by the controller and `croft
//! plan`.
//!
//! A NodeClaim carries a hash per field that it was launched with. A stamp that lacks a field, or has another version,
//! was written by another version of Croft: it is written again, and no node is replaced for it. Properties of the
//! instance are compared directly: its image, its zone, and the pool's requirements, which may change as long as the
//! node still meets them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{EC2NodeClass, NodeClaim, TenantPool, convert, definitions::LAUNCHED_WITH, hash::hash};

/// Changes when the hash of a field changes.
const VERSION: u32 = 1;
const DIGITS: usize = 12;
const SECURITY_GROUPS: &str = "class.securityGroups";

/// The field that differs where the pool has the template no more that a claim was launched by.
pub const TEMPLATE: &str = "pool.templates";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    version: u32,
    fields: BTreeMap<String, String>,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub enum DriftStatus {
    /// The claim is as it would be launched now.
    Current,
    /// The claim has no stamp that can be compared: it gets this one.
    Unstamped(String),
    /// The claim differs in these fields.
    Drifted(Vec<String>),
}

/// The stamp of an instance that is launched now, hashed once for all claims of a pool.
#[derive(Debug)]
pub struct Wanted {
    pool: Arc<TenantPool>,
    class: Arc<EC2NodeClass>,
    fields: BTreeMap<String, String>,
}

impl Wanted {
    /// Hashes the fields of pool and class.
    #[must_use]
    pub fn new(pool: &Arc<TenantPool>, class: &Arc<EC2NodeClass>) -> Self {
        Self { pool: Arc::clone(pool), class: Arc::clone(class), fields: fields(pool, class) }
    }

    /// True if it is of the same template of its pool as `pool`.
    #[must_use]
    pub fn is_of_template(&self, pool: &TenantPool) -> bool {
        self.pool.template_name() == pool.template_name()
    }

    /// True if `pool` and `class` would be hashed to the same. Parts of a status that don't affect launches are
    /// ignored.
    #[must_use]
    pub fn is_of(&self, pool: &Arc<TenantPool>, class: &Arc<EC2NodeClass>) -> bool {
        (Arc::ptr_eq(&self.pool, pool) || self.pool.spec == pool.spec)
            && (Arc::ptr_eq(&self.class, class)
                || (self.class.spec == class.spec && self.class.status == class.status))
    }
}

fn fields(pool: &TenantPool, class: &EC2NodeClass) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, value: Result<serde_json::Value, serde_json::Error>| {
        // Absent, null and empty are equal: a field that is left out may later be written with its default.
        let text = match value {
            Ok(value) if !is_empty_value(&value) => value.to_string(),
            _ => String::new(),
        };
        fields.insert(name.to_owned(), hash(&[&text], DIGITS));
    };
    let json = |v: &dyn erased::Json| v.json();
    let template = pool.spec.template.as_ref();
    add("pool.taints", json(&convert::scheduler::taints(pool)));
    add("pool.labels", json(&template.map(|t| &t.metadata.labels)));
    add("pool.startupTaints", json(&template.map(|t| &t.spec.startup_taints)));
    add("pool.nodeClassRef", json(&template.map(|t| &t.spec.node_class_ref)));
    let spec = &class.spec;
    add("class.amiFamily", json(&spec.ami_family));
    add("class.role", json(&spec.role));
    add("class.instanceProfile", json(&spec.instance_profile));
    add("class.userData", json(&spec.user_data));
    add("class.blockDeviceMappings", json(&spec.block_device_mappings));
    add("class.instanceStorePolicy", json(&spec.instance_store_policy));
    add("class.metadataOptions", json(&spec.metadata_options));
    add("class.associatePublicIPAddress", json(&spec.associate_public_ip_address));
    add("class.detailedMonitoring", json(&spec.detailed_monitoring));
    add("class.placementGroup", json(&spec.placement_group));
    add("class.kubelet", json(&spec.kubelet));
    let mut groups = class.status.as_ref().map(|s| s.security_groups.clone()).unwrap_or_default();
    groups.sort();
    // Unknown groups are no finding: the stamp then lacks the field, and the class is compared without it.
    if !groups.is_empty() {
        add(SECURITY_GROUPS, json(&groups));
    }
    fields
}

mod erased {
    /// A value that can be serialized, by reference.
    pub(super) trait Json {
        fn json(&self) -> Result<serde_json::Value, serde_json::Error>;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> Result<serde_json::Value, serde_json::Error> {
            serde_json::to_value(self)
        }
    }
}

fn is_empty_value(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::Bool(value) => !value,
        serde_json::Value::Array(list) => list.is_empty(),
        serde_json::Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The stamp of a NodeClaim that is launched now.
#[must_use]
pub fn stamp(pool: &TenantPool, class: &EC2NodeClass) -> String {
    let stamp = Stamp { version: VERSION, fields: fields(pool, class) };
    serde_json::to_string(&stamp).unwrap_or_default()
}

/// Compares a NodeClaim and its node, which has these labels, with what would be launched now.
#[must_use]
pub fn compare(claim: &NodeClaim, labels: &BTreeMap<String, String>, wanted: &Wanted) -> DriftStatus {
    let Wanted { pool, class, fields: now } = wanted;
    let stamp = claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(LAUNCHED_WITH))
        .and_then(|text| serde_json::from_str::<Stamp>(text).ok())
        .filter(|stamp| stamp.version == VERSION);
    let mut differs: Vec<String> = instance_differences(claim, labels, pool, class);
    let Some(stamp) = stamp else {
        return if differs.is_empty() {
            DriftStatus::Unstamped(self::stamp(pool, class))
        } else {
            DriftStatus::Drifted(differs)
        };
    };
    let mut incomplete = false;
    let unknown = hash(&[""], DIGITS);
    for (name, hash) in now {
        match stamp.fields.get(name) {
            Some(then) if then == hash => {}
            // The stamp was written while the class had no findings.
            Some(then) if name == SECURITY_GROUPS && *then == unknown => incomplete = true,
            Some(_) => differs.push(name.clone()),
            None => incomplete = true,
        }
    }
    if !differs.is_empty() {
        differs.sort();
        DriftStatus::Drifted(differs)
    } else if incomplete {
        DriftStatus::Unstamped(self::stamp(pool, class))
    } else {
        DriftStatus::Current
    }
}

/// The properties in which the instance itself differs.
fn instance_differences(
    claim: &NodeClaim,
    labels: &BTreeMap<String, String>,
    pool: &TenantPool,
    class: &EC2NodeClass,
) -> Vec<String> {
    let mut differs = Vec::new();
    let status = claim.status.as_ref();
    let found = class.status.as_ref();
    // A class without findings can't be resolved now, which is no reason to replace nodes.
    let amis = found.map(|s| s.amis.as_slice()).unwrap_or_default();
    if let Some(image) = status.and_then(|s| s.image_id.as_ref())
        && !amis.is_empty()
        && amis.iter().all(|ami| ami.id != *image)
    {
        differs.push("class.amis".to_owned());
    }
    let subnets = found.map(|s| s.subnets.as_slice()).unwrap_or_default();
    if let Some(zone) = status.and_then(|s| s.zone.as_ref())
        && !subnets.is_empty()
        && subnets.iter().all(|subnet| subnet.zone != *zone)
    {
        differs.push("class.subnets".to_owned());
    }
    let requirements = pool.spec.template.iter().flat_map(|t| &t.spec.requirements);
    for wanted in requirements.map(convert::scheduler::requirement) {
        if !wanted.is_met_by(labels) {
            differs.push(format!("pool.requirements[{}]", wanted.key));
        }
    }
    differs
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(spec: Value) -> TenantPool {
        let mut template = json!({"nodeClassRef": {"name": "c"}});
        merge(&mut template, &spec);
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": template}},
        }))
        .unwrap()
    }

    fn class(spec: Value, status: Value) -> EC2NodeClass {
        let mut all = json!({
            "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r",
            "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        });
        merge(&mut all, &spec);
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "c"},
            "spec": all, "status": status,
        }))
        .unwrap()
    }

    fn compare(
        claim: &NodeClaim,
        labels: &BTreeMap<String, String>,
        pool: &TenantPool,
        class: &EC2NodeClass,
    ) -> DriftStatus {
        super::compare(claim, labels, &Wanted::new(&Arc::new(pool.clone()), &Arc::new(class.clone())))
    }

    fn claim(stamp: Option<String>) -> NodeClaim {
        let annotations = stamp.map(|s| json!({LAUNCHED_WITH: s}));
        serde_json::from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
            "metadata": {"name": "p-1", "annotations": annotations},
            "spec": {"pool": "p", "nodeClassRef": {"name": "c"}, "instanceTypes": ["m5.large"], "zones": ["a"],
                "capacityType": "on-demand"},
            "status": {"zone": "a", "imageId": "ami-1"},
        }))
        .unwrap()
    }

    fn node() -> BTreeMap<String, String> {
        [("kubernetes.io/arch", "amd64")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    fn merge(into: &mut Value, from: &Value) {
        let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else { return };
        into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }

    #[test]
    fn each_field_drifts_by_name() {
        let (p, c) = (pool(json!({})), class(json!({}), json!({"securityGroups": ["sg-0"]})));
        let made = claim(Some(stamp(&p, &c)));
        assert_eq!(compare(&made, &node(), &p, &c), DriftStatus::Current);
        let drifts = |p: &TenantPool, c: &EC2NodeClass, field: &str| {
            assert_eq!(compare(&made, &node(), p, c), DriftStatus::Drifted(vec![field.to_owned()]));
        };
        drifts(&pool(json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})), &c, "pool.taints");
        drifts(
            &pool(json!({"startupTaints": [{"key": "k", "effect": "NoSchedule"}]})),
            &c,
            "pool.startupTaints",
        );
        drifts(&pool(json!({"nodeClassRef": {"name": "other"}})), &c, "pool.nodeClassRef");
        drifts(&p, &class(json!({"userData": "echo"}), json!({})), "class.userData");
        drifts(&p, &class(json!({"role": "other"}), json!({})), "class.role");
        drifts(&p, &class(json!({"detailedMonitoring": true}), json!({})), "class.detailedMonitoring");
        drifts(&p, &class(json!({}), json!({"securityGroups": ["sg-1"]})), "class.securityGroups");
        let images = json!({"amis": [{"id": "ami-2", "arch": "amd64"}]});
        drifts(&p, &class(json!({}), images), "class.amis");
        let subnets = json!({"subnets": [{"id": "s", "zone": "b"}]});
        drifts(&p, &class(json!({}), subnets), "class.subnets");
        let arm =
            json!({"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]});
        drifts(&pool(arm), &c, "pool.requirements[kubernetes.io/arch]");
    }

    #[test]
    fn templates_of_a_pool_drift_apart() {
        let pool = |arm: &str| -> TenantPool {
            serde_json::from_value(json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
                "spec": {"templates": [
                    {"name": "x86", "spec": {"nodeClassRef": {"name": "c"}}},
                    {"name": "arm", "metadata": {"labels": {"team": arm}}, "spec": {"nodeClassRef": {"name": "c"}}},
                ]},
            }))
            .unwrap()
        };
        let c = class(json!({}), json!({}));
        let (before, after) = (pool("a"), pool("b"));
        let of = |pool: &TenantPool, name: &str| pool.of_template(Some(name)).unwrap().into_owned();
        let launched = |name: &str| claim(Some(stamp(&of(&before, name), &c)));
        assert_eq!(compare(&launched("x86"), &node(), &of(&after, "x86"), &c), DriftStatus::Current);
        let drifted = DriftStatus::Drifted(vec!["pool.labels".to_owned()]);
        assert_eq!(compare(&launched("arm"), &node(), &of(&after, "arm"), &c), drifted);
        assert!(after.of_template(None).is_none() && after.of_template(Some("gpu")).is_none());
    }

    #[test]
    fn change_that_affects_no_instance_is_no_drift() {
        let (p, c) = (pool(json!({})), class(json!({}), json!({"securityGroups": ["a", "b"]})));
        let made = claim(Some(stamp(&p, &c)));
        let current = |p: &TenantPool, c: &EC2NodeClass| {
            assert_eq!(compare(&made, &node(), p, c), DriftStatus::Current);
        };
        current(&pool(json!({"expireAfter": "1h", "terminationGracePeriod": "1h"})), &c);
        let amd =
            json!({"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]});
        current(&pool(amd), &c);
        current(&p, &class(json!({"detailedMonitoring": false}), json!({"securityGroups": ["b", "a"]})));
        let more = json!({
            "securityGroups": ["a", "b"],
            "amis": [{"id": "ami-2", "arch": "arm64"}, {"id": "ami-1", "arch": "amd64"}],
            "subnets": [{"id": "s", "zone": "b"}, {"id": "t", "zone": "a"}],
        });
        current(&p, &class(json!({"tags": {"new": "tag"}}), more));
    }

    #[test]
    fn unknown_findings_are_no_drift() {
        let p = pool(json!({}));
        let known = class(json!({}), json!({"securityGroups": ["sg-1"]}));
        let unknown = class(json!({}), json!({}));
        // A look-up without results, or a class that was created again.
        assert_eq!(compare(&claim(Some(stamp(&p, &known))), &node(), &p, &unknown), DriftStatus::Current);
        // An instance launched meanwhile is stamped again once the groups are found.
        let meanwhile = claim(Some(stamp(&p, &unknown)));
        assert_eq!(compare(&meanwhile, &node(), &p, &unknown), DriftStatus::Current);
        assert_eq!(compare(&meanwhile, &node(), &p, &known), DriftStatus::Unstamped(stamp(&p, &known)));
        // The same with the hash of an earlier version of Croft.
        let mut earlier: Stamp = serde_json::from_str(&stamp(&p, &unknown)).unwrap();
        earlier.fields.insert(SECURITY_GROUPS.to_owned(), hash(&[""], DIGITS));
        let earlier = claim(Some(serde_json::to_string(&earlier).unwrap()));
        assert_eq!(compare(&earlier, &node(), &p, &known), DriftStatus::Unstamped(stamp(&p, &known)));
        let other = class(json!({}), json!({"securityGroups": ["sg-2"]}));
        let drifted = DriftStatus::Drifted(vec![SECURITY_GROUPS.to_owned()]);
        assert_eq!(compare(&claim(Some(stamp(&p, &known))), &node(), &p, &other), drifted);
    }

    #[test]
    fn stamp_of_another_version_is_rewritten_without_drift() {
        let (p, c) = (pool(json!({})), class(json!({}), json!({})));
        let now = stamp(&p, &c);
        let mut later: Stamp = serde_json::from_str(&now).unwrap();
        later.version += 1;
        later.fields.values_mut().for_each(|hash| hash.push('x'));
        let mut fewer: Stamp = serde_json::from_str(&now).unwrap();
        fewer.fields.remove("class.kubelet");
        let texts = [
            None,
            Some("not json".to_owned()),
            Some(serde_json::to_string(&later).unwrap()),
            Some(serde_json::to_string(&fewer).unwrap()),
        ];
        for text in texts {
            assert_eq!(
                compare(&claim(text.clone()), &node(), &p, &c),
                DriftStatus::Unstamped(now.clone()),
                "{text:?}"
            );
        }
    }
}
