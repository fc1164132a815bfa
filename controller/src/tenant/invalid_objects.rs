//! Records of objects with an invalid spec.

use croft_api::{
    EC2NodeClass,
    condition::{SPEC_VALID, Statement},
    stored::INVALID_SPEC,
};
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};

use crate::{kube_api::Kind, reconcile::object_reference};

/// A kind and a name.
pub(super) type Name = (Kind, String);

/// The problem of an object's newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidObject {
    /// The path of a field, and a sentence.
    pub(super) why: String,
    /// Admission has no earlier version.
    pub(super) has_no_valid_version: bool,
}

impl InvalidObject {
    /// The condition that reports the problem.
    pub(super) fn statement(&self) -> Statement {
        let then = if self.has_no_valid_version {
            "until it is corrected, nothing new is launched or admitted for it"
        } else {
            "until it is corrected, its last good version stays in force"
        };
        let message = format!("{}; {then}", self.why);
        Statement { kind: SPEC_VALID, status: Some(false), reason: INVALID_SPEC, message }
    }
}

/// The facts of a class that its condition needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassFacts {
    /// Its resourceVersion.
    pub version: Option<String>,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Names it in an Event.
    pub reference: ObjectReference,
}

impl ClassFacts {
    pub(super) fn new(class: &EC2NodeClass) -> Self {
        let ObjectMeta { resource_version, generation, .. } = &class.metadata;
        let conditions = class.status.as_ref().map(|status| status.conditions.clone());
        Self {
            version: resource_version.clone(),
            generation: *generation,
            conditions: conditions.unwrap_or_default(),
            reference: object_reference(class),
        }
    }
}
