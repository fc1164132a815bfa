//! Why a command fails, and the exit code of each reason.

use std::{error::Error, io};

use croft_manifest::{InputError, WriteError, closest};
use croft_runtime::{
    connect::Unanswered,
    connect_error::{of_service, without_numbers},
    process::chain,
};
use thiserror::Error;

/// What is wrong where another server answers than one of Kubernetes.
const NO_API_SERVER: &str = "what answers is no API server; see whether the kubeconfig has the right address";

/// How errors of an archive's bucket begin, of which the cause is what they say.
const OF_BUCKET: &str = "Generic S3 error: ";

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The input is wrong: exit code 2.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result can't be written: exit code 1, or 0 if the reader closed the pipe.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
    /// The result can't be written as YAML: exit code 1.
    #[error(transparent)]
    Yaml(#[from] WriteError),
    /// Anything else: exit code 1.
    #[error("{}", told(.0))]
    Other(#[source] anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    /// A wrong input stays one. With a context it is a failure of what was done with it.
    fn from(error: anyhow::Error) -> Self {
        if error.chain().next().is_some_and(|outermost| outermost.is::<InputError>()) {
            error.downcast::<InputError>().map_or_else(Self::Other, Self::Input)
        } else {
            Self::Other(error)
        }
    }
}

impl Failure {
    /// `there is no <kind> <name>`, with the closest of the names that there are.
    pub(crate) fn missing<'n>(kind: &str, name: &str, there: impl IntoIterator<Item = &'n str>) -> Self {
        missing_object(kind, name, there).into()
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            // `croft simulate | head` is no failure.
            Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Write(_) | Self::Yaml(_) | Self::Other(_) => 1,
        }
    }
}

/// As [`Failure::missing`].
pub(crate) fn missing_object<'n>(
    kind: &str,
    name: &str,
    there: impl IntoIterator<Item = &'n str>,
) -> InputError {
    let there: Vec<&str> = there.into_iter().collect();
    let hint = closest(name, &there).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    InputError::Other(format!("there is no {kind} {name}{hint}"))
}

/// An error with its causes, each once, and in Croft's words. Where a server gave no answer, that is all there is to say.
pub(crate) fn told(error: &anyhow::Error) -> String {
    told_by(error.as_ref())
}

/// The same for an error of the client.
pub(crate) fn said(error: &kube::Error) -> String {
    told_by(error)
}

/// The error, and what caused it.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let one = next?;
        next = one.source();
        Some(one)
    })
}

fn told_by(error: &(dyn Error + 'static)) -> String {
    if let Some(unanswered) = causes(error).find_map(|cause| cause.downcast_ref::<Unanswered>()) {
        return unanswered.to_string();
    }
    let mut text = String::new();
    for cause in causes(error) {
        let of_client = cause.downcast_ref::<kube::Error>().map(in_own_words);
        let is_last = of_client.is_some();
        let one = of_client.unwrap_or_else(|| cause.to_string());
        let one = one.strip_prefix(OF_BUCKET).unwrap_or(&one);
        if !text.ends_with(one) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(one);
        }
        if is_last {
            break;
        }
    }
    without_numbers(&text)
}

/// An error of the client without the names of its types.
fn in_own_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "the API server doesn't accept the credentials of the kubeconfig: renew them, or choose another --context"
                .to_owned()
        }
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answers {}", status.code)
        }
        kube::Error::Api(status) if status.message.trim_start().starts_with('<') => {
            format!("{NO_API_SERVER}: it answers {} with a page of HTML", status.code)
        }
        kube::Error::Api(status) => status.message.trim().to_owned(),
        kube::Error::Auth(error) => of_service(error),
        kube::Error::SerdeError(error) if !error.is_data() && (error.line(), error.column()) <= (1, 1) => {
            format!("{NO_API_SERVER}: its answer isn't JSON")
        }
        kube::Error::SerdeError(error) => format!("the API server's answer can't be read: {error}"),
        kube::Error::Service(error) => of_service(&**error),
        other => other.source().map_or_else(|| other.to_string(), chain),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn wrong_input_has_its_exit_code_wherever_it_is_found() {
        let missing = || missing_object("Tenant", "shpo", ["shop"]);
        let failure = Failure::from(anyhow::Error::from(missing()));
        assert_eq!(failure.to_string(), "there is no Tenant shpo; did you mean shop?");
        assert_eq!(failure.exit_code(), 2);
        let failure = Failure::from(anyhow::Error::from(missing()).context("failed to delete"));
        assert_eq!(failure.to_string(), "failed to delete: there is no Tenant shpo; did you mean shop?");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn each_cause_of_a_failure_is_said_once() {
        let inner = io::Error::other("no such file");
        let named: Result<(), _> = Err(Failure::Write(inner));
        let error = named.context("failed to list pods").unwrap_err();
        let text = Failure::Other(error).to_string();
        assert_eq!(text, "failed to list pods: failed to write the result: no such file");
    }

    #[test]
    fn errors_of_a_bucket_are_their_cause() {
        let failed: Result<(), _> = Err(io::Error::other("Generic S3 error: no region is known"));
        let text = Failure::Other(failed.context("failed to open s3://b/c").unwrap_err()).to_string();
        assert_eq!(text, "failed to open s3://b/c: no region is known");
    }

    /// The text that the user reads of an answer of the API server.
    fn read_of(status: serde_json::Value) -> String {
        let status = serde_json::from_value(status).unwrap();
        let failed: Result<(), _> = Err(kube::Error::Api(Box::new(status)));
        Failure::Other(failed.context("failed to list pods").unwrap_err()).to_string()
    }

    #[test]
    fn refusal_of_the_api_server_is_its_message_alone() {
        let forbidden = serde_json::json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "pods is forbidden"});
        assert_eq!(read_of(forbidden), "failed to list pods: pods is forbidden");
        let silent = serde_json::json!({"status": "Failure", "code": 500, "reason": "", "message": ""});
        assert_eq!(read_of(silent), "failed to list pods: the API server answers 500");
        let page = serde_json::json!({"status": "Failure", "code": 404, "reason": "", "message": "<html><body>nginx</body></html>"});
        assert!(read_of(page).ends_with("right address: it answers 404 with a page of HTML"));
        let unknown = serde_json::json!({"status": "Failure", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"});
        assert!(read_of(unknown).ends_with("renew them, or choose another --context"));
    }

    #[test]
    fn answer_of_another_server_is_no_matter_of_json() {
        let read = |text: &str| {
            let error = serde_json::from_str::<Vec<u8>>(text).unwrap_err();
            let failed: Result<(), _> = Err(kube::Error::SerdeError(error));
            Failure::Other(failed.context("failed to list pods").unwrap_err()).to_string()
        };
        for text in ["<html>", ""] {
            assert!(read(text).ends_with("right address: its answer isn't JSON"), "{}", read(text));
        }
        assert!(read("[3, true]").contains("the API server's answer can't be read: invalid type"));
    }

    #[test]
    fn server_without_an_answer_is_all_that_is_said() {
        let away =
            Unanswered::Unreachable { server: "the API server https://a".into(), why: "refused".into() };
        let failed: Result<(), _> = Err(kube::Error::Service(away.into()));
        let text = Failure::Other(failed.context("failed to list pods").unwrap_err()).to_string();
        assert_eq!(
            text,
            "the API server https://a can't be reached: refused; see whether the address is right, and the server runs"
        );
    }
}
