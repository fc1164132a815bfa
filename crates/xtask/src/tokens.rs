//! Rust source as tokens, as far as the checks need them: comments, texts and identifiers told apart.

use std::sync::LazyLock;

use regex_lite::Regex;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Comment,
    /// A string literal of any kind; a character or lifetime is `Other`.
    Text,
    Identifier,
    /// A character literal, a lifetime, a number, or one character of punctuation.
    Other,
}

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
}

/// One group per kind. A raw string has at most two hashes here, and block comments don't nest.
#[expect(clippy::expect_used, reason = "a constant expression, compiled in every test")]
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"(//[^\n]*|/\*(?s:.*?)\*/)"#,
        r###"|((?s:[bc]?r##".*?"##|[bc]?r#".*?"#|[bc]?r".*?"|[bc]?"(?:[^"\\]|\\.)*"))"###,
        r"|('(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))'|'[A-Za-z_][A-Za-z0-9_]*|[0-9][A-Za-z0-9_.]*)",
        r"|((?:r#)?[A-Za-z_][A-Za-z0-9_]*)",
        r"|([^\s])",
    ))
    .expect("the expression of tokens is valid")
});

/// The tokens of `text`, whitespace left out.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    TOKEN.captures_iter(text).filter_map(|found| {
        let whole = found.get(0)?;
        let kind = if found.get(1).is_some() {
            Kind::Comment
        } else if found.get(2).is_some() {
            Kind::Text
        } else if found.get(4).is_some() {
            Kind::Identifier
        } else {
            Kind::Other
        };
        Some(Token { kind, text: whole.as_str() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str, kind: Kind) -> Vec<&str> {
        tokens(text).filter(|token| token.kind == kind).map(|token| token.text).collect()
    }

    #[test]
    fn comments_texts_and_identifiers_are_told_apart() {
        let text = r##"let a = "b // c"; // d "e"
            /* f */ g('h', '\'', '"', b"i", r#"j "k" l"#, 'm: loop {});"##;
        assert_eq!(kinds(text, Kind::Comment), ["// d \"e\"", "/* f */"]);
        assert_eq!(kinds(text, Kind::Text), ["\"b // c\"", "b\"i\"", "r#\"j \"k\" l\"#"]);
        assert_eq!(kinds(text, Kind::Identifier), ["let", "a", "g", "loop"]);
    }
}
