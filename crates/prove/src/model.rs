//! The model that is searched: every order of events from settled clusters, with one pod and one node.
//!
//! One of each is enough: what admits a pod, binds it or registers a node looks at no other pod and no other node, but for
//! the node that the pod names. So a sequence with more of them that ends in a binding has the binding's pod and node alone
//! as a shorter one.

use std::sync::Arc;

use stateright::{Model, Property};

use crate::{
    admission::{Looks, Moment, Webhooks, admit},
    controller::{self, Decisions},
    declared::{Declared, Edit, NamespaceKind, PoolKind},
    events::{Event, after_registration, after_sight, after_write},
    interner::{Interner, Memo},
    nodes::Node,
    pods::{self, Alphabet},
    policies::{Policies, Request, Surroundings},
    property::{self, BINDS, Binding, INSIDE, OUTSIDE, PodHistory},
    scheduler,
    world::{Seen, World, WrittenMetadata, scope},
};
use croft_policy::{Tenants, definitions::POOLS_ANNOTATION};

pub mod moments;

/// The bounds of a search.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its name in reports.
    pub name: String,
    /// The kind of the pool.
    pub pool: PoolKind,
    /// The kind of the pod's namespace.
    pub namespace: NamespaceKind,
    /// The declarations at the beginning, which are in force.
    pub initial: Vec<Declared>,
    /// The edits that may happen.
    pub edits: Vec<Edit>,
    /// How many of them in one sequence.
    pub max_edits: u8,
    /// How many updates of the pod in one sequence.
    pub max_updates: u8,
    /// The symbols of pods.
    pub alphabet: Alphabet,
}

/// A state of the search. Numbers are those of the model's interners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    world: u32,
    node: Option<u32>,
    pod: Option<u32>,
    edits: u8,
    updates: u8,
    /// The pod's namespace was entitled to the pool at some time of the pod.
    entitled: bool,
    /// The pod was created in a namespace of a tenant that was enforced.
    enforced: bool,
    /// How the pod was bound, if it was.
    pub bound: Option<Binding>,
}

/// The node in each of its phases, for its labels.
fn phases(scope: &Scope, policies: &Policies) -> Vec<Node> {
    let written = settled(Declared::all(false), scope);
    let world =
        World { parameters: written.parameters, ..World::installed(scope.namespace, written.declared) };
    let (joined, next) = if scope.pool == PoolKind::OtherLauncher {
        let joined = join(&world, policies);
        let repaired = controller::repair(&world, scope.pool, &joined, false);
        (joined, repaired)
    } else {
        let launched = controller::launch(&world, scope.pool).expect("the pool is declared");
        let world = World { accepted: Some(true), ..world };
        let registered = controller::register(&world, scope.pool, &launched);
        (launched, registered)
    };
    let next = next.expect("the controller writes the labels of the pool's nodes");
    vec![joined, next, Node::of_other_launcher(None), Node::plain()]
}

/// The node that another process launches, as the API server stores it.
fn join(world: &World, policies: &Policies) -> Node {
    let node = Node::of_other_launcher(world.declared.pool);
    let surroundings = Surroundings::new(serde_json::Value::Null, &world.own_namespace_object());
    let stored = policies.mutate(&Request { object: &node.object, old: None, surroundings: &surroundings });
    let is_from_before = !world.names_pool();
    Node { object: stored.expect("policies about nodes have no errors"), is_from_before, ..node }
}

/// The cluster in which everything that is declared is in force.
///
/// # Panics
/// If that never comes.
#[must_use]
pub fn settled(declared: Declared, scope: &Scope) -> World {
    let mut world = World::installed(scope.namespace, declared);
    for _ in 0..20 {
        let seen = after_registration(&after_sight(&world));
        let decisions = controller::decide(&seen, scope.pool);
        let written = decisions.steps.iter().fold(seen, |world, step| after_write(&world, step));
        let after = World { accepted: declared.pool.map(|_| decisions.knows_pool), ..written };
        if after == world {
            return world;
        }
        world = after;
    }
    panic!("{declared:?} never settles: {world:?}");
}

impl State {
    const fn first(world: u32) -> Self {
        let (entitled, enforced, bound) = (false, false, None);
        Self { world, node: None, pod: None, edits: 0, updates: 0, entitled, enforced, bound }
    }
}

/// The part of a world that admission reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    written: WrittenMetadata,
    parameters: std::collections::BTreeMap<String, String>,
    seen: Seen,
    registered: Option<Seen>,
}

/// The inputs of admission in one view.
struct Served {
    world: Arc<World>,
    surroundings: Surroundings,
    webhooks: Arc<Webhooks>,
    tenants: Tenants,
}

impl Served {
    fn moment(&self) -> Moment<'_> {
        Moment { surroundings: &self.surroundings, webhooks: &self.webhooks, tenants: &self.tenants }
    }
}

/// A question to admission: the view, the old pod, the new one, and the node that it names.
type Question = (u32, Option<u32>, u32, Option<u32>);

/// The model.
pub struct Search {
    /// The bounds.
    pub scope: Scope,
    policies: Policies,
    created: Vec<u32>,
    worlds: Interner<World>,
    nodes: Interner<Node>,
    pods: Interner<serde_json::Value>,
    views: Interner<View>,
    view_of: Memo<u32, u32>,
    served: Memo<u32, Arc<Served>>,
    webhooks: Memo<Option<Seen>, Arc<Webhooks>>,
    decisions: Memo<u32, Arc<Decisions>>,
    admitted: Memo<Question, Option<u32>>,
    updates: Memo<u32, Arc<[u32]>>,
    binds: Memo<(u32, u32), bool>,
    launched: Memo<Declared, Option<u32>>,
    registered: Memo<(Declared, Option<bool>, u32), Option<u32>>,
    repaired: Memo<(Declared, u32, bool), Option<u32>>,
    open: Memo<(Declared, u32), bool>,
    takes_nodes: Memo<(Declared, Option<bool>), bool>,
}

impl Search {
    /// A model of `scope`.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self::with(scope, Policies::installed())
    }

    /// A model of `scope` with other policies than those that are installed.
    #[must_use]
    pub fn with(scope: Scope, policies: Policies) -> Self {
        let pods = Interner::default();
        let phases = phases(&scope, &policies);
        // Admission and updates only narrow selector and affinity: what no phase of a node meets is never bound.
        let may_match = |spec: &serde_json::Value| phases.iter().any(|node| scheduler::may_match(spec, node));
        let created =
            scope.alphabet.created().into_iter().filter(may_match).map(|spec| pods.id(spec)).collect();
        Self {
            scope,
            policies,
            created,
            pods,
            worlds: Interner::default(),
            nodes: Interner::default(),
            views: Interner::default(),
            view_of: Memo::default(),
            served: Memo::default(),
            webhooks: Memo::default(),
            decisions: Memo::default(),
            admitted: Memo::default(),
            updates: Memo::default(),
            binds: Memo::default(),
            launched: Memo::default(),
            registered: Memo::default(),
            repaired: Memo::default(),
            open: Memo::default(),
            takes_nodes: Memo::default(),
        }
    }

    fn view(&self, world: u32) -> u32 {
        self.view_of.get(world, || {
            let world = self.worlds.get(world);
            let World { written, parameters, seen, registered, .. } = (*world).clone();
            self.views.id(View { written, parameters, seen, registered })
        })
    }

    fn decide(&self, world: u32) -> Arc<Decisions> {
        self.decisions.get(world, || Arc::new(controller::decide(&self.worlds.get(world), self.scope.pool)))
    }

    /// The pod as it is stored, if admission lets it through.
    fn admit(&self, state: &State, old: Option<u32>, new: u32) -> Option<u32> {
        let view = self.view(state.world);
        let spec = self.pods.get(new);
        let node = state.node.filter(|_| pods::names_node(&spec));
        self.admitted.get((view, old, new, node), || {
            let served = self.served_at(state.world);
            let named;
            let tenants = if let Some(node) = node {
                named = served.world.tenants(self.scope.pool, Some(&self.nodes.get(node).object));
                &named
            } else {
                &served.tenants
            };
            let namespace = self.scope.namespace;
            let old = old.map(|old| pods::pod(namespace, &self.pods.get(old)));
            let moment = Moment { tenants, ..served.moment() };
            let looks = Looks::at(moment);
            let stored = admit(&self.policies, &pods::pod(namespace, &spec), old.as_ref(), &looks)?;
            Some(self.pods.id(stored["spec"].clone()))
        })
    }

    fn served_at(&self, world: u32) -> Arc<Served> {
        self.served.get(self.view(world), || Arc::new(self.serve(world)))
    }

    fn serve(&self, world: u32) -> Served {
        let world = self.worlds.get(world);
        let webhooks = self.webhooks.get(world.registered.clone(), || {
            let registered = world.registered.as_ref();
            Arc::new(registered.map(|s| Webhooks::registered(&scope(s, self.scope.pool))).unwrap_or_default())
        });
        let surroundings = Surroundings::new(world.namespace_object(), &world.own_namespace_object());
        Served { webhooks, surroundings, tenants: world.tenants(self.scope.pool, None), world }
    }

    /// The spec with which admission lets a pod through in `world`, or its update from `old`; `None` if it is refused.
    #[must_use]
    pub fn admits(
        &self,
        world: &World,
        old: Option<&serde_json::Value>,
        spec: &serde_json::Value,
        node: Option<&Node>,
    ) -> Option<Arc<serde_json::Value>> {
        let state = State {
            node: node.map(|node| self.nodes.id(node.clone())),
            ..State::first(self.worlds.id(world.clone()))
        };
        let stored =
            self.admit(&state, old.map(|old| self.pods.id(old.clone())), self.pods.id(spec.clone()))?;
        Some(self.pods.get(stored))
    }

    fn may_bind(&self, pod: u32, node: u32) -> bool {
        self.binds.get((pod, node), || scheduler::may_bind(&self.pods.get(pod), &self.nodes.get(node)))
    }

    fn launch(&self, world: u32) -> Option<u32> {
        let world = self.worlds.get(world);
        self.launched.get(world.declared, || {
            controller::launch(&world, self.scope.pool).map(|node| self.nodes.id(node))
        })
    }

    fn register(&self, world: u32, node: u32) -> Option<u32> {
        let world = self.worlds.get(world);
        self.registered.get((world.declared, world.accepted, node), || {
            let node = self.nodes.get(node);
            let registered =
                node.is_registering().then(|| controller::register(&world, self.scope.pool, &node));
            registered?.map(|node| self.nodes.id(node))
        })
    }

    fn repair(&self, state: &State, node: u32) -> Option<u32> {
        let world = self.worlds.get(state.world);
        let is_open = self.is_open(state);
        self.repaired.get((world.declared, node, is_open), || {
            let repaired = controller::repair(&world, self.scope.pool, &self.nodes.get(node), is_open);
            repaired.map(|node| self.nodes.id(node))
        })
    }

    /// True if the pod waits and could enter the pool.
    fn is_open(&self, state: &State) -> bool {
        let Some(pod) = state.pod.filter(|_| state.bound.is_none()) else { return false };
        let world = self.worlds.get(state.world);
        self.open
            .get((world.declared, pod), || controller::is_open(&world, self.scope.pool, &self.pods.get(pod)))
    }

    fn takes_nodes(&self, world: &World) -> bool {
        self.takes_nodes
            .get((world.declared, world.accepted), || controller::takes_nodes(world, self.scope.pool))
    }

    fn node_events(&self, state: &State, events: &mut Vec<Event>) {
        match (state.node, self.scope.pool) {
            (Some(node), PoolKind::OtherLauncher) => {
                events.extend(self.repair(state, node).map(|_| Event::RepairNode));
            }
            (Some(node), _) => events.extend(self.register(state.world, node).map(|_| Event::RegisterNode)),
            (None, kind) => {
                if kind == PoolKind::OtherLauncher {
                    events.push(Event::Join);
                } else if self.takes_nodes(&self.worlds.get(state.world))
                    && self.launch(state.world).is_some()
                {
                    events.push(Event::Launch);
                }
                let is_tenants = self.worlds.get(state.world).declared.is_tenants(self.scope.namespace);
                events.extend(is_tenants.then_some(Event::JoinPlain));
            }
        }
    }

    fn pod_events(&self, state: &State, events: &mut Vec<Event>) {
        let Some(pod) = state.pod else {
            return events.extend(self.created.iter().map(|pod| Event::CreatePod(*pod)));
        };
        if state.updates < self.scope.max_updates {
            let updates = self.updates.get(pod, || {
                let specs = self.scope.alphabet.updated(&self.pods.get(pod));
                specs.into_iter().map(|spec| self.pods.id(spec)).collect()
            });
            events.extend(updates.iter().map(|pod| Event::UpdatePod(*pod)));
        }
        if state.node.is_some_and(|node| self.may_bind(pod, node)) {
            events.push(Event::Bind);
        }
    }

    fn with_world(&self, state: &State, world: World) -> State {
        let entitled =
            state.entitled || (state.pod.is_some() && world.declared.entitles(self.scope.namespace));
        let is_closed = |world: &World| property::is_closed(world, self.takes_nodes(world));
        let was_closed = is_closed(&self.worlds.get(state.world));
        let closed = world.declared.pool.is_some() && (was_closed || is_closed(&world));
        let world = World { closed, ..world };
        State { world: self.worlds.id(world), entitled, ..*state }
    }

    fn create(&self, state: &State, pod: u32) -> Option<State> {
        let names_node = pods::names_node(&self.pods.get(pod));
        if names_node && state.node.is_none() {
            // It would run nowhere.
            return None;
        }
        let stored = self.admit(state, None, pod)?;
        let world = self.worlds.get(state.world);
        let namespace = self.scope.namespace;
        let created = State {
            pod: Some(stored),
            entitled: world.entitles(),
            enforced: world.declared.is_tenants(namespace)
                && world.seen.declared.is_tenants(namespace)
                && world.written.annotations.contains_key(POOLS_ANNOTATION),
            ..*state
        };
        // Its creation binds a pod that names its node.
        let bound = names_node.then(|| self.binding(&created));
        Some(State { bound, ..created })
    }

    fn binding(&self, state: &State) -> Binding {
        let node = self.nodes.get(state.node.expect("there is a node"));
        let world = self.worlds.get(state.world);
        let pod = PodHistory {
            namespace: self.scope.namespace,
            entitled: state.entitled,
            enforced: state.enforced,
        };
        let is_accepted = self.takes_nodes(&world);
        property::binding(&world, is_accepted, &node, &pod)
    }

    /// The effect of an event, in a line.
    #[must_use]
    pub fn describe(&self, before: &State, event: Event, after: &State) -> String {
        let spec = |pod: Option<u32>| pod.map(|pod| self.pods.get(pod).to_string()).unwrap_or_default();
        let node = |node: Option<u32>| node.map(|node| self.nodes.get(node).line()).unwrap_or_default();
        let namespace = self.scope.namespace;
        match event {
            Event::Edit(edit) => format!("an operator's edit: {edit:?}"),
            Event::WebhookSees => "the webhook sees what is declared".to_owned(),
            Event::WebhookRegisters => "the webhook writes its configurations".to_owned(),
            Event::Controller(at) => {
                let step = self.decide(before.world).steps[usize::from(at)].clone();
                format!("the controller writes {step:?}")
            }
            Event::Accept(accepted) => {
                format!("the controller writes Accepted={accepted} into the pool's status")
            }
            Event::Launch | Event::Join | Event::JoinPlain => format!("a node joins: {}", node(after.node)),
            Event::RegisterNode => format!("the controller registers the node: {}", node(after.node)),
            Event::RepairNode => format!("the controller writes what the node lacks: {}", node(after.node)),
            Event::CreatePod(pod) => {
                format!(
                    "a pod is created in {namespace:?} {:?}: {}; stored as {}",
                    namespace.name(),
                    spec(Some(pod)),
                    spec(after.pod)
                )
            }
            Event::UpdatePod(_) => format!("the pod is updated: {}", spec(after.pod)),
            Event::Bind => format!("kube-scheduler binds the pod: {:?}", after.bound),
        }
    }

    /// The sizes of what was computed.
    #[must_use]
    pub fn sizes(&self) -> String {
        format!(
            "{} pods, {} nodes, {} worlds, {} views of admission, {} admissions evaluated",
            self.pods.len(),
            self.nodes.len(),
            self.worlds.len(),
            self.views.len(),
            self.admitted.len()
        )
    }

    /// The declarations of a state.
    #[must_use]
    pub fn declared(&self, state: &State) -> Declared {
        self.worlds.get(state.world).declared
    }
}

impl Model for Search {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let worlds = self.scope.initial.iter().map(|declared| settled(*declared, &self.scope));
        worlds.map(|world| State::first(self.worlds.id(world))).collect()
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.bound.is_some() {
            return;
        }
        let world = self.worlds.get(state.world);
        if state.edits < self.scope.max_edits {
            let edits = self.scope.edits.iter().filter(|edit| edit.apply(world.declared).is_some());
            events.extend(edits.map(|edit| Event::Edit(*edit)));
        }
        if world.seen != world.current() {
            events.push(Event::WebhookSees);
        }
        if world.registered.as_ref() != Some(&world.seen) {
            events.push(Event::WebhookRegisters);
        }
        let steps = self.decide(state.world).steps.len();
        events.extend((0..steps).map(|at| Event::Controller(u8::try_from(at).expect("few writes are due"))));
        let accepted = self.decide(state.world).knows_pool && !self.is_open(state);
        if world.declared.pool.is_some() && world.accepted != Some(accepted) {
            events.push(Event::Accept(accepted));
        }
        self.node_events(state, events);
        self.pod_events(state, events);
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let world = || self.worlds.get(state.world);
        match event {
            Event::Edit(edit) => {
                let declared = edit.apply(world().declared)?;
                let after = self.with_world(state, world().edited(declared));
                Some(State { edits: state.edits + 1, ..after })
            }
            Event::WebhookSees => Some(self.with_world(state, after_sight(&world()))),
            Event::WebhookRegisters => Some(self.with_world(state, after_registration(&world()))),
            Event::Controller(at) => {
                let step = &self.decide(state.world).steps[usize::from(at)];
                Some(self.with_world(state, after_write(&world(), step)))
            }
            Event::Accept(accepted) => {
                Some(self.with_world(state, World { accepted: Some(accepted), ..(*world()).clone() }))
            }
            Event::Launch => Some(State { node: self.launch(state.world), ..*state }),
            Event::Join => {
                Some(State { node: Some(self.nodes.id(join(&world(), &self.policies))), ..*state })
            }
            Event::JoinPlain => Some(State { node: Some(self.nodes.id(Node::plain())), ..*state }),
            Event::RepairNode => Some(State { node: self.repair(state, state.node?), ..*state }),
            Event::RegisterNode => Some(State { node: self.register(state.world, state.node?), ..*state }),
            Event::CreatePod(pod) => self.create(state, pod),
            Event::UpdatePod(pod) => {
                let stored = self.admit(state, state.pod, pod)?;
                Some(State { pod: Some(stored), updates: state.updates + 1, ..*state })
            }
            Event::Bind => Some(State { bound: Some(self.binding(state)), ..*state }),
        }
        .filter(|after| after != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(INSIDE, |_, state: &State| state.bound != Some(Binding::Inside)),
            Property::always(OUTSIDE, |_, state: &State| state.bound != Some(Binding::Outside)),
            Property::sometimes(BINDS, |_, state: &State| state.bound == Some(Binding::Allowed)),
        ]
    }
}
