//! Which requests the API server asks us about, as far as that depends on what is declared: exempt namespaces,
//! keys of pools, and names of schedulers, written into our webhook configurations. Without a Tenant it asks about none.
//!
//! What a webhook isn't asked about can't wait for it. So a namespace that is exempt is left out by its name, a
//! pod of nobody that can't reach a pool's node is left out by the keys of the pools, and a scheduler's binding is
//! left out by its user name.

use croft_policy::index::Rules;
use k8s_openapi::{
    api::admissionregistration::v1::MatchCondition,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

/// The label with a namespace's name, which the API server keeps itself.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The webhook for pods and DaemonSets of namespaces that are known to be nobody's.
pub const STRANGERS: &str = "strangers.croft.dev";
/// The webhook for bindings.
pub const BINDINGS: &str = "bindings.croft.dev";
/// The condition of [`STRANGERS`] that depends on the pools.
pub const REACHES: &str = "reaches-for-a-pool";
/// The condition of [`BINDINGS`] that depends on the settings.
pub const NOT_A_SCHEDULER: &str = "not-a-scheduler";

/// The condition of every webhook that no request meets, as long as there is no Tenant.
pub const A_TENANT_EXISTS: &str = "a-tenant-exists";

/// What the configurations depend on, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    active: bool,
    exempt: Vec<String>,
    shared_with: Vec<String>,
    keys: Vec<String>,
    schedulers: Vec<String>,
}

impl Scope {
    /// The scope of what is declared.
    #[must_use]
    pub fn of(rules: &Rules) -> Self {
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        Self {
            active: rules.is_active(),
            exempt: owned(rules.exempt()),
            shared_with: owned(rules.shared_with()),
            keys: owned(rules.keys()),
            schedulers: owned(rules.schedulers()),
        }
    }

    /// Leaves out by name the namespaces that `webhook` isn't to be asked about.
    pub fn restrict(&self, webhook: &str, selector: &mut Option<LabelSelector>) {
        let shared: &[String] = if webhook == STRANGERS { &self.shared_with } else { &[] };
        let mut left_out: Vec<String> = self.exempt.iter().chain(shared).cloned().collect();
        left_out.sort_unstable();
        left_out.dedup();
        let expressions = selector.get_or_insert_default().match_expressions.get_or_insert_default();
        expressions.push(LabelSelectorRequirement {
            key: NAME_LABEL.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(left_out),
        });
    }

    /// Adds the conditions of `webhook` that depend on what is declared.
    pub fn condition(&self, webhook: &str, conditions: &mut Option<Vec<MatchCondition>>) {
        let own = match webhook {
            STRANGERS => Some((REACHES, reaches(&self.keys))),
            BINDINGS => {
                Some((NOT_A_SCHEDULER, format!("!(request.userInfo.username in {})", list(&self.schedulers))))
            }
            _ => None,
        };
        let none = (!self.active).then(|| (A_TENANT_EXISTS, "false".to_owned()));
        let added = own
            .into_iter()
            .chain(none)
            .map(|(name, expression)| MatchCondition { name: name.to_owned(), expression });
        let added: Vec<_> = added.collect();
        if !added.is_empty() {
            conditions.get_or_insert_default().extend(added);
        }
    }
}

/// True of a pod, or a DaemonSet's pods, that name a node, select a pool, or tolerate one's taint.
fn reaches(keys: &[String]) -> String {
    let keys = list(keys);
    let of = |spec: &str| {
        format!(
            "has({spec}.nodeName) && {spec}.nodeName != '' || has({spec}.nodeSelector) && \
             {spec}.nodeSelector.exists(k, k in {keys}) || has({spec}.tolerations) && \
             {spec}.tolerations.exists(t, !has(t.key) || t.key == '' || t.key in {keys})"
        )
    };
    format!(
        "request.resource.resource == 'daemonsets' ? {} : {}",
        of("object.spec.template.spec"),
        of("object.spec")
    )
}

/// A CEL list of strings. Escapes what a string in single quotes may not hold; user names may hold anything.
fn list(words: &[String]) -> String {
    let mut text = String::from("[");
    for (index, word) in words.iter().enumerate() {
        text.push_str(if index == 0 { "'" } else { ", '" });
        for c in word.chars() {
            match c {
                '\'' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => text.push(c),
            }
        }
        text.push('\'');
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use croft_policy::{Config, Index, Tenant};

    use super::*;

    fn scope(config: Config) -> Scope {
        let mut index = Index::new();
        index.set_config(config);
        Scope::of(index.snapshot().rules())
    }

    #[test]
    fn words_cannot_break_out_of_their_quotes() {
        let words = ["a'b".to_owned(), "c\\d\n".to_owned()];
        assert_eq!(list(&words), r"['a\'b', 'c\\d\u000a']");
        assert_eq!(list(&[]), "[]");
    }

    #[test]
    fn shared_namespaces_are_left_out_only_where_strangers_are_judged() {
        let scope = scope(Config { shared_with: vec!["agents".to_owned()], ..Config::default() });
        let values = |webhook: &str| {
            let mut selector = None;
            scope.restrict(webhook, &mut selector);
            selector.unwrap().match_expressions.unwrap()[0].values.clone().unwrap()
        };
        assert!(values(STRANGERS).contains(&"agents".to_owned()));
        assert!(!values("pods.croft.dev").contains(&"agents".to_owned()));
    }

    #[test]
    fn exempt_namespaces_of_the_settings_are_left_out_beside_those_that_are_built_in() {
        let mut selector = None;
        let config = Config { exempt: vec!["more".to_owned()], ..Config::installed_in("ours") };
        scope(config).restrict("pods.croft.dev", &mut selector);
        let expressions = selector.unwrap().match_expressions.unwrap();
        let left_out = ["kube-node-lease", "kube-public", "kube-system", "more", "ours"];
        assert_eq!(expressions[0].values.as_deref().unwrap(), left_out);
    }

    #[test]
    fn without_a_tenant_no_webhook_is_asked() {
        let mut index = Index::new();
        let mut conditions = None;
        Scope::of(index.snapshot().rules()).condition("pods.croft.dev", &mut conditions);
        assert_eq!(conditions.unwrap()[0].expression, "false");
        index.upsert_tenant(Tenant { name: "a".to_owned(), ..Tenant::default() });
        let mut conditions = None;
        Scope::of(index.snapshot().rules()).condition("pods.croft.dev", &mut conditions);
        assert_eq!(conditions, None);
    }
}
