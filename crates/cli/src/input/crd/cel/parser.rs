//! From a rule's text to an expression.

use serde_json::Value;

use super::Error;

#[derive(Clone, Debug, PartialEq)]
pub(in crate::input::crd) enum Expr {
    Literal(Value),
    List(Vec<Expr>),
    Name(String),
    Field(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    Has(Box<Expr>, String),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// A function, with the value before the dot where it is called as a method.
    Call(String, Option<Box<Expr>>, Vec<Expr>),
    /// all, exists, exists_one, filter or map over a value, with a variable's name.
    Macro(&'static str, Box<Expr>, String, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::input::crd) enum Binary {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Operators by how tightly they bind, the loosest first.
const LEVELS: [&[(&str, Binary)]; 5] = [
    &[("||", Binary::Or)],
    &[("&&", Binary::And)],
    &[
        ("==", Binary::Equal),
        ("!=", Binary::NotEqual),
        ("<=", Binary::LessOrEqual),
        (">=", Binary::GreaterOrEqual),
        ("<", Binary::Less),
        (">", Binary::Greater),
        ("in", Binary::In),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
];

const FUNCTIONS: &[&str] =
    &["size", "matches", "startsWith", "endsWith", "contains", "lowerAscii", "int", "string", "type"];
const MACROS: &[&str] = &["all", "exists", "exists_one", "filter", "map"];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Whole(i64),
    Real(f64),
    Sign(&'static str),
}

const SIGNS: &[&str] = &[
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]",
];

fn unsupported<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Unsupported(what.into()))
}

fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let word = rest.get(..end).unwrap_or_default();
            if matches!(word, "r" | "b" | "rb") && rest.get(end..).is_some_and(|r| r.starts_with(['\'', '"']))
            {
                return unsupported(format!("{word}-string"));
            }
            tokens.push(Token::Word(word.to_owned()));
            end
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = rest.get(..end).unwrap_or_default();
            tokens.push(match (number.parse::<i64>(), number.parse::<f64>()) {
                (Ok(n), _) => Token::Whole(n),
                (_, Ok(n)) => Token::Real(n),
                _ => return unsupported(format!("number {number}")),
            });
            end
        } else if matches!(first, '\'' | '"') {
            let (text, end) = quoted(rest, first)?;
            tokens.push(Token::Text(text));
            end
        } else {
            match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    tokens.push(Token::Sign(sign));
                    sign.len()
                }
                None => return unsupported(format!("character {first:?}")),
            }
        };
        rest = rest.get(taken..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

fn quoted(rest: &str, quote: char) -> Result<(String, usize), Error> {
    let mut text = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            c if c == quote => return Ok((text, at + c.len_utf8())),
            '\\' => match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c @ ('\\' | '\'' | '"' | '`' | '?'))) => text.push(c),
                other => return unsupported(format!("escape {other:?}")),
            },
            c => text.push(c),
        }
    }
    unsupported("a string without an end")
}

/// Reads a rule.
pub(in crate::input::crd) fn parse(rule: &str) -> Result<Expr, Error> {
    let tokens = tokens(rule)?;
    let mut parser = Parser { tokens: tokens.into_iter().peekable() };
    let expr = parser.expr()?;
    match parser.tokens.next() {
        None => Ok(expr),
        Some(token) => unsupported(format!("{token:?} at the end")),
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    fn takes(&mut self, sign: &str) -> bool {
        self.tokens.next_if(|t| matches!(t, Token::Sign(s) if *s == sign)).is_some()
    }

    fn expects(&mut self, sign: &str) -> Result<(), Error> {
        if self.takes(sign) {
            Ok(())
        } else {
            unsupported(format!("expected {sign}, found {:?}", self.tokens.peek()))
        }
    }

    fn word(&mut self) -> Result<String, Error> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => unsupported(format!("expected a name, found {other:?}")),
        }
    }

    fn expr(&mut self) -> Result<Expr, Error> {
        let condition = self.level(&LEVELS)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let yes = self.expr()?;
        self.expects(":")?;
        let no = self.expr()?;
        Ok(Expr::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
    }

    fn level(&mut self, levels: &[&[(&str, Binary)]]) -> Result<Expr, Error> {
        let Some((operators, tighter)) = levels.split_first() else { return self.unary() };
        let mut left = self.level(tighter)?;
        loop {
            let next = self.tokens.peek().and_then(|token| {
                operators.iter().find(|(sign, _)| match token {
                    Token::Sign(s) => s == sign,
                    Token::Word(w) => w == sign,
                    _ => false,
                })
            });
            let Some((_, operator)) = next else { return Ok(left) };
            let operator = *operator;
            self.tokens.next();
            let right = self.level(tighter)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Expr, Error> {
        if self.takes("!") {
            return Ok(Expr::Not(Box::new(self.unary()?)));
        }
        if self.takes("-") {
            return Ok(Expr::Negative(Box::new(self.unary()?)));
        }
        let mut value = self.primary()?;
        loop {
            if self.takes(".") {
                let name = self.word()?;
                value = if self.takes("(") {
                    self.method(value, name)?
                } else {
                    Expr::Field(Box::new(value), name)
                };
            } else if self.takes("[") {
                let index = self.expr()?;
                self.expects("]")?;
                value = Expr::Index(Box::new(value), Box::new(index));
            } else {
                return Ok(value);
            }
        }
    }

    fn method(&mut self, of: Expr, name: String) -> Result<Expr, Error> {
        if let Some(kind) = MACROS.iter().find(|m| **m == name) {
            let variable = self.word()?;
            self.expects(",")?;
            let body = self.expr()?;
            self.expects(")")?;
            return Ok(Expr::Macro(kind, Box::new(of), variable, Box::new(body)));
        }
        let arguments = self.arguments(")")?;
        known(&name)?;
        Ok(Expr::Call(name, Some(Box::new(of)), arguments))
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Expr>, Error> {
        let mut arguments = Vec::new();
        if self.takes(end) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expr()?);
            if self.takes(end) {
                return Ok(arguments);
            }
            self.expects(",")?;
        }
    }

    fn primary(&mut self) -> Result<Expr, Error> {
        match self.tokens.next() {
            Some(Token::Whole(n)) => Ok(Expr::Literal(Value::from(n))),
            Some(Token::Real(n)) => Ok(Expr::Literal(Value::from(n))),
            Some(Token::Text(text)) => Ok(Expr::Literal(Value::String(text))),
            Some(Token::Sign("(")) => {
                let inner = self.expr()?;
                self.expects(")")?;
                Ok(inner)
            }
            Some(Token::Sign("[")) => Ok(Expr::List(self.arguments("]")?)),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Ok(Expr::Literal(Value::Bool(true))),
                "false" => Ok(Expr::Literal(Value::Bool(false))),
                "null" => Ok(Expr::Literal(Value::Null)),
                _ if !self.takes("(") => Ok(Expr::Name(word)),
                "has" => match self.arguments(")")?.pop() {
                    Some(Expr::Field(of, name)) => Ok(Expr::Has(of, name)),
                    other => unsupported(format!("has({other:?})")),
                },
                _ => {
                    let arguments = self.arguments(")")?;
                    known(&word)?;
                    Ok(Expr::Call(word, None, arguments))
                }
            },
            other => unsupported(format!("{other:?}")),
        }
    }
}

fn known(name: &str) -> Result<(), Error> {
    if FUNCTIONS.contains(&name) { Ok(()) } else { unsupported(format!("function {name}")) }
}
