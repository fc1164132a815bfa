//! Logs: one line per event on standard error, as JSON or as text. The filter can be replaced while the process runs.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, reload, util::SubscriberInitExt};

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
    /// The process has no logs any more.
    #[error("failed to replace the log filter: {0}")]
    Replace(#[from] reload::Error),
}

type Replace = dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync;

/// The filter of the process's logs.
#[derive(Clone)]
pub struct LogFilter {
    text: Arc<Mutex<String>>,
    replace: Arc<Replace>,
}

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFilter").field(&self.text()).finish()
    }
}

impl LogFilter {
    fn new(
        text: &str,
        replace: impl Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { text: Arc::new(Mutex::new(text.to_owned())), replace: Arc::new(replace) }
    }

    /// The filter in force, as it was written.
    #[must_use]
    pub fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the filter. The one in force stays after an error.
    ///
    /// # Errors
    /// If `text` is malformed.
    pub fn set(&self, text: &str) -> Result<(), TelemetryError> {
        let filter = parse(text)?;
        let mut held = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        (self.replace)(filter)?;
        text.clone_into(&mut held);
        Ok(())
    }
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })
}

/// Sends the process's events to standard error. Returns the filter, to be replaced later.
///
/// # Errors
/// If `filter` is malformed, or logs are set up already.
pub fn init(filter: &str, format: LogFormat) -> Result<LogFilter, TelemetryError> {
    let lines = tracing_subscriber::fmt().with_env_filter(parse(filter)?).with_writer(std::io::stderr);
    Ok(match format {
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false).with_filter_reloading();
            let handle = lines.reload_handle();
            lines.finish().try_init()?;
            LogFilter::new(filter, move |new| handle.reload(new))
        }
        LogFormat::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            lines.finish().try_init()?;
            LogFilter::new(filter, move |new| handle.reload(new))
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Collects log lines.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// A filter, and a subscriber for this thread that obeys it and writes into `lines`.
    pub(crate) fn subscribed(lines: &Lines) -> (LogFilter, tracing::subscriber::DefaultGuard) {
        let built = tracing_subscriber::fmt()
            // Tests look for keys and values, which colours would part.
            .with_ansi(false)
            .with_env_filter(parse("info").unwrap())
            .with_writer(lines.clone())
            .with_filter_reloading();
        let handle = built.reload_handle();
        (
            LogFilter::new("info", move |new| handle.reload(new)),
            tracing::subscriber::set_default(built.finish()),
        )
    }

    #[test]
    fn a_new_filter_shows_debug_lines_and_a_malformed_one_changes_nothing() {
        let lines = Lines::default();
        let (filter, _guard) = subscribed(&lines);
        let log = |number: u32| tracing::debug!(number, "a line");
        log(1);
        filter.set("debug").unwrap();
        log(2);
        let error = filter.set("croft=loudly").unwrap_err();
        assert!(error.to_string().contains("write a level such as info"), "{error}");
        assert_eq!(filter.text(), "debug");
        log(3);
        filter.set("info").unwrap();
        log(4);
        let text = lines.text();
        let shown: Vec<bool> = (1..=4).map(|number| text.contains(&format!("number={number}"))).collect();
        assert_eq!(shown, [false, true, true, false], "{text}");
    }
}
