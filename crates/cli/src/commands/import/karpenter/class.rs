//! EC2NodeClasses, AWSNodeTemplates and the inline providers of Provisioners.

use std::collections::BTreeMap;

use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use crate::commands::import::{
    fields::{Fields, Report},
    imported::take_metadata,
    note::Note,
};

/// A class by what refers to it: its kind and name in the input, or the text of an inline provider.
pub(super) type ClassKey = (&'static str, String);

/// The names of the classes.
pub(super) type ClassNames = BTreeMap<ClassKey, String>;

/// An EC2NodeClass without a name.
pub(super) struct ClassDraft {
    pub(super) key: ClassKey,
    /// Kind and name in the input, for notes.
    pub(super) source: String,
    pub(super) wanted: String,
    pub(super) spec: Map<String, Value>,
    pub(super) metadata: Map<String, Value>,
    pub(super) notes: Vec<Note>,
}

/// The class of an EC2NodeClass.
pub(super) fn of_node_class(object: &RawObject, report: &mut Report<'_>) -> ClassDraft {
    let mut fields = Fields::of(object);
    let metadata = take_metadata(&mut fields, report);
    let mut spec = fields.object("spec", report);
    fields.end(report);
    let mut image = image(&mut spec, "Custom", report);
    image.extend(placement_group(&mut spec, report));
    draft(("EC2NodeClass", object.name.clone()), object, spec, image, metadata, report)
}

/// The placement group, which Karpenter selects by name or id.
fn placement_group(spec: &mut Fields, report: &mut Report<'_>) -> Option<(String, Value)> {
    let mut selector = spec.object("placementGroupSelector", report);
    let name = selector.text("name", report);
    selector.end_because("a placement group is named: write spec.placementGroup", report);
    name.map(|name| ("placementGroup".to_owned(), json!(name)))
}

/// The class of an AWSNodeTemplate (`karpenter.k8s.aws/v1alpha1`).
pub(super) fn of_node_template(object: &RawObject, report: &mut Report<'_>) -> ClassDraft {
    let mut fields = Fields::of(object);
    let metadata = take_metadata(&mut fields, report);
    let spec = fields.object("spec", report);
    fields.end(report);
    let (spec, image) = of_old(spec, report);
    draft(("AWSNodeTemplate", object.name.clone()), object, spec, image, metadata, report)
}

/// A Provisioner's inline `spec.provider`, which isn't empty.
fn provider(object: &RawObject) -> Option<(Fields, ClassKey)> {
    let provider = Fields::of(object).object("spec", &mut Report::new(object)).take("provider")?;
    let text = provider.left().to_string();
    let is_given = provider.left().as_object().is_some_and(|fields| !fields.is_empty());
    is_given.then_some((provider, ("provider", text)))
}

/// The key of the class of a Provisioner's inline `spec.provider`.
pub(super) fn provider_key(object: &RawObject) -> Option<ClassKey> {
    provider(object).map(|(_, key)| key)
}

/// The class of a Provisioner's inline `spec.provider`. The rest of the Provisioner is its pool's matter.
pub(super) fn of_provider(object: &RawObject, report: &mut Report<'_>) -> Option<ClassDraft> {
    let (mut provider, key) = provider(object)?;
    for (field, known) in [("apiVersion", "extensions.karpenter.sh/v1alpha1"), ("kind", "AWS")] {
        if let Some(text) = provider.text(field, report).filter(|text| text != known) {
            report.note_loss(format_args!("spec.provider.{field} isn't carried over: {text:?}"));
        }
    }
    let (spec, image) = of_old(provider, report);
    Some(draft(key, object, spec, image, Map::new(), report))
}

fn draft(
    key: ClassKey,
    object: &RawObject,
    spec: Fields,
    image: Map<String, Value>,
    metadata: Map<String, Value>,
    report: &mut Report<'_>,
) -> ClassDraft {
    let mut spec = spec.into_map();
    spec.extend(image);
    for (field, value) in spec.iter().filter(|(field, _)| *field != "userData") {
        note_placeholders(value, &format!("spec.{field}"), report);
    }
    let (source, wanted) = (object.title(), object.name.clone());
    ClassDraft { key, source, wanted, spec, metadata, notes: std::mem::take(&mut report.notes) }
}

/// Notes texts that a shell, Helm or a reader of the manifest was to replace, such as `$CLUSTER_NAME` and `<cluster>`. A selector with
/// one is valid, and finds nothing in the account. User data is a script, whose variables are its own.
fn note_placeholders(value: &Value, path: &str, report: &mut Report<'_>) {
    match value {
        Value::String(text) if has_placeholder(text) => {
            report.note(format_args!("{path} has a placeholder: write the value in place of {text:?}"));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                note_placeholders(item, &format!("{path}[{index}]"), report);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                note_placeholders(value, &format!("{path}.{field}"), report);
            }
        }
        _ => {}
    }
}

fn has_placeholder(text: &str) -> bool {
    let begins_name = |rest: &str| rest.starts_with(|c: char| c == '{' || c == '_' || c.is_ascii_uppercase());
    text.split('$').skip(1).any(begins_name)
        || text.contains("{{")
        || (text.contains('<') && text.contains('>'))
}

/// The fields of v1alpha1 under the names of v1.
fn of_old(mut old: Fields, report: &mut Report<'_>) -> (Fields, Map<String, Value>) {
    let mut renamed = Map::new();
    for (from, to) in
        [("subnetSelector", "subnetSelectorTerms"), ("securityGroupSelector", "securityGroupSelectorTerms")]
    {
        let selector = old.text_map(from, report);
        if !selector.is_empty() {
            renamed.insert(to.to_owned(), Value::Array(terms(&selector)));
        }
    }
    let images = old.text_map("amiSelector", report);
    let mut image = if images.is_empty() {
        image(&mut old, "AL2", report)
    } else {
        let family = old.text("amiFamily", report).unwrap_or_else(|| "AL2".to_owned());
        Map::from_iter([
            ("amiFamily".to_owned(), json!(family)),
            ("amiSelectorTerms".to_owned(), Value::Array(terms(&images))),
        ])
    };
    if old.left().get("instanceProfile").is_none() && old.left().get("role").is_none() {
        report
            .note("write role or instanceProfile: the global default in Karpenter's settings isn't imported");
    }
    image.extend(renamed);
    (old, image)
}

/// Takes family and image. `default` is the family of a class that names none.
///
/// Before v1 the family alone selected the image. No release of Kubernetes that Croft supports has an image of AL2.
fn image(spec: &mut Fields, default: &str, report: &mut Report<'_>) -> Map<String, Value> {
    let family = spec.text("amiFamily", report);
    let mut image = Map::new();
    let terms = spec.take("amiSelectorTerms").map(Fields::into_left);
    let alias = terms
        .as_ref()
        .and_then(|terms| terms.as_array()?.iter().find_map(|term| term.get("alias")?.as_str()));
    let replaced = match (alias, family.as_deref()) {
        (Some(alias), _) if alias.starts_with("al2@") => Some(format!("the image {alias}")),
        (None, Some("AL2")) if terms.is_none() => Some("amiFamily AL2".to_owned()),
        (None, None) if terms.is_none() && default == "AL2" => {
            Some("Karpenter's default of amiFamily at that time, AL2,".to_owned())
        }
        _ => None,
    };
    if let Some(replaced) = replaced {
        let check = match spec.left().get("userData") {
            Some(_) => "; check userData, which nodeadm reads now",
            None => "",
        };
        report.note(format_args!(
            "{replaced} is replaced by AL2023: no supported Kubernetes has an image of Amazon Linux 2{check}"
        ));
        if let Some(family) = family.filter(|family| family != "AL2") {
            report.note_loss(format_args!("spec.amiFamily isn't carried over: {family:?}"));
        }
        if let Some(others) = terms.as_ref().and_then(Value::as_array).filter(|terms| terms.len() > 1) {
            report.note_loss(format_args!("spec.amiSelectorTerms isn't carried over: {}", json!(others)));
        }
        image.insert("amiSelectorTerms".to_owned(), json!([{"alias": "al2023@latest"}]));
        return image;
    }
    let alias = match (&terms, family.as_deref()) {
        (None, Some("AL2023")) => Some("al2023@latest"),
        (None, Some("Bottlerocket")) => Some("bottlerocket@latest"),
        _ => None,
    };
    let terms = terms.or_else(|| alias.map(|alias| json!([{ "alias": alias }])));
    image.extend(terms.map(|terms| ("amiSelectorTerms".to_owned(), terms)));
    image.extend(family.map(|family| ("amiFamily".to_owned(), json!(family))));
    image
}

/// Selector terms from a selector of tags, where a comma means "or", `aws-ids` lists ids, and `aws::name` and `aws::owners` are fields
/// of each term since v1beta1.
fn terms<'s>(selector: impl IntoIterator<Item = (&'s String, &'s String)>) -> Vec<Value> {
    let parts = |value: &str| -> Vec<String> {
        value.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let mut ids = Vec::new();
    let mut fields = Map::new();
    let mut combinations: Vec<Map<String, Value>> = vec![Map::new()];
    for (key, value) in selector {
        if matches!(key.as_str(), "aws-ids" | "aws::ids") {
            ids.extend(parts(value).into_iter().map(|id| json!({ "id": id })));
            continue;
        }
        if let Some(field) = key.strip_prefix("aws::") {
            let field = if field == "owners" { "owner" } else { field };
            fields.insert(field.to_owned(), json!(value));
            continue;
        }
        combinations = combinations
            .iter()
            .flat_map(|tags| {
                parts(value).into_iter().map(|part| {
                    let mut tags = tags.clone();
                    tags.insert(key.clone(), Value::String(part));
                    tags
                })
            })
            .collect();
    }
    let others = combinations.into_iter().map(|tags| {
        let mut term = fields.clone();
        if !tags.is_empty() {
            term.insert("tags".to_owned(), Value::Object(tags));
        }
        term
    });
    ids.into_iter().chain(others.filter(|term| !term.is_empty()).map(Value::Object)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn comma_in_a_tag_becomes_two_terms() {
        let of = |selector: &[(&str, &str)]| -> BTreeMap<String, String> {
            selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(
            terms(&of(&[("a", "x,y"), ("b", "z")])),
            [json!({"tags": {"a": "x", "b": "z"}}), json!({"tags": {"a": "y", "b": "z"}})]
        );
        assert_eq!(terms(&of(&[("aws-ids", "i-1, i-2")])), [json!({"id": "i-1"}), json!({"id": "i-2"})]);
        assert_eq!(
            terms(&of(&[("aws::name", "mine"), ("aws::owners", "self,amazon"), ("a", "x")])),
            [json!({"name": "mine", "owner": "self,amazon", "tags": {"a": "x"}})],
            "no image has a tag aws::name"
        );
    }

    #[test]
    fn variables_of_a_shell_or_of_helm_are_placeholders() {
        for text in ["${CLUSTER_NAME}", "node-$CLUSTER_NAME", "<cluster>", "{{ .Values.cluster }}"] {
            assert!(has_placeholder(text), "{text}");
        }
        for text in ["karpenter", "cost in $", "5$ a day", "a < b"] {
            assert!(!has_placeholder(text), "{text}");
        }
    }
}
