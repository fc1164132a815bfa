//! The command line's reference page as Markdown, generated from the clap commands. `croft-xtask generate` calls it.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::Cli;

/// The meaning of each exit code, for every command.
const EXIT_CODES: &str = "\
Exit codes: 0, done; 1, failed, or found what it was asked to look for (`croft audit`, `--fail-on-pending`,
`--fail-on-denied`), or did a part (`croft import`); 2, bad input or arguments, with file, line, object and field of each problem.
";

const TABLE_HEAD: &str = "\n| argument | meaning | default |\n|---|---|---|\n";

/// The page `docs/reference/cli.md`.
#[must_use]
pub fn markdown() -> String {
    let mut root = Cli::command();
    root.build();
    let mut page = String::from("# Command line\n\n");
    push(&mut page, &about(&root));
    page.push_str("\n`croft` also runs as a plugin of kubectl: put it on the path as `kubectl-croft`.\n\n");
    page.push_str(EXIT_CODES);
    page.push_str("\nEach command has these, before or after its name. A command that isn't about a namespace refuses `--namespace`.\n");
    page.push_str(TABLE_HEAD);
    for arg in root.get_arguments().filter(|arg| arg.is_global_set()) {
        row(&mut page, arg);
    }
    for command in visible(&root) {
        section(&mut page, command, "croft", 2);
    }
    page
}

fn section(page: &mut String, command: &Command, parent: &str, depth: usize) {
    let name = format!("{parent} {}", command.get_name());
    let _ = write!(page, "\n{} {name}\n\n", "#".repeat(depth));
    push(page, &about(command));
    let nested: Vec<&Command> = visible(command).collect();
    if nested.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").trim();
        let _ = write!(page, "\n```text\n{usage}\n```\n");
        let args: Vec<&Arg> = command
            .get_arguments()
            .filter(|a| !a.is_hide_set() && !a.is_global_set())
            .filter(|a| !matches!(a.get_id().as_str(), "help" | "version"))
            .collect();
        if !args.is_empty() {
            page.push_str(TABLE_HEAD);
        }
        for arg in args {
            row(page, arg);
        }
    }
    for inner in nested {
        section(page, inner, &name, depth + 1);
    }
}

fn row(page: &mut String, arg: &Arg) {
    let mut names: Vec<String> = Vec::new();
    names.extend(arg.get_short().map(|s| format!("-{s}")));
    names.extend(arg.get_long().map(|l| format!("--{l}")));
    let value = arg.get_action().takes_values().then(|| {
        let names: Vec<String> =
            arg.get_value_names().unwrap_or_default().iter().map(|n| format!("<{n}>")).collect();
        names.join(" ")
    });
    let mut shown = names.join(", ");
    if let Some(value) = value {
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(&value);
    }
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = help.replace('\n', " ").replace('|', "\\|");
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .filter(|v| !v.is_hide_set())
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    if !choices.is_empty() {
        let _ = write!(help, " ({})", choices.join(", "));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|d| format!("`{}`", d.to_string_lossy())).collect();
    let _ = writeln!(page, "| `{shown}` | {help} | {} |", defaults.join(" "));
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

fn about(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn push(page: &mut String, text: &str) {
    page.push_str(text.trim());
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_has_a_section_per_command() {
        let page = markdown();
        for command in visible(&Cli::command()) {
            assert!(page.contains(&format!("\n## croft {}\n", command.get_name())), "{}", command.get_name());
        }
        assert!(page.contains("| `--catalog <FILE>` |"), "{page}");
        assert_eq!(page.matches("| `--kubeconfig <FILE>` |").count(), 1, "{page}");
        assert!(!page.contains("\x1b["), "no colours");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
