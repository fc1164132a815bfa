//! Shared parts of the tests against real servers.

pub mod arena;
pub mod attacks;
pub mod audit;
pub mod bad_edits;
pub mod chaos;
pub mod cli;
pub mod corpus;
pub mod cyclonus;
pub mod day2;
pub mod invariants;
pub mod lab;
pub mod later;
pub mod manifests;
pub mod node;
pub mod operations;
pub mod page;
pub mod page_reader;
pub mod pods;
pub mod policy_outage;
pub mod proxy;
pub mod recorder;
pub mod releases;
pub mod replicas;
pub mod stack;
pub mod upgrade;
