//! One request, one verdict.

use crate::{
    binding, daemonset,
    denial::{Denial, Rule},
    index::{Ground, Tenants},
    keepout, namespace, node,
    patch::{Patch, Path},
    place::{self, Source},
    review::{Kind, Object, Operation, Request},
    terms::Lack,
    update,
    view::{Annotations, DaemonSet, Metadata, Pod, PodSpec, Template},
};

/// Which of the API server's two passes is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Objects may be changed.
    Mutate,
    /// Objects are as they will be stored.
    Validate,
    /// Mutation followed by validation, for those who have only one answer to give.
    Both,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<'t> {
    /// The rule that decided.
    pub rule: Rule,
    /// The refusal; `None` if the request is allowed.
    pub denial: Option<Denial>,
    /// What to change about the object. Empty if it is refused.
    pub patch: Patch,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The tenant whose ground it is.
    pub tenant: Option<&'t str>,
    /// The pool that was decided on.
    pub pool: Option<&'t str>,
    /// Why this pool.
    pub source: Option<Source>,
}

impl<'t> Outcome<'t> {
    /// True if the request is allowed.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    fn allow(rule: Rule) -> Self {
        Self {
            rule,
            denial: None,
            patch: Patch::default(),
            warnings: Vec::new(),
            tenant: None,
            pool: None,
            source: None,
        }
    }

    fn deny(denial: Denial) -> Self {
        Self { rule: denial.rule, denial: Some(denial), ..Self::allow(Rule::NotJudged) }
    }

    fn on(self, ground: Ground<'t>) -> Self {
        let tenant = match ground {
            Ground::Tenant { tenant, .. } => Some(&*tenant.name),
            _ => None,
        };
        Self { tenant, ..self }
    }
}

/// Judges `request`.
#[must_use]
pub fn judge<'t>(tenants: &'t Tenants, request: &Request<'_>, phase: Phase) -> Outcome<'t> {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Outcome::allow(Rule::NotJudged);
    }
    let Some(object) = &request.object else { return Outcome::allow(Rule::NotJudged) };
    let validates = phase != Phase::Mutate;
    let namespace = request.namespace.as_str();
    match (object, &request.old_object) {
        (Object::Pod(pod), _) if request.operation == Operation::Create && request.subresource.is_empty() => {
            judge_new_pod(tenants, request, pod, phase)
        }
        (Object::Pod(pod), Some(Object::Pod(old))) if validates && request.subresource.is_empty() => {
            judge_pod_update(tenants, namespace, old, pod)
        }
        (Object::DaemonSet(new), old) if request.subresource.is_empty() => {
            let old = match old {
                Some(Object::DaemonSet(old)) => Some(old),
                _ => None,
            };
            let outcome = judge_daemonset(tenants, namespace, old, new);
            if phase == Phase::Validate { Outcome { patch: Patch::default(), ..outcome } } else { outcome }
        }
        (Object::Binding(new), _) if validates && matches!(&*request.subresource, "" | "binding") => {
            judge_binding(tenants, request.user.username.as_str(), namespace, &new.target.name)
        }
        (Object::Node(new), old) if validates && matches!(&*request.subresource, "" | "status") => {
            let old = match old {
                Some(Object::Node(old)) => Some(old),
                _ => None,
            };
            verdict(node::judge(tenants.rules(), &request.user, old, new))
        }
        (Object::Namespace(new), old)
            if validates && matches!(&*request.subresource, "" | "status" | "finalize") =>
        {
            let old = match old {
                Some(Object::Namespace(old)) => Some(&old.metadata),
                _ => None,
            };
            let name = if new.metadata.name.is_empty() { &request.name } else { &new.metadata.name };
            verdict(namespace::judge(tenants.rules(), &request.user.username, name, old, &new.metadata))
        }
        (Object::Workload(new), _) if request.subresource.is_empty() => match new.template() {
            Some(template) => judge_template(tenants, namespace, request.kind_name.as_str(), template),
            None => Outcome::allow(Rule::NotJudged),
        },
        _ => Outcome::allow(Rule::NotJudged),
    }
}

fn verdict<'t>(result: Result<(), Denial>) -> Outcome<'t> {
    result.map_or_else(Outcome::deny, |()| Outcome::allow(Rule::Unchanged))
}

/// Plans a pod that is about to be made in `namespace`, as the mutating webhook does.
#[must_use]
pub fn plan_pod<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Outcome<'t> {
    plan(tenants, namespace, Some(&pod.metadata), &pod.spec, &Path::new("/spec"))
}

/// Plans a waiting pod as admission would plan the one that its controller makes again: without what pins it to pools that
/// it may not use any more.
#[must_use]
pub fn plan_recreated<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Outcome<'t> {
    let mut spec = pod.spec.clone();
    for key in lost_pins(tenants, namespace, &spec) {
        if let Some(selector) = &mut spec.node_selector {
            selector.remove(&key);
        }
    }
    plan(tenants, namespace, Some(&pod.metadata), &spec, &Path::new("/spec"))
}

/// Keys of the node selector that pin a pod to a pool which it may not use any more. Admission put them there for the
/// pools of that time; its controller's template hardly has them.
#[must_use]
pub fn lost_pins(tenants: &Tenants, namespace: &str, spec: &PodSpec<'_>) -> Vec<String> {
    let rules = tenants.rules();
    let ground = tenants.ground(namespace);
    let may_use = |pool| match ground {
        Ground::Tenant { tenant, .. } => tenant.may_use(pool),
        Ground::Nobody => rules.pool(pool).is_some_and(|p| p.is_shared_with(namespace)),
        Ground::Exempt | Ground::Unknown | Ground::Unread => true,
    };
    let is_lost = |key: &str, value: &str| {
        rules.key(key).is_some_and(|of_key| !of_key.pool(value).is_some_and(may_use))
    };
    let entries = spec.node_selector.iter().flat_map(|selector| selector.iter());
    entries.filter(|(key, value)| is_lost(key, value)).map(|(key, _)| key.to_string()).collect()
}

/// Plans the pod template of a DaemonSet, as the mutating webhook does. Paths of the patch are the DaemonSet's.
///
/// In an exempt namespace the plan is what was there before Croft: what it injected while the namespace was not exempt is
/// taken out. The webhook is not asked about exempt namespaces, so the controller applies that patch itself.
#[must_use]
pub fn plan_daemonset<'t>(tenants: &'t Tenants, namespace: &str, daemonset: &DaemonSet<'_>) -> Outcome<'t> {
    let template = &daemonset.spec.template;
    let path = Path::new("/spec/template");
    let spec_path = path.key("spec");
    let recorded = daemonset::recorded(template);
    let rest = daemonset::without(&template.spec, &recorded, None);
    let ground = tenants.ground(namespace);
    let mut patch = Patch::default();
    let (injection, mut outcome) = match ground {
        Ground::Exempt if recorded == place::Injection::default() => return Outcome::allow(Rule::Exempt),
        Ground::Exempt => {
            daemonset::without(&template.spec, &recorded, Some((&spec_path, &mut patch)));
            (place::Injection::default(), Outcome::allow(Rule::Exempt))
        }
        Ground::Unknown => return Outcome::deny(Denial::unknown_namespace(namespace)),
        Ground::Unread => return Outcome::deny(Denial::tenant_unread(namespace)),
        Ground::Tenant { tenant, default_pool } => {
            let chosen =
                place::choose(tenants, tenant, namespace, default_pool, template.metadata.as_ref(), &rest);
            let choice = match chosen {
                Ok(choice) => choice,
                Err(denial) => return Outcome::deny(denial).on(ground),
            };
            let injection = place::lacks(&rest, choice.pool);
            let outdated = daemonset::outdated(&recorded, &injection);
            let kept = daemonset::without(&template.spec, &outdated, Some((&spec_path, &mut patch)));
            place::complete(&kept, &choice, &spec_path, &mut patch);
            let outcome = Outcome {
                pool: Some(&*choice.pool.name),
                source: Some(choice.source),
                warnings: choice.warnings,
                ..Outcome::allow(Rule::Pinned)
            };
            (injection, outcome)
        }
        Ground::Nobody => {
            let planned = place::check_operators(&rest)
                .and_then(|()| check_named_node(tenants, ground, namespace, &rest))
                .and_then(|()| keepout::decide(tenants, namespace, &rest));
            let keep_out = match planned {
                Ok(keep_out) => keep_out,
                Err(denial) => return Outcome::deny(denial),
            };
            let lacked = match Lack::of(&rest, &keep_out.closed) {
                Ok(lack) => lack.exclusions(),
                Err(denial) => return Outcome::deny(denial),
            };
            let injection = place::Injection { keep_out: lacked, ..place::Injection::default() };
            let outdated = daemonset::outdated(&recorded, &injection);
            let kept = daemonset::without(&template.spec, &outdated, Some((&spec_path, &mut patch)));
            match Lack::of(&kept, &keep_out.closed) {
                Ok(lack) => lack.complete(&kept, &spec_path, &mut patch),
                Err(denial) => return Outcome::deny(denial),
            }
            (injection, Outcome { warnings: keep_out.warnings, ..Outcome::allow(keep_out.rule) })
        }
    };
    daemonset::record(template, &injection, &path, &mut patch);
    if patch.is_empty() && outcome.rule == Rule::Pinned {
        outcome.rule = Rule::AlreadyRight;
    }
    outcome.patch = patch;
    outcome.on(ground)
}

fn plan<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    metadata: Option<&Metadata<'_>>,
    spec: &PodSpec<'_>,
    path: &Path,
) -> Outcome<'t> {
    let ground = tenants.ground(namespace);
    let mut patch = Patch::default();
    match ground {
        Ground::Exempt => Outcome::allow(Rule::Exempt),
        Ground::Unknown => Outcome::deny(Denial::unknown_namespace(namespace)),
        Ground::Unread => Outcome::deny(Denial::tenant_unread(namespace)),
        Ground::Tenant { tenant, default_pool } => {
            match place::choose(tenants, tenant, namespace, default_pool, metadata, spec) {
                Err(denial) => Outcome::deny(denial),
                Ok(choice) => {
                    place::complete(spec, &choice, path, &mut patch);
                    Outcome {
                        pool: Some(&*choice.pool.name),
                        source: Some(choice.source),
                        warnings: choice.warnings,
                        ..Outcome::allow(place::rule(&patch))
                    }
                }
            }
        }
        Ground::Nobody => {
            let decided = check_named_node(tenants, ground, namespace, spec)
                .and_then(|()| keepout::decide(tenants, namespace, spec))
                .and_then(|k| {
                    Lack::of(spec, &k.closed)?.complete(spec, path, &mut patch);
                    Ok(k)
                });
            match decided {
                Err(denial) => Outcome::deny(denial),
                Ok(keep_out) => Outcome { warnings: keep_out.warnings, ..Outcome::allow(keep_out.rule) },
            }
        }
    }
    .with(patch)
    .on(ground)
}

impl Outcome<'_> {
    /// A refusal has no patch, not even the part that was written before it was clear.
    fn with(self, patch: Patch) -> Self {
        if self.denial.is_none() { Self { patch, ..self } } else { self }
    }
}

fn check_named_node(
    tenants: &Tenants,
    ground: Ground<'_>,
    namespace: &str,
    spec: &PodSpec<'_>,
) -> Result<(), Denial> {
    if spec.node_name.is_empty() {
        return Ok(());
    }
    binding::check_node(tenants, ground, namespace, "spec.nodeName", &spec.node_name).map(|_| ())
}

fn is_mirror(request: &Request<'_>, pod: &Pod<'_>) -> bool {
    let annotated = |a: &Annotations<'_>| a.mirror.is_some();
    pod.metadata.annotations.as_ref().is_some_and(annotated)
        && !pod.spec.node_name.is_empty()
        && request.user.username.strip_prefix("system:node:") == Some(&*pod.spec.node_name)
}

fn judge_new_pod<'t>(
    tenants: &'t Tenants,
    request: &Request<'_>,
    pod: &Pod<'_>,
    phase: Phase,
) -> Outcome<'t> {
    // One that says that it is being deleted is made all the same: server-side apply stores what it is given.
    let namespace = request.namespace.as_str();
    if is_mirror(request, pod) {
        return judge_mirror(tenants, namespace, &pod.spec.node_name);
    }
    let outcome = plan_pod(tenants, namespace, pod);
    if phase != Phase::Validate || outcome.patch.is_empty() {
        return outcome;
    }
    // The pod is final, and something is still missing.
    let ground = tenants.ground(namespace);
    let denial = match (ground, outcome.pool.and_then(|p| tenants.rules().pool_id(p))) {
        (Ground::Tenant { tenant, .. }, Some(pool)) => tenants
            .rules()
            .pool(pool)
            .and_then(|pool| place::check_final(tenant, &pod.spec, pool).err())
            .unwrap_or_else(|| Denial::not_placed(&tenant.name, "a selector without foreign pools")),
        _ => Denial::not_kept_out(namespace),
    };
    Outcome { pool: outcome.pool, source: outcome.source, ..Outcome::deny(denial).on(ground) }
}

/// The mirror of a static pod has any labels that the kubelet gives it, so that a tenant's Services may select it: in the
/// namespace of a tenant, only a node of that tenant may have one. The static pod itself runs in any case.
fn judge_mirror<'t>(tenants: &'t Tenants, namespace: &str, node: &str) -> Outcome<'t> {
    let ground = tenants.ground(namespace);
    match ground {
        Ground::Exempt | Ground::Nobody => Outcome::allow(Rule::MirrorPod),
        Ground::Unknown => Outcome::deny(Denial::unknown_namespace(namespace)),
        Ground::Unread => Outcome::deny(Denial::tenant_unread(namespace)),
        Ground::Tenant { tenant, .. } => match place::own_pools(tenants, tenant, "spec.nodeName", node) {
            Err(_) => {
                let denial = Denial::mirror_outside(node, namespace, &tenant.name, &tenant.pool_names());
                Outcome::deny(denial).on(ground)
            }
            Ok(own) => {
                let pool = own.first().and_then(|id| tenants.rules().pool(*id)).map(|pool| &*pool.name);
                Outcome { pool, ..Outcome::allow(Rule::MirrorPod) }.on(ground)
            }
        },
    }
}

fn judge_pod_update<'t>(tenants: &'t Tenants, namespace: &str, old: &Pod<'_>, new: &Pod<'_>) -> Outcome<'t> {
    if new.metadata.deletion_timestamp.is_some() {
        return Outcome::allow(Rule::Deleting);
    }
    let ground = tenants.ground(namespace);
    match update::judge(tenants, ground, namespace, old, new) {
        Err(denial) => Outcome::deny(denial).on(ground),
        Ok(pool) => Outcome { pool: pool.map(|p| &*p.name), ..Outcome::allow(Rule::Unchanged) }.on(ground),
    }
}

fn judge_daemonset<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    old: Option<&DaemonSet<'_>>,
    new: &DaemonSet<'_>,
) -> Outcome<'t> {
    if old.is_some() && new.metadata.deletion_timestamp.is_some() {
        return Outcome::allow(Rule::Deleting);
    }
    let outcome = plan_daemonset(tenants, namespace, new);
    let Some(denial) = &outcome.denial else { return outcome };
    // What was refused would be refused anew with every change of a label or finalizer, and the DaemonSet could
    // never be mended piece by piece. Its pods are still judged one by one.
    let pool =
        |d: &DaemonSet<'_>| d.spec.template.metadata.as_ref().and_then(Metadata::pool).map(str::to_owned);
    let unchanged =
        old.is_some_and(|old| old.spec.template.spec == new.spec.template.spec && pool(old) == pool(new));
    if unchanged && !denial.is_retryable() {
        let warnings = vec![format!("its pods will be refused: {denial}")];
        return Outcome { warnings, denial: None, rule: Rule::Unchanged, ..outcome };
    }
    outcome
}

fn judge_binding<'t>(tenants: &'t Tenants, user: &str, namespace: &str, node: &str) -> Outcome<'t> {
    if tenants.rules().is_scheduler(user) {
        return Outcome::allow(Rule::Scheduler);
    }
    let ground = tenants.ground(namespace);
    if matches!(ground, Ground::Exempt) {
        return Outcome::allow(Rule::Exempt);
    }
    match binding::check_node(tenants, ground, namespace, "target.name", node) {
        Err(denial) => Outcome::deny(denial).on(ground),
        Ok(pool) => Outcome { pool: pool.map(|p| &*p.name), ..Outcome::allow(Rule::Placed) }.on(ground),
    }
}

/// What becomes of the pods of a workload's template: warnings, never a refusal.
fn judge_template<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    kind: &str,
    template: &Template<'_>,
) -> Outcome<'t> {
    if !tenants.knows(namespace) {
        return Outcome::allow(Rule::NotJudged);
    }
    let outcome = plan(
        tenants,
        namespace,
        template.metadata.as_ref(),
        &template.spec,
        &Path::new("/spec/template/spec"),
    );
    let mut warnings = outcome.warnings;
    if let Some(denial) = &outcome.denial {
        warnings.push(format!("pods of this {kind} will be refused: {denial}"));
    }
    Outcome { tenant: outcome.tenant, pool: outcome.pool, warnings, ..Outcome::allow(Rule::NotJudged) }
}

/// True if a request of this kind and operation can be answered otherwise than "allowed, untouched".
#[must_use]
pub fn is_judged(kind: Kind, operation: Operation) -> bool {
    kind != Kind::Other && matches!(operation, Operation::Create | Operation::Update)
}
