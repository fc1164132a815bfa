//! Decodes a [`Tree`] into a typed object as strictly as the API server does for `kubectl apply`.
//!
//! Numbers are not converted to strings, `null` is the zero value as in Go's decoder, and a quantity may be written as a
//! number. Unknown fields are refused (`fieldValidation: Strict` is kubectl's default), or left out and returned: a newer
//! cluster has fields that this version doesn't know. Errors carry the line and the path of the invalid value.

use std::{cell::RefCell, fmt};

use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor, value::BorrowedStrDeserializer,
};

use crate::{
    quantity,
    suggestion::closest,
    tree::{Entry, Node, Step, Tree},
};

/// A value that its type refuses.
#[derive(Debug)]
pub(crate) struct DecodeError {
    /// Line of the value; 0 until it is known.
    pub(crate) line: u32,
    /// Path to the value, the innermost step first.
    steps: Vec<Step>,
    message: String,
    /// A value that the type takes in its place.
    instead: Instead,
}

/// The value with which decoding goes on after an error, so that it doesn't hide the next one.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    /// This value.
    Value(Node),
    /// No such key.
    Absent,
    /// There is nothing that the type would take.
    Nothing,
}

impl DecodeError {
    fn new(message: String) -> Self {
        Self { line: 0, steps: Vec::new(), message, instead: Instead::Nothing }
    }

    fn instead(mut self, instead: Instead) -> Self {
        self.instead = instead;
        self
    }

    fn at(mut self, line: u32) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }

    fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The path of the field, such as `spec.containers[0].image`; empty for the object itself.
    pub(crate) fn field(&self) -> String {
        let mut path = String::new();
        for step in self.steps.iter().rev() {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => {
                    path.push('.');
                    path.push_str(key);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Puts a value into `tree` that the type takes there. False if there is none.
    pub(crate) fn repair(&self, tree: &mut Tree) -> bool {
        let mut at = tree;
        let Some((last, before)) = self.steps.split_first() else { return false };
        for step in before.iter().rev() {
            match at.inside_mut(step) {
                Some(inner) => at = inner,
                None => return false,
            }
        }
        match (&self.instead, last) {
            (Instead::Value(node), step) => at.put(step, node.clone()),
            (Instead::Absent, Step::Key(key)) => at.remove(key),
            (Instead::Absent | Instead::Nothing, _) => false,
        }
    }

    /// The message without the path.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        if field.is_empty() { f.write_str(&self.message) } else { write!(f, "{field}: {}", self.message) }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = plain_words(&expected.to_string());
        let (found, hint) = match found {
            Unexpected::Bool(v) => {
                (format!("the boolean {v}"), format!("; quote it if text is meant: \"{v}\""))
            }
            Unexpected::Signed(v) => {
                (format!("the number {v}"), format!("; quote it if text is meant: \"{v}\""))
            }
            Unexpected::Unsigned(v) => {
                (format!("the number {v}"), format!("; quote it if text is meant: \"{v}\""))
            }
            Unexpected::Float(v) => {
                (format!("the number {v}"), format!("; quote it if text is meant: \"{v}\""))
            }
            Unexpected::Str(v) => (format!("the string {v:?}"), String::new()),
            Unexpected::Unit => ("nothing".to_owned(), String::new()),
            Unexpected::Seq => ("a list".to_owned(), String::new()),
            Unexpected::Map => ("an object".to_owned(), String::new()),
            other => (other.to_string(), String::new()),
        };
        let hint = if expected == "a string" { hint } else { String::new() };
        Self::new(format!("expected {expected}, found {found}{hint}")).instead(zero(&expected))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = plain_words(&expected.to_string());
        let error = match found {
            Unexpected::Str(v) => Self::new(format!("expected {expected}, found {v:?}")),
            Unexpected::Signed(v) => Self::new(format!("{v} is out of range, expected {expected}")),
            Unexpected::Unsigned(v) => Self::new(format!("{v} is out of range, expected {expected}")),
            other => Self::new(format!("expected {expected}, found {other}")),
        };
        error.instead(zero(&expected))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let known = expected.first().map(|known| Instead::Value(Node::Text((*known).to_owned())));
        Self::new(format!("{found:?} isn't one of {}", expected.join(", ")))
            .instead(known.unwrap_or(Instead::Nothing))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(unknown_field(field, expected)).instead(Instead::Absent)
    }

    fn missing_field(field: &'static str) -> Self {
        // Where the type takes no text, the next error says what it takes.
        Self::new("this is required".to_owned())
            .inside(Step::Key(field.to_owned()))
            .instead(Instead::Value(Node::Text(String::new())))
    }
}

fn plain_words(expected: &str) -> String {
    match expected {
        "i32" => "a 32-bit integer".to_owned(),
        "i64" => "an integer".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "Time" => "a time such as \"2026-07-01T12:00:00Z\"".to_owned(),
        // k8s-openapi and serde's derive name the type: `PodSpec`, `struct Requirement`.
        name if name.starts_with("struct ") || name.starts_with(|c: char| c.is_ascii_uppercase()) => {
            "an object".to_owned()
        }
        other => other.to_owned(),
    }
}

/// The zero value of what was expected, in the words of [`plain_words`].
fn zero(expected: &str) -> Instead {
    Instead::Value(match expected {
        "a string" => Node::Text(String::new()),
        "a 32-bit integer" | "an integer" => Node::Integer(0),
        "true or false" => Node::Bool(false),
        "a list" => Node::List(Vec::new()),
        "an object" => Node::Map(Vec::new()),
        _ => return Instead::Nothing,
    })
}

fn unknown_field(field: &str, expected: &[&str]) -> String {
    match closest(field, expected) {
        Some(meant) => format!("there is no such field; did you mean {meant:?}?"),
        None => "there is no such field".to_owned(),
    }
}

/// Decodes `tree` into `T`, which has every field of it.
pub(crate) fn decode<'t, T: Deserialize<'t>>(tree: &'t Tree) -> Result<T, DecodeError> {
    T::deserialize(Value { tree, unknown: None, root: true }).map_err(|e| e.at(tree.line))
}

/// Decodes `tree` into `T` without the fields that `T` doesn't have, which are appended to `unknown`.
pub(crate) fn decode_known<T: DeserializeOwned>(
    tree: &Tree,
    unknown: &mut Vec<DecodeError>,
) -> Result<T, DecodeError> {
    let ignored = Ignored::default();
    let decoded = T::deserialize(Value { tree, unknown: Some(&ignored), root: true });
    unknown.append(&mut ignored.0.into_inner());
    decoded.map_err(|e| e.at(tree.line))
}

/// Unknown fields that were left out. Each gets its path step by step, as the decoder returns from it.
#[derive(Default)]
struct Ignored(RefCell<Vec<DecodeError>>);

impl Ignored {
    /// Runs `decode` and adds `step` to the path of each field that it leaves out.
    fn inside<T>(ignored: Option<&Self>, step: impl Fn() -> Step, decode: impl FnOnce() -> T) -> T {
        let Some(Self(fields)) = ignored else { return decode() };
        let before = fields.borrow().len();
        let decoded = decode();
        for field in fields.borrow_mut().iter_mut().skip(before) {
            field.steps.push(step());
        }
        decoded
    }
}

#[derive(Clone, Copy)]
struct Value<'t> {
    tree: &'t Tree,
    /// Where unknown fields are put; `None`: they are refused.
    unknown: Option<&'t Ignored>,
    /// True for the object itself, whose `apiVersion` and `kind` are skipped: not every type has them.
    root: bool,
}

impl<'t> Value<'t> {
    fn number<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_i64(0),
            _ => self.any(visitor),
        }
    }

    fn any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_unit(),
            Node::Bool(v) => visitor.visit_bool(*v),
            Node::Integer(v) => visitor.visit_i64(*v),
            Node::Large(v) => visitor.visit_u64(*v),
            Node::Float(v) => visitor.visit_f64(*v),
            Node::Text(v) => visitor.visit_borrowed_str(v),
            Node::List(items) => {
                visitor.visit_seq(List { items: items.iter().enumerate(), unknown: self.unknown })
            }
            Node::Map(entries) => visitor.visit_map(Map::free(entries, self.unknown)),
        }
    }
}

impl<'t> de::Deserializer<'t> for Value<'t> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_bool<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_bool(false),
            _ => self.any(visitor),
        }
    }

    fn deserialize_i8<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_i16<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_i32<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_i64<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_u8<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_u16<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_u32<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_u64<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_f32<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }
    fn deserialize_f64<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.number(visitor)
    }

    fn deserialize_char<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_str<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_borrowed_str(""),
            _ => self.any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_option<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'t>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'t>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name != "Quantity" {
            return visitor.visit_newtype_struct(self);
        }
        let none = || Instead::Value(Node::Text("0".to_owned()));
        let text = match &self.tree.node {
            Node::Text(text) => text.clone(),
            Node::Integer(v) => v.to_string(),
            Node::Large(v) => v.to_string(),
            Node::Float(v) => v.to_string(),
            _ => {
                let message = format!(
                    "expected a quantity such as \"500m\" or \"64Gi\", found {}",
                    self.tree.describe()
                );
                return Err(DecodeError::new(message).at(self.tree.line).instead(none()));
            }
        };
        quantity::check(&text)
            .map_err(|message| DecodeError::new(message).at(self.tree.line).instead(none()))?;
        visitor.visit_newtype_struct(IntoDeserializer::<DecodeError>::into_deserializer(text))
    }

    fn deserialize_seq<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_seq(List { items: [].iter().enumerate(), unknown: None }),
            _ => self.any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'t>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'t>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    fn deserialize_map<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_map(Map::free(&[], None)),
            _ => self.any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'t>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Null => visitor.visit_map(Map { fields, fixed: true, ..Map::free(&[], None) }),
            Node::Map(entries) => {
                let map = Map::free(entries, self.unknown);
                visitor.visit_map(Map { fields, root: self.root, fixed: true, ..map })
            }
            // serde's derive decodes a list as a struct, field by field; the API server refuses it.
            Node::List(_) => {
                Err(<DecodeError as de::Error>::invalid_type(Unexpected::Seq, &"an object")
                    .at(self.tree.line))
            }
            _ => self.any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'t>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.tree.node {
            Node::Text(text) => visitor.visit_enum(Word(text)),
            _ => Err(DecodeError::new(format!("expected a string, found {}", self.tree.describe()))
                .at(self.tree.line)),
        }
    }

    fn deserialize_identifier<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(visitor)
    }

    /// Called only for the value of an unknown key.
    fn deserialize_ignored_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}

struct Word<'t>(&'t str);

impl<'t> EnumAccess<'t> for Word<'t> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'t>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        Ok((seed.deserialize(BorrowedStrDeserializer::<DecodeError>::new(self.0))?, self))
    }
}

impl<'t> VariantAccess<'t> for Word<'t> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'t>>(self, _: T) -> Result<T::Value, DecodeError> {
        Err(DecodeError::new("expected an object, found a string".to_owned()))
    }

    fn tuple_variant<V: Visitor<'t>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::new("expected a list, found a string".to_owned()))
    }

    fn struct_variant<V: Visitor<'t>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DecodeError> {
        Err(DecodeError::new("expected an object, found a string".to_owned()))
    }
}

struct List<'t> {
    items: std::iter::Enumerate<std::slice::Iter<'t, Tree>>,
    unknown: Option<&'t Ignored>,
}

impl<'t> SeqAccess<'t> for List<'t> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'t>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, tree)) = self.items.next() else { return Ok(None) };
        let unknown = self.unknown;
        let decode = || seed.deserialize(Value { tree, unknown, root: false });
        Ignored::inside(unknown, || Step::Index(index), decode)
            .map(Some)
            .map_err(|e| e.at(tree.line).inside(Step::Index(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Map<'t> {
    entries: std::slice::Iter<'t, Entry>,
    current: Option<&'t Entry>,
    unknown: Option<&'t Ignored>,
    fields: &'static [&'static str],
    root: bool,
    /// True for a struct, where `null` means absent; false for a map, where it is a zero value.
    fixed: bool,
}

impl<'t> Map<'t> {
    /// A map of any keys.
    fn free(entries: &'t [Entry], unknown: Option<&'t Ignored>) -> Self {
        Self { entries: entries.iter(), current: None, unknown, fields: &[], root: false, fixed: false }
    }

    fn names(&self, key: &str) -> bool {
        self.fields.contains(&key)
    }
}

impl<'t> MapAccess<'t> for Map<'t> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        while let Some(entry) = self.entries.next() {
            if self.fixed {
                if !self.names(&entry.key) {
                    if self.root && matches!(entry.key.as_str(), "apiVersion" | "kind") {
                        continue;
                    }
                    let error = DecodeError::new(unknown_field(&entry.key, self.fields))
                        .instead(Instead::Absent)
                        .at(entry.line)
                        .inside(Step::Key(entry.key.clone()));
                    let Some(Ignored(fields)) = self.unknown else { return Err(error) };
                    fields.borrow_mut().push(error);
                    continue;
                }
                if entry.value.node == Node::Null {
                    continue;
                }
            }
            self.current = Some(entry);
            return seed
                .deserialize(BorrowedStrDeserializer::<DecodeError>::new(&entry.key))
                .map(Some)
                .map_err(|e| e.at(entry.line).inside(Step::Key(entry.key.clone())));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some(entry) = self.current.take() else {
            return Err(DecodeError::new("a value was asked for before its key".to_owned()));
        };
        let unknown = self.unknown;
        let decode = || seed.deserialize(Value { tree: &entry.value, unknown, root: false });
        Ignored::inside(unknown, || Step::Key(entry.key.clone()), decode)
            .map_err(|e| e.at(entry.value.line).inside(Step::Key(entry.key.clone())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod tests;
