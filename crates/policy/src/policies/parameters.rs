//! The values that the static policies read: annotations of Croft's own Namespace, written by the controller alone.
//!
//! A policy with `parameters: true` has that Namespace as `params`. It reads an annotation with `cel::words` or
//! `cel::text`, as a variable:
//!
//! ```text
//!  Declarations ──parameters()──▶ annotations of Croft's Namespace ──params──▶ ("keys", cel::words(parameter::POOL_KEYS))
//! ```
//!
//! A new parameter is a constant of [`parameter`](crate::definitions::parameter), a line in [`parameters`], and a
//! variable of the policy that reads it. The policy `croft-reserved-metadata` refuses other writers.

use std::collections::BTreeMap;

use crate::{
    definitions::{
        POOL_NAME_LABEL,
        parameter::{
            ALL_POOLS, EXEMPT, KUBELET_LABELS, MUTATION, NAMESPACE_CREATION, NON_TENANT_PODS, ON_CONFLICT,
            OPEN_NAMES, OWNER_METADATA, POOL_KEYS, REVISION, SHARED_WITH, TENANTS,
        },
    },
    rules::{
        namespace::{self, EVERY_TENANT},
        node::RESTRICTED_PREFIX,
    },
    tenancy::{
        declarations::{Declarations, DeclaredKey, DeclaredPool, DeclaredTenant},
        model::{
            BUILT_IN_EXEMPT, Mutation, NonTenantPods, OnConflict, Owner, Provisioner, SINGLETON, Subject,
        },
        selector::Test,
        taint::Effect,
    },
};

/// Prefix of the answer to a [`PROBE`](crate::definitions::parameter::PROBE) whose revision is in force.
pub const IN_FORCE: &str = "parameters in force: ";

/// In that answer, what comes before the [version](crate::policies::mutation::version) of the mutating policies, if they
/// act.
pub const MUTATED_BY: &str = ", mutated by ";

/// The version of the mutating policies that act, by the answer to a [`PROBE`](crate::definitions::parameter::PROBE).
///
/// ```
/// use croft_policy::policies::parameters::mutated_by;
///
/// assert_eq!(mutated_by("parameters in force: 0a, mutated by 1b").as_deref(), Some("1b"));
/// assert_eq!(mutated_by("parameters in force: 0a"), None);
/// ```
#[must_use]
pub fn mutated_by(answer: &str) -> Option<String> {
    let (_, rest) = answer.split_once(MUTATED_BY)?;
    Some(rest.chars().take_while(char::is_ascii_hexdigit).collect())
}

/// True if [`ALL_POOLS`], as `written`, lacks the pools, since there are more than it holds.
///
/// ```
/// use croft_policy::policies::parameters::has_more_pools;
///
/// assert!(has_more_pools("*;"));
/// assert!(!has_more_pools("node-pool=a:NoSchedule:a;"));
/// ```
#[must_use]
pub fn has_more_pools(written: &str) -> bool {
    written.split(';').any(|entry| entry == MORE)
}

/// True if [`ALL_POOLS`], as `written`, names the pool, or would if it held more.
#[must_use]
pub fn names_pool(written: &str, pool: &DeclaredPool) -> bool {
    let label = label_entry(pool);
    has_more_pools(written) || written.split(';').any(|entry| entry.starts_with(&label))
}

/// The value of [`NON_TENANT_PODS`] while no Tenant is enforced: nothing outside Croft's own Namespace is changed.
pub const INACTIVE: &str = "Inactive";

/// Bytes of [`TENANTS`]. The API server takes 256 KiB of annotations on an object.
const CLAIMS_LIMIT_BYTES: usize = 160 * 1024;
/// Bytes of [`OPEN_NAMES`].
const NAMES_LIMIT_BYTES: usize = 32 * 1024;
/// Bytes of [`NAMESPACE_CREATION`]. Owners of the youngest tenants beyond it can't create namespaces.
const CREATION_LIMIT_BYTES: usize = 32 * 1024;
/// Bytes of [`ALL_POOLS`].
const POOLS_LIMIT_BYTES: usize = 24 * 1024;
/// The entry of [`TENANTS`], [`OPEN_NAMES`] or [`ALL_POOLS`] that stands for all that don't fit.
pub(super) const MORE: &str = "*";
/// A word that is no label, value or name.
const NOTHING: &str = "?";

/// The annotations of Croft's own Namespace. Non-tenant pods are subject to the policies only if `active`. The mutating
/// policies act only with [`Mutation::Policy`], which may differ from the settings while the mode is switched. `creation` says of
/// a tenant by name whether its owners may create a namespace.
#[must_use]
pub fn parameters(
    declarations: &Declarations,
    active: bool,
    mutation: Mutation,
    creation: impl Fn(&str) -> Creation,
) -> BTreeMap<&'static str, String> {
    let keys: Vec<&str> = declarations.keys().into_iter().filter(|key| *key != POOL_NAME_LABEL).collect();
    let exempt: Vec<&str> =
        declarations.exempt().into_iter().filter(|name| !BUILT_IN_EXEMPT.contains(name)).collect();
    let non_tenant_pods = match declarations.non_tenant_pods() {
        _ if !active => INACTIVE,
        NonTenantPods::KeepOut => "KeepOut",
        NonTenantPods::Reject => "Reject",
        NonTenantPods::Allow => "Allow",
    };
    let mut parameters = BTreeMap::from([
        (POOL_KEYS, keys.join(",")),
        (KUBELET_LABELS, kubelet_labels(declarations).join(",")),
        (EXEMPT, exempt.join(",")),
        (SHARED_WITH, declarations.shared_with().join(",")),
        (NON_TENANT_PODS, non_tenant_pods.to_owned()),
        (TENANTS, tenants(declarations.tenants())),
        (OPEN_NAMES, open_names(declarations)),
        (ALL_POOLS, all_pools(declarations)),
        (ON_CONFLICT, on_conflict(declarations).to_owned()),
        (MUTATION, mutation.as_str().to_owned()),
        (OWNER_METADATA, declarations.owner_metadata().join(",")),
        (NAMESPACE_CREATION, namespace_creation(declarations.tenants(), creation)),
    ]);
    parameters.insert(REVISION, revision(&parameters));
    parameters
}

/// Whether the owners of a tenant may create a namespace now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// They may.
    Open,
    /// As many exist as they may create.
    Full,
    /// A replica of the webhook doesn't enforce the Tenant yet: it would take a new namespace for a non-tenant one.
    Pending,
}

impl Creation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Full => "full",
            Self::Pending => "pending",
        }
    }
}

/// The tenants whose owners may create namespaces, the oldest first. A tenant that doesn't fit is left out, so its owners
/// can create none.
fn namespace_creation(tenants: &[DeclaredTenant], state: impl Fn(&str) -> Creation) -> String {
    let mut text = String::new();
    for tenant in tenants {
        let Some(creation) = tenant.creation() else { continue };
        let word = |owner: &Owner| match &owner.subject {
            Subject::User(name) => format!("U:{name}"),
            Subject::Group(name) => format!("G:{name}"),
        };
        // A name with a blank would be two words.
        let words = tenant.owners().iter().map(word).filter(|word| !word.contains(char::is_whitespace));
        let state = state(&tenant.name).as_str();
        let first =
            [&*tenant.name, &creation.prefix, &creation.maximum.to_string(), state].map(str::to_owned);
        let entry = first.into_iter().chain(words).collect::<Vec<_>>().join(" ");
        if text.len() + entry.len() < CREATION_LIMIT_BYTES {
            text.push_str(&entry);
            text.push('\n');
        }
    }
    text
}

fn revision(parameters: &BTreeMap<&'static str, String>) -> String {
    hash(parameters.iter().flat_map(|(name, text)| [name.as_bytes(), b"\0", text.as_bytes(), b"\n"]))
}

/// FNV-1a, so that all versions of Croft compute the same.
pub(super) fn hash<'b>(parts: impl Iterator<Item = &'b [u8]>) -> String {
    let hash = parts.flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The keys of which no pool is provisioned by Croft, and the labels of the other pools that Croft doesn't provision.
fn kubelet_labels(declarations: &Declarations) -> Vec<String> {
    let pools_of = |key: &str| -> Vec<_> {
        declarations
            .key(key)
            .into_iter()
            .flat_map(|k| k.pools().iter().filter_map(|id| declarations.pool(*id)))
            .collect()
    };
    let open = |key: &str| {
        !key.starts_with(RESTRICTED_PREFIX)
            && !declarations.key(key).is_some_and(DeclaredKey::awaits_croft)
            && pools_of(key).iter().all(|pool| pool.provisioner != Provisioner::Croft)
    };
    let keys: Vec<&str> = declarations.keys().into_iter().filter(|key| open(key)).collect();
    let others = declarations.pools().iter().filter(|pool| {
        pool.provisioner != Provisioner::Croft
            && !pool.key.starts_with(RESTRICTED_PREFIX)
            && !keys.contains(&&*pool.key)
    });
    let others = others.map(|pool| format!("{}={}", pool.key, pool.value));
    keys.iter().map(|key| (*key).to_owned()).chain(others).collect()
}

/// The names of namespaces to which something is open, as `name=resource/name,resource/name`; entries end with a semicolon.
/// If they don't fit, each name that Tenants open needs the verb `assign` on all of them. If they don't fit then either,
/// every name needs it on the CroftConfig.
fn open_names(declarations: &Declarations) -> String {
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let entries = namespace::open_names(declarations).into_iter().filter(plain);
    let entries: Vec<_> = entries.map(|name| (name, namespace::opened_by(declarations, name))).collect();
    let text = |of: &dyn Fn(&[String]) -> Vec<String>| -> String {
        entries.iter().map(|(name, opened_by)| format!("{name}={};", of(opened_by).join(","))).collect()
    };
    let short = |opened_by: &[String]| -> Vec<String> {
        let (tenants, others): (Vec<_>, Vec<_>) =
            opened_by.iter().cloned().partition(|object| object.starts_with("tenants/"));
        let all = (!tenants.is_empty()).then(|| EVERY_TENANT.to_owned());
        others.into_iter().chain(all).collect()
    };
    let candidates = [text(&<[String]>::to_vec), text(&short)];
    let fits = candidates.into_iter().find(|text| text.len() <= NAMES_LIMIT_BYTES);
    fits.unwrap_or_else(|| format!("{MORE}=croftconfigs/{SINGLETON};"))
}

/// Every pool as `key=value:effects:label:provisioner`; entries end with a semicolon. If they don't fit, the mutating policies refuse
/// each non-tenant pod that tolerates or selects one.
fn all_pools(declarations: &Declarations) -> String {
    let entries = declarations.pools().iter().map(|pool| {
        let effects: Vec<&str> = pool.effects.iter().map(Effect::as_str).collect();
        let provisioner = pool.provisioner.as_str();
        format!("{}{}:{}:{provisioner};", label_entry(pool), effects.join(","), pool.pool_name_label())
    });
    let text: String = entries.collect();
    if text.len() > POOLS_LIMIT_BYTES { format!("{MORE};") } else { text }
}

/// A Tenant whose claims can't be read may have either: its namespaces keep the annotation of before.
fn on_conflict(declarations: &Declarations) -> &'static str {
    let moves = |tenant: &DeclaredTenant| tenant.on_conflict == OnConflict::Override;
    if declarations.has_unreadable_claims() || declarations.tenants().iter().any(moves) {
        "Override"
    } else {
        "Reject"
    }
}

/// The beginning of a pool's entry in [`ALL_POOLS`], which no other pool's entry has.
fn label_entry(pool: &DeclaredPool) -> String {
    format!("{}={}:", pool.key, pool.value)
}

/// The claims of all tenants, the oldest first, so that the youngest are left out if they don't fit.
fn tenants(tenants: &[DeclaredTenant]) -> String {
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

/// A tenant's claims as `name:namespace,namespace:key operator value,value&key operator value`, with a colon and the prefix
/// after it if owners may create namespaces; entries end with a semicolon. None of these characters may be in a name, or in
/// a label's key or value.
#[must_use]
pub fn claims(tenant: &DeclaredTenant) -> String {
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
    let prefix = tenant.creation().map(|creation| creation.prefix.as_str()).filter(|prefix| plain(prefix));
    let prefix = prefix.map(|prefix| format!(":{prefix}")).unwrap_or_default();
    format!("{}:{}:{}{prefix}", tenant.name, names.join(","), selector.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenancy::{
        model::{Config, NamespaceCreation, Pool, PoolTenants, Tenant},
        selector::{Requirement, Selector},
        taint::Effects,
    };

    /// The parameters while owners may create namespaces.
    fn written(declarations: &Declarations, active: bool) -> BTreeMap<&'static str, String> {
        parameters(declarations, active, Mutation::Webhook, |_| Creation::Open)
    }

    fn pool(name: &str, key: &str, provisioner: Provisioner) -> Pool {
        Pool {
            name: name.to_owned(),
            created: None,
            key: key.to_owned(),
            value: name.to_owned(),
            effects: Effects::default(),
            shared_with: Vec::new(),
            provisioner,
            template: crate::NodeTemplate::default(),
            tenants: crate::PoolTenants::default(),
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

    fn owner(kind: &str, name: &str, namespace: &str) -> Owner {
        Owner { subject: Subject::new(kind, name, namespace).unwrap(), roles: vec!["admin".to_owned()] }
    }

    fn declarations(tenants: &[Tenant], pools: &[Pool]) -> Declarations {
        Declarations::new(&Config::default(), tenants.iter(), pools.iter())
    }

    #[test]
    fn keys_of_every_provisioner_are_listed_and_kubelets_register_only_with_open_ones() {
        let pools = [
            pool("p", POOL_NAME_LABEL, Provisioner::Croft),
            pool("q", "by-croft", Provisioner::Croft),
            pool("r", "by-both", Provisioner::Croft),
            pool("s", "by-both", Provisioner::Karpenter),
            pool("t", "by-others", Provisioner::None),
            Pool { tenants: PoolTenants::Each, ..pool("u", "to-come", Provisioner::Croft) },
            Pool { tenants: PoolTenants::Each, ..pool("v", "to-come-by-others", Provisioner::Karpenter) },
        ];
        let written = written(&declarations(&[tenant("a", &["n"], &[])], &pools), true);
        assert_eq!(written[POOL_KEYS], "by-both,by-croft,by-others,to-come,to-come-by-others");
        assert_eq!(written[KUBELET_LABELS], "by-others,to-come-by-others,by-both=s");
        assert_eq!(written[EXEMPT], "croft-system");
        assert_eq!(written[NON_TENANT_PODS], "KeepOut");
        assert_eq!(written[TENANTS], "a:n:;");
    }

    #[test]
    fn tenants_whose_owners_create_namespaces_are_listed_with_prefix_and_owners() {
        let mut one = tenant("a", &["n"], &[]);
        one.owners = [("User", "jane"), ("User", "two words"), ("Group", "ops")]
            .map(|(kind, name)| owner(kind, name, ""))
            .into();
        one.creation = Some(NamespaceCreation { prefix: "a-".to_owned(), maximum: 7 });
        let declared = declarations(&[one, tenant("b", &["m"], &[])], &[]);
        let open = written(&declared, true);
        assert_eq!(open[TENANTS], "a:n::a-;b:m:;");
        assert_eq!(open[NAMESPACE_CREATION], "a a- 7 open U:jane G:ops\n");
        for (state, word) in [(Creation::Full, "full"), (Creation::Pending, "pending")] {
            let other = parameters(&declared, true, Mutation::Webhook, |_| state);
            assert_eq!(other[NAMESPACE_CREATION], format!("a a- 7 {word} U:jane G:ops\n"));
            assert_ne!(other[REVISION], open[REVISION]);
        }
    }

    #[test]
    fn pods_are_left_as_they_are_only_where_no_tenant_could_move_them() {
        let plain = tenant("a", &["n"], &[]);
        let moving = Tenant { on_conflict: OnConflict::Override, ..tenant("b", &["m"], &[]) };
        let unreadable = Tenant { unreadable_claims: true, ..tenant("c", &[], &[]) };
        let text = |tenants: &[Tenant]| written(&declarations(tenants, &[]), true)[ON_CONFLICT].clone();
        assert_eq!(text(std::slice::from_ref(&plain)), "Reject");
        assert_eq!(text(&[plain.clone(), moving]), "Override");
        assert_eq!(text(&[plain, unreadable]), "Override");
    }

    #[test]
    fn open_names_are_listed_with_their_openers_or_replaced_by_a_wildcard() {
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
            written(&Declarations::new(&config, [].iter(), pools.iter()), true)
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
    fn names_of_networks_and_of_owners_accounts_are_open_unless_a_tenant_claims_them() {
        let mut shop = tenant("shop", &["shop"], &[]);
        shop.peers = ["ingress", "shop", "pay-web", "kube-system"].map(str::to_owned).into();
        shop.owners =
            vec![owner("ServiceAccount", "ci", "build"), owner("Group", "system:serviceaccounts:cd", "")];
        let mut pay = tenant("pay", &["pay"], &[]);
        pay.creation = Some(NamespaceCreation { prefix: "pay-".to_owned(), maximum: 1 });
        pay.peers = ["ingress", "shop"].map(str::to_owned).into();
        let text = |tenants: &[Tenant]| written(&declarations(tenants, &[]), true)[OPEN_NAMES].clone();
        assert_eq!(
            text(&[shop, pay]),
            "build=tenants/shop;cd=tenants/shop;ingress=tenants/pay,tenants/shop;"
        );
        let peered = |count: usize, peers: &dyn Fn(usize) -> String| -> Vec<Tenant> {
            let one = |n: usize| Tenant { peers: vec![peers(n)], ..tenant(&format!("tenant-{n}"), &[], &[]) };
            (0..count).map(one).collect()
        };
        assert_eq!(text(&peered(4, &|_| "ingress".to_owned())), "ingress=tenants/*;");
        let many = text(&peered(1_300, &|n| format!("peer-{n:04}")));
        assert!(many.starts_with("peer-0000=tenants/*;peer-0001=tenants/*;"), "{}", many.len());
        assert_eq!(text(&peered(5_000, &|n| format!("peer-{n:04}"))), "*=croftconfigs/default;");
    }

    #[test]
    fn inactive_parameters_allow_non_tenant_pods_and_still_list_the_keys() {
        let written = written(&declarations(&[], &[pool("q", "by-croft", Provisioner::Croft)]), false);
        assert_eq!(
            (written[NON_TENANT_PODS].as_str(), written[POOL_KEYS].as_str()),
            ("Inactive", "by-croft")
        );
    }

    #[test]
    fn claims_encode_every_operator_and_leave_out_separators() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let selector = [
            ("team", Test::In(words(&["a", "b"]))),
            ("x/stage", Test::NotIn(words(&["test"]))),
            ("env", Test::Exists),
            ("old", Test::DoesNotExist),
            ("odd", Test::In(words(&["a;b:c"]))),
            ("od d", Test::NotIn(words(&["a"]))),
        ];
        let declarations = declarations(&[tenant("a", &["n2", "n1", "n;3"], &selector)], &[]);
        let text = claims(&declarations.tenants()[0]);
        assert_eq!(
            text,
            "a:n1,n2:team In a,b&x/stage NotIn test&env Exists ?&old DoesNotExist ?&odd In ?&? NotIn a"
        );
    }

    #[test]
    fn tenants_beyond_the_limit_are_replaced_by_a_wildcard() {
        let many: Vec<Tenant> =
            (0..20_000).map(|i| tenant(&format!("t{i}"), &["a-namespace-of-a-tenant"], &[])).collect();
        let text = &written(&declarations(&many, &[]), true)[TENANTS];
        assert!(text.len() <= CLAIMS_LIMIT_BYTES + 16 && text.ends_with(";*::;"), "{}", text.len());
    }

    #[test]
    fn revision_changes_with_every_parameter_and_is_repeatable() {
        let base = written(&declarations(&[], &[]), true);
        assert_eq!(base, written(&declarations(&[], &[]), true));
        for other in [
            written(&declarations(&[], &[]), false),
            written(&declarations(&[], &[pool("q", "by-croft", Provisioner::Croft)]), true),
            written(&declarations(&[tenant("a", &["n"], &[])], &[]), true),
        ] {
            assert_ne!(base[REVISION], other[REVISION]);
        }
    }
}
