//! Notes on a conversion.

use std::fmt;

/// A difference between input and output, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    text: String,
    /// True if something of the input is in no output.
    pub(super) is_loss: bool,
}

impl Note {
    /// Everything that the note is about is in the output, in another way.
    pub(super) fn change(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_loss: false }
    }

    /// Something of the input is in no output.
    pub(super) fn loss(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_loss: true }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
