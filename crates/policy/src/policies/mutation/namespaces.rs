//! Namespaces: what others write of Croft's label and annotations is taken back: `rules::namespace::take_back` as CEL.

use crate::{
    definitions::{TENANCY_LABEL, parameter::PREFIX},
    policies::{
        cel,
        namespaces::{NAMESPACE_RESOURCES, own_annotations, tenancy_labels},
        policy::{Mutating, constraints},
    },
};

/// Takes back what a write by others changes of Croft's metadata, in both modes: where this acts, the webhook has nothing to
/// take back.
pub(super) fn metadata() -> Mutating {
    Mutating {
        name: "croft-namespace-metadata",
        constraints: constraints("", &NAMESPACE_RESOURCES, &["CREATE", "UPDATE"], false),
        conditions: vec![("not-croft", format!("!({})", cel::by_controller()))],
        variables: own_annotations(),
        patches: format!("{} + {}", label_patches(), annotation_patches()),
        failure: "Ignore",
    }
}

/// CEL: the patches that put the label back.
fn label_patches() -> String {
    let (label, before) = tenancy_labels();
    let path = format!("'/metadata/labels/' + jsonpatch.escapeKey('{TENANCY_LABEL}')");
    format!(
        "({label} == {before} ? [] : !{before}.hasValue() ? [JSONPatch{{op: 'remove', path: {path}}}] : \
         size(object.metadata.?labels.orValue({{}})) == 0 ? [JSONPatch{{op: 'add', path: '/metadata/labels', \
         value: {{'{TENANCY_LABEL}': {before}.value()}}}}] : \
         [JSONPatch{{op: 'add', path: {path}, value: {before}.value()}}])"
    )
}

/// CEL: the patches that put the annotations back. What was brought is removed first; nothing else is written into a map that
/// isn't there.
fn annotation_patches() -> String {
    let path = "'/metadata/annotations/' + jsonpatch.escapeKey(k)";
    format!(
        "variables.changed.filter(k, !(k in variables.before)).map(k, JSONPatch{{op: 'remove', path: {path}}}) + \
         (size(variables.written) == 0 && size(variables.changed) > 0 ? \
         [JSONPatch{{op: 'add', path: '/metadata/annotations', \
         value: variables.before.transformMap(k, v, k.startsWith('{PREFIX}'), v)}}] : \
         variables.changed.filter(k, k in variables.before).map(k, \
         JSONPatch{{op: 'add', path: {path}, value: variables.before[k]}}))"
    )
}
