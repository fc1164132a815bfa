//! Whether a pool can have more: what its class, its requirements and the cloud say.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    EC2NodeClass, TenantPool,
    condition::{READY, Statement, is_true},
};
use croft_cloud::supply::{Verdict, describe, survey};
use croft_scheduler::{InstanceType, Requirement};

use crate::{
    decide::{Round, requirements},
    names,
    snapshot::Snapshot,
};

/// The pool's class can launch.
pub(super) const CLASS_READY: &str = "ClassReady";
/// The pool's requirements leave something to launch.
pub(super) const REQUIREMENTS_VALID: &str = "RequirementsValid";
/// The cloud has what the pool may launch.
pub(super) const CAPACITY_AVAILABLE: &str = "CapacityAvailable";

/// What was found out about pools' offerings, for as long as nothing that it was found from changes.
#[derive(Debug, Default)]
pub struct Supplies(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    pool: Arc<TenantPool>,
    types: Arc<[InstanceType]>,
    shortages: u64,
    statements: Vec<Statement>,
}

impl Supplies {
    pub(super) fn keep(&mut self, snapshot: &Snapshot) {
        self.0.retain(|name, _| snapshot.pools.contains_key(name));
    }

    /// What the requirements leave of `types`, and what of that can be had now.
    fn of(
        &mut self,
        snapshot: &Snapshot,
        name: &str,
        pool: &Arc<TenantPool>,
        types: &Arc<[InstanceType]>,
    ) -> Vec<Statement> {
        let known = self.0.get(name).filter(|known| {
            known.pool.spec == pool.spec
                && Arc::ptr_eq(&known.types, types)
                && known.shortages == snapshot.shortages.1
        });
        if let Some(known) = known {
            return known.statements.clone();
        }
        let statements = offered(snapshot, name, pool, types);
        let known = Known {
            pool: Arc::clone(pool),
            types: Arc::clone(types),
            shortages: snapshot.shortages.1,
            statements: statements.clone(),
        };
        self.0.insert(name.to_owned(), known);
        statements
    }
}

pub(super) fn judgements(
    round: &Round<'_>,
    supplies: &mut Supplies,
    name: &str,
    pool: &Arc<TenantPool>,
) -> Vec<Statement> {
    let snapshot = round.snapshot;
    let mut said = Vec::new();
    let class_name =
        pool.spec.template.as_ref().map(|t| t.spec.node_class_ref.name.as_str()).unwrap_or_default();
    let class = snapshot.class_of(pool).and_then(|c| snapshot.classes.get(c));
    said.push(class_ready(class_name, class.map(|c| &*c.object)));
    let problem = snapshot.problems.get(&format!("TenantPool {name}"));
    let types = class.and_then(|c| c.types.as_ref());
    match (problem, types) {
        (Some(problem), _) => said.push(Statement {
            kind: REQUIREMENTS_VALID,
            status: Some(false),
            reason: "Unreadable",
            message: format!("{}: {}", problem.field, problem.problem),
        }),
        (None, Some(types)) => said.extend(supplies.of(snapshot, name, pool, types)),
        (None, None) => said.push(Statement {
            kind: REQUIREMENTS_VALID,
            status: None,
            reason: "NotJudged",
            message: class
                .and_then(|c| c.types_error.clone())
                .unwrap_or_else(|| "nothing is known yet of what the class may launch".to_owned()),
        }),
    }
    let trouble = said.iter().find(|s| s.kind != CAPACITY_AVAILABLE && s.status != Some(true));
    said.push(match trouble {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: "Ready",
            message: "the pool can launch nodes".to_owned(),
        },
        Some(s) => Statement { kind: READY, status: s.status, reason: s.reason, message: s.message.clone() },
    });
    said
}

fn class_ready(name: &str, class: Option<&EC2NodeClass>) -> Statement {
    let statement = |status, reason, message| Statement { kind: CLASS_READY, status, reason, message };
    let Some(class) = class else {
        let message = format!("EC2NodeClass {name} is not there; create it, or change nodeClassRef");
        return statement(Some(false), "ClassNotFound", message);
    };
    let conditions = class.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    match conditions.iter().find(|c| c.type_ == READY) {
        Some(_) if is_true(conditions, READY) => {
            statement(Some(true), "ClassReady", format!("EC2NodeClass {name} is ready"))
        }
        Some(ready) if ready.status == "False" => statement(
            Some(false),
            "ClassNotReady",
            format!("EC2NodeClass {name} is not ready: {}", ready.message),
        ),
        _ => statement(None, "ClassNotJudged", format!("EC2NodeClass {name} hasn't been looked at yet")),
    }
}

fn offered(snapshot: &Snapshot, name: &str, pool: &TenantPool, types: &[InstanceType]) -> Vec<Statement> {
    let requirements: Vec<Requirement> = pool
        .spec
        .template
        .iter()
        .flat_map(|t| &t.spec.requirements)
        .map(croft_api::convert::scheduler::requirement)
        .collect();
    let mut possible: Vec<InstanceType> = Vec::new();
    for kind in types {
        let mut kept = kind.clone();
        kept.offerings.retain(|o| allows(&requirements, pool, kind, o));
        if !kept.offerings.is_empty() {
            possible.push(kept);
        }
    }
    if possible.is_empty() {
        let blame = requirements.iter().find(|r| {
            !types.iter().any(|t| t.offerings.iter().any(|o| allows(std::slice::from_ref(r), pool, t, o)))
        });
        let message = match blame {
            Some(r) => format!(
                "no instance type has {} {} [{}]; change that requirement",
                r.key,
                r.operator.as_str(),
                r.values.join(", "),
            ),
            None if types.is_empty() => "the class's images and subnets leave no instance type".to_owned(),
            None => "no instance type meets all requirements together; loosen one".to_owned(),
        };
        return vec![Statement {
            kind: REQUIREMENTS_VALID,
            status: Some(false),
            reason: "NothingMatches",
            message,
        }];
    }
    if let Some(never) = requirements::never_met(pool, &possible) {
        let message = format!(
            "no node that Croft launches has {never}: neither instance types nor spec.template.metadata.labels give that label; \
             change the requirement, or add the label"
        );
        return vec![Statement {
            kind: REQUIREMENTS_VALID,
            status: Some(false),
            reason: requirements::NEVER_MET,
            message,
        }];
    }
    let valid = Statement {
        kind: REQUIREMENTS_VALID,
        status: Some(true),
        reason: "Valid",
        message: "the requirements leave something to launch".to_owned(),
    };
    let supplies = survey(&possible, &snapshot.shortages.0);
    let verdict = Verdict::of(&supplies);
    let mut message = describe(&supplies);
    if verdict == Verdict::Dry {
        message.push_str(
            "; it is asked again by itself, and looser requirements would give it more to choose from",
        );
        message.push_str(&lighter(snapshot, name, pool));
    }
    let capacity = Statement {
        kind: CAPACITY_AVAILABLE,
        status: Some(verdict != Verdict::Dry),
        reason: verdict.as_str(),
        message,
    };
    vec![valid, capacity]
}

/// Where pods go meanwhile that may use other pools of the tenant, too.
fn lighter(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> String {
    let owners = snapshot.tenants.values().filter(|t| t.spec.pools.iter().any(|p| p == name));
    let mut others: Vec<(i32, &str)> = owners
        .flat_map(|t| &t.spec.pools)
        .filter_map(|other| Some((snapshot.pools.get(other)?.spec.weight, other.as_str())))
        .filter(|(weight, other)| *weight < pool.spec.weight && *other != name)
        .collect();
    others.sort_unstable_by_key(|(weight, other)| (std::cmp::Reverse(*weight), *other));
    others.dedup();
    if others.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        others.iter().map(|(weight, other)| format!("{other} (weight {weight})")).collect();
    format!("; pods that may use them go to {} meanwhile", shown.join(", "))
}

fn allows(
    requirements: &[Requirement],
    pool: &TenantPool,
    kind: &InstanceType,
    offering: &croft_scheduler::Offering,
) -> bool {
    requirements.iter().all(|r| {
        let template = pool.spec.template.as_ref().and_then(|t| t.metadata.labels.get(&r.key));
        match r.key.as_str() {
            "kubernetes.io/os" | "beta.kubernetes.io/os" => kind.os.iter().any(|os| r.matches(Some(os))),
            "kubernetes.io/arch" | "beta.kubernetes.io/arch" => r.matches(Some(&kind.arch)),
            names::INSTANCE_TYPE_LABEL | "beta.kubernetes.io/instance-type" => r.matches(Some(&kind.name)),
            names::ZONE_LABEL | "failure-domain.beta.kubernetes.io/zone" => r.matches(Some(&offering.zone)),
            names::CAPACITY_TYPE_LABEL | "croft.dev/capacity-type" => {
                r.matches(Some(offering.capacity_type.as_str()))
            }
            key => match kind.labels.get(key).or(template) {
                Some(value) => r.matches(Some(value)),
                // A label that no type has is one that the pool gives its nodes.
                None => !r.key.starts_with("karpenter.k8s.aws/") || r.matches(None),
            },
        }
    })
}
