//! The instance types that a pool may launch, by its requirements.

use std::{collections::BTreeSet, sync::Arc};

use croft_api::{
    TenantPool,
    convert::{declared, scheduler as convert},
    pool::ExtendedResource,
};
use croft_scheduler::{InstanceType, Offering, Requirement, resources::is_given_later};

/// The requirements of the template of a pool with only one kind of node.
#[must_use]
pub fn requirements(pool: &TenantPool) -> Vec<Requirement> {
    pool.spec.template.iter().flat_map(|t| &t.spec.requirements).map(convert::requirement).collect()
}

/// The types that a pool with only one kind of node may launch among `types`, each with the offerings that it may use.
#[must_use]
pub fn possible(pool: &TenantPool, types: &[InstanceType]) -> Vec<InstanceType> {
    let requirements = requirements(pool);
    let mut possible = Vec::new();
    for kind in types {
        let allowed = |offering: &&Offering| allows(&requirements, pool, kind, offering);
        let offerings: Vec<Offering> = kind.offerings.iter().filter(allowed).cloned().collect();
        if !offerings.is_empty() {
            let kind = declared::instance_type(kind, pool.declared_resources()).into_owned();
            possible.push(InstanceType { offerings, ..kind });
        }
    }
    possible
}

/// `types` with no offering available in the zones that are closed.
#[must_use]
pub fn outside(types: &Arc<[InstanceType]>, is_closed: impl Fn(&str) -> bool) -> Arc<[InstanceType]> {
    let is_there = |offering: &Offering| offering.available && is_closed(&offering.zone);
    if !types.iter().flat_map(|kind| &kind.offerings).any(is_there) {
        return Arc::clone(types);
    }
    let mut types = types.to_vec();
    for offering in types.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offering.available &= !is_closed(&offering.zone);
    }
    types.into()
}

/// The extended resources and huge pages that instances of `types` can have, such as `nvidia.com/gpu`.
#[must_use]
pub fn extended_resources(types: &[InstanceType]) -> Vec<ExtendedResource> {
    let has = |kind: &InstanceType, name: &str| kind.capacity.iter().any(|(own, n)| own == name && n > 0);
    let names = types.iter().flat_map(|kind| kind.capacity.iter().map(|(name, _)| name));
    let names: BTreeSet<&str> = names.filter(|name| is_given_later(name)).collect();
    let names = names.into_iter().filter(|name| types.iter().any(|kind| has(kind, name)));
    let resource = |name: &str| ExtendedResource {
        name: name.to_owned(),
        dedicated: types.iter().all(|kind| has(kind, name)),
    };
    names.map(resource).collect()
}

/// The extended resources that nodes of one of several templates can have, by those of each.
#[must_use]
pub fn any_of(templates: &[&[ExtendedResource]]) -> Vec<ExtendedResource> {
    let names: BTreeSet<&String> =
        templates.iter().copied().flatten().map(|resource| &resource.name).collect();
    let is_dedicated =
        |name: &str| templates.iter().all(|of| of.iter().any(|own| own.name == name && own.dedicated));
    let resource = |name: &String| ExtendedResource { name: name.clone(), dedicated: is_dedicated(name) };
    names.into_iter().map(resource).collect()
}

/// True if the pool may launch the type as this offering, as far as `requirements` say.
#[must_use]
pub fn allows(
    requirements: &[Requirement],
    pool: &TenantPool,
    kind: &InstanceType,
    offering: &Offering,
) -> bool {
    requirements.iter().all(|r| {
        let template = pool.spec.template.as_ref().and_then(|t| t.metadata.labels.get(&r.key));
        match r.key.as_str() {
            "kubernetes.io/os" | "beta.kubernetes.io/os" => kind.os.iter().any(|os| r.matches(Some(os))),
            "kubernetes.io/arch" | "beta.kubernetes.io/arch" => r.matches(Some(&kind.arch)),
            "node.kubernetes.io/instance-type" | "beta.kubernetes.io/instance-type" => {
                r.matches(Some(&kind.name))
            }
            "topology.kubernetes.io/zone" | "failure-domain.beta.kubernetes.io/zone" => {
                r.matches(Some(&offering.zone))
            }
            "karpenter.sh/capacity-type" | "croft.dev/capacity-type" => {
                r.matches(Some(offering.capacity_type.as_str()))
            }
            key => match kind.labels.get(key).or(template) {
                Some(value) => r.matches(Some(value)),
                // A label that no instance type has is one that the pool gives its nodes.
                None => !r.key.starts_with("karpenter.k8s.aws/") || r.matches(None),
            },
        }
    })
}
