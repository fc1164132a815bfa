//! Generates what is derived from the code: CRDs, charts and manifests, permissions of the CloudFormation template, references,
//! the catalogue.
//!
//! `generate` writes every file anew, `check` fails and names each file that differs from what would be
//! written, each test that the threat model names and that doesn't exist, each condition type that the
//! troubleshooting page lacks, and each alert without a runbook. The catalogue is made from a package of a registry, so it has a command of
//! its own.

mod bench;
mod catalog;
mod chart;
mod circles;
mod cloudformation;
mod code_blocks;
mod definitions;
mod generated;
mod images;
mod imports;
mod kubernetes;
mod ladder;
mod links;
#[cfg(test)]
mod make_test;
mod mutants;
mod named_tests;
mod observability;
mod picture;
mod references;
mod release;
mod schemas;
mod tokens;
mod troubleshooting;

use std::path::{Path, PathBuf};

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
    /// Fail if a generated file differs from what `generate` would write, the threat model names a test that doesn't
    /// exist, or the troubleshooting page lacks a condition type.
    Check,
    /// Print the ladder of each crate. Fail if its folders or modules import each other in a circle.
    Circles,
    /// Fail if a link of a Markdown page leads to no file or heading, or the book lacks a page of docs/.
    Links,
    /// Write the OCI images of webhook, controller and page, with symbols and bill of materials beside.
    Images(images::ImagesArgs),
    /// Run the benchmarks, show how their figures changed, and add them to a file.
    Bench(bench::BenchArgs),
    /// Print which changes of the code the tests noticed, from output folders of cargo-mutants.
    Mutants {
        /// Folders named `mutants.out`.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// Write JSON schemas of Croft's kinds for editors.
    Schemas {
        /// The folder.
        #[arg(long)]
        out: PathBuf,
    },
    /// Join the layouts of one image for several architectures.
    JoinImages(images::JoinArgs),
}

fn main() -> anyhow::Result<()> {
    let Args { root, command } = Args::parse();
    match command {
        Command::Generate => {
            generated::write(&root, &generators(&root)?)?;
            generated::write(&root, &chart::rendered::files(&root)?)?;
            generated::write(&root, &cloudformation::files(&root)?)?;
            generated::write(&root, &picture::files(&root)?)
        }
        Command::Catalog => catalog::run(&root),
        Command::Check => {
            generated::check(&root, &generators(&root)?)?;
            generated::check(&root, &chart::rendered::files(&root)?)?;
            generated::check(&root, &cloudformation::files(&root)?)?;
            generated::check(&root, &picture::files(&root)?)?;
            named_tests::check(&root)?;
            troubleshooting::check(&root)?;
            observability::check(&root)
        }
        Command::Circles => circles::check(&root),
        Command::Links => {
            links::check(&root)?;
            code_blocks::check(&root)
        }
        Command::Images(args) => images::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
        Command::Mutants { folders } => mutants::check(&root, &folders),
        Command::Schemas { out } => schemas::write(&out),
        Command::JoinImages(args) => images::join(&root, &args),
    }
}

/// Every generated file of the project.
fn generators(root: &Path) -> anyhow::Result<Vec<generated::File>> {
    let mut files = Vec::new();
    files.extend(schemas::crds()?);
    files.extend(chart::files()?);
    files.extend(references::files()?);
    files.extend(definitions::files()?);
    files.push(kubernetes::file(root)?);
    files.extend(observability::files(root)?);
    Ok(files)
}
