use croft_policy::{NamespaceTenancy, definitions, model};
use croft_runtime::clock::{Clock as _, SystemClock};

use super::*;

fn tenant(name: &str, uid: &str, generation: i64) -> Change {
    let tenant = model::Tenant {
        name: name.to_owned(),
        namespaces: vec![format!("{name}-ns")],
        ..model::Tenant::default()
    };
    let tenant = Decoded { object: tenant, error: None };
    Change::Upserted(Kind::Tenant, Box::new(Item::Tenant { tenant, uid: uid.to_owned(), generation }))
}

fn namespace(name: &str) -> Change {
    let namespace = model::Namespace { name: name.to_owned(), ..model::Namespace::default() };
    Change::Upserted(Kind::Namespace, Box::new(Item::Namespace(namespace)))
}

const ALL: [Kind; KINDS] = [Kind::Tenant, Kind::Pool, Kind::Config, Kind::Namespace, Kind::Node];

#[test]
fn index_is_synced_once_every_list_is_complete() {
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    for kind in ALL {
        assert!(!writer.is_synced());
        writer.apply(Change::ListStarted(kind));
        writer.apply(Change::ListCompleted(kind));
    }
    assert!(writer.is_synced() && writer.dirty);
}

#[test]
fn repeated_list_removes_what_it_lacks_only_once_complete() {
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    for change in [
        Change::ListStarted(Kind::Namespace),
        namespace("a-ns"),
        namespace("b-ns"),
        Change::ListCompleted(Kind::Namespace),
    ] {
        writer.apply(change);
    }
    for change in [
        Change::ListStarted(Kind::Tenant),
        tenant("a", "u1", 1),
        tenant("b", "u2", 1),
        Change::ListCompleted(Kind::Tenant),
    ] {
        writer.apply(change);
    }
    writer.apply(Change::ListStarted(Kind::Tenant));
    writer.apply(tenant("a", "u1", 2));
    let before = writer.index.snapshot();
    assert!(
        matches!(before.tenancy("b-ns"), NamespaceTenancy::Tenant { .. }),
        "not while the list is incomplete"
    );
    writer.apply(Change::ListCompleted(Kind::Tenant));
    let after = writer.index.snapshot();
    assert!(matches!(after.tenancy("b-ns"), NamespaceTenancy::NonTenant));
    assert!(matches!(after.tenancy("a-ns"), NamespaceTenancy::Tenant { .. }));
    assert!(writer.observed_generations().covers("u1", 2) && !writer.observed_generations().covers("u2", 1));
    writer.apply(Change::Deleted(Kind::Namespace, "a-ns".to_owned()));
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Unknown));
}

/// A Tenant as it is stored.
fn stored(uid: &str, spec: &serde_json::Value) -> Change {
    let tenant = croft_policy::stored::tenant("a".to_owned(), Some(1), spec);
    Change::Upserted(Kind::Tenant, Box::new(Item::Tenant { tenant, uid: uid.to_owned(), generation: 7 }))
}

#[test]
fn invalid_tenant_keeps_its_last_valid_version() {
    use serde_json::json;
    let by = |operator: &str| {
        json!({"pools": ["p"], "namespaceSelector": {"matchExpressions": [
        {"key": "team", "operator": operator, "values": ["a"]}]}})
    };
    let team = |name: &str, annotations: &[(&str, &str)]| {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let namespace = model::Namespace {
            name: name.to_owned(),
            labels: [("team", "a")].iter().map(owned).collect(),
            annotations: annotations.iter().map(owned).collect(),
        };
        Change::Upserted(Kind::Namespace, Box::new(Item::Namespace(namespace)))
    };
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    writer.apply(team("a-ns", &[]));
    writer.apply(stored("u1", &by("In")));
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Tenant { .. }));
    writer.apply(stored("u1", &by("in")));
    assert!(
        matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Tenant { .. }),
        "the last good version"
    );
    assert!(writer.observed_generations().covers("u1", 7));
    assert_eq!(writer.invalid.count(), 1);
    // Another object of that name has no earlier version; nor has any after a restart.
    writer.apply(stored("u2", &by("in")));
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::NonTenant));
    writer.apply(team("a-ns", &[(definitions::POOLS_ANNOTATION, "k=v:NoSchedule:p")]));
    assert!(
        matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::TenantUnreadable),
        "held, never opened"
    );
    writer.apply(stored("u2", &by("In")));
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Tenant { .. }));
    assert_eq!(writer.invalid.count(), 0);
}

#[test]
fn config_absent_for_a_moment_stays_in_force() {
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    let exempts = |writer: &mut IndexWriter| {
        matches!(writer.index.snapshot().tenancy("agents"), NamespaceTenancy::Exempt)
    };
    let config = || {
        let view =
            serde_json::json!({"metadata": {"name": SINGLETON}, "spec": {"exemptNamespaces": ["agents"]}});
        let settings = serde_json::from_value(view).unwrap();
        Change::Upserted(Kind::Config, Box::new(Item::Config { name: SINGLETON.to_owned(), settings }))
    };
    writer.apply(config());
    writer.apply(Change::Deleted(Kind::Config, SINGLETON.to_owned()));
    let begun = writer.now;
    writer.now = begun + CONFIG_ABSENCE - std::time::Duration::from_secs(1);
    // A list that lacks it is the same absence, not a new one.
    writer.apply(Change::ListStarted(Kind::Config));
    writer.apply(Change::ListCompleted(Kind::Config));
    writer.confirm_absence();
    assert!(exempts(&mut writer));
    writer.apply(config());
    writer.now = begun + CONFIG_ABSENCE * 2;
    writer.confirm_absence();
    assert!(exempts(&mut writer), "it is there again");
    writer.apply(Change::Deleted(Kind::Config, SINGLETON.to_owned()));
    writer.now = begun + CONFIG_ABSENCE * 3;
    writer.confirm_absence();
    assert!(!exempts(&mut writer));
}

#[test]
fn terminating_namespace_is_unknown_until_it_is_created_again() {
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    writer.apply(tenant("a", "u1", 1));
    writer.apply(namespace("a-ns"));
    assert!(writer.index.snapshot().knows("a-ns"));
    let ending =
        || Change::Upserted(Kind::Namespace, Box::new(Item::TerminatingNamespace("a-ns".to_owned())));
    writer.apply(ending());
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Unknown));
    // Also where it is seen in a list.
    for change in [Change::ListStarted(Kind::Namespace), ending(), Change::ListCompleted(Kind::Namespace)] {
        writer.apply(change);
    }
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Unknown));
    writer.apply(Change::Deleted(Kind::Namespace, "a-ns".to_owned()));
    writer.apply(namespace("a-ns"));
    assert!(matches!(writer.index.snapshot().tenancy("a-ns"), NamespaceTenancy::Tenant { .. }));
}

#[test]
fn only_the_config_named_default_counts() {
    let mut writer = IndexWriter::new("ours".to_owned(), SystemClock.monotonic());
    let put = |name: &str| {
        let view = serde_json::json!({"metadata": {"name": name}, "spec": {"exemptNamespaces": ["x"]}});
        let settings = serde_json::from_value(view).unwrap();
        Change::Upserted(Kind::Config, Box::new(Item::Config { name: name.to_owned(), settings }))
    };
    writer.apply(put("other"));
    assert!(matches!(writer.index.snapshot().tenancy("x"), NamespaceTenancy::Unknown));
    writer.apply(put(SINGLETON));
    let exempt = |writer: &mut IndexWriter, name| {
        matches!(writer.index.snapshot().tenancy(name), NamespaceTenancy::Exempt)
    };
    for name in ["x", "ours", "kube-system", "kube-public", "kube-node-lease"] {
        assert!(exempt(&mut writer, name), "{name}: the settings add to what is built in");
    }
    assert!(!exempt(&mut writer, "croft-system"), "Croft is installed elsewhere");
    writer.apply(Change::Deleted(Kind::Config, SINGLETON.to_owned()));
    writer.now += CONFIG_ABSENCE;
    writer.confirm_absence();
    assert!(matches!(writer.index.snapshot().tenancy("x"), NamespaceTenancy::Unknown));
    assert!(exempt(&mut writer, "ours") && exempt(&mut writer, "kube-system"));
}
