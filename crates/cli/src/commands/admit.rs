//! `croft admit`: answers an AdmissionReview by the function that the webhook calls.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use croft_inspect::{admission::Admission, custom_workload_warnings};
use croft_manifest::{Input, InputError, LoadOptions, parse};
use croft_webhook::{
    admit::{Answer, respond},
    outcome::Phase,
    server::BODY_LIMIT,
};
use serde_json::Value;

use crate::{Failure, Output, source::FileArgs};

/// Arguments of `croft admit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdmitArgs {
    #[command(flatten)]
    files: FileArgs,
    /// File with the AdmissionReview as JSON; - or nothing for standard input
    #[arg(value_name = "REVIEW", default_value = "-")]
    review: PathBuf,
    /// Answer as this pass of the API server alone, instead of as mutation followed by validation
    #[arg(long, value_enum, value_name = "PHASE")]
    phase: Option<Pass>,
}

/// A pass of the API server.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pass {
    /// Objects may be changed.
    Mutate,
    /// Objects are as they will be stored.
    Validate,
}

/// Answers the review. The exit code is 0 also for a denial.
pub(crate) fn run(args: &AdmitArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let AdmitArgs { files, review, phase } = args;
    let name = review.display().to_string();
    let from_stdin = review == Path::new("-");
    if from_stdin && files.reads_standard_input() {
        let text = "both -f and the review are read from standard input; write a file's name for one of them";
        return Err(InputError::Other(text.to_owned()).into());
    }
    let input = files.load(out)?;
    let admission = Admission::new(&input)?;
    let read = |source| InputError::File { path: name.clone(), source };
    let mut body = Vec::new();
    // One byte above the limit shows that the review is too long.
    let limit = u64::try_from(BODY_LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    if from_stdin {
        io::stdin().lock().take(limit).read_to_end(&mut body).map_err(read)?;
    } else {
        File::open(review).and_then(|file| file.take(limit).read_to_end(&mut body)).map_err(read)?;
    }
    if body.len() > BODY_LIMIT {
        return Err(InputError::Other(format!("{name}: the review is longer than {BODY_LIMIT} bytes")).into());
    }
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(InputError::Empty { path: name }.into());
    }
    let phase = match phase {
        None => Phase::Both,
        Some(Pass::Mutate) => Phase::Mutate,
        Some(Pass::Validate) => Phase::Validate,
    };
    out.warn(&admission.warnings())?;
    out.warn(&later_pods(&name, &body, input, &admission))?;
    match respond(&body, admission.tenants(), phase) {
        Answer::Review { body, .. } | Answer::UnknownNamespace { body, .. } => {
            out.write_all(&body)?;
            writeln!(out)?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Malformed(reason) => Err(InputError::Other(format!("{name}: {reason}")).into()),
    }
}

/// Warnings about a reviewed object of which another controller creates pods, such as a Rollout: it is allowed, and its pods are
/// reviewed when they are created. None for a review that can't be read: the answer says why.
fn later_pods(name: &str, body: &[u8], mut input: Input, admission: &Admission) -> Vec<String> {
    let Ok(review) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let Some(object) = review.pointer("/request/object") else { return Vec::new() };
    let namespace =
        review.pointer("/request/namespace").and_then(Value::as_str).unwrap_or("default").to_owned();
    let Ok(reviewed) = parse(name, &object.to_string(), &LoadOptions { namespace }) else {
        return Vec::new();
    };
    input.custom_workloads = reviewed.custom_workloads;
    custom_workload_warnings(&input, admission)
}
