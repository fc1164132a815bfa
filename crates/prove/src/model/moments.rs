//! Requests during which something is written: each look of a check falls before the write or after it.
//!
//! A pod may be stored as at either moment. What is stored as at neither must not open a node that neither opens: two checks,
//! of which each leaves something to the other, would let a pod pass between them.

use std::collections::{HashSet, VecDeque};

use serde_json::Value;
use stateright::Model as _;

use super::{Search, State, phases};
use crate::{
    admission::{Looks, admit},
    events::Event,
    nodes::Node,
    pods,
    policies::Policies,
    scheduler,
};

/// A pod that is stored as at neither moment, and may be bound where it couldn't be at either.
#[derive(Debug)]
pub struct WayBetween {
    /// The write.
    pub write: String,
    /// The pod as it is sent.
    pub sent: Value,
    /// The pod as it is stored.
    pub stored: Value,
    /// The node that it opens.
    pub node: String,
}

/// The requests that were tried between two moments.
#[derive(Debug, Default)]
pub struct Between {
    /// The writes that admission can see.
    pub writes: usize,
    /// The requests.
    pub requests: usize,
    /// The ways in.
    pub ways: Vec<WayBetween>,
}

/// An event that changes what admission reads.
struct Write {
    before: State,
    event: Event,
    after: State,
}

impl Search {
    /// Creates every pod during every write, and between every two looks of its checks.
    #[must_use]
    pub fn between(&self) -> Between {
        let nodes = phases(&self.scope, &self.policies);
        let orders = [self.policies.clone(), self.policies.clone().reversed()];
        let mut between = Between::default();
        let created: Vec<u32> =
            self.created.iter().copied().filter(|pod| !pods::names_node(&self.pods.get(*pod))).collect();
        for write in self.writes() {
            between.writes += 1;
            for pod in &created {
                self.create_during(&write, *pod, &orders, &nodes, &mut between);
            }
        }
        between
    }

    /// The writes that change what admission reads, in every order after every edit, each once.
    fn writes(&self) -> Vec<Write> {
        let mut reached: HashSet<State> = self.init_states().into_iter().collect();
        let mut next: VecDeque<State> = reached.iter().copied().collect();
        let mut seen = HashSet::new();
        let mut writes = Vec::new();
        while let Some(before) = next.pop_front() {
            let mut events = Vec::new();
            self.actions(&before, &mut events);
            for event in events.into_iter().filter(is_write) {
                let Some(after) = self.next_state(&before, event) else { continue };
                let views = (self.view(before.world), self.view(after.world));
                if views.0 != views.1 && seen.insert(views) {
                    writes.push(Write { before, event, after });
                }
                if reached.insert(after) {
                    next.push_back(after);
                }
            }
        }
        writes
    }

    fn create_during(
        &self,
        write: &Write,
        pod: u32,
        orders: &[Policies],
        nodes: &[Node],
        between: &mut Between,
    ) {
        let Write { before, event, after } = write;
        let alone = [self.admit(before, None, pod), self.admit(after, None, pod)];
        if alone[0].is_some() && alone[0] == alone[1] {
            // Whatever each check sees, it does the same.
            return;
        }
        let opens = |stored: u32, node: &Node| scheduler::may_bind(&ungated(&self.pods.get(stored)), node);
        let [earlier, later] = [before, after].map(|state| self.served_at(state.world));
        let sent = pods::pod(self.scope.namespace, &self.pods.get(pod));
        for policies in orders {
            for write_at in 1.. {
                let looks = Looks::around(earlier.moment(), later.moment(), write_at);
                let stored = admit(policies, &sent, None, &looks);
                if !looks.is_written() {
                    break;
                }
                between.requests += 1;
                let Some(stored) = stored.map(|stored| self.pods.id(stored["spec"].clone())) else {
                    continue;
                };
                if alone.contains(&Some(stored)) {
                    continue;
                }
                let is_new = |node: &&Node| {
                    opens(stored, node) && !alone.iter().flatten().any(|pod| opens(*pod, node))
                };
                between.ways.extend(nodes.iter().find(is_new).map(|node| WayBetween {
                    write: self.describe(before, *event, after),
                    sent: (*self.pods.get(pod)).clone(),
                    stored: (*self.pods.get(stored)).clone(),
                    node: node.line(),
                }));
            }
        }
    }
}

const fn is_write(event: &Event) -> bool {
    matches!(
        event,
        Event::Edit(_)
            | Event::WebhookSees
            | Event::WebhookRegisters
            | Event::Controller(_)
            | Event::Accept(_)
    )
}

/// The spec once its gates are lifted.
fn ungated(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("schedulingGates");
    }
    spec
}
