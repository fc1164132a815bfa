//! A proxy on loopback that a test can cut, block and delay.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

const CHUNK: usize = 16 * 1024;

/// Faults of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It passes.
    Open,
    /// Connections break, and new ones break at once.
    Cut,
    /// Nothing passes, but no connection breaks: packets are lost.
    Held,
    /// Every chunk is delayed by this.
    Slow(Duration),
}

/// A proxy to one server. Dropping it ends it.
#[derive(Debug)]
pub struct Proxy {
    /// Its address.
    pub address: SocketAddr,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to `server`.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (way, seen) = watch::channel(Way::Open);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, seen.clone()));
            }
        });
        Ok(Self { address, way, task })
    }

    /// Changes what happens to traffic from now on.
    pub fn set(&self, way: Way) {
        let _ = self.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its connections hold the receiver, and break with it.
        self.set(Way::Cut);
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut way: watch::Receiver<Way>) {
    if *way.borrow() == Way::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) = (way.clone(), way.clone());
    tokio::select! {
        () = pump(from_client, to_server, up) => {}
        () = pump(from_server, to_client, down) => {}
        _ = way.wait_for(|way| *way == Way::Cut) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: watch::Receiver<Way>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if way.wait_for(|way| *way != Way::Held).await.is_err() {
            return;
        }
        let now = *way.borrow();
        if let Way::Slow(by) = now {
            sleep(by).await;
        }
        if to.write_all(chunk.get(..length).unwrap_or_default()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn says(stream: &mut TcpStream, word: &[u8; 2]) -> bool {
        let mut heard = [0; 2];
        stream.write_all(word).await.is_ok() && stream.read_exact(&mut heard).await.is_ok() && heard == *word
    }

    #[tokio::test]
    async fn blocked_traffic_arrives_later_and_cut_traffic_never() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(says(&mut stream, b"hi").await);
        proxy.set(Way::Held);
        stream.write_all(b"ho").await.unwrap();
        let mut heard = [0; 2];
        let nothing = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut heard)).await;
        assert!(nothing.is_err(), "{heard:?}");
        proxy.set(Way::Open);
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"ho");
        proxy.set(Way::Cut);
        assert!(!says(&mut stream, b"no").await);
        let mut again = TcpStream::connect(proxy.address).await.unwrap();
        assert!(!says(&mut again, b"no").await);
        proxy.set(Way::Slow(Duration::from_millis(1)));
        let mut later = TcpStream::connect(proxy.address).await.unwrap();
        assert!(says(&mut later, b"ok").await);
    }
}
