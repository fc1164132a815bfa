//! The functions and operators that evaluate all of their arguments.

use kube_cel::cel::common::ast::operators;
use regex_lite::Regex;

use crate::cel::value::{Failure, Outcome, Value, fail};

/// The range of a comprehension: the items of a list, or the keys of a map.
pub(super) fn items(range: Value) -> Result<Vec<Value>, Failure> {
    match range {
        Value::List(items) => Ok(items.to_vec()),
        Value::Map(map) => Ok(map.keys().map(|key| Value::Text(key.clone())).collect()),
        other => fail(format!("{other:?} is no list")),
    }
}

/// `operand.?field`, and `operand.field` of an optional operand.
pub(super) fn optional_field(operand: &Value, field: &str) -> Outcome {
    match operand {
        Value::Map(map) => Ok(Value::optional(map.get(field).cloned())),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => optional_field(inner, field),
        other => fail(format!(".?{field} of {other:?}")),
    }
}

/// Calls `name`, a function of `module`, a method of `target`, or a global function.
pub(super) fn call(module: Option<&str>, name: &str, target: Option<Value>, arguments: &[Value]) -> Outcome {
    match (module, target) {
        (Some(module), _) => qualified(module, name, arguments),
        (None, None) => global(name, arguments),
        (None, Some(Value::Authorizer)) if name == "allowed" => Ok(Value::Bool(false)),
        (None, Some(Value::Authorizer)) => Ok(Value::Authorizer),
        (None, Some(Value::Optional(value))) => match (name, arguments) {
            ("hasValue", []) => Ok(Value::Bool(value.is_some())),
            ("orValue", [other]) => Ok(value.map_or_else(|| other.clone(), |value| (*value).clone())),
            _ => panic!("{name} of an optional value isn't evaluated"),
        },
        (None, Some(Value::Text(text))) => of_text(&text, name, arguments),
        (None, Some(Value::List(items))) => of_list(&items, name, arguments),
        (None, Some(other)) => fail(format!("{name} of {other:?}")),
    }
}

fn qualified(module: &str, name: &str, arguments: &[Value]) -> Outcome {
    match (module, name, arguments) {
        ("optional", "of", [value]) => Ok(Value::optional(Some(value.clone()))),
        ("optional", "none", []) => Ok(Value::Optional(None)),
        ("jsonpatch", "escapeKey", [Value::Text(key)]) => {
            Ok(Value::text(&key.replace('~', "~0").replace('/', "~1")))
        }
        _ => panic!("{module}.{name}{arguments:?} isn't evaluated"),
    }
}

fn of_text(text: &str, name: &str, arguments: &[Value]) -> Outcome {
    match (name, arguments) {
        ("split", [Value::Text(separator)]) => Ok(Value::texts(text.split(&**separator))),
        ("startsWith", [Value::Text(prefix)]) => Ok(Value::Bool(text.starts_with(&**prefix))),
        ("endsWith", [Value::Text(suffix)]) => Ok(Value::Bool(text.ends_with(&**suffix))),
        ("contains", [Value::Text(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("matches", [Value::Text(pattern)]) => {
            let pattern = Regex::new(pattern).expect("the policies' patterns are valid");
            Ok(Value::Bool(pattern.is_match(text)))
        }
        _ => panic!("{name}{arguments:?} of a string isn't evaluated"),
    }
}

fn of_list(items: &[Value], name: &str, arguments: &[Value]) -> Outcome {
    match (name, arguments) {
        ("join", [Value::Text(separator)]) => {
            let texts: Vec<&str> = items.iter().map(text_of).collect();
            Ok(Value::text(&texts.join(separator)))
        }
        ("indexOf", [item]) => {
            let at = items.iter().position(|other| other == item);
            Ok(Value::Int(at.map_or(-1, |at| i64::try_from(at).expect("lists are short"))))
        }
        ("distinct", []) => {
            let mut distinct: Vec<Value> = Vec::new();
            for item in items {
                if !distinct.contains(item) {
                    distinct.push(item.clone());
                }
            }
            Ok(Value::list(distinct))
        }
        ("sort", []) => {
            let mut texts: Vec<&str> = items.iter().map(text_of).collect();
            texts.sort_unstable();
            Ok(Value::texts(texts))
        }
        ("flatten", []) => {
            let inner = |item: &Value| match item {
                Value::List(items) => items.to_vec(),
                other => vec![other.clone()],
            };
            Ok(Value::list(items.iter().flat_map(inner).collect()))
        }
        _ => panic!("{name}{arguments:?} of a list isn't evaluated"),
    }
}

fn text_of(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("a list with {other:?} isn't evaluated here"),
    }
}

fn global(name: &str, arguments: &[Value]) -> Outcome {
    match (name, arguments) {
        (operators::LOGICAL_NOT, [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        (operators::NEGATE, [Value::Int(value)]) => Ok(Value::Int(-value)),
        (operators::EQUALS, [left, right]) => Ok(Value::Bool(left == right)),
        (operators::NOT_EQUALS, [left, right]) => Ok(Value::Bool(left != right)),
        (operators::ADD, [Value::Int(left), Value::Int(right)]) => Ok(Value::Int(left + right)),
        (operators::ADD, [Value::Text(left), Value::Text(right)]) => {
            Ok(Value::text(&format!("{left}{right}")))
        }
        (operators::ADD, [Value::List(left), Value::List(right)]) => {
            Ok(Value::list(left.iter().chain(right.iter()).cloned().collect()))
        }
        (operators::SUBSTRACT, [Value::Int(left), Value::Int(right)]) => Ok(Value::Int(left - right)),
        (operators::LESS, [Value::Int(left), Value::Int(right)]) => Ok(Value::Bool(left < right)),
        (operators::LESS_EQUALS, [Value::Int(left), Value::Int(right)]) => Ok(Value::Bool(left <= right)),
        (operators::GREATER, [Value::Int(left), Value::Int(right)]) => Ok(Value::Bool(left > right)),
        (operators::GREATER_EQUALS, [Value::Int(left), Value::Int(right)]) => Ok(Value::Bool(left >= right)),
        (operators::IN, [item, Value::List(items)]) => Ok(Value::Bool(items.contains(item))),
        (operators::IN, [Value::Text(key), Value::Map(map)]) => Ok(Value::Bool(map.contains_key(key))),
        (operators::INDEX, [Value::Optional(None), _]) => Ok(Value::Optional(None)),
        (operators::INDEX, [Value::Optional(Some(inner)), key]) => Ok(Value::optional(at(inner, key)?)),
        (operators::INDEX, [value, key]) => {
            at(value, key)?.map_or_else(|| fail(format!("no such key: {key:?}")), Ok)
        }
        (operators::OPT_INDEX, [Value::Optional(None), _]) => Ok(Value::Optional(None)),
        (operators::OPT_INDEX, [Value::Optional(Some(inner)), key]) => Ok(Value::optional(at(inner, key)?)),
        (operators::OPT_INDEX, [value, key]) => Ok(Value::optional(at(value, key)?)),
        (operators::OPT_SELECT, [value, Value::Text(field)]) => optional_field(value, field),
        ("size", [Value::List(items)]) => size(items.len()),
        ("size", [Value::Map(map)]) => size(map.len()),
        ("size", [Value::Text(text)]) => size(text.chars().count()),
        ("int", [Value::Text(text)]) => text
            .parse()
            .map_or_else(|_| fail(format!("{text} is no number")), |number| Ok(Value::Int(number))),
        ("dyn", [value]) => Ok(value.clone()),
        ("string", [Value::Int(value)]) => Ok(Value::text(&value.to_string())),
        ("string", [text @ Value::Text(_)]) => Ok(text.clone()),
        (_, values) if name.contains('_') => fail(format!("{name} of {values:?}")),
        _ => panic!("{name}{arguments:?} isn't evaluated"),
    }
}

fn size(length: usize) -> Outcome {
    Ok(Value::Int(i64::try_from(length).expect("values are short")))
}

/// The item of a list, or the value of a map; `None` if there is none.
fn at(value: &Value, key: &Value) -> Result<Option<Value>, Failure> {
    match (value, key) {
        (Value::List(items), Value::Int(index)) => {
            Ok(usize::try_from(*index).ok().and_then(|index| items.get(index)).cloned())
        }
        (Value::Map(map), Value::Text(key)) => Ok(map.get(&**key).cloned()),
        _ => fail(format!("{key:?} of {value:?}")),
    }
}
