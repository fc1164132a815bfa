use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn names() -> Vec<String> {
    vec!["croft-webhook.croft-system.svc".to_owned(), "127.0.0.1".to_owned()]
}

fn start() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn step(current: Option<&CertificateBundle>, now: Timestamp) -> Option<CertificateBundle> {
    Some(next_bundle(current, &names(), &Rotation::default(), None, now).unwrap())
        .filter(|next| Some(next) != current)
}

fn accepts(client_bundle: &str, bundle: &CertificateBundle, now: Timestamp) -> bool {
    names().iter().all(|name| trusted(&bundle.identity().chain_pem, client_bundle, name, now))
}

#[test]
fn first_secret_is_trusted_at_once_and_unchanged_afterwards() {
    let first = step(None, start()).unwrap();
    assert!(accepts(&first.trusted_pem(), &first, start()));
    assert!(
        accepts(&first.trusted_pem(), &first, before(start(), SKEW / 2)),
        "by an API server whose clock is behind"
    );
    assert!(!trusted(&first.identity().chain_pem, &first.trusted_pem(), "other.example", start()));
    assert_eq!(step(Some(&first), after(start(), DAY)), None);
    assert_eq!(CertificateBundle::parse(&first.data()).as_ref(), Some(&first));
}

#[test]
fn no_replica_serves_a_certificate_that_an_api_server_does_not_trust() {
    // Twelve years, day by day. Around each change, API servers hold the bundle before it and replicas serve the leaf
    // before or after it.
    let mut now = start();
    let mut held = step(None, now).unwrap();
    let (mut leaves, mut authorities) = (0, 0);
    for _ in 0..12 * 365 * 2 {
        now = after(now, DAY / 2);
        if let Some(changed) = step(Some(&held), now) {
            for (bundle, serving) in [(&held, &changed), (&changed, &held), (&changed, &changed)] {
                assert!(accepts(&bundle.trusted_pem(), serving, now), "at {now}");
            }
            leaves += u32::from(changed.leaf != held.leaf);
            authorities += u32::from(changed.signing != held.signing);
            held = changed;
        }
        assert!(accepts(&held.trusted_pem(), &held, now), "at {now}");
    }
    assert!(leaves > 12 * 365 / 90, "leaves are renewed: {leaves}");
    assert_eq!(authorities, 3, "an authority signs for two thirds of five years");
    assert!(held.previous.is_empty() && held.next.is_none(), "old authorities are dropped");
}

#[test]
fn authority_is_trusted_before_it_signs() {
    let rotation = Rotation::default();
    let first = step(None, start()).unwrap();
    let next_is_trusted =
        next_bundle(Some(&first), &names(), &rotation, Some(RotationRequest::Authority), start()).unwrap();
    assert_eq!(next_is_trusted.leaf, first.leaf);
    assert!(next_is_trusted.trusted_pem().starts_with(&first.trusted_pem()));
    let read = CertificateBundle::parse(&next_is_trusted.data()).unwrap();
    assert_eq!(read, next_is_trusted, "the next authority survives the Secret");
    assert_eq!(step(Some(&next_is_trusted), after(start(), rotation.ca_propagation_delay / 2)), None);

    let promoted = step(Some(&next_is_trusted), after(start(), rotation.ca_propagation_delay)).unwrap();
    assert_ne!(promoted.signing.pem, first.signing.pem);
    assert!(promoted.trusted_pem().contains(&first.signing.pem), "the old one is trusted on");
    assert!(accepts(
        &next_is_trusted.trusted_pem(),
        &promoted,
        after(start(), rotation.ca_propagation_delay)
    ));
    let later = after(start(), rotation.ca_propagation_delay + rotation.overlap);
    let settled = step(Some(&promoted), later).unwrap();
    assert_eq!(settled.trusted_pem(), promoted.signing.pem);
}

#[test]
fn requested_leaf_keeps_the_authority() {
    let first = step(None, start()).unwrap();
    let second =
        next_bundle(Some(&first), &names(), &Rotation::default(), Some(RotationRequest::Leaf), start())
            .unwrap();
    assert_ne!(second.leaf, first.leaf);
    assert_eq!(second.trusted_pem(), first.trusted_pem());
    assert!(accepts(&first.trusted_pem(), &second, start()));
}

#[test]
fn changed_names_get_a_new_leaf() {
    let first = step(None, start()).unwrap();
    let moved = vec!["10.0.0.1".to_owned()];
    let second = next_bundle(Some(&first), &moved, &Rotation::default(), None, start()).unwrap();
    assert!(trusted(&second.identity().chain_pem, &first.trusted_pem(), "10.0.0.1", start()));
}

/// A change of the Secret from outside.
type Damage = fn(&mut BTreeMap<String, ByteString>, &CertificateBundle);

#[test]
fn broken_secret_is_repaired() {
    let foreign = step(None, after(start(), DAY)).unwrap();
    let cases: [(&str, Damage); 6] = [
        ("a leaf of another authority", |data, foreign| {
            data.insert(keys::CERTIFICATE.into(), ByteString(foreign.leaf.chain_pem.clone().into()));
            data.insert(keys::KEY.into(), ByteString(foreign.leaf.key_pem.clone().into()));
        }),
        ("another key", |data, foreign| {
            data.insert(keys::KEY.into(), ByteString(foreign.leaf.key_pem.clone().into()));
        }),
        ("a leaf that is no certificate", |data, _| {
            data.insert(keys::CERTIFICATE.into(), ByteString(b"nothing".to_vec()));
        }),
        ("another authority without its key", |data, foreign| {
            data.insert(keys::AUTHORITY.into(), ByteString(foreign.signing.pem.clone().into()));
        }),
        ("an authority that is no certificate", |data, _| {
            data.insert(
                keys::AUTHORITY.into(),
                ByteString(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()),
            );
        }),
        ("an authority's key that is none", |data, _| {
            data.insert(keys::AUTHORITY_KEY.into(), ByteString(b"nothing".to_vec()));
        }),
    ];
    for (what, damage) in cases {
        let mut data = step(None, start()).unwrap().data();
        damage(&mut data, &foreign);
        let read = CertificateBundle::parse(&data);
        let healed =
            step(read.as_ref(), after(start(), DAY)).unwrap_or_else(|| panic!("{what} was left as it is"));
        assert!(accepts(&healed.trusted_pem(), &healed, after(start(), DAY)), "{what}");
        assert_eq!(step(Some(&healed), after(start(), DAY)), None, "{what}: healed in one step");
    }
}

#[test]
fn expired_secret_is_repaired() {
    let first = step(None, start()).unwrap();
    let later = after(start(), 6 * 365 * DAY);
    let healed = step(Some(&first), later).unwrap();
    assert!(accepts(&healed.trusted_pem(), &healed, later));
    assert!(!healed.trusted_pem().contains(&first.signing.pem), "an expired authority isn't trusted on");
}

#[test]
fn missing_part_is_no_bundle() {
    let data = step(None, start()).unwrap().data();
    for key in [keys::CERTIFICATE, keys::KEY, keys::AUTHORITY, keys::AUTHORITY_KEY] {
        let mut less = data.clone();
        less.remove(key);
        assert_eq!(CertificateBundle::parse(&less), None, "{key}");
    }
}
