//! The cluster after the objects of the edit are applied.

use croft_manifest::Input;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::model::Edited;

/// `now` with the objects of `edit`, and which of them change.
pub(super) fn apply(now: &Input, edit: &Input) -> (Input, Vec<Edited>) {
    let mut then = now.clone();
    let mut objects = Vec::new();
    macro_rules! put {
        ($field:ident, $kind:literal, $keep:expr) => {
            for object in &edit.$field {
                let (mut new, name) = (object.object.clone(), object.name_any());
                let old = now.$field.get("", &name);
                let change = match old {
                    None => "created",
                    Some(old) if old.spec == new.spec => "unchanged",
                    Some(_) => "changed",
                };
                if let Some(old) = old {
                    new.metadata = metadata(&old.metadata, &new.metadata);
                    #[allow(clippy::redundant_closure_call, reason = "one kind has no status")]
                    ($keep)(&mut new, &old.object);
                }
                then.$field.put(new, object.origin.clone());
                objects.push(Edited { kind: $kind, name, change });
            }
        };
    }
    use croft_api::{CroftConfig, EC2NodeClass, Tenant, TenantPool};
    put!(tenants, "Tenant", |new: &mut Tenant, old: &Tenant| new.status.clone_from(&old.status));
    put!(pools, "TenantPool", |new: &mut TenantPool, old: &TenantPool| {
        new.status.clone_from(&old.status);
        // The controller will write what instances of the edited pool have.
        if let Some(status) = new.status.as_mut().filter(|_| new.spec != old.spec) {
            status.extended_resources = None;
            status.instance_labels = None;
        }
    });
    put!(classes, "EC2NodeClass", |new: &mut EC2NodeClass, old: &EC2NodeClass| {
        new.status.clone_from(&old.status);
    });
    put!(configs, "CroftConfig", |_: &mut CroftConfig, _: &CroftConfig| ());
    (then, objects)
}

/// Metadata after `kubectl apply`: identity and age of the stored object, labels and annotations of both.
fn metadata(old: &ObjectMeta, new: &ObjectMeta) -> ObjectMeta {
    let mut merged = old.clone();
    if let Some(labels) = &new.labels {
        merged.labels.get_or_insert_default().extend(labels.clone());
    }
    if let Some(annotations) = &new.annotations {
        merged.annotations.get_or_insert_default().extend(annotations.clone());
    }
    merged
}

/// Adds warnings for effects that are known only after the edit is applied.
pub(super) fn warn_of_classes(objects: &[Edited], now: &Input, then: &Input, warnings: &mut Vec<String>) {
    for object in objects.iter().filter(|object| object.kind == "EC2NodeClass") {
        let (Some(old), Some(new)) = (now.classes.get("", &object.name), then.classes.get("", &object.name))
        else {
            continue;
        };
        let (old, new) = (&old.spec, &new.spec);
        for (field, differs, what) in [
            ("amiSelectorTerms", old.ami_selector_terms != new.ami_selector_terms, "image"),
            ("subnetSelectorTerms", old.subnet_selector_terms != new.subnet_selector_terms, "subnet's zone"),
            (
                "securityGroupSelectorTerms",
                old.security_group_selector_terms != new.security_group_selector_terms,
                "set of security groups",
            ),
        ] {
            if differs {
                warnings.push(format!(
                    "EC2NodeClass {}: the result of the new spec.{field} is known once it is applied; each node whose {what} is not \
                     in it drifts, too",
                    object.name
                ));
            }
        }
    }
}

/// Adds warnings for pools whose consolidation the edit changes.
pub(super) fn warn_of_disruption(objects: &[Edited], now: &Input, then: &Input, warnings: &mut Vec<String>) {
    for object in objects.iter().filter(|object| object.kind == "TenantPool" && object.change == "changed") {
        let (Some(old), Some(new)) = (now.pools.get("", &object.name), then.pools.get("", &object.name))
        else {
            continue;
        };
        if old.spec.disruption != new.spec.disruption {
            warnings.push(format!(
                "TenantPool {}: croft simulate --consolidate shows the effect of the new spec.disruption",
                object.name
            ));
        }
    }
}
