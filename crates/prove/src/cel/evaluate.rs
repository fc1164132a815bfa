//! The evaluation of an expression.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    sync::Arc,
};

use kube_cel::cel::{
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
    },
    parser::Parser,
};

use crate::cel::{
    functions,
    value::{Failure, Outcome, Value, fail},
};

/// Bytes of stack for the parser, which needs more than a test's thread has.
const PARSER_STACK: usize = 64 << 20;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression(IdedExpr);

impl Expression {
    /// Parses `text`.
    ///
    /// # Panics
    /// If it is no CEL.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.to_owned();
        let parse = move || {
            let parser = Parser::new().max_recursion_depth(u16::MAX).enable_optional_syntax(true);
            Self(parser.parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
        };
        let parser = std::thread::Builder::new().stack_size(PARSER_STACK).spawn(parse);
        parser.expect("a thread starts").join().expect("it is CEL")
    }
}

/// The evaluation of one policy for one request: its variables are evaluated once, when they are read.
pub struct Evaluation<'p> {
    roots: BTreeMap<&'static str, Value>,
    variables: &'p BTreeMap<String, Expression>,
    known: RefCell<BTreeMap<&'p str, Outcome>>,
    /// Variables of comprehensions, the innermost last.
    locals: RefCell<Vec<(&'p str, Value)>>,
    /// The locals below it belong to the expression that reads a policy's variable.
    floor: Cell<usize>,
}

impl<'p> Evaluation<'p> {
    /// Begins with `roots`, such as `object`, and the policy's variables.
    #[must_use]
    pub fn new(roots: BTreeMap<&'static str, Value>, variables: &'p BTreeMap<String, Expression>) -> Self {
        Self { roots, variables, known: RefCell::default(), locals: RefCell::default(), floor: Cell::new(0) }
    }

    /// Evaluates `expression`.
    ///
    /// # Errors
    /// Where the API server has an error.
    ///
    /// # Panics
    /// If the expression has something that no policy had before.
    pub fn value(&self, expression: &'p Expression) -> Result<Value, Failure> {
        self.run(&expression.0)
    }

    /// True if `expression` evaluates to true. An error isn't, and neither is any other value.
    pub fn holds(&self, expression: &'p Expression) -> bool {
        self.value(expression) == Ok(Value::Bool(true))
    }

    pub(super) fn run(&self, expression: &'p IdedExpr) -> Outcome {
        match &expression.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehend(comprehension),
            Expr::List(list) => {
                assert!(list.optional_indices.is_empty(), "optional elements of lists aren't evaluated");
                Ok(Value::list(list.elements.iter().map(|e| self.run(e)).collect::<Result<_, _>>()?))
            }
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => match self.run(&entry.key)? {
                        Value::Text(key) => Ok((key, self.run(&entry.value)?)),
                        other => panic!("{other:?} as a key isn't evaluated"),
                    },
                    EntryExpr::StructField(field) => panic!("{field:?} in a map"),
                });
                Ok(Value::Map(Arc::new(entries.collect::<Result<_, _>>()?)))
            }
            Expr::Struct(made) => {
                let fields = made.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::StructField(field) => {
                        Ok((field.field.as_str().into(), self.run(&field.value)?))
                    }
                    EntryExpr::MapEntry(entry) => panic!("{entry:?} in {}", made.type_name),
                });
                Ok(Value::Map(Arc::new(fields.collect::<Result<_, _>>()?)))
            }
            Expr::Unspecified => panic!("an expression without a kind"),
        }
    }

    fn identifier(&self, name: &str) -> Outcome {
        let locals = self.locals.borrow();
        let own = locals.get(self.floor.get()..).unwrap_or_default();
        let local = own.iter().rev().find(|(local, _)| *local == name).map(|(_, value)| value);
        let found = local.or_else(|| self.roots.get(name)).cloned();
        Ok(found.unwrap_or_else(|| panic!("no variable is called {name}")))
    }

    fn variable(&self, name: &str) -> Outcome {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let (name, expression) =
            self.variables.get_key_value(name).unwrap_or_else(|| panic!("the policy has no variable {name}"));
        let floor = self.floor.replace(self.locals.borrow().len());
        let value = self.run(&expression.0);
        self.floor.set(floor);
        self.known.borrow_mut().insert(name, value.clone());
        value
    }

    fn select(&self, select: &'p SelectExpr) -> Outcome {
        if let Expr::Ident(name) = &select.operand.expr
            && name == "variables"
            && !select.test
        {
            return self.variable(&select.field);
        }
        let field = select.field.as_str();
        let operand = self.run(&select.operand)?;
        if select.test {
            return match operand {
                Value::Map(map) => Ok(Value::Bool(map.contains_key(field))),
                other => fail(format!("has({field}) of {other:?}")),
            };
        }
        match operand {
            Value::Map(map) => {
                map.get(field).cloned().map_or_else(|| fail(format!("no such key: {field}")), Ok)
            }
            optional @ Value::Optional(_) => functions::optional_field(&optional, field),
            other => fail(format!(".{field} of {other:?}")),
        }
    }

    fn comprehend(&self, comprehension: &'p ComprehensionExpr) -> Outcome {
        assert!(comprehension.iter_var2.is_none(), "the parser expands no macro of two variables");
        let items = functions::items(self.run(&comprehension.iter_range)?)?;
        let depth = self.locals.borrow().len();
        let accumulator = comprehension.accu_var.as_str();
        let first = self.run(&comprehension.accu_init)?;
        self.locals.borrow_mut().push((accumulator, first));
        // `exists` and `all` go on after an error: a later item may decide all the same.
        let mut last = Ok(());
        for item in items {
            if self.run(&comprehension.loop_cond) == Ok(Value::Bool(false)) {
                break;
            }
            self.locals.borrow_mut().push((&comprehension.iter_var, item));
            let step = self.run_after(&comprehension.loop_step, &last);
            let mut locals = self.locals.borrow_mut();
            locals.truncate(depth + 1);
            last = step.map(|value| locals[depth].1 = value);
        }
        let result = last.and_then(|()| self.run(&comprehension.result));
        self.locals.borrow_mut().truncate(depth);
        result
    }

    /// Runs the step of a loop, whose accumulator is `last`: after an error, only an operand that decides alone counts.
    fn run_after(&self, step: &'p IdedExpr, last: &Result<(), Failure>) -> Outcome {
        let Err(failure) = last else { return self.run(step) };
        let Expr::Call(call) = &step.expr else { return Err(failure.clone()) };
        let decides = match call.func_name.as_str() {
            operators::LOGICAL_OR => true,
            operators::LOGICAL_AND => false,
            _ => return Err(failure.clone()),
        };
        match self.run(&call.args[1]) {
            Ok(Value::Bool(value)) if value == decides => Ok(Value::Bool(value)),
            _ => Err(failure.clone()),
        }
    }

    fn call(&self, call: &'p CallExpr) -> Outcome {
        let name = call.func_name.as_str();
        match (name, &call.args[..]) {
            (operators::CONDITIONAL, [condition, yes, no]) => match self.run(condition)? {
                Value::Bool(true) => self.run(yes),
                Value::Bool(false) => self.run(no),
                other => fail(format!("{other:?} is no condition")),
            },
            (operators::LOGICAL_AND, [left, right]) => self.decide(left, right, false),
            (operators::LOGICAL_OR, [left, right]) => self.decide(left, right, true),
            (operators::NOT_STRICTLY_FALSE, [value]) => {
                Ok(Value::Bool(self.run(value) != Ok(Value::Bool(false))))
            }
            ("transformList", [index, item, filter, step]) => {
                self.transform(call, (index, item), filter, step)
            }
            ("optMap", [variable, step]) => self.map_optional(call, variable, step),
            _ => {
                let qualified = call.target.as_deref().and_then(|target| match &target.expr {
                    Expr::Ident(module) => {
                        Some(module.as_str()).filter(|m| ["optional", "jsonpatch"].contains(m))
                    }
                    _ => None,
                });
                let target = call.target.as_deref().filter(|_| qualified.is_none());
                let target = target.map(|target| self.run(target)).transpose()?;
                let arguments: Vec<Value> =
                    call.args.iter().map(|argument| self.run(argument)).collect::<Result<_, _>>()?;
                functions::call(qualified, name, target, &arguments)
            }
        }
    }

    /// `&&` and `||`: one operand with the value `decides` is enough, whatever the other is.
    fn decide(&self, left: &'p IdedExpr, right: &'p IdedExpr, decides: bool) -> Outcome {
        let left = self.run(left);
        if left == Ok(Value::Bool(decides)) {
            return left;
        }
        match (left, self.run(right)) {
            (_, Ok(Value::Bool(right))) if right == decides => Ok(Value::Bool(decides)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(right))) => Ok(Value::Bool(right)),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
            (left, right) => fail(format!("{left:?} and {right:?} are no conditions")),
        }
    }

    fn transform(
        &self,
        call: &'p CallExpr,
        (index, item): (&'p IdedExpr, &'p IdedExpr),
        filter: &'p IdedExpr,
        step: &'p IdedExpr,
    ) -> Outcome {
        let (index, item) = (local_name(index), local_name(item));
        let list = self.run(call.target.as_deref().expect("transformList is a method"))?;
        let mut made = Vec::new();
        for (at, value) in functions::items(list)?.into_iter().enumerate() {
            let depth = self.locals.borrow().len();
            let at = Value::Int(i64::try_from(at).expect("lists are short"));
            self.locals.borrow_mut().extend([(index, at), (item, value)]);
            let value = match self.run(filter) {
                Ok(Value::Bool(true)) => self.run(step).map(Some),
                Ok(_) => Ok(None),
                Err(failure) => Err(failure),
            };
            self.locals.borrow_mut().truncate(depth);
            made.extend(value?);
        }
        Ok(Value::list(made))
    }

    fn map_optional(&self, call: &'p CallExpr, variable: &'p IdedExpr, step: &'p IdedExpr) -> Outcome {
        match self.run(call.target.as_deref().expect("optMap is a method"))? {
            Value::Optional(Some(value)) => {
                let depth = self.locals.borrow().len();
                self.locals.borrow_mut().push((local_name(variable), (*value).clone()));
                let value = self.run(step);
                self.locals.borrow_mut().truncate(depth);
                Ok(Value::optional(Some(value?)))
            }
            none => Ok(none),
        }
    }
}

fn local_name(expression: &IdedExpr) -> &str {
    match &expression.expr {
        Expr::Ident(name) => name,
        other => panic!("{other:?} is no name"),
    }
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::String(value) => Value::text(value.inner()),
        LiteralValue::Null => Value::Null,
        other => panic!("{other:?} isn't evaluated"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Result<serde_json::Value, Failure> {
        let object = json!({"name": "o", "labels": {"a": "1", "b/c": "2"}, "list": [{"k": "x"}, {"v": "y"}], "empty": []});
        let roots = BTreeMap::from([("object", Value::from(&object)), ("authorizer", Value::Authorizer)]);
        let variables = BTreeMap::from([
            ("one".to_owned(), Expression::parse("object.labels.a")),
            ("broken".to_owned(), Expression::parse("object.absent")),
            ("ks".to_owned(), Expression::parse("object.list.map(t, t.?k.orValue('-'))")),
        ]);
        let expression = Expression::parse(text);
        Evaluation::new(roots, &variables).value(&expression).map(|value| (&value).into())
    }

    #[test]
    fn expressions_have_the_values_of_the_specification() {
        for (text, expected) in [
            ("object.?labels[?'b/c'].orValue('')", json!("2")),
            ("object.labels[?'absent'].orValue('none')", json!("none")),
            ("object.?absent.?more[?'x'].hasValue()", json!(false)),
            ("object.list.exists(t, t.k == 'x')", json!(true)),
            ("object.list.all(t, t.?k.orValue('') != '' || t.v == 'y')", json!(true)),
            ("object.list.exists(t, t.v == 'y')", json!(true)),
            ("object.absent == 1 || true", json!(true)),
            ("false && object.absent == 1", json!(false)),
            ("size(object.empty) == 0 ? 'a' + 'b' : object.absent", json!("ab")),
            ("'a,b,'.split(',')", json!(["a", "b", ""])),
            ("''.split(',')", json!([""])),
            ("['b', 'a', 'b'].distinct().sort().join(';')", json!("a;b")),
            ("[[1], [2, 3]].flatten()", json!([1, 2, 3])),
            ("['a', 'b'].indexOf('b') + [1].indexOf(2)", json!(0)),
            ("object.labels.map(k, k + '=' + object.labels[k])", json!(["a=1", "b/c=2"])),
            ("'b/c' in object.labels && !('x' in ['y'])", json!(true)),
            ("object.labels[?'a'] == optional.of('1')", json!(true)),
            (
                "[5, 6].transformList(n, v, v > 5, string(n) + jsonpatch.escapeKey('a/b~'))",
                json!(["1a~1b~0"]),
            ),
            (
                "JSONPatch{op: 'add', path: '/x', value: {'k': dyn('v')}}",
                json!({"op": "add", "path": "/x", "value": {"k": "v"}}),
            ),
            ("object.?name.optMap(v, v + '!').orValue('')", json!("o!")),
            ("['x'].filter(one, variables.one == '1' && one == 'x')", json!(["x"])),
            ("variables.ks", json!(["x", "-"])),
            ("authorizer.group('g').resource('r').check('v').allowed()", json!(false)),
            ("has(object.name) && !has(object.absent)", json!(true)),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_stay_errors_where_no_operand_decides() {
        for text in [
            "object.absent",
            "object.absent == 1 || false",
            "true && variables.broken == ''",
            "object.list.exists(t, t.k == 'z')",
            "object.list.all(t, t.k == 'x')",
            "object.empty[0]",
        ] {
            assert!(value(text).is_err(), "{text}: {:?}", value(text));
        }
    }
}
