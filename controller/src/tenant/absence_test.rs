//! Tenants that are deleted: what stays until their absence is confirmed, and while their pools or nodes remain.

use croft_policy::{definitions::parameter::NON_TENANT_PODS, policies::parameters::INACTIVE};

use super::*;

#[test]
fn parameters_stay_in_force_while_nodes_remain_after_the_last_tenant() {
    let mut state = reconciled_state();
    for gone in ["a", "b"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", gone)));
        state.observe(&Change::Gone(ObjectId::new(Kind::TenantPool, "", &format!("pool-{gone}"))));
    }
    let writes = |state: &mut State| -> Vec<String> {
        let actions = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        let is_written = |a: &&Action| matches!(written(a), Some((Target::Namespace(_), _)));
        actions.iter().filter(is_written).map(key_text).collect()
    };
    assert_eq!(writes(&mut state), Vec::<String>::new());
    for node in ["a-1", "b-1"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Node, "", node)));
    }
    assert_eq!(writes(&mut state), ["parameters", "namespace non-tenant"]);
}

#[test]
fn namespace_keeps_its_pools_until_the_absence_of_its_tenant_is_confirmed() {
    let mut state = reconciled_state();
    let writes = |state: &mut State, seconds: u64| -> Vec<String> {
        let actions = at(state, seconds);
        actions.iter().filter(|a| is_namespace_write(a)).map(key_text).collect()
    };
    // As when its CRD is deleted: the Tenants go one after the other.
    assert_eq!(writes(&mut state, 100), Vec::<String>::new());
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    assert_eq!(writes(&mut state, 101), Vec::<String>::new(), "a Tenant may be absent for a moment");
    assert_eq!(writes(&mut state, 162), ["namespace tenant-a"]);
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "b")));
    assert_eq!(writes(&mut state, 300), ["namespace tenant-a"], "the other may be absent for a moment");
    assert_eq!(
        writes(&mut state, 400),
        ["namespace tenant-a", "namespace tenant-b"],
        "the pools stay closed"
    );
    for (node, pool) in [("a-1", "pool-a"), ("b-1", "pool-b")] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Node, "", node)));
        state.observe(&Change::Gone(ObjectId::new(Kind::TenantPool, "", pool)));
    }
    assert_eq!(writes(&mut state, 500), ["namespace non-tenant", "namespace tenant-a", "namespace tenant-b"]);
}

#[test]
fn pools_stay_closed_after_the_last_tenant() {
    let mut state = reconciled_state();
    for gone in ["a", "b"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", gone)));
    }
    for node in ["a-1", "b-1"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Node, "", node)));
    }
    let mode = |state: &State| state.parameters.written.clone().unwrap()[NON_TENANT_PODS].clone();
    let relabels = |writes: &[Action]| writes.iter().any(|write| key_text(write) == "namespace non-tenant");
    assert!(!relabels(&write(&mut state)));
    assert_eq!(mode(&state), "KeepOut");
    for pool in ["pool-a", "pool-b"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::TenantPool, "", pool)));
    }
    assert!(relabels(&write(&mut state)));
    assert_eq!(mode(&state), INACTIVE);
}

#[test]
fn a_pool_that_goes_to_another_tenant_is_taken_from_the_namespaces_of_one_that_is_absent() {
    let mut state = reconciled_state();
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    assert!(write(&mut state).iter().all(|write| !is_namespace_write(write)));
    state.observe(&tenant("b", "2026-01-02T00:00:00Z", &["tenant-b"], &["pool-b", "pool-a"]));
    let left = json!({"metadata": {"annotations": {POOLS_ANNOTATION: "-:-:-:pool-a"}}});
    assert_eq!(patch_of(&write(&mut state), "tenant-a"), Some(&left), "pods that would go there are refused");
}
