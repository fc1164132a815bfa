//! The facts of EC2NodeClasses that tenancy keeps: also of one that no version in force has.

use croft_api::EC2NodeClass;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};

use crate::reconcile::object_reference;

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
