//! Divides an object into what others of its kind share and its own fields: the pods of a workload differ in little.

use serde_json::{Map, Value, map::Entry};

/// Fields of metadata that equal objects share.
const SHARED_METADATA: [&str; 3] = ["labels", "annotations", "ownerReferences"];
/// Fields of the spec that differ from object to object.
const OWN_SPEC: [&str; 2] = ["nodeName", "providerID"];
/// Fields of the status that equal nodes share.
const SHARED_STATUS: [&str; 2] = ["capacity", "allocatable"];
/// Stands for the object's name in the shared part, such as in the label of a node's host name.
const NAME: char = '\u{1}';

/// The two parts of an object. [`join`] puts them together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parts {
    pub(super) shared: Value,
    pub(super) own: Value,
}

/// Divides `object`, whose name is `name`.
pub(super) fn split(object: Value, name: &str) -> Parts {
    let has_mark = any_string(&object, &|text| text.contains(NAME));
    let Value::Object(fields) = object else { return Parts { shared: Value::Null, own: object } };
    if has_mark || name.is_empty() {
        return Parts { shared: Value::Object(Map::new()), own: Value::Object(fields) };
    }
    let (mut shared, mut own) = (Map::new(), Map::new());
    for (field, value) in fields {
        let is_own = |inner: &str| match field.as_str() {
            "metadata" => !SHARED_METADATA.contains(&inner),
            "spec" => OWN_SPEC.contains(&inner),
            "status" => !SHARED_STATUS.contains(&inner),
            _ => false,
        };
        match value {
            // An empty map, whose fields are in neither part.
            Value::Object(inner) if !inner.is_empty() => {
                for (key, value) in inner {
                    let part = if is_own(&key) { &mut own } else { &mut shared };
                    if let Value::Object(into) =
                        part.entry(field.clone()).or_insert_with(|| Value::Object(Map::new()))
                    {
                        into.insert(key, value);
                    }
                }
            }
            value => {
                shared.insert(field, value);
            }
        }
    }
    let mut shared = Value::Object(shared);
    map_strings(&mut shared, &|text| {
        text.contains(name).then(|| text.replace(name, NAME.encode_utf8(&mut [0; 4])))
    });
    Parts { shared, own: Value::Object(own) }
}

/// The object of two parts.
pub(super) fn join(Parts { mut shared, own }: Parts, name: &str) -> Value {
    map_strings(&mut shared, &|text| text.contains(NAME).then(|| text.replace(NAME, name)));
    let (Value::Object(fields), Value::Object(own)) = (&mut shared, own) else { return Value::Null };
    for (field, value) in own {
        match (fields.entry(field), value) {
            (Entry::Vacant(place), value) => {
                place.insert(value);
            }
            (Entry::Occupied(mut place), Value::Object(inner)) => {
                if let Value::Object(there) = place.get_mut() {
                    there.extend(inner);
                }
            }
            (Entry::Occupied(_), _) => {}
        }
    }
    shared
}

fn any_string(value: &Value, holds: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => holds(text),
        Value::Array(items) => items.iter().any(|item| any_string(item, holds)),
        Value::Object(fields) => fields.values().any(|field| any_string(field, holds)),
        _ => false,
    }
}

fn map_strings(value: &mut Value, new: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(changed) = new(text) {
                *text = changed;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, new)),
        Value::Object(fields) => fields.values_mut().for_each(|field| map_strings(field, new)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web", "pod": name}},
            "spec": {"nodeName": node, "volumes": [{"persistentVolumeClaim": {"claimName": format!("data-{name}")}}]},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn replicas_share_all_but_name_node_and_status() {
        let (one, other) = (split(pod("web-1", "a"), "web-1"), split(pod("web-10", "b"), "web-10"));
        assert_eq!(one.shared, other.shared);
        assert_eq!(
            one.own,
            json!({"metadata": {"name": "web-1", "namespace": "shop"}, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}})
        );
        assert_eq!(join(other, "web-10"), pod("web-10", "b"));
    }

    #[test]
    fn object_with_the_mark_in_a_string_is_joined_as_it_was() {
        let odd = json!({"metadata": {"name": "a", "labels": {"x": "\u{1}"}}, "spec": {}, "status": null});
        assert_eq!(join(split(odd.clone(), "a"), "a"), odd);
    }
}
