//! Syntax, sign and sum of quantities.

use croft_scheduler::{Quantity, Resources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// Fails with a message unless `text` is a quantity.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.trim() == text && text.parse::<Quantity>().is_ok() {
        return Ok(());
    }
    Err(format!(
        "{text:?} isn't a quantity; write a number with an optional suffix, such as \"500m\", \"2\" or \"64Gi\""
    ))
}

/// True if `text` is a quantity below zero.
pub(crate) fn is_negative(text: &str) -> bool {
    text.parse::<Quantity>().is_ok_and(Quantity::is_negative)
}

/// The sum of `amounts` of the resource `name`, in the unit that kube-scheduler counts it in; `None` if one of them isn't
/// a quantity.
#[must_use]
pub fn sum(name: &str, amounts: &[&ApiQuantity]) -> Option<ApiQuantity> {
    let mut total = Resources::new();
    for amount in amounts {
        let mut one = Resources::new();
        one.set_quantity(name, amount.0.parse().ok()?);
        total.add(&one);
    }
    Some(ApiQuantity(total.quantity(name).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_with_blanks_is_refused() {
        assert!(check("1 ").is_err());
        assert!(check("").is_err());
        assert!(check("1.5Gi").is_ok());
    }

    #[test]
    fn sum_of_mixed_units_is_exact() {
        let q = |t: &str| ApiQuantity(t.to_owned());
        assert_eq!(sum("cpu", &[&q("0.1"), &q("250m")]).unwrap().0, "350m");
        assert_eq!(sum("memory", &[&q("1Gi"), &q("512Mi")]).unwrap().0, "1536Mi");
    }
}
