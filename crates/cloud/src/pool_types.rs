//! The instance types that a pool may launch, by its requirements.

use std::{collections::BTreeSet, sync::Arc};

use croft_api::{
    TenantPool,
    convert::{declared, scheduler as convert},
    pool::{ExtendedResource, InstanceLabel},
};
use croft_scheduler::{InstanceType, Offering, Requirement, resources::is_given_later};

/// The requirements of the template of a pool with only one kind of node.
#[must_use]
pub fn requirements(pool: &TenantPool) -> Vec<Requirement> {
    pool.spec.template.iter().flat_map(|t| &t.spec.requirements).map(convert::requirement).collect()
}

/// Labels by which pods choose instances, of those that follow from the type.
const CHOSEN_BY: [&str; 4] = [
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-family",
];
/// Values of such a label. A longer list says little, and each namespace of the pool's tenants carries it.
const MOST_VALUES: usize = 16;

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

/// The labels by which pods choose instances, each with its values if `types` have few.
#[must_use]
pub fn instance_labels(types: &[InstanceType]) -> Vec<InstanceLabel> {
    let value = |kind: &InstanceType, key: &str| match key {
        "kubernetes.io/arch" => Some(kind.arch.clone()),
        "node.kubernetes.io/instance-type" => Some(kind.name.clone()),
        key => kind.labels.get(key).cloned(),
    };
    let label = |key: &str| {
        let values: Option<BTreeSet<String>> = types.iter().map(|kind| value(kind, key)).collect();
        few(key, values?)
    };
    CHOSEN_BY.into_iter().filter_map(label).collect()
}

/// The same of nodes of one of several templates, by those of each.
#[must_use]
pub fn instance_labels_of_any(templates: &[&[InstanceLabel]]) -> Vec<InstanceLabel> {
    let Some((first, others)) = templates.split_first() else { return Vec::new() };
    let of_any = |label: &InstanceLabel| {
        let mut values: BTreeSet<String> = label.values.iter().cloned().collect();
        for other in others {
            values.extend(other.iter().find(|other| other.key == label.key)?.values.iter().cloned());
        }
        few(&label.key, values)
    };
    first.iter().filter_map(of_any).collect()
}

fn few(key: &str, values: BTreeSet<String>) -> Option<InstanceLabel> {
    let is_few = (1..=MOST_VALUES).contains(&values.len());
    is_few.then(|| InstanceLabel { key: key.to_owned(), values: values.into_iter().collect() })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, arch: &str) -> InstanceType {
        let family = name.split('.').next().unwrap();
        let labels = [("karpenter.k8s.aws/instance-family".to_owned(), family.to_owned())];
        InstanceType {
            name: name.to_owned(),
            arch: arch.to_owned(),
            labels: labels.into(),
            ..InstanceType::default()
        }
    }

    fn values(labels: &[InstanceLabel]) -> Vec<String> {
        labels.iter().map(|label| format!("{}={}", label.key, label.values.join(","))).collect()
    }

    #[test]
    fn labels_of_few_values_are_those_of_all_types() {
        let graviton = instance_labels(&[kind("m7g.large", "arm64"), kind("m7g.xlarge", "arm64")]);
        let expected = [
            "kubernetes.io/arch=arm64",
            "node.kubernetes.io/instance-type=m7g.large,m7g.xlarge",
            "karpenter.k8s.aws/instance-family=m7g",
        ];
        assert_eq!(values(&graviton), expected, "a label that a type lacks isn't known");
        let many: Vec<InstanceType> = (0..17).map(|n| kind(&format!("m5.{n}"), "amd64")).collect();
        let many = instance_labels(&many);
        assert_eq!(values(&many), ["kubernetes.io/arch=amd64", "karpenter.k8s.aws/instance-family=m5"]);
        assert!(instance_labels(&[]).is_empty());

        let either = instance_labels_of_any(&[&graviton, &many]);
        let expected = ["kubernetes.io/arch=amd64,arm64", "karpenter.k8s.aws/instance-family=m5,m7g"];
        assert_eq!(values(&either), expected);
        assert!(instance_labels_of_any(&[&graviton, &[]]).is_empty(), "of a template nothing is known");
    }
}
