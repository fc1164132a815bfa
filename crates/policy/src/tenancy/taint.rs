//! Taints, effects and tolerations, with kube-scheduler's semantics (`ToleratesTaint` in
//! k8s.io/api/core/v1/toleration.go).

use std::fmt;

/// The effect of a taint on pods that don't tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The pods are not scheduled there.
    NoSchedule,
    /// The pods are scheduled there only if no other node fits.
    PreferNoSchedule,
    /// The pods are not scheduled there, and are evicted if they run there.
    NoExecute,
}

impl Effect {
    /// Every effect, in a fixed order.
    pub const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// Parses the name of an effect.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }

    /// The name of the effect.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Effects(u8);

impl Effects {
    /// No effect.
    pub const NONE: Self = Self(0);
    /// Every effect.
    pub const ALL: Self = Self(0b111);
    /// The effects that keep pods off: all but PreferNoSchedule.
    pub const HARD: Self = Self(0b101);

    const fn bit(effect: Effect) -> u8 {
        match effect {
            Effect::NoSchedule => 0b001,
            Effect::PreferNoSchedule => 0b010,
            Effect::NoExecute => 0b100,
        }
    }

    /// The effects that a toleration with this `effect` field matches: all if the field is empty, none if it is
    /// unknown.
    #[must_use]
    pub fn of_toleration(effect: &str) -> Self {
        if effect.is_empty() {
            Self::ALL
        } else {
            Effect::parse(effect).map_or(Self::NONE, |e| Self(Self::bit(e)))
        }
    }

    /// True if `effect` is in the set.
    #[must_use]
    pub const fn contains(self, effect: Effect) -> bool {
        self.0 & Self::bit(effect) != 0
    }

    /// True if all of `other` are in the set.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The intersection of the two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union of the two sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The effects in the set, in the order of [`Effect::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Effect> {
        Effect::ALL.into_iter().filter(move |e| self.contains(*e))
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(iter: I) -> Self {
        Self(iter.into_iter().fold(0, |set, e| set | Self::bit(e)))
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// Its effect.
    pub effect: Effect,
}

/// How a toleration compares its value with a taint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The values are equal.
    Equal,
    /// Any value matches.
    Exists,
    /// The taint's value is an integer less than the toleration's (behind a feature gate).
    Lt,
    /// The taint's value is an integer greater than the toleration's (behind a feature gate).
    Gt,
}

impl Operator {
    /// Parses the name of an operator; empty means Equal.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Equal" => Some(Self::Equal),
            "Exists" => Some(Self::Exists),
            "Lt" => Some(Self::Lt),
            "Gt" => Some(Self::Gt),
            _ => None,
        }
    }
}

/// A parsed toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// The taint's key; empty matches every key.
    pub key: &'a str,
    /// The comparison of the values.
    pub operator: Operator,
    /// The value to compare with.
    pub value: &'a str,
    /// The effects that it matches.
    pub effects: Effects,
}

impl<'a> Toleration<'a> {
    /// Parses the fields of a toleration; `None` if the operator is unknown.
    #[must_use]
    pub fn parse(key: &'a str, operator: &str, value: &'a str, effect: &str) -> Option<Self> {
        Some(Self {
            key,
            operator: Operator::parse(operator)?,
            value,
            effects: Effects::of_toleration(effect),
        })
    }

    /// True if a taint of `key`, `value` and `effect` is tolerated. The feature-gated comparisons count as enabled.
    #[must_use]
    pub fn tolerates(&self, key: &str, value: &str, effect: Effect) -> bool {
        self.effects.contains(effect) && self.matches(key, value)
    }

    /// True if the taint is tolerated while the feature gate of `Lt` and `Gt` is off: then they tolerate nothing.
    #[must_use]
    pub fn tolerates_by_default(&self, key: &str, value: &str, effect: Effect) -> bool {
        matches!(self.operator, Operator::Equal | Operator::Exists) && self.tolerates(key, value, effect)
    }

    /// True if key and value match, whatever the effect. The feature-gated comparisons count as enabled.
    #[must_use]
    pub fn matches(&self, key: &str, value: &str) -> bool {
        (self.key.is_empty() || self.key == key)
            && match self.operator {
                Operator::Equal => self.value == value,
                Operator::Exists => true,
                Operator::Lt => compare(value, self.value, |taint, own| taint < own),
                Operator::Gt => compare(value, self.value, |taint, own| taint > own),
            }
    }
}

fn compare(taint: &str, own: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
    match (decimal(taint), decimal(own)) {
        (Some(taint), Some(own)) => holds(taint, own),
        _ => false,
    }
}

/// Parses a decimal integer without plus sign or leading zeros, as Kubernetes' IsDecimalInteger accepts it.
pub(crate) fn decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical =
        digits == "0" && !text.starts_with('-') || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerates_as_the_scheduler_does() {
        let cases = [
            ("", "Exists", "", "", true),
            ("", "Exists", "", "NoExecute", false),
            ("k", "Exists", "", "", true),
            ("k", "Exists", "", "NoSchedule", true),
            ("k", "", "5", "", true),
            ("k", "Equal", "6", "", false),
            ("other", "Exists", "", "", false),
            ("k", "Equal", "5", "Bogus", false),
            ("k", "Gt", "4", "", true),
            ("k", "Gt", "5", "", false),
            ("k", "Lt", "6", "NoSchedule", true),
            ("k", "Lt", "06", "NoSchedule", false),
        ];
        for (key, operator, value, effect, expected) in cases {
            let toleration = Toleration::parse(key, operator, value, effect).unwrap();
            assert_eq!(
                toleration.tolerates("k", "5", Effect::NoSchedule),
                expected,
                "{key} {operator} {value} {effect}"
            );
        }
        assert_eq!(Toleration::parse("k", "exists", "", ""), None);
    }
}
