//! The admission of a pod: mutating policies, mutating webhooks, validating policies, validating webhooks.
//!
//! ```text
//!  pod ──▶ policies mutate ──▶ webhooks mutate ──(changed: once more)──▶ policies validate ──▶ webhooks validate ──▶ stored
//!             CEL                policy::evaluate                           CEL                  policy::evaluate
//! ```

use std::cell::Cell;

use croft_policy::{Phase, Tenants, evaluate, review};
use croft_webhook::registration::{
    hooks::{Address, Hooks},
    scope::Scope,
};
use serde_json::{Value as Json, json};

use crate::policies::{Match, PODS, Policies, Request, Surroundings, apply};

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

/// The inputs of every check at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The pod's namespace, and the parameters of the policies.
    pub surroundings: &'a Surroundings,
    /// The webhooks that are registered.
    pub webhooks: &'a Webhooks,
    /// The index of the webhook.
    pub tenants: &'a Tenants,
}

/// The moments of a request. Each check looks for itself, one after the other, and one write may fall between two of them.
pub struct Looks<'a> {
    before: Moment<'a>,
    after: Moment<'a>,
    /// The number of looks before the write.
    write_at: usize,
    made: Cell<usize>,
}

impl<'a> Looks<'a> {
    /// A request during which nothing is written.
    #[must_use]
    pub const fn at(moment: Moment<'a>) -> Self {
        Self::around(moment, moment, 0)
    }

    /// A request with a write after `write_at` looks.
    #[must_use]
    pub const fn around(before: Moment<'a>, after: Moment<'a>, write_at: usize) -> Self {
        Self { before, after, write_at, made: Cell::new(0) }
    }

    fn next(&self) -> Moment<'a> {
        let made = self.made.get();
        self.made.set(made + 1);
        if made < self.write_at { self.before } else { self.after }
    }

    /// True if the write was during the request.
    #[must_use]
    pub const fn is_written(&self) -> bool {
        self.made.get() > self.write_at
    }
}

/// The pod as it is stored; `None` if it is refused.
#[must_use]
pub fn admit(policies: &Policies, pod: &Json, old: Option<&Json>, looks: &Looks<'_>) -> Option<Json> {
    let surroundings = || looks.next().surroundings;
    let mut object = pod.clone();
    // Reinvocation: what a webhook has changed, policies and webhooks see once more.
    for _ in 0..2 {
        object = policies.mutate_by(&object, old, surroundings)?;
        let before = object.clone();
        for hook in &looks.next().webhooks.mutating {
            let request = Request { object: &object, old, surroundings: surroundings() };
            if hook.holds(&request) {
                let patch = answer(&request, looks.next().tenants, Phase::Mutate)?;
                apply(&mut object, &patch);
            }
        }
        if object == before {
            break;
        }
    }
    if policies.refusal_by(&object, old, surroundings).is_some() {
        return None;
    }
    for hook in &looks.next().webhooks.validating {
        let request = Request { object: &object, old, surroundings: surroundings() };
        if hook.holds(&request) {
            answer(&request, looks.next().tenants, Phase::Validate)?;
        }
    }
    Some(object)
}

/// The webhook's answer: a JSON Patch, or `None` if it refuses.
fn answer(request: &Request<'_>, tenants: &Tenants, phase: Phase) -> Option<Json> {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": request.surroundings.namespace(), "name": request.object["metadata"]["name"],
        "operation": if request.old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": request.object, "oldObject": request.old}})
    .to_string();
    let review = review::parse(body.as_bytes()).expect("the review is one");
    let outcome = evaluate(tenants, &review, phase);
    let patch = outcome.patch;
    outcome.denial.is_none().then(|| {
        if patch.is_empty() {
            json!([])
        } else {
            serde_json::from_str(&patch.into_json()).expect("it is JSON")
        }
    })
}
