//! Requirements on one label, as pods and pools write them.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::model::well_known::ALIASES;

/// How a label's value relates to a requirement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
    /// The label is an integer greater than or equal to the value.
    Gte,
    /// The label is an integer less than or equal to the value.
    Lte,
}

impl Operator {
    /// Reads an operator as Kubernetes spells it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "Gte" => Self::Gte,
            "Lte" => Self::Lte,
            _ => return None,
        })
    }

    /// As Kubernetes spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    const fn compares(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// Values for In and NotIn; exactly one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// A launch must leave at least this many different values of the key to choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

impl Requirement {
    /// `key In values`.
    pub fn any_of<V: Into<String>>(key: &str, values: impl IntoIterator<Item = V>) -> Self {
        Self {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.into_iter().map(Into::into).collect(),
            min_values: None,
        }
    }

    /// The error of the requirement, if there is one.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub fn check(&self) -> Result<(), String> {
        match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => {
                Err(format!("{} on {} needs at least one value", self.operator.as_str(), self.key))
            }
            Operator::Exists | Operator::DoesNotExist if !self.values.is_empty() => {
                Err(format!("{} on {} takes no values", self.operator.as_str(), self.key))
            }
            op if op.compares() => match self.values.as_slice() {
                [one] if one.parse::<i64>().is_ok() => Ok(()),
                _ => Err(format!("{} on {} needs exactly one integer", op.as_str(), self.key)),
            },
            _ => Ok(()),
        }
    }

    /// True if a node with these labels satisfies the requirement. A key with another name (`beta.kubernetes.io/arch`,
    /// `croft.dev/capacity-type`) is looked up by that, too, as the plan of a new node does it.
    #[must_use]
    pub fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let other = ALIASES.iter().find(|(old, _)| *old == self.key).map(|(_, new)| *new);
        let value = labels.get(&self.key).or_else(|| labels.get(other?));
        self.matches(value.map(String::as_str))
    }

    /// True if a label with `value` (`None`: absent) satisfies the requirement. A malformed one matches nothing.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        match (self.operator, value) {
            (Operator::In, Some(v)) => self.values.iter().any(|w| w == v),
            (Operator::In, None) => false,
            (Operator::NotIn, Some(v)) => self.values.iter().all(|w| w != v),
            (Operator::NotIn | Operator::DoesNotExist, None) => true,
            (Operator::Exists, v) => v.is_some(),
            (Operator::DoesNotExist, Some(_)) => false,
            (_, None) => false,
            (op, Some(v)) => {
                let [bound] = self.values.as_slice() else { return false };
                let (Ok(v), Ok(bound)) = (v.parse::<i64>(), bound.parse::<i64>()) else { return false };
                match op {
                    Operator::Gt => v > bound,
                    Operator::Lt => v < bound,
                    Operator::Gte => v >= bound,
                    _ => v <= bound,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.operator {
            Operator::Gt => ">",
            Operator::Lt => "<",
            Operator::Gte => ">=",
            Operator::Lte => "<=",
            Operator::In if self.values.len() == 1 => "=",
            Operator::NotIn if self.values.len() == 1 => "!=",
            Operator::In | Operator::NotIn => {
                return write!(f, "{} {} [{}]", self.key, self.operator.as_str(), self.values.join(", "));
            }
            Operator::Exists | Operator::DoesNotExist => {
                return write!(f, "{} {}", self.key, self.operator.as_str());
            }
        };
        write!(f, "{} {sign} {}", self.key, self.values.first().map_or("", String::as_str))
    }
}
