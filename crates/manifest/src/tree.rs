//! YAML and JSON as a tree with line numbers, with scalars resolved as `kubectl` does.
//!
//! `kubectl` turns YAML into JSON with a YAML 1.1 resolver before anything is typed, so `no` is a boolean,
//! `0644` is 420 and `1e3` is 1000 in a manifest. A YAML 1.2 reader gives other values for the same file, so the
//! resolver below follows `sigs.k8s.io/yaml` (go-yaml v2, `resolve.go`).

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A value and the line that it begins on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree {
    /// Line in the file, from 1.
    pub(crate) line: u32,
    /// The value.
    pub(crate) node: Node,
}

/// A value of the JSON data model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Integer(i64),
    /// Above `i64::MAX`.
    Large(u64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// One key of a map, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Line of the key.
    pub(crate) line: u32,
    pub(crate) key: String,
    pub(crate) value: Tree,
}

/// A step of the path to a value.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Why a file isn't YAML, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) message: String,
}

/// Values that aliases may add to a document: far above any manifest, far below what exhausts memory.
const MAX_ALIASED_VALUES: usize = 1_000_000;

impl Tree {
    /// The value under `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Tree> {
        match &self.node {
            Node::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }

    /// The text under `key`.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key).map(|t| &t.node) {
            Some(Node::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The value under a key or an index.
    pub(crate) fn inside_mut(&mut self, step: &Step) -> Option<&mut Tree> {
        match (&mut self.node, step) {
            (Node::Map(entries), Step::Key(key)) => {
                entries.iter_mut().find(|e| e.key == *key).map(|e| &mut e.value)
            }
            (Node::List(items), Step::Index(index)) => items.get_mut(*index),
            _ => None,
        }
    }

    /// Puts a value under an index that there is, or a key. False if this has no such place.
    pub(crate) fn put(&mut self, step: &Step, node: Node) -> bool {
        if let Some(value) = self.inside_mut(step) {
            value.node = node;
            return true;
        }
        let line = self.line;
        let (Node::Map(entries), Step::Key(key)) = (&mut self.node, step) else { return false };
        entries.push(Entry { line, key: key.clone(), value: Tree { line, node } });
        true
    }

    /// Removes a key. False if there is none.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        let Node::Map(entries) = &mut self.node else { return false };
        let before = entries.len();
        entries.retain(|e| e.key != key);
        entries.len() < before
    }

    /// The line of the deepest existing value on `path`, which is written as in messages: `spec.containers[0].name`.
    pub(crate) fn line_of(&self, path: &str) -> u32 {
        let mut at = self;
        let mut line = self.line;
        let mut rest = path;
        while !rest.is_empty() {
            let next = match &at.node {
                Node::List(items) => {
                    let Some((index, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) else {
                        break;
                    };
                    rest = after.strip_prefix('.').unwrap_or(after);
                    index.parse::<usize>().ok().and_then(|i| items.get(i)).map(|t| (t.line, t))
                }
                Node::Map(entries) => {
                    // Label keys contain dots, so the longest key that is a prefix of the path is taken.
                    let entry = entries
                        .iter()
                        .filter(|e| {
                            rest.strip_prefix(e.key.as_str())
                                .is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
                        })
                        .max_by_key(|e| e.key.len());
                    let Some(entry) = entry else { break };
                    let after = rest.get(entry.key.len()..).unwrap_or_default();
                    rest = after.strip_prefix('.').unwrap_or(after);
                    Some((entry.line, &entry.value))
                }
                _ => None,
            };
            let Some((next_line, next)) = next else { break };
            line = next_line;
            at = next;
        }
        line
    }

    /// Type and value for an error message.
    pub(crate) fn describe(&self) -> String {
        match &self.node {
            Node::Null => "nothing".to_owned(),
            Node::Bool(v) => format!("the boolean {v}"),
            Node::Integer(v) => format!("the number {v}"),
            Node::Large(v) => format!("the number {v}"),
            Node::Float(v) => format!("the number {v}"),
            Node::Text(v) => format!("the string {v:?}"),
            Node::List(_) => "a list".to_owned(),
            Node::Map(_) => "an object".to_owned(),
        }
    }

    /// The value as JSON.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.node {
            Node::Null => Value::Null,
            Node::Bool(v) => Value::Bool(*v),
            Node::Integer(v) => Value::from(*v),
            Node::Large(v) => Value::from(*v),
            Node::Float(v) => Value::from(*v),
            Node::Text(v) => Value::String(v.clone()),
            Node::List(items) => Value::Array(items.iter().map(Tree::to_json).collect()),
            Node::Map(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_json())).collect())
            }
        }
    }

    fn size(&self) -> usize {
        match &self.node {
            Node::List(items) => 1 + items.iter().map(Tree::size).sum::<usize>(),
            Node::Map(entries) => 1 + entries.iter().map(|e| e.value.size()).sum::<usize>(),
            _ => 1,
        }
    }
}

/// Reads every document of `text` except empty ones. Of a duplicate key the last value is used, as `kubectl` does, and a
/// warning is added to `odd`.
pub(crate) fn read(text: &str, odd: &mut Vec<SyntaxError>) -> Result<Vec<Tree>, SyntaxError> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let mut reader = Reader {
        text,
        events: Parser::new_from_str_with_options(text, options),
        anchors: FxHashMap::default(),
        aliased: 0,
        odd,
    };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart(..) => reader.anchors.clear(),
            event => {
                let tree = reader.value(event, span)?;
                if tree.node != Node::Null {
                    documents.push(tree);
                }
            }
        }
    }
}

struct Reader<'t, 'o> {
    text: &'t str,
    odd: &'o mut Vec<SyntaxError>,
    events: Parser<'t, granit_parser::StrInput<'t>>,
    anchors: FxHashMap<usize, (Tree, usize)>,
    aliased: usize,
}

impl<'t> Reader<'t, '_> {
    fn next(&mut self) -> Result<(Event<'t>, Span), SyntaxError> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn syntax(&self, error: &ScanError) -> SyntaxError {
        let line = line_number(error.marker().line());
        self.hinted(SyntaxError { line, message: format!("not valid YAML: {}", error.info()) })
    }

    /// Adds a hint if the line looks like a template or is indented with a tab.
    fn hinted(&self, mut error: SyntaxError) -> SyntaxError {
        let source = self.text.lines().nth(error.line.saturating_sub(1) as usize).unwrap_or_default();
        if source.contains("{{") {
            error
                .message
                .push_str("; this looks like a template, render it first (helm template, kustomize build)");
        } else if source.trim_start_matches(' ').starts_with('\t') {
            error.message.push_str("; the line is indented with a tab, YAML wants spaces");
        }
        error
    }

    fn value(&mut self, event: Event<'t>, span: Span) -> Result<Tree, SyntaxError> {
        let line = line_number(span.start.line());
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar(text, style, tag.as_deref(), line)?, anchor),
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::SequenceEnd) {
                        break;
                    }
                    items.push(self.value(event, span)?);
                }
                (Node::List(items), anchor)
            }
            Event::MappingStart(_, anchor, _) => (self.map()?, anchor),
            Event::Alias(id) => {
                let (tree, size) = self.anchors.get(&id).ok_or_else(|| SyntaxError {
                    line,
                    message: "not valid YAML: an alias inside the value that it stands for".to_owned(),
                })?;
                self.aliased += size;
                if self.aliased > MAX_ALIASED_VALUES {
                    return Err(SyntaxError {
                        line,
                        message: "aliases multiply this document beyond any use".to_owned(),
                    });
                }
                return Ok(tree.clone());
            }
            other => {
                return Err(SyntaxError { line, message: format!("not valid YAML: unexpected {other:?}") });
            }
        };
        let tree = Tree { line, node };
        if anchor != 0 {
            let size = tree.size();
            self.anchors.insert(anchor, (tree.clone(), size));
        }
        Ok(tree)
    }

    fn map(&mut self) -> Result<Node, SyntaxError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines: FxHashMap<String, u32> = FxHashMap::default();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let line = line_number(span.start.line());
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, _) if text == "<<");
            let key = self.value(event, span)?;
            let (event, span) = self.next()?;
            let value = self.value(event, span)?;
            if is_merge {
                merge(value, &mut merged)?;
                continue;
            }
            let key = key_text(&key).map_err(|error| self.hinted(error))?;
            if let Some(first) = lines.insert(key.clone(), line) {
                let message =
                    format!("the key {key:?} is there twice, first on line {first}; the last one counts");
                self.odd.push(SyntaxError { line, message });
                entries.retain(|entry| entry.key != key);
            }
            entries.push(Entry { line, key, value });
        }
        for entry in merged {
            if !lines.contains_key(&entry.key) {
                lines.insert(entry.key.clone(), entry.line);
                entries.push(entry);
            }
        }
        Ok(Node::Map(entries))
    }
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX).max(1)
}

fn merge(value: Tree, into: &mut Vec<Entry>) -> Result<(), SyntaxError> {
    let line = value.line;
    match value.node {
        Node::Map(entries) => into.extend(entries),
        Node::List(items) if items.iter().all(|t| matches!(t.node, Node::Map(_))) => {
            for item in items {
                merge(item, into)?;
            }
        }
        _ => {
            return Err(SyntaxError {
                line,
                message: "the merge key << wants an object or a list of objects".to_owned(),
            });
        }
    }
    Ok(())
}

fn key_text(key: &Tree) -> Result<String, SyntaxError> {
    match &key.node {
        Node::Text(text) => Ok(text.clone()),
        Node::Bool(v) => Ok(v.to_string()),
        Node::Integer(v) => Ok(v.to_string()),
        Node::Large(v) => Ok(v.to_string()),
        Node::Float(v) => Ok(v.to_string()),
        _ => Err(SyntaxError {
            line: key.line,
            message: format!("a key must be a string, found {}", key.describe()),
        }),
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>, line: u32) -> Result<Node, SyntaxError> {
    let node = match tag.and_then(Tag::core_suffix) {
        Some("str") => return Ok(Node::Text(text.into_owned())),
        Some(_) => resolve(&text),
        None if style == ScalarStyle::Plain => resolve(&text),
        None => None,
    };
    match node {
        Some(Node::Float(v)) if !v.is_finite() => Err(SyntaxError {
            line,
            message: format!("{text} can't be written as JSON; quote it if a string is meant"),
        }),
        Some(node) => Ok(node),
        None => Ok(Node::Text(text.into_owned())),
    }
}

/// The value of a plain scalar; `None` for a string.
fn resolve(text: &str) -> Option<Node> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Node::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Some(Node::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Some(Node::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return Some(Node::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Node::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Node::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    integer(&plain).or_else(|| float(&plain))
}

/// Go's `strconv.ParseInt(text, 0, 64)`: a prefix, or a leading zero for octal, names the base.
fn integer(text: &str) -> Option<Node> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.get(1..)?)
    } else {
        (10, lower.as_str())
    };
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Node::Integer);
    }
    Some(i64::try_from(magnitude).map_or(Node::Large(magnitude), Node::Integer))
}

/// An integral float is an integer: `replicas: 3.0` is 3.
fn float(text: &str) -> Option<Node> {
    let shape_is_right = text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    if !shape_is_right {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    // Above 2^53 a float no longer stands for a single integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be an integer of at most 53 bits")]
        return Some(Node::Integer(value as i64));
    }
    Some(Node::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Tree {
        read(text, &mut Vec::new()).unwrap().pop().unwrap()
    }

    /// Expected values are those of kubectl 1.36
    /// (`kubectl label --local -f FILE -o json a=b`).
    #[test]
    fn plain_scalars_resolve_as_in_kubectl() {
        let file = "a: y\nb: yes\nc: 0644\nd: 08\ne: 1e3\nf: 1.50\ng: 0o14\nh: 1_000\ni: 2001-01-01\nj: ~\nk: 0x1F\n\
                    l: .5\nm: 1:30\nn: +5\no: 123456789012345678901234567890\nq: \"1\"\nr: On\ns: 1e+3\n1: a\ntrue: b\n\
                    1.5: c\nt: 1.\nu: 1.5e9\nv: 1.5e+9\n";
        let kubectl = serde_json::json!({
            "1": "a", "1.5": "c", "a": true, "b": true, "c": 420, "d": 8, "e": 1000, "f": 1.5, "false": 5, "g": 12,
            "h": 1000, "i": "2001-01-01", "j": null, "k": 31, "l": 0.5, "m": "1:30", "o": 1.234_567_890_123_456_8e29,
            "q": "1", "r": true, "s": 1000, "t": 1, "true": "b", "u": 1_500_000_000, "v": 1_500_000_000
        });
        assert_eq!(one(file).to_json(), kubectl);
    }

    #[test]
    fn anchors_end_with_their_document_and_merge_keys_yield_to_own_keys() {
        let file = "---\nbase: &b {x: 1, z: 2}\nuse:\n  <<: *b\n  z: 3\n---\n---\n# nothing\n---\n[a, *b]\n";
        let error = read(file, &mut Vec::new()).unwrap_err();
        assert_eq!(error.line, 10, "an anchor ends with its document: {error:?}");
        let documents = read(file.trim_end_matches("[a, *b]\n"), &mut Vec::new()).unwrap();
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0].to_json()["use"], serde_json::json!({"x": 1, "z": 3}));
    }

    #[test]
    fn paths_are_found_with_their_line() {
        let tree = one(
            "\n# comment\nspec:\n  containers:\n  - name: a\n    ports:\n    - containerPort: 80\n  labels:\n    a.b/c: d\n",
        );
        assert_eq!(tree.line_of("spec.containers[0].ports[0].containerPort"), 7);
        assert_eq!(tree.line_of("spec.containers[0].image"), 5, "a missing field has its parent's line");
        assert_eq!(tree.line_of("spec.labels.a.b/c"), 9);
    }

    #[test]
    fn invalid_yaml_is_refused_with_its_line() {
        for (text, line, part) in [
            ("a: 1\nb: [1, 2\n", 2, "unclosed bracket"),
            ("a:\n\tb: 1\n", 2, "tab"),
            ("a: {{ .Values.x }}\n", 1, "template"),
            ("a: *missing\n", 1, "not valid YAML"),
            ("a: .inf\n", 1, "JSON"),
            ("? [a]\n: b\n", 1, "a key must be a string"),
        ] {
            let error = read(text, &mut Vec::new()).unwrap_err();
            assert!(error.message.contains(part), "{text:?}: {error:?}");
            assert_eq!(error.line, line, "{text:?}: {error:?}");
        }
    }

    #[test]
    fn duplicate_key_uses_the_last_value_and_warns() {
        let mut odd = Vec::new();
        let tree = read("a: 1\nb: {c: 1}\na: 2\n", &mut odd).unwrap().pop().unwrap();
        assert_eq!(tree.to_json(), serde_json::json!({"a": 2, "b": {"c": 1}}));
        assert_eq!(
            odd,
            [SyntaxError {
                line: 3,
                message: "the key \"a\" is there twice, first on line 1; the last one counts".to_owned()
            }]
        );
    }

    #[test]
    fn exponential_aliases_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(read(&text, &mut Vec::new()).unwrap_err().message.contains("aliases"));
    }
}
