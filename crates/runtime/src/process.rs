//! The start of a process: arguments, crypto provider, telemetry, runtime and signals.

use std::{error::Error, future::Future, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{
    admin,
    build::Build,
    shutdown::Shutdown,
    telemetry::{self, LogFormat},
};

/// Arguments that every server has.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessArgs {
    /// Kubeconfig of the cluster. Default: KUBECONFIG, the pod's service account, ~/.kube/config
    #[arg(long, value_name = "FILE", env = "CROFT_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz answer, in the clear
    #[arg(long, value_name = "ADDRESS", env = "CROFT_HEALTH_LISTEN", default_value = "0.0.0.0:8081")]
    pub health_listen: SocketAddr,
    /// Where the log filter is shown and replaced, on loopback only: GET and PUT /log. Default: nowhere
    #[arg(long, value_name = "ADDRESS", env = "CROFT_ADMIN_LISTEN", value_parser = loopback)]
    pub admin_listen: Option<SocketAddr>,
    /// Log filter: a level, or target=level pairs
    #[arg(long, value_name = "FILTER", env = "CROFT_LOG", default_value = "info")]
    pub log: String,
    /// Format of log lines
    #[arg(long, env = "CROFT_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
    /// Threads that serve; one per core if not given
    #[arg(long, value_name = "N", env = "CROFT_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    let error = || "write a loopback address, such as 127.0.0.1:8082".to_owned();
    if address.ip().is_loopback() { Ok(address) } else { Err(error()) }
}

/// Makes ring the crypto provider of the process.
///
/// With two providers linked rustls picks none and panics when first used, so every binary and every test that opens a
/// TLS connection installs one. A repeated call has no effect.
pub fn install_crypto() {
    // The error says that a provider is installed already: by an earlier call of this function.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The whole `main` of a server: parses `A`, with the version of `build`, sets up crypto, logs, runtime and signals, and runs `work` until it ends.
/// An error is logged and gives exit code 1.
pub fn main<A, F, E>(
    build: Build,
    process: impl FnOnce(&A) -> &ProcessArgs,
    work: impl FnOnce(A, Shutdown) -> F,
) -> ExitCode
where
    A: Parser,
    F: Future<Output = Result<(), E>>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    install_crypto();
    let matches = A::command().version(build.clap_version()).get_matches();
    let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let common = process(&args);
    let admin_listen = common.admin_listen;
    let filter = match telemetry::init(&common.log, common.log_format) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all();
    if let Some(threads) = common.threads {
        builder.worker_threads(threads.into());
    }
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "failed to start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        if let Some(address) = admin_listen {
            admin::spawn(address, filter, shutdown.clone()).await?;
        }
        work(args, shutdown).await.map_err(Into::into)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&*error), "stopped");
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, once each: a cause whose text its parent already ends with isn't repeated.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
