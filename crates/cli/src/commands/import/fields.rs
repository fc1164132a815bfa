//! Fields of an object of the input, taken one by one. What nothing has taken in the end gets a note, so that no field is lost in
//! silence; a value of another type than its kind has is an error, since no API server has stored it.

use std::{collections::BTreeMap, fmt::Display};

use croft_manifest::{Problem, RawObject};
use serde_json::{Map, Value};

use super::note::Note;

/// Notes and errors about one object.
pub(super) struct Report<'o> {
    object: &'o RawObject,
    pub(super) notes: Vec<Note>,
    pub(super) problems: Vec<Problem>,
}

impl<'o> Report<'o> {
    pub(super) const fn new(object: &'o RawObject) -> Self {
        Self { object, notes: Vec::new(), problems: Vec::new() }
    }

    /// Kind and name of the object.
    pub(super) fn title(&self) -> String {
        self.object.title()
    }

    /// Notes a change: all of the field is in the output, in another way.
    pub(super) fn note(&mut self, note: impl Display) {
        self.notes.push(Note::change(format!("{}: {note}", self.title())));
    }

    /// Notes a loss: the field, or a part of it, is in no output.
    pub(super) fn note_loss(&mut self, note: impl Display) {
        self.notes.push(Note::loss(format!("{}: {note}", self.title())));
    }

    fn expected(&mut self, field: &Fields, what: &str) {
        let found = match &field.left {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the boolean {value}; write the value in quotes"),
            Value::Number(value) => format!("the number {value}; write the value in quotes"),
            Value::String(value) => format!("the string {value:?}"),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.problems.push(self.object.problem(&field.path, format!("expected {what}, found {found}")));
    }
}

/// Fields that nothing has taken yet, and where they are in their object.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    path: String,
    left: Value,
}

impl Fields {
    /// All fields of an object, but for those that are null: for the API server these are absent.
    pub(super) fn of(object: &RawObject) -> Self {
        let mut left = object.value.clone();
        remove_nulls(&mut left);
        Self { path: String::new(), left }
    }

    /// The path of the field that holds them.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The fields that are left.
    pub(super) const fn left(&self) -> &Value {
        &self.left
    }

    /// The fields that are left, carried over as they are.
    pub(super) fn into_left(self) -> Value {
        self.left
    }

    /// The fields that are left, carried over as they are.
    pub(super) fn into_map(self) -> Map<String, Value> {
        match self.left {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// Takes a field, unless it is absent or null.
    pub(super) fn take(&mut self, field: &str) -> Option<Self> {
        let left = self.left.as_object_mut()?.remove(field).filter(|value| !value.is_null())?;
        Some(Self { path: self.path_of(field), left })
    }

    /// Takes an object; an absent one has no fields.
    pub(super) fn object(&mut self, field: &str, report: &mut Report<'_>) -> Self {
        let nothing = Self { path: self.path_of(field), left: Value::Object(Map::new()) };
        match self.take(field) {
            Some(found) if found.left.is_object() => found,
            Some(found) => {
                report.expected(&found, "an object");
                nothing
            }
            None => nothing,
        }
    }

    /// Takes the items of a list; an absent one has none.
    pub(super) fn list(&mut self, field: &str, report: &mut Report<'_>) -> Vec<Self> {
        let Some(found) = self.take(field) else { return Vec::new() };
        match found.left {
            Value::Array(items) => {
                let item = |(index, left)| Self { path: format!("{}[{index}]", found.path), left };
                items.into_iter().enumerate().map(item).collect()
            }
            _ => {
                report.expected(&found, "a list");
                Vec::new()
            }
        }
    }

    /// Takes the items of a list of objects.
    pub(super) fn objects(&mut self, field: &str, report: &mut Report<'_>) -> Vec<Self> {
        let mut items = self.list(field, report);
        items.retain(|item| {
            if !item.left.is_object() {
                report.expected(item, "an object");
            }
            item.left.is_object()
        });
        items
    }

    /// Takes a text.
    pub(super) fn text(&mut self, field: &str, report: &mut Report<'_>) -> Option<String> {
        self.take(field)?.into_text(report)
    }

    /// The text that this field is.
    pub(super) fn into_text(self, report: &mut Report<'_>) -> Option<String> {
        match self.left {
            Value::String(text) => Some(text),
            _ => {
                report.expected(&self, "a string");
                None
            }
        }
    }

    /// Takes a list of texts.
    pub(super) fn texts(&mut self, field: &str, report: &mut Report<'_>) -> Vec<String> {
        self.list(field, report).into_iter().filter_map(|item| item.into_text(report)).collect()
    }

    /// Takes an object whose values are texts, such as labels.
    pub(super) fn text_map(&mut self, field: &str, report: &mut Report<'_>) -> BTreeMap<String, String> {
        let mut fields = self.object(field, report);
        let keys: Vec<String> = fields.left.as_object().into_iter().flat_map(Map::keys).cloned().collect();
        keys.into_iter().filter_map(|key| Some((key.clone(), fields.text(&key, report)?))).collect()
    }

    /// Ends the taking: a note for each field that is left.
    pub(super) fn end(self, report: &mut Report<'_>) {
        self.end_because("Croft has no such field", report);
    }

    /// The same with a reason.
    pub(super) fn end_because(self, why: &str, report: &mut Report<'_>) {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        match &self.left {
            Value::Object(fields) => {
                for (field, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
                    report.note_loss(format_args!(
                        "{} isn't carried over, {why}: {value}",
                        self.path_of(field)
                    ));
                }
            }
            value if is_empty(value) => {}
            value => report.note_loss(format_args!("{} isn't carried over, {why}: {value}", self.path)),
        }
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
