//! JSON merge patches (RFC 7386) from the difference of two values.

use serde::Serialize;
use serde_json::{Map, Value};

/// The smallest merge patch that makes `new` of `old`; `None` if they are equal.
#[must_use]
pub fn diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) => {
                if let Some(change) = diff(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Some(Value::Object(patch))
}

/// [`diff`] of two serializable values. What can't be written as JSON counts as null.
#[must_use]
pub fn diff_of<T: Serialize + PartialEq>(old: &T, new: &T) -> Option<Value> {
    if old == new {
        return None;
    }
    let value = |v: &T| serde_json::to_value(v).unwrap_or(Value::Null);
    diff(&value(old), &value(new))
}

/// Applies a merge patch.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            target.remove(key);
        } else {
            apply(target.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_difference_applied_gives_the_new_value() {
        for (old, new) in [
            (json!({}), json!({"a": 1})),
            (json!({"a": 1, "b": {"c": 2, "d": 3}}), json!({"b": {"c": 4}})),
            (json!({"a": [1, 2]}), json!({"a": [1]})),
            (json!({"a": {"b": 1}}), json!({"a": 2})),
            (json!(null), json!({"a": {}})),
        ] {
            let mut value = old.clone();
            apply(&mut value, &diff(&old, &new).unwrap());
            assert_eq!(value, new);
        }
        assert_eq!(diff(&json!({"a": 1}), &json!({"a": 1})), None);
        assert_eq!(diff(&json!({"a": 1, "b": 2}), &json!({"b": 2})), Some(json!({"a": null})));
    }
}
