//! The reference: the same server with a handler that reads the body and answers a constant review.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{Router, body::Body, extract::Request, response::Response, routing::post};
use bytes::Bytes;
use croft_runtime::{
    certificate::bundle::{self, Rotation},
    clock::{Clock as _, SystemClock},
    serve::{Limits, serve as serve_http},
    shutdown::Shutdown,
    tls::TlsSlot,
};
use croft_testkit::reviewer::Trust;
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
};

use crate::cluster::ALLOCATOR;

/// The reference in a process of its own, so that its CPU time is measured separately. Ends when dropped.
pub(crate) struct Floor {
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    pub(crate) trust: Trust,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl Floor {
    /// Starts a reference that answers `answer`.
    pub(crate) async fn start(answer: &[u8]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("answer"), answer)?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["floor".as_ref(), folder.path().as_os_str()])
            .envs(ALLOCATOR)
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = process.stdout.take().context("the floor has no output")?;
        let line = BufReader::new(out).lines().next_line().await?.context("the floor said nothing")?;
        let bundle = std::fs::read_to_string(folder.path().join("bundle"))?;
        Ok(Self {
            address: line.parse()?,
            pid: process.id().context("the floor has ended")?,
            trust: Trust::new(&bundle, "127.0.0.1")?,
            _process: process,
            _folder: folder,
        })
    }
}

/// Serves the content of `folder` and prints the address.
pub(crate) async fn serve(folder: String) -> anyhow::Result<()> {
    let folder = PathBuf::from(folder);
    let answer = Bytes::from(std::fs::read(folder.join("answer"))?);
    let names = ["127.0.0.1".to_owned()];
    let made = bundle::next_bundle(None, &names, &Rotation::default(), None, SystemClock.wall())?;
    std::fs::write(folder.join("bundle"), made.trusted_pem())?;
    let slot = Arc::new(TlsSlot::default());
    slot.install(made.identity())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let router = Router::new().route("/mutate", post(move |request| constant(answer.clone(), request)));
    serve_http(
        listener,
        Some(slot),
        router,
        Limits::for_reviews(Duration::ZERO),
        Arc::default(),
        Shutdown::new(),
    )
    .await;
    Ok(())
}

async fn constant(answer: Bytes, request: Request) -> Response {
    let read = Limited::new(request.into_body(), croft_webhook::server::BODY_LIMIT).collect().await;
    let mut response = Response::new(Body::new(Full::new(answer)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if read.is_err() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response
}
