//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint as ApiTaint, Toleration as ApiToleration};

use crate::{
    model::well_known::EPHEMERAL_TAINTS,
    state::interner::{Sym, Symbols},
};

/// The effect of a taint on pods that don't tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Effect {
    NoSchedule,
    NoExecute,
    PreferNoSchedule,
}

impl Effect {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            _ => return None,
        })
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
            Self::PreferNoSchedule => "PreferNoSchedule",
        }
    }
}

/// A taint of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Taint {
    pub(crate) key: Sym,
    pub(crate) value: Sym,
    pub(crate) effect: Effect,
}

impl Taint {
    pub(crate) fn from_api(symbols: &mut Symbols, taint: &ApiTaint) -> Result<Self, String> {
        let Some(effect) = Effect::parse(&taint.effect) else {
            return Err(format!(
                "unknown effect {:?} of taint {}: write NoSchedule, NoExecute or PreferNoSchedule",
                taint.effect, taint.key
            ));
        };
        let value = symbols.sym(taint.value.as_deref().unwrap_or(""));
        Ok(Self { key: symbols.sym(&taint.key), value, effect })
    }

    /// True if it keeps pods off.
    pub(crate) fn is_hard(&self) -> bool {
        self.effect != Effect::PreferNoSchedule
    }

    /// True if it goes by itself while the node starts.
    pub(crate) fn is_ephemeral(&self, symbols: &Symbols) -> bool {
        EPHEMERAL_TAINTS.contains(&symbols.text(self.key))
    }

    pub(crate) fn show(&self, symbols: &Symbols) -> String {
        let (key, value) = (symbols.text(self.key), symbols.text(self.value));
        let equals = if value.is_empty() { "" } else { "=" };
        format!("{key}{equals}{value}:{}", self.effect.as_str())
    }
}

/// A toleration of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Toleration {
    /// `None`: every key.
    key: Option<Sym>,
    /// `None`: every value.
    value: Option<Sym>,
    /// `None`: every effect.
    effect: Option<Effect>,
}

impl Toleration {
    /// `None` for one that compares numbers (`Lt`, `Gt`): kube-scheduler evaluates these behind a feature gate, and a plan that
    /// counts on it would launch nodes which the pod doesn't enter where the gate is off.
    pub(crate) fn from_api(symbols: &mut Symbols, t: &ApiToleration) -> Result<Option<Self>, String> {
        let key = t.key.as_deref().filter(|k| !k.is_empty());
        let exists = match t.operator.as_deref().unwrap_or("Equal") {
            "Exists" => true,
            "Equal" | "" => false,
            "Lt" | "Gt" => return Ok(None),
            other => return Err(format!("unknown operator {other:?}: write Equal or Exists")),
        };
        if key.is_none() && !exists {
            return Err("a toleration without a key needs operator Exists".to_owned());
        }
        let effect = match t.effect.as_deref().filter(|e| !e.is_empty()) {
            Some(text) => Some(Effect::parse(text).ok_or_else(|| {
                format!("unknown effect {text:?}: write NoSchedule, NoExecute or PreferNoSchedule")
            })?),
            None => None,
        };
        Ok(Some(Self {
            key: key.map(|k| symbols.sym(k)),
            value: (!exists).then(|| symbols.sym(t.value.as_deref().unwrap_or(""))),
            effect,
        }))
    }

    /// The strings that it names.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = Sym> {
        self.key.into_iter().chain(self.value)
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.key.is_none_or(|k| k == taint.key)
            && self.value.is_none_or(|v| v == taint.value)
            && self.effect.is_none_or(|e| e == taint.effect)
    }
}

/// The first taint that keeps a pod with `tolerations` off.
pub(crate) fn untolerated<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.is_hard() && !tolerations.iter().any(|t| t.tolerates(taint)))
}

/// True if some PreferNoSchedule taint isn't tolerated.
pub(crate) fn is_discouraged(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    taints.iter().any(|taint| !taint.is_hard() && !tolerations.iter().any(|t| t.tolerates(taint)))
}
