//! The admission of a pod: mutating policies, mutating webhooks, validating policies, validating webhooks.
//!
//! ```text
//!  pod ──▶ policies mutate ──▶ webhooks mutate ──(changed: once more)──▶ policies validate ──▶ webhooks validate ──▶ stored
//!             CEL                policy::evaluate                           CEL                  policy::evaluate
//! ```

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use croft_policy::{Phase, Tenants, evaluate, review};
use croft_webhook::registration::{
    hooks::{Address, Hooks},
    scope::Scope,
};
use serde_json::{Value as Json, json};

use crate::policies::{Match, PODS, Policies, Policy, Request, Surroundings, apply};

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

/// The answers of checks, by their number, the moment and the object: they answer the same again.
#[derive(Debug, Default)]
pub struct Answers(RefCell<HashMap<(usize, bool, String), Option<Json>>>);

/// The moments of a request. Each check looks for itself, one after the other, and one write may fall between two of them.
pub struct Looks<'a> {
    before: Moment<'a>,
    after: Moment<'a>,
    /// The number of looks before the write.
    write_at: usize,
    made: Cell<usize>,
    answers: &'a Answers,
}

impl<'a> Looks<'a> {
    /// A request with a write after `write_at` looks.
    #[must_use]
    pub const fn around(
        before: Moment<'a>,
        after: Moment<'a>,
        write_at: usize,
        answers: &'a Answers,
    ) -> Self {
        Self { before, after, write_at, made: Cell::new(0), answers }
    }

    /// The moment of the next look, and whether it is after the write.
    fn next(&self) -> (Moment<'a>, bool) {
        let made = self.made.get();
        self.made.set(made + 1);
        if made < self.write_at { (self.before, false) } else { (self.after, true) }
    }

    /// The answer of the check `number` about `object`, which looks at one moment.
    fn answer(
        &self,
        number: usize,
        object: &Json,
        check: impl FnOnce(Moment<'a>) -> Option<Json>,
    ) -> Option<Json> {
        let (moment, is_after) = self.next();
        let question = (number, is_after, object.to_string());
        if let Some(known) = self.answers.0.borrow().get(&question) {
            return known.clone();
        }
        let answer = check(moment);
        self.answers.0.borrow_mut().insert(question, answer.clone());
        answer
    }

    /// True if the write was during the request.
    #[must_use]
    pub const fn is_written(&self) -> bool {
        self.made.get() > self.write_at
    }
}

/// The parts that admit pods.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The policies that are installed.
    pub policies: &'a Policies,
    /// The API server evaluates the validating policies in an order of its own: this one, or its reverse.
    pub is_reversed: bool,
}

impl Admission<'_> {
    /// The pod as it is stored; `None` if it is refused.
    #[must_use]
    pub fn admit(&self, pod: &Json, old: Option<&Json>, looks: &Looks<'_>) -> Option<Json> {
        let mut object = pod.clone();
        // Reinvocation: what a webhook has changed, policies and webhooks see once more.
        for _ in 0..2 {
            for (number, policy) in self.policies.mutating.iter().enumerate() {
                let patch = looks.answer(number, &object, |moment| {
                    policy.patch(&Request { object: &object, old, surroundings: moment.surroundings })
                })?;
                apply(&mut object, &patch);
            }
            let before = object.clone();
            let hooks = &looks.next().0.webhooks.mutating;
            for (number, hook) in (100..).zip(hooks) {
                if let Some(patch) = asked(hook, number, &object, old, looks, Phase::Mutate)? {
                    apply(&mut object, &patch);
                }
            }
            if object == before {
                break;
            }
        }
        let allows = |(number, policy): &(usize, &Policy)| {
            let allowed = looks.answer(*number, &object, |moment| {
                let request = Request { object: &object, old, surroundings: moment.surroundings };
                policy.allows(&request).then_some(Json::Null)
            });
            allowed.is_some()
        };
        let mut policies: Vec<_> = (200..).zip(&self.policies.validating).collect();
        if self.is_reversed {
            policies.reverse();
        }
        if !policies.iter().all(allows) {
            return None;
        }
        let hooks = &looks.next().0.webhooks.validating;
        for (number, hook) in (300..).zip(hooks) {
            asked(hook, number, &object, old, looks, Phase::Validate)?;
        }
        Some(object)
    }
}

/// The patch of a webhook that is asked; an inner `None` if it isn't, and an outer one if it refuses.
fn asked(
    hook: &Match,
    number: usize,
    object: &Json,
    old: Option<&Json>,
    looks: &Looks<'_>,
    phase: Phase,
) -> Option<Option<Json>> {
    let request =
        |moment: Moment<'_>| hook.holds(&Request { object, old, surroundings: moment.surroundings });
    let is_sent = looks.answer(number, object, |moment| request(moment).then_some(Json::Null)).is_some();
    if !is_sent {
        return Some(None);
    }
    looks
        .answer(number + 50, object, |moment| {
            answer(&Request { object, old, surroundings: moment.surroundings }, moment.tenants, phase)
        })
        .map(Some)
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
