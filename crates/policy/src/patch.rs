//! JSON Patch (RFC 6902), written straight into the text that the API server gets. The rules write it, the webhook
//! sends it.

use std::io;

use serde::Serialize;

/// Size of a patch with one selector entry and one toleration.
const TYPICAL_BYTES: usize = 256;

/// A list of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    text: String,
    operations: usize,
}

impl Patch {
    /// True if there is no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// The number of operations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.operations
    }

    /// The operations as a JSON array.
    #[must_use]
    pub fn into_json(mut self) -> String {
        if self.is_empty() {
            return "[]".to_owned();
        }
        self.text.push(']');
        self.text
    }

    /// Adds `value` at `path`.
    pub(crate) fn add(&mut self, path: &Path, value: &impl Serialize) {
        self.operation("add", path, Some(value));
    }

    /// Replaces what is at `path` by `value`.
    pub(crate) fn replace(&mut self, path: &Path, value: &impl Serialize) {
        self.operation("replace", path, Some(value));
    }

    /// Removes what is at `path`.
    pub(crate) fn remove(&mut self, path: &Path) {
        self.operation("remove", path, None::<&()>);
    }

    fn operation(&mut self, name: &str, path: &Path, value: Option<&impl Serialize>) {
        if self.operations == 0 {
            self.text.reserve(TYPICAL_BYTES);
        }
        self.text.push(if self.operations == 0 { '[' } else { ',' });
        self.operations += 1;
        self.text.push_str("{\"op\":\"");
        self.text.push_str(name);
        self.text.push_str("\",\"path\":");
        string(&mut self.text, &path.0);
        if let Some(value) = value {
            self.text.push_str(",\"value\":");
            json(&mut self.text, value);
        }
        self.text.push('}');
    }
}

/// Appends `value` to `text` as a JSON string. Hardly any value has a character to escape.
pub fn string(text: &mut String, value: &str) {
    if value.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        json(text, value);
    } else {
        text.push('"');
        text.push_str(value);
        text.push('"');
    }
}

/// Appends `value` to `text` as JSON, without an intermediate string.
fn json(text: &mut String, value: &(impl Serialize + ?Sized)) {
    struct End<'a>(&'a mut String);
    impl io::Write for End<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push_str(std::str::from_utf8(bytes).map_err(io::Error::other)?);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // serde_json can't fail on strings, numbers, lists and maps with string keys, and writes whole characters.
    let _ = serde_json::to_writer(End(text), value);
}

/// A JSON Pointer (RFC 6901).
#[derive(Clone, Debug)]
pub(crate) struct Path(String);

impl Path {
    /// The pointer with this text.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The member `name` of this object.
    pub(crate) fn key(&self, name: &str) -> Self {
        let mut path = String::with_capacity(self.0.len() + 1 + name.len());
        path.push_str(&self.0);
        path.push('/');
        if !name.contains(['~', '/']) {
            path.push_str(name);
            return Self(path);
        }
        for c in name.chars() {
            match c {
                '~' => path.push_str("~0"),
                '/' => path.push_str("~1"),
                c => path.push(c),
            }
        }
        Self(path)
    }

    /// The element `index` of this list.
    pub(crate) fn at(&self, index: usize) -> Self {
        Self(format!("{}/{index}", self.0))
    }

    /// The position after the last element of this list.
    pub(crate) fn end(&self) -> Self {
        Self(format!("{}/-", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_pointers_and_values() {
        let mut patch = Patch::default();
        patch.add(&Path::new("/spec").key("a/b~c\"d"), &"x\"y");
        patch.remove(&Path::new("/spec").at(3).end());
        assert_eq!(
            patch.into_json(),
            r#"[{"op":"add","path":"/spec/a~1b~0c\"d","value":"x\"y"},{"op":"remove","path":"/spec/3/-"}]"#
        );
        assert_eq!(Patch::default().into_json(), "[]");
    }
}
