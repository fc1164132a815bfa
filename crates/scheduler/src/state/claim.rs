//! Claims of volumes: PersistentVolumeClaims, and the templates of generic ephemeral volumes.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaimSpec, apimachinery::pkg::api::resource::Quantity as QuantityText,
};

use crate::{
    model::quantity::Quantity,
    state::interner::{Sym, Symbols},
};

/// A PersistentVolumeClaim, or the template of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) volume: Option<Sym>,
    pub(crate) class: Option<Sym>,
    pub(crate) size: i64,
    /// ReadWriteOncePod.
    pub(crate) exclusive: bool,
    pub(crate) lost: bool,
    pub(crate) deleting: bool,
    /// A file's, which isn't in a cluster yet: once it is, a class that binds at once binds it.
    pub(crate) is_new: bool,
    /// The uid of its controller: of the pod for whose ephemeral volume it was created. A template has the pod's own.
    pub(crate) owner: Option<Sym>,
}

impl Claim {
    /// Reads a claim's or template's spec.
    pub(super) fn read(
        symbols: &mut Symbols,
        spec: Option<&PersistentVolumeClaimSpec>,
    ) -> Result<Self, String> {
        let size = size(spec.and_then(|s| s.resources.as_ref()).and_then(|r| r.requests.as_ref()))?;
        let volume = spec.and_then(|s| s.volume_name.as_deref()).filter(|v| !v.is_empty());
        let modes = spec.and_then(|s| s.access_modes.as_ref());
        Ok(Self {
            volume: volume.map(|v| symbols.sym(v)),
            class: spec.and_then(|s| s.storage_class_name.as_deref()).map(|c| symbols.sym(c)),
            size,
            exclusive: modes.is_some_and(|modes| modes.iter().any(|m| m == "ReadWriteOncePod")),
            lost: false,
            deleting: false,
            is_new: false,
            owner: None,
        })
    }

    /// True if the claim was created for the pod whose ephemeral volume `template` is of. A pod of a file has no uid, and
    /// is then compared by the claim's name alone.
    pub(crate) fn is_for(&self, template: &Self) -> bool {
        self.owner.is_some() && (template.owner.is_none() || template.owner == self.owner)
    }

    /// Every string that the claim names.
    pub(super) fn symbols(&self) -> impl Iterator<Item = Sym> {
        [self.volume, self.class, self.owner].into_iter().flatten()
    }
}

/// A generic ephemeral volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ephemeral {
    /// The name of the claim that the ephemeral volume controller creates.
    pub(crate) name: Sym,
    pub(crate) template: Claim,
}

/// The storage in a list of resources, in bytes; zero where there is none.
pub(super) fn size(map: Option<&BTreeMap<String, QuantityText>>) -> Result<i64, String> {
    match map.and_then(|m| m.get("storage")) {
        Some(text) => text.0.parse::<Quantity>().map(Quantity::units).map_err(|e| e.to_string()),
        None => Ok(0),
    }
}
