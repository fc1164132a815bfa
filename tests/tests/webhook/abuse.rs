//! Attacks on the webhook's port by hostile or broken clients: everything is bounded, and the API server's connections
//! are answered meanwhile.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options,
    reviewer::{self, Reviewer, Trust},
    wait,
};
use croft_tests::replicas::Replicas;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const CONNECTIONS: usize = 48;
const REVIEWS: usize = 6;
/// Margin for deadlines of a few seconds, on a busy computer.
const SOON: Duration = Duration::from_secs(60);

struct Setup {
    plane: ControlPlane,
    replicas: Replicas,
    name: String,
    address: SocketAddr,
    health: SocketAddr,
    trust: Trust,
}

async fn setup() -> Setup {
    let connections = format!("--max-connections={CONNECTIONS}");
    let reviews = format!("--max-inflight={REVIEWS}");
    setup_with(&["--drain=1", &connections, &reviews]).await
}

async fn setup_with(flags: &[&str]) -> Setup {
    croft_runtime::process::install_crypto();
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    let mut replicas = Replicas::new(&plane, flags).await.unwrap();
    let name = replicas.add(&plane).await.unwrap();
    let (address, health) = replicas.addresses(&name).unwrap();
    let api: Api<MutatingWebhookConfiguration> = Api::all(plane.admin().await.unwrap());
    let bundle = wait::until("the webhooks written", SOON, async || {
        let hooks = api.get("croft-webhook").await?.webhooks.unwrap_or_default();
        let bundle = hooks.into_iter().find_map(|hook| hook.client_config.ca_bundle);
        Ok::<_, kube::Error>(wait::Seen::from_option(bundle, "no webhooks"))
    })
    .await
    .unwrap();
    let bundle = String::from_utf8(bundle.0).unwrap();
    Setup { plane, replicas, name, address, health, trust: Trust::new(&bundle, "127.0.0.1").unwrap() }
}

fn review() -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "kube-system", "operation": "CREATE",
        "userInfo": {"username": "someone"}, "object": {"metadata": {"name": "p"}, "spec": {}}, "dryRun": false}})
    .to_string()
    .into_bytes()
}

impl Setup {
    async fn reviewer(&self) -> io::Result<Reviewer> {
        Reviewer::connect(self.address, &self.trust).await
    }

    async fn head(&self, length: usize) -> Reviewer {
        let mut reviewer = self.reviewer().await.unwrap();
        let head = format!("POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: {length}\r\n\r\n");
        reviewer.write(head.as_bytes()).await.unwrap();
        reviewer
    }

    async fn metric(&self, line: &str) -> f64 {
        let metrics = croft_testkit::http::get(self.health, "/metrics").await.unwrap();
        let found = metrics.body.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {line} in {}", metrics.body))
    }
}

async fn good(reviewer: &mut Reviewer) {
    let (status, body) =
        timeout(SOON, reviewer.post("/mutate?timeout=3s", &review())).await.unwrap().unwrap();
    assert_eq!(status, 200);
    assert!(String::from_utf8_lossy(&body).contains("\"allowed\":true"));
}

/// Waits until the server closes the connection. Returns what it sent before.
async fn closed(reviewer: &mut Reviewer) -> String {
    let said = timeout(SOON, reviewer.rest()).await.expect("the server closes what is too slow");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_or_long_requests_are_bounded_and_delay_no_other() {
    let mut setup = setup().await;
    let mut kept = setup.reviewer().await.unwrap();
    good(&mut kept).await;

    // A head that is sent byte by byte and never ends.
    let mut slow = setup.reviewer().await.unwrap();
    let dripping = async {
        for byte in b"POST /mutate HTTP/1.1\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'a')) {
            if slow.write(&[*byte]).await.is_err() {
                break;
            }
            good(&mut kept).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON, dripping).await.expect("a head that doesn't end ends the connection");

    // A silent connection, before and after its handshake.
    let mut silent = setup.reviewer().await.unwrap();
    assert_eq!(closed(&mut silent).await, "");
    let mut raw = TcpStream::connect(setup.address).await.unwrap();
    let mut nothing = Vec::new();
    timeout(SOON, raw.read_to_end(&mut nothing)).await.expect("no handshake, no connection").unwrap();
    assert!(nothing.is_empty());

    // A body that stops.
    let mut stalled = setup.head(1000).await;
    stalled.write(b"{\"apiVersion\":").await.unwrap();
    let said = closed(&mut stalled).await;
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("didn't arrive within"), "{said}");
    good(&mut kept).await;

    // Oversized bodies: one with a declared length isn't read, one without is read up to the limit.
    let mut announced = setup.head(9 << 20).await;
    assert!(closed(&mut announced).await.starts_with("HTTP/1.1 413 "));
    let mut endless = setup.reviewer().await.unwrap();
    endless
        .write(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let chunk = [format!("{:x}\r\n", 1 << 16).into_bytes(), vec![b' '; 1 << 16], b"\r\n".to_vec()].concat();
    let mut sent = 0;
    while sent < 64 << 20 && endless.write(&chunk).await.is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 64 << 20, "more than the limit was taken");
    good(&mut kept).await;

    // Bytes that aren't HTTP over TLS, or contradict themselves.
    let mut plain = TcpStream::connect(setup.address).await.unwrap();
    plain.write_all(b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(SOON, plain.read_to_end(&mut answer)).await.expect("closed");
    assert!(!answer.starts_with(b"HTTP"));
    let mut two = setup.reviewer().await.unwrap();
    two.write(b"POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\n")
        .await
        .unwrap();
    assert!(closed(&mut two).await.starts_with("HTTP/1.1 400 "));
    let mut long = setup.reviewer().await.unwrap();
    let line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(1 << 20));
    let _ = long.write(line.as_bytes()).await;
    let said = closed(&mut long).await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    good(&mut kept).await;

    // A client in the middle of a body doesn't delay shutdown.
    let mut last = setup.head(1000).await;
    last.write(b"{").await.unwrap();
    setup.replicas.terminate(&setup.name.clone(), SOON).await.unwrap();
    drop(setup.plane);
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_is_refused_and_open_connections_are_served() {
    let setup = setup().await;
    let mut kept = setup.reviewer().await.unwrap();
    good(&mut kept).await;

    // Reviews above the limit are told to retry, at once.
    let mut stalled = Vec::new();
    for _ in 0..REVIEWS {
        let mut reviewer = setup.head(1 << 10).await;
        reviewer.write(b"{").await.unwrap();
        stalled.push(reviewer);
    }
    // Stalled reviews are aborted after 2 s, so the test must hit the time in which the limit is reached.
    let full = async {
        while kept.post("/mutate?timeout=3s", &review()).await.unwrap().0 != 429 {
            let mut reviewer = setup.head(1 << 10).await;
            reviewer.write(b"{").await.unwrap();
            stalled.push(reviewer);
        }
    };
    timeout(SOON, full).await.expect("one too many is told so");
    assert!(
        setup.metric("croft_webhook_admission_requests_total{phase=\"mutate\",outcome=\"overload\"}").await
            >= 1.0
    );
    for reviewer in &mut stalled {
        assert!(closed(reviewer).await.starts_with("HTTP/1.1 4"));
    }
    drop(stalled);
    good(&mut kept).await;

    // More connections than allowed, all idle and none closed by the client: from the address that an API server shares
    // with the flood, as behind a NAT. Open ones are served, and connections are freed without help.
    let mut flood = Vec::new();
    for _ in 0..3 * CONNECTIONS {
        flood.push(TcpStream::connect(setup.address).await.unwrap());
    }
    good(&mut kept).await;
    let late = async || loop {
        match setup.reviewer().await {
            Ok(reviewer) => return reviewer,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let mut late = timeout(SOON, late()).await.expect("a place gets free");
    good(&mut late).await;
    good(&mut kept).await;
    drop(flood);
    assert_eq!(croft_testkit::http::get(setup.health, "/readyz").await.unwrap().status, 200);
}

/// The load that one pod can cause at the default limits.
const IDLE: usize = 4096;
/// Number of its connections that send reviews.
const FLOODS: usize = 96;
/// The webhook's timeout in its configurations.
const DEADLINE: Duration = Duration::from_secs(3);
/// Timed reviews of an API server during the flood.
const TIMED: usize = 300;
/// The memory limit of manifests/deploy/webhook.yaml.
const MEMORY_KIB: u64 = 192 << 10;

/// Sends one review after another, and reconnects when the connection ends, until it is aborted.
async fn flood(mut reviewer: Reviewer, source: IpAddr, address: SocketAddr, trust: Trust, body: Vec<u8>) {
    let request = Reviewer::request("/mutate?timeout=3s", &body);
    loop {
        while reviewer.send(&request).await.is_ok_and(|head| !head.closes) {}
        reviewer = loop {
            if let Ok(reviewer) = Reviewer::connect_from(source, address, &trust).await {
                break reviewer;
            }
            tokio::task::yield_now().await;
        };
    }
}

/// A number of /proc/<pid>/status, in KiB.
fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    found.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_one_pod_neither_delays_api_servers_nor_exhausts_memory() {
    let setup = setup_with(&["--drain=1"]).await;
    let pod: IpAddr = "127.0.0.2".parse().unwrap();
    let mut kept = setup.reviewer().await.unwrap();
    good(&mut kept).await;

    // As many connections as the pod may open, each used once.
    let mut settled = Vec::new();
    while let Ok(mut reviewer) = Reviewer::connect_from(pod, setup.address, &setup.trust).await {
        if reviewer.post("/mutate?timeout=3s", &review()).await.is_err() {
            break;
        }
        settled.push(reviewer);
        assert!(settled.len() < IDLE, "one pod has {IDLE} connections");
    }
    let held = settled.len();
    // Some of them send reviews, small ones and ones of 7 MiB; the others idle, and further ones are refused.
    let mut large = review();
    large.extend(std::iter::repeat_n(b' ', 7 << 20));
    let floods: Vec<_> = settled
        .drain(..FLOODS)
        .enumerate()
        .map(|(n, reviewer)| {
            let body = if n % 8 == 0 { large.clone() } else { review() };
            tokio::spawn(flood(reviewer, pod, setup.address, setup.trust.clone(), body))
        })
        .collect();
    let mut idle = Vec::new();
    while held + idle.len() < IDLE {
        idle.push(reviewer::dial(pod, setup.address).await.unwrap());
    }
    let mut slowest = Duration::ZERO;
    for n in 0..TIMED {
        let begun = tokio::time::Instant::now();
        good(&mut kept).await;
        if n % 10 == 0 {
            let mut fresh = setup.reviewer().await.expect("an API server finds a place");
            good(&mut fresh).await;
        }
        slowest = slowest.max(begun.elapsed());
    }
    let pid = setup.replicas.pid(&setup.name).unwrap();
    let (peak, now) = (memory(pid, "VmHWM:"), memory(pid, "VmRSS:"));
    let refused = |resource: &str| format!("croft_webhook_refused_total{{resource=\"{resource}\"}}");
    let mut turned_away = Vec::new();
    for resource in ["connections", "handshakes", "reviews", "review_bytes"] {
        turned_away.push((resource, setup.metric(&refused(resource)).await));
    }
    let open = setup.metric("croft_webhook_open_connections").await;
    floods.iter().for_each(tokio::task::JoinHandle::abort);
    println!(
        "slowest review {slowest:?} beside {open} connections, {held} of them one pod's; refused: {turned_away:?}; memory {} MiB \
         at most, {} MiB now",
        peak >> 10,
        now >> 10
    );
    assert!(slowest < DEADLINE, "the API server waited {slowest:?}");
    assert!(held >= FLOODS && open <= 1024.0, "{held} of one pod, {open} open");
    for (resource, times) in turned_away {
        assert!(
            times >= 1.0 || ["handshakes", "reviews"].contains(&resource),
            "no {resource} were turned away"
        );
    }
    assert!(peak < MEMORY_KIB, "{peak} KiB were used");
}
