//! Every captured review: the command line answers the same bytes as the server, and both answers are valid.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser as _;
use croft_cli::{Cli, Output};
use croft_runtime::{
    certificate::bundle::{self, Rotation},
    clock::{Clock as _, SystemClock},
    serve::{Limits, serve},
    shutdown::Shutdown,
    tls::TlsSlot,
};
use croft_testkit::reviewer::{Reviewer, Trust};
use croft_tests::corpus;
use croft_webhook::{args::BoundArgs, cluster::state::State, metrics::Metrics, server::Reviews};
use serde_json::Value;
use tokio::net::TcpListener;

/// The output of a command.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn by_command_line(review: &std::path::Path, phase: &str) -> Vec<u8> {
    let config = corpus::folder().join("config.yaml");
    let arguments = ["croft", "admit", "--phase", phase, "-f"].map(std::ffi::OsString::from);
    let cli = Cli::parse_from(arguments.into_iter().chain([config.into(), review.into()]));
    let written = Written::default();
    let said = Written::default();
    let code = croft_cli::run(&cli, &mut Output::to(Box::new(written.clone()), Box::new(said.clone())));
    let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
    assert_eq!(
        format!("{code:?}"),
        format!("{:?}", std::process::ExitCode::SUCCESS),
        "{}: {said}",
        review.display()
    );
    let mut bytes = written.0.lock().unwrap().clone();
    assert_eq!(bytes.pop(), Some(b'\n'));
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_answers_equal_the_servers() {
    croft_runtime::process::install_crypto();
    let names = ["127.0.0.1".to_owned()];
    let made = bundle::next_bundle(None, &names, &Rotation::default(), None, SystemClock.wall()).unwrap();
    let slot = Arc::new(TlsSlot::default());
    slot.install(made.identity()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tenants = corpus::tenants(&corpus::folder().join("config.yaml")).unwrap();
    let bounds = BoundArgs { max_inflight: 16, max_inflight_bytes: 1 << 26, namespace_wait: Duration::ZERO };
    let state = Arc::new(State::new(tenants));
    let reviews = Reviews::new(state, Arc::new(Metrics::default()), Arc::new(SystemClock), bounds);
    let stop = Shutdown::new();
    let limits = Limits::for_reviews(Duration::ZERO);
    let serving =
        tokio::spawn(serve(listener, Some(slot), reviews.router(), limits, Default::default(), stop.clone()));

    let trust = Trust::new(&made.trusted_pem(), "127.0.0.1").unwrap();
    let mut reviewer = Reviewer::connect(address, &trust).await.unwrap();
    let (mut allowed, mut denied, mut patched) = (0, 0, 0);
    for (path, body) in corpus::reviews().unwrap() {
        let asked: Value = serde_json::from_slice(&body).unwrap();
        for phase in ["mutate", "validate"] {
            let (status, answer) = reviewer.post(&format!("/{phase}?timeout=3s"), &body).await.unwrap();
            assert_eq!(status, 200, "{}", path.display());
            let shown = String::from_utf8_lossy(&answer).into_owned();
            assert_eq!(shown, String::from_utf8_lossy(&by_command_line(&path, phase)), "{}", path.display());
            let response = &serde_json::from_slice::<Value>(&answer).unwrap()["response"];
            assert_eq!(response["uid"], asked["request"]["uid"]);
            assert!(
                phase == "mutate" || response.get("patch").is_none(),
                "a validation changes nothing: {shown}"
            );
            allowed += usize::from(response["allowed"] == true);
            denied += usize::from(response["allowed"] == false);
            patched += usize::from(response.get("patch").is_some());
        }
    }
    assert!(
        allowed > 0 && denied > 0 && patched > 0,
        "{allowed} allowed, {denied} denied, {patched} patched"
    );
    stop.begin();
    drop(reviewer);
    serving.await.unwrap();
}

#[test]
fn corpus_has_every_relevant_kind_of_request() {
    let names: Vec<String> = corpus::reviews()
        .unwrap()
        .into_iter()
        .map(|(path, _)| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for kind in [
        "pods-create",
        "pods-update",
        "pods-delete",
        "pods-create-binding",
        "bindings-create",
        "pods-create-eviction",
        "pods-update-ephemeralcontainers",
        "pods-update-resize",
        "pods-update-status",
        "daemonsets-create",
        "daemonsets-update",
        "deployments-create",
        "statefulsets-create",
        "jobs-create",
        "cronjobs-create",
        "replicationcontrollers-create",
        "podtemplates-create",
        "nodes-create",
        "nodes-update",
        "namespaces-create",
        "namespaces-update",
        "configmaps-create",
    ] {
        assert!(names.iter().any(|name| name.starts_with(kind)), "no {kind} in {names:?}");
    }
}
