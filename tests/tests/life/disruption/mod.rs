//! Nodes that Croft ends itself: drift, expiry and consolidation, within the budgets.

mod chaos;
mod consolidation;
mod drift;
mod evictions;
mod evidence;
mod neighbours;
