//! What the static policies read: annotations of Croft's own Namespace, written by the controller alone.
//!
//! A policy with `parameters: true` has that Namespace as `params`. It reads an annotation with `words` or `text`, as a variable:
//!
//! ```text
//!  Rules ──parameters()──▶ annotations of Croft's Namespace ──params──▶ ("keys", parameters::words(parameters::KEYS))
//! ```
//!
//! A new parameter is a constant here, a line in [`parameters`], and a variable of the policy that reads it. The policy
//! `croft-guarded-metadata` refuses other writers of every annotation under [`PREFIX`].

use std::collections::BTreeMap;

use super::Policy;
use crate::{
    index::{Rules, TenantRule},
    model::{BUILT_IN_EXEMPT, MARK_KEY, Provisioner, SINGLETON, Unassigned},
    namespace,
    node::RESTRICTED_PREFIX,
    selector::Test,
};

/// Annotations under this prefix are the controller's, on every namespace.
pub const PREFIX: &str = "policy.croft.dev/";
/// Keys of pools, separated by commas, without the built-in one.
pub const KEYS: &str = "policy.croft.dev/keys";
/// What a kubelet may register its node with: a key (every value of it), or `key=value`; separated by commas.
pub const KUBELET_LABELS: &str = "policy.croft.dev/kubelet-labels";
/// Exempt namespaces besides the built-in ones, separated by commas.
pub const EXEMPT: &str = "policy.croft.dev/exempt";
/// Namespaces with which every pool is shared, separated by commas.
pub const SHARED_WITH: &str = "policy.croft.dev/shared-with";
/// What happens to a non-tenant pod that tolerates a pool's taint: `KeepOut`, `Reject` or `Allow`; `Inactive` as long as nothing
/// of the cluster is to be touched.
pub const NON_TENANT_PODS: &str = "policy.croft.dev/non-tenant-pods";
/// Claims of tenants on namespaces: see [`claims`].
pub const TENANTS: &str = "policy.croft.dev/tenants";
/// Namespaces to which pools are open by name: see `open_names`.
pub const OPEN_NAMES: &str = "policy.croft.dev/open-names";
/// A hash of all the others.
pub const REVISION: &str = "policy.croft.dev/revision";
/// Written with server-side dry-run only: the [`REVISION`] of which the writer asks whether it is in force.
pub const PROBE: &str = "policy.croft.dev/probe";
/// Opens the answer to a [`PROBE`] whose revision is in force.
pub const IN_FORCE: &str = "parameters in force: ";

/// The value of [`NON_TENANT_PODS`] as long as nothing of the cluster is to be touched.
pub const INACTIVE: &str = "Inactive";

/// The API server takes 256 KiB of annotations on an object.
const CLAIMS_LIMIT_BYTES: usize = 192 * 1024;
/// What names may take of that.
const NAMES_LIMIT_BYTES: usize = 32 * 1024;
/// The entry of [`TENANTS`] that says that there are more tenants than fit.
const MORE: &str = "*";
/// No label, value or name is this word.
const NOTHING: &str = "?";

/// The annotations of Croft's own Namespace for `rules`. Non-tenant pods are judged only if `active`.
#[must_use]
pub fn parameters(rules: &Rules, active: bool) -> BTreeMap<&'static str, String> {
    let keys: Vec<&str> = rules.keys().into_iter().filter(|key| *key != MARK_KEY).collect();
    let exempt: Vec<&str> =
        rules.exempt().into_iter().filter(|name| !BUILT_IN_EXEMPT.contains(name)).collect();
    let non_tenant_pods = match rules.unassigned() {
        _ if !active => INACTIVE,
        Unassigned::KeepOut => "KeepOut",
        Unassigned::Reject => "Reject",
        Unassigned::Allow => "Allow",
    };
    let mut parameters = BTreeMap::from([
        (KEYS, keys.join(",")),
        (KUBELET_LABELS, kubelet_labels(rules).join(",")),
        (EXEMPT, exempt.join(",")),
        (SHARED_WITH, rules.shared_with().join(",")),
        (NON_TENANT_PODS, non_tenant_pods.to_owned()),
        (TENANTS, tenants(rules.tenants())),
        (OPEN_NAMES, open_names(rules)),
    ]);
    parameters.insert(REVISION, revision(&parameters));
    parameters
}

/// FNV-1a, so that all versions of Croft agree.
fn revision(parameters: &BTreeMap<&'static str, String>) -> String {
    let parts = parameters.iter().flat_map(|(name, text)| [name.as_bytes(), b"\0", text.as_bytes(), b"\n"]);
    let hash = parts.flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Every value of a key that has no pool of Croft's, else the values of the other pools.
fn kubelet_labels(rules: &Rules) -> Vec<String> {
    let pools_of = |key: &str| -> Vec<_> {
        rules.key(key).into_iter().flat_map(|k| k.pools().iter().filter_map(|id| rules.pool(*id))).collect()
    };
    let open = |key: &str| {
        !key.starts_with(RESTRICTED_PREFIX)
            && pools_of(key).iter().all(|pool| pool.provisioner != Provisioner::Croft)
    };
    let keys: Vec<&str> = rules.keys().into_iter().filter(|key| open(key)).collect();
    let others = rules.pools().iter().filter(|pool| {
        pool.provisioner != Provisioner::Croft
            && !pool.key.starts_with(RESTRICTED_PREFIX)
            && !keys.contains(&&*pool.key)
    });
    let others = others.map(|pool| format!("{}={}", pool.key, pool.value));
    keys.iter().map(|key| (*key).to_owned()).chain(others).collect()
}

/// What opens pools to namespaces of which names, as `name=resource/name,resource/name`; entries end with a semicolon. Where
/// they are too many, every name needs the verb on the CroftConfig.
fn open_names(rules: &Rules) -> String {
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let entries = namespace::open_names(rules).into_iter().filter(plain);
    let text: String =
        entries.map(|name| format!("{name}={};", namespace::opened_by(rules, name).join(","))).collect();
    if text.len() > NAMES_LIMIT_BYTES { format!("{MORE}=croftconfigs/{SINGLETON};") } else { text }
}

/// The oldest first, so that what doesn't fit is the youngest.
fn tenants(tenants: &[TenantRule]) -> String {
    let mut text = String::new();
    for tenant in tenants {
        let entry = claims(tenant);
        if text.len() + entry.len() > CLAIMS_LIMIT_BYTES {
            text.push_str(&format!("{MORE}::;"));
            break;
        }
        text.push_str(&entry);
        text.push(';');
    }
    text
}

/// A tenant's claims as `name:namespace,namespace:key operator value,value&key operator value`; entries end with a
/// semicolon. None of these characters may be in a name, or in a label's key or value.
#[must_use]
pub fn claims(tenant: &TenantRule) -> String {
    let plain = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    let mut names: Vec<&str> = tenant.claimed_names().filter(|name| plain(name)).collect();
    names.sort_unstable();
    let selector = tenant.selector().map(|selector| {
        let requirements = selector.requirements().iter().map(|requirement| {
            let key = if plain(&requirement.key) { &requirement.key } else { NOTHING };
            let (operator, values): (&str, &[String]) = match &requirement.test {
                Test::In(values) => ("In", values),
                Test::NotIn(values) => ("NotIn", values),
                Test::Exists => ("Exists", &[]),
                Test::DoesNotExist => ("DoesNotExist", &[]),
            };
            let values: Vec<&str> = values.iter().map(String::as_str).filter(|value| plain(value)).collect();
            let values = if values.is_empty() { NOTHING.to_owned() } else { values.join(",") };
            format!("{key} {operator} {values}")
        });
        let text = requirements.collect::<Vec<_>>().join("&");
        if text.is_empty() { format!("{NOTHING} DoesNotExist {NOTHING}") } else { text }
    });
    format!("{}:{}:{}", tenant.name, names.join(","), selector.unwrap_or_default())
}

/// CEL: the text of a parameter, empty before the controller has written it.
pub(super) fn text(annotation: &str) -> String {
    format!("params.metadata.?annotations[?'{annotation}'].orValue('')")
}

/// CEL: the words of a parameter that lists some. The list of an empty text holds one empty word.
pub(super) fn words(annotation: &str) -> String {
    format!("{}.split(',')", text(annotation))
}

/// CEL: whether the request is made by Croft's controller.
pub(super) fn by_controller() -> String {
    "request.userInfo.username == 'system:serviceaccount:' + params.metadata.name + ':croft-controller'"
        .to_owned()
}

/// CEL: whether the request's namespace is exempt, or every pool is shared with it.
pub(super) fn in_free_namespace() -> String {
    format!(
        "request.namespace == params.metadata.name || request.namespace in {} || request.namespace in {}",
        words(EXEMPT),
        words(SHARED_WITH)
    )
}

/// CEL: non-tenant pods aren't judged.
pub(super) fn non_tenant_pods_allowed() -> String {
    format!("{} in ['', 'Allow', '{INACTIVE}']", text(NON_TENANT_PODS))
}

/// CEL: the tenants of [`TENANTS`] as lists of three words: name, namespaces, selector.
pub(super) fn all_tenants() -> String {
    format!("{}.split(';').filter(t, t != '').map(t, t.split(':'))", text(TENANTS))
}

/// CEL: whether the tenant `t` of [`all_tenants`] claims a namespace of the object's name with `labels`.
pub(super) fn is_claimed(labels: &str) -> String {
    format!(
        "(object.metadata.name in t[1].split(',') || (t[2] != '' && t[2].split('&').map(r, r.split(' ')).all(r, \
         r[1] == 'In' ? (r[0] in {labels} && {labels}[r[0]] in r[2].split(',')) : \
         r[1] == 'NotIn' ? !(r[0] in {labels} && {labels}[r[0]] in r[2].split(',')) : \
         r[1] == 'Exists' ? r[0] in {labels} : !(r[0] in {labels}))))"
    )
}

/// CEL: what opens pools to a namespace of the object's name, as `resource/name`.
pub(super) fn opened_by() -> String {
    format!(
        "{}.split(';').filter(e, e.startsWith(object.metadata.name + '=') || e.startsWith('{MORE}=')).map(e, e.split('=')[1]).join(',')\
         .split(',').filter(o, o != '')",
        text(OPEN_NAMES)
    )
}

/// CEL: there are more tenants than [`TENANTS`] holds.
pub(super) fn more_tenants() -> String {
    format!("variables.tenants.exists(t, t[0] == '{MORE}')")
}

/// Answers the controller's question whether what it wrote is in force: a dry run that names the revision is refused
/// once the API server's policies read it. All policies read one cache, so one answer is the answer of all.
pub(super) fn in_force() -> Policy {
    Policy {
        name: "croft-parameters",
        constraints: super::constraints("", &["namespaces"], &["UPDATE"], false),
        conditions: vec![
            ("own-namespace", "object.metadata.name == params.metadata.name".to_owned()),
            ("probe", format!("request.dryRun && '{PROBE}' in object.metadata.?annotations.orValue({{}})")),
        ],
        variables: Vec::new(),
        validations: vec![(
            format!("object.metadata.annotations['{PROBE}'] != {}", text(REVISION)),
            format!("'{IN_FORCE}' + {}", text(REVISION)),
        )],
        parameters: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Config, Pool, Tenant},
        selector::{Requirement, Selector},
        taint::Effects,
    };

    fn pool(name: &str, key: &str, provisioner: Provisioner) -> Pool {
        Pool {
            name: name.to_owned(),
            created: None,
            key: key.to_owned(),
            value: name.to_owned(),
            effects: Effects::default(),
            shared_with: Vec::new(),
            provisioner,
        }
    }

    fn tenant(name: &str, namespaces: &[&str], requirements: &[(&str, Test)]) -> Tenant {
        let requirements =
            requirements.iter().map(|(key, test)| Requirement { key: (*key).to_owned(), test: test.clone() });
        let requirements: Vec<_> = requirements.collect();
        Tenant {
            name: name.to_owned(),
            namespaces: namespaces.iter().map(|n| (*n).to_owned()).collect(),
            selector: (!requirements.is_empty()).then(|| Selector::new(requirements)),
            pools: vec!["p".to_owned()],
            ..Tenant::default()
        }
    }

    fn rules(tenants: &[Tenant], pools: &[Pool]) -> Rules {
        Rules::new(&Config::default(), tenants.iter(), pools.iter())
    }

    #[test]
    fn keys_of_every_provisioner_are_listed_and_kubelets_may_register_with_the_open_ones() {
        let pools = [
            pool("p", MARK_KEY, Provisioner::Croft),
            pool("q", "by-croft", Provisioner::Croft),
            pool("r", "by-both", Provisioner::Croft),
            pool("s", "by-both", Provisioner::Karpenter),
            pool("t", "by-others", Provisioner::None),
        ];
        let written = parameters(&rules(&[tenant("a", &["n"], &[])], &pools), true);
        assert_eq!(written[KEYS], "by-both,by-croft,by-others");
        assert_eq!(written[KUBELET_LABELS], "by-others,by-both=s");
        assert_eq!(written[EXEMPT], "croft-system");
        assert_eq!(written[NON_TENANT_PODS], "KeepOut");
        assert_eq!(written[TENANTS], "a:n:;");
    }

    #[test]
    fn names_to_which_pools_are_open_are_listed_with_what_opens_them_or_stand_for_all() {
        let shared = |name: &str, names: &[&str]| Pool {
            shared_with: names.iter().map(|n| (*n).to_owned()).collect(),
            ..pool(name, "by-croft", Provisioner::Croft)
        };
        let config = Config {
            exempt: vec!["b".to_owned(), "kube-system".to_owned(), "no;name".to_owned()],
            shared_with: vec!["c".to_owned()],
            ..Config::default()
        };
        let text = |pools: &[Pool]| {
            parameters(&Rules::new(&config, [].iter(), pools.iter()), true)
                .remove(OPEN_NAMES)
                .unwrap_or_default()
        };
        assert_eq!(
            text(&[shared("p", &["a", "b"]), shared("q", &["a"])]),
            "a=tenantpools/p,tenantpools/q;b=croftconfigs/default,tenantpools/p;c=croftconfigs/default;"
        );
        let many: Vec<String> = (0..5_000).map(|n| format!("namespace-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(text(&[shared("p", &many)]), "*=croftconfigs/default;");
    }

    #[test]
    fn inactive_parameters_judge_no_non_tenant_pod_and_still_name_the_keys() {
        let written = parameters(&rules(&[], &[pool("q", "by-croft", Provisioner::Croft)]), false);
        assert_eq!((written[NON_TENANT_PODS].as_str(), written[KEYS].as_str()), ("Inactive", "by-croft"));
    }

    #[test]
    fn claims_hold_every_operator_and_no_word_breaks_the_text() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let selector = [
            ("team", Test::In(words(&["a", "b"]))),
            ("x/stage", Test::NotIn(words(&["test"]))),
            ("env", Test::Exists),
            ("old", Test::DoesNotExist),
            ("odd", Test::In(words(&["a;b:c"]))),
            ("od d", Test::NotIn(words(&["a"]))),
        ];
        let rules = rules(&[tenant("a", &["n2", "n1", "n;3"], &selector)], &[]);
        let text = claims(&rules.tenants()[0]);
        assert_eq!(
            text,
            "a:n1,n2:team In a,b&x/stage NotIn test&env Exists ?&old DoesNotExist ?&odd In ?&? NotIn a"
        );
    }

    #[test]
    fn more_tenants_than_fit_are_marked() {
        let many: Vec<Tenant> =
            (0..20_000).map(|i| tenant(&format!("t{i}"), &["a-namespace-of-a-tenant"], &[])).collect();
        let text = &parameters(&rules(&many, &[]), true)[TENANTS];
        assert!(text.len() <= CLAIMS_LIMIT_BYTES + 16 && text.ends_with(";*::;"), "{}", text.len());
    }

    #[test]
    fn the_revision_changes_with_every_parameter_and_is_repeatable() {
        let base = parameters(&rules(&[], &[]), true);
        assert_eq!(base, parameters(&rules(&[], &[]), true));
        for other in [
            parameters(&rules(&[], &[]), false),
            parameters(&rules(&[], &[pool("q", "by-croft", Provisioner::Croft)]), true),
            parameters(&rules(&[tenant("a", &["n"], &[])], &[]), true),
        ] {
            assert_ne!(base[REVISION], other[REVISION]);
        }
    }
}
