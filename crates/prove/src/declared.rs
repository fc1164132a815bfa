//! The declarations of users: tenants, the pool under attack and the settings; and the edits of them.
//!
//! Tenant A has a pool of its own. The pool under attack, pool-b, is tenant B's, once both are declared. Two tenants stand
//! for any number: a pod is of the pool's tenant, of another one, or of none.

use croft_api::{CroftConfig, Tenant, TenantPool};
use croft_policy::{Mutation, definitions::POOL_NAME_LABEL};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A key of a pool of users' own. Before a pool has it, it is a key to come.
pub const OWN_KEY: &str = "dedicated";
/// The pool under attack.
pub const POOL: &str = "pool-b";
/// The template of the pool under attack by which its node is launched, if it has several.
pub const TEMPLATE: &str = "spot";
/// The pool of the other tenant.
pub const OTHER_POOL: &str = "pool-a";

/// A kind of namespace. The pod under attack is of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceKind {
    /// Of the tenant of the pool.
    Owner,
    /// Of another tenant.
    OtherTenant,
    /// Of no tenant.
    None,
    /// Of no tenant; the pool may be shared with it.
    Shared,
    /// Of no tenant; the pool of tenant A is shared with it, and the pool under attack never.
    SharedOther,
    /// Exempt by the settings.
    Exempt,
}

impl NamespaceKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Owner, Self::OtherTenant, Self::None, Self::Shared, Self::SharedOther, Self::Exempt];

    /// The name of the namespace of this kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "team-b",
            Self::OtherTenant => "team-a",
            Self::None => "plain",
            Self::Shared => "agents",
            Self::SharedOther => "friends",
            Self::Exempt => "exempt",
        }
    }
}

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// Croft launches its nodes; the label and taint have the built-in key.
    CroftBuiltInKey,
    /// Croft launches its nodes, by several templates; the label and taint have a key of the user's own.
    CroftOwnKey,
    /// Another process launches its nodes; the label and taint have a key of the user's own.
    OtherLauncher,
}

impl PoolKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::CroftBuiltInKey, Self::CroftOwnKey, Self::OtherLauncher];

    /// The key of the pool.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::CroftBuiltInKey => POOL_NAME_LABEL,
            Self::CroftOwnKey | Self::OtherLauncher => OWN_KEY,
        }
    }
}

/// The pool under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolSpec {
    /// Its taint has the effect NoExecute besides NoSchedule.
    pub no_execute: bool,
    /// It is shared with the namespace [`NamespaceKind::Shared`].
    pub shared: bool,
}

/// Everything that is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Declared {
    /// `spec.admission.mutation` is Policy.
    pub policy_mode: bool,
    /// Tenant A and its pool exist.
    pub other_tenant: bool,
    /// Tenant B exists.
    pub tenant: bool,
    /// Tenant B names the pool. If it exists and doesn't, its namespace has a pool that doesn't exist.
    pub owned: bool,
    /// The pool.
    pub pool: Option<PoolSpec>,
}

impl Declared {
    /// Both tenants with their pools.
    #[must_use]
    pub const fn all(policy_mode: bool) -> Self {
        let pool = PoolSpec { no_execute: false, shared: false };
        Self { policy_mode, other_tenant: true, tenant: true, owned: true, pool: Some(pool) }
    }

    /// Tenant A alone.
    #[must_use]
    pub const fn without_pool(policy_mode: bool) -> Self {
        Self { tenant: false, owned: false, pool: None, ..Self::all(policy_mode) }
    }

    /// Nothing but settings.
    #[must_use]
    pub const fn nothing(policy_mode: bool) -> Self {
        Self { other_tenant: false, ..Self::without_pool(policy_mode) }
    }

    /// True if pods of a namespace of this kind may use the pool, which exists.
    #[must_use]
    pub fn entitles(&self, namespace: NamespaceKind) -> bool {
        match namespace {
            NamespaceKind::Owner => self.tenant && self.owned,
            NamespaceKind::OtherTenant | NamespaceKind::None | NamespaceKind::SharedOther => false,
            NamespaceKind::Shared => self.pool.is_some_and(|pool| pool.shared),
            NamespaceKind::Exempt => true,
        }
    }

    /// True if the namespace of this kind is a tenant's.
    #[must_use]
    pub const fn is_tenants(&self, namespace: NamespaceKind) -> bool {
        match namespace {
            NamespaceKind::Owner => self.tenant,
            NamespaceKind::OtherTenant => self.other_tenant,
            _ => false,
        }
    }
}

/// An edit of what is declared: one write of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Creates tenant A and its pool.
    CreateOtherTenant,
    /// Creates tenant B, which names the pool.
    CreateTenant,
    /// Deletes tenant B.
    DeleteTenant,
    /// Takes the pool from tenant B.
    TakePool,
    /// Gives the pool to tenant B.
    GivePool,
    /// Creates the pool.
    CreatePool,
    /// Deletes the pool.
    DeletePool,
    /// Adds the effect NoExecute to the pool's taint, or removes it.
    ChangeEffects,
    /// Shares the pool, or ends that.
    ChangeSharing,
    /// Changes `spec.admission.mutation`.
    SwitchMode,
}

impl Edit {
    /// Every edit.
    pub const ALL: [Self; 10] = [
        Self::CreateOtherTenant,
        Self::CreateTenant,
        Self::DeleteTenant,
        Self::TakePool,
        Self::GivePool,
        Self::CreatePool,
        Self::DeletePool,
        Self::ChangeEffects,
        Self::ChangeSharing,
        Self::SwitchMode,
    ];

    /// The declarations afterwards; `None` if there is nothing to edit.
    #[must_use]
    pub fn apply(self, before: Declared) -> Option<Declared> {
        let pool = before.pool;
        let after = match self {
            Self::CreateOtherTenant => Declared { other_tenant: true, ..before },
            Self::CreateTenant if !before.tenant => Declared { tenant: true, owned: true, ..before },
            Self::DeleteTenant => Declared { tenant: false, owned: false, ..before },
            Self::TakePool => Declared { owned: false, ..before },
            Self::GivePool => Declared { owned: before.tenant, ..before },
            Self::CreatePool if pool.is_none() => Declared { pool: Declared::all(false).pool, ..before },
            Self::DeletePool => Declared { pool: None, ..before },
            Self::ChangeEffects => Declared {
                pool: pool.map(|pool| PoolSpec { no_execute: !pool.no_execute, ..pool }),
                ..before
            },
            Self::ChangeSharing => {
                Declared { pool: pool.map(|pool| PoolSpec { shared: !pool.shared, ..pool }), ..before }
            }
            Self::SwitchMode => Declared { policy_mode: !before.policy_mode, ..before },
            Self::CreateTenant | Self::CreatePool => before,
        };
        (after != before).then_some(after)
    }
}

/// The declarations as objects of Kubernetes.
pub struct Objects {
    /// The settings.
    pub config: CroftConfig,
    /// The tenants.
    pub tenants: Vec<Tenant>,
    /// The pools.
    pub pools: Vec<TenantPool>,
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the object is of its kind")
}

/// The mode of the settings.
#[must_use]
pub const fn mode(declared: &Declared) -> Mutation {
    if declared.policy_mode { Mutation::Policy } else { Mutation::Webhook }
}

impl Objects {
    /// The objects of what is declared.
    #[must_use]
    pub fn of(declared: &Declared, kind: PoolKind) -> Self {
        let config = json!({"metadata": {"name": "default", "uid": "config", "generation": 1}, "spec": {
            "exemptNamespaces": [NamespaceKind::Exempt.name()], "admission": {"mutation": mode(declared).as_str()}}});
        let other = tenant("a", NamespaceKind::OtherTenant, OTHER_POOL);
        let own = tenant("b", NamespaceKind::Owner, if declared.owned { POOL } else { "absent" });
        let spec = |pool: PoolSpec| {
            let effects: &[&str] =
                if pool.no_execute { &["NoSchedule", "NoExecute"] } else { &["NoSchedule"] };
            let shared: &[&str] = if pool.shared { &[NamespaceKind::Shared.name()] } else { &[] };
            let provisioner = if kind == PoolKind::OtherLauncher { "Karpenter" } else { "Croft" };
            let mut spec = json!({"key": kind.key(), "effects": effects, "sharedWith": shared,
                "provisioner": provisioner});
            let node = json!({"nodeClassRef": {"name": "class"}});
            // Without taints of their own, which would keep more pods off.
            if kind == PoolKind::CroftOwnKey {
                spec["templates"] = json!([{"name": TEMPLATE, "spec": node}, {"name": "rest", "spec": node}]);
            } else {
                spec["template"] = json!({"spec": node});
            }
            spec
        };
        let others = json!({"sharedWith": [NamespaceKind::SharedOther.name()],
            "template": {"spec": {"nodeClassRef": {"name": "class"}}}});
        Self {
            config: read(config),
            tenants: [(declared.other_tenant, other), (declared.tenant, own)]
                .into_iter()
                .filter_map(|(exists, tenant)| exists.then_some(tenant))
                .collect(),
            pools: declared
                .other_tenant
                .then(|| pool(OTHER_POOL, &others))
                .into_iter()
                .chain(declared.pool.map(|of| pool(POOL, &spec(of))))
                .collect(),
        }
    }
}

impl Objects {
    /// The objects once the controller has written the condition Accepted of the pool.
    #[must_use]
    pub fn with_condition(mut self, accepted: Option<bool>) -> Self {
        let pool = self.pools.iter_mut().find(|pool| pool.metadata.name.as_deref() == Some(POOL));
        if let (Some(pool), Some(accepted)) = (pool, accepted) {
            let status = if accepted { "True" } else { "False" };
            pool.status = read(json!({"conditions": [{"type": "Accepted", "status": status, "reason": "R",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}));
        }
        self
    }

    /// The pool, if it is declared.
    #[must_use]
    pub fn pool(&self) -> Option<&TenantPool> {
        self.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(POOL))
    }
}

/// A tenant. Another version of it has another uid, so that no report about one counts for another.
fn tenant(name: &str, namespace: NamespaceKind, pool: &str) -> Tenant {
    read(json!({
        "metadata": {"name": name, "uid": format!("{name}-{pool}"), "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"namespaces": [namespace.name()], "pools": [pool]},
    }))
}

fn pool(name: &str, spec: &Value) -> TenantPool {
    read(json!({
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    }))
}
