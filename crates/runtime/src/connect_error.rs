//! Errors of the client in the user's words. Called by [`crate::connect`] and by the command line: the client's own texts name its types,
//! and hold what programs for credentials print.

use std::{error::Error, fmt::Display, io};

use kube::{
    client::AuthError,
    config::{KubeconfigError, LoadDataError},
};
use rustls::CertificateError;

use crate::process::chain;

/// Characters of what a program for credentials said that are repeated: its last lines, which say why it ended.
const SAID: usize = 400;

/// An error of a kubeconfig.
pub(crate) fn of_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no file {}", path.display())
        }
        KubeconfigError::ReadConfig(error, path) => {
            format!("{} can't be read: {}", path.display(), without_numbers(error))
        }
        KubeconfigError::FindPath => "there is no home folder with .kube/config".to_owned(),
        KubeconfigError::CurrentContextNotSet => "it has no current context: write --context NAME".to_owned(),
        KubeconfigError::LoadContext(name) => {
            format!("it has no context {name}: kubectl config get-contexts lists those that it has")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("it has no cluster {name}, which the context names")
        }
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(error) => {
            format!("its server is no address ({error}): write one such as https://10.0.0.1:6443")
        }
        KubeconfigError::ParseProxyUrl(error) => {
            format!(
                "its proxy-url, or the proxy of HTTPS_PROXY, is no address ({error}): write one such as http://proxy:3128"
            )
        }
        KubeconfigError::LoadCertificateAuthority(error) => of_data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => of_data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => of_data("client-key", error),
        KubeconfigError::ParseCertificates(error) => format!("a certificate in it isn't PEM: {error}"),
        // The rest of the text draws the place with its surroundings, in which secrets may stand.
        KubeconfigError::Parse(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            format!("it isn't a kubeconfig in YAML: {}", line.strip_prefix("error: ").unwrap_or(line))
        }
        other => other.to_string(),
    }
}

fn of_data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::ReadFile(error, path) => {
            let why = without_numbers(error);
            format!("the file {} of its {field} can't be read: {why}", path.display())
        }
        LoadDataError::DecodeBase64(error) => format!("its {field}-data isn't base64: {error}"),
        LoadDataError::NoBase64DataOrFile => format!("its {field} is empty"),
    }
}

/// Why a request that a server took has no whole answer, or wasn't sent.
#[must_use]
pub fn of_service(error: &(dyn Error + 'static)) -> String {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<AuthError>() {
            return format!("there are no credentials: {}", of_credentials(error, None));
        }
        if cause.is::<hyper::Error>() {
            return "the answer ended early: run the command again".to_owned();
        }
        next = cause.source();
    }
    chain(error)
}

/// Why there are no credentials. `plugin` is the program that the kubeconfig gets them from, if it is known. Nothing of its standard output
/// is repeated: credentials stand there.
pub(crate) fn of_credentials(error: &AuthError, plugin: Option<&str>) -> String {
    let plugin = plugin.unwrap_or("the program that the kubeconfig names for credentials");
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let said = last_lines(&String::from_utf8_lossy(&out.stderr));
            let said = if said.is_empty() { "without a word".to_owned() } else { said };
            format!("{plugin} failed ({}): {said}", out.status)
        }
        AuthError::AuthExecStart(error) => {
            format!("{plugin} can't be run: {}", without_numbers(error))
        }
        AuthError::AuthExecParse(_) => format!("what {plugin} printed is no ExecCredential"),
        AuthError::ExecPluginFailed => format!("the ExecCredential that {plugin} printed has no status"),
        AuthError::ReadTokenFile(error, path) => {
            format!("the token file {} can't be read: {}", path.display(), without_numbers(error))
        }
        AuthError::AuthExec(_) => {
            "the kubeconfig's auth-provider isn't supported: write exec with a program for credentials, as for kubectl 1.26 and later"
                .to_owned()
        }
        other => chain(other),
    }
}

/// The end of a text in one line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut left = SAID;
    let mut kept: Vec<&str> = lines
        .into_iter()
        .rev()
        .take_while(|line| {
            let fits = left == SAID || line.len() <= left;
            left = left.saturating_sub(line.len());
            fits
        })
        .collect();
    kept.reverse();
    kept.join("; ").chars().take(SAID).collect()
}

/// Why a client can't be created.
pub(crate) fn of_client(error: &kube::Error) -> String {
    match error {
        kube::Error::ProxyProtocolUnsupported { proxy_url }
        | kube::Error::ProxyProtocolDisabled { proxy_url, .. } => {
            format!(
                "{} of the kubeconfig's proxy-url or of HTTPS_PROXY isn't a proxy of HTTP: write one such as http://proxy:3128",
                proxy_url.host().unwrap_or_default()
            )
        }
        kube::Error::RustlsTls(error) => {
            format!("a certificate or key can't be used: {error}")
        }
        other => other.source().map_or_else(|| other.to_string(), chain),
    }
}

/// Why a server can't be trusted or spoken to, if TLS is why a connection failed. `cause` is the innermost cause.
pub(crate) fn of_tls(cause: &(dyn Error + 'static)) -> Option<String> {
    Some(match tls_error(cause)? {
        rustls::Error::InvalidMessage(_) => {
            "it answers in the clear: write http://, or the port on which it has TLS".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "nothing here trusts the authority that signed its certificate: write that authority's certificate into the kubeconfig \
             (certificate-authority), or for the page by --page-ca"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate isn't for this name: write a name that it is for, or tls-server-name".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        other => other.to_string(),
    })
}

/// An error of TLS, which is wrapped in one of input and output for each layer of the connection.
fn tls_error<'e>(cause: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(found) = cause.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    tls_error(cause.downcast_ref::<io::Error>()?.get_ref()?)
}

/// A text without the numbers of the system's errors, which stand behind their words.
#[must_use]
pub fn without_numbers(error: &dyn Display) -> String {
    let text = error.to_string();
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::ExitStatusExt as _,
        process::{ExitStatus, Output},
    };

    use super::*;

    fn failed(stderr: &str) -> AuthError {
        let out = Output {
            status: ExitStatus::from_raw(255 << 8),
            stdout: b"secret".to_vec(),
            stderr: stderr.as_bytes().to_vec(),
        };
        AuthError::AuthExecRun { cmd: "KUBERNETES_EXEC_INFO=\"{}\" \"aws\"".to_owned(), out: Box::new(out) }
    }

    #[test]
    fn program_for_credentials_that_fails_is_named_with_what_it_said_last() {
        let text = of_credentials(&failed("\nwarning\n\nUnable to locate credentials.\n"), Some("aws"));
        assert_eq!(text, "aws failed (exit status: 255): warning; Unable to locate credentials.");
        let long = format!("first\n{}\nlast", "x".repeat(SAID));
        assert_eq!(of_credentials(&failed(&long), Some("aws")), "aws failed (exit status: 255): last");
        assert!(of_credentials(&failed(&"x".repeat(2 * SAID)), None).len() < 2 * SAID);
        assert_eq!(of_credentials(&failed(""), Some("aws")), "aws failed (exit status: 255): without a word");
    }

    #[test]
    fn program_for_credentials_that_fails_later_is_said_the_same_way() {
        let text = of_service(&failed("expired"));
        assert!(
            text.starts_with("there are no credentials: the program that the kubeconfig names"),
            "{text}"
        );
        assert!(text.ends_with("failed (exit status: 255): expired"), "{text}");
        assert_eq!(of_service(&io::Error::other("refused")), "refused");
    }

    #[test]
    fn error_of_tls_is_found_below_those_of_input_and_output() {
        let inner = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::other(io::Error::other(inner));
        assert!(of_tls(&error).unwrap().contains("certificate-authority"));
        assert_eq!(of_tls(&io::Error::other("refused")), None);
    }

    #[test]
    fn errors_of_the_system_have_words_and_no_numbers() {
        let text = "a: No such file (os error 2): b: refused (os error 111); try again";
        assert_eq!(without_numbers(&text), "a: No such file: b: refused; try again");
        assert_eq!(without_numbers(&io::Error::other("whole")), "whole");
    }

    #[test]
    fn files_of_a_kubeconfig_that_are_missing_are_named_once() {
        let missing = io::Error::from_raw_os_error(2);
        let error = LoadDataError::ReadFile(missing, "/none.crt".into());
        let text = of_kubeconfig(&KubeconfigError::LoadCertificateAuthority(error));
        assert_eq!(
            text,
            "the file /none.crt of its certificate-authority can't be read: No such file or directory"
        );
    }
}
