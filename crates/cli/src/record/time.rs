//! Moments, always in UTC, as Kubernetes writes them.

use croft_manifest::InputError;
use croft_record::ledger::book::HOUR_MILLIS;
use jiff::{SignedDuration, Timestamp, civil, tz::TimeZone};

use crate::failure::Failure;

const DAY_MILLIS: i64 = 24 * HOUR_MILLIS;

/// A moment in milliseconds since 1970: `2026-11-25T02:14:00Z`, `2026-11-25T02:14`, the last `02:14` or `02:14:30` before `now`,
/// or how long before `now`, such as `90m`.
///
/// # Errors
/// If `text` is none of these.
pub(crate) fn parse_moment(text: &str, now: Timestamp) -> Result<i64, Failure> {
    let wrong = || {
        InputError::Other(format!(
            "{text} is no time: write 02:14 for the last such time (UTC), 2026-11-25T02:14:00Z, or how long ago, such as 90m"
        ))
    };
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    if let Ok(at) = text.parse::<civil::DateTime>() {
        return Ok(at.to_zoned(TimeZone::UTC).map_err(|_| wrong())?.timestamp().as_millisecond());
    }
    if let Ok(of_day) = text.parse::<civil::Time>() {
        let today = now.to_zoned(TimeZone::UTC).date().to_datetime(of_day);
        let at = today.to_zoned(TimeZone::UTC).map_err(|_| wrong())?.timestamp();
        let day = SignedDuration::from_hours(24);
        let at = if at > now { at.checked_sub(day).map_err(|_| wrong())? } else { at };
        return Ok(at.as_millisecond());
    }
    let ago = croft_api::duration::parse(text).ok().flatten().ok_or_else(wrong)?;
    let ago = SignedDuration::try_from(ago).map_err(|_| wrong())?;
    Ok(now.checked_sub(ago).map_err(|_| wrong())?.as_millisecond())
}

/// From one time to another, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Period {
    /// The period from `from` to `to`, or to `now`; both as [`parse_moment`] reads them.
    ///
    /// # Errors
    /// If one is no moment, or it ends before it begins.
    pub(crate) fn parse(from: &str, to: Option<&str>, now: Timestamp) -> Result<Self, Failure> {
        let from = parse_moment(from, now)?;
        let to = to.map_or(Ok(now.as_millisecond()), |to| parse_moment(to, now))?;
        if from > to {
            let message = format!("--from {} is after --to {}: exchange them", text(from), text(to));
            return Err(InputError::Other(message).into());
        }
        Ok(Self { from, to })
    }

    /// The period of one moment.
    pub(crate) const fn at(at: i64) -> Self {
        Self { from: at, to: at }
    }

    /// The last day.
    pub(crate) fn last_day(now: Timestamp) -> Self {
        let to = now.as_millisecond();
        Self { from: to.saturating_sub(DAY_MILLIS), to }
    }

    /// With a day before and after.
    #[cfg(feature = "aws")]
    pub(super) const fn wider(self) -> Self {
        let Self { from, to } = self;
        Self { from: from.saturating_sub(DAY_MILLIS), to: to.saturating_add(DAY_MILLIS) }
    }
}

/// A moment to the second: `2026-11-25 02:14:00Z`.
pub(crate) fn text(millis: i64) -> String {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default();
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_utc() {
        let now: Timestamp = "2026-11-25T03:00:00Z".parse().unwrap();
        let read = |moment: &str| parse_moment(moment, now).map(text).map_err(|error| error.to_string());
        assert_eq!(read("02:14").unwrap(), "2026-11-25 02:14:00Z");
        assert_eq!(read("03:00:01").unwrap(), "2026-11-24 03:00:01Z", "the last such time");
        assert_eq!(read("2026-11-20T02:14").unwrap(), "2026-11-20 02:14:00Z");
        assert_eq!(read("2026-11-20T02:14:09+01:00").unwrap(), "2026-11-20 01:14:09Z");
        assert_eq!(read("90m").unwrap(), "2026-11-25 01:30:00Z");
        for wrong in ["soon", "25:00", "", "Never", "-5m"] {
            assert!(read(wrong).unwrap_err().contains("write 02:14"), "{wrong}");
        }
    }
}
