//! The provider against the simulated EC2, with the real SDK on the wire.

mod bed;
mod discovery;
mod ending;
mod launching;
mod rights;
