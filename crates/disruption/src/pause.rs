//! The pause of voluntary disruption that keeps a pool's nodes.

use std::fmt;

use croft_api::pause::Pause;
use jiff::Timestamp;

use crate::blockers::DisruptionBlocker;

/// A pause in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseInForce<'a> {
    /// The pause.
    pub pause: &'a Pause,
    /// True if it is of all pools.
    pub is_of_cluster: bool,
}

impl PauseInForce<'_> {
    /// The end; `None` if it lasts until it is removed.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        self.pause.end()
    }

    /// The blocker of the disruption of the pool's nodes.
    #[must_use]
    pub fn blocker(&self) -> DisruptionBlocker {
        DisruptionBlocker::Paused(self.to_string())
    }
}

impl fmt::Display for PauseInForce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_of_cluster { "in all pools" } else { "in its pool" };
        write!(f, "voluntary disruption {whose} is paused ")?;
        match self.end() {
            Some(end) => write!(f, "until {}", end.strftime("%Y-%m-%dT%H:%M:%SZ"))?,
            None => write!(f, "until it is resumed")?,
        }
        if let (Some(until), None) = (&self.pause.until, self.end()) {
            write!(f, ", since {until:?} is no time")?;
        }
        write!(f, ": {}", self.pause.reason.trim())
    }
}

/// The pause that keeps a pool's nodes at `now`: the cluster's or the pool's, whichever lasts longer.
#[must_use]
pub fn in_force<'a>(
    of_cluster: Option<&'a Pause>,
    of_pool: Option<&'a Pause>,
    now: Timestamp,
) -> Option<PauseInForce<'a>> {
    let in_force = |pause: Option<&'a Pause>, is_of_cluster| {
        let pause = pause.filter(|pause| pause.holds(now))?;
        Some(PauseInForce { pause, is_of_cluster })
    };
    let both = [in_force(of_pool, false), in_force(of_cluster, true)];
    both.into_iter().flatten().max_by_key(|one| one.end().unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(until: Option<&str>, reason: &str) -> Pause {
        Pause { until: until.map(str::to_owned), reason: reason.to_owned() }
    }

    #[test]
    fn the_pause_that_lasts_longer_is_named() {
        let now: Timestamp = "2026-12-31T12:00:00Z".parse().unwrap();
        let over = pause(Some("2026-12-31T11:00:00Z"), "over");
        let short = pause(Some("2026-12-31T13:00:00Z"), "a release");
        let open = pause(None, "an incident");
        let said = |cluster: Option<&Pause>, pool: Option<&Pause>| {
            in_force(cluster, pool, now).map(|pause| pause.to_string())
        };
        assert_eq!(said(None, None), None);
        assert_eq!(said(Some(&over), Some(&over)), None);
        assert_eq!(
            said(Some(&over), Some(&short)).unwrap(),
            "voluntary disruption in its pool is paused until 2026-12-31T13:00:00Z: a release"
        );
        assert_eq!(
            said(Some(&open), Some(&short)).unwrap(),
            "voluntary disruption in all pools is paused until it is resumed: an incident"
        );
        let no_day = pause(Some("2026-02-30T12:00:00Z"), "a release");
        assert_eq!(
            said(None, Some(&no_day)).unwrap(),
            "voluntary disruption in its pool is paused until it is resumed, since \"2026-02-30T12:00:00Z\" is no time: \
             a release"
        );
    }
}
