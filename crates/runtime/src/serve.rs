//! HTTP/1.1 over TLS or in the clear, with every wait bounded.
//!
//! What a hostile or broken client could make us keep is bounded: the number of connections, the time of a
//! handshake, the time until a request's head is complete, the time that a connection may idle. A deadline
//! on the body is the handler's, since only it knows what it reads.
//!
//! ```text
//!  stop ──▶ lame duck: still accepting, every answer says `connection: close`
//!             │ Limits::lame_duck
//!             ▼
//!           closing: nothing accepted, idle connections closed, requests under way finished
//!             │ Limits::grace
//!             ▼
//!           dropped
//! ```
//!
//! The lame duck is what makes a rolling restart lose nothing: an API server that keeps a connection alive
//! doesn't look at endpoints, so closing an idle connection under it races with its next request, and a POST
//! isn't repeated. Told to close with an answer, it never sends one into a closing connection.

use std::{
    io,
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
    sync::Semaphore,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use crate::{shutdown::Shutdown, tls::TlsSlot};

/// How long to wait after the system refused to accept a connection (out of file descriptors, mostly).
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// How often a connection looks at its own progress.
const TICK: Duration = Duration::from_secs(1);

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once; further ones wait in the system's queue.
    pub connections: usize,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From a request's first byte to the end of its head, in whole seconds.
    pub head: Duration,
    /// Between two requests, in whole seconds. Longer than the 90 s after which Go's client, and so the API server, closes an
    /// idle connection itself: whoever closes second never races with a request.
    pub idle: Duration,
    /// From a request's head to its answer, in whole seconds: the net under the handler's own deadlines.
    pub request: Duration,
    /// How long the server goes on accepting after it was asked to stop.
    pub lame_duck: Duration,
    /// How long requests under way may then take.
    pub grace: Duration,
}

impl Limits {
    /// For reviews from API servers.
    #[must_use]
    pub const fn for_reviews(lame_duck: Duration) -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(180),
            request: Duration::from_secs(30),
            lame_duck,
            grace: Duration::from_secs(5),
        }
    }

    /// For probes and scrapes.
    #[must_use]
    pub const fn for_probes() -> Self {
        Self {
            connections: 64,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            request: Duration::from_secs(30),
            lame_duck: Duration::ZERO,
            grace: Duration::from_secs(1),
        }
    }
}

/// Serves `router` on `listener` until `stop` begins and the drain is over.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<TlsSlot>>,
    router: Router,
    limits: Limits,
    stop: Shutdown,
) {
    let server = Arc::new(Server {
        tls,
        router,
        limits,
        draining: AtomicBool::new(false),
        closing: CancellationToken::new(),
    });
    let slots = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();

    let accepting = accept(&listener, &server, &slots, &connections);
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
    draining: AtomicBool,
    closing: CancellationToken,
}

async fn accept(
    listener: &TcpListener,
    server: &Arc<Server>,
    slots: &Arc<Semaphore>,
    connections: &TaskTracker,
) {
    // Acquiring fails only on a closed semaphore, and nobody closes this one.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = server.clone();
                connections.spawn(async move {
                    server.connection(stream).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

impl Server {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Without it an answer may wait for the client's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection was gone before it was served");
            return;
        }
        let Some(slot) = &self.tls else { return self.http(stream).await };
        let Some(acceptor) = slot.acceptor() else { return };
        match timeout(self.limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let (_, session) = stream.get_ref();
                if slot.admits(session.peer_certificates().and_then(<[_]>::first)) {
                    self.http(stream).await;
                } else {
                    tracing::warn!("a client whose certificate has another name was turned away");
                }
            }
            Ok(Err(error)) => tracing::debug!(%error, "handshake failed"),
            Err(_) => tracing::debug!("handshake took too long"),
        }
    }

    async fn http<S>(self: Arc<Self>, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let progress = Arc::new(Progress::default());
        let io = TokioIo::new(Watched { stream, progress: progress.clone() });
        let service = {
            let (server, progress) = (self.clone(), progress.clone());
            service_fn(move |request: Request<Incoming>| {
                progress.enter(Phase::Request);
                let answer = server.router.clone().call(request.map(Body::new));
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
        let connection = http1::Builder::new().half_close(false).serve_connection(io, service);
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

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Reading a head. A new connection is here: nobody opens one without having something to say.
    Head = 0,
    /// Between the head and the answer.
    Request = 1,
    /// Between an answer and the next head.
    Idle = 2,
}

/// Where a connection is, counted in ticks: hyper's own timeout on heads also runs while a connection idles.
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

    /// Bytes have come in.
    fn received(&self) {
        if self.phase.load(Ordering::Relaxed) == Phase::Idle as u8 {
            self.enter(Phase::Head);
        }
    }

    /// Counts a tick. True when the connection has been where it is for too long.
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

/// A stream that tells [`Progress`] when something arrives.
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
