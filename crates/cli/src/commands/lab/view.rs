//! Pods and NodeClaims of tenants at one moment, and the changes between two moments.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use croft_api::{NodeClaim, Tenant, condition};
use croft_cloud::instance_id;
use croft_scheduler::Price;
use k8s_openapi::{
    api::{core::v1::Pod, events::v1::Event},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{
    costs::estimate_mark,
    own_events::{is_possible, says_croft},
    table::Table,
};

/// Reason of the event that names the claim that a pod waits for.
const NOMINATED: &str = "Nominated";

/// Tenants' pods and NodeClaims at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// By namespace and name.
    pub(super) pods: BTreeMap<(String, String), PodState>,
    /// By name.
    pub(super) claims: BTreeMap<String, ClaimState>,
    /// Tenant of each claimed namespace.
    pub(super) tenants: BTreeMap<String, String>,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodState {
    pub(super) phase: String,
    pub(super) node: Option<String>,
    pub(super) deleting: bool,
    /// The note of its Nominated event.
    pub(super) waits: Option<String>,
}

/// One NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimState {
    pub(super) pool: String,
    pub(super) node: Option<String>,
    pub(super) instance: Option<String>,
    pub(super) instance_type: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) capacity_type: Option<String>,
    pub(super) price: Option<String>,
    pub(super) estimated: bool,
    /// The furthest of Launched, Registered, Initialized, Ready.
    pub(super) reached: Option<&'static str>,
    pub(super) deleting: bool,
}

impl View {
    /// Reads the namespaces of all tenants.
    pub(super) async fn read(client: &Client) -> anyhow::Result<Self> {
        let all = ListParams::default();
        let tenants = Api::<Tenant>::all(client.clone());
        let claims = Api::<NodeClaim>::all(client.clone());
        let pods = Api::<Pod>::all(client.clone());
        let events = Api::<Event>::all(client.clone());
        let nominations = ListParams::default().fields(&format!("reason={NOMINATED}"));
        let (tenants, claims, pods, events) = tokio::try_join!(
            tenants.list(&all),
            claims.list(&all),
            pods.list(&all),
            events.list(&nominations)
        )
        .context("failed to read the cluster")?;
        let tenants: BTreeMap<_, _> = tenants
            .iter()
            .flat_map(|tenant| tenant.spec.namespaces.iter().map(|ns| (ns.clone(), tenant.name_any())))
            .collect();
        let waits = nominations_by_pod(&events.items);
        let pods = pods
            .iter()
            .filter_map(|pod| {
                let key = (pod.namespace()?, pod.name_any());
                tenants.contains_key(&key.0).then(|| (key, PodState::of(pod, &waits)))
            })
            .collect();
        let claims = claims.iter().map(|claim| (claim.name_any(), ClaimState::of(claim))).collect();
        Ok(Self { pods, claims, tenants })
    }

    /// Changes since `before`, one sentence each.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((namespace, name), pod) in &self.pods {
            let old = before.pods.get(&(namespace.clone(), name.clone()));
            if let Some(waits) = &pod.waits
                && pod.node.is_none()
                && old.and_then(|old| old.waits.as_ref()) != Some(waits)
            {
                lines.push(format!("{namespace}/{name}: {waits}"));
            }
        }
        for (name, claim) in &self.claims {
            let old = before.claims.get(name);
            if old.and_then(|old| old.reached) != claim.reached
                && let Some(reached) = claim.reached
            {
                lines.push(format!("{name}: {}", claim.progress_text(reached)));
            }
            if claim.deleting && !old.is_some_and(|old| old.deleting) {
                lines.push(format!("{name}: being removed ({})", claim.offering_text()));
            }
        }
        for name in before.claims.keys().filter(|name| !self.claims.contains_key(*name)) {
            lines.push(format!("{name}: removed"));
        }
        for namespace in self.tenants.keys() {
            let (old, new) = (before.count(namespace), self.count(namespace));
            if old != new {
                lines.push(format!("{namespace}: {} of {} pods are running", new.0, new.1));
            }
        }
        lines
    }

    /// Number of running pods and of all pods of a namespace.
    pub(super) fn count(&self, namespace: &str) -> (usize, usize) {
        let pods: Vec<_> = self
            .pods
            .iter()
            .filter(|((ns, _), pod)| ns == namespace && !pod.deleting)
            .map(|(_, pod)| pod)
            .collect();
        (pods.iter().filter(|pod| pod.phase == "Running").count(), pods.len())
    }

    /// The nodes of a pool, by their claims.
    pub(super) fn nodes(&self, pool: &str) -> BTreeSet<String> {
        self.claims
            .values()
            .filter(|claim| claim.pool == pool)
            .filter_map(|claim| claim.node.clone())
            .collect()
    }

    fn claim_on(&self, node: &str) -> Option<&ClaimState> {
        self.claims.values().find(|claim| claim.node.as_deref() == Some(node))
    }

    /// A row per pod: tenant, namespace, pod, pool, node, instance type, zone, capacity type, $/h.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new("TENANT|NAMESPACE|POD|POOL|NODE|INSTANCE TYPE|ZONE|CAPACITY TYPE|$/H>");
        for ((namespace, name), pod) in &self.pods {
            let claim = pod.node.as_deref().and_then(|node| self.claim_on(node)).cloned().unwrap_or_default();
            let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            table.row(vec![
                cell(self.tenants.get(namespace).cloned()),
                namespace.clone(),
                name.clone(),
                cell(Some(claim.pool).filter(|pool| !pool.is_empty())),
                cell(pod.node.clone()),
                cell(claim.instance_type),
                cell(claim.zone),
                cell(claim.capacity_type),
                cell(claim.price.map(|price| format!("{}{price}", estimate_mark(claim.estimated)))),
            ]);
        }
        table
    }

    /// Total price of the instances, in dollars per hour.
    pub(super) fn cost(&self) -> Price {
        let price = |claim: &ClaimState| claim.price.as_deref()?.parse::<Price>().ok();
        self.claims.values().filter_map(price).sum()
    }
}

impl PodState {
    fn of(pod: &Pod, waits: &BTreeMap<String, String>) -> Self {
        let status = pod.status.as_ref();
        Self {
            phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            waits: pod.uid().and_then(|uid| waits.get(&uid).cloned()),
        }
    }
}

impl ClaimState {
    fn of(claim: &NodeClaim) -> Self {
        let status = claim.status.clone().unwrap_or_default();
        let order = [condition::READY, condition::INITIALIZED, condition::REGISTERED, condition::LAUNCHED];
        Self {
            pool: claim.spec.pool.clone(),
            reached: order.into_iter().find(|kind| condition::is_true(&status.conditions, kind)),
            instance: status.provider_id.as_deref().map(|id| instance_id(id).to_owned()),
            node: status.node_name,
            instance_type: status.instance_type,
            zone: status.zone,
            capacity_type: status.capacity_type,
            price: status.price_per_hour,
            estimated: status.price_estimated,
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }
    }

    fn offering_text(&self) -> String {
        let parts = [&self.instance_type, &self.zone, &self.capacity_type];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    fn progress_text(&self, reached: &str) -> String {
        let node = self.node.as_deref().unwrap_or("its node");
        match reached {
            condition::LAUNCHED => {
                format!(
                    "launched {} ({})",
                    self.instance.as_deref().unwrap_or("an instance"),
                    self.offering_text()
                )
            }
            condition::REGISTERED => format!("{node} has registered and is labelled for {}", self.pool),
            condition::INITIALIZED => format!("{node} is initialized"),
            _ => format!("{node} is ready"),
        }
    }
}

/// The last nomination of each pod, by its uid.
fn nominations_by_pod(events: &[Event]) -> BTreeMap<String, String> {
    let mut last: BTreeMap<String, (Option<Timestamp>, String)> = BTreeMap::new();
    for event in events.iter().filter(|event| says_croft(event) && is_possible(event)) {
        let Some(uid) = event.regarding.as_ref().and_then(|object| object.uid.clone()) else { continue };
        let time = event.event_time.as_ref().map(|time| time.0);
        let note = event.note.clone().unwrap_or_default();
        if last.get(&uid).is_none_or(|(before, _)| *before <= time) {
            last.insert(uid, (time, note));
        }
    }
    last.into_iter().map(|(uid, (_, note))| (uid, note)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(node: &str, reached: Option<&'static str>) -> ClaimState {
        ClaimState {
            pool: "pool-a".into(),
            node: Some(node.into()),
            instance: Some("i-1".into()),
            instance_type: Some("m5.large".into()),
            zone: Some("us-east-1a".into()),
            capacity_type: Some("on-demand".into()),
            price: Some("0.096".into()),
            estimated: false,
            reached,
            deleting: false,
        }
    }

    fn view() -> View {
        View {
            pods: BTreeMap::from([(
                ("tenant-a".to_owned(), "web-1".to_owned()),
                PodState {
                    phase: "Pending".into(),
                    waits: Some("the pod waits for pool-a-1".into()),
                    ..PodState::default()
                },
            )]),
            claims: BTreeMap::from([("pool-a-1".to_owned(), claim("n1", Some(condition::LAUNCHED)))]),
            tenants: BTreeMap::from([("tenant-a".to_owned(), "a".to_owned())]),
        }
    }

    #[test]
    fn equal_views_have_no_changes() {
        let before = view();
        assert_eq!(
            before.changes_since(&View::default()),
            [
                "tenant-a/web-1: the pod waits for pool-a-1",
                "pool-a-1: launched i-1 (m5.large, us-east-1a, on-demand)",
                "tenant-a: 0 of 1 pods are running",
            ]
        );
        assert!(before.changes_since(&before).is_empty());
        let mut after = before.clone();
        after.claims.insert("pool-a-1".into(), claim("n1", Some(condition::READY)));
        let pod = after.pods.values_mut().next().unwrap();
        pod.phase = "Running".into();
        pod.node = Some("n1".into());
        assert_eq!(
            after.changes_since(&before),
            ["pool-a-1: n1 is ready", "tenant-a: 1 of 1 pods are running"]
        );
        assert_eq!(
            View { claims: BTreeMap::new(), ..after.clone() }.changes_since(&after),
            ["pool-a-1: removed"]
        );
    }

    #[test]
    fn table_has_node_and_price_of_every_pod() {
        let mut view = view();
        view.pods.values_mut().next().unwrap().node = Some("n1".into());
        let mut out = anstream::StripStream::new(Vec::new());
        view.table().write(&mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            ["a", "tenant-a", "web-1", "pool-a", "n1", "m5.large", "us-east-1a", "on-demand", "0.096"]
        );
    }

    #[test]
    fn cost_is_the_exact_sum_of_known_prices() {
        let mut view = view();
        view.claims.insert("pool-a-2".into(), claim("n2", None));
        view.claims.insert("pool-a-3".into(), ClaimState { price: Some("?".into()), ..claim("n3", None) });
        assert_eq!(view.cost().to_string(), "0.192");
    }
}
