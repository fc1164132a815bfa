//! From the objects of the input to Croft's.

use std::collections::BTreeMap;

use croft_manifest::RawObject;

use super::{
    gatekeeper::{self, is_mutation},
    imported::{Imported, ImportedObject},
    karpenter::{self, is_of_karpenter},
    note::Note,
    pools, selected, templates,
};

/// Converts all objects: Tenants first, then pools and classes. The order of the input makes no difference, but where an object is
/// given twice.
pub(super) fn convert(objects: &[RawObject]) -> Imported {
    let mut imported = Imported::default();
    let mut known: BTreeMap<(&str, &str), &RawObject> = BTreeMap::new();
    for object in objects {
        if !is_of_karpenter(object) && !is_mutation(object) {
            // Workloads show which labels pods select. They stay as they are.
            if selected::pod_spec(object).is_none() {
                let instead = match (object.group(), object.kind.as_str()) {
                    ("karpenter.sh", "NodeOverlay") => {
                        "write the capacity that it adds as resources of the pools' templates"
                    }
                    _ => "nothing of Croft's takes its place, keep it as it is",
                };
                let text =
                    format!("{} ({}) isn't carried over: {instead}", object.title(), object.api_version);
                imported.notes.push(Note::loss(text));
            }
        } else if let Some(earlier) = known.insert((&object.kind, &object.name), object) {
            imported.notes.push(Note::loss(format!(
                "{} is given twice: the one at {} isn't carried over, that at {} counts",
                object.title(),
                earlier.origin,
                object.origin
            )));
        }
    }
    let sorted: Vec<&RawObject> = known.into_values().collect();
    let (of_karpenter, mutations): (Vec<&RawObject>, Vec<&RawObject>) =
        sorted.into_iter().partition(|object| is_of_karpenter(object));
    let (drafts, classes) = karpenter::import(&of_karpenter, &mut imported);
    let mut drafts = templates::join(drafts);
    let tenants = gatekeeper::import(&mutations, &mut drafts, &mut imported);
    selected::give_labels(objects, &mut drafts, &mut imported.notes);
    let made = pools::finish(drafts);
    let is_used = |at: &usize| tenants.iter().any(|tenant| tenant.pools.contains(at));
    let unused = made.iter().enumerate().filter(|(at, _)| !is_used(at));
    imported.without_tenant = unused.map(|(_, (name, _))| name.clone()).collect();
    for tenant in tenants {
        let names: Vec<&str> =
            tenant.pools.iter().filter_map(|at| made.get(*at)).map(|(name, _)| name.as_str()).collect();
        let spec = tenant.spec(&names);
        imported.objects.push(ImportedObject::new(
            "Tenant",
            &tenant.name,
            serde_json::Map::new(),
            spec,
            &tenant.source,
            tenant.notes,
        ));
    }
    let mut made: Vec<(String, ImportedObject)> = made;
    made.sort_by(|one, other| one.0.cmp(&other.0));
    imported.objects.extend(made.into_iter().map(|(_, object)| object));
    imported.objects.extend(classes);
    imported
}
