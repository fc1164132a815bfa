//! Whether a pool can launch nodes: by its class, its requirements and the cloud's capacity.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    EC2NodeClass, TenantPool,
    condition::{READY, Statement, is_true},
    pool::ExtendedResource,
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
}

impl Supplies {
    pub(super) fn retain_known(&mut self, snapshot: &Snapshot) {
        self.0.retain(|name, _| snapshot.pools().contains_key(name));
    }

    /// The extended resources that instances of the pool can have; `None` until the types of all of its templates are known.
    pub(super) fn extended_resources(
        &self,
        snapshot: &Snapshot,
        name: &str,
    ) -> Option<Vec<ExtendedResource>> {
        let of_template = |template: &Arc<TenantPool>| {
            let known = self.0.get(name)?.iter().find(|known| known.pool.spec == template.spec);
            known.map(|known| known.resources.as_slice())
        };
        let templates: Option<Vec<_>> = snapshot.templates_of(name).iter().map(of_template).collect();
        templates.filter(|known| !known.is_empty()).map(|known| pool_types::any_of(&known))
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
            of_templates.push((template.template_name(), of_template));
        }
        let mut statements = merged(of_templates);
        let failing =
            statements.iter().find(|s| s.kind != reasons::CAPACITY_AVAILABLE && s.status != Some(true));
        statements.push(match failing {
            None => Statement {
                kind: READY,
                status: Some(true),
                reason: reasons::READY,
                message: "the pool can launch nodes".to_owned(),
            },
            Some(s) => {
                Statement { kind: READY, status: s.status, reason: s.reason, message: s.message.clone() }
            }
        });
        statements
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

/// Of each kind the best statement of a template, with the others' that aren't so: a pool launches while one of its templates can.
fn merged(mut templates: Vec<(Option<&str>, Vec<Statement>)>) -> Vec<Statement> {
    const fn rank(statement: &Statement) -> u8 {
        match statement.status {
            Some(true) => 2,
            None => 1,
            Some(false) => 0,
        }
    }
    if let [(None, _)] = templates.as_slice() {
        return templates.pop().map(|(_, statements)| statements).unwrap_or_default();
    }
    let named = templates.iter().flat_map(|(name, of)| of.iter().map(|s| (name.unwrap_or_default(), s)));
    let mut kinds: Vec<(&str, Vec<(&str, &Statement)>)> = Vec::new();
    for (name, statement) in named {
        match kinds.iter_mut().find(|(kind, _)| *kind == statement.kind) {
            Some((_, of_kind)) => of_kind.push((name, statement)),
            None => kinds.push((statement.kind, vec![(name, statement)])),
        }
    }
    let best = |(_, of_kind): (&str, Vec<(&str, &Statement)>)| {
        let first = of_kind.iter().rev().max_by_key(|(_, statement)| rank(statement))?.1;
        let alike = of_kind.iter().all(|(_, statement)| statement.message == first.message);
        let worse = |statement: &Statement| rank(statement) < rank(first) || rank(first) == 0;
        let others = of_kind.iter().filter(|(_, statement)| worse(statement));
        let others: Vec<String> =
            others.map(|(name, statement)| format!("template {name}: {}", statement.message)).collect();
        let message = match (alike, others.is_empty(), rank(first)) {
            (true, ..) | (_, true, _) => first.message.clone(),
            (_, _, 0) => others.join("; "),
            _ => format!("{}; {}", first.message, others.join("; ")),
        };
        Some(Statement { message, ..first.clone() })
    };
    kinds.into_iter().filter_map(best).collect()
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
        .flat_map(|(_, tenant)| &tenant.spec.pools)
        .filter_map(|other| Some((snapshot.pools().get(other)?.spec.weight, other.as_str())))
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
