//! Pods: the final pod at its creation, and its updates.

use crate::policies::{
    cel::{Cel, SHARED},
    policy::{Keys, Policy, Validation, Variable, constraints},
};

const CEL: Cel = Cel("pods");
const UPDATES: Cel = Cel("pod_updates");
const OWN_POOLS: Cel = Cel("own_pools");
const POD: Cel = Cel("pod");

/// CEL: the required node affinity keeps the pod off every pool, of which `keys` is a list of keys: see `pods.cel`. The webhook isn't
/// asked about such a pod.
#[must_use]
pub fn is_kept_out(keys: &str) -> String {
    CEL.with("is_kept_out", &[keys])
}

/// The variables of whether the pod of a tenant is placed. They read `ownPools` and `selected`.
const PLACING: [&str; 4] = ["mine", "mineName", "excludesPool", "placed"];
/// The variables of whether a pod is kept off pools that aren't shared with its namespace.
const SHARING: [&str; 4] = ["foreignKeys", "others", "tooManyOthers", "keptOffOthers"];

/// The final pod of a tenant is pinned to one of its pools and tolerates the pool's taints. The final pod of a labelled
/// non-tenant namespace doesn't tolerate the taints of pools by a toleration without a key or of the built-in one.
pub(super) fn placement() -> Policy {
    let variables = [
        SHARED.variables(&["keys/built-in"]),
        CEL.variables(&["mirror"]),
        SHARED.variables(&["nonTenant", "ownPools", "shared"]),
        CEL.variables(&["selected"]),
        CEL.variables(&PLACING),
        CEL.variables(&["reaches", "keptOut/built-in"]),
        // Only messages read what follows.
        POD.variables(&["selector", "annotated"]),
        OWN_POOLS.variables(&["defaulted", "override", "own", "chosen"]),
        CEL.variables(&["foreign"]),
    ];
    Policy {
        name: "croft-pod-placement",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        conditions: Vec::new(),
        variables: variables.concat(),
        validations: vec![CEL.rule("is_placed"), CEL.rule("is_off_pools/built-in")],
        parameters: false,
    }
}

/// The variables of [`final_rules`]. They read those of the tenancy, and `free`.
pub(super) fn final_variables() -> Vec<Variable> {
    let before =
        ["mirror", "reaches", "keptOut/declared", "ownLabels/final", "foreignTolerations"].as_slice();
    CEL.variables(&[before, &SHARING, &PLACING].concat())
}

/// The final pod by all that is declared: that of a tenant is placed, and a non-tenant pod is kept off the pools.
pub(super) fn final_rules() -> [Validation; 2] {
    [CEL.rule("is_placed"), CEL.rule("is_off_pools/declared")]
}

/// An update adds no toleration of a foreign pool, doesn't take the pod out of its pool, and lifts no gate before the
/// pod is placed.
pub(super) fn updates(keys: Keys) -> Policy {
    let mut variables = [
        SHARED.variables(&[keys.name(), "nonTenant", "ownPools", "shared"]),
        UPDATES.variables(&[keys.of("free/built-in", "free/declared"), "ownLabels"]),
        CEL.variables(&["selected"]),
        UPDATES.variables(&["before"]),
        CEL.variables(&["foreignTolerations"]),
        UPDATES.variables(&["foreignTolerationsBefore"]),
        CEL.variables(&["mine"]),
        UPDATES.variables(&["lifted"]),
        CEL.variables(&["reaches", keys.of("keptOut/built-in", "keptOut/declared")]),
    ]
    .concat();
    if keys == Keys::Declared {
        variables.extend(CEL.variables(&SHARING));
    }
    let gate = keys.of("keeps_gate/built-in", "keeps_gate/declared");
    Policy {
        name: keys.of("croft-pod-changes", "croft-pod-changes-keys"),
        constraints: constraints("", &["pods"], &["UPDATE"], true),
        conditions: UPDATES.variables(&["not-being-deleted", "placement-changes"]),
        variables,
        validations: ["adds_no_toleration", "stays_in_pool", "selects_no_other_pool", gate]
            .map(|name| UPDATES.rule(name))
            .to_vec(),
        parameters: keys == Keys::Declared,
    }
}
