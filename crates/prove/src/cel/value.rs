//! The values of CEL that policies compute with.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    Text(Arc<str>),
    /// A list.
    List(Arc<Vec<Value>>),
    /// A map, or an object with fields.
    Map(Arc<BTreeMap<Arc<str>, Value>>),
    /// An optional value.
    Optional(Option<Arc<Value>>),
    /// The authorizer, and each check that begins with it. No user may break glass.
    Authorizer,
}

/// An error of the evaluation: the API server refuses the request for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure(pub String);

pub(super) type Outcome = Result<Value, Failure>;

pub(super) fn fail<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(why.into()))
}

impl Value {
    /// A string.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// A list.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(items.into())
    }

    /// A list of strings.
    pub fn texts<'t>(items: impl IntoIterator<Item = &'t str>) -> Self {
        Self::list(items.into_iter().map(Self::text).collect())
    }

    /// An optional value.
    pub fn optional(value: Option<Self>) -> Self {
        Self::Optional(value.map(Arc::new))
    }
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Int(number.as_i64().expect("pods have no fractions")),
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::list(items.iter().map(Self::from).collect()),
            Json::Object(fields) => Self::Map(Arc::new(
                fields.iter().map(|(key, value)| (key.as_str().into(), value.into())).collect(),
            )),
        }
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(number) => Self::from(*number),
            Value::Text(text) => Self::from(&**text),
            Value::List(items) => items.iter().map(Self::from).collect(),
            Value::Map(fields) => {
                Self::Object(fields.iter().map(|(key, value)| (key.to_string(), value.into())).collect())
            }
            Value::Optional(_) | Value::Authorizer => panic!("{value:?} has no JSON"),
        }
    }
}
