//! The policies of Policy mode and their bindings, as they are installed.

use serde_json::Value;

use crate::{
    definitions::{
        POOL_ANNOTATION,
        parameter::{PROBE, PROBED_MUTATION},
    },
    policies::{
        mutation::{
            choice, keep_out, namespaces, nodes, record,
            subject::{self, Subject},
            tenancy,
        },
        pods::{final_rules, final_variables},
        policy::{Mutating, Policy, Variable, break_glass, constraints},
    },
    rules::earlier_record,
};

/// Every mutating policy and its binding, for the API server's `admissionregistration.k8s.io/v1`, which serves them since
/// Kubernetes 1.36. `namespace` is Croft's own.
#[must_use]
pub fn documents(namespace: &str) -> Vec<Value> {
    let policies = [pods(), daemonsets(), nodes::starting(), namespaces::metadata(), probe(&version())];
    policies.into_iter().flat_map(|policy| [policy.document(), policy.binding(namespace)]).collect()
}

/// The version of the mutating policies: a hash of all that they decide.
#[must_use]
pub fn version() -> String {
    let text: String = [pods(), daemonsets(), nodes::starting()]
        .iter()
        .filter_map(|policy| Some(policy.document().get("spec")?.to_string()))
        .collect();
    crate::policies::parameters::hash([text.as_bytes()].into_iter())
}

/// The validating policies that also refuse what the mutating ones leave unchanged.
pub(in crate::policies) fn validating() -> [Policy; 2] {
    [final_pods(), refused_daemonsets()]
}

/// The variables of every policy: what the pod asks for, and what is refused. The validating policies are installed on
/// every supported release, so these call no function that CEL has only since 1.35, as `distinct` and `sort` of lists.
fn refusing(subject: Vec<Variable>) -> Vec<Variable> {
    // A variable reads only variables before it.
    let parts =
        [subject, tenancy::variables(), choice::choosing(), keep_out::reaching(), vec![tenancy::refusal()]];
    parts.into_iter().flatten().collect()
}

/// The variables of the mutating policies: those of `refusing`, and what is planned.
fn planning(subject: Vec<Variable>) -> Vec<Variable> {
    [refusing(subject), choice::pinning(), keep_out::excluding()].into_iter().flatten().collect()
}

fn pods() -> Mutating {
    let mut variables = planning(subject::of_pod());
    variables.extend(choice::tolerated("variables.tolerations"));
    let pod = Subject::Pod;
    let pinned = format!(
        "{} + {}",
        choice::selector_patches(pod, "variables.selector"),
        choice::toleration_patches(pod)
    );
    let kept_out = keep_out::terms_patches(pod, "variables.hasTerms", "variables.terms");
    Mutating {
        name: "croft-pods",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        // A pod that names a node is pinned by the webhook, which knows the node's pool.
        conditions: vec![("acts", acts_on_pods()), ("names-no-node", pod.names_no_node())],
        variables,
        patches: format!(
            "variables.refusal != '' ? [] : variables.tenancy == 'tenant' ? {pinned} : {kept_out}"
        ),
        failure: "Fail",
    }
}

/// CEL: the mutating policy for pods acts, in Webhook mode on pods of DaemonSets. The DaemonSet controller writes the node
/// in the place of the template's terms, so that each of its pods would wait for the webhook: agents start on new nodes
/// while the webhook is away, since it isn't asked about non-tenant pods that are kept off the pools.
fn acts_on_pods() -> String {
    let of_daemonset = "object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet' && o.?controller.orValue(false))";
    format!("({} || {of_daemonset}) && !{}", tenancy::is_on(), break_glass())
}

/// CEL: the mutating policies act. A policy that fails refuses the request, so `croft break-glass on` stops them before
/// anything else is evaluated. The API server evaluates every condition, so this is one: in Webhook mode no request costs an
/// authorization check.
fn acts() -> String {
    format!("{} && !{}", tenancy::is_on(), break_glass())
}

/// Conditions of the policies for DaemonSets, of which `mode` is one. The webhook plans a template that names a node, and
/// one whose record CEL can't read.
fn of_daemonsets(mode: String) -> Vec<(&'static str, String)> {
    vec![
        ("policy-mode", mode),
        ("not-being-deleted", "oldObject == null || !has(object.metadata.deletionTimestamp)".to_owned()),
        ("names-no-node", Subject::DaemonSet.names_no_node()),
        (
            "readable-record",
            format!("!{}.startsWith('{}')", Subject::DaemonSet.record(), earlier_record::START),
        ),
    ]
}

fn daemonsets() -> Mutating {
    let mut variables = planning(record::of_template());
    variables.extend(record::plan());
    Mutating {
        name: "croft-daemonsets",
        constraints: constraints("apps", &["daemonsets"], &["CREATE", "UPDATE"], true),
        conditions: of_daemonsets(acts()),
        variables,
        patches: record::patches(),
        failure: "Fail",
    }
}

/// Adds the version of the mutating policies to a probe of the parameters, so that its answer says whether they act.
fn probe(version: &str) -> Mutating {
    Mutating {
        name: "croft-mutation-probe",
        constraints: constraints("", &["namespaces"], &["UPDATE"], false),
        conditions: vec![
            ("own-namespace", "object.metadata.name == params.metadata.name".to_owned()),
            ("probe", format!("request.dryRun && '{PROBE}' in object.metadata.?annotations.orValue({{}})")),
        ],
        variables: Vec::new(),
        patches: format!(
            "[JSONPatch{{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('{PROBED_MUTATION}'), value: '{version}'}}]"
        ),
        failure: "Fail",
    }
}

/// The final pod; and the refusal, with its reason, of a pod that the mutating policy leaves unchanged: in Policy mode, and in
/// namespaces beyond a tenant's maximum always. These stay without pools, so a pod may have come there before the mode changed.
///
/// One policy: the API server looks the namespace up once for each, so that of two, each could find nothing to refuse: one before
/// the controller has written the namespace's pools, and one after.
fn final_pods() -> Policy {
    let mut variables = refusing(subject::of_pod());
    variables.extend(final_variables());
    let is_chosen = format!("({} || size(variables.surplus) == 3)", tenancy::is_on());
    let refusal = (
        format!("!{is_chosen} || variables.mirror || variables.refusal == '' || {}", break_glass()),
        format!("{is_chosen} ? variables.refusal : ''"),
    );
    Policy {
        name: "croft-pod-placement-keys",
        constraints: constraints("", &["pods"], &["CREATE"], true),
        conditions: Vec::new(),
        variables,
        validations: [refusal].into_iter().chain(final_rules()).collect(),
        parameters: true,
    }
}

/// The refusal of a DaemonSet's template that can't be placed. One that was refused before stays, so that labels and finalizers of the DaemonSet
/// can be changed.
fn refused_daemonsets() -> Policy {
    let pool = |object: &str| format!("{object}.spec.template.?metadata.?annotations[?'{POOL_ANNOTATION}']");
    let unchanged = format!(
        "oldObject != null && object.spec.template.spec == oldObject.spec.template.spec && {} == {}",
        pool("object"),
        pool("oldObject")
    );
    let mut variables = refusing(record::of_template());
    variables.push(("unchanged", unchanged));
    Policy {
        name: "croft-daemonset-choice",
        constraints: constraints("apps", &["daemonsets"], &["CREATE", "UPDATE"], true),
        conditions: of_daemonsets(tenancy::is_on()),
        variables,
        validations: vec![(
            format!(
                "variables.refusal == '' || (variables.unchanged && variables.tenancy != 'unknown') || {}",
                break_glass()
            ),
            "variables.refusal".to_owned(),
        )],
        parameters: true,
    }
}
