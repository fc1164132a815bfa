//! Arguments and steps of the command.

use std::{collections::BTreeMap, io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use croft_manifest::{InputError, RawObject, load_raw, to_yaml};

use super::{gatekeeper, imported::Imported, karpenter};
use crate::{failure::Failure, output::Output};

/// Arguments of `croft import`.
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand, Clone, Debug)]
enum From {
    /// Tenants and pools from Gatekeeper's Assign and ModifySet on pods
    ///
    /// Karpenter's objects in the same input become the node templates of the pools that the Assigns choose.
    Gatekeeper(SourceArgs),
    /// Pools and classes from Karpenter's NodePool and EC2NodeClass, or Provisioner and AWSNodeTemplate
    Karpenter(SourceArgs),
}

#[derive(Args, Clone, Debug)]
struct SourceArgs {
    /// File, folder or - (standard input) with the manifests; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Exit with 1 if a field couldn't be carried over
    #[arg(long)]
    fail_on_notes: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let (source, wanted) = match &args.from {
        From::Gatekeeper(source) => (source, gatekeeper::KINDS),
        From::Karpenter(source) => (source, karpenter::KINDS),
    };
    let SourceArgs { filenames, fail_on_notes } = source;
    let objects = load_raw(filenames)?;
    if !objects.iter().any(|o| wanted.contains(&o.kind.as_str())) {
        return Err(InputError::Other(format!("the input holds none of {}", wanted.join(", "))).into());
    }
    let imported = import(&objects);
    let all = [&imported.tenants, &imported.pools, &imported.classes];
    let mut noted = imported.notes.clone();
    let mut first = true;
    for note in &imported.notes {
        writeln!(out, "# {note}")?;
    }
    for object in all.into_iter().flat_map(BTreeMap::values) {
        if !std::mem::take(&mut first) {
            writeln!(out, "---")?;
        }
        for note in &object.notes {
            writeln!(out, "# {note}")?;
        }
        noted.extend(object.notes.iter().cloned());
        write!(out, "{}", to_yaml(std::slice::from_ref(&object.value))?)?;
    }
    out.flush()?;
    out.warn(&noted)?;
    Ok(if *fail_on_notes && !noted.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn import(objects: &[RawObject]) -> Imported {
    let mut imported = Imported::default();
    let pools = karpenter::import(objects, &mut imported);
    gatekeeper::import(objects, &pools, &mut imported);
    let known = |kind: &str| karpenter::KINDS.contains(&kind) || gatekeeper::KINDS.contains(&kind);
    for object in objects.iter().filter(|o| !known(&o.kind) || !is_known_group(o)) {
        imported.notes.push(format!("{} ({}) isn't carried over", object.title(), object.api_version));
    }
    imported
}

fn is_known_group(object: &RawObject) -> bool {
    matches!(object.group(), "karpenter.sh" | "karpenter.k8s.aws" | "mutations.gatekeeper.sh")
}
