//! From ids back to names: the plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::FxHashMap;

use crate::{
    Plan,
    demand::ClassPods,
    existing::room::Place,
    ids::{BlockIx, ClassIx, DomainSetIx, InstanceTypeIx, NodeIx, OfferIx, PodIx, PoolIx},
    index_vec::IndexVec,
    model::{
        catalog::CapacityType,
        plan::{ExistingPlacement, PlannedInstance, PodKey, Unschedulable},
        price::Price,
        requirement::Requirement,
        resources::Resources,
        well_known::{CAPACITY_TYPE, CROFT_CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
    },
    packing::limits::cpu_of,
    solve::{
        block::{Context, Launch, LeftOutPods, Solved},
        limits::node_price,
        reasons::{Reasons, UnplacedClass},
    },
    state::{
        interner::{Sym, label},
        requests::{ResourceId, amount},
    },
};

/// Hands out the pods of each class; those of one domain set in the order in which a spread over domain sets
/// fills them.
struct Pods<'a> {
    context: &'a Context<'a>,
    /// By class and domain set: pods not handed out yet.
    queues: FxHashMap<(ClassIx, Option<DomainSetIx>), std::collections::VecDeque<PodIx>>,
    /// By class: position of the next pod without a domain set.
    next: IndexVec<ClassIx, usize>,
}

impl<'a> Pods<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        let next = IndexVec::filled(0, context.demand.classes.len());
        Self { context, queues: FxHashMap::default(), next }
    }

    fn take(&mut self, class: ClassIx) -> Option<PodIx> {
        let next = self.next.find_mut(class)?;
        let pod = self.context.demand.classes.find(class)?.pods.get(*next).copied();
        *next += 1;
        pod
    }

    /// Deals a class's next pods over domain sets in turn, so that no domain set is ever far ahead of
    /// another.
    fn deal(&mut self, class: ClassIx, mut domain_sets: Vec<(Option<DomainSetIx>, u32)>) {
        domain_sets.sort_by_key(|(domain_set, count)| (std::cmp::Reverse(*count), *domain_set));
        let mut any = true;
        while any {
            any = false;
            for (domain_set, count) in &mut domain_sets {
                if *count > 0 {
                    *count -= 1;
                    any = true;
                    if let Some(pod) = self.take(class) {
                        self.queues.entry((class, *domain_set)).or_default().push_back(pod);
                    }
                }
            }
        }
    }

    fn pop(&mut self, class: ClassIx, domain_set: Option<DomainSetIx>, count: u32) -> Vec<PodIx> {
        let queue = self.queues.entry((class, domain_set)).or_default();
        (0..count).map_while(|_| queue.pop_front()).collect()
    }

    fn key(&self, pod: PodIx) -> Option<PodKey> {
        let rec = self.context.cluster.pods.find(pod)?.as_ref()?;
        Some(PodKey::clone(&rec.key))
    }
}

/// Names the pods of all placements, and gives a reason for those without a place.
pub(crate) fn plan(
    context: &Context<'_>,
    places: &[Place],
    solved: IndexVec<BlockIx, Solved>,
    without_pool: Vec<ClassPods>,
    steps: u64,
) -> Plan {
    let mut plan = Plan { steps, ..Plan::default() };
    let mut pods = Pods::new(context);
    let mut templates: FxHashMap<(Sym, Sym), Vec<PoolIx>> = FxHashMap::default();
    for (number, rec) in context.pools.enumerate() {
        templates.entry(rec.label).or_default().push(number);
    }
    let keys: BTreeSet<Sym> = templates.keys().map(|(key, _)| *key).collect();
    let pool_of = |node: &[(Sym, Sym)]| {
        let of_label = keys.iter().filter_map(|key| templates.get(&(*key, label(node, *key)?))).flatten();
        let has = |number: &&PoolIx| {
            context.pools.find(**number).is_some_and(|rec| rec.has(&context.cluster.keys, node))
        };
        of_label.filter(has).min().copied()
    };
    let preempted = context.demand.preempting.iter().map(|(_, node)| *node);
    let bare: BTreeSet<NodeIx> =
        preempted.filter(|node| places.iter().all(|place| place.node != *node)).collect();
    let bare: Vec<Place> = bare.into_iter().map(Place::bare).collect();
    for place in places.iter().chain(&bare) {
        plan.existing.extend(existing(context, place, &mut pods, pool_of));
    }
    plan.existing.sort_by(|a, b| (a.coming, &a.node).cmp(&(b.coming, &b.node)));

    let mut domain_sets: BTreeMap<ClassIx, BTreeMap<Option<DomainSetIx>, u32>> = BTreeMap::new();
    for launch in solved.iter().flat_map(|s| &s.launches) {
        for item in &launch.content {
            *domain_sets.entry(item.class).or_default().entry(item.domain_set).or_default() += item.count;
            plan.bound_given_domains |= item.domain_set.is_some();
        }
    }
    for (class, domain_sets) in domain_sets {
        pods.deal(class, domain_sets.into_iter().collect());
    }
    let mut left: Vec<LeftOutPods> = Vec::new();
    let mut launches: Vec<Launch> = Vec::new();
    plan.bound_by_pool = bound_by_pool(context, &solved);
    let (mut bound, mut relaxed) = (0i64, BTreeSet::new());
    for block in solved {
        launches.extend(block.launches);
        left.extend(block.left);
        bound = bound.saturating_add(block.bound);
        relaxed.extend(block.relaxed);
        plan.bound_given_weights |= block.has_weights;
        plan.steps = plan.steps.saturating_add(block.steps);
        plan.cut_short |= block.cut_short;
    }
    launches.sort_by_key(|l| l.from.pool);
    let mut numbers: BTreeMap<PoolIx, u32> = BTreeMap::new();
    for launch in &launches {
        let number = numbers.entry(launch.from.pool).or_default();
        *number += 1;
        plan.instances.extend(instance(context, launch, *number, &mut pods));
    }
    plan.cost = plan.instances.iter().filter_map(|instance| instance.price).sum();
    // An instance without a price is packed at a stand-in price and isn't in the cost: nothing is proven about the sum.
    plan.bound = if plan.unpriced() == 0 { Price::from_micros(bound) } else { Price::ZERO };
    for instance in plan.instances.iter().filter(|instance| instance.price.is_none()) {
        plan.bound_by_pool.remove(&instance.pool);
    }
    plan.bound_relaxes = relaxed.into_iter().collect();

    let left_out = |ClassPods { class, count }| LeftOutPods { class, count, reason: None };
    left.extend(without_pool.into_iter().map(left_out));
    left.sort_by_key(|pods| pods.class);
    let mut reasons =
        Reasons::new(context, context.limits.after(&context.pools, launches.iter().map(Launch::pool_offer)));
    for LeftOutPods { class, count, reason } in left {
        let reasons = reasons.of(UnplacedClass { class, kind: reason });
        for _ in 0..count {
            let Some(pod) = pods.take(class).and_then(|p| pods.key(p)) else { break };
            plan.unschedulable.push(Unschedulable { pod, reasons: Arc::clone(&reasons) });
        }
    }
    plan
}

/// The sum of the bounds of each pool's blocks, but for pools of which a block launches instances of others as well.
fn bound_by_pool(context: &Context<'_>, solved: &IndexVec<BlockIx, Solved>) -> BTreeMap<String, Price> {
    let mut bounds: BTreeMap<&str, Option<i64>> = BTreeMap::new();
    for block in solved {
        let pools = block.launches.iter().filter_map(|launch| context.pools.find(launch.from.pool));
        let names: BTreeSet<&str> = pools.map(|rec| rec.pool.name.as_str()).collect();
        let own = (names.len() == 1).then_some(block.bound);
        for name in names {
            let bound = bounds.entry(name).or_insert(Some(0));
            *bound = bound.zip(own).map(|(sum, own)| sum.saturating_add(own));
        }
    }
    let known = bounds.into_iter().filter_map(|(name, bound)| Some((name, bound?)));
    known.map(|(name, bound)| (name.to_owned(), Price::from_micros(bound))).collect()
}

fn existing(
    context: &Context<'_>,
    place: &Place,
    pods: &mut Pods<'_>,
    pool_of: impl Fn(&[(Sym, Sym)]) -> Option<PoolIx>,
) -> Option<ExistingPlacement> {
    let cluster = context.cluster;
    let text = |sym| cluster.tables.symbols.text(sym).to_owned();
    let slot = cluster.nodes.find(place.node)?;
    let info = slot.info.as_ref()?;
    let rec = pool_of(&info.labels).and_then(|number| context.pools.find(number));
    let mut requests = Resources::new();
    let mut keys = Vec::new();
    for ClassPods { class, count } in &place.content {
        let shape = context.demand.classes.find(*class)?.shape(cluster);
        for (id, size) in &shape.requests {
            let name = cluster.tables.resources.name(*id);
            let sum = requests.get(name).saturating_add(size.saturating_mul(i64::from(*count)));
            requests.set(name, sum);
        }
        for _ in 0..*count {
            keys.extend(pods.take(*class).and_then(|p| pods.key(p)));
        }
    }
    for (pod, _) in context.demand.preempting.iter().filter(|(_, node)| *node == place.node) {
        let Some(rec) = cluster.pods.find(*pod).and_then(Option::as_ref) else { continue };
        keys.push(PodKey::clone(&rec.key));
        for (id, size) in &cluster.tables.shapes.get(rec.shape).requests {
            let name = cluster.tables.resources.name(*id);
            requests.set(name, requests.get(name).saturating_add(*size));
        }
    }
    let get = |key| label(&info.labels, key).map(text);
    let price = rec.and_then(|rec| node_price(cluster, rec, place.node)).map(Price::from_micros);
    Some(ExistingPlacement {
        node: text(slot.name),
        pool: rec.map(|rec| rec.pool.name.clone()),
        coming: info.coming,
        instance_type: get(cluster.keys.instance_type).unwrap_or_default(),
        zone: get(cluster.keys.zone).unwrap_or_default(),
        capacity_type: get(cluster.keys.capacity_type).and_then(|c| CapacityType::parse(&c)),
        price,
        pods: keys,
        requests,
    })
}

fn instance(
    context: &Context<'_>,
    launch: &Launch,
    number: u32,
    pods: &mut Pods<'_>,
) -> Option<PlannedInstance> {
    let cluster = context.cluster;
    let keys = &cluster.keys;
    let (rec, variant) = context.variant(launch.from);
    let text = |sym| cluster.tables.symbols.text(sym).to_owned();
    let offer = rec.catalog.offers.find(launch.offer)?;
    let kind = rec.catalog.instance_type(offer.kind)?;

    // A pod without requests counts for something and requests nothing.
    let assumed = |id: ResourceId| {
        let all = launch.content.iter().map(|item| {
            let class = context.demand.classes.find(item.class);
            class.map_or(0, |class| class.assumed(cluster, id)).saturating_mul(i64::from(item.count))
        });
        all.fold(0, i64::saturating_add)
    };
    let mut requests = Resources::new();
    let row = launch.table.row(launch.offer);
    let has = rec.catalog.allocatable.find(offer.kind)?;
    for ((dim, used), row) in launch.dims.iter().zip(&launch.used).zip(row) {
        let Some(id) = dim.resource() else { continue };
        // The row lacks exactly what DaemonSets request of the allocatable.
        let daemons = amount(has, id).saturating_sub(*row);
        let asked = used.saturating_sub(assumed(id));
        requests.set(cluster.tables.resources.name(id), asked.saturating_add(daemons));
    }
    let mut names = Vec::new();
    for item in &launch.content {
        let mine = pods.pop(item.class, item.domain_set, item.count);
        names.extend(mine.into_iter().filter_map(|p| pods.key(p)));
    }

    let mut labels: BTreeMap<String, String> =
        rec.catalog.type_labels(launch.offer).map(|(k, v)| (text(k), text(v))).collect();
    labels.insert(text(keys.zone), text(offer.zone));
    if let Some(region) = rec.catalog.value(keys, launch.offer, keys.region) {
        labels.insert(text(keys.region), text(region));
    }
    labels.insert(CAPACITY_TYPE.to_owned(), offer.capacity.as_str().to_owned());
    labels.insert(CROFT_CAPACITY_TYPE.to_owned(), offer.capacity.as_str().to_owned());
    labels.extend(variant.labels.iter().map(|(k, v)| (text(*k), text(*v))));
    labels.extend(rec.pool.labels.iter().map(|(k, v)| (k.clone(), v.clone())));

    let options = options(context, launch);
    let zones = zones(context, launch);
    let mut requirements = rec.pool.requirements.clone();
    requirements.push(Requirement::any_of(INSTANCE_TYPE, options.iter().cloned()));
    requirements.push(Requirement::any_of(ZONE, zones.iter().cloned()));
    requirements.push(Requirement::any_of(CAPACITY_TYPE, [offer.capacity.as_str()]));
    Some(PlannedInstance {
        name: rec.pool.named(&number.to_string()),
        pool: rec.pool.name.clone(),
        template: rec.pool.template.clone(),
        instance_type: kind.name.clone(),
        zone: text(offer.zone),
        capacity_type: offer.capacity,
        price: offer.price.map(Price::from_micros),
        labels,
        taints: rec.pool.taints.clone(),
        startup_taints: rec.pool.startup_taints.clone(),
        pods: names,
        requests,
        allocatable: kind.allocatable(),
        capacity: kind.capacity.clone(),
        options,
        zones,
        requirements,
    })
}

/// True if the offering holds the pods of the launch.
fn has_room(launch: &Launch, offer: OfferIx) -> bool {
    launch.table.row(offer).iter().zip(&launch.used).all(|(row, used)| *used <= 0 || row >= used)
}

/// Instance types that can take the planned one's place in its zone and capacity type, cheapest first.
fn options(context: &Context<'_>, launch: &Launch) -> Vec<String> {
    let rec = context.pools[launch.from.pool];
    let catalog = &rec.catalog;
    let Some(own) = catalog.offers.find(launch.offer) else { return Vec::new() };
    let cost = |o: OfferIx| launch.table.cost(o);
    let limit =
        i128::from(cost(launch.offer)) * i128::from(context.options.option_price_permille.max(1000)) / 1000;
    let has = |kind: InstanceTypeIx| catalog.capacity.find(kind);
    let cpu = context.limits.replacement_cpu(rec, launch.pool_offer());
    let suits = |o: OfferIx| {
        launch.bits.contains(o)
            && catalog.offers.find(o).is_some_and(|it| {
                it.zone == own.zone
                    && it.capacity == own.capacity
                    && has_room(launch, o)
                    && cpu.contains(&cpu_of(catalog, o))
                    // A limit counts the planned type's capacity; a larger alternative would exceed it.
                    && (!launch.limited
                        || cost(o) <= cost(launch.offer)
                            && has(it.kind).zip(has(own.kind)).is_some_and(|(a, b)| {
                                a.iter().all(|(id, v)| *v <= amount(b, *id))
                            })
                        || o == launch.offer)
            })
    };
    // Among equal costs, the planned one comes first.
    let all = launch.table.by_cost().iter().copied();
    let cheaper = all.clone().take_while(|o| cost(*o) < cost(launch.offer));
    let rest = all.skip_while(|o| cost(*o) < cost(launch.offer)).filter(|o| *o != launch.offer);
    let list = cheaper.chain([launch.offer]).chain(rest);
    let mut names: Vec<String> = Vec::new();
    let mut missing: Vec<(Sym, u32, BTreeSet<Option<Sym>>)> =
        rec.min_values.iter().map(|(key, n)| (*key, *n, BTreeSet::new())).collect();
    for o in list {
        let wanted =
            missing.iter().any(|(_, n, values)| u32::try_from(values.len()).unwrap_or(u32::MAX) < *n);
        let is_affordable = i128::from(cost(o)) <= limit && names.len() < context.options.max_options.max(1);
        if !is_affordable && !wanted {
            break;
        }
        if !suits(o) {
            continue;
        }
        let Some(name) = catalog.instance_type(catalog.kind(o)).map(|t| &t.name) else {
            continue;
        };
        if !names.contains(name) {
            names.push(name.clone());
            for (key, _, values) in &mut missing {
                values.insert(catalog.value(&context.cluster.keys, o, *key));
            }
        }
    }
    names
}

/// Zones where the planned type serves as well, the planned zone first.
fn zones(context: &Context<'_>, launch: &Launch) -> Vec<String> {
    let rec = context.pools[launch.from.pool];
    let catalog = &rec.catalog;
    let Some(own) = catalog.offers.find(launch.offer) else { return Vec::new() };
    let cost = |o: OfferIx| launch.table.cost(o);
    let limit = i128::from(launch.table.cost(launch.offer))
        * i128::from(context.options.option_price_permille.max(1000))
        / 1000;
    let is_affordable = |o: OfferIx| {
        i128::from(cost(o)) <= limit && (!launch.limited || cost(o) <= launch.table.cost(launch.offer))
    };
    let mut list: Vec<(bool, i64, Sym)> = catalog
        .offers_of(own.kind)
        .filter(|(o, it)| launch.bits.contains(*o) && it.capacity == own.capacity && is_affordable(*o))
        .map(|(o, it)| (it.zone != own.zone, cost(o), it.zone))
        .collect();
    let text = |sym| context.cluster.tables.symbols.text(sym);
    list.sort_by(|a, b| (a.0, a.1, text(a.2)).cmp(&(b.0, b.1, text(b.2))));
    list.dedup_by_key(|(_, _, zone)| *zone);
    list.into_iter().map(|(_, _, zone)| text(zone).to_owned()).collect()
}
