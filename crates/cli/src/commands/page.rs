//! `croft page`: an address of the page that signs in, through a forwarded port or at its own address.

use std::{
    io::Write as _,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use croft_runtime::connect::Target;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    failure::Failure,
    output::Output,
    own_objects::is_absent,
    page_client::{AUDIENCE, Account, request_token},
    source::ClusterArgs,
    table::{BOLD, NOTE},
};

/// The account that sees the whole page.
const OPERATOR: &str = "croft-page-operator";
/// The name of the page's port on loopback, and the port of this computer in the commands that are printed.
const FORWARD: (&str, u16) = ("forward", 8444);
/// The time in which kubectl says where it listens.
const FORWARD_TIME: Duration = Duration::from_secs(30);
/// Seconds for which a token is valid.
const TOKEN_SECONDS: i64 = 3_600;

/// Arguments of `croft page`.
#[derive(Args, Clone, Debug)]
pub struct PageCommandArgs {
    /// The page's own address, such as https://page.example.com; without it, a port of this computer is forwarded to the page
    #[arg(long, value_name = "URL")]
    url: Option<http::Uri>,
    /// Sign in as this ServiceAccount; croft-page-operator of Croft's namespace sees everything
    #[arg(long = "as-account", value_name = "NAMESPACE/NAME")]
    account: Option<Account>,
    /// The port of this computer; a free one if left out
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true, conflicts_with = "url")]
    port: u16,
    /// Print the commands of kubectl that do the same, and do nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[cfg(test)]
impl PageCommandArgs {
    /// The cluster that is asked.
    pub(crate) const fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }
}

/// Runs the command.
pub(crate) fn run(args: &PageCommandArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let PageCommandArgs { url, account, port, print, cluster } = args;
    let croft_namespace = cluster.croft_namespace();
    let operator = || Account { namespace: croft_namespace.to_owned(), name: OPERATOR.to_owned() };
    let account = account.clone().unwrap_or_else(operator);
    if *print {
        write_commands(&account, url.is_none().then_some(croft_namespace), cluster.target(), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    cluster.run(async |client| {
        let token = request_token(&client, &account, TOKEN_SECONDS).await;
        let token = token.map_err(|error| not_installed(error, &account, croft_namespace))?;
        if let Some(url) = url {
            return write_address(&address(url)?, &token, &account, out);
        }
        let forwarder = Forwarder::start(cluster, croft_namespace, *port).await?;
        write_address(&format!("http://{}", forwarder.address), &token, &account, out)?;
        writeln!(out, "Forwarding to the page in namespace {croft_namespace}; Ctrl-C ends it.")?;
        out.flush()?;
        tokio::select! {
            ended = forwarder.wait() => ended,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// An error of an account that isn't there says what is.
fn not_installed(error: anyhow::Error, account: &Account, croft_namespace: &str) -> anyhow::Error {
    match error.downcast_ref::<kube::Error>() {
        Some(inner)
            if is_absent(inner) && account.name == OPERATOR && account.namespace == croft_namespace =>
        {
            anyhow!(
                "there is no page in namespace {croft_namespace}: set page.enabled of the chart (docs/page.md), or name Croft's namespace by \
                 --croft-namespace"
            )
        }
        Some(inner) if is_absent(inner) => {
            anyhow!("there is no ServiceAccount {account}: write NAMESPACE/NAME of one")
        }
        _ => error,
    }
}

/// The address without a path.
fn address(url: &http::Uri) -> anyhow::Result<String> {
    match (url.scheme_str(), url.authority()) {
        (Some("https"), Some(authority)) => Ok(format!("https://{authority}")),
        _ => bail!("{url} is no address of the page: write https://HOST"),
    }
}

fn write_address(address: &str, token: &str, account: &Account, out: &mut Output) -> anyhow::Result<()> {
    // Behind `#`, the token is sent to no server and stands in no log.
    writeln!(out, "{BOLD}{address}/#token={token}{BOLD:#}")?;
    writeln!(
        out,
        "{NOTE}It signs in as ServiceAccount {account} for an hour: give it to no other person.{NOTE:#}"
    )?;
    Ok(())
}

/// The commands by which `kubectl` does the same. `forward` is Croft's namespace, if a port is forwarded.
fn write_commands(
    account: &Account,
    forward: Option<&str>,
    target: Target<'_>,
    out: &mut Output,
) -> Result<(), Failure> {
    let Account { namespace, name } = account;
    let kubeconfig = target.kubeconfig.map(|file| format!(" --kubeconfig {}", file.display()));
    let context = target.context.map(|name| format!(" --context {name}"));
    let cluster = kubeconfig.into_iter().chain(context).collect::<String>();
    writeln!(
        out,
        "kubectl{cluster} create token {name} --namespace {namespace} --audience {AUDIENCE} --duration 1h"
    )?;
    if let Some(croft) = forward {
        let (remote, local) = FORWARD;
        writeln!(
            out,
            "kubectl{cluster} port-forward --namespace {croft} deployment/croft-page {local}:{remote}"
        )?;
    }
    Ok(())
}

/// A process of kubectl that forwards a port of this computer.
struct Forwarder {
    kubectl: Child,
    address: String,
}

impl Forwarder {
    /// Starts it, and waits until it says where it listens.
    async fn start(cluster: &ClusterArgs, namespace: &str, port: u16) -> anyhow::Result<Self> {
        let mut command = Command::new("kubectl");
        let Target { kubeconfig, context } = cluster.target();
        if let Some(file) = kubeconfig {
            command.arg("--kubeconfig").arg(file);
        }
        if let Some(name) = context {
            command.args(["--context", name]);
        }
        let local = if port == 0 { String::new() } else { port.to_string() };
        command
            .args([
                "port-forward",
                "--address",
                "127.0.0.1",
                "--namespace",
                namespace,
                "deployment/croft-page",
            ])
            .arg(format!("{local}:{}", FORWARD.0))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut kubectl =
            command.spawn().context("failed to run kubectl; croft page --print prints its commands")?;
        let output = kubectl.stdout.take().context("kubectl has no output")?;
        let mut lines = BufReader::new(output).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.context("failed to read from kubectl")? {
                if let Some(address) = listening(&line) {
                    return Ok(address);
                }
            }
            bail!(
                "kubectl forwards no port to the page in namespace {namespace}: set page.enabled of the chart (docs/page.md), or write its address with --url"
            )
        };
        let address =
            timeout(FORWARD_TIME, listening).await.context("kubectl forwarded no port in time")??;
        // It writes a line for each connection, which is read so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { kubectl, address })
    }

    /// Waits until it ends.
    async fn wait(mut self) -> anyhow::Result<()> {
        let status = self.kubectl.wait().await.context("failed to wait for kubectl")?;
        bail!("kubectl ended the forwarding with {status}: run croft page again")
    }
}

/// The address in a line such as `Forwarding from 127.0.0.1:43211 -> 8444`.
fn listening(line: &str) -> Option<String> {
    let address = line.strip_prefix("Forwarding from ")?.split(" -> ").next()?;
    address.starts_with("127.0.0.1:").then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_kubectl_forwards_from_is_read() {
        let read = |line: &str| listening(line);
        assert_eq!(read("Forwarding from 127.0.0.1:43211 -> 8444"), Some("127.0.0.1:43211".to_owned()));
        assert_eq!(read("Forwarding from [::1]:43211 -> 8444"), None);
        assert_eq!(read("Handling connection for 43211"), None);
    }

    #[test]
    fn an_address_is_https_without_its_path() {
        assert_eq!(
            address(&"https://page.example.com/x?y".parse().unwrap()).unwrap(),
            "https://page.example.com"
        );
        let refused = address(&"http://page.example.com".parse().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("write https://HOST"));
    }
}
