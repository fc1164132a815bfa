//! Readiness requests to Croft's processes.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::error::Error;

/// A process that doesn't answer within this time isn't ready.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// A GET without TLS, on its own connection.
pub async fn get(address: SocketAddr, path: &str) -> Result<Answer, Error> {
    ask(address, "GET", path, "").await
}

/// A POST of JSON without TLS, on its own connection.
pub async fn post(address: SocketAddr, path: &str, body: &str) -> Result<Answer, Error> {
    ask(address, "POST", path, body).await
}

/// A PUT without TLS, on its own connection.
pub async fn put(address: SocketAddr, path: &str) -> Result<Answer, Error> {
    ask(address, "PUT", path, "").await
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<Answer, Error> {
    let failed = || format!("{method} http://{address}{path}");
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0: the body ends with the connection, so its length needn't be parsed.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    };
    let answer = match tokio::time::timeout(ANSWER_WITHIN, asking).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
    .map_err(Error::io(failed()))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    match status {
        Some(status) => Ok(Answer { status, body: body.to_owned() }),
        None => Err(Error::io(failed())(std::io::Error::other("the answer isn't HTTP"))),
    }
}
