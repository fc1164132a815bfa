//! Arguments and steps of the command.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use croft_manifest::{InputError, RawObject, RawObjects, load_raw, to_yaml};
use serde_json::json;

use super::{
    convert::convert,
    gatekeeper::is_mutation,
    imported::{Imported, ImportedObject},
    karpenter::is_of_karpenter,
    note::Note,
};
use crate::{croft_object::croft_object, failure::Failure, output::Output};

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
    ///
    /// Exits with 0 if everything is in the output, with 1 if a part of the input isn't, and with 2 if nothing is or the input is bad.
    /// Objects that the API server would refuse are comments.
    Gatekeeper(SourceArgs),
    /// Pools and classes from Karpenter's NodePool and EC2NodeClass, or Provisioner and AWSNodeTemplate
    ///
    /// Those with one taint become one pool with a template for each. Pods and workloads in the same input show by which of Karpenter's
    /// labels nodes are selected: the pools get these labels.
    ///
    /// Exits with 0 if everything is in the output, with 1 if a part of the input isn't, and with 2 if nothing is or the input is bad.
    /// Objects that the API server would refuse are comments.
    Karpenter(SourceArgs),
}

#[derive(Args, Clone, Debug)]
struct SourceArgs {
    /// File, folder or - (standard input) with the manifests; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Exit with 1 for any note, also where everything is in the output under another name or value
    #[arg(long)]
    fail_on_notes: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let (source, is_wanted, wanted): (_, fn(&RawObject) -> bool, _) = match &args.from {
        From::Gatekeeper(source) => {
            (source, is_mutation, "Assign, ModifySet, AssignMetadata, AssignImage (mutations.gatekeeper.sh)")
        }
        From::Karpenter(source) => (
            source,
            is_of_karpenter,
            "NodePool, Provisioner (karpenter.sh), EC2NodeClass, AWSNodeTemplate (karpenter.k8s.aws)",
        ),
    };
    let SourceArgs { filenames, fail_on_notes } = source;
    let RawObjects { objects, warnings, .. } = load_raw(filenames)?;
    if !objects.iter().any(is_wanted) {
        return Err(InputError::Other(format!("the input holds none of {wanted}")).into());
    }
    let Imported { objects, mut notes, without_tenant, problems } = convert(&objects);
    // The value that doesn't count is in no object.
    notes.splice(0..0, warnings.into_iter().map(Note::loss));
    if !problems.is_empty() {
        return Err(InputError::Problems(problems).into());
    }
    if objects.is_empty() {
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        return Err(InputError::Other(format!("nothing could be carried over:\n{}", notes.join("\n"))).into());
    }
    write_notes(&notes, out)?;
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            writeln!(out, "---")?;
        }
        write_object(object, out)?;
    }
    write_tenants_to_complete(&without_tenant, out)?;
    out.flush()?;
    let is_nothing = objects.iter().all(|object| object.is_refused);
    let noted: Vec<Note> =
        notes.into_iter().chain(objects.into_iter().flat_map(|object| object.notes)).collect();
    out.warn(&noted.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    warn_of_tenants_to_complete(&without_tenant, out)?;
    if is_nothing {
        let why = "nothing could be carried over: the API server would refuse every object; correct those in the comments by hand";
        return Err(InputError::Other(why.to_owned()).into());
    }
    let is_part = noted.iter().any(|note| note.is_loss);
    Ok(if is_part || (*fail_on_notes && !noted.is_empty()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes notes as comments, each of one line whatever the names in it.
fn write_notes(notes: &[Note], out: &mut Output) -> std::io::Result<()> {
    notes.iter().try_for_each(|note| writeln!(out, "# {}", note.to_string().replace(['\n', '\r'], " ")))
}

/// Writes an object with its notes; as a comment if the API server would refuse it, so that the output can be applied.
fn write_object(object: &ImportedObject, out: &mut Output) -> Result<(), Failure> {
    write_notes(&object.notes, out)?;
    let text = to_yaml(std::slice::from_ref(&object.value))?;
    if object.is_refused {
        text.lines().try_for_each(|line| writeln!(out, "# {line}"))?;
    } else {
        write!(out, "{text}")?;
    }
    Ok(())
}

/// Writes a Tenant for each pool that has none, as a comment: nothing in the input says whose it is.
fn write_tenants_to_complete(pools: &[String], out: &mut Output) -> Result<(), Failure> {
    if pools.is_empty() {
        return Ok(());
    }
    writeln!(out, "---\n# Complete these: no Tenant uses the pools, so no pod runs there yet.")?;
    if pools.len() > 1 {
        writeln!(
            out,
            "# A namespace belongs to one Tenant: give the pools of a namespace to one Tenant, its default pool first."
        )?;
    }
    for (at, pool) in pools.iter().enumerate() {
        let spec = json!({"namespaces": [format!("<namespaces of {pool}>")], "pools": [pool]});
        let text = to_yaml(&[croft_object("Tenant", pool, spec)])?;
        if at > 0 {
            writeln!(out, "# ---")?;
        }
        text.lines().try_for_each(|line| writeln!(out, "# {line}"))?;
    }
    Ok(())
}

/// Warns of pools that no Tenant uses: in a file that standard output is redirected to, comments alone are not read. No field was
/// lost, so this fails no `--fail-on-notes`.
fn warn_of_tenants_to_complete(pools: &[String], out: &mut Output) -> std::io::Result<()> {
    if pools.is_empty() {
        return Ok(());
    }
    let (one, of) = if pools.len() == 1 { ("pool", "its") } else { ("pools", "their") };
    out.warn(&[format!(
        "no Tenant uses the {one} {}: no pod runs there until you write {of} Tenants, in the comment at the end of the output",
        pools.join(", ")
    )])
}
