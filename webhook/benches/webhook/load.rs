//! The load: kept connections, each with one review in flight at a time, as the API server has them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_testkit::reviewer::{Reviewer, Trust};
use tokio::{sync::Barrier, task::JoinSet};

/// Connections of the loads.
pub(crate) const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Kernel clock ticks a second, the unit of /proc/<pid>/stat: 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Time before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// A server under load.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    pub(crate) trust: Trust,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu_micros: f64,
    pub(crate) rss_mb: f64,
    pub(crate) errors: usize,
}

impl Figures {
    pub(crate) const HEAD: &str =
        "server              conns      req/s   p50 ms   p99 ms  CPU us/req  RSS MB  errors";

    pub(crate) fn line(&self, name: &str, connections: usize) -> String {
        format!(
            "{name:<18} {connections:>6} {:>10.0} {:>8.3} {:>8.3} {:>11.2} {:>7.1} {:>7}",
            self.per_second, self.p50_ms, self.p99_ms, self.cpu_micros, self.rss_mb, self.errors
        )
    }

    /// The median round by requests per second, with the errors of all.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let errors = rounds.iter().map(|round| round.errors).sum();
        let middle = sorted.into_iter().nth(rounds.len() / 2);
        middle.map_or_else(
            || Self { per_second: 0.0, p50_ms: 0.0, p99_ms: 0.0, cpu_micros: 0.0, rss_mb: 0.0, errors },
            |middle| Self { errors, ..middle },
        )
    }
}

/// One review, and its answer.
pub(crate) async fn one(address: SocketAddr, trust: &Trust, review: &[u8]) -> anyhow::Result<Vec<u8>> {
    let (status, body) = Reviewer::connect(address, trust).await?.post("/mutate?timeout=3s", review).await?;
    let is_answer = status == 200 && is_patched(&body);
    anyhow::ensure!(is_answer, "a captured review got {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}

/// Loads `target` with `review` over `connections` for `time`.
pub(crate) async fn run(
    target: &Target,
    review: &[u8],
    connections: usize,
    time: Duration,
) -> anyhow::Result<Figures> {
    let request: Arc<[u8]> = Reviewer::request("/mutate?timeout=3s", review).into();
    let barrier = Arc::new(Barrier::new(connections + 1));
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let mut reviewer = Reviewer::connect(target.address, &target.trust)
            .await
            .with_context(|| format!("failed to connect to {}", target.name))?;
        let (request, barrier) = (request.clone(), barrier.clone());
        clients.spawn(async move {
            let mut times = Vec::with_capacity(1 << 17);
            let mut errors = 0_usize;
            let begin = SystemClock.monotonic();
            while SystemClock.monotonic() - begin < WARM_UP {
                errors += usize::from(!good(&mut reviewer, &request).await);
            }
            barrier.wait().await;
            let begin = SystemClock.monotonic();
            loop {
                let sent = SystemClock.monotonic();
                if sent - begin >= time {
                    return (times, errors);
                }
                if good(&mut reviewer, &request).await {
                    times.push(SystemClock.monotonic() - sent);
                } else {
                    errors += 1;
                }
            }
        });
    }
    barrier.wait().await;
    let (cpu, begin) = (cpu_seconds(target.pid)?, SystemClock.monotonic());
    let (mut times, mut errors) = (Vec::new(), 0);
    for (more, wrong) in clients.join_all().await {
        times.extend(more);
        errors += wrong;
    }
    let (cpu, elapsed) = (cpu_seconds(target.pid)? - cpu, (SystemClock.monotonic() - begin).as_secs_f64());
    times.sort_unstable();
    let at =
        |per_mille: usize| times.get(times.len() * per_mille / 1000).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    let count = times.len() as f64;
    Ok(Figures {
        per_second: count / elapsed,
        p50_ms: at(500),
        p99_ms: at(990),
        cpu_micros: cpu * 1e6 / count,
        rss_mb: rss_megabytes(target.pid)?,
        errors,
    })
}

async fn good(reviewer: &mut Reviewer, request: &[u8]) -> bool {
    match reviewer.send(request).await {
        Ok(head) => head.status == 200 && is_patched(reviewer.body(head)),
        Err(_) => false,
    }
}

/// True for a review that allows the request and patches the object: a denial, or a pod that isn't pinned, is an error.
fn is_patched(body: &[u8]) -> bool {
    let has = |text: &[u8]| body.windows(text.len()).any(|part| part == text);
    body.starts_with(b"{\"apiVersion\":\"admission.k8s.io/v1\"")
        && has(br#""allowed":true"#)
        && has(br#""patch":""#)
}

/// CPU time of a process so far.
fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name, in parentheses, and can contain any character; user and system time are fields 14
    // and 15.
    let rest = text.rsplit_once(')').context("no process status")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).context("no CPU time");
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Resident memory of a process, in millions of bytes.
pub(crate) fn rss_megabytes(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident set size")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024.0 / 1e6)
}
