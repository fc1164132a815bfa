//! What the kinds have in common, and the stand-in of each for an object that can't be read.

use std::{collections::BTreeMap, fmt::Debug};

use croft_policy::{
    model::{DEFAULT_NAMESPACE, PoolTenants},
    stored,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, core::ClusterResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, config::ClusterDisruption,
    definitions::DEFECTS, pool::ForTenant,
};

/// A kind of custom resource of Croft.
pub trait Kind:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + DeserializeOwned + Serialize + Clone + Debug
{
    /// True if stored objects are checked by the rules of the CRD. Croft writes NodeClaims itself, and each has an
    /// instance: those are taken as they are.
    const HELD_TO_RULES: bool;
    /// The fields of the spec that the stand-in takes from the object itself, if they can be decoded.
    const KEPT: &[&str];
    /// The rest of the stand-in's spec.
    fn stand_in() -> Value;
    /// Completes a stand-in with the valid parts of fields.
    fn complete(_stand_in: &mut Self, _spec: &Map<String, Value>) {}
}

/// A kind whose status has conditions.
pub trait HasConditions {
    /// Its conditions; none without a status.
    fn conditions(&self) -> &[Condition];
}

macro_rules! have_conditions {
    ($($kind:ident),+) => {$(
        impl HasConditions for $kind {
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
            }
        }
    )+};
}

have_conditions!(Tenant, TenantPool, EC2NodeClass, NodeClaim, CroftConfig);

impl Kind for Tenant {
    const HELD_TO_RULES: bool = true;
    // A Tenant whose isolation or quota can't be read isn't taken for one without: its pods are refused.
    const KEPT: &[&str] = &[
        "namespaces",
        "namespaceSelector",
        "pools",
        "onConflict",
        "networkIsolation",
        "quota",
        "defaults",
        "podSecurity",
        "owners",
    ];
    fn stand_in() -> Value {
        json!({"pools": [], "limits": {"nodes": 0}})
    }
}

impl Kind for TenantPool {
    const HELD_TO_RULES: bool = true;
    const KEPT: &[&str] = &["key", "value", "perTenant", "forTenant", "effects", "provisioner", "sharedWith"];
    fn stand_in() -> Value {
        let repair_after = BTreeMap::from(DEFECTS.map(|defect| (defect, "Never")));
        json!({
            "limits": {"nodes": 0},
            "disruption": {
                "consolidateAfter": "Never",
                "initializationTimeout": "Never",
                "repairAfter": repair_after,
                "budgets": [{"nodes": "0"}],
            },
        })
    }
    /// Of one tenant, or of none, is a pool also where that can't be read: it isn't taken for one of all that name it.
    fn complete(stand_in: &mut Self, spec: &Map<String, Value>) {
        let read = stored::pool(String::new(), None, &Value::Object(spec.clone()), &Value::Null).object;
        match read.tenants {
            PoolTenants::AllThatNameIt => {}
            PoolTenants::Each => stand_in.spec.per_tenant = true,
            PoolTenants::One { made_from, tenant } => {
                stand_in.spec.for_tenant = Some(ForTenant { pool: made_from, tenant });
            }
        }
    }
}

impl Kind for EC2NodeClass {
    const HELD_TO_RULES: bool = true;
    const KEPT: &[&str] = &[];
    fn stand_in() -> Value {
        json!({"amiSelectorTerms": [], "subnetSelectorTerms": [], "securityGroupSelectorTerms": []})
    }
}

impl Kind for NodeClaim {
    const HELD_TO_RULES: bool = false;
    const KEPT: &[&str] = &[
        "pool",
        "nodeClassRef",
        "instanceTypes",
        "zones",
        "capacityType",
        "requirements",
        "requests",
        "taints",
        "startupTaints",
        "labels",
        "resources",
        "terminationGracePeriod",
    ];
    fn stand_in() -> Value {
        json!({"pool": "", "nodeClassRef": {"name": ""}, "instanceTypes": [], "zones": [], "capacityType": ""})
    }
}

impl Kind for CroftConfig {
    const HELD_TO_RULES: bool = true;
    const KEPT: &[&str] =
        &["nonTenantPods", "admission", "misplaced", "limits", "podsWithoutRequests", "disruption"];
    fn stand_in() -> Value {
        json!({
            "limits": {"nodes": 0},
            "disruption": {"paused": {"reason": "spec.disruption of the CroftConfig can't be read"}},
        })
    }
    /// Invalid entries of lists are left out, as the webhook does, and the others are in force.
    fn complete(stand_in: &mut Self, spec: &Map<String, Value>) {
        let read = stored::config(&Value::Object(spec.clone()), DEFAULT_NAMESPACE).object;
        let own = &mut stand_in.spec;
        (own.exempt_namespaces, own.schedulers, own.shared_with) =
            (read.exempt, read.schedulers, read.shared_with);
        own.owner_metadata = read.owner_metadata;
        // Admission doesn't read them. A name that breaks a rule is no scheduler's, and does no harm.
        let ignored = spec.get("ignoredSchedulers").and_then(Value::as_array).into_iter().flatten();
        own.ignored_schedulers = ignored.filter_map(Value::as_str).map(str::to_owned).collect();
        // A zone that can't be read isn't known to be bad, and the others are.
        let zones = spec.get("zones").and_then(Value::as_array).into_iter().flatten();
        own.zones = zones.filter_map(|zone| serde_json::from_value(zone.clone()).ok()).collect();
        if !spec.contains_key("limits") {
            own.limits.clear();
        }
        if !spec.contains_key("disruption") {
            own.disruption = ClusterDisruption::default();
        }
    }
}
