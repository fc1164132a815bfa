//! Every mistake of one object, where decoding ends at the first.

use crate::{decode::DecodeError, tree::Tree};

/// More mistakes of one object aren't looked for.
const MISTAKES: usize = 20;

/// The errors of `tree` from `first` on, each with its value replaced, and the object that remains, if there is one. `decode` decodes
/// a tree.
pub(crate) fn every_error<T>(
    first: DecodeError,
    tree: &Tree,
    mut decode: impl FnMut(&Tree) -> Result<T, DecodeError>,
) -> (Vec<DecodeError>, Option<T>) {
    let mut tree = tree.clone();
    let mut errors = vec![first];
    while errors.len() < MISTAKES && errors.last().is_some_and(|error| error.repair(&mut tree)) {
        let next = match decode(&tree) {
            Ok(object) => return (errors, Some(object)),
            Err(next) => next,
        };
        // An error at or above a value that was put in is one of that value.
        if errors.iter().any(|known| is_within(&known.field(), &next.field())) {
            break;
        }
        errors.push(next);
    }
    (errors, None)
}

/// True if the field is `outer`, or inside it.
pub(crate) fn is_within(field: &str, outer: &str) -> bool {
    field
        .strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}
