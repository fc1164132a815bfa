//! The requests that API servers send to the webhooks, as far as they depend on declarations: exempt namespaces, keys of
//! pools and names of schedulers. Without a Tenant they send none but for namespaces and the controller's role bindings. In Policy mode they send only pods and
//! templates that name a node outright, and templates whose record CEL can't read.
//!
//! A request that isn't sent can't wait for a webhook. So an exempt namespace is left out by its name, a non-tenant pod
//! that can't reach the nodes of a pool by the keys of the pools, and a scheduler's binding by its user name.

use croft_policy::{
    Mutation, Tenants,
    definitions::{INJECTED_ANNOTATION, NAME_LABEL, UNREGISTERED_TAINT, webhook},
    policies,
};
use k8s_openapi::{
    api::admissionregistration::v1::{MatchCondition, MutatingWebhook},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

/// The condition of the webhook for non-tenant pods that depends on the pools.
pub const REACHES: &str = "reaches-for-a-pool";
/// The condition of the webhook for non-tenant pods that leaves out those that the pools' keys are excluded from already.
pub const NOT_KEPT_OUT: &str = "not-kept-out-already";
/// The condition of the webhook for bindings that depends on the settings.
pub const NOT_A_SCHEDULER: &str = "not-a-scheduler";

/// The condition of the webhook for roles that the controller gives.
pub const BY_THE_CONTROLLER: &str = "by-the-controller";
/// The condition of the webhook for namespaces, of which the controller writes what others may not.
const NOT_THE_CONTROLLER: &str = "not-the-controller";

/// The condition of the mutating webhooks in Policy mode.
pub const NOT_BY_POLICY: &str = "not-planned-by-policies";

/// The condition that no request meets while there is no Tenant, of every webhook but that for namespaces, since a backup may be
/// restored before the first Tenant, and that for roles.
pub const A_TENANT_EXISTS: &str = "a-tenant-exists";

/// The declarations that webhook configurations depend on, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    active: bool,
    mutation: Mutation,
    /// The policies have only just begun to act, so that webhooks keep the mode that they are written for.
    is_settling: bool,
    exempt: Vec<String>,
    shared_with: Vec<String>,
    keys: Vec<String>,
    schedulers: Vec<String>,
    controller: String,
}

impl Scope {
    /// The scope of these declarations. Policy mode counts once the policies read it as well: until then the webhook goes
    /// on, and both give the same answer.
    #[must_use]
    pub fn of(tenants: &Tenants) -> Self {
        let rules = tenants.declarations();
        let modes = [rules.mutation(), tenants.mutation()];
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        Self {
            active: rules.is_active(),
            mutation: if modes == [Mutation::Policy; 2] { Mutation::Policy } else { Mutation::Webhook },
            is_settling: false,
            exempt: owned(rules.exempt()),
            shared_with: owned(rules.shared_with()),
            keys: owned(rules.keys()),
            schedulers: owned(rules.schedulers()),
            controller: rules.controller_user(),
        }
    }

    /// The mode that the webhooks are written for.
    #[must_use]
    pub const fn mutation(&self) -> Mutation {
        self.mutation
    }

    /// The scope while another API server may not act in Policy mode yet.
    #[must_use]
    pub fn settling(&self) -> Self {
        Self { is_settling: true, ..self.clone() }
    }

    /// The scope for webhooks that are written for Policy mode if `found` has its condition.
    #[must_use]
    pub fn settled(&self, found: &[MutatingWebhook]) -> Self {
        let is_policy = |hook: &MutatingWebhook| {
            hook.match_conditions.iter().flatten().any(|condition| condition.name == NOT_BY_POLICY)
        };
        let waits = self.is_settling && !found.iter().any(is_policy);
        Self { mutation: if waits { Mutation::Webhook } else { self.mutation }, ..self.clone() }
    }

    /// Leaves out by name the namespaces whose requests the webhook `name` doesn't get. Those for namespaces themselves and for
    /// roles get those of all.
    pub fn restrict(&self, name: &str, selector: &mut Option<LabelSelector>) {
        let selector = selector.get_or_insert_default();
        if matches!(name, webhook::NAMESPACES | webhook::OWNERS) {
            return;
        }
        let shared: &[String] = if name == webhook::NON_TENANT { &self.shared_with } else { &[] };
        let mut left_out: Vec<String> = self.exempt.iter().chain(shared).cloned().collect();
        left_out.sort_unstable();
        left_out.dedup();
        let expressions = selector.match_expressions.get_or_insert_default();
        expressions.push(LabelSelectorRequirement {
            key: NAME_LABEL.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(left_out),
        });
    }

    /// Adds the conditions of the webhook `name` that depend on declarations.
    pub fn condition(&self, name: &str, conditions: &mut Option<Vec<MatchCondition>>) {
        let own = match name {
            webhook::NON_TENANT => {
                vec![(REACHES, reaches(&self.keys)), (NOT_KEPT_OUT, not_kept_out(&self.keys))]
            }
            webhook::BINDINGS => {
                let other = format!("!(request.userInfo.username in {})", list(&self.schedulers));
                vec![(NOT_A_SCHEDULER, other)]
            }
            webhook::OWNERS => {
                let own = format!("request.userInfo.username == {}", quoted(&self.controller));
                vec![(BY_THE_CONTROLLER, own)]
            }
            webhook::NAMESPACES => {
                let other = format!("request.userInfo.username != {}", quoted(&self.controller));
                vec![(NOT_THE_CONTROLLER, other)]
            }
            _ => Vec::new(),
        };
        let mutates = matches!(name, webhook::NON_TENANT | webhook::PODS);
        let by_policy = (mutates && self.mutation == Mutation::Policy)
            .then(|| (NOT_BY_POLICY, not_planned_by_policies()));
        let is_always = matches!(name, webhook::NAMESPACES | webhook::OWNERS);
        let none = (!self.active && !is_always).then(|| (A_TENANT_EXISTS, "false".to_owned()));
        let added = own
            .into_iter()
            .chain(by_policy)
            .chain(none)
            .map(|(name, expression)| MatchCondition { name: name.to_owned(), expression });
        let added: Vec<_> = added.collect();
        if !added.is_empty() {
            conditions.get_or_insert_default().extend(added);
        }
    }
}

/// CEL: the pod, or the DaemonSet's template, names a node, selects a pool, or tolerates the taint of one.
fn reaches(keys: &[String]) -> String {
    let keys = list(keys);
    let of = |spec: &str| {
        format!(
            "has({spec}.nodeName) && {spec}.nodeName != '' || has({spec}.nodeSelector) && \
             {spec}.nodeSelector.exists(k, k in {keys}) || has({spec}.tolerations) && \
             {spec}.tolerations.exists(t, !has(t.key) || t.key in ['', '{UNREGISTERED_TAINT}'] || t.key in {keys})"
        )
    };
    format!(
        "request.resource.resource == 'daemonsets' ? {} : {}",
        of("object.spec.template.spec"),
        of("object.spec")
    )
}

/// CEL: the request isn't for a pod that every required term keeps off the nodes of pools. Such a pod needs no evaluation. Since
/// Kubernetes 1.36 the policy croft-pods has made pods of DaemonSets so before, and agents start while Croft is down.
fn not_kept_out(keys: &[String]) -> String {
    format!(
        "request.resource.resource != 'pods' || object.spec.?nodeName.orValue('') != '' || !({})",
        policies::is_kept_out(&list(keys))
    )
}

/// CEL: the pod or the template names a node, or the record of the template is one that CEL can't split.
fn not_planned_by_policies() -> String {
    let names = |spec: &str| format!("has({spec}.nodeName) && {spec}.nodeName != ''");
    format!(
        "request.resource.resource == 'daemonsets' ? {} || has(object.spec.template.metadata.annotations) && \
         '{INJECTED_ANNOTATION}' in object.spec.template.metadata.annotations && \
         object.spec.template.metadata.annotations['{INJECTED_ANNOTATION}'].startsWith('{{') : {}",
        names("object.spec.template.spec"),
        names("object.spec")
    )
}

/// A CEL list of strings.
fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

/// A CEL string. Escapes what a string in single quotes can't hold, since user names can hold any character.
fn quoted(word: &str) -> String {
    let mut text = String::from("'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use croft_policy::{Config, Index, Namespace, Tenant};

    use super::*;

    fn scope(config: Config) -> Scope {
        let mut index = Index::new();
        index.set_config(config);
        Scope::of(&index.snapshot())
    }

    #[test]
    fn quotes_and_control_characters_are_escaped() {
        let words = ["a'b".to_owned(), "c\\d\n".to_owned()];
        assert_eq!(list(&words), r"['a\'b', 'c\\d\u000a']");
        assert_eq!(list(&[]), "[]");
    }

    #[test]
    fn shared_namespaces_are_left_out_of_the_non_tenant_webhook_only() {
        let scope = scope(Config { shared_with: vec!["agents".to_owned()], ..Config::default() });
        let values = |name: &str| {
            let mut selector = None;
            scope.restrict(name, &mut selector);
            selector.unwrap().match_expressions.unwrap()[0].values.clone().unwrap()
        };
        assert!(values(webhook::NON_TENANT).contains(&"agents".to_owned()));
        assert!(!values(webhook::PODS).contains(&"agents".to_owned()));
    }

    #[test]
    fn exempt_namespaces_of_the_settings_add_to_the_built_in_ones() {
        let mut selector = None;
        let config = Config { exempt: vec!["more".to_owned()], ..Config::installed_in("ours") };
        scope(config).restrict(webhook::PODS, &mut selector);
        let expressions = selector.unwrap().match_expressions.unwrap();
        let left_out = ["kube-node-lease", "kube-public", "kube-system", "more", "ours"];
        assert_eq!(expressions[0].values.as_deref().unwrap(), left_out);
    }

    #[test]
    fn without_a_tenant_no_webhook_gets_requests() {
        let mut index = Index::new();
        let mut conditions = None;
        Scope::of(&index.snapshot()).condition(webhook::PODS, &mut conditions);
        assert_eq!(conditions.unwrap()[0].expression, "false");
        index.upsert_tenant(Tenant { name: "a".to_owned(), ..Tenant::default() });
        let mut conditions = None;
        Scope::of(&index.snapshot()).condition(webhook::PODS, &mut conditions);
        assert_eq!(conditions, None);
    }

    #[test]
    fn roles_are_asked_about_for_the_controller_alone_in_every_namespace_and_without_a_tenant() {
        let scope = scope(Config { exempt: vec!["more".to_owned()], ..Config::installed_in("ours") });
        let (mut conditions, mut selector) = (None, None);
        scope.condition(webhook::OWNERS, &mut conditions);
        scope.restrict(webhook::OWNERS, &mut selector);
        let expressions: Vec<String> = conditions.unwrap().into_iter().map(|c| c.expression).collect();
        assert_eq!(
            expressions,
            ["request.userInfo.username == 'system:serviceaccount:ours:croft-controller'"]
        );
        assert_eq!(selector, Some(LabelSelector::default()));
    }

    #[test]
    fn namespaces_of_all_names_are_sent_even_without_a_tenant_but_not_by_the_controller() {
        let mut conditions = None;
        let mut selector = None;
        let scope = scope(Config::installed_in("ours"));
        scope.restrict(webhook::NAMESPACES, &mut selector);
        scope.condition(webhook::NAMESPACES, &mut conditions);
        assert_eq!(selector, Some(LabelSelector::default()));
        let expressions: Vec<String> = conditions.unwrap().into_iter().map(|c| c.expression).collect();
        assert_eq!(
            expressions,
            ["request.userInfo.username != 'system:serviceaccount:ours:croft-controller'"]
        );
    }

    #[test]
    fn policy_mode_narrows_the_mutating_webhooks_once_the_policies_read_it() {
        let mut index = Index::new();
        index.set_config(Config { mutation: Mutation::Policy, ..Config::installed_in("ours") });
        index.upsert_tenant(Tenant { name: "a".to_owned(), ..Tenant::default() });
        let mut of = |written: &str| {
            let annotations =
                [(croft_policy::definitions::parameter::MUTATION.to_owned(), written.to_owned())];
            let own = Namespace {
                name: "ours".to_owned(),
                annotations: annotations.into(),
                ..Namespace::default()
            };
            index.upsert_namespace(&own);
            let scope = Scope::of(&index.snapshot());
            let count = |name: &str| {
                let mut conditions = None;
                scope.condition(name, &mut conditions);
                conditions.iter().flatten().filter(|c| c.name == NOT_BY_POLICY).count()
            };
            [webhook::PODS, webhook::NON_TENANT, webhook::PLACEMENT, webhook::BINDINGS].map(count)
        };
        assert_eq!(of("Webhook"), [0; 4]);
        assert_eq!(of("Policy"), [1, 1, 0, 0]);
    }
}
