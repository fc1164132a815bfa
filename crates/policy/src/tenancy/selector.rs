//! Label selectors, with the semantics of the API server.

/// A label selector: every requirement must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The test of its value.
    pub test: Test,
}

/// A test of a label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these, or the label is absent.
    NotIn(Vec<String>),
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Test {
    /// Parses an operator and its values; `None` if there is no such operator.
    #[must_use]
    pub fn parse(operator: &str, values: Vec<String>) -> Option<Self> {
        match operator {
            "In" => Some(Self::In(values)),
            "NotIn" => Some(Self::NotIn(values)),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            _ => None,
        }
    }

    /// True if a label with this value passes; `None` is an absent label.
    #[must_use]
    pub fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}

impl Selector {
    /// A selector with these requirements. Without any it selects everything.
    #[must_use]
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Self { requirements }
    }

    /// The requirements.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// True if the labels that `get` looks up match.
    #[must_use]
    pub fn matches<'l>(&self, get: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements.iter().all(|r| r.test.holds(get(&r.key)))
    }

    /// A key and values of which every matching label set has one, if a requirement demands it. Look-ups start from it.
    #[must_use]
    pub fn anchor(&self) -> Option<(&str, &[String])> {
        self.requirements.iter().find_map(|r| match &r.test {
            Test::In(values) => Some((r.key.as_str(), values.as_slice())),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_kubernetes_does() {
        let values = || vec!["x".to_owned(), "y".to_owned()];
        let cases = [
            ("In", Some("x"), true),
            ("In", Some("z"), false),
            ("In", None, false),
            ("NotIn", Some("x"), false),
            ("NotIn", Some("z"), true),
            ("NotIn", None, true),
            ("Exists", Some("z"), true),
            ("Exists", None, false),
            ("DoesNotExist", Some("z"), false),
            ("DoesNotExist", None, true),
        ];
        for (operator, label, expected) in cases {
            let test = Test::parse(operator, values()).unwrap();
            let selector = Selector::new(vec![Requirement { key: "k".to_owned(), test }]);
            assert_eq!(selector.matches(|_| label), expected, "{operator} {label:?}");
        }
        assert!(Selector::default().matches(|_| None));
        assert_eq!(Test::parse("Gt", values()), None);
    }
}
