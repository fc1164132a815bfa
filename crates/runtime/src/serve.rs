//! HTTP/1.1 with or without TLS, with every wait bounded. Called by the webhook and by the health server.
//!
//! Bounds the resources of each client, which may be hostile or broken: connections and handshakes in flight, both by source (see
//! [`crate::share`]), the memory of a connection, the time of a handshake, the time until a request's head is complete,
//! and the time that a connection may idle. The handler sets the deadline of the body, since only the handler knows
//! what it reads. Each request carries its [`Peer`] as an extension, by which the handler shares its own bounds.
//!
//! ```text
//!  stop ──▶ lame duck: still accepting, every answer says `connection: close`
//!             │ Limits::lame_duck
//!             ▼
//!           closing: nothing accepted, idle connections closed, requests in flight finished
//!             │ Limits::grace
//!             ▼
//!           dropped
//! ```
//!
//! The lame-duck phase keeps a rolling restart from losing requests. An API server that keeps a connection alive
//! doesn't look at endpoints, so closing an idle connection races with its next request, and a POST isn't repeated.
//! Told to close by an answer, the API server never sends a request into a closing connection.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use http::{HeaderValue, Request, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use crate::{
    share::{Peer, Share, Shares, Source},
    shutdown::Shutdown,
    tls::{TlsSlot, common_name},
};

/// Pause after the system refused to accept a connection, mostly for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Interval at which a connection checks its own progress.
const TICK: Duration = Duration::from_secs(1);
/// Read buffer of a connection, heads included; hyper's own bound is 400 KiB. The head of an API server's request has
/// less than 1 KiB.
const READ_BUFFER_BYTES: usize = 32 << 10;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. A connection beyond its source's share is closed at once.
    pub connections: usize,
    /// TLS handshakes in flight, shared likewise.
    pub handshakes: usize,
    /// Time of the TLS handshake.
    pub handshake: Duration,
    /// Time from a request's first byte to the end of its head, in whole seconds.
    pub head: Duration,
    /// Time between two requests, in whole seconds. Longer than the 90 s after which Go's client, and so the API
    /// server, closes an idle connection itself: the side that closes second never races with a request.
    pub idle: Duration,
    /// Time from a request's head to its answer, in whole seconds: an upper bound for the handler's own deadlines.
    pub request: Duration,
    /// Time for which the server goes on accepting after it was asked to stop.
    pub lame_duck: Duration,
    /// Time that requests in flight then have.
    pub grace: Duration,
}

impl Limits {
    /// Bounds of reviews from API servers.
    #[must_use]
    pub const fn for_reviews(lame_duck: Duration) -> Self {
        Self {
            connections: 1024,
            handshakes: 256,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(180),
            request: Duration::from_secs(30),
            lame_duck,
            grace: Duration::from_secs(5),
        }
    }

    /// Bounds of probes and scrapes.
    #[must_use]
    pub const fn for_probes() -> Self {
        Self {
            connections: 64,
            handshakes: 64,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            request: Duration::from_secs(30),
            lame_duck: Duration::ZERO,
            grace: Duration::from_secs(1),
        }
    }
}

/// The address can't be listened on: the port is in use, or the address isn't local.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address} for {purpose}: {source}")]
pub struct BindError {
    address: SocketAddr,
    purpose: &'static str,
    source: io::Error,
}

/// Listens on `address`. Returns the address with the port that the system chose, where `address` has port 0. `purpose` says in
/// the error what the listener is for.
///
/// # Errors
/// If the port is in use, or the address isn't local.
pub async fn bind(
    address: SocketAddr,
    purpose: &'static str,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError { address, purpose, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves `router` on `listener` until `stop` begins and the drain is over. `shares` counts what is open.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<TlsSlot>>,
    router: Router,
    limits: Limits,
    shares: Arc<Shares>,
    stop: Shutdown,
) {
    let server = Arc::new(Server {
        tls,
        router,
        limits,
        shares,
        draining: AtomicBool::new(false),
        closing: CancellationToken::new(),
    });
    let connections = TaskTracker::new();

    let accepting = accept(&listener, &server, &connections);
    tokio::select! {
        () = accepting => {}
        () = async {
            stop.wait().await;
            server.draining.store(true, Ordering::Release);
            sleep(limits.lame_duck).await;
        } => {}
    }
    drop(listener);
    connections.close();
    server.closing.cancel();
    if timeout(limits.grace, connections.wait()).await.is_err() {
        tracing::warn!(left = connections.len(), "connections were still open when the grace was over");
    }
}

struct Server {
    tls: Option<Arc<TlsSlot>>,
    router: Router,
    limits: Limits,
    shares: Arc<Shares>,
    draining: AtomicBool,
    closing: CancellationToken,
}

async fn accept(listener: &TcpListener, server: &Arc<Server>, connections: &TaskTracker) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                connections.spawn(server.clone().connection(stream, address));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

impl Server {
    async fn connection(self: Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let peer = self.shares.peers.of(Source::of(address.ip()));
        let Limits { connections, handshakes, handshake, .. } = self.limits;
        // Where clients must show a certificate, a connection counts once its source is known.
        let asks = self.tls.as_ref().is_some_and(|slot| slot.asks_clients());
        let open = if asks { None } else { self.shares.connections.take(&peer.connections, 1, connections) };
        if open.is_none() && !asks {
            return refused("connections", &self.shares.connections, address);
        }
        // Without it an answer may wait for the client's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection was gone before it was served");
            return;
        }
        let Some(slot) = &self.tls else { return self.clone().http(stream, peer.clone()).await };
        let Some(acceptor) = slot.acceptor() else { return };
        let Some(shaking) = self.shares.handshakes.take(&peer.handshakes, 1, handshakes) else {
            return refused("handshakes", &self.shares.handshakes, address);
        };
        let accepted = timeout(handshake, acceptor.accept(stream)).await;
        drop(shaking);
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "handshake failed"),
            Err(_) => return tracing::debug!("handshake took too long"),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        if !slot.admits(certificate) {
            return tracing::warn!("a client whose certificate has another name was turned away");
        }
        if !asks {
            return self.clone().http(stream, peer.clone()).await;
        }
        let name = certificate.and_then(|certificate| common_name(certificate)).unwrap_or_default();
        let peer = self.shares.peers.of(Source::Certificate(name));
        let Some(_open) = self.shares.connections.take(&peer.connections, 1, connections) else {
            return refused("connections", &self.shares.connections, address);
        };
        self.clone().http(stream, peer.clone()).await;
    }

    async fn http<S>(self: Arc<Self>, stream: S, peer: Arc<Peer>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let progress = Arc::new(Progress::default());
        let io = TokioIo::new(Watched { stream, progress: progress.clone() });
        let service = {
            let (server, progress) = (self.clone(), progress.clone());
            service_fn(move |request: Request<Incoming>| {
                progress.enter(Phase::Request);
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer.clone());
                let answer = server.router.clone().call(request);
                let (server, progress) = (server.clone(), progress.clone());
                async move {
                    let mut answer = answer.await;
                    if server.draining.load(Ordering::Acquire)
                        && let Ok(answer) = &mut answer
                    {
                        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    progress.enter(Phase::Idle);
                    answer
                }
            })
        };
        let connection = http1::Builder::new()
            .half_close(false)
            .max_buf_size(READ_BUFFER_BYTES)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut closing = std::pin::pin!(self.closing.cancelled());
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "connection ended");
                    }
                    return;
                }
                () = closing.as_mut(), if !told => {
                    connection.as_mut().graceful_shutdown();
                    told = true;
                }
                _ = tick.tick() => {
                    if progress.tick(&self.limits) {
                        tracing::debug!("connection was too slow, or idle for too long");
                        return;
                    }
                }
            }
        }
    }
}

/// Logs refusals without flooding the log: the first one, the second, the fourth, and so on.
fn refused(what: &str, share: &Share, address: SocketAddr) {
    let times = share.refused();
    if times.is_power_of_two() {
        tracing::warn!(resource = what, peer = %address.ip(), times, "a client has more than its share, and is turned away");
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// The head is being read. A new connection starts here, since a client opens one to send a request.
    Head = 0,
    /// Between the head and the answer.
    Request = 1,
    /// Between an answer and the next head.
    Idle = 2,
}

/// The state of a connection, timed in ticks: hyper's own timeout on heads also runs while a connection idles.
#[derive(Default)]
struct Progress {
    phase: AtomicU8,
    ticks: AtomicU32,
}

impl Progress {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Records that bytes have come in.
    fn received(&self) {
        if self.phase.load(Ordering::Relaxed) == Phase::Idle as u8 {
            self.enter(Phase::Head);
        }
    }

    /// Counts a tick. True if the connection has been in its state for too long.
    fn tick(&self, limits: &Limits) -> bool {
        let ticks = self.ticks.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let limit = match self.phase.load(Ordering::Relaxed) {
            0 => limits.head,
            1 => limits.request,
            _ => limits.idle,
        };
        u64::from(ticks) > limit.as_secs().saturating_add(1)
    }
}

/// A stream that reports arriving bytes to [`Progress`].
struct Watched<S> {
    stream: S,
    progress: Arc<Progress>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.progress.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_connection_may_wait_long() {
        let limits = Limits::for_probes();
        let ticks_until_closed = |progress: &Progress| (1..).find(|_| progress.tick(&limits)).unwrap();

        let fresh = Progress::default();
        assert_eq!(ticks_until_closed(&fresh), limits.head.as_secs() + 2);

        let idle = Progress::default();
        idle.enter(Phase::Idle);
        assert_eq!(ticks_until_closed(&idle), limits.idle.as_secs() + 2);

        let dripping = Progress::default();
        dripping.enter(Phase::Idle);
        for _ in 0..limits.head.as_secs() + 1 {
            dripping.received();
            assert!(!dripping.tick(&limits));
        }
        assert!(dripping.tick(&limits), "bytes that come one by one don't put the deadline off");
    }
}
