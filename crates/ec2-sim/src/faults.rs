//! Scripted faults: which calls are refused, delayed or cut off.

use serde::{Deserialize, Serialize};

use crate::params::wildcard;

/// One rule. The first rule that matches a call and isn't used up applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// The action, `*` and `?` as wildcards.
    #[serde(default = "any")]
    pub action: String,
    /// Refuse with this code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Break the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// Delay of the answer.
    #[serde(default)]
    pub latency_ms: u64,
    /// Number of calls it applies to; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// Number of matching calls that pass first.
    #[serde(default)]
    pub after: u64,
    /// Share of matching calls that it applies to, in thousandths, drawn from the simulator's seed.
    #[serde(default = "always")]
    pub permille: u32,
}

fn any() -> String {
    "*".to_owned()
}

fn always() -> u32 {
    1000
}

/// When the connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The call has no effect.
    Before,
    /// The call takes effect, but the caller doesn't learn of it.
    After,
}

/// The effect of a rule on a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// Refuse with this code.
    pub error: Option<String>,
    /// Break the connection.
    pub cut: Option<Cut>,
    /// Delay of the answer.
    pub latency_ms: u64,
}

/// The present rules.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
}

impl Faults {
    /// Replaces all rules.
    pub fn set(&mut self, rules: Vec<Rule>) {
        self.rules = rules;
    }

    /// Adds a rule behind the others.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// The effect on the next call of `action`; `draw` returns a number below 1000.
    pub fn strike(&mut self, action: &str, mut draw: impl FnMut() -> u32) -> Effect {
        let mut effect = Effect::default();
        for rule in self.rules.iter_mut().filter(|rule| wildcard(&rule.action, action)) {
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if rule.times == Some(0) || (rule.permille < 1000 && draw() >= rule.permille) {
                continue;
            }
            if let Some(times) = &mut rule.times {
                *times -= 1;
            }
            effect.latency_ms += rule.latency_ms;
            if rule.error.is_some() || rule.cut.is_some() {
                effect.error.clone_from(&rule.error);
                effect.cut = rule.cut;
                break;
            }
        }
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> Rule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn rules_skip_apply_and_run_out() {
        let mut faults = Faults::default();
        faults.set(vec![
            rule(r#"{"latencyMs": 5}"#),
            rule(r#"{"action": "Create*", "error": "RequestLimitExceeded", "after": 1, "times": 2}"#),
        ]);
        let codes: Vec<_> = (0..4).map(|_| faults.strike("CreateFleet", || 0).error).collect();
        let hit = Some("RequestLimitExceeded".to_owned());
        assert_eq!(codes, [None, hit.clone(), hit, None]);
        assert_eq!(faults.strike("DescribeInstances", || 0), Effect { latency_ms: 5, ..Effect::default() });
    }

    #[test]
    fn rule_with_a_share_uses_the_callers_draw() {
        let mut faults = Faults::default();
        faults.set(vec![rule(r#"{"cut": "after", "permille": 300}"#)]);
        assert_eq!(faults.strike("X", || 299).cut, Some(Cut::After));
        assert_eq!(faults.strike("X", || 300).cut, None);
    }
}
