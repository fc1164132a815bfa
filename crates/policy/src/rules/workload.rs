//! Workloads other than DaemonSets: warns the author of a template whose pods will be refused. Refuses nothing.

use crate::{
    definitions::Rule, outcome::Outcome, patch::Path, request::view::Template, rules::pod,
    tenancy::index::Tenants,
};

/// Evaluates the pod template of a workload of `kind`: warnings, never a refusal and never a patch.
pub(crate) fn evaluate<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    kind: &str,
    template: &Template<'_>,
) -> Outcome<'t> {
    if !tenants.knows(namespace) {
        return Outcome::allow(Rule::NotApplicable);
    }
    let path = Path::new("/spec/template/spec");
    let outcome = pod::plan(tenants, namespace, template.metadata.as_ref(), &template.spec, &path);
    let mut warnings = outcome.warnings;
    if let Some(denial) = &outcome.denial {
        warnings.push(format!("pods of this {kind} will be refused: {denial}"));
    }
    Outcome { tenant: outcome.tenant, pool: outcome.pool, warnings, ..Outcome::allow(Rule::NotApplicable) }
}
