//! Logs: one line per event on standard error, as JSON or as text.

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, fmt, util::SubscriberInitExt};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Text for people.
    Text,
}

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter can't be parsed.
    #[error(
        "failed to read the log filter {filter:?}: {source}; write a level such as info, or target=level pairs"
    )]
    Filter {
        /// The filter.
        filter: String,
        /// The reason.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logs are set up already.
    #[error("failed to set up logs: {0}")]
    Init(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends the process's events to standard error.
///
/// # Errors
/// If `filter` is malformed, or logs are set up already.
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
