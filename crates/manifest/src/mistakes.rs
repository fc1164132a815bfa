//! Every mistake of one object, where decoding ends at the first.

use crate::{decode::DecodeError, tree::Tree};

/// More values of one object aren't replaced.
const REPLACED: usize = 40;

/// The errors of `tree` from `first` on, each with its value replaced, and the object that remains, if there is one. `decode` decodes
/// a tree.
pub(crate) fn every_error<T>(
    first: DecodeError,
    tree: &Tree,
    mut decode: impl FnMut(&Tree) -> Result<T, DecodeError>,
) -> (Vec<DecodeError>, Option<T>) {
    let mut tree = tree.clone();
    let (mut errors, mut next) = (Vec::<DecodeError>::new(), first);
    for _ in 0..REPLACED {
        let field = next.field();
        let is_replaced = next.repair(&mut tree);
        // An error at or inside a value that was put in isn't the author's.
        if !errors.iter().any(|known| is_within(&field, &known.field())) {
            errors.push(next);
        }
        if !is_replaced {
            break;
        }
        next = match decode(&tree) {
            Ok(object) => return (errors, Some(object)),
            Err(error) => error,
        };
        // An error above a value that was put in is one of that value.
        let field = next.field();
        if errors.iter().any(|known| known.field() != field && is_within(&known.field(), &field)) {
            break;
        }
    }
    (errors, None)
}

/// True if the field is `outer`, or inside it.
pub(crate) fn is_within(field: &str, outer: &str) -> bool {
    field
        .strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}
