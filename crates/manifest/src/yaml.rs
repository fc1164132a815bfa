//! JSON values as YAML, in the layout of `kubectl get -o yaml`.

use serde_json::Value;
use thiserror::Error;

/// A value that YAML can't hold.
#[derive(Debug, Error)]
#[error("failed to write YAML: {0}")]
pub struct WriteError(#[from] serde_saphyr::ser::Error);

/// The YAML of one document, or of several with `---` between them; empty for none.
///
/// Strings that YAML 1.1 reads as another type (`yes`, `0644`, `1e3`) are quoted, since `kubectl` resolves scalars by
/// its rules.
///
/// ```
/// let pod = serde_json::json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"on": "yes"}}});
/// let yaml = croft_manifest::to_yaml(std::slice::from_ref(&pod))?;
/// assert_eq!(yaml, "kind: Pod\nmetadata:\n  labels:\n    \"on\": \"yes\"\n  name: a\n");
/// # Ok::<(), croft_manifest::WriteError>(())
/// ```
///
/// # Errors
/// [`WriteError`] if the serializer fails, which no JSON value is known to cause.
pub fn to_yaml(documents: &[Value]) -> Result<String, WriteError> {
    // Long lines aren't folded: a reader compares them with the manifest that they come from.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    Ok(serde_saphyr::to_string_multiple_with_options(documents, options)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tree::{self, Tree};

    #[test]
    fn written_values_are_read_back_unchanged() {
        let value = json!({
            "a": {"b": [1, {"c": "d", "e": [[], {}]}, [2, 3]]},
            "texts": ["yes", "1", "0x1", "", " x", "a: b", "a #b", "-", "null", "é", "it's", "x:", "1e3", "~", "@x", "*a", "!t", "%d", "{}", "[a]", "a\tb"],
            "script": "#!/bin/sh\necho 'a: b'\n\n\texit 0\n", "end": "x\ny", "odd": "x \ny\n",
            "n": null, "t": true, "f": 1.5, "y": "z"
        });
        let text = to_yaml(std::slice::from_ref(&value)).unwrap();
        let read: Vec<Value> =
            tree::read(&text, &mut Vec::new()).unwrap().iter().map(Tree::to_json).collect();
        assert_eq!(read, [value], "{text}");
    }
}
