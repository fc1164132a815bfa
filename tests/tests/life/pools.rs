//! Guarantees of pools: spot instances are drained in time, instances that the cloud says are bad are replaced, static pools keep
//! their size, headroom is ready.

use std::collections::BTreeSet;

use croft_api::{NodeClaim, TenantPool, condition};
use croft_testkit::{
    CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::manifests::{budget, class, deployment, joined, on_demand, tenant};
use croft_tests::stack::{
    EVENTUALLY, Stack, claims, event_about, is_ready, label, node_of, nodes, pods, running,
};
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    jiff::{SignedDuration, Timestamp},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

const SPOT: &str = "tenant-spot";
const FIXED: &str = "tenant-fixed";
const SPARE: &str = "tenant-spare";

fn platform() -> String {
    let quiet = || json!({"consolidateAfter": "Never"});
    let mut spot = on_demand(&["m5.large"], quiet());
    spot["template"]["spec"]["requirements"][0]["values"] = json!(["spot"]);
    let repaired = json!({"consolidateAfter": "Never", "repairAfter": {"SystemStatusCheck": "1m"}});
    let mut fixed = on_demand(&["m5.large"], repaired);
    fixed["replicas"] = json!(2);
    let mut spare = on_demand(&["m5.xlarge"], quiet());
    spare["headroom"] = json!({"pods": 2, "requests": {"cpu": "1500m", "memory": "1Gi"}});
    let mut documents = vec![class("default")];
    for (name, spec) in [(SPOT, spot), (FIXED, fixed), (SPARE, spare)] {
        documents.extend(tenant(name, name, &spec));
    }
    // Each fills an instance, and the budget allows one eviction at a time.
    documents.extend([deployment(SPOT, "web", 2, "1500m", "256Mi"), budget(SPOT, "web", 1)]);
    joined(&documents)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn instance(claim: &NodeClaim) -> String {
    let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

fn uids(claims: &[NodeClaim]) -> BTreeSet<String> {
    claims.iter().filter_map(|claim| claim.metadata.uid.clone()).collect()
}

/// Waits until the pool has exactly `count` claims, all Ready and none being deleted.
async fn ready(client: &Client, pool: &str, count: usize) -> Vec<NodeClaim> {
    until(&format!("{count} ready nodes of {pool}"), EVENTUALLY, async || {
        let claims = claims(client, pool).await?;
        let stay = |claim: &NodeClaim| is_ready(claim) && claim.metadata.deletion_timestamp.is_none();
        let all = claims.len() == count && claims.iter().all(stay);
        let seen = claims.iter().map(|c| format!("{} {}", c.name_any(), is_ready(c))).collect::<Vec<_>>();
        Ok::<_, kube::Error>(Seen::from_option(all.then_some(claims), seen.join(", ")))
    })
    .await
    .unwrap()
}

/// Time at which kube-scheduler bound a pod, by its event.
async fn scheduled(client: &Client, pod: &Pod) -> Option<Timestamp> {
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace()?);
    let fields = format!("involvedObject.uid={},reason=Scheduled", pod.uid()?);
    let events = api.list(&ListParams::default().fields(&fields)).await.ok()?;
    events.items.first()?.event_time.as_ref().map(|at| at.0)
}

#[tokio::test]
async fn interruptions_static_pools_and_headroom_hold_on_the_real_control_plane() {
    let mut croft = CroftOptions::find().unwrap();
    for flag in ["--interruption-queue=croft", "--orphans-every=5s"] {
        croft = croft.flag(Part::Controller, flag);
    }
    let mut stack = Stack::start_with(Options::default(), croft).await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    stack.plane.apply(&platform()).await.unwrap();
    // Two nodes whatever the demand, and two headroom pods before any pod needs them.
    let fixed = ready(&client, FIXED, 2).await;
    let spare = ready(&client, SPARE, 1).await;

    interrupted(&mut stack, &client).await;
    bad_by_the_list(&mut stack, &client, &fixed).await;
    let fixed = ready(&client, FIXED, 2).await;
    kept_at_a_fixed_size(&mut stack, &client, &fixed).await;
    given_from_what_is_spare(&stack, &client, &spare[0]).await;
    stack.check().unwrap();
}

/// Both spot instances of a pool are interrupted at once: each gets a replacement, and each pod leaves in time.
async fn interrupted(stack: &mut Stack, client: &Client) {
    running(client, SPOT, 2).await.unwrap();
    let old = ready(client, SPOT, 2).await;
    let warned = Timestamp::now();
    for claim in &old {
        let request = json!({"do": "interrupt", "instance": instance(claim), "news": "spot-warning"});
        stack.control(&request).await.unwrap();
    }
    let both: BTreeSet<String> = old.iter().map(kube::ResourceExt::name_any).collect();
    until("both spot instances left", EVENTUALLY, async || {
        let claims = claims(client, SPOT).await?;
        let pods = pods(client, SPOT).await?;
        let up = pods.iter().filter(|pod| phase(pod) == "Running").count();
        assert!(up >= 1, "the budget keeps one of the two");
        let fresh =
            claims.iter().filter(|claim| !both.contains(&claim.name_any()) && is_ready(claim)).count();
        // An interrupted instance has its replacement before its pod is evicted.
        let going = claims
            .iter()
            .filter(|c| both.contains(&c.name_any()))
            .filter(|c| c.metadata.deletion_timestamp.is_some());
        assert!(going.count() <= fresh, "{fresh} replacements are ready");
        let done = claims.len() == 2 && claims.iter().all(|c| !both.contains(&c.name_any())) && up == 2;
        let seen = claims.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), format!("{seen}; {up} run")))
    })
    .await
    .unwrap();
    for name in &both {
        let note = event_about(client, "NodeClaim", name, "SpotWarning").await.unwrap();
        assert!(note.contains("its pods must leave by"), "{note}");
    }
    let taken_back = warned + SignedDuration::from_secs(120);
    for pod in running(client, SPOT, 2).await.unwrap() {
        let bound = scheduled(client, &pod).await.unwrap_or_else(Timestamp::now);
        assert!(bound < taken_back, "{} was bound at {bound}", pod.name_any());
    }
}

/// The list of instances says that one is to be retired and that the host of another fails: both are replaced, and no message has
/// come.
async fn bad_by_the_list(stack: &mut Stack, client: &Client, old: &[NodeClaim]) {
    let day = (Timestamp::now() + SignedDuration::from_hours(24)).as_millisecond();
    let [retired, failing] = old else { panic!("{} nodes", old.len()) };
    for request in [
        json!({"do": "schedule", "instance": instance(retired), "code": "instance-retirement", "notBefore": day}),
        json!({"do": "check", "instance": instance(failing), "check": "system", "passes": false}),
    ] {
        stack.control(&request).await.unwrap();
    }
    // The checks are asked for once a minute, and the failure is tolerated for another.
    until("the replacements of both instances", EVENTUALLY * 3, async || {
        let claims = claims(client, FIXED).await?;
        let fresh = uids(&claims).is_disjoint(&uids(old));
        let done = claims.len() == 2 && fresh && claims.iter().all(is_ready);
        let seen = claims.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        Ok::<_, kube::Error>(Seen::from_option(done.then_some(()), seen))
    })
    .await
    .unwrap();
    let note = event_about(client, "NodeClaim", &failing.name_any(), "Unhealthy").await.unwrap();
    assert!(note.contains("SystemStatusCheck has failed"), "{note}");
    let note = event_about(client, "NodeClaim", &retired.name_any(), "ScheduledChange").await.unwrap();
    assert!(note.contains("retired"), "{note}");
}

async fn resize(stack: &Stack, pool: &str, spec: Value) {
    let patch = json!({"spec": spec}).to_string();
    stack.plane.kubectl(["patch", "tenantpool", pool, "--type=merge", "-p", &patch]).await.unwrap();
}

async fn kept_at_a_fixed_size(stack: &mut Stack, client: &Client, first: &[NodeClaim]) {
    resize(stack, FIXED, json!({"replicas": 3})).await;
    let grown = ready(client, FIXED, 3).await;
    assert!(uids(&grown).is_superset(&uids(first)), "those that were there stay");
    // One of them terminates, without a pending pod.
    let lost = &grown[0];
    stack.control(&json!({"do": "end", "instance": instance(lost)})).await.unwrap();
    until("the lost node's replacement", EVENTUALLY, async || {
        let claims = claims(client, FIXED).await?;
        let replaced =
            claims.len() == 3 && claims.iter().all(|claim| claim.uid() != lost.uid() && is_ready(claim));
        let seen = claims.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ");
        Ok::<_, kube::Error>(Seen::from_option(replaced.then_some(()), seen))
    })
    .await
    .unwrap();
    // The node with a pod on it is kept.
    stack.plane.apply(&joined(&[deployment(FIXED, "web", 1, "1500m", "256Mi")])).await.unwrap();
    let pod = running(client, FIXED, 1).await.unwrap().remove(0);
    resize(stack, FIXED, json!({"replicas": 1})).await;
    let left = ready(client, FIXED, 1).await;
    assert_eq!(left[0].status.as_ref().and_then(|s| s.node_name.clone()).as_deref(), Some(&*node_of(&pod)));
    let still = running(client, FIXED, 1).await.unwrap();
    assert_eq!(still[0].uid(), pod.uid(), "the pod was not moved");
}

async fn given_from_what_is_spare(stack: &Stack, client: &Client, spare: &NodeClaim) {
    let node = spare.status.as_ref().and_then(|status| status.node_name.clone()).unwrap();
    let all = nodes(client).await.unwrap();
    assert_eq!(label(&all[&node], "node.kubernetes.io/instance-type"), "m5.xlarge");
    stack.plane.apply(&joined(&[deployment(SPARE, "web", 2, "1500m", "1Gi")])).await.unwrap();
    // The pods use the headroom, and no instance was launched for them: they were bound before the next one was Ready.
    let pods = running(client, SPARE, 2).await.unwrap();
    assert!(
        pods.iter().all(|pod| node_of(pod) == node),
        "{:?}",
        pods.iter().map(node_of).collect::<Vec<_>>()
    );
    // The headroom is restored.
    let two = ready(client, SPARE, 2).await;
    let next = two.iter().find(|claim| claim.uid() != spare.uid()).unwrap();
    let made = next.metadata.creation_timestamp.as_ref().unwrap().0;
    for pod in &pods {
        let since = pod.metadata.creation_timestamp.as_ref().unwrap().0;
        assert!(made >= since, "{} had asked for a place when the next instance was made", pod.name_any());
    }
    let pool = Api::<TenantPool>::all(client.clone()).get(SPARE).await.unwrap();
    let conditions = pool.status.map(|status| status.conditions).unwrap_or_default();
    assert!(condition::is_true(&conditions, condition::READY), "{conditions:?}");
}
