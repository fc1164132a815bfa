//! Free ports on loopback.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    net::{Ipv4Addr, TcpListener},
};

use crate::error::Error;

/// Below the range of outgoing connections (32768 on, by default): a connection could take a port from there while the
/// server that listens on it restarts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
/// Number of draws before giving up.
const DRAWS: u32 = 200;

/// A port that no process listens on at the moment. Another process may take it first; start again then.
pub fn free() -> Result<u16, Error> {
    let mut last = None;
    for _ in 0..DRAWS {
        // A new RandomState is seeded differently each time, also between processes.
        let random = RandomState::new().build_hasher().finish();
        let offset = u16::try_from(random % u64::from(COUNT)).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, FIRST + offset)) {
            Ok(_) => return Ok(FIRST + offset),
            Err(error) => last = Some(error),
        }
    }
    Err(Error::io("find a free port")(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into())))
}
