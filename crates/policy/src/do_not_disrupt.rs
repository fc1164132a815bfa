//! The annotations by which a pod forbids its voluntary disruption, and what their values mean.

use std::time::Duration;

use crate::duration;

/// The annotation of pods, nodes, claims and pools.
pub const DO_NOT_DISRUPT: &str = "croft.dev/do-not-disrupt";
/// Karpenter's name for the same, which users' manifests have already.
pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Cluster Autoscaler's annotation of pods: `false` forbids the disruption.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// How long a pod forbids its disruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoNotDisrupt {
    /// Not at all.
    #[default]
    Never,
    /// For a time from its start.
    For(Duration),
    /// As long as it is there, though the value can't be read: nodes stay rather than go by mistake.
    Unreadable,
    /// As long as it is there.
    Always,
}

impl DoNotDisrupt {
    /// Reads the value of [`DO_NOT_DISRUPT`]: `true`, `false`, or a duration such as `4h`.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        match value {
            "true" => Self::Always,
            "false" => Self::Never,
            other => duration::parse(other).ok().flatten().map_or(Self::Unreadable, Self::For),
        }
    }

    /// Reads one annotation of a pod; [`Self::Never`] for every other.
    #[must_use]
    pub fn of_annotation(key: &str, value: &str) -> Self {
        match key {
            DO_NOT_DISRUPT | KARPENTER_DO_NOT_DISRUPT => Self::parse(value),
            SAFE_TO_EVICT if value == "false" => Self::Always,
            _ => Self::Never,
        }
    }
}

/// What to say about a value that can't be read.
#[must_use]
pub fn unreadable(key: &str, value: &str) -> Option<String> {
    (DoNotDisrupt::of_annotation(key, value) == DoNotDisrupt::Unreadable).then(|| {
        format!("annotation {key}: {value:?} counts as \"true\"; write \"true\", \"false\", or how long from the pod's start, such as \"4h\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_yes_no_or_a_time_and_others_count_as_yes() {
        let hours = |n: u64| DoNotDisrupt::For(Duration::from_secs(n * 3_600));
        for (value, expected) in [
            ("true", DoNotDisrupt::Always),
            ("false", DoNotDisrupt::Never),
            ("4h", hours(4)),
            ("3h60m", hours(4)),
            ("True", DoNotDisrupt::Unreadable),
            ("", DoNotDisrupt::Unreadable),
            ("Never", DoNotDisrupt::Unreadable),
            ("1d", DoNotDisrupt::Unreadable),
            ("-1h", DoNotDisrupt::Unreadable),
        ] {
            for key in [DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT] {
                assert_eq!(DoNotDisrupt::of_annotation(key, value), expected, "{key}={value}");
                assert_eq!(unreadable(key, value).is_some(), expected == DoNotDisrupt::Unreadable);
            }
        }
        assert_eq!(DoNotDisrupt::of_annotation(SAFE_TO_EVICT, "false"), DoNotDisrupt::Always);
        for value in ["true", "4h", ""] {
            assert_eq!(DoNotDisrupt::of_annotation(SAFE_TO_EVICT, value), DoNotDisrupt::Never);
            assert_eq!(unreadable(SAFE_TO_EVICT, value), None);
        }
    }
}
