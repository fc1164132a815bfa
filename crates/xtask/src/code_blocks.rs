//! Blocks of commands on the pages of docs/: each that no test runs says so in the line above it, and no other does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::links::collect;

const FOLDER: &str = "docs";
/// The line above a block that no test runs.
const UNTESTED: &str = "*Not run by a test:*";
const TASKS: &str = "docs/tasks";
const QUICK_START: &str = "docs/quick-start.md";
const INSTALL: &str = "docs/install.md";
/// Pages whose blocks of text show how a command is written.
const REFERENCE: &str = "docs/reference";
/// Programs with which a line of commands begins.
const PROGRAMS: [&str; 8] =
    ["aws ", "croft ", "curl ", "docker ", "helm ", "kubectl ", "make ", "terraform "];

/// Fails if a block of commands is without that line although no test runs it, or has it although one does.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> = Vec::new();
    collect(&root.join(FOLDER), &mut files)?;
    files.sort();
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        wrong.extend(mistakes(file.strip_prefix(root).unwrap_or(file), &text));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} blocks of commands are marked wrongly:\n{}", wrong.len(), wrong.join("\n"))
}

/// Whether a test runs the blocks of a language on a page; `None` for a language without commands.
fn is_run(page: &Path, language: &str) -> Option<bool> {
    let (quick_start, install) = (page == Path::new(QUICK_START), page == Path::new(INSTALL));
    match language {
        "sh" => Some(page.starts_with(TASKS) || quick_start || install),
        "bash" => Some(quick_start),
        "helm" => Some(false),
        _ => None,
    }
}

fn mistakes(page: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // The last line with text, and whether it is the line before.
    let (mut is_open, mut above, mut is_next) = (false, "", true);
    let (mut is_text, is_reference) = (false, page.starts_with(REFERENCE));
    for (index, line) in text.lines().enumerate() {
        let fence = line.strip_prefix("```");
        let place = format!("{}:{}", page.display(), index + 1);
        if !is_open
            && !is_next
            && is_indented(line)
            && !is_indented(above)
            && !is_item(above)
            && above != UNTESTED
        {
            wrong.push(format!("{place}: no test runs an indented block: write {UNTESTED} above it"));
        }
        if is_open && is_text && !is_reference && PROGRAMS.iter().any(|program| line.starts_with(program)) {
            wrong.push(format!("{place}: a command in a block of text: label the block sh or bash"));
        }
        if let (Some(language), false) = (fence, is_open) {
            is_text = matches!(language, "" | "text");
            match is_run(page, language) {
                Some(false) if above != UNTESTED => {
                    wrong.push(format!("{place}: no test runs this block: write {UNTESTED} above it"));
                }
                Some(true) if above == UNTESTED => {
                    wrong.push(format!("{place}: a test runs this block: remove {UNTESTED}"));
                }
                _ => {}
            }
        }
        is_open ^= fence.is_some();
        is_next = !line.is_empty();
        if is_next {
            above = line;
        }
    }
    wrong
}

fn is_indented(line: &str) -> bool {
    line.starts_with("    ") && !line.trim().is_empty()
}

/// True for a list's item, below which indented text is a paragraph.
fn is_item(line: &str) -> bool {
    line.starts_with("- ") || line.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untested_block_without_its_line_and_a_tested_one_with_it_are_named() {
        let text = "# A\n```bash\nx\n```\n*Not run by a test:*\n\n```bash\ny\n```\n*Not run by a test:*\n```sh\nz\n```\n```yaml\n```\n";
        let found = mistakes(Path::new("docs/tasks/a.md"), text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/tasks/a.md:2: no test runs"), "{found:?}");
        assert!(found[1].starts_with("docs/tasks/a.md:11: a test runs"), "{found:?}");
        assert!(mistakes(Path::new(QUICK_START), "```bash\nx\n```\n```sh\ny\n```\n").is_empty());
    }

    #[test]
    fn command_in_a_block_of_text_is_named_but_for_the_reference_of_commands() {
        let text = "```text\ncroft top\n  make it so\n```\n```yaml\nmake \n```\n";
        let found = mistakes(Path::new("docs/tasks/a.md"), text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/tasks/a.md:2: a command"), "{found:?}");
        assert!(mistakes(Path::new("docs/reference/cli.md"), text).is_empty());
    }

    #[test]
    fn indented_block_without_the_line_is_named_and_a_paragraph_of_a_list_is_not() {
        let text = "text\n\n    make x\n    make y\n\n    make z\n\n- item\n\n    of it\n\n*Not run by a test:*\n\n    make w\n";
        let found = mistakes(Path::new(QUICK_START), text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/quick-start.md:3: "), "{found:?}");
    }
}
