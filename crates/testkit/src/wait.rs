//! Polls until the cluster reaches a state.

use std::{fmt::Display, future::Future, time::Duration};

use crate::error::Error;

/// Between two polls.
const POLL: Duration = Duration::from_millis(50);

/// Result of a poll.
#[derive(Debug)]
pub enum Seen<T> {
    /// The state is reached.
    Yes(T),
    /// The present state, for the message on timeout.
    NotYet(String),
}

impl<T> Seen<T> {
    /// `Yes` if there is a value, otherwise the present state.
    pub fn from_option(value: Option<T>, otherwise: impl Display) -> Self {
        value.map_or_else(|| Self::NotYet(otherwise.to_string()), Self::Yes)
    }
}

/// Polls until `what` is reached. A failed poll counts as "not yet" with its error, since the API server may be
/// restarting.
pub async fn until<T, E, F, Fut>(what: &str, within: Duration, mut look: F) -> Result<T, Error>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>, E>>,
{
    let mut last = String::new();
    let looking = async {
        loop {
            match look().await {
                Ok(Seen::Yes(value)) => return value,
                Ok(Seen::NotYet(seen)) => last = seen,
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(POLL).await;
        }
    };
    match tokio::time::timeout(within, looking).await {
        Ok(value) => Ok(value),
        Err(_) => Err(Error::Timeout { what: what.to_owned(), seconds: within.as_secs(), last }),
    }
}
