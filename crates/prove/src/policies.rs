//! The generated policies, as an API server evaluates them, and the conditions by which it sends requests to webhooks.

use std::collections::BTreeMap;

use croft_policy::policies::{documents, mutation};
use serde_json::{Value as Json, json};

use crate::{
    cel::{Evaluation, Expression, Value},
    world::OWN_NAMESPACE,
};

/// The resource of pods.
pub const PODS: &str = "pods";
const NODES: &str = "nodes";

/// The objects that an API server reads besides the request: the pod's namespace, and Croft's own.
#[derive(Clone, Debug)]
pub struct Surroundings {
    namespace: Json,
    values: [(&'static str, Value); 2],
}

impl Surroundings {
    /// The namespace of the request, and Croft's own with the parameters.
    #[must_use]
    pub fn new(namespace: Json, parameters: &Json) -> Self {
        let values = [("namespaceObject", (&namespace).into()), ("params", parameters.into())];
        Self { namespace, values }
    }

    /// The name of the request's namespace.
    #[must_use]
    pub fn namespace(&self) -> &Json {
        &self.namespace["metadata"]["name"]
    }
}

/// An object that is created or updated.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object.
    pub object: &'a Json,
    /// The object as it was, if it is updated.
    pub old: Option<&'a Json>,
    /// Where it happens.
    pub surroundings: &'a Surroundings,
}

/// The variables that the API server defines for a request.
type Roots = BTreeMap<&'static str, Value>;

impl Request<'_> {
    fn operation(&self) -> &'static str {
        if self.old.is_some() { "UPDATE" } else { "CREATE" }
    }

    fn roots(&self) -> Roots {
        let resource = if self.object["kind"] == "Node" { NODES } else { PODS };
        let request = json!({
            "operation": self.operation(), "dryRun": false, "namespace": self.surroundings.namespace(),
            "name": self.object["metadata"]["name"],
            "resource": {"group": "", "version": "v1", "resource": resource},
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        });
        let own = [
            ("object", self.object.into()),
            ("oldObject", self.old.map_or(Value::Null, Value::from)),
            ("request", (&request).into()),
            ("authorizer", Value::Authorizer),
        ];
        own.into_iter().chain(self.surroundings.values.clone()).collect()
    }
}

/// The requests that a policy or a webhook gets.
#[derive(Clone, Debug)]
pub struct Match {
    operations: Vec<String>,
    namespaces: Vec<Json>,
    conditions: Vec<Expression>,
}

fn texts(value: &Json) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Json::as_str)
}

fn array<'v>(value: &'v Json, pointer: &str) -> impl Iterator<Item = &'v Json> {
    value.pointer(pointer).and_then(Json::as_array).into_iter().flatten()
}

impl Match {
    /// Reads rules, a selector of namespaces and conditions; `None` if `resource` itself isn't among the rules.
    #[must_use]
    pub fn read(resource: &str, rules: &Json, selector: &Json, conditions: &Json) -> Option<Self> {
        let is_of = |rule: &&Json| texts(&rule["resources"]).any(|other| other == resource);
        let rule = rules.as_array().into_iter().flatten().find(is_of)?;
        let conditions = conditions.as_array().into_iter().flatten();
        Some(Self {
            operations: texts(&rule["operations"]).map(str::to_owned).collect(),
            namespaces: array(selector, "/matchExpressions").cloned().collect(),
            conditions: conditions.map(|c| parse(&c["expression"])).collect(),
        })
    }

    fn selects(&self, request: &Request<'_>) -> bool {
        let labels = &request.surroundings.namespace["metadata"]["labels"];
        let matches = |requirement: &Json| {
            let label = requirement["key"].as_str().and_then(|key| labels.get(key)).and_then(Json::as_str);
            let listed = texts(&requirement["values"]).any(|value| Some(value) == label);
            match requirement["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                other => panic!("{other:?} isn't evaluated"),
            }
        };
        self.operations.iter().any(|operation| operation == request.operation())
            && self.namespaces.iter().all(matches)
    }

    /// True if the request is sent. An error of a condition sends it too: it is refused or answered, never let through.
    #[must_use]
    pub fn holds(&self, request: &Request<'_>) -> bool {
        self.selects(request) && {
            let none = BTreeMap::new();
            let evaluation = Evaluation::new(request.roots(), &none);
            !self.conditions.iter().any(|c| evaluation.value(c) == Ok(Value::Bool(false)))
        }
    }
}

fn parse(text: &Json) -> Expression {
    Expression::parse(text.as_str().expect("an expression is a string"))
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    scope: Match,
    variables: BTreeMap<String, Expression>,
    validations: Vec<Expression>,
    patches: Option<Expression>,
}

impl Policy {
    fn read(resource: &str, document: &Json) -> Option<Self> {
        let spec = document.get("spec")?;
        let constraints = spec.get("matchConstraints")?;
        let scope = Match::read(
            resource,
            &constraints["resourceRules"],
            &constraints["namespaceSelector"],
            spec.get("matchConditions").unwrap_or(&Json::Null),
        )?;
        let variables = array(spec, "/variables").map(|v| {
            let name = v["name"].as_str().expect("a variable has a name");
            (name.to_owned(), parse(&v["expression"]))
        });
        Some(Self {
            name: document["metadata"]["name"].as_str().expect("a policy has a name").to_owned(),
            scope,
            variables: variables.collect(),
            validations: array(spec, "/validations").map(|v| parse(&v["expression"])).collect(),
            patches: spec.pointer("/mutations/0/jsonPatch/expression").map(parse),
        })
    }

    /// True if the policy lets the request through.
    fn allows(&self, request: &Request<'_>) -> bool {
        if !self.scope.selects(request) {
            return true;
        }
        let evaluation = Evaluation::new(request.roots(), &self.variables);
        let met: Vec<_> = self.scope.conditions.iter().map(|c| evaluation.value(c)).collect();
        // One condition that is false is enough, whatever error another has.
        if met.contains(&Ok(Value::Bool(false))) {
            return true;
        }
        met.iter().all(Result::is_ok) && self.validations.iter().all(|v| evaluation.holds(v))
    }

    /// The JSON Patch of a mutating policy; `None` if it has an error, which refuses the request.
    fn patch(&self, request: &Request<'_>) -> Option<Json> {
        if !self.scope.selects(request) {
            return Some(json!([]));
        }
        let evaluation = Evaluation::new(request.roots(), &self.variables);
        let met: Vec<_> = self.scope.conditions.iter().map(|c| evaluation.value(c)).collect();
        if met.contains(&Ok(Value::Bool(false))) {
            return Some(json!([]));
        }
        let patches = self.patches.as_ref().expect("a mutating policy has patches");
        let value = evaluation.value(patches).ok().filter(|_| met.iter().all(Result::is_ok))?;
        Some((&value).into())
    }
}

/// All policies about pods, and the mutating ones about nodes.
#[derive(Clone, Debug)]
pub struct Policies {
    /// The validating ones.
    pub validating: Vec<Policy>,
    /// The mutating ones.
    pub mutating: Vec<Policy>,
    /// The mutating ones about nodes.
    nodes: Vec<Policy>,
}

impl Policies {
    /// The policies that are installed.
    #[must_use]
    pub fn installed() -> Self {
        let read = |resource: &str, documents: &[Json]| {
            documents.iter().filter_map(|document| Policy::read(resource, document)).collect()
        };
        let mutating = mutation::documents(OWN_NAMESPACE);
        Self {
            validating: read(PODS, &documents(OWN_NAMESPACE)),
            mutating: read(PODS, &mutating),
            nodes: read(NODES, &mutating),
        }
    }

    /// The same with a policy for each validation, the last one first: each would look the namespace up for itself.
    #[must_use]
    pub fn apart(self) -> Self {
        let alone = |policy: &Policy| {
            let validations = policy.validations.iter().rev().cloned();
            let alone = |validation| Policy { validations: vec![validation], ..policy.clone() };
            validations.map(alone).collect::<Vec<_>>()
        };
        Self { validating: self.validating.iter().flat_map(alone).collect(), ..self }
    }

    /// The same in the opposite order: an API server has an order of its own.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.validating.reverse();
        self
    }

    /// The object as the mutating policies leave it; `None` if one has an error.
    ///
    /// # Panics
    /// If a patch doesn't apply.
    #[must_use]
    pub fn mutate(&self, request: &Request<'_>) -> Option<Json> {
        self.mutate_by(request.object, request.old, || request.surroundings)
    }

    /// [`mutate`](Self::mutate), where each policy looks for itself.
    ///
    /// # Panics
    /// If a patch doesn't apply.
    #[must_use]
    pub fn mutate_by<'s>(
        &self,
        object: &Json,
        old: Option<&Json>,
        look: impl Fn() -> &'s Surroundings,
    ) -> Option<Json> {
        let policies = if object["kind"] == "Node" { &self.nodes } else { &self.mutating };
        let mut object = object.clone();
        for policy in policies {
            let patch = policy.patch(&Request { object: &object, old, surroundings: look() })?;
            apply(&mut object, &patch);
        }
        Some(object)
    }

    /// The first validating policy that refuses the request.
    #[must_use]
    pub fn refusal(&self, request: &Request<'_>) -> Option<&str> {
        self.refusal_by(request.object, request.old, || request.surroundings)
    }

    /// [`refusal`](Self::refusal), where each policy looks for itself.
    #[must_use]
    pub fn refusal_by<'s>(
        &self,
        object: &Json,
        old: Option<&Json>,
        look: impl Fn() -> &'s Surroundings,
    ) -> Option<&str> {
        let refuses = |policy: &&Policy| !policy.allows(&Request { object, old, surroundings: look() });
        self.validating.iter().find(refuses).map(|policy| policy.name.as_str())
    }
}

/// Applies a JSON Patch.
///
/// # Panics
/// If it doesn't apply.
pub fn apply(object: &mut Json, patch: &Json) {
    let typed: json_patch::Patch = serde_json::from_value(patch.clone()).expect("it is a JSON Patch");
    json_patch::patch(object, &typed).unwrap_or_else(|error| panic!("{patch} of {object}: {error}"));
}
