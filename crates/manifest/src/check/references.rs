//! References between objects, checked once all files are read.

use crate::{error::Problem, input::Input};

/// A NodeClaim names a TenantPool of the input, if it holds any.
pub(crate) fn references(input: &Input, problems: &mut Vec<Problem>) {
    for claim in &input.claims {
        if input.pools.get("", &claim.spec.pool).is_none() && !input.pools.is_empty() {
            problems.push(Problem {
                origin: claim.origin.clone(),
                object: format!("NodeClaim {}", claim.metadata.name.as_deref().unwrap_or_default()),
                field: "spec.pool".to_owned(),
                message: format!("there is no TenantPool {}", claim.spec.pool),
            });
        }
    }
}
