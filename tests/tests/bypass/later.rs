//! Another mutating webhook that runs after Croft's changes and reverts them: Croft's second call, or the second evaluation of
//! its policies, repairs them, and what is reverted again is denied. `CROFT_MUTATION` chooses the mode.

use croft_policy::Mutation;
use croft_testkit::{
    ControlPlane, Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{Answer, SOON, create, marked_arena, misplaced_pods, mode, pod, pods},
    later::{LABEL, Later, REWRITE},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};

/// The expected result for a pod.
#[derive(Clone, Copy)]
enum End {
    /// Admitted, with this in its spec.
    With(&'static str),
    /// Denied with this message.
    Refused(&'static str),
}
use End::{Refused, With};

const PINNED: &str = r#""nodeSelector":{"node-pool":"pool-a"}"#;
const TOLERATES: &str = r#""key":"node-pool","operator":"Equal","value":"pool-a""#;
const KEPT_OUT: &str = r#""key":"node-restriction.kubernetes.io/pool","operator":"DoesNotExist""#;
const NO_POOL: &str = "selects none of the pools";
const NO_TOLERATION: &str = "does not tolerate the taints";
const STRANGER: &str = "belongs to no tenant";

struct Case {
    what: &'static str,
    namespace: &'static str,
    spec: Value,
    rewrite: Value,
    /// The other webhook is called once.
    once: End,
    /// The other webhook is called again after Croft's second call.
    again: End,
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn cases(mode: Mutation) -> Vec<Case> {
    // The webhook wasn't called for the pod at first, so it isn't called a second time. The policy evaluated it at first.
    let late_toleration = if mode == Mutation::Policy { With(KEPT_OUT) } else { Refused(STRANGER) };
    let remove = |path: &str| json!([{"op": "remove", "path": path}]);
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let tolerant = || json!({"tolerations": [{"operator": "Exists"}]});
    let case =
        |what, namespace, spec, rewrite, once, again| Case { what, namespace, spec, rewrite, once, again };
    vec![
        case(
            "the selector goes",
            "tenant-a",
            json!({}),
            remove("/spec/nodeSelector"),
            With(PINNED),
            Refused(NO_POOL),
        ),
        case(
            "the tolerations go",
            "tenant-a",
            json!({}),
            remove("/spec/tolerations"),
            With(TOLERATES),
            Refused(NO_TOLERATION),
        ),
        case(
            "both go",
            "tenant-a",
            tolerant(),
            json!([{"op": "remove", "path": "/spec/nodeSelector"}, {"op": "remove", "path": "/spec/tolerations"}]),
            With(PINNED),
            Refused(NO_POOL),
        ),
        case(
            "another tenant's pool comes in place",
            "tenant-a",
            tolerant(),
            add("/spec/nodeSelector", json!({"node-pool": "pool-b"})),
            Refused("may not use"),
            Refused("may not use"),
        ),
        case(
            "another tenant's pool comes by its mark",
            "tenant-a",
            tolerant(),
            add("/spec/nodeSelector", json!({"node-restriction.kubernetes.io/pool": "pool-b"})),
            Refused("may not use"),
            Refused("may not use"),
        ),
        case(
            "the own second pool comes in place, without its tolerations",
            "tenant-a",
            json!({}),
            add("/spec/nodeSelector", json!({"other-key": "two"})),
            With(r#""nodeSelector":{"other-key":"two"}"#),
            With(r#""nodeSelector":{"other-key":"two"}"#),
        ),
        case(
            "a foreign node comes",
            "tenant-a",
            json!({}),
            add("/spec/nodeName", json!("b-1")),
            Refused("run in its pools only"),
            Refused("run in its pools only"),
        ),
        case(
            "a node without pool is set",
            "tenant-a",
            json!({}),
            add("/spec/nodeName", json!("free-1")),
            Refused("run in its pools only"),
            Refused("run in its pools only"),
        ),
        case(
            "a non-tenant pod's affinity goes",
            "no-tenant",
            tolerant(),
            remove("/spec/affinity"),
            With(KEPT_OUT),
            Refused(STRANGER),
        ),
        case(
            "a non-tenant pod's toleration comes",
            "no-tenant",
            json!({}),
            add("/spec/tolerations", json!([{"operator": "Exists"}])),
            late_toleration,
            late_toleration,
        ),
        case(
            "a non-tenant pod's node comes",
            "no-tenant",
            json!({}),
            add("/spec/nodeName", json!("b-1")),
            Refused(STRANGER),
            Refused(STRANGER),
        ),
        case(
            "a non-tenant pod's pool comes",
            "no-tenant",
            tolerant(),
            json!([{"op": "add", "path": "/spec/nodeSelector", "value": {"node-pool": "pool-b"}}, {"op": "remove", "path": "/spec/affinity"}]),
            Refused(STRANGER),
            Refused(STRANGER),
        ),
    ]
}

/// Every case in `mode`, on an arena whose namespaces carry their annotations.
pub(crate) async fn attack(plane: &ControlPlane, mode: Mutation) {
    let admin = plane.admin().await.unwrap();
    let _later = Later::start(&admin).await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    for (number, case) in cases(mode).into_iter().enumerate() {
        for (when, end) in [("once", case.once), ("again", case.again)] {
            let name = format!("{when}-{number}");
            let mut pod = pod(case.namespace, &name, case.spec.clone());
            pod["metadata"]["labels"] = json!({LABEL: when});
            pod["metadata"]["annotations"] = json!({REWRITE: case.rewrite.to_string()});
            // The API server takes a moment to call a new webhook; before that the test would prove nothing.
            if number == 0 {
                asked(&admin, when).await;
            }
            let answer = create(&jane, &pod, false).await.unwrap();
            let said = answer.sentence();
            match end {
                With(part) => {
                    assert!(answer.is_done() && said.contains(part), "{} ({when}): {said}", case.what)
                }
                Refused(part) => {
                    assert!(!answer.is_done() && said.contains(part), "{} ({when}): {said}", case.what);
                }
            }
        }
    }
    until("every pod tried", SOON, async || {
        let all = pods(&admin).await?;
        let untried = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
            !conditions.into_iter().any(|c| c.type_ == "PodScheduled")
        };
        let untried = all.iter().filter(untried).count();
        anyhow::Ok(Seen::from_option((untried == 0).then_some(()), untried))
    })
    .await
    .unwrap();
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());
}

/// Waits until the other webhook is called.
async fn asked(admin: &Client, when: &str) {
    let mut probe = pod("agents", "probe", json!({}));
    probe["metadata"]["labels"] = json!({LABEL: when});
    let add = json!([{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]);
    probe["metadata"]["annotations"] = json!({REWRITE: add.to_string()});
    until("the other webhook to be asked", SOON, async || {
        let answer = create(admin, &probe, true).await?;
        let Answer::Done(object) = &answer else {
            return Err(anyhow::anyhow!(answer.sentence()));
        };
        let seen = object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("seen"));
        anyhow::Ok(Seen::from_option(seen.then_some(()), "not asked"))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn changes_reverted_by_a_later_webhook_are_repeated_or_denied() {
    croft_runtime::process::install_crypto();
    let (plane, _croft) = marked_arena(Options::default()).await.unwrap();
    attack(&plane, mode().unwrap()).await;
}
