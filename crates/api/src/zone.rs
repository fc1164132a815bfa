//! Zones that are declared bad by hand.

use std::fmt;

use jiff::Timestamp;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bounds, pause};

/// A zone that is declared bad, such as one that AWS reports as impaired.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedZone {
    /// Its name, such as `us-east-1a`.
    #[schemars(schema_with = "bounds::zone")]
    pub name: String,
    /// What holds for it.
    pub state: ZoneState,
    /// The end of that, such as `2026-12-31T18:00:00Z`. Without it the zone stays closed until the entry is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::instant")]
    pub until: Option<String>,
    /// Why, for those who find that nothing is launched there.
    #[schemars(schema_with = "bounds::zone_reason")]
    pub reason: String,
}

impl ClosedZone {
    /// The end; `None` if the zone is closed until its entry is removed. A time that can't be read, which the schema refuses,
    /// counts as none: nothing is launched in a zone of which that is unknown.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        pause::end_of(self.until.as_deref())
    }

    /// True if the zone is closed at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        pause::lasts(self.until.as_deref(), now)
    }
}

impl fmt::Display for ClosedZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.state {
            ZoneState::NoLaunches => "nothing is launched in",
            ZoneState::Evacuate => "nothing is launched in, and nodes are moved out of,",
        };
        write!(f, "{what} zone {} ", self.name)?;
        match self.end() {
            Some(end) => write!(f, "until {}", end.strftime("%Y-%m-%dT%H:%M:%SZ"))?,
            None => write!(f, "until it is taken out of spec.zones of the CroftConfig")?,
        }
        write!(f, ": {}", self.reason.trim())
    }
}

/// What holds for a zone that is declared bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ZoneState {
    /// No instance is launched there, and no pod is moved onto a node there.
    NoLaunches,
    /// The same, and the nodes there are replaced elsewhere, within the budgets of their pools.
    Evacuate,
}

impl ZoneState {
    /// Every state.
    pub const ALL: [Self; 2] = [Self::NoLaunches, Self::Evacuate];

    /// The name in manifests and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLaunches => "NoLaunches",
            Self::Evacuate => "Evacuate",
        }
    }
}

/// The zones among `zones` that are closed at `now`.
pub fn in_force(zones: &[ClosedZone], now: Timestamp) -> impl Iterator<Item = &ClosedZone> {
    zones.iter().filter(move |zone| zone.holds(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_closed_until_its_time_or_until_its_entry_is_removed() {
        let zone = |until: Option<&str>, state| ClosedZone {
            name: "us-east-1a".to_owned(),
            state,
            until: until.map(str::to_owned),
            reason: "incident 4711 ".to_owned(),
        };
        let zones = [
            zone(Some("2026-12-31T18:00:00Z"), ZoneState::NoLaunches),
            zone(None, ZoneState::Evacuate),
            zone(Some("soon"), ZoneState::NoLaunches),
        ];
        let closed = |now: &str| in_force(&zones, now.parse().unwrap()).count();
        assert_eq!((closed("2026-12-31T17:59:59Z"), closed("2026-12-31T18:00:00Z")), (3, 2));
        assert_eq!(
            zones[0].to_string(),
            "nothing is launched in zone us-east-1a until 2026-12-31T18:00:00Z: incident 4711"
        );
        assert_eq!(
            zones[1].to_string(),
            "nothing is launched in, and nodes are moved out of, zone us-east-1a until it is taken out of spec.zones of the \
             CroftConfig: incident 4711"
        );
    }
}
