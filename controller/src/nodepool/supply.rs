//! Whether a pool can launch nodes: by its class, its requirements and the cloud's capacity.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    EC2NodeClass, TenantPool,
    condition::{READY, Statement, is_true},
    pool::{ExtendedResource, InstanceLabel},
};
use croft_cloud::{
    pool_types,
    supply::{Verdict, describe, survey},
};
use croft_scheduler::InstanceType;

use crate::{
    definitions::conditions as reasons, provisioning::requirements::never_met_requirement, state::Snapshot,
};

/// The statements about pools' offerings, as long as their inputs are unchanged.
#[derive(Debug, Default)]
pub(super) struct Supplies(BTreeMap<String, Vec<Known>>);

#[derive(Debug)]
struct Known {
    pool: Arc<TenantPool>,
    types: Arc<[InstanceType]>,
    unavailable_version: u64,
    statements: Vec<Statement>,
    /// The extended resources of the types that the pool may launch.
    resources: Vec<ExtendedResource>,
    /// The labels by which pods choose among them.
    labels: Vec<InstanceLabel>,
}

impl Supplies {
    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.0.retain(|name, _| snapshot.pools().contains_key(name));
    }

    /// The extended resources that instances of the pool can have; `None` until the types of a template are known. A template whose
    /// types aren't known can have what the status says, and nothing is known of each of its instances.
    pub(super) fn extended_resources(
        &self,
        snapshot: &Snapshot,
        name: &str,
    ) -> Option<Vec<ExtendedResource>> {
        let templates = self.known_of(snapshot, name)?;
        let mut known: Vec<&[ExtendedResource]> =
            templates.iter().flatten().map(|known| known.resources.as_slice()).collect();
        if known.is_empty() {
            return None;
        }
        let before =
            snapshot.pools().get(name).and_then(|pool| pool.status.as_ref()?.extended_resources.clone());
        let mut before = before.unwrap_or_default();
        before.iter_mut().for_each(|resource| resource.dedicated = false);
        if known.len() < templates.len() {
            known.push(&before);
        }
        Some(pool_types::any_of(&known))
    }

    /// The labels by which pods choose among the instances that the pool can have; `None` until the types of each template are known.
    pub(super) fn instance_labels(&self, snapshot: &Snapshot, name: &str) -> Option<Vec<InstanceLabel>> {
        let known: Option<Vec<&Known>> = self.known_of(snapshot, name)?.into_iter().collect();
        let labels: Vec<&[InstanceLabel]> = known?.into_iter().map(|known| known.labels.as_slice()).collect();
        Some(pool_types::instance_labels_of_any(&labels))
    }

    /// What is known of each template of a pool; `None` of one whose types aren't known.
    fn known_of(&self, snapshot: &Snapshot, name: &str) -> Option<Vec<Option<&Known>>> {
        let known = self.0.get(name)?;
        let of_template =
            |template: &Arc<TenantPool>| known.iter().find(|known| known.pool.spec == template.spec);
        Some(snapshot.templates_of(name).iter().map(of_template).collect())
    }

    /// The conditions about what a pool may launch, of its templates together.
    pub(super) fn statements(&mut self, snapshot: &Snapshot, name: &str) -> Vec<Statement> {
        let templates = snapshot.templates_of(name);
        if let Some(of_pool) = self.0.get_mut(name) {
            of_pool.retain(|known| templates.iter().any(|template| template.spec == known.pool.spec));
        }
        let mut of_templates = Vec::with_capacity(templates.len());
        for template in templates {
            let of_template = self.statements_of_template(snapshot, name, template);
            of_templates.push((template.template_name(), with_summary(of_template)));
        }
        best(of_templates)
    }

    /// The conditions about what a pool with one kind of node may launch.
    fn statements_of_template(
        &mut self,
        snapshot: &Snapshot,
        name: &str,
        pool: &Arc<TenantPool>,
    ) -> Vec<Statement> {
        let mut statements = Vec::new();
        let class_name =
            pool.spec.template.as_ref().map(|t| t.spec.node_class_ref.name.as_str()).unwrap_or_default();
        let class = snapshot.class_of(pool).and_then(|c| snapshot.classes().get(c));
        statements.push(class_condition(class_name, class.map(|c| &*c.object)));
        let problem = snapshot.problem("TenantPool", name);
        let types = class.and_then(|c| c.types.as_ref());
        match (problem, types) {
            (Some(problem), _) => statements.push(Statement {
                kind: reasons::REQUIREMENTS_VALID,
                status: Some(false),
                reason: reasons::UNREADABLE,
                message: format!("{}: {}", problem.field, problem.problem),
            }),
            (None, Some(types)) => statements.extend(self.offering_statements(snapshot, name, pool, types)),
            (None, None) => statements.push(Statement {
                kind: reasons::REQUIREMENTS_VALID,
                status: None,
                reason: reasons::OFFERINGS_UNKNOWN,
                message: class
                    .and_then(|c| c.types_error.clone())
                    .unwrap_or_else(|| "the offerings of the class are not known yet".to_owned()),
            }),
        }
        statements
    }

    /// Statements about the offerings that the requirements leave of `types`.
    fn offering_statements(
        &mut self,
        snapshot: &Snapshot,
        name: &str,
        pool: &Arc<TenantPool>,
        types: &Arc<[InstanceType]>,
    ) -> Vec<Statement> {
        let of_pool = self.0.entry(name.to_owned()).or_default();
        let known = of_pool.iter().find(|known| {
            known.pool.spec == pool.spec
                && Arc::ptr_eq(&known.types, types)
                && known.unavailable_version == snapshot.unavailable_version()
        });
        if let Some(known) = known {
            return known.statements.clone();
        }
        let possible = pool_types::possible(pool, types);
        let statements = offering_statements(snapshot, name, pool, types, &possible);
        let known = Known {
            resources: pool_types::extended_resources(&possible),
            labels: pool_types::instance_labels(&possible),
            pool: Arc::clone(pool),
            types: Arc::clone(types),
            unavailable_version: snapshot.unavailable_version(),
            statements: statements.clone(),
        };
        of_pool.retain(|known| known.pool.template_name() != pool.template_name());
        of_pool.push(known);
        statements
    }
}

/// The statements with `Ready`, which is as bad as the worst of them but for capacity.
fn with_summary(mut statements: Vec<Statement>) -> Vec<Statement> {
    let failing = statements.iter().find(|s| s.kind != reasons::CAPACITY_AVAILABLE && s.status != Some(true));
    statements.push(match failing {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: reasons::READY,
            message: "the pool can launch nodes".to_owned(),
        },
        Some(s) => Statement { kind: READY, status: s.status, reason: s.reason, message: s.message.clone() },
    });
    statements
}

/// The statements of the template that can launch best: a pool launches while one of its templates can. Its messages name the others
/// that can't.
fn best(templates: Vec<(Option<&str>, Vec<Statement>)>) -> Vec<Statement> {
    let status = |of: &[Statement], kind: &str| of.iter().find(|s| s.kind == kind).map(|s| s.status);
    let rank = |of: &[Statement]| {
        [READY, reasons::CAPACITY_AVAILABLE].map(|kind| match status(of, kind) {
            Some(Some(true)) => 2,
            Some(None) | None => 1,
            Some(Some(false)) => 0,
        })
    };
    let first = templates.iter().rev().max_by_key(|(_, of)| rank(of));
    let Some((chosen, mut statements)) = first.cloned() else { return Vec::new() };
    for statement in &mut statements {
        for (name, of) in templates.iter().filter(|(name, _)| *name != chosen) {
            let worse = of.iter().find(|s| s.kind == statement.kind && s.status != Some(true));
            if let Some(worse) = worse.filter(|worse| worse.message != statement.message) {
                let more = format!("; template {}: {}", name.unwrap_or_default(), worse.message);
                statement.message.push_str(&more);
            }
        }
    }
    statements
}

fn class_condition(name: &str, class: Option<&EC2NodeClass>) -> Statement {
    let statement =
        |status, reason, message| Statement { kind: reasons::CLASS_READY, status, reason, message };
    let Some(class) = class else {
        let message = format!("EC2NodeClass {name} not found; create it, or change nodeClassRef");
        return statement(Some(false), reasons::CLASS_NOT_FOUND, message);
    };
    let conditions = class.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    match conditions.iter().find(|c| c.type_ == READY) {
        Some(_) if is_true(conditions, READY) => {
            statement(Some(true), reasons::CLASS_READY_REASON, format!("EC2NodeClass {name} is ready"))
        }
        Some(ready) if ready.status == "False" => statement(
            Some(false),
            reasons::CLASS_NOT_READY,
            format!("EC2NodeClass {name} is not ready: {}", ready.message),
        ),
        _ => statement(
            None,
            reasons::CLASS_NOT_RESOLVED,
            format!("EC2NodeClass {name} hasn't been resolved yet"),
        ),
    }
}

fn offering_statements(
    snapshot: &Snapshot,
    name: &str,
    pool: &TenantPool,
    types: &[InstanceType],
    possible: &[InstanceType],
) -> Vec<Statement> {
    if possible.is_empty() {
        let requirements = pool_types::requirements(pool);
        let unmatched = requirements.iter().find(|r| {
            !types
                .iter()
                .any(|t| t.offerings.iter().any(|o| pool_types::allows(std::slice::from_ref(r), pool, t, o)))
        });
        let message = match unmatched {
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
            kind: reasons::REQUIREMENTS_VALID,
            status: Some(false),
            reason: reasons::NO_INSTANCE_TYPE_MATCHES,
            message,
        }];
    }
    if let Some(never) = never_met_requirement(pool, possible) {
        let message = format!(
            "no node that Croft launches has {never}: neither instance types nor the template's metadata.labels give that label; \
             change the requirement, or add the label"
        );
        return vec![Statement {
            kind: reasons::REQUIREMENTS_VALID,
            status: Some(false),
            reason: reasons::REQUIREMENT_NEVER_MET,
            message,
        }];
    }
    let valid = Statement {
        kind: reasons::REQUIREMENTS_VALID,
        status: Some(true),
        reason: reasons::VALID,
        message: "the requirements leave something to launch".to_owned(),
    };
    let supplies = survey(possible, snapshot.unavailable_offerings());
    let verdict = Verdict::of(&supplies);
    let mut message = describe(&supplies);
    if verdict == Verdict::Dry {
        message
            .push_str("; it is retried automatically, and looser requirements would give it more offerings");
        message.push_str(&lighter_pools(snapshot, name, pool));
    }
    let capacity = Statement {
        kind: reasons::CAPACITY_AVAILABLE,
        status: Some(verdict != Verdict::Dry),
        reason: verdict.as_str(),
        message,
    };
    vec![valid, capacity]
}

/// The lighter pools that pods may use meanwhile.
fn lighter_pools(snapshot: &Snapshot, name: &str, pool: &TenantPool) -> String {
    let owners = snapshot.tenants_of_pool(name);
    let mut others: Vec<(i32, &str)> = owners
        .flat_map(|(_, tenant)| snapshot.pools_of_tenant(tenant))
        .filter_map(|other| snapshot.pools().get_key_value(&*other))
        .map(|(other, pool)| (pool.spec.weight, other.as_str()))
        .filter(|(weight, other)| *weight < pool.spec.weight && *other != name)
        .collect();
    others.sort_unstable_by_key(|(weight, other)| (std::cmp::Reverse(*weight), *other));
    others.dedup();
    if others.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        others.iter().map(|(weight, other)| format!("{other} (weight {weight})")).collect();
    format!("; pods that may use other pools go to {} meanwhile", shown.join(", "))
}
