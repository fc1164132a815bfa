//! Requests in, answers out: routes, sessions, bounds and headers.
//!
//! ```text
//!  request ──bounds, headers──▶ router ──┬─▶ assets                              no reader
//!                                        ├─▶ session: token to cookie, and back
//!                                        └─▶ Reader (token ▶ scope) ──▶ api: a view for that scope
//!                                                                  └──▶ events: changes for that scope
//! ```

pub mod api;
pub mod assets;
pub mod cookie;
pub mod error;
pub mod events;
pub mod page;
pub mod reader;
pub mod router;
pub mod session;

#[cfg(test)]
mod router_test;
#[cfg(test)]
mod shares_test;
