//! Schemas of when a pool's nodes may be disrupted, and for what savings.

use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use super::{AT_MOST_TEN_YEARS, duration, rule, rule_of_keys, schema};
use crate::definitions::DEFECTS;

/// The time that a node has been empty.
pub(crate) fn consolidate_after(_: &mut SchemaGenerator) -> Schema {
    duration(true, &[AT_MOST_TEN_YEARS])
}

/// The time within which a registered node must be initialized. Drivers of devices are installed within minutes.
pub(crate) fn initialization_timeout(_: &mut SchemaGenerator) -> Schema {
    let least = "nodes need about a minute to become Ready: write 1m or more, or Never";
    duration(true, &[("duration(self) >= duration('1m')", least), AT_MOST_TEN_YEARS])
}

/// How long each defect of a node is tolerated.
pub(crate) fn repair_after(_: &mut SchemaGenerator) -> Schema {
    let least = "a kubelet that restarts and an instance that reboots need about a minute: write 1m or more, or Never";
    let names = DEFECTS.map(|name| format!("'{name}'")).join(", ");
    schema(json!({
        "type": "object",
        "maxProperties": DEFECTS.len(),
        "additionalProperties":
            duration(true, &[("duration(self) >= duration('1m')", least), AT_MOST_TEN_YEARS]),
        "x-kubernetes-validations": [rule_of_keys(
            &format!("k in [{names}]"),
            &format!("nodes aren't replaced for it: write {}", DEFECTS.join(", ")),
        )],
    }))
}

/// The time for which a heavier template must have launched without failure. A failed launch is tried again within a minute.
pub(crate) fn return_after(_: &mut SchemaGenerator) -> Schema {
    let least = "with less than a minute nodes could be replaced again and again: write 1m or more";
    duration(false, &[("duration(self) >= duration('1m')", least), AT_MOST_TEN_YEARS])
}

/// A time with its offset.
pub(crate) fn instant(_: &mut SchemaGenerator) -> Schema {
    let day = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
    let time = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]";
    let offset = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
    schema(json!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            format!("self.matches('^{day}T{time}{offset}$')"),
            "write a time with its offset, such as 2026-12-31T18:00:00Z, or leave the field out for one without an end",
        )],
    }))
}

/// The reason of a pause.
pub(crate) fn pause_reason(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 256,
        "x-kubernetes-validations": [rule(
            r"self.matches('[^[:space:]]')",
            "write why disruption is paused: others will wonder why nodes stay",
        )],
    }))
}

/// The name of a zone.
pub(crate) fn zone(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 63,
        "x-kubernetes-validations": [rule(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "write the name of one zone, such as us-east-1a, as the label topology.kubernetes.io/zone of its nodes has it",
        )],
    }))
}

/// The reason for which a zone is closed.
pub(crate) fn zone_reason(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 256,
        "x-kubernetes-validations": [rule(
            r"self.matches('[^[:space:]]')",
            "write why the zone is closed: others will wonder why nothing is launched there",
        )],
    }))
}

/// Dollars per hour.
pub(crate) fn dollars(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            "self.matches('^[0-9]{1,9}(\\\\.[0-9]{1,6})?$')",
            "write dollars per hour that aren't negative, such as 0.05",
        )],
    }))
}

/// A number of nodes, or a share.
pub(crate) fn share(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            "self.matches('^(100%|[0-9]{1,2}%|[0-9]{1,9})$')",
            "write a number of nodes such as 3, or a share from 0% to 100%",
        )],
    }))
}

/// A line of a crontab.
pub(crate) fn schedule(_: &mut SchemaGenerator) -> Schema {
    let list =
        |one: &str| format!("(\\\\*|{one}(-{one})?)(/[1-9][0-9]?)?(,(\\\\*|{one}(-{one})?)(/[1-9][0-9]?)?)*");
    let fields = [
        "[0-5]?[0-9]",
        "([01]?[0-9]|2[0-3])",
        "(0?[1-9]|[12][0-9]|3[01])",
        "(0?[1-9]|1[0-2]|[jJ][aA][nN]|[fF][eE][bB]|[mM][aA][rR]|[aA][pP][rR]|[mM][aA][yY]|[jJ][uU][nN]|[jJ][uU][lL]|[aA][uU][gG]|[sS][eE][pP]|[oO][cC][tT]|[nN][oO][vV]|[dD][eE][cC])",
        "([0-7]|[sS][uU][nN]|[mM][oO][nN]|[tT][uU][eE]|[wW][eE][dD]|[tT][hH][uU]|[fF][rR][iI]|[sS][aA][tT])",
    ];
    let fields = fields.map(list).join(" +");
    schema(json!({
        "type": "string",
        "maxLength": 200,
        "x-kubernetes-validations": [rule(
            format!("self.matches('^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|{fields})$')"),
            "write five fields as in crontab: minute (0-59), hour (0-23), day (1-31), month (1-12) and weekday (0-7 or mon-sun), such as 0 9 * * mon-fri; or @hourly, @daily, @weekly, @monthly, @yearly",
        )],
    }))
}

/// The time for which a budget or a schedule applies.
pub(crate) fn window(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [
            rule(
                "self.matches('^([0-9]{1,5}h([0-9]{1,7}m)?(0s)?|[0-9]{1,7}m(0s)?)$')",
                "write hours and minutes such as 8h, 1h30m or 45m",
            ),
            rule(
                "!self.matches('^([0-9]{1,5}h([0-9]{1,7}m)?(0s)?|[0-9]{1,7}m(0s)?)$') || duration(self) >= duration('1m')",
                "a window of no time changes nothing: write 1m or more",
            ),
        ],
    }))
}

/// The name of a time zone. Whether there is one of this name, `rules` checks.
pub(crate) fn time_zone(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string",
        "maxLength": 64,
        "x-kubernetes-validations": [rule(
            "self.matches('^(UTC|[A-Z][A-Za-z_]*(/[A-Za-z0-9_+-]+){1,2})$')",
            "write the name of a time zone in the IANA database, such as Europe/Berlin, or UTC",
        )],
    }))
}
