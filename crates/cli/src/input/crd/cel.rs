//! The part of the Common Expression Language that rules in CRDs use, over JSON values.
//!
//! <https://github.com/google/cel-spec/blob/master/doc/langdef.md>. Numbers are 64-bit integers or doubles;
//! `&&` and `||` absorb an error on one side if the other decides, as the specification wants.

mod parser;

use regex_lite::Regex;
use serde_json::{Number, Value};

pub(super) use parser::parse;
use parser::{Binary, Expr};

/// Why a rule gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Something of CEL that isn't here.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The rule fails on this value; the API server refuses the object then.
    #[error("{0}")]
    Evaluation(String),
}

/// True if `rule` holds for `value`, which it calls `self`.
pub(super) fn holds(rule: &str, value: &Value) -> Result<bool, Error> {
    let expr = parse(rule)?;
    match eval(&expr, &Scope { name: "self", value, outer: None })? {
        Value::Bool(holds) => Ok(holds),
        other => Err(Error::Evaluation(format!("expected a boolean, got {other}"))),
    }
}

/// Names in sight: `self`, and the variables of macros around.
struct Scope<'s> {
    name: &'s str,
    value: &'s Value,
    outer: Option<&'s Scope<'s>>,
}

impl Scope<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        if self.name == name { Some(self.value) } else { self.outer.and_then(|o| o.get(name)) }
    }
}

fn failed<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Evaluation(what.into()))
}

fn eval(expr: &Expr, scope: &Scope<'_>) -> Result<Value, Error> {
    match expr {
        Expr::Literal(value) => Ok(value.clone()),
        Expr::List(items) => {
            items.iter().map(|i| eval(i, scope)).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        Expr::Name(name) => match scope.get(name) {
            Some(value) => Ok(value.clone()),
            None => failed(format!("undeclared {name}")),
        },
        Expr::Field(of, name) => {
            let of = eval(of, scope)?;
            of.get(name).cloned().map_or_else(|| failed(format!("no such key: {name}")), Ok)
        }
        Expr::Index(of, index) => {
            let (of, index) = (eval(of, scope)?, eval(index, scope)?);
            let found = match (&of, &index) {
                (Value::Array(items), Value::Number(n)) => {
                    n.as_u64().and_then(|n| usize::try_from(n).ok()).and_then(|n| items.get(n))
                }
                (Value::Object(fields), Value::String(key)) => fields.get(key),
                _ => None,
            };
            found.cloned().map_or_else(|| failed(format!("no such index: {index}")), Ok)
        }
        Expr::Has(of, name) => Ok(Value::Bool(eval(of, scope)?.get(name).is_some_and(|v| !v.is_null()))),
        Expr::Not(inner) => boolean(eval(inner, scope)?).map(|b| Value::Bool(!b)),
        Expr::Negative(inner) => match eval(inner, scope)? {
            Value::Number(n) => match n.as_i64().and_then(i64::checked_neg) {
                Some(n) => Ok(Value::from(n)),
                None => Ok(Value::from(-n.as_f64().unwrap_or(0.0))),
            },
            other => failed(format!("-{other} isn't a number")),
        },
        Expr::Choice(condition, yes, no) => {
            if boolean(eval(condition, scope)?)? {
                eval(yes, scope)
            } else {
                eval(no, scope)
            }
        }
        Expr::Binary(Binary::And, a, b) => either(a, b, scope, false),
        Expr::Binary(Binary::Or, a, b) => either(a, b, scope, true),
        Expr::Binary(operator, a, b) => binary(*operator, &eval(a, scope)?, &eval(b, scope)?),
        Expr::Call(name, target, arguments) => {
            let target = target.as_ref().map(|t| eval(t, scope)).transpose()?;
            let arguments = arguments.iter().map(|a| eval(a, scope)).collect::<Result<Vec<_>, _>>()?;
            call(name, target.iter().chain(&arguments).collect::<Vec<_>>().as_slice())
        }
        Expr::Macro(kind, of, variable, body) => {
            let items = match eval(of, scope)? {
                Value::Array(items) => items,
                Value::Object(fields) => fields.into_iter().map(|(key, _)| Value::String(key)).collect(),
                other => return failed(format!("{other} can't be iterated")),
            };
            comprehend(kind, &items, variable, body, scope)
        }
    }
}

/// `&&` with `decides` false, `||` with `decides` true.
fn either(a: &Expr, b: &Expr, scope: &Scope<'_>, decides: bool) -> Result<Value, Error> {
    let a = eval(a, scope).and_then(boolean);
    if a == Ok(decides) {
        return Ok(Value::Bool(decides));
    }
    let b = eval(b, scope).and_then(boolean);
    if b == Ok(decides) {
        return Ok(Value::Bool(decides));
    }
    a?;
    b.map(Value::Bool)
}

fn boolean(value: Value) -> Result<bool, Error> {
    match value {
        Value::Bool(b) => Ok(b),
        other => failed(format!("expected a boolean, got {other}")),
    }
}

fn binary(operator: Binary, a: &Value, b: &Value) -> Result<Value, Error> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = || match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let ordered = |wanted: &[std::cmp::Ordering]| match order() {
        Some(order) => Ok(Value::Bool(wanted.contains(&order))),
        None => failed(format!("{a} and {b} can't be compared")),
    };
    match operator {
        Binary::Equal => Ok(Value::Bool(equal(a, b))),
        Binary::NotEqual => Ok(Value::Bool(!equal(a, b))),
        Binary::Less => ordered(&[Less]),
        Binary::LessOrEqual => ordered(&[Less, Equal]),
        Binary::Greater => ordered(&[Greater]),
        Binary::GreaterOrEqual => ordered(&[Greater, Equal]),
        Binary::In => match b {
            Value::Array(items) => Ok(Value::Bool(items.iter().any(|item| equal(a, item)))),
            Value::Object(fields) => Ok(Value::Bool(a.as_str().is_some_and(|key| fields.contains_key(key)))),
            _ => failed(format!("in {b}: neither a list nor a map")),
        },
        Binary::Add => match (a, b) {
            (Value::String(a), Value::String(b)) => Ok(Value::String(format!("{a}{b}"))),
            (Value::Array(a), Value::Array(b)) => Ok(a.iter().chain(b).cloned().collect()),
            _ => arithmetic(a, b, i64::checked_add, |a, b| a + b),
        },
        Binary::Subtract => arithmetic(a, b, i64::checked_sub, |a, b| a - b),
        Binary::Multiply => arithmetic(a, b, i64::checked_mul, |a, b| a * b),
        Binary::Divide => arithmetic(a, b, i64::checked_div, |a, b| a / b),
        Binary::Remainder => arithmetic(a, b, i64::checked_rem, |a, b| a % b),
        Binary::And | Binary::Or => failed("decided elsewhere"),
    }
}

fn arithmetic(
    a: &Value,
    b: &Value,
    whole: fn(i64, i64) -> Option<i64>,
    real: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return whole(a, b).map_or_else(|| failed("overflow or division by zero"), |n| Ok(Value::from(n)));
    }
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => Ok(Value::from(real(a, b))),
        _ => failed(format!("{a} and {b} aren't numbers")),
    }
}

fn compare(a: &Number, b: &Number) -> Option<std::cmp::Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(std::cmp::Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        _ => a == b,
    }
}

fn call(name: &str, arguments: &[&Value]) -> Result<Value, Error> {
    let count = |n: usize| Ok(Value::from(i64::try_from(n).unwrap_or(i64::MAX)));
    match (name, arguments) {
        ("size", [Value::String(text)]) => count(text.chars().count()),
        ("size", [Value::Array(items)]) => count(items.len()),
        ("size", [Value::Object(fields)]) => count(fields.len()),
        ("matches", [Value::String(text), Value::String(pattern)]) => match Regex::new(pattern) {
            Ok(pattern) => Ok(Value::Bool(pattern.is_match(text))),
            Err(error) => Err(Error::Unsupported(error.to_string())),
        },
        ("startsWith", [Value::String(text), Value::String(part)]) => {
            Ok(Value::Bool(text.starts_with(part.as_str())))
        }
        ("endsWith", [Value::String(text), Value::String(part)]) => {
            Ok(Value::Bool(text.ends_with(part.as_str())))
        }
        ("contains", [Value::String(text), Value::String(part)]) => {
            Ok(Value::Bool(text.contains(part.as_str())))
        }
        ("lowerAscii", [Value::String(text)]) => Ok(Value::String(text.to_ascii_lowercase())),
        ("int", [Value::Number(n)]) => match n.as_i64() {
            Some(n) => Ok(Value::from(n)),
            None => failed(format!("{n} isn't a whole number")),
        },
        ("int", [Value::String(text)]) => match text.parse::<i64>() {
            Ok(n) => Ok(Value::from(n)),
            Err(_) => failed(format!("{text:?} isn't a whole number")),
        },
        ("string", [Value::String(text)]) => Ok(Value::String(text.clone())),
        ("string", [value @ (Value::Number(_) | Value::Bool(_))]) => Ok(Value::String(value.to_string())),
        ("type", [value]) => Ok(Value::String(type_name(value).to_owned())),
        _ => failed(format!("no such overload: {name}")),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null_type",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int",
        Value::Number(_) => "double",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

fn comprehend(
    kind: &str,
    items: &[Value],
    variable: &str,
    body: &Expr,
    scope: &Scope<'_>,
) -> Result<Value, Error> {
    let run = |item: &Value| eval(body, &Scope { name: variable, value: item, outer: Some(scope) });
    match kind {
        "map" => items.iter().map(run).collect::<Result<Vec<_>, _>>().map(Value::Array),
        "filter" => {
            let mut kept = Vec::new();
            for item in items {
                if boolean(run(item)?)? {
                    kept.push(item.clone());
                }
            }
            Ok(Value::Array(kept))
        }
        "exists_one" => {
            let mut found = 0;
            for item in items {
                found += i32::from(boolean(run(item)?)?);
            }
            Ok(Value::Bool(found == 1))
        }
        // An error counts only if no other item decides.
        _ => {
            let decides = kind == "exists";
            let mut error = None;
            for item in items {
                match run(item).and_then(boolean) {
                    Ok(answer) if answer == decides => return Ok(Value::Bool(decides)),
                    Ok(_) => {}
                    Err(e) => error = Some(e),
                }
            }
            error.map_or(Ok(Value::Bool(!decides)), Err)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_mean_what_cel_says() {
        let value = json!({"a": 1, "name": "pool-a", "list": ["x", "y"], "empty": [], "map": {"k/1": "v"}, "terms": [{"id": "1"}, {"tags": {"a": "b"}}]});
        for (rule, expected) in [
            ("self.a == 1", true),
            ("self.a > 1 || self.name.startsWith('pool-')", true),
            ("!has(self.b) && has(self.a)", true),
            ("has(self.b) == has(self.c)", true),
            ("self.b == 1 || self.a == 1", true),
            ("self.a != 1 && self.b == 1", false),
            ("self.name in ['pool-a', 'pool-b']", true),
            ("!(self.name in ['pool-a'])", false),
            ("'k/1' in self.map && self.map['k/1'] == 'v'", true),
            ("self.list.all(x, size(x) == 1) && self.list.exists(x, x == 'y')", true),
            ("self.list.exists_one(x, x == 'z')", false),
            ("self.terms.all(t, [has(t.id), has(t.tags)].filter(x, x).size() == 1)", true),
            ("self.name.matches('^[a-z-]+$')", true),
            ("size(self.empty) == 0 ? true : self.nothing", true),
            ("self.list[1] == \"y\" && self.list.map(x, x + '!')[0] == 'x!'", true),
            ("-1 + 2 * 3 - 4 / 2 == 3 && 7 % 4 == 3", true),
            ("self.name.size() <= 40", true),
            ("self.list.exists(x, self.list.all(y, x != y))", false),
        ] {
            assert_eq!(holds(rule, &value), Ok(expected), "{rule}");
        }
    }

    #[test]
    fn what_fails_is_an_error_and_what_is_unknown_says_so() {
        let value = json!({"a": "x"});
        assert!(matches!(holds("self.b == 1", &value), Err(Error::Evaluation(_))));
        assert!(matches!(holds("self.a < 1", &value), Err(Error::Evaluation(_))));
        assert!(matches!(holds("self.a", &value), Err(Error::Evaluation(_))));
        for odd in
            ["quantity(self.a).isGreaterThan(quantity('1'))", "self.a ==", "{'a': 1}", "self.a == 'x", "1 +"]
        {
            assert!(matches!(parse(odd), Err(Error::Unsupported(_))), "{odd}");
        }
    }
}
