//! The amounts that one reader leaves to others: streams, requests in flight, computations, kept answers.

use std::sync::{Arc, Mutex, atomic::Ordering, mpsc};

use axum::{Router, body::Body, response::Response};
use http::{Method, StatusCode};
use tower::ServiceExt as _;

use super::{
    page::Page,
    router::router,
    router_test::{page_with, request, state},
};
use crate::{access::Held, args::BoundArgs};

const BOUNDS: BoundArgs = BoundArgs { max_connections: 8, max_inflight: 32, max_streams: 8 };
/// Accounts of one tenant.
const ACCOUNTS: [&str; 2] = ["system:serviceaccount:alpha-ns:one", "system:serviceaccount:alpha-ns:two"];

async fn ask(router: &Router, path: &str, token: &str) -> Response<Body> {
    router.clone().oneshot(request(&Method::GET, path, Some(token), "")).await.unwrap()
}

/// Open streams of the users in turn, until each is refused.
async fn greedy(router: &Router, users: &[&str]) -> Vec<Response<Body>> {
    let mut open = Vec::new();
    for user in users {
        loop {
            let answer = ask(router, "/api/v1/events", user).await;
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                break;
            }
            open.push(answer);
        }
    }
    open
}

#[tokio::test]
async fn reader_of_many_streams_leaves_half_of_them_to_others() {
    let router = router(page_with(state(), BOUNDS).0);
    let open = greedy(&router, &["alpha"]).await;
    assert_eq!(open.len(), 4);
    assert_eq!(ask(&router, "/api/v1/events", "operator").await.status(), 200);
    drop(open);
    assert_eq!(ask(&router, "/api/v1/events", "alpha").await.status(), 200, "closed streams count no more");
}

#[tokio::test]
async fn accounts_of_one_tenant_have_one_share_of_streams() {
    let router = router(page_with(state(), BOUNDS).0);
    assert_eq!(greedy(&router, &ACCOUNTS).await.len(), 4);
}

#[tokio::test]
async fn reader_of_many_requests_leaves_an_operator_some_behind_the_same_address() {
    let (page, _) = page_with(state(), BOUNDS);
    let router = router(page.clone());
    let model = page.model().unwrap();
    let alpha = page.reviewer.access("alpha", &model).await.unwrap().held;
    let open: Vec<_> = std::iter::from_fn(|| page.open_request(&alpha).ok()).collect();
    assert_eq!(open.len(), 8, "a quarter of 32: half of what one address gets");
    assert_eq!(ask(&router, "/api/v1/overview", "alpha").await.status(), 429);
    assert_eq!(ask(&router, "/api/v1/overview", "operator").await.status(), 200);
}

/// A computation that tells its name when it begins, and ends when the sender of `end` is dropped.
fn compute(
    page: &Arc<Page>,
    user: &Arc<Held>,
    name: &'static str,
    begun: &Arc<Mutex<Vec<&'static str>>>,
    end: mpsc::Receiver<()>,
) -> tokio::task::JoinHandle<()> {
    let (page, user, begun) = (page.clone(), user.clone(), begun.clone());
    tokio::spawn(async move {
        let work = move || {
            begun.lock().unwrap().push(name);
            let _ = end.recv();
        };
        page.compute(&user, work).await.unwrap();
    })
}

/// Lets other tasks go on until each waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn begin(begun: &Mutex<Vec<&'static str>>, count: usize) {
    while begun.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn operators_computation_waits_for_one_of_a_reader_not_for_all() {
    let (page, _) = page_with(state(), BOUNDS);
    let [reader, operator] = [Arc::new(Held::default()), Arc::new(Held::default())];
    let begun = Arc::new(Mutex::new(Vec::new()));
    let mut ends = Vec::new();
    let mut tasks = Vec::new();
    let mut add = |user: &Arc<Held>, name| {
        let (end, ended) = mpsc::channel();
        ends.push(end);
        tasks.push(compute(&page, user, name, &begun, ended));
    };
    add(&reader, "reader");
    begin(&begun, 1).await;
    for _ in 0..24 {
        add(&reader, "reader");
    }
    settle().await;
    add(&operator, "operator");
    settle().await;
    drop(ends);
    for task in tasks {
        task.await.unwrap();
    }
    let begun = begun.lock().unwrap();
    assert_eq!((begun.len(), begun[1]), (26, "operator"), "{begun:?}");
}

#[tokio::test]
async fn computation_whose_request_is_gone_keeps_its_turn() {
    let (page, _) = page_with(state(), BOUNDS);
    let [reader, operator] = [Arc::new(Held::default()), Arc::new(Held::default())];
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (end, ended) = mpsc::channel();
    let left = compute(&page, &reader, "left", &begun, ended);
    begin(&begun, 1).await;
    left.abort();
    let _ = left.await;
    let (_, ended) = mpsc::channel();
    let next = compute(&page, &operator, "next", &begun, ended);
    settle().await;
    assert_eq!(*begun.lock().unwrap(), ["left"], "one computation at a time");
    drop(end);
    next.await.unwrap();
    assert_eq!(*begun.lock().unwrap(), ["left", "next"]);
}

#[tokio::test]
async fn requests_that_come_together_ask_for_their_readers_rights_once() {
    let (page, reviews) = page_with(state(), BOUNDS);
    let router = router(page);
    assert_eq!(ask(&router, "/api/v1/overview", "alpha").await.status(), 200);
    let rights = reviews.swap(0, Ordering::Relaxed) - 1;
    let [one, two] = ACCOUNTS;
    let answers =
        futures::future::join_all([one, one, one, two].map(|user| ask(&router, "/api/v1/overview", user)));
    assert!(answers.await.iter().all(|answer| answer.status() == 200));
    // Of the tokens at most one review for each request.
    assert!(
        reviews.load(Ordering::Relaxed) <= 4 + 2 * rights,
        "{} of {rights}",
        reviews.load(Ordering::Relaxed)
    );
}

#[tokio::test]
async fn wrong_tokens_leave_room_for_answers_about_others() {
    let (page, reviews) = page_with(state(), BOUNDS);
    let model = page.model().unwrap();
    for n in 0..3_000 {
        assert!(page.reviewer.access(&format!("wrong-{n}"), &model).await.is_err());
    }
    page.reviewer.access("alpha", &model).await.unwrap();
    let before = reviews.load(Ordering::Relaxed);
    page.reviewer.access("alpha", &model).await.unwrap();
    assert_eq!(
        reviews.load(Ordering::Relaxed),
        before,
        "the answers about the token and its rights are kept"
    );
}

#[tokio::test]
async fn accounts_of_one_tenant_leave_room_for_rights_of_others() {
    let (page, reviews) = page_with(state(), BOUNDS);
    let model = page.model().unwrap();
    for n in 0..600 {
        let account = format!("system:serviceaccount:alpha-ns:a{n}");
        page.reviewer.access(&account, &model).await.unwrap();
    }
    page.reviewer.access("operator", &model).await.unwrap();
    let before = reviews.load(Ordering::Relaxed);
    page.reviewer.access("operator", &model).await.unwrap();
    assert_eq!(reviews.load(Ordering::Relaxed), before, "the rights of the operator are kept");
}
