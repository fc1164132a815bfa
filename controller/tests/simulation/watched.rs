//! The checks after each change: only what has changed since the last ones is looked at.

use std::collections::{BTreeMap, BTreeSet};

use croft_controller::definitions::keys;
use croft_ec2_sim::world::World;
use croft_simkit::{Id, Store};
use serde_json::Value;

use crate::{budgets::Outgoing, checks, run::Limits, templates};

/// The results of the checks so far, and up to where they have read.
#[derive(Debug, Default)]
pub struct Watched {
    /// The violations of the first moment with any.
    pub broken: Vec<String>,
    /// A check let pass what no controller could have prevented.
    pub is_excused: bool,
    outgoing: Outgoing,
    /// The uids of claims that adopt no instance, by name.
    known: BTreeMap<String, String>,
    /// Era of the store, and up to where its log is read; none before the first checks.
    read: Option<(u64, usize)>,
    /// Of the world.
    revision: u64,
}

impl Watched {
    /// Checks what has changed. Returns nothing new once there is a violation.
    pub fn follow(
        &mut self,
        store: &Store,
        world: &World,
        limits: &Limits,
        cpus: &BTreeMap<String, i64>,
        now_ms: u64,
    ) {
        let end = Some((store.era, store.end()));
        let is_launched = std::mem::replace(&mut self.revision, world.revision()) != world.revision();
        if !self.broken.is_empty() || (self.read == end && !is_launched && store.broken.is_empty()) {
            return;
        }
        let mut broken = store.broken.clone();
        let is_claimed = match self.read {
            Some((era, position)) if era == store.era => self.read_on(store, position, now_ms, &mut broken),
            _ => {
                self.read_all(store, now_ms, &mut broken);
                true
            }
        };
        self.read = end;
        if is_launched {
            broken.extend(checks::launched_twice(world));
        }
        if is_launched || is_claimed {
            let known: BTreeSet<&str> = self.known.values().map(String::as_str).collect();
            let (over, is_excused) = checks::over_limits(store, world, limits, cpus, &known);
            broken.extend(over);
            broken.extend(templates::broken(store, world, limits, cpus, &known));
            self.is_excused |= is_excused;
        }
        self.is_excused |= store.excused > 0;
        self.broken = broken;
    }

    /// Looks at every object, as before the first checks and after a restore.
    fn read_all(&mut self, store: &Store, now_ms: u64, broken: &mut Vec<String>) {
        self.known.clear();
        self.outgoing.begin(store, now_ms);
        for (id, claim) in store.of_kind("NodeClaim") {
            self.look_at_claim(store, id, claim, now_ms, broken);
        }
        for (id, pod) in store.of_kind("Pod") {
            broken.extend(checks::placement(store, id, pod));
        }
    }

    /// Looks at the objects that have changed. True if there are other claims than before.
    fn read_on(&mut self, store: &Store, position: usize, now_ms: u64, broken: &mut Vec<String>) -> bool {
        let mut is_claimed = false;
        for logged in store.since(position) {
            let (id, object) = (&logged.id, &*logged.object);
            match id.0 {
                "NodeClaim" if logged.deleted => {
                    self.outgoing.forget(&id.2);
                    is_claimed |= self.known.remove(&id.2).is_some();
                }
                "NodeClaim" => is_claimed |= self.look_at_claim(store, id, object, now_ms, broken),
                "Pod" if !logged.deleted => broken.extend(checks::placement(store, id, object)),
                "Node" if !logged.deleted => {
                    let on = store
                        .of_kind("Pod")
                        .filter(|(_, pod)| pod["spec"]["nodeName"].as_str() == Some(id.2.as_str()));
                    broken.extend(on.flat_map(|(id, pod)| checks::placement(store, id, pod)));
                }
                _ => {}
            }
        }
        is_claimed
    }

    /// True if the claim is new.
    fn look_at_claim(
        &mut self,
        store: &Store,
        id: &Id,
        claim: &Value,
        now_ms: u64,
        broken: &mut Vec<String>,
    ) -> bool {
        let metadata = &claim["metadata"];
        broken.extend(checks::drift(store, &id.2, claim));
        broken.extend(self.outgoing.follow(store, &id.2, claim, now_ms));
        // A claim that adopts an instance was made when the cloud showed it: what was launched before didn't count it.
        if !metadata["annotations"][keys::ADOPTS].is_null() {
            return false;
        }
        let uid = metadata["uid"].as_str().unwrap_or_default();
        if self.known.get(&id.2).is_some_and(|known| known == uid) {
            return false;
        }
        self.known.insert(id.2.clone(), uid.to_owned());
        true
    }
}
