//! Warnings about fields that this version doesn't know.

use std::collections::BTreeMap;

use crate::error::Problem;

/// Objects shown for a field of a kind; a dump of a newer cluster may have the field in thousands.
const SHOWN: usize = 3;

/// Unknown fields that were left out.
#[derive(Default)]
pub(crate) struct UnknownFields {
    shown: Vec<String>,
    /// By kind, and path without indices.
    counts: BTreeMap<(String, String), usize>,
}

impl UnknownFields {
    /// Adds a field of an object of `kind`.
    pub(crate) fn add(&mut self, kind: &str, problem: &Problem) {
        let count = self.counts.entry((kind.to_owned(), without_indices(&problem.field))).or_default();
        *count += 1;
        if *count <= SHOWN {
            self.shown.push(format!("{problem} (ignored)"));
        }
    }

    /// One warning for each field that is shown, then the numbers of the rest.
    pub(crate) fn warnings(self) -> impl Iterator<Item = String> {
        let rest = self.counts.into_iter().filter_map(|((kind, field), count)| {
            let more = count.checked_sub(SHOWN).filter(|more| *more > 0)?;
            let objects = if more == 1 { "object" } else { "objects" };
            Some(format!(
                "{more} more {objects} of kind {kind} with the unknown field {field}, which is ignored"
            ))
        });
        self.shown.into_iter().chain(rest)
    }
}

fn without_indices(path: &str) -> String {
    let mut result = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        result.push_str(before);
        result.push_str("[]");
        rest = after.split_once(']').map_or("", |(_, after)| after);
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Origin;

    #[test]
    fn three_objects_are_shown_for_a_field_and_the_rest_is_counted() {
        let mut fields = UnknownFields::default();
        for line in 1..=5 {
            let field = format!("spec.containers[{line}].colour");
            let origin = Origin { file: "a.yaml".into(), line };
            let object = format!("Pod default/p{line}");
            fields
                .add("Pod", &Problem { origin, object, field, message: "there is no such field".to_owned() });
        }
        let warnings: Vec<String> = fields.warnings().collect();
        assert_eq!(warnings.len(), SHOWN + 1);
        assert_eq!(
            warnings[0],
            "a.yaml:1: Pod default/p1: spec.containers[1].colour: there is no such field (ignored)"
        );
        let rest =
            "2 more objects of kind Pod with the unknown field spec.containers[].colour, which is ignored";
        assert_eq!(warnings[SHOWN], rest);
    }
}
