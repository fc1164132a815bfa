//! Which object becomes what, and the names of the classes.

use croft_manifest::RawObject;
use serde_json::Value;

use super::{
    class::{self, ClassDraft, ClassNames},
    kubelet, pool, provisioner,
};
use crate::commands::import::{
    fields::Report,
    imported::{Imported, ImportedObject},
    names::names,
    note::Note,
    pools::PoolDraft,
};

/// Characters of a class's name.
const MOST: usize = 253;

/// True for an object that a pool or a class is made of.
pub(in crate::commands::import) fn is_of_karpenter(object: &RawObject) -> bool {
    matches!(
        (object.group(), object.kind.as_str()),
        ("karpenter.sh", "NodePool" | "Provisioner")
            | ("karpenter.k8s.aws", "EC2NodeClass" | "AWSNodeTemplate")
    )
}

/// Reads all pools and classes. Returns the pools and adds the classes.
pub(in crate::commands::import) fn import(
    objects: &[&RawObject],
    imported: &mut Imported,
) -> (Vec<PoolDraft>, Vec<ImportedObject>) {
    let mut drafts: Vec<ClassDraft> = Vec::new();
    for object in objects {
        let mut report = Report::new(object);
        let draft = match object.kind.as_str() {
            "EC2NodeClass" => Some(class::of_node_class(object, &mut report)),
            "AWSNodeTemplate" => Some(class::of_node_template(object, &mut report)),
            "Provisioner" => class::of_provider(object, &mut report),
            _ => None,
        };
        imported.problems.append(&mut report.problems);
        // Provisioners with the same provider share a class.
        drafts.extend(draft.filter(|draft| drafts.iter().all(|other| other.key != draft.key)));
    }
    let wanted: Vec<_> = drafts.iter().map(|draft| (draft.wanted.clone(), draft.source.clone())).collect();
    // A class may have a longer name than a pool, and dots in it.
    let named = drafts.iter().zip(names(&wanted, MOST)).enumerate().map(|(at, (draft, short))| {
        let is_first = drafts.iter().take(at).all(|other| other.wanted != draft.wanted);
        (draft.key.clone(), if is_first { draft.wanted.clone() } else { short })
    });
    let class_names: ClassNames = named.collect();
    let mut pools = Vec::new();
    for object in &kubelet::moved(objects, &mut drafts) {
        let mut report = Report::new(object);
        match object.kind.as_str() {
            "NodePool" => pools.push(pool::of_node_pool(object, &class_names, &mut report)),
            "Provisioner" => pools.push(provisioner::of_provisioner(object, &class_names, &mut report)),
            _ => {}
        }
        imported.problems.append(&mut report.problems);
        if let Some(pool) = pools.last_mut() {
            pool.notes.append(&mut report.notes);
        }
    }
    let classes = drafts.into_iter().map(|draft| {
        let name = class_names.get(&draft.key).cloned().unwrap_or_default();
        let ClassDraft { source, wanted, spec, metadata, mut notes, .. } = draft;
        if name != wanted {
            let text = format!("{source} is called {name} here: another class has its name");
            notes.insert(0, Note::change(text));
        }
        ImportedObject::new("EC2NodeClass", &name, metadata, Value::Object(spec), &source, notes)
    });
    (pools, classes.collect())
}
