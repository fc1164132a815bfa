//! Croft's kinds: the CRDs, and JSON schemas for editors and for checks of manifests.
//!
//! Schemas are named as kubeconform and the schema stores of editors look for them: `GROUP/KIND_VERSION.json`.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::generated::File;

const FOLDER: &str = "manifests/crds";
const HEADER: &str = "# Generated from crates/api by `make generate`; edit there.\n";
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The CRDs, one file each, and the kustomization that lists them.
pub(crate) fn crds() -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut kustomization =
        format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for crd in croft_api::crds() {
        let name = crd.metadata.name.as_deref().context("a CRD without a name")?;
        let file = format!("{name}.yaml");
        // Through a Value, so that absent fields are left out and keys are sorted.
        let value = serde_json::to_value(&crd)?;
        let yaml =
            serde_saphyr::to_string(&value).with_context(|| format!("failed to write {name} as YAML"))?;
        writeln!(kustomization, "- {file}")?;
        files.push(File::new(FOLDER, &file, format!("{HEADER}{yaml}")));
    }
    files.push(File::new(FOLDER, "kustomization.yaml", kustomization));
    Ok(files)
}

/// Writes the schemas into `out`.
///
/// # Errors
/// If a file can't be written.
pub(crate) fn write(out: &Path) -> anyhow::Result<()> {
    for crd in croft_api::crds() {
        for (name, schema) in of(&crd)? {
            let path = out.join(&name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("failed to create {}", folder.display()))?;
            }
            let text = format!("{}\n", serde_json::to_string_pretty(&schema)?);
            fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The schema of each served version, by file name.
fn of(crd: &CustomResourceDefinition) -> anyhow::Result<Vec<(String, Value)>> {
    let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
    let mut schemas = Vec::new();
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let mut schema = serde_json::to_value(schema.context("a CRD without a schema")?)?;
        closed(&mut schema);
        let root = schema.as_object_mut().context("a schema that is no object")?;
        root.insert("$schema".to_owned(), json!(DRAFT));
        root.insert("title".to_owned(), json!(kind));
        root.insert("required".to_owned(), json!(["apiVersion", "kind", "metadata", "spec"]));
        let properties = root.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            let api_version = format!("{group}/{}", version.name);
            properties.insert("apiVersion".to_owned(), json!({"type": "string", "enum": [api_version]}));
            properties.insert("kind".to_owned(), json!({"type": "string", "enum": [kind]}));
            properties.entry("metadata").or_insert_with(|| json!({"type": "object"}));
        }
        schemas.push((format!("{group}/{}_{}.json", kind.to_lowercase(), version.name), schema));
    }
    Ok(schemas)
}

/// Makes the API server's own words JSON Schema: an object with named fields has no others, and a field with two types has both.
fn closed(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.remove("x-kubernetes-int-or-string") == Some(Value::Bool(true)) {
        fields.insert("type".to_owned(), json!(["integer", "string"]));
        fields.remove("anyOf");
    }
    let keeps_others = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    fields.retain(|key, _| !key.starts_with("x-kubernetes-"));
    if fields.remove("nullable") == Some(Value::Bool(true))
        && let Some(Value::String(kind)) = fields.get("type").cloned()
    {
        fields.insert("type".to_owned(), json!([kind, "null"]));
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(closed);
        if !keeps_others && !fields.contains_key("additionalProperties") {
            fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            closed(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_that_knows_its_fields() {
        let schemas: Vec<(String, Value)> =
            croft_api::crds().iter().flat_map(|crd| of(crd).unwrap()).collect();
        let names: Vec<&str> = schemas.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"croft.dev/tenant_v1alpha1.json"), "{names:?}");
        assert_eq!(names.len(), croft_api::crds().len());
        for (name, schema) in &schemas {
            let spec = schema.pointer("/properties/spec").unwrap();
            assert_eq!(spec.get("additionalProperties"), Some(&Value::Bool(false)), "{name}");
            assert!(!schema.to_string().contains("x-kubernetes-"), "{name}");
            assert!(schema.pointer("/properties/metadata").is_some(), "{name}");
        }
    }
}
