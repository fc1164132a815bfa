//! A port on loopback whose connections end in another network namespace, through a socket in the file system.
//!
//! ```text
//!   client --> 127.0.0.1:PORT  (outside) --> folder/NAME.sock --> (inside) address
//! ```

use std::{io, net::SocketAddr, path::Path};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

/// The outer half: passes each connection to the socket, until it is dropped.
///
/// # Errors
/// If no connection can be accepted any more.
pub async fn outside(listener: TcpListener, socket: &Path) -> io::Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        let socket = socket.to_owned();
        tokio::spawn(async move {
            // Without the inner half the client sees a closed connection, as from a server that is down.
            if let Ok(mut server) = UnixStream::connect(&socket).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// The inner half: passes each connection of the socket to `address`, until it is dropped.
///
/// # Errors
/// If the socket can't be made, or accepts no connection any more.
pub async fn inside(socket: &Path, address: SocketAddr) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(address).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_pass_in_both_directions_until_either_end_closes() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("echo.sock");
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = server.local_addr().unwrap();
        let outer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = outer.local_addr().unwrap();
        let halves = {
            let (socket, inner) = (socket.clone(), socket.clone());
            [
                tokio::spawn(async move { inside(&inner, address).await }),
                tokio::spawn(async move { outside(outer, &socket).await }),
            ]
        };
        while !socket.exists() {
            tokio::task::yield_now().await;
        }
        let mut client = TcpStream::connect(port).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut connection, _) = server.accept().await.unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        connection.write_all(b"answer").await.unwrap();
        drop(connection);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
        halves.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
