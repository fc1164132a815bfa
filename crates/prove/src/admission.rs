//! The admission of a pod: mutating policies, mutating webhooks, validating policies, validating webhooks.
//!
//! ```text
//!  pod ──▶ policies mutate ──▶ webhooks mutate ──(changed: once more)──▶ policies validate ──▶ webhooks validate ──▶ stored
//!             CEL                policy::evaluate                           CEL                  policy::evaluate
//! ```

use croft_policy::{Phase, Tenants, evaluate, review};
use croft_webhook::registration::{
    hooks::{Address, Hooks},
    scope::Scope,
};
use serde_json::{Value as Json, json};

use crate::policies::{Match, PODS, Policies, Request, apply};

/// The webhooks that are registered for one scope, as far as they get pods.
#[derive(Debug, Default)]
pub struct Webhooks {
    mutating: Vec<Match>,
    validating: Vec<Match>,
}

impl Webhooks {
    /// The webhooks that a replica registers for `scope`.
    ///
    /// # Panics
    /// If they can't be read.
    #[must_use]
    pub fn registered(scope: &Scope) -> Self {
        let hooks = Hooks::built_in().expect("hooks.yaml is valid");
        let address = Address::Url("https://127.0.0.1:1".to_owned());
        let read = |hooks: &Json| -> Vec<Match> {
            let hooks = hooks.as_array().into_iter().flatten();
            hooks
                .filter_map(|hook| {
                    Match::read(PODS, &hook["rules"], &hook["namespaceSelector"], &hook["matchConditions"])
                })
                .collect()
        };
        Self {
            mutating: read(&json!(hooks.mutating(&address, None, scope, &[]))),
            validating: read(&json!(hooks.validating(&address, None, scope, &[]))),
        }
    }
}

/// The parts that admit pods.
pub struct Admission<'a> {
    /// The policies that are installed.
    pub policies: &'a Policies,
    /// The webhooks that are registered.
    pub webhooks: &'a Webhooks,
    /// The index of the webhook.
    pub tenants: &'a Tenants,
}

impl Admission<'_> {
    /// The pod as it is stored; `None` if it is refused.
    #[must_use]
    pub fn admit(&self, request: &Request<'_>) -> Option<Json> {
        let mut object = request.object.clone();
        // Reinvocation: what a webhook has changed, policies and webhooks see once more.
        for _ in 0..2 {
            object = self.policies.mutate(&Request { object: &object, ..*request })?;
            let before = object.clone();
            for hook in &self.webhooks.mutating {
                if hook.holds(&Request { object: &object, ..*request }) {
                    let patch = self.answer(&Request { object: &object, ..*request }, Phase::Mutate)?;
                    apply(&mut object, &patch);
                }
            }
            if object == before {
                break;
            }
        }
        let request = Request { object: &object, ..*request };
        if self.policies.refusal(&request).is_some() {
            return None;
        }
        if self.webhooks.validating.iter().any(|hook| hook.holds(&request)) {
            self.answer(&request, Phase::Validate)?;
        }
        Some(object)
    }

    /// The webhook's answer: a JSON Patch, or `None` if it refuses.
    fn answer(&self, request: &Request<'_>, phase: Phase) -> Option<Json> {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": request.surroundings.namespace(), "name": request.object["metadata"]["name"],
            "operation": if request.old.is_some() { "UPDATE" } else { "CREATE" },
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": request.object, "oldObject": request.old}})
        .to_string();
        let review = review::parse(body.as_bytes()).expect("the review is one");
        let outcome = evaluate(self.tenants, &review, phase);
        let patch = outcome.patch;
        outcome.denial.is_none().then(|| {
            if patch.is_empty() {
                json!([])
            } else {
                serde_json::from_str(&patch.into_json()).expect("it is JSON")
            }
        })
    }
}
