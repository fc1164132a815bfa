//! One request, one outcome: dispatches an AdmissionReview to the rule of its kind.
//!
//! Called by the webhook and by `croft admit`. Handles pods, DaemonSets, bindings, nodes, namespaces, roles that the
//! controller gives, and warnings on other workloads; everything else is allowed.

use crate::{
    definitions::Rule,
    outcome::Outcome,
    patch::Patch,
    request::{
        review::{Object, Operation, Request},
        view::Labelled,
    },
    rules::{binding, daemonset, namespace, node, pod, role_binding, update, workload},
    tenancy::index::Tenants,
};

/// The admission phase that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Objects may be patched.
    Mutate,
    /// Objects are final.
    Validate,
    /// Mutation followed by validation, for callers that give one answer.
    Both,
}

/// Evaluates `request` against the tenants, in one of the two admission phases.
///
/// Costs one look-up of the namespace, and work in proportion to the object. No I/O.
///
/// ```
/// use croft_policy::{Config, Phase, Pool, Provisioner, Rule, Tenant, Tenants, evaluate, review, taint::Effects};
///
/// let pool = Pool {
///     name: "gpu".to_owned(),
///     created: None,
///     key: "example.com/pool".to_owned(),
///     value: "gpu".to_owned(),
///     effects: Effects::NONE,
///     shared_with: vec![],
///     provisioner: Provisioner::Croft,
///     template: croft_policy::NodeTemplate::default(),
///     tenants: croft_policy::PoolTenants::default(),
/// };
/// let tenant = Tenant {
///     name: "acme".to_owned(),
///     namespaces: vec!["acme".to_owned()],
///     pools: vec!["gpu".to_owned()],
///     ..Tenant::default()
/// };
/// let tenants = Tenants::offline(Config::default(), vec![tenant], vec![pool], vec![], vec![]);
/// let body = br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
///     "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "acme",
///     "operation": "CREATE", "userInfo": {"username": "jane"}, "object": {"spec": {}}}}"#;
/// let request = review::parse(body)?;
/// let outcome = evaluate(&tenants, &request, Phase::Mutate);
/// assert_eq!((outcome.rule, outcome.tenant, outcome.pool), (Rule::Pinned, Some("acme"), Some("gpu")));
/// # Ok::<(), review::ReviewError>(())
/// ```
#[must_use]
pub fn evaluate<'t>(tenants: &'t Tenants, request: &Request<'_>, phase: Phase) -> Outcome<'t> {
    if request.operation == Operation::Delete {
        return namespace::evaluate_delete(tenants, request);
    }
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Outcome::allow(Rule::NotApplicable);
    }
    let Some(object) = &request.object else { return Outcome::allow(Rule::NotApplicable) };
    let validates = phase != Phase::Mutate;
    let namespace = request.namespace.as_str();
    match (object, &request.old_object) {
        (Object::Pod(pod), _) if request.operation == Operation::Create && request.subresource.is_empty() => {
            pod::evaluate_create(tenants, request, pod, phase == Phase::Validate)
        }
        (Object::Pod(pod), Some(Object::Pod(old))) if validates && request.subresource.is_empty() => {
            update::evaluate(tenants, namespace, old, pod)
        }
        (Object::DaemonSet(new), old) if request.subresource.is_empty() => {
            let old = match old {
                Some(Object::DaemonSet(old)) => Some(old),
                _ => None,
            };
            daemonset::evaluate(tenants, namespace, old, new, phase == Phase::Validate)
        }
        (Object::Binding(new), _) if validates && matches!(&*request.subresource, "" | "binding") => {
            binding::evaluate(tenants, request.user.username.as_str(), namespace, &new.target.name)
        }
        (Object::Node(new), old) if validates && matches!(&*request.subresource, "" | "status") => {
            let old = match old {
                Some(Object::Node(old)) => Some(old),
                _ => None,
            };
            let checked = node::check(tenants.declarations(), &request.user, old, new);
            Outcome::from_check(checked, Rule::Unchanged)
        }
        (Object::Namespace(new), old) if matches!(&*request.subresource, "" | "status" | "finalize") => {
            let old = match old {
                Some(Object::Namespace(old)) => Some(&old.metadata),
                _ => None,
            };
            evaluate_namespace(tenants, request, old, &new.metadata, phase)
        }
        (Object::RoleBinding(new), _) if validates => role_binding::evaluate(tenants, request, new),
        (Object::Workload(new), _) if request.subresource.is_empty() => match new.template() {
            Some(template) => workload::evaluate(tenants, namespace, request.kind_name.as_str(), template),
            None => Outcome::allow(Rule::NotApplicable),
        },
        _ => Outcome::allow(Rule::NotApplicable),
    }
}

/// Evaluates the write of a namespace, from `old` if it exists.
fn evaluate_namespace<'t>(
    tenants: &'t Tenants,
    request: &Request<'_>,
    old: Option<&Labelled<'_>>,
    new: &Labelled<'_>,
    phase: Phase,
) -> Outcome<'t> {
    let (declarations, user) = (tenants.declarations(), &request.user);
    let (kept, patch) = match phase {
        Phase::Validate => (new.clone(), Patch::default()),
        Phase::Mutate | Phase::Both => namespace::take_back(declarations, user, old, new),
    };
    let name = if new.name.is_empty() { &request.name } else { &new.name };
    let checked = match phase {
        Phase::Mutate => Ok(()),
        Phase::Validate | Phase::Both => namespace::check(declarations, user, name, old, &kept),
    };
    let rule = if patch.is_empty() { Rule::Unchanged } else { Rule::MetadataKept };
    Outcome::from_check(checked, rule).with_patch(patch)
}
