//! Checks of every snippet, and of the form of the files.

use std::{fmt::Write as _, fs, path::Path, thread};

use kube_cel::cel::parser::Parser;

use super::*;
use crate::policies::{documents, is_kept_out, mutation};

/// Bytes of stack for the parser, which needs more than a test's thread has.
const PARSER_STACK: usize = 64 << 20;

/// A snippet with the names of its parameters for arguments.
fn alone(key: Key<'_>, snippet: &Snippet) -> Rendering {
    let mut rendering = Rendering::default();
    rendering.snippet(key, snippet.parameters.iter().map(|&name| name.to_owned()).collect(), 0);
    rendering
}

/// Parses each text as an API server does.
fn parse(texts: Vec<(String, String)>) {
    let all = move || {
        for (name, text) in texts {
            let parser = Parser::new().max_recursion_depth(u16::MAX).enable_optional_syntax(true);
            assert!(parser.parse(&text).is_ok(), "{name} is no CEL: {text}");
        }
    };
    thread::Builder::new().stack_size(PARSER_STACK).spawn(all).unwrap().join().unwrap();
}

/// True if `text` has the reference, and no longer one that begins so.
fn refers(text: &str, reference: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(reference).any(|(at, _)| is_end(&text[at + reference.len()..]))
}

/// The text of every Rust file of this folder but tests.
fn rust(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &rust(&path);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("cel_test.rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policies")
}

#[test]
fn every_snippet_names_snippets_that_exist_with_their_arguments() {
    for (key, snippet) in SNIPPETS.iter() {
        assert_eq!(alone(*key, snippet).unknown, Vec::<String>::new(), "in {key:?}");
    }
}

#[test]
fn every_snippet_is_cel_by_itself() {
    let texts = SNIPPETS.iter().map(|(key, snippet)| (format!("{key:?}"), alone(*key, snippet).text));
    parse(texts.collect());
}

#[test]
fn every_expression_of_the_policies_is_cel() {
    fn collect(value: &serde_json::Value, found: &mut Vec<(String, String)>) {
        let inner: Vec<_> = value.as_object().into_iter().flatten().collect();
        for (key, value) in inner {
            match value.as_str().filter(|_| ["expression", "messageExpression"].contains(&key.as_str())) {
                Some(text) => found.push((key.clone(), text.to_owned())),
                None => collect(value, found),
            }
        }
        value.as_array().into_iter().flatten().for_each(|item| collect(item, found));
    }
    let mut found = vec![("is_kept_out".to_owned(), is_kept_out("['a']"))];
    let policies = [documents("croft-system"), mutation::documents("croft-system")].concat();
    policies.iter().for_each(|policy| collect(policy, &mut found));
    assert!(found.len() > 250, "{}", found.len());
    parse(found);
}

#[test]
fn every_parameter_is_used() {
    for (key, snippet) in SNIPPETS.iter() {
        for parameter in &snippet.parameters {
            assert!(refers(&snippet.text, &format!("${parameter}")), "{key:?} doesn't use {parameter}");
        }
    }
}

#[test]
fn every_snippet_and_every_constant_is_used() {
    let rust = rust(&folder());
    let of_file = |file: &str| -> String {
        SNIPPETS.iter().filter(|(key, _)| key.0 == file).fold(String::new(), |mut text, (_, snippet)| {
            writeln!(text, "{}", snippet.text).unwrap();
            text
        })
    };
    let texts: FxHashMap<&str, String> = FILES.iter().map(|(file, _)| (*file, of_file(file))).collect();
    for (file, name) in SNIPPETS.keys() {
        // A message belongs to its rule.
        let rule = name.strip_suffix(": message").unwrap_or(name);
        let is_variant = |other: &str| other == rule || before_slash(other) == rule;
        let has_rule = rule != *name && SNIPPETS.keys().any(|(of, other)| of == file && is_variant(other));
        let is_used = has_rule
            || rust.contains(&format!("\"{name}\""))
            || refers(&texts[file], &format!("${name}"))
            || texts.values().any(|text| refers(text, &format!("${file}.{name}")));
        assert!(is_used, "nothing uses {name} of {file}.cel");
    }
    for name in CONSTANTS.keys() {
        let reference = format!("${name}");
        assert!(texts.values().any(|text| refers(text, &reference)), "no snippet uses {reference}");
    }
}

#[test]
fn names_are_unique_and_every_file_is_listed() {
    let headers: usize = FILES.iter().map(|(_, text)| text.matches("\n## ").count()).sum();
    assert_eq!(headers, SNIPPETS.len());
    let of = |folder: &Path| -> Vec<String> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let cel = paths.filter(|path| path.extension().is_some_and(|e| e == "cel"));
        cel.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let mut files = [of(&folder()), of(&folder().join("mutation"))].concat();
    files.sort();
    assert_eq!(files, FILES.map(|(name, _)| name.to_owned()));
    // A name in lower case is a parameter, a snippet or a file; one in upper case is a constant.
    for (file, snippet) in SNIPPETS.keys() {
        let mut words = [*file, *snippet].into_iter();
        assert!(words.all(|word| word.starts_with(|c: char| c.is_ascii_lowercase())), "{file} {snippet}");
    }
}

#[test]
fn lines_become_one() {
    let cases = [
        ("a ||\n    b", "a || b"),
        ("// No more than a comment.\na\n\n// Again.\n", "a"),
        ("list.all(\n    x, f(x)\n)\n    .map(x,\n    [x])", "list.all(x, f(x)).map(x, [x])"),
        ("'two\n    words' + x", "'two words' + x"),
        ("'it\\'s (\n    // no comment, and\n    .stays'", "'it\\'s ( // no comment, and .stays'"),
    ];
    for (lines, expected) in cases {
        assert_eq!(on_one_line(lines), expected);
    }
}

#[test]
fn arguments_end_at_commas_outside_brackets_and_strings() {
    assert_eq!(arguments("(a, f(b, c)) d"), Some((vec!["a", "f(b, c)"], " d")));
    assert_eq!(arguments("(['x', y], ', )', ).z"), Some((vec!["['x', y]", "', )'", ""], ".z")));
    assert_eq!(arguments(" (a)"), None);
    assert_eq!(arguments("(a"), None);
}

#[test]
fn references_that_name_nothing_stay() {
    assert_eq!(Cel("pods").text("no_such"), "$pods.no_such");
    assert_eq!(Cel("pods").text("tolerates"), "$pods.tolerates");
    let mut rendering = Rendering::default();
    let scope = Scope { file: "pods", arguments: &[("x", "1".to_owned())], depth: 0 };
    rendering.expand(scope, "$x $POOL_NAME_LABEL, '$' $no.one $selected $tolerates");
    assert_eq!(rendering.unknown, ["$pods.no", "$pods.tolerates"]);
    let start = "1 node-restriction.kubernetes.io/pool, '$' $pods.no.one object.spec.?nodeSelector";
    assert!(rendering.text.starts_with(start), "{}", rendering.text);
}
