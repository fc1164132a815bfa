use croft_policy::{Config, Index, Namespace, Pool, Provisioner, Tenant};
use croft_runtime::clock::SystemClock;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tower::ServiceExt as _;

use super::*;

fn index() -> Index {
    let mut index = Index::new();
    index.set_config(Config::default());
    index.upsert_tenant(Tenant {
        name: "a".to_owned(),
        namespaces: vec!["tenant-a".to_owned(), "late".to_owned()],
        pools: vec!["pool-a".to_owned()],
        ..Tenant::default()
    });
    index.upsert_pool(Pool {
        name: "pool-a".to_owned(),
        created: None,
        key: "node-pool".to_owned(),
        value: "pool-a".to_owned(),
        effects: [croft_policy::taint::Effect::NoSchedule].into_iter().collect(),
        shared_with: Vec::new(),
        provisioner: Provisioner::Croft,
        template: croft_policy::NodeTemplate::default(),
        tenants: croft_policy::PoolTenants::default(),
    });
    index.upsert_namespace(&Namespace { name: "tenant-a".to_owned(), ..Namespace::default() });
    index
}

fn bounds() -> BoundArgs {
    BoundArgs { max_inflight: 4, max_inflight_bytes: 1 << 20, namespace_wait: Duration::from_secs(60) }
}

fn reviews(bounds: BoundArgs) -> Arc<Reviews> {
    let state = Arc::new(State::new(index().snapshot()));
    Reviews::new(state, Arc::new(Metrics::default()), Arc::new(SystemClock), bounds)
}

fn review(namespace: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": namespace, "operation": "CREATE",
        "userInfo": {"username": "someone"}, "object": {"metadata": {"name": "p", "namespace": namespace}, "spec": spec},
        "oldObject": null, "dryRun": false}})
}

async fn post(router: &Router, path: &str, body: impl Into<Body>) -> (StatusCode, http::HeaderMap, Bytes) {
    let request =
        Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes())
}

fn response(bytes: &Bytes) -> Value {
    serde_json::from_slice::<Value>(bytes).unwrap()["response"].clone()
}

#[tokio::test]
async fn pod_of_a_tenant_is_pinned_and_the_answer_names_the_rule() {
    let router = reviews(bounds()).router();
    let (status, _, body) =
        post(&router, "/mutate?timeout=3s", review("tenant-a", &json!({})).to_string()).await;
    let response = response(&body);
    assert_eq!(
        (status, &response["allowed"], &response["uid"]),
        (StatusCode::OK, &json!(true), &json!("u-1"))
    );
    assert_eq!(response["auditAnnotations"], json!({"rule": "Pinned", "tenant": "a", "pool": "pool-a"}));
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {}});
    json_patch::patch(&mut pod, &patch).unwrap();
    assert_eq!(pod["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));
}

#[tokio::test]
async fn review_that_panics_gets_500_and_the_next_one_its_answer() {
    let mut reviews = Arc::into_inner(reviews(bounds())).unwrap();
    reviews.respond = |body, tenants, phase| {
        assert!(!body.windows(6).any(|part| part == b"poison"), "as the test asks for");
        respond(body, tenants, phase)
    };
    let router = Arc::new(reviews).router();
    let poison = review("tenant-a", &json!({"hostname": "poison"})).to_string();
    for _ in 0..8 {
        let (status, _, body) = post(&router, "/mutate", poison.clone()).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(String::from_utf8_lossy(&body).contains("panicked"));
    }
    // Neither a permit nor the snapshot is lost.
    let (status, _, body) = post(&router, "/mutate", review("tenant-a", &json!({})).to_string()).await;
    assert_eq!((status, &response(&body)["allowed"]), (StatusCode::OK, &json!(true)));
}

#[tokio::test]
async fn malformed_review_gets_4xx() {
    let router = reviews(bounds()).router();
    let beta = review("tenant-a", &json!({})).to_string().replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
    let without = |pointer: &str, field: &str| {
        let mut review = review("tenant-a", &json!({}));
        review.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(field);
        review.to_string()
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (what, body) in [
        ("nothing", String::new()),
        ("no JSON", "pods".to_owned()),
        ("another object", json!({"apiVersion": "v1", "kind": "Pod"}).to_string()),
        ("an old version", beta),
        ("no request", json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string()),
        ("deep nesting", deep),
        ("no operation", without("/request", "operation")),
        ("no user", without("/request", "userInfo")),
        ("no spec", without("/request/object", "spec")),
        ("a spec that is a list", review("tenant-a", &json!([])).to_string()),
        ("a spec that is a list of fields", review("tenant-a", &json!(["node-a"])).to_string()),
        ("a spec that is text", review("tenant-a", &json!("{}")).to_string()),
    ] {
        for path in ["/mutate", "/validate", "/warn"] {
            let (status, _, text) = post(&router, path, body.clone()).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{what}: {text:?}");
            assert!(text.len() > 10, "{what}: the reason is stated");
        }
    }
    let (status, _, _) = post(&router, "/mutate", vec![0xff, 0xfe]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(post(&router, "/other", "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn review_of_three_megabytes_is_evaluated_and_one_above_eight_is_not_read() {
    let router = reviews(BoundArgs { max_inflight_bytes: usize::MAX, ..bounds() }).router();
    let filler = "x".repeat(3 << 20);
    let mut large = review("tenant-a", &json!({}));
    large["request"]["object"]["metadata"]["annotations"] = json!({"filler": filler});
    assert_eq!(post(&router, "/mutate", large.to_string()).await.0, StatusCode::OK);

    let endless =
        futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1 << 16])));
    let (status, headers, _) = post(&router, "/mutate", Body::from_stream(endless)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(headers[header::CONNECTION], "close");

    let said =
        Request::post("/mutate").header(header::CONTENT_LENGTH, BODY_LIMIT + 1).body(Body::empty()).unwrap();
    assert_eq!(router.oneshot(said).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn review_waits_for_a_new_namespace() {
    let reviews = reviews(bounds());
    let waiting = tokio::spawn({
        let router = reviews.clone().router();
        async move { post(&router, "/mutate", review("late", &json!({})).to_string()).await }
    });
    while reviews.metrics.inflight.used() == 0 {
        tokio::task::yield_now().await;
    }
    let mut index = index();
    index.upsert_namespace(&Namespace { name: "late".to_owned(), ..Namespace::default() });
    reviews.state.publish(index.snapshot(), croft_policy::replica_status::ObservedGenerations::default());
    let (_, _, body) = waiting.await.unwrap();
    assert_eq!(response(&body)["auditAnnotations"]["tenant"], "a");
    assert_eq!(reviews.metrics.inflight.used(), 0, "the permit is returned");
    assert_eq!(reviews.metrics.inflight_bytes.used(), 0);
}

#[tokio::test]
async fn unknown_namespace_is_refused_as_retryable_and_never_taken_for_non_tenant() {
    let reviews = reviews(BoundArgs { namespace_wait: Duration::ZERO, ..bounds() });
    let router = reviews.clone().router();
    let (status, _, body) = post(&router, "/mutate", review("nowhere", &json!({})).to_string()).await;
    let response = response(&body);
    assert_eq!((status, &response["allowed"]), (StatusCode::OK, &json!(false)));
    assert_eq!(response["status"]["code"], 503);
    assert_eq!(response["status"]["details"]["retryAfterSeconds"], 1);
    assert_eq!(reviews.metrics.requests(Phase::Mutate, Outcome::UnknownNamespace), 1);
}

#[tokio::test]
async fn pod_of_an_incomplete_namespace_is_to_be_sent_again_and_that_of_a_surplus_one_is_not() {
    let mut index = index();
    let spec = json!({"pools": ["pool-a"], "namespaceCreation": {"prefix": "shop-", "maximum": 1}});
    index.upsert_tenant(croft_policy::stored::tenant("shop".to_owned(), Some(1), &spec).object);
    index.upsert_namespace(&Namespace { name: "shop-new".to_owned(), ..Namespace::default() });
    let reviews = reviews(bounds());
    let router = reviews.clone().router();
    let status = async |index: &mut Index| {
        reviews.state.publish(index.snapshot(), croft_policy::replica_status::ObservedGenerations::default());
        let (_, _, body) = post(&router, "/mutate", review("shop-new", &json!({})).to_string()).await;
        let status = response(&body)["status"].clone();
        (status["code"].clone(), status["reason"].clone(), status["details"]["retryAfterSeconds"].clone())
    };
    assert_eq!(status(&mut index).await, (json!(503), json!("ServiceUnavailable"), json!(1)));
    let pools = [(croft_policy::definitions::POOLS_ANNOTATION.to_owned(), "-".to_owned())];
    let open = Namespace {
        name: "shop-old".to_owned(),
        annotations: pools.into_iter().collect(),
        ..Namespace::default()
    };
    index.upsert_namespace(&open);
    assert_eq!(status(&mut index).await, (json!(403), json!("Forbidden"), Value::Null));
}

#[tokio::test]
async fn review_beyond_the_share_gets_429() {
    let reviews = reviews(BoundArgs { max_inflight: 1, ..bounds() });
    let router = reviews.clone().router();
    let (mut feed, body) = tokio::io::duplex(1 << 10);
    let stalled = Body::from_stream(futures::stream::unfold(body, |mut body| async {
        use tokio::io::AsyncReadExt as _;
        let mut chunk = [0; 512];
        let read = body.read(&mut chunk).await.unwrap();
        (read > 0).then(|| (Ok::<_, std::io::Error>(Bytes::copy_from_slice(&chunk[..read])), body))
    }));
    let first = tokio::spawn({
        let router = router.clone();
        async move { post(&router, "/mutate", stalled).await }
    });
    while reviews.metrics.inflight.used() == 0 {
        tokio::task::yield_now().await;
    }
    let (status, headers, _) = post(&router, "/mutate", review("tenant-a", &json!({})).to_string()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers[header::RETRY_AFTER], "1");
    feed.write_all(review("tenant-a", &json!({})).to_string().as_bytes()).await.unwrap();
    drop(feed);
    assert_eq!(first.await.unwrap().0, StatusCode::OK, "the review in flight is finished");
    assert_eq!(post(&router, "/mutate", review("tenant-a", &json!({})).to_string()).await.0, StatusCode::OK);
}

#[test]
fn wait_is_half_the_timeout_of_the_api_server() {
    let wait = |uri: &str| half_the_timeout(&uri.parse().unwrap());
    assert_eq!(wait("/mutate?timeout=3s"), Duration::from_millis(1500));
    assert_eq!(wait("/mutate?a=b&timeout=1s"), Duration::from_millis(500));
    assert_eq!(wait("/mutate"), Duration::MAX);
    assert_eq!(wait("/mutate?timeout=x"), Duration::MAX);
}
