//! Generates what is derived from the code: CRDs, policies, references, the catalogue.
//!
//! `generate` writes every file anew, `check` fails and names each file that differs from what would be
//! written. The catalogue is made from a package of a registry, so it has a command of its own.

mod catalog;
mod crds;
mod generated;
mod policies;
mod references;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Generates what is derived from the code.
#[derive(Parser)]
struct Args {
    /// Root of the checkout.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write every generated file.
    Generate,
    /// Make the built-in catalogue of instance types anew, from a package of a registry.
    Catalog,
    /// Fail if a generated file differs from what `generate` would write.
    Check,
}

fn main() -> anyhow::Result<()> {
    let Args { root, command } = Args::parse();
    match command {
        Command::Generate => generated::write(&root, &generators()?),
        Command::Catalog => catalog::run(&root),
        Command::Check => generated::check(&root, &generators()?),
    }
}

/// Every generated file of the project.
fn generators() -> anyhow::Result<Vec<generated::File>> {
    let mut files = Vec::new();
    files.extend(crds::files()?);
    files.extend(policies::files()?);
    files.extend(references::files()?);
    Ok(files)
}
