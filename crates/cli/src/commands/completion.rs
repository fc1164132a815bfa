//! `croft completion`: completions of shells.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

use crate::{failure::Failure, output::Output};

/// Arguments of `croft completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionArgs {
    /// The shell. bash: source <(croft completion bash). zsh: the same, after compinit. fish: croft completion fish | source
    #[arg(value_enum)]
    shell: CompletedShell,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletedShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Writes the completions of `program`.
pub(crate) fn run(
    args: &CompletionArgs,
    mut program: Command,
    out: &mut Output,
) -> Result<ExitCode, Failure> {
    let shell = match args.shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut program, "croft", &mut script);
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_shell_completes_commands_and_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(shell, &mut Cli::command(), "croft", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("simulate") && script.contains("kubeconfig"), "{shell}");
        }
    }
}
