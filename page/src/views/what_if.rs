//! The effect of a manifest, for a reader's part of the cluster.

use std::{borrow::Cow, collections::BTreeSet};

use croft_inspect::pods_asked_for;
use croft_manifest::{Input, InputError, KindGroup, LoadOptions, Objects, each_kind, parse};
use kube::{Resource, ResourceExt as _};

use crate::{access::Scope, model::facts::Model};

/// Pods that a manifest may ask for.
const PODS: usize = 2_000;

/// Why a manifest has no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// The manifest, or the cluster with it, is wrong.
    #[error("{0}")]
    Input(#[from] InputError),
    /// It has no object of which the page shows an effect.
    #[error(
        "the manifest has no pod and no workload: write a Deployment, StatefulSet, DaemonSet, Job, CronJob or Pod, or an object with a pod template"
    )]
    Nothing,
    /// It asks for too many pods.
    #[error("the manifest asks for {0} pods, and at most {PODS} are simulated here: use croft simulate")]
    TooManyPods(usize),
    /// An object is outside of the reader's namespaces.
    #[error("{0} isn't in a namespace that you may see: write one of yours in metadata.namespace")]
    Foreign(String),
    /// A tenant's people may only try workloads.
    #[error("{0} objects can be tried by operators only: leave them out")]
    OperatorOnly(Cow<'static, str>),
}

/// Reads a manifest, with `namespace` for objects that name none, and checks that `scope` may try it.
///
/// # Errors
/// If it can't be read, is empty or too large, or has objects that the reader may not try.
pub fn read(scope: &Scope, text: &str, namespace: &str) -> Result<Input, WhatIfError> {
    let added = parse("manifest", text, &LoadOptions { namespace: namespace.to_owned() })?;
    let count = pods_asked_for(&added);
    if count == 0 {
        return Err(WhatIfError::Nothing);
    }
    if count > PODS {
        return Err(WhatIfError::TooManyPods(count));
    }
    if !scope.is_operator() {
        check(scope, &added)?;
    }
    Ok(added)
}

fn check(scope: &Scope, added: &Input) -> Result<(), WhatIfError> {
    macro_rules! refuse {
        ($($field:ident: $group:ident),*) => { $(if KindGroup::$group != KindGroup::Workloads {
            operators_only(&added.$field)?;
        })* };
    }
    macro_rules! within {
        ($($field:ident: $group:ident),*) => { $(if KindGroup::$group == KindGroup::Workloads {
            within(scope, &added.$field)?;
        })* };
    }
    each_kind!(refuse);
    each_kind!(within);
    // An object without a namespace tells nothing about one.
    for one in &added.custom_workloads {
        if one.namespace.as_deref().is_some_and(|namespace| !scope.sees_namespace(namespace)) {
            return Err(WhatIfError::Foreign(one.title()));
        }
    }
    Ok(())
}

fn operators_only<K: Resource<DynamicType = ()>>(objects: &Objects<K>) -> Result<(), WhatIfError> {
    if objects.is_empty() { Ok(()) } else { Err(WhatIfError::OperatorOnly(K::kind(&()))) }
}

fn within<K: Resource>(scope: &Scope, objects: &Objects<K>) -> Result<(), WhatIfError> {
    for one in objects {
        let namespace = one.namespace().unwrap_or_default();
        if !scope.sees_namespace(&namespace) {
            return Err(WhatIfError::Foreign(format!("{namespace}/{}", one.name_any())));
        }
    }
    Ok(())
}

/// The part of the cluster that a simulation for `scope` reads. Of other tenants only the room that their pods take stays: a
/// plan can't name a pool, a tenant or a pending pod that isn't there.
#[must_use]
pub fn part_of(input: &Input, model: &Model, scope: &Scope) -> Input {
    let mut part = input.clone();
    if scope.is_operator() {
        return part;
    }
    part.tenants.retain(|tenant| scope.sees_tenant(model, &tenant.name_any()));
    part.pools.retain(|pool| scope.sees_pool(model, &pool.name_any()));
    let pools: BTreeSet<String> = part.pools.iter().map(|pool| pool.name_any()).collect();
    part.claims.retain(|claim| pools.contains(&claim.spec.pool));
    let nodes: BTreeSet<&str> = model
        .nodes
        .values()
        .filter(|node| node.info.pool.as_ref().is_some_and(|pool| pools.contains(pool)))
        .map(|node| node.info.name.as_str())
        .collect();
    part.nodes.retain(|node| node.metadata.name.as_deref().is_some_and(|name| nodes.contains(name)));
    part.pods.retain(|pod| {
        let is_mine = scope.sees_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        is_mine || node.is_some_and(|node| nodes.contains(node))
    });
    part
}
