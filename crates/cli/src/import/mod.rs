//! `croft import`: existing manifests of Gatekeeper and Karpenter become Croft's.
//!
//! ```text
//!  Assign, ModifySet ──gatekeeper──▶ who gets which label and toleration ─┐
//!                                                                         ├─▶ Tenant, TenantPool, EC2NodeClass
//!  NodePool, Provisioner, EC2NodeClass, AWSNodeTemplate ──karpenter──▶ ───┘   and a note for all that isn't in them
//! ```
//!
//! Nothing is dropped silently: what Croft has no word for stands above the object as a comment and on standard
//! error. TenantPool and EC2NodeClass use Karpenter's words where the meaning is the same, so a field is carried
//! over as soon as the CRD has it.

mod gatekeeper;
mod karpenter;

use std::{collections::BTreeMap, io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    input::{self, InputError, RawObject},
    output::Output,
    yaml,
};

/// Options of `croft import`.
#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand, Clone, Debug)]
enum From {
    /// Tenants and pools from Gatekeeper's Assign and ModifySet on pods
    ///
    /// Karpenter's objects in the same input become the machines of the pools that the Assigns choose.
    Gatekeeper(SourceArgs),
    /// Pools and classes from Karpenter's NodePool and EC2NodeClass, or Provisioner and AWSNodeTemplate
    Karpenter(SourceArgs),
}

#[derive(Args, Clone, Debug)]
struct SourceArgs {
    /// File, folder or - (standard input) with the manifests; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Exit with 1 if anything couldn't be carried over
    #[arg(long)]
    fail_on_notes: bool,
}

/// What becomes of the manifests.
#[derive(Clone, Debug, Default)]
struct Imported {
    tenants: BTreeMap<String, Made>,
    pools: BTreeMap<String, Made>,
    classes: BTreeMap<String, Made>,
    /// What belongs to no object.
    notes: Vec<String>,
}

/// An object of Croft's, and what is to be said of it.
#[derive(Clone, Debug)]
struct Made {
    value: Value,
    notes: Vec<String>,
}

impl Made {
    fn new(kind: &str, name: &str, spec: Value) -> Self {
        let api_version = format!("{}/{}", croft_api::GROUP, croft_api::VERSION);
        let value =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        Self { value, notes: Vec::new() }
    }

    /// Cuts the object down to what the CRD has, and notes the rest under the words of `source`.
    fn fit(&mut self, kind: &str, source: &str) {
        let fit = input::fit(kind, &mut self.value);
        for (path, value) in fit.dropped {
            self.notes.push(format!("{source}: {path} isn't carried over, Croft has no such field: {value}"));
        }
        for (path, message) in fit.wrong {
            self.notes.push(format!("to be mended by hand: {path}: {message}"));
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let (source, wanted) = match &args.from {
        From::Gatekeeper(source) => (source, gatekeeper::KINDS),
        From::Karpenter(source) => (source, karpenter::KINDS),
    };
    let SourceArgs { filenames, fail_on_notes } = source;
    let objects = input::read_raw(filenames)?;
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
    for made in all.into_iter().flat_map(BTreeMap::values) {
        if !std::mem::take(&mut first) {
            writeln!(out, "---")?;
        }
        for note in &made.notes {
            writeln!(out, "# {note}")?;
        }
        noted.extend(made.notes.iter().cloned());
        for line in yaml::block(&made.value) {
            writeln!(out, "{line}")?;
        }
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
    for object in objects.iter().filter(|o| !known(&o.kind) || !is_ours(o)) {
        imported.notes.push(format!("{} ({}) isn't carried over", object.title(), object.api_version));
    }
    imported
}

fn is_ours(object: &RawObject) -> bool {
    matches!(object.group(), "karpenter.sh" | "karpenter.k8s.aws" | "mutations.gatekeeper.sh")
}

/// A name that a TenantPool may have, made of any text.
fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let mapped: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let short: String = mapped.trim_matches('-').chars().take(40).collect();
    short.trim_end_matches('-').to_owned()
}

/// Writes a field of an object. What isn't one, in a manifest that no API server would take, becomes one.
fn set(value: &mut Value, field: &str, to: Value) {
    if !value.is_object() {
        *value = json!({});
    }
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), to);
    }
}

/// Takes a field out of an object.
fn take(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(field)).filter(|v| !v.is_null())
}

/// The text of a field.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
