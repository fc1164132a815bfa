//! Text that others wrote, with its control characters as text.
//!
//! Names, notes, messages and annotations are what others wrote: a tenant's people too. Control characters in them are shown as
//! text, so that no tenant decides what a terminal does. Only Croft's own styles pass. A line break is the one character that a
//! stream can't tell from Croft's own: cells of tables and free texts take [`one_line`].

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// The sequences that a terminal gets of the styles of [`crate::table`]: the only control characters that a command writes.
const STYLES: [&str; 7] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[36m"];

/// True for a character that changes what a terminal shows of others: controls, and those that reorder or hide text.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A character as text, as in a string of JSON.
fn escaped(character: char) -> String {
    match character {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        _ => format!("\\u{:04x}", u32::from(character)),
    }
}

/// A text that others wrote, on one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|one| if is_control(one) { escaped(one) } else { one.to_string() });
    Cow::Owned(shown.collect())
}

/// A writer of text that shows every control character but line breaks, tabs and Croft's own styles as text.
pub(crate) struct Shown<W>(pub(crate) W);

impl<W: Write> Shown<W> {
    fn write_text(&mut self, mut text: &str) -> io::Result<()> {
        let is_shown = |one: char| is_control(one) && !matches!(one, '\n' | '\t');
        while let Some(at) = text.find(is_shown) {
            let (before, rest) = text.split_at(at);
            self.0.write_all(before.as_bytes())?;
            let style = STYLES.iter().find(|style| rest.starts_with(**style)).copied();
            let taken = match style {
                Some(style) => {
                    self.0.write_all(style.as_bytes())?;
                    style.len()
                }
                None => {
                    let control = rest.chars().next().unwrap_or_default();
                    self.0.write_all(escaped(control).as_bytes())?;
                    control.len_utf8()
                }
            };
            text = rest.split_at(taken).1;
        }
        self.0.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for chunk in bytes.utf8_chunks() {
            self.write_text(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                self.write_text("\u{fffd}")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{BAD, BOLD, DIM, GOOD, NAME, NOTE, Table};

    fn shown(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Shown(Vec::new());
        write(&mut out).unwrap();
        String::from_utf8(out.0).unwrap()
    }

    #[test]
    fn control_characters_of_others_are_shown_as_text() {
        for (written, expected) in [
            ("\u{1b}[2J\u{1b}[Hforged", "\\u001b[2J\\u001b[Hforged"),
            ("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007"),
            ("ready\rgone \u{8}\u{7f}", "ready\\rgone \\u0008\\u007f"),
            ("\u{9b}31m \u{85}", "\\u009b31m \\u0085"),
            ("a\u{202e}b\u{2066}c\u{200b}d", "a\\u202eb\\u2066c\\u200bd"),
            ("line\n\ttab \u{e9} \u{4e2d} \u{1f980}", "line\n\ttab \u{e9} \u{4e2d} \u{1f980}"),
        ] {
            assert_eq!(shown(|out| write!(out, "{written}")), expected);
        }
        assert_eq!(shown(|out| out.write_all(b"a\xffb")), "a\u{fffd}b");
    }

    #[test]
    fn every_style_of_croft_passes() {
        for style in [BOLD, DIM, GOOD, NOTE, BAD, NAME] {
            let text = format!("{style}x{style:#}");
            assert_eq!(shown(|out| write!(out, "{style}x{style:#}")), text);
        }
    }

    #[test]
    fn json_means_the_same_after_it() {
        let value = serde_json::json!({"note": "\u{1b}[2J\u{9b}\u{7f}\u{202e}\n\r"});
        let text = shown(|out| write!(out, "{value}"));
        assert!(text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn text_of_others_begins_no_line() {
        assert_eq!(one_line("a\nb\tc\u{1b}"), "a\\nb\\tc\\u001b");
        let mut table = Table::new("NAME|POD");
        table.row(vec!["a\nforged".into(), "x".into()]);
        let text = shown(|out| table.write(out));
        assert!(text.ends_with("a\\nforged  x\n"), "{text}");
    }
}
