use std::sync::{Mutex, PoisonError};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

/// A clock that moves when it is told to.
#[derive(Clone)]
struct Hand(Arc<Mutex<Duration>>, Instant);

impl Hand {
    fn new() -> Self {
        Self(Arc::default(), crate::clock::SystemClock.monotonic())
    }
    fn pass(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for Hand {
    fn monotonic(&self) -> Instant {
        self.1 + *self.0.lock().unwrap()
    }
    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + *self.0.lock().unwrap()
    }
}

/// An API server with one Lease, which can be cut off.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    down: bool,
    writes: u32,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(
            service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect_bytes().await.unwrap();
                    let (code, answer) = server.answer(parts.method.as_str(), &body);
                    Ok::<_, std::convert::Infallible>(
                        Response::builder().status(code).body(Body::from(answer)).unwrap(),
                    )
                }
            }),
            "croft-system",
        )
    }

    fn answer(&self, method: &str, body: &[u8]) -> (StatusCode, Vec<u8>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |code: u16, reason: &str| {
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code});
            (StatusCode::from_u16(code).unwrap(), body.to_string().into_bytes())
        };
        if state.down {
            return status(500, "InternalError");
        }
        if method != "GET" {
            let mut lease: Lease = serde_json::from_slice(body).unwrap();
            match (method, &state.lease) {
                ("POST", Some(_)) => return status(409, "AlreadyExists"),
                ("PUT", Some(old)) if old.metadata.resource_version != lease.metadata.resource_version => {
                    return status(409, "Conflict");
                }
                _ => {}
            }
            state.version += 1;
            state.writes += 1;
            lease.metadata.resource_version = Some(state.version.to_string());
            state.lease = Some(lease);
        }
        match &state.lease {
            Some(lease) => (StatusCode::OK, serde_json::to_vec(lease).unwrap()),
            None => status(404, "NotFound"),
        }
    }

    fn holder(&self) -> Option<String> {
        self.0.lock().unwrap().lease.as_ref()?.spec.as_ref()?.holder_identity.clone()
    }

    fn down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }
}

fn candidate(server: &Server, clock: &Hand, identity: &str) -> (Candidate, Leader) {
    let (term, receiver) = watch::channel(None);
    let detector = RestoreDetector::default();
    let leader = Leader { term: receiver, restores: detector.restores() };
    let candidate = Candidate {
        api: Api::namespaced(server.client(), "croft-system"),
        config: LeaseConfig::new("croft-system", "croft-controller", identity),
        clock: Arc::new(clock.clone()),
        observed: None,
        detector,
        term,
    };
    (candidate, leader)
}

#[tokio::test]
async fn standby_takes_over_only_after_the_leader_may_no_longer_act() {
    let (server, clock) = (Server::default(), Hand::new());
    let (mut first, first_leads) = candidate(&server, &clock, "first");
    let (mut second, second_leads) = candidate(&server, &clock, "second");
    first.round(&mut None).await;
    second.round(&mut None).await;
    assert!(first_leads.is_valid(clock.monotonic()));
    assert!(!second_leads.is_valid(clock.monotonic()));

    // The first process is paused from here on: it runs no code, and its right to act ends all the same.
    let mut ended_at = None;
    let mut taken_at = None;
    for tenth in 0..200_u64 {
        clock.pass(Duration::from_millis(100));
        if tenth % 15 == 0 {
            second.round(&mut None).await;
        }
        let now = clock.monotonic();
        assert!(!(first_leads.is_valid(now) && second_leads.is_valid(now)), "two leaders");
        if ended_at.is_none() && !first_leads.is_valid(now) {
            ended_at = Some(tenth);
        }
        if taken_at.is_none() && second_leads.is_valid(now) {
            taken_at = Some(tenth);
        }
    }
    assert_eq!(ended_at, Some(69), "7 s after the renewal was sent");
    assert!(taken_at.is_some_and(|tenth| (100..150).contains(&tenth)), "{taken_at:?}");

    // The first process resumes: it sees the new holder and doesn't take the Lease.
    first.round(&mut None).await;
    assert!(!first_leads.is_valid(clock.monotonic()));
    assert_eq!(server.holder().as_deref(), Some("second"));
}

#[tokio::test]
async fn unreachable_server_ends_leadership_at_the_deadline_and_not_before() {
    let (server, clock) = (Server::default(), Hand::new());
    let (mut only, leads) = candidate(&server, &clock, "only");
    only.round(&mut None).await;
    server.down(true);
    for _ in 0..4 {
        clock.pass(Duration::from_millis(1500));
        only.round(&mut None).await;
        assert!(leads.is_valid(clock.monotonic()), "6 s of silence are bridged");
    }
    clock.pass(Duration::from_millis(1500));
    only.round(&mut None).await;
    assert!(!leads.is_valid(clock.monotonic()));
    server.down(false);
    only.round(&mut None).await;
    assert!(leads.is_valid(clock.monotonic()), "its own record is taken up again");
}

#[tokio::test]
async fn leader_renews_with_one_write_and_survives_a_foreign_annotation() {
    let (server, clock) = (Server::default(), Hand::new());
    let (mut only, leads) = candidate(&server, &clock, "only");
    only.round(&mut None).await;
    only.round(&mut None).await;
    assert_eq!(server.0.lock().unwrap().writes, 2);

    let mut touched = server.0.lock().unwrap().lease.clone().unwrap();
    touched.metadata.annotations = Some([("note".to_owned(), "x".to_owned())].into());
    server.answer("PUT", &serde_json::to_vec(&touched).unwrap());
    only.round(&mut None).await;
    assert!(leads.is_valid(clock.monotonic()), "a conflict alone doesn't end a term");
    only.round(&mut None).await;
    let lease = server.0.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(1), "renewed, not taken anew");
    assert!(lease.metadata.annotations.unwrap().contains_key("note"), "what others wrote stays");
}

#[tokio::test]
async fn released_lease_is_taken_at_once() {
    let (server, clock) = (Server::default(), Hand::new());
    let (mut first, first_leads) = candidate(&server, &clock, "first");
    let (mut second, second_leads) = candidate(&server, &clock, "second");
    first.round(&mut None).await;
    second.round(&mut None).await;
    first.release().await;
    assert!(!first_leads.is_valid(clock.monotonic()));
    second.round(&mut None).await;
    assert!(second_leads.is_valid(clock.monotonic()));
}

#[tokio::test]
async fn one_of_two_candidates_that_create_the_lease_leads() {
    let (server, clock) = (Server::default(), Hand::new());
    let (mut first, first_leads) = candidate(&server, &clock, "first");
    let (mut second, second_leads) = candidate(&server, &clock, "second");
    let (mut told_first, mut told_second) = (None, None);
    tokio::join!(first.round(&mut told_first), second.round(&mut told_second));
    let now = clock.monotonic();
    assert!(first_leads.is_valid(now) ^ second_leads.is_valid(now));
}

#[test]
fn holder_with_a_longer_lease_keeps_it_for_its_duration() {
    let config = LeaseConfig::new("ns", "lease", "me");
    let held = LeaseSpec {
        holder_identity: Some("other".to_owned()),
        lease_duration_seconds: Some(60),
        ..LeaseSpec::default()
    };
    assert_eq!(decide(&held, Duration::from_secs(59), &config), Step::Wait);
    assert_eq!(decide(&held, Duration::from_secs(60), &config), Step::Take);
}
