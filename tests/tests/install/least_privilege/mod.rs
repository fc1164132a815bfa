//! Permissions of Croft's own identities: what a stolen token is denied, and that every granted verb is used.

mod stolen;
mod verbs;
