use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::health::Health;

fn info(minor: &str, emulated: Option<&str>) -> Info {
    Info {
        major: "1".to_owned(),
        minor: minor.to_owned(),
        emulation_major: emulated.map(|_| "1".to_owned()),
        emulation_minor: emulated.map(str::to_owned),
        ..Info::default()
    }
}

/// A client of an API server that gives these answers in turn, the last one again and again.
fn server(answers: &[(u16, Value)]) -> (Client, Arc<AtomicUsize>) {
    let (answers, requests) = (answers.to_vec(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Body>| {
        assert_eq!(request.uri().path(), "/version");
        let at = seen.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        let (code, body) = answers[at].clone();
        let answer =
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap();
        async { Ok::<_, std::convert::Infallible>(answer) }
    });
    (Client::new(service, "default"), requests)
}

fn version(minor: &str) -> (u16, Value) {
    let texts = ["buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "platform"];
    let mut body: Value = texts.iter().map(|name| ((*name).to_owned(), json!(""))).collect();
    body["major"] = json!("1");
    body["minor"] = json!(minor);
    (200, body)
}

fn refusal(code: u16) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "No", "code": code});
    (code, status)
}

async fn checked(answers: &[(u16, Value)]) -> (Result<(), TooOld>, bool, usize) {
    let (client, requests) = server(answers);
    let health = Health::default();
    let gate = health.gate("kubernetes");
    let result = wait_until_read(&client, &Shutdown::new(), &gate, Duration::ZERO).await;
    (result, gate.is_open(), requests.load(Ordering::Relaxed))
}

#[test]
fn releases_are_read_as_clusters_write_them() {
    for (major, minor, expected) in [
        ("1", "33", Some(33)),
        ("1", "36+", Some(36)),
        ("1", "34-eks-1a2b", Some(34)),
        ("1", "", None),
        ("1", "x36", None),
        ("2", "1", None),
        ("", "36", None),
    ] {
        assert_eq!(Release::parse(major, minor).map(Release::minor), expected, "{major}.{minor}");
    }
}

#[test]
fn an_emulated_release_decides_about_features() {
    assert_eq!(Release::read(&info("36", Some("33"))), Some(Release(33)));
    assert_eq!(Release::read(&info("36", Some(""))), Some(Release(36)));
    assert_eq!(Release::read(&info("36+", None)), Some(Release(36)));
}

#[test]
fn support_ends_below_the_oldest_and_is_untested_above_the_newest() {
    let (oldest, newest) = (OLDEST.minor(), NEWEST.minor());
    for (minor, expected) in [
        (oldest - 1, Support::TooOld),
        (oldest, Support::Tested),
        (newest, Support::Tested),
        (newest + 1, Support::Untested),
    ] {
        assert_eq!(Release(minor).support(), expected, "1.{minor}");
    }
}

#[test]
fn missing_features_are_those_that_came_later_and_matter() {
    let names = |minor| Release(minor).missing().map(|feature| feature.name).collect::<Vec<_>>();
    assert_eq!(names(33), ["PodLevelResources", "WatchList"]);
    assert_eq!(
        names(34),
        Vec::<&str>::new(),
        "a resize of spec.resources needs nothing of Croft before it exists"
    );
    assert_eq!(Release(34).shortcomings(&Concern::ALL), None);
    let text = Release(33).shortcomings(&Concern::ALL).unwrap();
    assert!(
        text.starts_with("PodLevelResources (in Kubernetes 1.34): the API server drops spec.resources"),
        "{text}"
    );
    assert!(text.contains("; WatchList (in Kubernetes 1.34): the webhook reads"), "{text}");
    let pools = Release(33).shortcomings(&[Concern::Pools]).unwrap();
    assert!(pools.contains("PodLevelResources") && !pools.contains("WatchList"), "{pools}");
}

#[test]
fn every_supported_release_has_what_isolation_and_installation_need() {
    let needed =
        FEATURES.iter().filter(|f| f.concern == Concern::Isolation || f.without == Some(NOT_INSTALLED));
    assert!(needed.clone().count() > 0 && needed.clone().all(|feature| feature.since <= OLDEST));
    assert!(FEATURES.is_sorted_by_key(|feature| feature.since));
}

#[tokio::test]
async fn an_old_release_is_refused_with_what_to_do() {
    let (result, open, _) = checked(&[version("32")]).await;
    let error = result.unwrap_err();
    assert_eq!((error, open), (TooOld(Release(32)), false));
    let text = error.to_string();
    assert!(
        text.starts_with("Kubernetes 1.32 is older than 1.33") && text.contains("upgrade the cluster"),
        "{text}"
    );
}

#[tokio::test]
async fn supported_and_newer_releases_open_the_gate() {
    for minor in ["33", "37+", "38"] {
        assert_eq!(checked(&[version(minor)]).await, (Ok(()), true, 1), "{minor}");
    }
}

#[tokio::test]
async fn a_failing_api_server_is_asked_again() {
    let answers = [refusal(500), refusal(429), version("36")];
    assert_eq!(checked(&answers).await, (Ok(()), true, 3));
}

#[tokio::test]
async fn a_release_that_cannot_be_read_is_no_reason_to_stay_away() {
    assert_eq!(checked(&[refusal(403)]).await, (Ok(()), true, 1));
    assert_eq!(checked(&[version("custom")]).await, (Ok(()), true, 1));
}

#[tokio::test]
async fn the_end_of_the_process_ends_the_check() {
    let (client, _) = server(&[refusal(500)]);
    let (stop, health) = (Shutdown::new(), Health::default());
    stop.begin();
    let gate = health.gate("kubernetes");
    assert_eq!(wait_until_read(&client, &stop, &gate, Duration::MAX).await, Ok(()));
    assert!(!gate.is_open());
}
