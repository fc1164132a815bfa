//! The kubelet's settings, which pools had before Karpenter's v1 and classes have since.

use croft_manifest::RawObject;
use serde_json::Value;

use super::class::{ClassDraft, ClassKey, provider_key};
use crate::commands::import::note::Note;

/// The pools among `objects`, without the settings that their class has now: those on which all pools of the class agree.
pub(super) fn moved(objects: &[&RawObject], classes: &mut [ClassDraft]) -> Vec<RawObject> {
    let pools = objects.iter().copied();
    let mut pools: Vec<RawObject> =
        pools.filter(|object| matches!(object.kind.as_str(), "NodePool" | "Provisioner")).cloned().collect();
    for class in classes.iter_mut().filter(|class| !class.spec.contains_key("kubelet")) {
        let is_of_class = |pool: &&mut RawObject| class_key(pool).as_ref() == Some(&class.key);
        let mut of_class: Vec<&mut RawObject> = pools.iter_mut().filter(is_of_class).collect();
        let found: Vec<Option<Value>> = of_class.iter_mut().map(|pool| settings(pool).cloned()).collect();
        let is_agreed = found.iter().all(|one| Some(one) == found.first());
        let Some(Some(agreed)) = found.first().filter(|_| is_agreed) else { continue };
        if !agreed.is_object() {
            continue;
        }
        let titles: Vec<String> = of_class.iter().map(|pool| pool.title()).collect();
        class.notes.push(Note::change(format!(
            "{}: the kubelet's settings of {} are the class's here, as in Karpenter's v1",
            class.source,
            titles.join(", ")
        )));
        class.spec.insert("kubelet".to_owned(), agreed.clone());
        for settings in of_class.into_iter().filter_map(settings) {
            *settings = Value::Null;
        }
    }
    pools
}

/// The kubelet's settings of a pool.
fn settings(pool: &mut RawObject) -> Option<&mut Value> {
    let path =
        if pool.kind == "NodePool" { "/spec/template/spec/kubelet" } else { "/spec/kubeletConfiguration" };
    pool.value.pointer_mut(path).filter(|settings| !settings.is_null())
}

/// The class that a pool refers to.
fn class_key(pool: &RawObject) -> Option<ClassKey> {
    let text = |path: &str| Some(pool.value.pointer(path)?.as_str()?.to_owned());
    if pool.kind == "NodePool" {
        return Some(("EC2NodeClass", text("/spec/template/spec/nodeClassRef/name")?));
    }
    provider_key(pool).or_else(|| Some(("AWSNodeTemplate", text("/spec/providerRef/name")?)))
}
