//! Objects that an edit removes.

use std::str::FromStr;

use croft_api::per_tenant::name_of;
use croft_manifest::{Input, InputError, Objects, each_kind};
use kube::{Resource, ResourceExt as _};

use super::model::Edited;

/// Kinds that can be removed, each with the names that kubectl takes for it.
const KINDS: [(&str, [&str; 3]); 4] = [
    ("Tenant", ["tenant", "tenants", "tnt"]),
    ("TenantPool", ["tenantpool", "tenantpools", "tp"]),
    ("EC2NodeClass", ["ec2nodeclass", "ec2nodeclasses", "ec2nc"]),
    ("CroftConfig", ["croftconfig", "croftconfigs", "croftconfig"]),
];

/// An object that an edit removes: kind and name, such as `tenantpool/batch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct Removal {
    kind: &'static str,
    name: String,
}

impl Removal {
    /// True if `input` has the object.
    pub(in crate::commands) fn is_in(&self, input: &Input) -> bool {
        macro_rules! is_among {
            ($($field:ident: $group:ident),*) => { [$(self.is_among(&input.$field)),*].contains(&true) };
        }
        each_kind!(is_among)
    }

    fn is_among<K: Resource<DynamicType = ()>>(&self, objects: &Objects<K>) -> bool {
        K::kind(&()) == self.kind && objects.get("", &self.name).is_some()
    }

    fn remove_from(&self, input: &mut Input) {
        macro_rules! remove {
            ($($field:ident: $group:ident),*) => { $(self.remove(&mut input.$field);)* };
        }
        each_kind!(remove);
    }

    fn remove<K: Resource<DynamicType = ()>>(&self, objects: &mut Objects<K>) {
        if K::kind(&()) == self.kind {
            objects.retain(|object| object.meta().name.as_deref() != Some(self.name.as_str()));
        }
    }
}

impl FromStr for Removal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write kind and name, such as tenantpool/batch; tenant, tenantpool, ec2nodeclass and croftconfig can be removed"
                .to_owned()
        };
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let kind = kind.to_lowercase();
        let known = KINDS.iter().find(|(_, names)| names.contains(&kind.as_str())).ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        Ok(Self { kind: known.0, name: name.to_owned() })
    }
}

/// Removes objects from `then`, which the objects of `edit` have been put into.
///
/// # Errors
/// If an object isn't there, is among `edit`, or is still used by another: the controller keeps a pool while a Tenant names it.
pub(super) fn apply(then: &mut Input, edit: &Input, removals: &[Removal]) -> Result<Vec<Edited>, InputError> {
    let mut edited = Vec::new();
    for removal in removals {
        let Removal { kind, name } = removal;
        if !removal.is_in(then) {
            let message = format!("there is no {kind} {name} to remove: write the name of one");
            return Err(InputError::Other(message));
        }
        if removal.is_in(edit) {
            let message = format!("{kind} {name} is both changed and removed: write one of both");
            return Err(InputError::Other(message));
        }
        removal.remove_from(then);
        edited.push(Edited { kind, name: name.clone(), change: "removed" });
    }
    for Removal { kind, name } in removals {
        if let Some(user) = user(then, kind, name) {
            return Err(InputError::Other(format!(
                "{kind} {name} can't be removed while {user} names it: change or remove {user}, too"
            )));
        }
    }
    Ok(edited)
}

/// An object that names the one of this kind and name.
fn user(then: &Input, kind: &str, name: &str) -> Option<String> {
    match kind {
        "TenantPool" => {
            // Also one that was made for the Tenant: it would be made again.
            let names = |tenant: &croft_api::Tenant, pool: &String| {
                let is_for_many = then.pools.get("", pool).is_some_and(|pool| pool.spec.per_tenant);
                pool == name || is_for_many && name_of(pool, &tenant.name_any()) == name
            };
            let tenant =
                then.tenants.iter().find(|t| t.spec.pools.iter().any(|pool| names(&t.object, pool)))?;
            Some(format!("Tenant {}", tenant.name_any()))
        }
        "EC2NodeClass" => {
            let class = |pool: &croft_api::TenantPool| {
                pool.spec.node_specs().any(|nodes| nodes.node_class_ref.name == name)
            };
            let pool = then.pools.iter().find(|pool| class(&pool.object))?;
            Some(format!("TenantPool {}", pool.name_any()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    fn read(text: &str) -> Input {
        parse("test", text, &LoadOptions::default()).unwrap()
    }

    fn removal(text: &str) -> Removal {
        text.parse().unwrap()
    }

    const CLUSTER: &str = "{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {name: p}, spec: {provisioner: None}}\n---\n\
        {apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: t}, spec: {namespaces: [shop], pools: [p]}}";

    #[test]
    fn removal_is_read_with_the_names_of_kubectl() {
        assert_eq!(removal("tp/p"), removal("TenantPool/p"));
        for wrong in ["p", "tp/", "pod/p", "/p"] {
            assert!(wrong.parse::<Removal>().unwrap_err().contains("tenantpool/batch"), "{wrong}");
        }
    }

    const FOR_MANY: &str = "{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {name: dev}, spec: {perTenant: true, replicas: 2, \
        template: {spec: {nodeClassRef: {name: c}}}}}\n---\n\
        {apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: t}, spec: {namespaces: [shop], pools: [dev]}}";

    #[test]
    fn pool_that_is_made_for_a_tenant_goes_with_it_and_not_alone() {
        let (now, none) = (read(FOR_MANY), Input::default());
        let mut then = now.clone();
        let alone = apply(&mut then, &none, &[removal("tp/dev-t")]).unwrap_err();
        assert_eq!(
            alone.to_string(),
            "TenantPool dev-t can't be removed while Tenant t names it: change or remove Tenant t, too"
        );
        let mut then = now.clone();
        apply(&mut then, &none, &[removal("tenant/t")]).unwrap();
        then.end_pools_for_tenants(&now);
        then.make_pools_for_tenants();
        assert!(then.pools.get("", "dev-t").is_none() && then.pools.get("", "dev").is_some());
        // A file without Tenants says nothing about them.
        then.pools = now.pools.clone();
        let without_tenants = then.clone();
        then.end_pools_for_tenants(&without_tenants);
        assert!(then.pools.get("", "dev-t").is_some());
    }

    #[test]
    fn pools_that_are_made_twice_are_as_those_that_are_made_once() {
        let once = read(FOR_MANY);
        let mut twice = once.clone();
        twice.make_pools_for_tenants();
        let spec = |input: &Input| input.pools.get("", "dev-t").unwrap().spec.clone();
        assert_eq!(spec(&once).replicas, Some(2));
        assert_eq!(spec(&once), spec(&twice));
    }

    #[test]
    fn pool_that_a_tenant_names_is_removed_only_with_the_tenant() {
        let none = Input::default();
        let alone = apply(&mut read(CLUSTER), &none, &[removal("tp/p")]).unwrap_err();
        assert_eq!(
            alone.to_string(),
            "TenantPool p can't be removed while Tenant t names it: change or remove Tenant t, too"
        );
        let mut then = read(CLUSTER);
        let edited = apply(&mut then, &none, &[removal("tp/p"), removal("tnt/t")]).unwrap();
        assert_eq!(edited.len(), 2);
        assert!(then.pools.is_empty() && then.tenants.is_empty());
    }

    #[test]
    fn removal_of_what_is_not_there_or_is_changed_is_refused() {
        let missing = apply(&mut read(CLUSTER), &Input::default(), &[removal("tp/q")]).unwrap_err();
        assert_eq!(missing.to_string(), "there is no TenantPool q to remove: write the name of one");
        let both = apply(&mut read(CLUSTER), &read(CLUSTER), &[removal("tnt/t")]).unwrap_err();
        assert_eq!(both.to_string(), "Tenant t is both changed and removed: write one of both");
    }
}
