//! A pause of voluntary disruption, of the cluster or of one pool.

use jiff::Timestamp;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// A time in which no voluntary disruption starts: no node is removed since it is empty, underutilized, drifted or expired.
/// What began before ends. Repair and interruptions go on.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// The end of the pause, such as `2026-12-31T18:00:00Z`. Without it the pause lasts until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::instant")]
    pub until: Option<String>,
    /// Why, for those who find nodes that stay.
    #[schemars(schema_with = "bounds::pause_reason")]
    pub reason: String,
}

impl Pause {
    /// The end of the pause; `None` if it lasts until it is removed. A time that can't be read, which the schema refuses,
    /// counts as none: nodes stay.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        end_of(self.until.as_deref())
    }

    /// True if the pause is in force at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        lasts(self.until.as_deref(), now)
    }
}

/// The end of what a person declares until some time; `None` if it lasts until it is removed. A time that can't be read counts as none:
/// what was asked for goes on.
pub(crate) fn end_of(until: Option<&str>) -> Option<Timestamp> {
    until?.parse().ok()
}

/// True if what a person declares until some time lasts at `now`.
pub(crate) fn lasts(until: Option<&str>, now: Timestamp) -> bool {
    end_of(until).is_none_or(|end| now < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_at_its_time_and_one_without_a_time_does_not() {
        let now: Timestamp = "2026-12-31T18:00:00Z".parse().unwrap();
        for (until, holds) in [
            (None, true),
            (Some("2026-12-31T18:00:01Z"), true),
            (Some("2026-12-31T18:00:00Z"), false),
            (Some("2026-12-31T19:00:00+02:00"), false),
            (Some("tomorrow"), true),
        ] {
            let pause = Pause { until: until.map(str::to_owned), reason: "r".to_owned() };
            assert_eq!(pause.holds(now), holds, "{until:?}");
        }
    }
}
