//! The decision log: where it is read from, times in arguments and output, and tables of entries.

mod show;
mod source;
mod time;

pub(crate) use show::{dollars, write_entries};
pub(crate) use source::RecordArgs;
pub(crate) use time::{parse_moment, parse_period, text};
