//! DaemonSets: the pod template gets what its pods would get, since the DaemonSet controller can't see what admission
//! would do to them (kubernetes#61886).
//!
//! Called by [`evaluate`](crate::evaluate()) for the webhook, by `croft plan`, by the audit and by the controller.

use crate::{
    definitions::Rule,
    denial::Denial,
    outcome::Outcome,
    patch::{Patch, Path},
    request::view::{DaemonSet, Metadata, PodSpec, Template},
    rules::{
        injected,
        injection::{self, Injection},
        keep_out,
        node_affinity::MissingExpressions,
        pod::check_named_node,
        pool_choice,
    },
    tenancy::{
        declarations::DeclaredTenant,
        index::{NamespaceTenancy, Tenants},
    },
};

/// Plans the pod template of a DaemonSet, as the mutating webhook does. Paths of the patch are the DaemonSet's.
///
/// In an exempt namespace the plan takes out what Croft added while the namespace was not exempt. The API server doesn't
/// ask the webhook about exempt namespaces, so the controller applies that patch itself.
///
/// ```
/// use croft_policy::{Config, Rule, Tenants, plan_daemonset, view::DaemonSet};
///
/// let tenants = Tenants::offline(Config::default(), vec![], vec![], vec![], vec![]);
/// assert_eq!(plan_daemonset(&tenants, "kube-system", &DaemonSet::default()).rule, Rule::Exempt);
/// ```
#[must_use]
pub fn plan_daemonset<'t>(tenants: &'t Tenants, namespace: &str, daemonset: &DaemonSet<'_>) -> Outcome<'t> {
    let template = &daemonset.spec.template;
    let path = Path::new("/spec/template");
    let spec_path = path.key("spec");
    let recorded = injected::recorded(template);
    let written = Written { template, recorded: &recorded, path: &spec_path };
    let tenancy = tenants.tenancy(namespace);
    let mut patch = Patch::default();
    let planned = match tenancy {
        NamespaceTenancy::Exempt if recorded == Injection::default() => return Outcome::allow(Rule::Exempt),
        NamespaceTenancy::Exempt => {
            injected::without(&template.spec, &recorded, Some((&spec_path, &mut patch)));
            Ok((Injection::default(), Outcome::allow(Rule::Exempt)))
        }
        NamespaceTenancy::Unknown => Err(Denial::unknown_namespace(namespace)),
        NamespaceTenancy::TenantUnreadable => Err(Denial::tenant_unreadable(namespace)),
        NamespaceTenancy::Tenant { tenant, default_pool } => {
            plan_for_tenant(tenants, tenant, namespace, default_pool, &written, &mut patch)
        }
        NamespaceTenancy::NonTenant => plan_non_tenant(tenants, namespace, &written, &mut patch),
    };
    let (injection, mut outcome) = match planned {
        Ok(planned) => planned,
        Err(denial) => return Outcome::deny(denial).in_namespace(tenancy),
    };
    injected::record(template, &injection, &path, &mut patch);
    if patch.is_empty() && outcome.rule == Rule::Pinned {
        outcome.rule = Rule::NoChange;
    }
    outcome.with_patch(patch).in_namespace(tenancy)
}

/// A template as it is written, what an earlier plan added to its spec, and the path of the spec.
struct Written<'w, 'a> {
    template: &'w Template<'a>,
    recorded: &'w Injection,
    path: &'w Path,
}

impl<'a> Written<'_, 'a> {
    /// The spec without anything that Croft added.
    fn by_tenant(&self) -> PodSpec<'a> {
        injected::without(&self.template.spec, self.recorded, None)
    }

    /// Takes out what was added and isn't in `injection`.
    fn update(&self, injection: &Injection, patch: &mut Patch) -> PodSpec<'a> {
        let outdated = injected::outdated(self.recorded, injection);
        injected::without(&self.template.spec, &outdated, Some((self.path, patch)))
    }
}

fn plan_for_tenant<'t>(
    tenants: &'t Tenants,
    tenant: &'t DeclaredTenant,
    namespace: &str,
    default_pool: Option<&str>,
    written: &Written<'_, '_>,
    patch: &mut Patch,
) -> Result<(Injection, Outcome<'t>), Denial> {
    let rest = written.by_tenant();
    let metadata = written.template.metadata.as_ref();
    let choice = pool_choice::choose(tenants, tenant, namespace, default_pool, metadata, &rest)?;
    let injection = injection::missing(&rest, choice.pool);
    let kept = written.update(&injection, patch);
    injection::write(&kept, &choice, written.path, patch);
    let outcome = Outcome {
        pool: Some(&*choice.pool.name),
        source: Some(choice.source),
        warnings: choice.warnings,
        ..Outcome::allow(Rule::Pinned)
    };
    Ok((injection, outcome))
}

fn plan_non_tenant<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    written: &Written<'_, '_>,
    patch: &mut Patch,
) -> Result<(Injection, Outcome<'t>), Denial> {
    let rest = written.by_tenant();
    pool_choice::check_operators(&rest)?;
    check_named_node(tenants, NamespaceTenancy::NonTenant, namespace, &rest)?;
    let keep_out = keep_out::plan(tenants, namespace, &rest)?;
    let missing = MissingExpressions::find(&rest, &keep_out.exclusions)?;
    let injection = Injection { keep_out: missing.by_key(), ..Injection::default() };
    let kept = written.update(&injection, patch);
    MissingExpressions::find(&kept, &keep_out.exclusions)?.write(&kept, written.path, patch);
    let mut warnings = keep_out.warnings;
    if keep_out.rule == Rule::KeptOut && !keep_out::foreign_pools(tenants, namespace, &rest).is_empty() {
        // An agent for every node, in most cases: its author may not know why some nodes stay without it.
        warnings.push(format!(
            "its pods tolerate the taints of tenants' pools, and are kept off their nodes: if every tenant may trust namespace \
             {namespace}, write it into spec.sharedWith of the CroftConfig"
        ));
    }
    Ok((injection, Outcome { warnings, ..Outcome::allow(keep_out.rule) }))
}

/// Evaluates the write of a DaemonSet, from `old` if it exists; `is_final` in the validating phase.
///
/// A template that was refused before stays refused with a warning only. Otherwise labels and finalizers of such a
/// DaemonSet could not be changed. Its pods are still evaluated one by one.
pub(crate) fn evaluate<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    old: Option<&DaemonSet<'_>>,
    new: &DaemonSet<'_>,
    is_final: bool,
) -> Outcome<'t> {
    if old.is_some() && new.metadata.deletion_timestamp.is_some() {
        return Outcome::allow(Rule::Deleting);
    }
    let mut outcome = plan_daemonset(tenants, namespace, new);
    if is_final {
        outcome.patch = Patch::default();
    }
    let Some(denial) = &outcome.denial else { return outcome };
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
