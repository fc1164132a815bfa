//! The owner of the request's namespace, and what is refused.

use crate::{
    definitions::parameter,
    policies::{
        cel,
        own_pools::defaulted,
        pods::{NON_TENANT, annotation, owned},
        policy::{Keys, Variable},
    },
};

/// CEL: the policies change pods and DaemonSets.
pub(super) fn is_on() -> String {
    format!("{} == 'Policy'", cel::text(parameter::MUTATION))
}

/// The variables about the namespace, of which `tenancy` is the sum: `tenant`, `none`, `exempt`, or `unknown` if a
/// tenant claims the namespace and its pools aren't written on it yet.
pub(super) fn variables() -> Vec<Variable> {
    vec![
        owned(NON_TENANT),
        Keys::Declared.variable(),
        ("ownPools", annotation("pools")),
        ("shared", annotation("shared")),
        ("sharedLabels", "variables.shared.split(';')".to_owned()),
        ("surplus", format!("({}).split(';')", annotation("surplus"))),
        defaulted(),
        (
            "exempt",
            format!(
                "request.namespace == params.metadata.name || request.namespace in {}",
                cel::words(parameter::EXEMPT)
            ),
        ),
        cel::claimed(),
        (
            "tenancy",
            "variables.exempt ? 'exempt' : variables.ownPools != '' ? 'tenant' : \
             !variables.nonTenant && variables.claimed ? 'unknown' : 'none'"
                .to_owned(),
        ),
        ("allPools", cel::text(parameter::ALL_POOLS)),
        ("pools", "variables.allPools.split(';').filter(p, p.contains(':')).map(p, p.split(':'))".to_owned()),
        ("selected", "variables.selector.map(k, k + '=' + variables.selector[k])".to_owned()),
    ]
}

/// CEL: why the pods of a namespace that a tenant claims are refused while it has no pools. The sentence about a surplus
/// namespace is the webhook's.
fn without_pools() -> &'static str {
    "size(variables.surplus) == 3 ? 'namespace \"' + request.namespace + '\" is beyond spec.namespaceCreation.maximum of tenant \
     \"' + variables.surplus[0] + '\", which is ' + variables.surplus[1] + ', so it gets no pools: the namespaces that count are ' \
     + variables.surplus[2] + '; use one of these, or ask the cluster\\'s operator to delete one or to raise the maximum' : \
     'namespace ' + request.namespace + ' is claimed by a Tenant, and its pools are not written on it yet; try again in a \
     moment'"
}

/// The variable `refusal`: why the pod is refused, as a sentence; empty if it isn't. It reads `tenantRefusal` and
/// `nonTenantRefusal`.
pub(super) fn refusal() -> Variable {
    (
        "refusal",
        format!(
            "variables.tenancy == 'tenant' ? variables.tenantRefusal : variables.tenancy == 'none' ? \
             variables.nonTenantRefusal : variables.tenancy == 'unknown' ? ({}) : ''",
            without_pools()
        ),
    )
}
