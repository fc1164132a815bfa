//! Logs: one line per event on standard error, as JSON for machines or text for people.

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, fmt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter isn't one.
    #[error(
        "failed to read the log filter {filter:?}: {source}; write a level such as info, or target=level pairs"
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logs were set up already.
    #[error("failed to set up logs: {0}")]
    Init(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends the process's events to standard error.
///
/// # Errors
/// When `filter` is malformed, or logs were set up already.
pub fn init(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).finish().try_init()?,
        LogFormat::Text => lines.finish().try_init()?,
    }
    Ok(())
}
