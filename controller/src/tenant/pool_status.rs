//! The conditions of TenantPools about their label and spec. [`crate::nodepool::status`] writes them, with those about
//! their nodes.

use std::collections::BTreeMap;

use croft_api::{
    TenantPool,
    condition::{ACCEPTED, Statement},
    pool::{Operator, Provisioner},
    sentence::shortened,
};
use croft_policy::Tenants;

use crate::{
    definitions::conditions as reasons,
    kube_api::Kind,
    state::InvalidObjects,
    tenant::{spec_valid::spec_valid, state::State},
};

/// Waiting pods that a condition names.
const MAX_NAMED_PODS: usize = 5;

/// The conditions of each pool that isn't being deleted. `open` has by pool the waiting pods that could be bound to its nodes.
pub(super) fn pool_statements(
    state: &State,
    invalid: &InvalidObjects,
    view: &Tenants,
    open: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, Vec<Statement>> {
    let pools = state.pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none());
    pools
        .map(|(name, pool)| {
            let conditions =
                pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let valid = spec_valid(invalid, Kind::TenantPool, name, conditions);
            let open = open.get(name).map(Vec::as_slice).unwrap_or_default();
            (name.clone(), accepted(state, view, name, open).into_iter().chain(valid).collect())
        })
        .collect()
}

/// Returns `None` if the condition keeps its status: what the policies know is unknown until a probe is answered.
fn accepted(state: &State, view: &Tenants, name: &str, open: &[String]) -> Option<Statement> {
    let statement =
        |status, reason, message| Some(Statement { kind: ACCEPTED, status: Some(status), reason, message });
    if state.pools.get(name).is_some_and(|pool| pool.spec.per_tenant) {
        let message = "a pool is made from it for each Tenant that names it".to_owned();
        return statement(true, reasons::ACCEPTED, message);
    }
    let collision = view.declarations().collisions().iter().find(|(younger, _)| **younger == *name);
    if let Some((_, older)) = collision {
        let message = format!(
            "its nodes would carry a label of the older TenantPool {older}, so it is ignored, and pods that would go \
             there are refused; recreate it with another spec.key or spec.value, or another name"
        );
        return statement(false, reasons::LABEL_TAKEN, message);
    }
    if let Some((label, other)) = state.pools.get(name).and_then(|pool| label_of_other(view, name, pool)) {
        let message = format!(
            "a template would give its nodes the label {label} of TenantPool {other}, whose pods could then be bound to them, so no \
             node is launched; take it out of metadata.labels and requirements of the template"
        );
        return statement(false, reasons::LABEL_TAKEN, message);
    }
    let pool = view.declarations().pool_id(name).and_then(|id| view.declarations().pool(id))?;
    if state.parameters.pool_in_force(pool)? {
        if !open.is_empty() {
            let message = format!(
                "no node is launched or admitted, since pods that are not its own wait and could be bound there: {}; \
                 they tolerate its taint and were created before it was theirs to keep off: delete them, or the workloads \
                 that made them, and what is created again is kept off",
                shortened(open, MAX_NAMED_PODS)
            );
            return statement(false, reasons::OPEN_TO_WAITING_PODS, message);
        }
        return statement(true, reasons::ACCEPTED, "no other pool has its label".to_owned());
    }
    let message = format!(
        "the admission policies don't know its label {}={} yet, so no node is launched; check that Croft's \
         controller runs and that manifests/install/policies.yaml is applied",
        pool.key, pool.value
    );
    statement(false, reasons::KEY_NOT_IN_FORCE, message)
}

/// A label of another pool that nodes launched by a template would carry, and the name of that pool. Its pods are pinned by the label,
/// and nothing but a taint, which they may tolerate, would keep them off.
fn label_of_other(view: &Tenants, name: &str, pool: &TenantPool) -> Option<(String, String)> {
    let declarations = view.declarations();
    let of_other = |(key, value): (&String, &String)| {
        let other = declarations.pool(declarations.pool_by_label(key, value)?)?;
        (*other.name != *name).then(|| (format!("{key}={value}"), other.name.to_string()))
    };
    let is_launched = pool.spec.provisioner == Provisioner::Croft;
    pool.by_template().filter(|_| is_launched).find_map(|(_, one)| {
        let template = one.spec.template.as_ref()?;
        let chosen =
            template.spec.requirements.iter().filter(|requirement| requirement.operator == Operator::In);
        let chosen =
            chosen.flat_map(|requirement| requirement.values.iter().map(|value| (&requirement.key, value)));
        template.metadata.labels.iter().chain(chosen).find_map(of_other)
    })
}
