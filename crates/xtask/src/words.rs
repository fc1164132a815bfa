//! Checks that the project uses the field's words: `words.yaml` lists those it doesn't use, with their scope.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::tokens::{Kind, tokens};

/// The list, relative to the root of the checkout.
const LIST: &str = "crates/xtask/words.yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    checked: Vec<PathBuf>,
    openings: Vec<String>,
    words: Vec<Word>,
    except: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    word: String,
    r#use: String,
    r#in: Vec<Scope>,
}

/// A line that may keep a word.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    path: PathBuf,
    contains: String,
    #[expect(dead_code, reason = "read by people")]
    reason: String,
}

/// Where a word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    Identifier,
    Comment,
    Output,
}

/// A part of a file with one scope, and the line that it starts on.
struct Part<'a> {
    scope: Scope,
    line: usize,
    text: &'a str,
}

/// Fails if a checked file uses a word of the list, naming file, line, word and replacement.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("failed to read {LIST}"))?;
    let list: List = serde_saphyr::from_str(&text).with_context(|| format!("failed to parse {LIST}"))?;
    let mut files = Vec::new();
    for path in &list.checked {
        collect(&root.join(path), &mut files)?;
    }
    files.sort();
    let mut found = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path);
        found.extend(findings(name, &text, &list));
    }
    if found.is_empty() {
        println!("{} files use the words of the glossary", files.len());
        return Ok(());
    }
    bail!("{} words of {LIST} are used:\n{}", found.len(), found.join("\n"))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("failed to list {}", path.display()))? {
        let path = entry?.path();
        let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() || ["rs", "cel", "md", "yaml", "mk", "toml"].contains(&kind) {
            collect(&path, files)?;
        }
    }
    Ok(())
}

fn findings(path: &Path, text: &str, list: &List) -> Vec<String> {
    let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let parts = if kind == "rs" { parts(text) } else { vec![Part { scope: Scope::Comment, line: 1, text }] };
    // A line of Markdown or YAML that begins so may be a heading or a value.
    let opens = !["md", "yaml"].contains(&kind);
    let mut found = Vec::new();
    for part in parts {
        for (offset, line) in part.text.lines().enumerate() {
            let excepted = list.except.iter().any(|e| e.path == path && line.contains(&e.contains));
            if let Some(word) = opening(line, &list.openings)
                && opens
                && part.scope == Scope::Comment
                && !excepted
            {
                let place = format!("{}:{}", path.display(), part.line + offset);
                found.push(format!("{place}: a comment opens with {word:?} (begin with the subject)"));
            }
            for word in list.words.iter().filter(|w| w.r#in.contains(&part.scope) && !excepted) {
                if holds(line, &word.word, part.scope) {
                    found.push(format!(
                        "{}:{}: {:?} (write {})",
                        path.display(),
                        part.line + offset,
                        word.word,
                        word.r#use
                    ));
                }
            }
        }
    }
    found
}

/// The word of `openings` that a comment's line begins with.
fn opening<'w>(line: &str, openings: &'w [String]) -> Option<&'w String> {
    let line = line.trim_start();
    let text = line.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
    let text = text.or_else(|| line.strip_prefix('#'))?.trim_start();
    let first = text.split(|c: char| !c.is_alphanumeric()).next()?;
    openings.iter().find(|word| *word == first)
}

/// The identifiers, comments and string literals of a Rust file.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut at, mut line) = (Vec::new(), 0, 1);
    for token in tokens(text) {
        line += text.get(at..token.start).unwrap_or_default().matches('\n').count();
        let scope = match token.kind {
            Kind::Comment => Some(Scope::Comment),
            Kind::Identifier => Some(Scope::Identifier),
            Kind::Text => Some(Scope::Output),
            Kind::Other => None,
        };
        parts.extend(scope.map(|scope| Part { scope, line, text: token.text }));
        at = token.start;
    }
    parts
}

/// True if `line` holds `word` as a whole word; in an identifier a segment of snake_case counts as one.
fn holds(line: &str, word: &str, scope: Scope) -> bool {
    let joins = |c: char| c.is_alphanumeric() || (c == '_' && scope != Scope::Identifier);
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(scope: &str) -> List {
        let text = format!(
            "checked: []\nopenings: [What]\nwords: [{{word: mate, use: target, in: [{scope}]}}]\nexcept: []\n"
        );
        serde_saphyr::from_str(&text).unwrap()
    }

    #[test]
    fn a_word_counts_only_in_its_scope() {
        let text = "// a mate\nfn mate() -> &'static str { \"mate\" }\n";
        let lines = |scope: &str| findings(Path::new("a.rs"), text, &list(scope));
        assert_eq!(lines("comment"), ["a.rs:1: \"mate\" (write target)"]);
        assert_eq!(lines("identifier"), ["a.rs:2: \"mate\" (write target)"]);
        assert_eq!(lines("output"), ["a.rs:2: \"mate\" (write target)"]);
    }

    #[test]
    fn only_whole_words_and_segments_of_identifiers_count() {
        let text = "fn is_mate() {} fn estimate() {} // climate, mate_of\n";
        assert_eq!(findings(Path::new("a.rs"), text, &list("identifier")).len(), 1);
        assert_eq!(findings(Path::new("a.rs"), text, &list("comment")).len(), 0);
    }

    #[test]
    fn a_comment_must_not_open_with_a_pronoun() {
        let found = |name: &str, text: &str| findings(Path::new(name), text, &list("comment")).len();
        assert_eq!(found("a.rs", "/// What it is.\nfn f() {} // Says what it is. Whatever.\n"), 1);
        assert_eq!(found("a.mk", "# What it is.\nall: ## What is made\n"), 1);
        assert_eq!(found("a.md", "# What it is\n"), 0);
    }

    #[test]
    fn markdown_is_checked_as_a_comment() {
        assert_eq!(
            findings(Path::new("a.md"), "one\na mate\n", &list("comment")),
            ["a.md:2: \"mate\" (write target)"]
        );
    }
}
