//! The policies of Policy mode and their bindings, as they are installed.

use std::sync::LazyLock;

use serde_json::Value;

use crate::policies::{
    cel::{Cel, SHARED},
    in_force,
    mutation::{joining_nodes, kept_metadata},
    parameters::hash,
    pods::{final_rules, final_variables},
    policy::{Mutating, Policy, Variable, constraints},
};

const POD: Cel = Cel("pod");
const DAEMONSET: Cel = Cel("daemonset");
const TENANCY: Cel = Cel("tenancy");
const OWN_POOLS: Cel = Cel("own_pools");
const CHOICE: Cel = Cel("choice");
const KEEP_OUT: Cel = Cel("keep_out");

/// Every mutating policy and its binding, for the API server's `admissionregistration.k8s.io/v1`, which serves them since
/// Kubernetes 1.36. `namespace` is Croft's own.
#[must_use]
pub fn documents(namespace: &str) -> Vec<Value> {
    let others = [kept_metadata::policy(), in_force::mutation(&VERSION)];
    let policies = DECIDING.iter().chain(&others);
    policies.flat_map(|policy| [policy.document(), policy.binding(namespace)]).collect()
}

/// The version of the mutating policies: a hash of all that they decide.
#[must_use]
pub fn version() -> String {
    VERSION.clone()
}

/// The policies that decide about pods and nodes. Rendered once: the controller compares their version in every pass.
static DECIDING: LazyLock<[Mutating; 3]> = LazyLock::new(|| [pods(), daemonsets(), joining_nodes::policy()]);

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let specs = DECIDING.iter().filter_map(|policy| Some(policy.document().get("spec")?.to_string()));
    let text: String = specs.collect();
    hash([text.as_bytes()].into_iter())
});

/// The validating policies that also refuse what the mutating ones leave unchanged.
pub(in crate::policies) fn validating() -> [Policy; 2] {
    [final_pods(), refused_daemonsets()]
}

/// The variables that a pod and a template each define: what the rules read of an object.
const SUBJECT: [&str; 6] = ["selector", "tolerations", "hasTerms", "terms", "containers", "annotated"];
/// The variables of what the chosen pool's taints need beside the tolerations that are there.
const TOLERATED: [&str; 3] = ["covering", "limitedAt", "uncovered"];

/// The variables of a template: those of every subject, without what is recorded.
fn of_template() -> Vec<Variable> {
    DAEMONSET.variables(&[["record", "written", "recorded"].as_slice(), &SUBJECT].concat())
}

/// The variables of every policy: what the pod asks for, and what is refused. The validating policies are installed on
/// every supported release, so these call no function that CEL has only since 1.35, as `distinct` and `sort` of lists.
fn refusing(subject: Vec<Variable>) -> Vec<Variable> {
    [
        subject,
        SHARED.variables(&["nonTenant", "keys/declared", "ownPools", "shared"]),
        TENANCY.variables(&["sharedLabels", "surplus"]),
        OWN_POOLS.variables(&["defaulted"]),
        TENANCY.variables(&["exempt"]),
        SHARED.variables(&["claimed"]),
        TENANCY.variables(&["tenancy", "allPools", "pools", "selected"]),
        OWN_POOLS.variables(&["override", "own", "chosen"]),
        CHOICE.variables(&["foreign", "missing", "requested", "fitting", "wanted", "tenantRefusal"]),
        KEEP_OUT.variables(&["free", "closed", "openLabels", "taintWords", "effectWords", "reached"]),
        KEEP_OUT.variables(&["toleratedKeys", "nonTenantRefusal"]),
        TENANCY.variables(&["refusal"]),
    ]
    .concat()
}

/// The variables of the mutating policies: those of `refusing`, and what is planned.
fn planning(subject: Vec<Variable>) -> Vec<Variable> {
    let pinning = CHOICE.variables(&["pin", "key", "value"]);
    let excluding = KEEP_OUT.variables(&["needs", "excludedKeys", "exclusions"]);
    [refusing(subject), pinning, excluding].concat()
}

fn pods() -> Mutating {
    Mutating {
        name: "croft-pods",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        conditions: POD.variables(&["acts", "names-no-node"]),
        variables: [planning(POD.variables(&SUBJECT)), POD.variables(&TOLERATED)].concat(),
        patches: POD.text("patches"),
        failure: "Fail",
    }
}

/// Conditions of the policies for DaemonSets.
fn of_daemonsets(mode: &str) -> Vec<Variable> {
    let others = DAEMONSET.variables(&["not-being-deleted", "names-no-node", "readable-record"]);
    [vec![("policy-mode", DAEMONSET.text(mode))], others].concat()
}

fn daemonsets() -> Mutating {
    let plan = ["words", "outdated", "keptSelector", "keptTolerations", "hasKept", "keptTerms"].as_slice();
    let plan = DAEMONSET.variables(&[plan, &TOLERATED].concat());
    Mutating {
        name: "croft-daemonsets",
        constraints: constraints("apps", &["daemonsets"], &["CREATE", "UPDATE"], true),
        conditions: of_daemonsets("acts"),
        variables: [planning(of_template()), plan].concat(),
        patches: DAEMONSET.text("patches"),
        failure: "Fail",
    }
}

/// The final pod; and the refusal, with its reason, of a pod that the mutating policy leaves unchanged.
///
/// One policy: the API server looks the namespace up once for each, so that of two, each could find nothing to refuse: one before
/// the controller has written the namespace's pools, and one after.
fn final_pods() -> Policy {
    Policy {
        name: "croft-pod-placement-keys",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        conditions: Vec::new(),
        variables: [refusing(POD.variables(&SUBJECT)), final_variables()].concat(),
        validations: [POD.rule("is_not_refused")].into_iter().chain(final_rules()).collect(),
        parameters: true,
    }
}

/// The refusal of a DaemonSet's template that can't be placed.
fn refused_daemonsets() -> Policy {
    let mut variables = refusing(of_template());
    variables.push(DAEMONSET.variable("unchanged"));
    Policy {
        name: "croft-daemonset-choice",
        constraints: constraints("apps", &["daemonsets"], &["CREATE", "UPDATE"], true),
        conditions: of_daemonsets("is_policy_mode"),
        variables,
        validations: vec![DAEMONSET.rule("is_not_refused")],
        parameters: true,
    }
}
