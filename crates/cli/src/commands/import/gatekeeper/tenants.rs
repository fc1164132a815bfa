//! Tenants: the namespaces with the same mutations.

use std::collections::BTreeMap;

use croft_manifest::RawObject;
use serde_json::{Map, Value, json};

use super::{
    mutation::{Mutation, Scope, read},
    placement::Written,
};
use crate::commands::import::{
    fields::Report,
    imported::Imported,
    names::{names, shortened},
    note::Note,
    pools::PoolDraft,
};

/// Characters of a tenant's name, which may be its namespace's.
const MOST: usize = 63;

/// A Tenant whose pools have no names yet.
pub(in crate::commands::import) struct TenantDraft {
    pub(in crate::commands::import) name: String,
    /// The names of its mutations.
    pub(in crate::commands::import) source: String,
    spec: Map<String, Value>,
    /// Its pools, as places in the list of all.
    pub(in crate::commands::import) pools: Vec<usize>,
    pub(in crate::commands::import) notes: Vec<Note>,
}

impl TenantDraft {
    /// The spec, with the names of its pools.
    pub(in crate::commands::import) fn spec(&self, pools: &[&str]) -> Value {
        let mut spec = self.spec.clone();
        spec.insert("pools".to_owned(), json!(pools));
        Value::Object(spec)
    }
}

/// The namespaces of a Tenant, and the mutations that concern them all, as places in the list of all.
struct Group {
    namespaces: Vec<String>,
    /// As JSON.
    selector: Option<String>,
    mutations: Vec<usize>,
}

/// Makes Tenants of the mutations among `objects`. A pool that none of `pools` stands for is added to them.
pub(in crate::commands::import) fn import(
    objects: &[&RawObject],
    pools: &mut Vec<PoolDraft>,
    imported: &mut Imported,
) -> Vec<TenantDraft> {
    let mut mutations = Vec::new();
    for object in objects {
        let mut report = Report::new(object);
        match read(object, &mut report) {
            Ok(mutation) => mutations.push(mutation),
            Err(why) => {
                let text = format!("{} isn't carried over: {why}", object.title());
                imported.notes.push(Note::loss(text));
            }
        }
        imported.problems.append(&mut report.problems);
    }
    let groups = groups(&mutations);
    warn_of_overlap(&groups, &mutations, imported);
    let mut drafts = Vec::new();
    for group in groups {
        drafts.extend(draft(group, &mut mutations, pools, imported));
    }
    let wanted: Vec<_> =
        drafts.iter().map(|(wanted, draft)| (wanted.clone(), json!(draft.spec).to_string())).collect();
    let named =
        drafts.into_iter().zip(names(&wanted, MOST)).map(|((_, draft), name)| TenantDraft { name, ..draft });
    named.collect()
}

/// The namespaces with the same mutations, since a namespace has one Tenant; and the selectors.
fn groups(mutations: &[Mutation]) -> Vec<Group> {
    let mut by_name: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    let mut by_labels: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    for (at, mutation) in mutations.iter().enumerate() {
        match &mutation.scope {
            Scope::Names(names) => names.iter().for_each(|name| by_name.entry(name).or_default().push(at)),
            Scope::Labels(selector) => by_labels.entry(selector).or_default().push(at),
        }
    }
    let mut with_names: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
    for (name, of_name) in by_name {
        with_names.entry(of_name).or_default().push(name.clone());
    }
    let with_names = with_names.into_iter();
    let with_names =
        with_names.map(|(mutations, namespaces)| Group { namespaces, selector: None, mutations });
    let with_labels = by_labels.into_iter().map(|(selector, mutations)| Group {
        namespaces: Vec::new(),
        selector: Some(selector.clone()),
        mutations,
    });
    with_names.chain(with_labels).collect()
}

/// Gatekeeper applied every mutation that matched a namespace; Croft gives the namespace to one Tenant.
fn warn_of_overlap(groups: &[Group], mutations: &[Mutation], imported: &mut Imported) {
    for group in groups.iter().filter(|group| group.selector.is_some() && groups.len() > 1) {
        imported.notes.push(Note::change(format!(
            "the namespaces that {} selects may be those of other Tenants here: a namespace belongs to one, the one that names it or the \
             oldest",
            titles(&group.mutations, mutations)
        )));
    }
}

fn titles(places: &[usize], mutations: &[Mutation]) -> String {
    let titles: Vec<&str> =
        places.iter().filter_map(|at| mutations.get(*at)).map(|mutation| mutation.title.as_str()).collect();
    titles.join(", ")
}

/// The Tenant of a group with the text that its name is made of.
fn draft(
    group: Group,
    mutations: &mut [Mutation],
    pools: &mut Vec<PoolDraft>,
    imported: &mut Imported,
) -> Option<(String, TenantDraft)> {
    let Group { namespaces, selector, mutations: places } = group;
    let source = titles(&places, mutations);
    let mut notes = Vec::new();
    let written = Written::by(places.iter().filter_map(|at| mutations.get(*at)), &mut notes);
    // A note about a mutation of several Tenants is written once.
    let of_mutations =
        places.iter().filter_map(|at| Some(std::mem::take(&mut mutations.get_mut(*at)?.notes)));
    notes.splice(0..0, of_mutations.collect::<Vec<_>>().into_iter().flatten());
    let Some(chosen) = written.pools(pools, &source, &mut notes) else {
        let scope = match selector.as_deref() {
            Some("null") => "every namespace that they match".to_owned(),
            Some(selector) => format!("the namespaces {selector}"),
            None => format!("the namespaces {}", json!(namespaces)),
        };
        imported.notes.push(Note::loss(format!(
            "{source} set no label of a pool as node selector: their pods may run anywhere, so no Tenant is made of them; they write {} \
             in {scope}",
            written.text()
        )));
        imported.notes.append(&mut notes);
        return None;
    };
    let mut spec = Map::new();
    if !namespaces.is_empty() {
        spec.insert("namespaces".to_owned(), json!(namespaces));
    }
    let selector: Option<Value> = selector.and_then(|selector| serde_json::from_str(&selector).ok());
    if let Some(selector) = selector.filter(|selector| !selector.is_null()) {
        spec.insert("namespaceSelector".to_owned(), selector);
    }
    // Gatekeeper's Assign overwrote the pod's own choice.
    spec.insert("onConflict".to_owned(), json!("Override"));
    let first = places.first().and_then(|at| mutations.get(*at));
    let wanted = match namespaces.as_slice() {
        [one] => one.clone(),
        _ => stem(first.map_or("tenant", |mutation| mutation.name.as_str())),
    };
    Some((wanted, TenantDraft { name: String::new(), source, spec, pools: chosen, notes }))
}

/// The mutation's name without suffixes such as `-nodeselector`.
fn stem(source: &str) -> String {
    let mut stem = shortened(source, MOST);
    for suffix in ["-nodeselector", "-node-selector", "-selector", "-tolerations", "-toleration", "-assign"] {
        if let Some(short) = stem.strip_suffix(suffix).filter(|short| !short.is_empty()) {
            stem = short.to_owned();
        }
    }
    stem
}
