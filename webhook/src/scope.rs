//! Which requests the API server asks us about, as far as that depends on what is declared: exempt namespaces,
//! keys of pools, and names of schedulers, written into our webhook configurations.
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

/// What the configurations depend on, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
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
        let found = expressions.iter_mut().find(|e| e.key == NAME_LABEL && e.operator == "NotIn");
        match found {
            _ if left_out.is_empty() => expressions.retain(|e| e.key != NAME_LABEL || e.operator != "NotIn"),
            Some(expression) => expression.values = Some(left_out),
            None => expressions.push(LabelSelectorRequirement {
                key: NAME_LABEL.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(left_out),
            }),
        }
    }

    /// Writes the conditions of `webhook` that depend on what is declared.
    pub fn condition(&self, webhook: &str, conditions: &mut Option<Vec<MatchCondition>>) {
        let (name, expression) = match webhook {
            STRANGERS => (REACHES, reaches(&self.keys)),
            BINDINGS => {
                (NOT_A_SCHEDULER, format!("!(request.userInfo.username in {})", list(&self.schedulers)))
            }
            _ => return,
        };
        let conditions = conditions.get_or_insert_default();
        match conditions.iter_mut().find(|condition| condition.name == name) {
            Some(condition) => condition.expression = expression,
            None => conditions.push(MatchCondition { name: name.to_owned(), expression }),
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
    use croft_policy::{Config, Index};

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
    fn nothing_exempt_leaves_no_empty_list() {
        let mut selector = None;
        scope(Config::default()).restrict("pods.croft.dev", &mut selector);
        assert_eq!(selector.as_ref().unwrap().match_expressions.as_ref().unwrap().len(), 1);
        scope(Config { exempt: Vec::new(), ..Config::default() }).restrict("pods.croft.dev", &mut selector);
        assert!(selector.unwrap().match_expressions.unwrap().is_empty(), "an empty NotIn is invalid");
    }

    #[test]
    fn the_manifests_say_what_the_defaults_give() {
        use k8s_openapi::api::admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
        };
        let text = include_str!("../../manifests/install/webhooks.yaml");
        let mut documents = text.split("\n---\n");
        let mutating: MutatingWebhookConfiguration =
            serde_saphyr::from_str(documents.next().unwrap()).unwrap();
        let validating: ValidatingWebhookConfiguration =
            serde_saphyr::from_str(documents.next().unwrap()).unwrap();
        let scope = scope(Config::default());
        let check =
            |name: &str, selector: &Option<LabelSelector>, conditions: &Option<Vec<MatchCondition>>| {
                let (mut wanted_selector, mut wanted_conditions) = (selector.clone(), conditions.clone());
                scope.restrict(name, &mut wanted_selector);
                scope.condition(name, &mut wanted_conditions);
                assert_eq!(selector, &wanted_selector, "{name}");
                assert_eq!(conditions, &wanted_conditions, "{name}");
            };
        for hook in mutating.webhooks.unwrap() {
            check(&hook.name, &hook.namespace_selector, &hook.match_conditions);
        }
        for hook in validating.webhooks.unwrap() {
            check(&hook.name, &hook.namespace_selector, &hook.match_conditions);
        }
    }
}
