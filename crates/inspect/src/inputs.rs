//! Inputs made of others: a snapshot of the record, and the objects of one input put over those of another.

use croft_manifest::{Input, InputError, LoadOptions, Objects, each_kind, parse};
use croft_record::snapshot::read::Moment;
use jiff::Timestamp;
use kube::Resource;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

/// The objects of a snapshot, as their manifests would be read.
///
/// # Errors
/// Objects that are no manifests.
pub fn recorded_input(found: &Moment) -> Result<Input, InputError> {
    let field = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is_pool = |object: &&Value| field(object, "/kind") == "TenantPool";
    let pools: FxHashSet<String> =
        found.objects.iter().filter(is_pool).map(|pool| field(pool, "/metadata/name")).collect();
    // A NodeClaim of a TenantPool that is gone makes a file invalid.
    let is_whole = |object: &&Value| {
        field(object, "/kind") != "NodeClaim" || pools.contains(&field(object, "/spec/pool"))
    };
    let items: Vec<&Value> = found.objects.iter().filter(is_whole).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let mut input = parse("record", &list, &LoadOptions::default())?;
    input.recorded_at = Timestamp::from_millisecond(found.at).ok();
    Ok(input)
}

/// Puts the objects of `added` into `input`, but for those of other controllers' kinds, and makes the pools for tenants that follow from
/// both.
pub fn merge(input: &mut Input, added: &Input) {
    fn put<K: Resource + Clone>(into: &mut Objects<K>, added: &Objects<K>) {
        for one in added {
            into.put(one.object.clone(), one.origin.clone());
        }
    }
    macro_rules! put {
        ($($field:ident: $group:ident),*) => { $(
            put(&mut input.$field, &added.$field);
        )* };
    }
    each_kind!(put);
    input.make_pools_for_tenants();
}
