//! Pools of the input with one taint. In Croft a label and its taint are one pool's, since they are the boundary between tenants: such
//! pools become one TenantPool, with a template for each.

use std::{cmp::Reverse, time::Duration};

use croft_api::{disruption::Disruption, duration};
use serde_json::{Map, Value, json};

use super::{note::Note, pools::PoolDraft};

/// Templates of a pool.
const MOST: usize = 5;

/// Joins the pools that have one label. The others stay as they are.
pub(super) fn join(drafts: Vec<PoolDraft>) -> Vec<PoolDraft> {
    let mut groups: Vec<Vec<PoolDraft>> = Vec::new();
    for draft in drafts {
        let is_same = |group: &&mut Vec<PoolDraft>| {
            draft.label.is_some() && group.first().is_some_and(|first| first.label == draft.label)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(draft),
            None => groups.push(vec![draft]),
        }
    }
    groups.into_iter().flat_map(in_pools).collect()
}

/// The pools of one label: one, unless there are more kinds of nodes than a pool has templates. The heaviest come first, as Karpenter
/// tries them.
fn in_pools(mut group: Vec<PoolDraft>) -> Vec<PoolDraft> {
    group.sort_by_key(|draft| (Reverse(draft.weight()), draft.wanted.clone()));
    let mut pools = Vec::new();
    while !group.is_empty() {
        let further = group.split_off(group.len().min(MOST));
        let others = sources(&further);
        let mut pool = joined(group, pools.is_empty());
        if !others.is_empty() {
            pool.notes.push(Note::change(format!(
                "{}: a pool has at most {MOST} templates, so that {others} become a pool of their own, with another label. For one pool, \
                 make one NodePool of those that differ in architecture, capacity type or instance type alone: a requirement has several \
                 values",
                pool.source
            )));
        }
        pools.push(pool);
        group = further;
    }
    pools
}

fn sources(drafts: &[PoolDraft]) -> String {
    drafts.iter().map(|draft| draft.source.as_str()).collect::<Vec<_>>().join(", ")
}

/// The pool whose templates the pools of `drafts` are. The first pool of a label is called as the label.
fn joined(mut drafts: Vec<PoolDraft>, is_first: bool) -> PoolDraft {
    let source = sources(&drafts);
    let mut notes: Vec<Note> = drafts.iter_mut().flat_map(|draft| std::mem::take(&mut draft.notes)).collect();
    let label = drafts.first().and_then(|draft| draft.label.clone());
    let first = drafts.first().map(|draft| draft.wanted.clone()).unwrap_or_default();
    let (spec, effects, metadata) = match drafts.as_mut_slice() {
        [one] => (
            std::mem::take(&mut one.spec),
            std::mem::take(&mut one.effects),
            std::mem::take(&mut one.metadata),
        ),
        several => (spec(several, &mut notes), effects(several, &mut notes), metadata(several, &mut notes)),
    };
    let wanted = match &label {
        Some(label) if is_first && drafts.len() > 1 => name(label),
        _ => first,
    };
    let nodes = drafts.into_iter().flat_map(|draft| draft.nodes).collect();
    PoolDraft { source, wanted, label, effects, spec, metadata, nodes, notes }
}

/// The text that names the pool of a label: its value, unless that says nothing without the key.
fn name((key, value): &(String, String)) -> String {
    if matches!(value.as_str(), "true" | "false") {
        return key.rsplit('/').next().unwrap_or(key).to_owned();
    }
    value.clone()
}

/// The fields that all nodes share: the disruption, if any of them has one.
fn spec(drafts: &mut [PoolDraft], notes: &mut Vec<Note>) -> Map<String, Value> {
    let own: Vec<Map<String, Value>> = drafts
        .iter_mut()
        .map(|draft| match draft.spec.remove("disruption") {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        })
        .collect();
    let calmest = calmest(&own);
    for (draft, own) in drafts.iter().zip(&own).filter(|(_, own)| !own.is_empty() && **own != calmest) {
        notes.push(Note::loss(format!(
            "{}: spec.disruption isn't carried over as it is: a pool has one for all its templates, of each field the calmest: {}",
            draft.source,
            json!(own)
        )));
    }
    let disruption = (!calmest.is_empty()).then(|| ("disruption".to_owned(), Value::Object(calmest)));
    disruption.into_iter().collect()
}

/// Of each field of disruptions the value by which the fewest nodes are disrupted. All budgets hold, since the strictest counts.
fn calmest(all: &[Map<String, Value>]) -> Map<String, Value> {
    let defaults = Disruption::default();
    let mut calmest = Map::new();
    let mut keep = |field: &str, value: Option<Value>| {
        calmest.extend(value.map(|value| (field.to_owned(), value)));
    };
    let values = |field: &str| all.iter().filter_map(|one| one.get(field)).cloned().collect::<Vec<_>>();
    let policies = values("consolidationPolicy");
    keep(
        "consolidationPolicy",
        policies.iter().find(|policy| *policy == "WhenEmpty").or(policies.first()).cloned(),
    );
    if !values("consolidateAfter").is_empty() {
        let default = json!(defaults.consolidate_after());
        let after = all.iter().map(|one| one.get("consolidateAfter").unwrap_or(&default));
        keep("consolidateAfter", after.max_by_key(|after| time(after)).cloned());
    }
    if !values("budgets").is_empty() {
        let default = json!(defaults.budgets);
        let mut budgets: Vec<&Value> = Vec::new();
        for one in all {
            let own = one.get("budgets").unwrap_or(&default).as_array();
            let own =
                own.into_iter().flatten().filter(|budget| !budgets.contains(budget)).collect::<Vec<_>>();
            budgets.extend(own);
        }
        keep("budgets", Some(json!(budgets)));
    }
    // Fields that are known to nobody here: each stays, for a note of its own.
    for (field, value) in all.iter().flatten() {
        if !calmest.contains_key(field) {
            calmest.insert(field.clone(), value.clone());
        }
    }
    calmest
}

/// The time of `consolidateAfter`. One that can't be read counts as the longest, and is refused with the output.
fn time(after: &Value) -> Duration {
    after.as_str().and_then(|text| duration::parse(text).ok().flatten()).unwrap_or(Duration::MAX)
}

/// The effects of all, since a taint is the whole pool's.
fn effects(drafts: &[PoolDraft], notes: &mut Vec<Note>) -> Vec<String> {
    let mut effects: Vec<String> = drafts.iter().flat_map(|draft| draft.effects.iter().cloned()).collect();
    effects.sort_unstable();
    effects.dedup();
    for draft in drafts.iter().filter(|draft| draft.effects.len() < effects.len()) {
        notes.push(Note::change(format!(
            "{}: its taint has {} here, and had {} alone: all nodes of a pool have one taint",
            draft.source,
            effects.join(" and "),
            draft.effects.join(" and ")
        )));
    }
    effects
}

/// Labels and annotations of all. Of two values the first is kept.
fn metadata(drafts: &mut [PoolDraft], notes: &mut Vec<Note>) -> Map<String, Value> {
    let mut all = Map::new();
    for draft in drafts {
        for (part, entries) in std::mem::take(&mut draft.metadata) {
            let kept = all.entry(part.clone()).or_insert_with(|| json!({}));
            let (Some(kept), Value::Object(entries)) = (kept.as_object_mut(), entries) else { continue };
            for (key, value) in entries {
                let first = kept.entry(key.clone()).or_insert_with(|| value.clone());
                if *first != value {
                    notes.push(Note::loss(format!(
                        "{}: metadata.{part}.{key} isn't carried over, another template of the pool has {first}: {value}",
                        draft.source
                    )));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calmest_of(all: &[Value]) -> Value {
        let all: Vec<Map<String, Value>> = all.iter().filter_map(|one| one.as_object().cloned()).collect();
        Value::Object(calmest(&all))
    }

    #[test]
    fn of_different_disruptions_the_calmest_of_each_field_counts() {
        let nodes = |nodes: &str| json!({"nodes": nodes});
        let one = json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10m", "budgets": [nodes("10%")]});
        let other = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m", "budgets": [nodes("10%"), nodes("2")]});
        let calm = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m", "budgets": [nodes("10%"), nodes("2")]});
        assert_eq!(calmest_of(&[one.clone(), other.clone()]), calm);
        assert_eq!(calmest_of(&[one.clone(), one.clone()]), one);
        assert_eq!(calmest_of(&[json!({}), json!({})]), json!({}));
        let never = json!({"consolidateAfter": "Never"});
        assert_eq!(calmest_of(&[json!({}), never.clone()]), never);
        let short = json!({"consolidateAfter": "5s"});
        assert_eq!(calmest_of(&[short, json!({})])["consolidateAfter"], "30s", "the default is longer");
    }

    #[test]
    fn a_pool_is_called_as_its_label_unless_that_says_nothing() {
        let name = |key: &str, value: &str| super::name(&(key.to_owned(), value.to_owned()));
        assert_eq!(name("team", "shop"), "shop");
        assert_eq!(name("example.com/gpu", "true"), "gpu");
    }
}
