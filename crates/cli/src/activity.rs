//! The line on standard error that shows the work of a long command, while that is a terminal.

use std::{borrow::Cow, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two drawings.
const TICK: Duration = Duration::from_millis(120);

/// A line with the work and its time so far, from the first tick until it is dropped. Where standard error isn't a
/// terminal, nothing is written.
///
/// It is dropped before anything else is written.
pub(crate) struct Activity(ProgressBar);

impl Activity {
    pub(crate) fn start(what: impl Into<Cow<'static, str>>) -> Self {
        let line = ProgressBar::new_spinner().with_message(what);
        // A template without unknown keys; the usual one else.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            line.set_style(style);
        }
        line.enable_steady_tick(TICK);
        Self(line)
    }

    /// Replaces the text.
    pub(crate) fn say(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
