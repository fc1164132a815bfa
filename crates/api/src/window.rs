//! Times that repeat: each begins with a line of a crontab, in a time zone, and lasts for some time. Used by disruption budgets
//! and by the schedules of pools.

use std::time::Duration;

use croner::{
    Cron,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use crate::duration;

/// Why a window can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// The schedule is no crontab line.
    #[error("failed to read schedule {0:?}: {1}")]
    Schedule(String, String),
    /// The duration can't be parsed.
    #[error("failed to read a window's duration: {0}")]
    Duration(#[from] duration::DurationError),
    /// There is no such time zone.
    #[error(
        "failed to find time zone {0:?}: write a name of the IANA database such as Europe/Berlin, or UTC"
    )]
    TimeZone(String),
}

/// A window as its object declares it.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// When it begins: a line of a crontab.
    pub schedule: &'a str,
    /// How long it lasts.
    pub duration: &'a str,
    /// The IANA time zone of `schedule`; UTC if none is named.
    pub time_zone: Option<&'a str>,
}

/// Whether a window is open, and for how long that stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// True from each scheduled time on for the duration.
    pub is_open: bool,
    /// No change comes before this time; `None` if none comes at all.
    pub until: Option<Timestamp>,
}

impl Window<'_> {
    /// The state at `now`.
    ///
    /// # Errors
    /// If the schedule, the duration or the time zone can't be read.
    pub fn at(&self, now: Timestamp) -> Result<WindowState, WindowError> {
        let cron = parse(self.schedule)?;
        let zone = time_zone(self.time_zone)?;
        let Some(lasts) = duration::parse(self.duration)? else {
            return Ok(WindowState { is_open: true, until: None });
        };
        let now_there = now.to_zoned(zone);
        if let Some(begun) = self.found(cron.find_previous_occurrence(&now_there, true))? {
            let ends = end(begun.timestamp(), lasts);
            if now < ends {
                return Ok(WindowState { is_open: true, until: Some(ends) });
            }
        }
        let begins = self.found(cron.find_next_occurrence(&now_there, false))?;
        Ok(WindowState { is_open: false, until: begins.map(|begins| begins.timestamp()) })
    }

    /// A scheduled time, `None` if there is no such time: of 30 February, for example.
    fn found(&self, found: Result<Zoned, CronError>) -> Result<Option<Zoned>, WindowError> {
        match found {
            Ok(time) => Ok(Some(time)),
            Err(CronError::TimeSearchLimitExceeded) => Ok(None),
            Err(error) => Err(WindowError::Schedule(self.schedule.to_owned(), error.to_string())),
        }
    }
}

fn end(begun: Timestamp, lasts: Duration) -> Timestamp {
    let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
    begun.checked_add(lasts).unwrap_or(Timestamp::MAX)
}

fn parse(schedule: &str) -> Result<Cron, WindowError> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(schedule).map_err(|error| WindowError::Schedule(schedule.to_owned(), error.to_string()))
}

fn time_zone(name: Option<&str>) -> Result<TimeZone, WindowError> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    TimeZone::get(name).map_err(|_| WindowError::TimeZone(name.to_owned()))
}

/// Checks a schedule.
///
/// # Errors
/// If it isn't a crontab line.
pub(crate) fn check_schedule(schedule: &str) -> Result<(), WindowError> {
    parse(schedule).map(drop)
}

/// Checks the name of a time zone.
///
/// # Errors
/// If there is no such time zone.
pub(crate) fn check_time_zone(name: &str) -> Result<(), WindowError> {
    time_zone(Some(name)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(schedule: &str, duration: &str, time_zone: Option<&str>, now: &str) -> WindowState {
        Window { schedule, duration, time_zone }.at(now.parse().unwrap()).unwrap()
    }

    #[test]
    fn window_begins_with_its_schedule_and_ends_with_its_duration() {
        // 2026-11-20 is a Friday.
        for (schedule, lasts, now, expected) in [
            ("0 9 * * mon-fri", "8h", "2026-11-20T08:59:59Z", false),
            ("0 9 * * mon-fri", "8h", "2026-11-20T09:00:00Z", true),
            ("0 9 * * mon-fri", "8h", "2026-11-20T16:59:59Z", true),
            ("0 9 * * mon-fri", "8h", "2026-11-20T17:00:00Z", false),
            ("0 9 * * mon-fri", "8h", "2026-11-21T10:00:00Z", false),
            // Over midnight, and longer than the time between two starts.
            ("0 22 * * *", "4h", "2026-11-21T01:30:00Z", true),
            ("0 22 * * *", "4h", "2026-11-21T02:00:00Z", false),
            ("0 0 * * *", "48h", "2026-11-21T13:00:00Z", true),
            ("@hourly", "10m", "2026-11-21T13:09:59Z", true),
            ("@hourly", "10m", "2026-11-21T13:10:00Z", false),
            ("0 0 29 2 *", "24h", "2026-11-21T13:00:00Z", false),
            ("0 0 30 2 *", "24h", "2026-11-21T13:00:00Z", false),
        ] {
            assert_eq!(state(schedule, lasts, None, now).is_open, expected, "{schedule} {lasts} {now}");
        }
    }

    #[test]
    fn schedule_is_of_its_time_zone_in_summer_and_in_winter() {
        let berlin = Some("Europe/Berlin");
        for (now, expected, until) in [
            ("2026-07-01T06:59:59Z", false, "2026-07-01T07:00:00Z"),
            ("2026-07-01T07:00:00Z", true, "2026-07-01T15:00:00Z"),
            ("2026-12-01T07:30:00Z", false, "2026-12-01T08:00:00Z"),
            ("2026-12-01T08:00:00Z", true, "2026-12-01T16:00:00Z"),
        ] {
            let expected = WindowState { is_open: expected, until: Some(until.parse().unwrap()) };
            assert_eq!(state("0 9 * * *", "8h", berlin, now), expected, "{now}");
        }
        // The night in which clocks go forward has no 02:30, and the one in which they go back has two.
        let spring = state("30 2 * * *", "1h", berlin, "2026-03-29T00:59:00Z");
        assert!(spring.until.is_some_and(|until| until > "2026-03-29T00:59:00Z".parse().unwrap()));
        assert!(state("30 2 * * *", "1h", berlin, "2026-10-25T00:45:00Z").is_open);
    }

    #[test]
    fn the_next_change_is_after_now_or_never_comes() {
        for (schedule, lasts, now) in [
            ("0 9 * * *", "8h", "2026-11-20T09:00:00Z"),
            ("0 9 * * *", "8h", "2026-11-20T17:00:00Z"),
            ("@hourly", "1h", "2026-11-20T17:00:00Z"),
        ] {
            let until = state(schedule, lasts, None, now).until.unwrap();
            assert!(until > now.parse().unwrap(), "{schedule} {now} {until}");
        }
        assert_eq!(state("0 0 30 2 *", "1h", None, "2026-11-20T17:00:00Z").until, None);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for (schedule, duration, time_zone, part) in [
            ("0 9 * *", "1h", None, "schedule"),
            ("0 9 * * * *", "1h", None, "schedule"),
            ("61 9 * * *", "1h", None, "schedule"),
            ("0 9 * * *", "soon", None, "duration"),
            ("0 9 * * *", "1h", Some("Europe/Nowhere"), "IANA"),
        ] {
            let error =
                Window { schedule, duration, time_zone }.at(Timestamp::UNIX_EPOCH).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
