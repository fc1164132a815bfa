//! Tables, colours and short lists of the text output.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use anstyle::{AnsiColor, Style};
pub(crate) use croft_api::sentence::{counted, shortened};

use crate::shown::one_line;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const NOTE: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

#[derive(Clone, Debug)]
struct Column {
    title: String,
    is_right: bool,
}

/// Rows under a heading, in columns as wide as their content.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    head: Vec<Column>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// A table with these titles, such as `NODE|POOL|$/H>`: `>` after a title is a column aligned to the right.
    pub(crate) fn new(titles: &str) -> Self {
        let column = |title: &str| Column {
            title: title.trim_end_matches('>').to_owned(),
            is_right: title.ends_with('>'),
        };
        Self { head: titles.split('|').map(column).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|c| (c, Style::new())).collect());
    }

    pub(crate) fn styled(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes heading and rows with two blanks between columns and none at the end of a line.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |text: &str| text.chars().count();
        let head: Vec<(Cow<str>, Style)> =
            self.head.iter().map(|column| (Cow::Borrowed(column.title.as_str()), BOLD)).collect();
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().map(|(cell, style)| (one_line(cell), *style)).collect::<Vec<_>>());
        let rows: Vec<Vec<(Cow<str>, Style)>> = std::iter::once(head).chain(rows).collect();
        let mut widths = vec![0; self.head.len()];
        for row in &rows {
            for (at, (cell, _)) in widths.iter_mut().zip(row) {
                *at = width(cell).max(*at);
            }
        }
        for row in &rows {
            let mut line = String::new();
            let mut pending = 0;
            for (((cell, style), size), column) in row.iter().zip(&widths).zip(&self.head) {
                let pad = size.saturating_sub(width(cell));
                let (before, after) = if column.is_right { (pad, 0) } else { (0, pad) };
                if !cell.is_empty() {
                    line.push_str(&" ".repeat(pending + before));
                    line.push_str(&format!("{style}{cell}{style:#}"));
                    pending = after + 2;
                } else {
                    pending += size + 2;
                }
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

impl Table {
    /// Writes the table as Markdown.
    pub(crate) fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let escaped = |text: &str| one_line(text).replace('|', "\\|");
        writeln!(out, "{}", line(self.head.iter().map(|column| escaped(&column.title)).collect()))?;
        let rule = |column: &Column| if column.is_right { "---:" } else { "---" }.to_owned();
        writeln!(out, "{}", line(self.head.iter().map(rule).collect()))?;
        for row in &self.rows {
            writeln!(out, "{}", line(row.iter().map(|(cell, _)| escaped(cell)).collect()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_aligns_numbers_and_escapes_bars() {
        let mut table = Table::new("POOL|$/MONTH>");
        table.row(vec!["a|b".into(), "1".into()]);
        let mut out = Vec::new();
        table.write_markdown(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "| POOL | $/MONTH |\n| --- | ---: |\n| a\\|b | 1 |\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_content() {
        let mut table = Table::new("A|COUNT>|LAST");
        table.row(vec!["x".into(), "1".into(), String::new()]);
        table.row(vec!["longer".into(), "12345678".into(), "z".into()]);
        table.row(vec!["y".into(), String::new(), "w".into()]);
        let mut out = anstream::StripStream::new(Vec::new());
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        assert_eq!(
            text,
            "A          COUNT  LAST\nx              1\nlonger  12345678  z\ny                 w\n"
        );
    }
}
