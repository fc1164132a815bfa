//! The division of a quota against a model of Kubernetes: admission by `status.hard`, and a quota controller that lags.

use croft_simkit::Random;

use super::*;

const CPU: &str = "requests.cpu";
const PODS: &str = "pods";
const SECOND: Duration = Duration::from_secs(1);

/// A cluster with a share in each namespace.
struct World {
    quota: SharedQuota,
    facts: BTreeMap<String, (u64, QuotaFacts)>,
    shares: Shares,
    tenant: Arc<str>,
    mono: Duration,
    writes: usize,
}

impl World {
    fn new(total: &[(&str, i64)], namespaces: usize) -> Self {
        let total: Amounts = total.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        let namespaces: Vec<String> = (0..namespaces).map(|n| format!("ns-{n}")).collect();
        let nothing: Amounts = total.keys().map(|name| (name.clone(), 0)).collect();
        let new =
            QuotaFacts { declared: nothing.clone(), allowed: Some(nothing.clone()), used: nothing.clone() };
        let facts = namespaces.iter().map(|name| (name.clone(), (1, new.clone()))).collect();
        let quota = SharedQuota { total, namespaces, leaving: Vec::new(), pods: 0 };
        let mut world = Self {
            quota,
            facts,
            shares: Shares::default(),
            tenant: "t".into(),
            mono: Duration::ZERO,
            writes: 0,
        };
        for _ in 0..10 {
            world.pass();
            world.sync_all();
        }
        world
    }

    fn used(&self, resource: &str) -> i64 {
        self.facts.values().map(|(_, facts)| get(&facts.used, resource)).sum()
    }

    /// A pass of the controller, half a second later. Writes apply to the version that was observed.
    fn plan(&mut self) -> BTreeMap<String, (u64, Amounts)> {
        self.mono += SECOND / 2;
        self.quota.pods = self.used(PODS) / 1_000;
        let versions: BTreeMap<&str, String> =
            self.facts.iter().map(|(name, (version, _))| (name.as_str(), version.to_string())).collect();
        let shares: BTreeMap<&str, Share<'_>> = self
            .facts
            .iter()
            .map(|(name, (_, facts))| (name.as_str(), Share { version: &versions[name.as_str()], facts }))
            .collect();
        let due = self.shares.divide(&self.tenant, &self.quota, &shares, self.mono);
        due.into_iter().map(|(name, hard)| (name.clone(), (self.facts[&name].0, hard))).collect()
    }

    fn write(&mut self, name: &str, version: u64, hard: &Amounts) {
        let (current, facts) = self.facts.get_mut(name).unwrap();
        if *current == version {
            *current += 1;
            facts.declared.clone_from(hard);
            self.writes += 1;
        }
    }

    fn pass(&mut self) {
        for (name, (version, hard)) in self.plan() {
            self.write(&name, version, &hard);
        }
        self.check();
    }

    /// The quota controller.
    fn sync(&mut self, name: &str) {
        let (version, facts) = self.facts.get_mut(name).unwrap();
        if facts.allowed.as_ref() != Some(&facts.declared) {
            facts.allowed = Some(facts.declared.clone());
            *version += 1;
        }
    }

    fn sync_all(&mut self) {
        for name in self.quota.namespaces.clone() {
            self.sync(&name);
        }
    }

    /// Admission of a pod. Returns true if it is created.
    fn create(&mut self, name: &str, pod: &[(&str, i64)]) -> bool {
        let (version, facts) = self.facts.get_mut(name).unwrap();
        let allowed = facts.allowed.as_ref().unwrap();
        let fits =
            pod.iter().all(|(resource, more)| get(&facts.used, resource) + more <= get(allowed, resource));
        if fits {
            for (resource, more) in pod {
                *facts.used.entry((*resource).to_owned()).or_default() += more;
            }
            *version += 1;
        }
        self.check();
        fits
    }

    fn delete(&mut self, name: &str, pod: &[(&str, i64)]) {
        let (version, facts) = self.facts.get_mut(name).unwrap();
        for (resource, less) in pod {
            *facts.used.entry((*resource).to_owned()).or_default() -= less;
        }
        *version += 1;
    }

    /// Admission can let in no more than the quota at this moment, and hasn't.
    fn check(&self) {
        for (resource, total) in &self.quota.total {
            let possible: i64 = self
                .facts
                .values()
                .map(|(_, facts)| {
                    let allowed = facts.allowed.as_ref().map(|allowed| get(allowed, resource));
                    allowed
                        .unwrap_or_default()
                        .max(get(&facts.declared, resource))
                        .max(get(&facts.used, resource))
                })
                .sum();
            assert!(possible <= *total, "{resource}: {possible} of {total}: {:?}", self.facts);
        }
    }
}

#[test]
fn one_namespace_uses_the_whole_quota() {
    let mut world = World::new(&[(CPU, 10_000), (PODS, 100_000)], 5);
    let mut made = 0;
    for _ in 0..60 {
        while world.create("ns-3", &[(CPU, 100), (PODS, 1_000)]) {
            made += 1;
        }
        world.pass();
        world.sync_all();
    }
    assert_eq!((made, world.used(CPU)), (100, 10_000));
}

#[test]
fn a_pod_as_large_as_the_quota_is_created_after_a_refusal() {
    let mut world = World::new(&[("requests.nvidia.com/gpu", 8_000), (CPU, 64_000), (PODS, 50_000)], 6);
    let pod = [("requests.nvidia.com/gpu", 8_000), (CPU, 60_000), (PODS, 1_000)];
    let mut tries = 0;
    while !world.create("ns-5", &pod) {
        world.shares.observe_refusal("ns-5", world.mono);
        world.pass();
        world.sync_all();
        tries += 1;
        assert!(tries < 10, "{:?}", world.facts);
    }
}

#[test]
fn first_pods_of_every_namespace_need_no_turn() {
    let mut world = World::new(&[(CPU, 20_000), (PODS, 100_000)], 4);
    for name in world.quota.namespaces.clone() {
        assert!(world.create(&name, &[(CPU, 500), (PODS, 1_000)]), "{name}: {:?}", world.facts);
    }
}

#[test]
fn idle_namespaces_cost_few_writes() {
    // All but a tenth is used, so that turns decide.
    let mut world = World::new(&[(CPU, 10_000), (PODS, 20_000)], 4);
    for _ in 0..40 {
        while world.used(CPU) < 9_000 && world.create("ns-0", &[(CPU, 1_000), (PODS, 1_000)]) {}
        world.pass();
        world.sync_all();
    }
    assert_eq!(world.used(CPU), 9_000);
    let before = world.writes;
    for _ in 0..7_200 {
        world.pass();
        world.sync_all();
    }
    let writes = world.writes - before;
    assert!(writes <= 3 * 60 + 20, "{writes} writes in an hour");
    // A namespace that waits for its turn gets it.
    let mut tries = 0;
    while !world.create("ns-3", &[(CPU, 1_000), (PODS, 1_000)]) {
        world.pass();
        world.sync_all();
        tries += 1;
        assert!(tries < 2 * 60 * 5);
    }
}

#[test]
fn an_unknown_share_stops_raises() {
    let mut world = World::new(&[(PODS, 100_000)], 3);
    world.facts.get_mut("ns-1").unwrap().1.allowed = None;
    while world.create("ns-0", &[(PODS, 1_000)]) {}
    for _ in 0..20 {
        world.mono += SECOND;
        let raised = world
            .plan()
            .into_iter()
            .any(|(name, (_, hard))| get(&hard, PODS) > get(&world.facts[&name].1.declared, PODS));
        assert!(!raised);
    }
}

#[test]
fn pods_of_a_namespace_that_is_being_deleted_count() {
    let mut world = World::new(&[(PODS, 20_000)], 2);
    while world.create("ns-0", &[(PODS, 1_000)]) {}
    let used = world.used(PODS);
    assert!(used > 10_000, "{used}");
    world.quota.namespaces = vec!["ns-1".to_owned()];
    world.quota.leaving = vec!["ns-0".to_owned()];
    // Its share is gone before its pods are.
    let (_, gone) = world.facts.remove("ns-0").unwrap();
    for _ in 0..20 {
        while world.create("ns-1", &[(PODS, 1_000)]) {}
        world.pass();
        world.sync_all();
    }
    assert!(world.used(PODS) <= 20_000 - get(&gone.allowed.unwrap(), PODS));
    world.quota.leaving.clear();
    for _ in 0..20 {
        while world.create("ns-1", &[(PODS, 1_000)]) {}
        world.pass();
        world.sync_all();
    }
    assert_eq!(world.used(PODS), 20_000);
}

/// Random creations and deletions, a quota controller that lags, writes that are lost, late, or take effect twice.
#[test]
fn random_use_never_exceeds_the_quota_and_the_rest_can_be_used() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let number = usize::try_from(random.between(1, 6)).unwrap();
        let mut world = World::new(&[(CPU, 12_000), (PODS, 40_000)], number);
        let mut late: Vec<(String, u64, Amounts)> = Vec::new();
        let mut pods: Vec<(String, i64)> = Vec::new();
        for _ in 0..600 {
            let name = random.pick(&world.quota.namespaces).unwrap().clone();
            match random.below(10) {
                0..=4 => {
                    let cpu = i64::try_from(random.between(1, 8)).unwrap() * 100;
                    if world.create(&name, &[(CPU, cpu), (PODS, 1_000)]) {
                        pods.push((name, cpu));
                    }
                }
                5 if !pods.is_empty() => {
                    let at = usize::try_from(random.below(pods.len() as u64)).unwrap();
                    let (name, cpu) = pods.swap_remove(at);
                    world.delete(&name, &[(CPU, cpu), (PODS, 1_000)]);
                }
                6..=7 => world.sync(&name),
                8 if !late.is_empty() => {
                    let at = usize::try_from(random.below(late.len() as u64)).unwrap();
                    let (name, version, hard) = late[at].clone();
                    if random.percent(50) {
                        late.swap_remove(at);
                    }
                    world.write(&name, version, &hard);
                    world.check();
                }
                _ => {
                    for (name, (version, hard)) in world.plan() {
                        late.push((name, version, hard));
                    }
                }
            }
        }
        // At the end one namespace can use all that is left.
        let name = world.quota.namespaces.last().unwrap().clone();
        for _ in 0..200 {
            while world.create(&name, &[(CPU, 100), (PODS, 1_000)]) {}
            world.shares.observe_refusal(&name, world.mono);
            world.pass();
            world.sync_all();
        }
        let left = (12_000 - world.used(CPU), 40_000 - world.used(PODS));
        assert!(left.0 < 100 || left.1 < 1_000, "seed {seed}: {left:?} {:?}", world.facts);
    }
}
