//! The objects of one input put over those of another.

use croft_manifest::{Input, Objects, each_kind};
use kube::Resource;

/// Puts the objects of `added` into `input`, but for those of other controllers' kinds.
pub(crate) fn merge(input: &mut Input, added: &Input) {
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
}
