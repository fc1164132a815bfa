//! CEL stands in `.cel` files beside the modules that use it; Rust names its snippets and composes policies of them.
//!
//! A file has a comment about itself, then snippets. Each begins with a line of `##`, its name, and its parameters:
//!
//! ```text
//! ## is_own(label)
//! // The label is that of the tenant's pool `o`.
//! o[1] != '-' && ($label == o[0] || $label == '$POOL_NAME_LABEL=' + o[2])
//!
//! ## chosen
//! variables.own.filter(o, variables.selected.exists(l, $is_own(l)))
//! ```
//!
//! | text | becomes |
//! |---|---|
//! | `$label` | the argument, if `label` is a parameter of the snippet |
//! | `$POOL_NAME_LABEL` | the value of [`constants`](super::constants), also within a string |
//! | `$is_own(l)`, `$chosen` | the snippet of the same file, as text: one that is no operand brings its own parentheses |
//! | `$own_pools.is_own(l)` | the snippet of another file |
//! | a line of `//` | nothing |
//! | the end of a line, with the blanks around it | one blank, in a string too; nothing after an opening bracket, and before a closing one or a dot |
//!
//! | name | is read by |
//! |---|---|
//! | `free/declared` | [`Cel::variable`], as one of several variables `free`: no policy has two |
//! | `placed`, `placed: message` | [`Cel::rule`]; `placed/declared` has the same message |
//!
//! An argument ends at a comma or at the closing bracket, brackets and strings in it left aside.
//!
//! The text of a policy stands in these files alone. Rust holds names of snippets, and arguments that are data: a number, or what a
//! table of Rust's holds. So a rule can be read, and parsed, without the code around it: a test does so with every snippet.
//!
//! A reference that names nothing stays as it is written, so that rendering can't fail. Outside a string that is no CEL, and the API
//! server would refuse the policy rather than hold a weaker one. Tests find it before, in every snippet.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::policies::{
    constants::CONSTANTS,
    policy::{Validation, Variable},
};

/// Each file by its name, which is that of its path.
const FILES: [(&str, &str); 18] = [
    ("choice", include_str!("mutation/choice.cel")),
    ("daemonset", include_str!("mutation/daemonset.cel")),
    ("fit", include_str!("mutation/fit.cel")),
    ("identities", include_str!("identities.cel")),
    ("in_force", include_str!("in_force.cel")),
    ("joining_nodes", include_str!("mutation/joining_nodes.cel")),
    ("keep_out", include_str!("mutation/keep_out.cel")),
    ("kept_metadata", include_str!("mutation/kept_metadata.cel")),
    ("namespaces", include_str!("namespaces.cel")),
    ("nodes", include_str!("nodes.cel")),
    ("own_pools", include_str!("own_pools.cel")),
    ("pod", include_str!("mutation/pod.cel")),
    ("pod_security", include_str!("pod_security.cel")),
    ("pod_updates", include_str!("pod_updates.cel")),
    ("pods", include_str!("pods.cel")),
    ("shared", include_str!("shared.cel")),
    ("subject", include_str!("mutation/subject.cel")),
    ("tenancy", include_str!("mutation/tenancy.cel")),
];

/// Snippets that refer to one another. No chain of references is half as long.
const MAX_DEPTH: usize = 32;

/// Snippets that several policies share: about the parameters, the request's namespace, and who makes it.
pub(super) const SHARED: Cel = Cel("shared");

/// A file of snippets, by its name.
#[derive(Clone, Copy)]
pub(super) struct Cel(pub(super) &'static str);

impl Cel {
    /// The snippet with these arguments.
    pub(super) fn with(self, name: &str, arguments: &[&str]) -> String {
        let mut rendering = Rendering::default();
        rendering.snippet((self.0, name), arguments.iter().map(|&argument| argument.to_owned()).collect(), 0);
        rendering.text
    }

    /// The snippet, which has no parameters.
    pub(super) fn text(self, name: &str) -> String {
        self.with(name, &[])
    }

    /// The snippet as the variable of its name, up to a slash.
    pub(super) fn variable(self, name: &'static str) -> Variable {
        self.variable_with(name, &[])
    }

    /// The same with these arguments.
    pub(super) fn variable_with(self, name: &'static str, arguments: &[&str]) -> Variable {
        (before_slash(name), self.with(name, arguments))
    }

    /// Variables in this order. The API server lets a variable read only those before it.
    pub(super) fn variables(self, names: &[&'static str]) -> Vec<Variable> {
        names.iter().map(|name| self.variable(name)).collect()
    }

    /// The snippet and its message.
    pub(super) fn rule(self, name: &str) -> Validation {
        self.rule_with(name, &[])
    }

    /// The same, both with these arguments.
    pub(super) fn rule_with(self, name: &str, arguments: &[&str]) -> Validation {
        (self.with(name, arguments), self.with(&format!("{}: message", before_slash(name)), arguments))
    }
}

fn before_slash(name: &str) -> &str {
    name.split_once('/').map_or(name, |(before, _)| before)
}

/// A snippet's file and name.
type Key<'k> = (&'k str, &'k str);

struct Snippet {
    parameters: Vec<&'static str>,
    text: String,
}

static SNIPPETS: LazyLock<FxHashMap<Key<'static>, Snippet>> =
    LazyLock::new(|| FILES.into_iter().flat_map(|(file, text)| snippets(file, text)).collect());

fn snippets(file: &'static str, text: &'static str) -> impl Iterator<Item = (Key<'static>, Snippet)> {
    text.split("\n## ").skip(1).map(move |section| {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        let (name, parameters) = head.split_once('(').unwrap_or((head, ""));
        let parameters = parameters.trim_end_matches(')').split(',').map(str::trim).filter(|p| !p.is_empty());
        ((file, name), Snippet { parameters: parameters.collect(), text: on_one_line(body) })
    })
}

/// The lines as one, without comments.
fn on_one_line(lines: &str) -> String {
    let mut text = String::new();
    let mut in_string = false;
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !in_string && line.starts_with("//") {
            continue;
        }
        let is_joined =
            !in_string && (text.ends_with(['(', '[', '{']) || line.starts_with(['.', ')', ']', '}']));
        if !text.is_empty() && !is_joined {
            text.push(' ');
        }
        text.push_str(line);
        let mut string = InString(in_string, false);
        line.chars().for_each(|c| string.read(c));
        in_string = string.0;
    }
    text
}

/// True within a string; and after a backslash in it.
struct InString(bool, bool);

impl InString {
    fn read(&mut self, c: char) {
        let Self(within, escaped) = *self;
        *self = Self(within != (c == '\'' && !escaped), within && !escaped && c == '\\');
    }
}

/// A snippet whose references are replaced.
#[derive(Default)]
struct Rendering {
    text: String,
    /// References that name nothing, or have other arguments than the snippet has parameters.
    unknown: Vec<String>,
}

/// Where a text stands.
#[derive(Clone, Copy)]
struct Scope<'s> {
    file: &'s str,
    arguments: &'s [(&'static str, String)],
    depth: usize,
}

impl Rendering {
    fn snippet(&mut self, key: Key<'_>, arguments: Vec<String>, depth: usize) {
        let snippet =
            SNIPPETS.get(&key).filter(|s| s.parameters.len() == arguments.len() && depth < MAX_DEPTH);
        let Some(snippet) = snippet else {
            self.unknown(&format!("${}.{}", key.0, key.1));
            return;
        };
        let arguments: Vec<_> = snippet.parameters.iter().copied().zip(arguments).collect();
        self.expand(Scope { file: key.0, arguments: &arguments, depth }, &snippet.text);
    }

    fn unknown(&mut self, reference: &str) {
        self.text.push_str(reference);
        self.unknown.push(reference.to_owned());
    }

    fn expand(&mut self, scope: Scope<'_>, text: &str) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            self.text.push_str(before);
            rest = self.reference(scope, after);
        }
        self.text.push_str(rest);
    }

    /// Replaces the reference after a dollar. Returns the text after it.
    fn reference<'t>(&mut self, scope: Scope<'_>, text: &'t str) -> &'t str {
        let (name, rest) = word(text);
        let argument = scope.arguments.iter().find(|(parameter, _)| *parameter == name);
        let value = argument.map(|(_, value)| value).or_else(|| CONSTANTS.get(name));
        if let Some(value) = value {
            self.text.push_str(value);
            return rest;
        }
        if name.is_empty() {
            // A dollar of a regular expression.
            self.text.push('$');
            return rest;
        }
        let (key, rest) = key(scope.file, name, rest);
        let has_parameters = SNIPPETS.get(&key).is_some_and(|snippet| !snippet.parameters.is_empty());
        let (arguments, rest) =
            has_parameters.then(|| arguments(rest)).flatten().unwrap_or((Vec::new(), rest));
        let arguments = arguments.into_iter().map(|argument| self.argument(scope, argument)).collect();
        self.snippet(key, arguments, scope.depth + 1);
        rest
    }

    /// An argument, read where the reference stands.
    fn argument(&mut self, scope: Scope<'_>, text: &str) -> String {
        let mut rendering = Self::default();
        rendering.expand(scope, text);
        self.unknown.append(&mut rendering.unknown);
        rendering.text
    }
}

/// The snippet of a reference: of another file if the word is a file's name, and of the same file otherwise.
fn key<'k, 't: 'k>(file: &'k str, name: &'k str, rest: &'t str) -> (Key<'k>, &'t str) {
    let other =
        rest.strip_prefix('.').map(word).filter(|(snippet, _)| SNIPPETS.contains_key(&(name, *snippet)));
    other.map_or(((file, name), rest), |(snippet, rest)| ((name, snippet), rest))
}

/// The word at the beginning of `text`, and the rest.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

/// The arguments in brackets at the beginning of `text`, and the rest. `None` if there are none.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let text = text.strip_prefix('(')?;
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut string = InString(false, false);
    for (at, c) in text.char_indices() {
        string.read(c);
        match c {
            _ if string.0 => {}
            '(' | '[' | '{' => depth += 1,
            ',' | ')' | ']' | '}' if depth == 0 => {
                found.push(text.get(start..at)?.trim());
                start = at + 1;
                if c != ',' {
                    return Some((found, text.get(start..)?));
                }
            }
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
#[path = "cel_test.rs"]
mod tests;
