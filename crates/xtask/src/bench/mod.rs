//! Every benchmark, its figures kept in a file and compared.
//!
//! ```text
//! suite (programs, time limits) --cargo bench--> output --figures--> medians --> a line of the history per benchmark
//!                                   |                                   |
//!   head and base take turns -------'                                   '--> comparison with the base, or with the last line
//! ```
//!
//! With a base, the same computer runs both commits in turns and a median that is more than 10 % worse fails. Without one,
//! the last line of the history is of another hour and perhaps of another computer: it is shown, and fails nothing.

mod command;
mod comparison;
mod figures;
mod history;
mod runner;
mod suite;
mod tree;

pub(crate) use command::{BenchArgs, run};
