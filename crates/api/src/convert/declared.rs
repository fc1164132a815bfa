//! Resources that a template declares beside those of the instance types: what device plugins show, huge pages, shares of GPUs.

use std::{borrow::Cow, sync::Arc};

use croft_scheduler::{
    InstanceType, Quantity,
    resources::{HUGE_PAGES, MEMORY},
};

use crate::{amount::Amount, pool::DeclaredResources};

/// The instance types as nodes have them.
#[must_use]
pub fn instance_types(types: Arc<[InstanceType]>, declared: &[DeclaredResources]) -> Arc<[InstanceType]> {
    if declared.is_empty() {
        return types;
    }
    types.iter().map(|kind| instance_type(kind, declared).into_owned()).collect()
}

/// The instance type as nodes have it. A later entry of `declared` replaces an earlier one.
#[must_use]
pub fn instance_type<'t>(kind: &'t InstanceType, declared: &[DeclaredResources]) -> Cow<'t, InstanceType> {
    let declared = amounts(declared, &kind.name);
    let mut kind = Cow::Borrowed(kind);
    for (name, amount) in declared {
        // The API server has checked the amounts.
        let Ok(quantity) = amount.0.parse::<Quantity>() else { continue };
        if quantity.is_negative() {
            continue;
        }
        let kind = kind.to_mut();
        let before = kind.capacity.get(name);
        kind.capacity.set_quantity(name, quantity);
        kind.overhead.set(name, 0);
        if name.starts_with(HUGE_PAGES) {
            // The kubelet takes them off the memory that pods may use.
            let more = kind.capacity.get(name).saturating_sub(before);
            let kept = kind.overhead.get(MEMORY).saturating_add(more);
            kind.overhead.set(MEMORY, kept.max(0));
        }
    }
    kind
}

/// The declared amounts of an instance type, by resource name. A later one replaces an earlier one of the same name.
pub fn amounts<'d>(
    declared: &'d [DeclaredResources],
    instance_type: &str,
) -> impl Iterator<Item = (&'d String, &'d Amount)> {
    let is_meant = move |entry: &&DeclaredResources| {
        entry.instance_types.is_empty() || entry.instance_types.iter().any(|name| name == instance_type)
    };
    declared.iter().filter(is_meant).flat_map(|entry| &entry.amounts)
}

#[cfg(test)]
mod tests {
    use croft_scheduler::Resources;

    use super::*;

    fn kind() -> InstanceType {
        let mut capacity = Resources::new();
        for (name, amount) in [("cpu", "4"), ("memory", "16Gi"), ("nvidia.com/gpu", "1")] {
            capacity.set_quantity(name, amount.parse().unwrap());
        }
        InstanceType { name: "g4dn.xlarge".to_owned(), capacity, ..InstanceType::default() }
    }

    fn entry(types: &[&str], amounts: &[(&str, &str)]) -> DeclaredResources {
        DeclaredResources {
            instance_types: types.iter().map(|name| (*name).to_owned()).collect(),
            amounts: amounts
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), Amount((*amount).to_owned())))
                .collect(),
        }
    }

    fn allocatable(declared: &[DeclaredResources], name: &str) -> String {
        let kind = kind();
        let resources = instance_type(&kind, declared).allocatable();
        resources
            .to_quantities()
            .into_iter()
            .find(|(own, _)| own == name)
            .map_or_else(String::new, |(_, q)| q.to_string())
    }

    #[test]
    fn declared_amounts_are_those_of_all_types_or_of_the_named_ones() {
        let all = entry(&[], &[("smarter-devices/fuse", "20")]);
        let named = entry(&["g4dn.xlarge"], &[("nvidia.com/gpu", "4")]);
        let other = entry(&["p4d.24xlarge"], &[("nvidia.com/gpu", "56")]);
        let declared = [all, named, other];
        assert_eq!(allocatable(&declared, "smarter-devices/fuse"), "20");
        assert_eq!(
            allocatable(&declared, "nvidia.com/gpu"),
            "4",
            "a later entry of its type replaces the catalogue's"
        );
        assert_eq!(allocatable(&declared, "cpu"), "4");
        assert_eq!(allocatable(&[], "nvidia.com/gpu"), "1");
    }

    #[test]
    fn huge_pages_are_taken_off_the_memory() {
        let declared =
            [entry(&[], &[("hugepages-2Mi", "2Gi")]), entry(&["g4dn.xlarge"], &[("hugepages-2Mi", "4Gi")])];
        assert_eq!(allocatable(&declared, "hugepages-2Mi"), "4Gi");
        assert_eq!(allocatable(&declared, "memory"), "12Gi");
    }
}
