//! The answer of CreateFleet: an instance, or why there is none, and what it changes in the provider's memory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_cloud::{Fault, FaultClass, LaunchError, Launched, OfferingKey, Prepared};
use croft_scheduler::CapacityType;
use tokio::time::Instant;

use crate::{
    instances::{self, DescribedInstance},
    launch::{Plan, fleet},
    profile,
    provider::AwsProvider,
    refusal,
};

/// Time within which a launched instance becomes visible.
const SHOWS_WITHIN: Duration = Duration::from_secs(8);

impl AwsProvider {
    pub(crate) async fn send_launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        let plan = Plan::read(prepared).map_err(|error| LaunchError::Refused {
            claim: String::new(),
            fault: refusal::of_code(
                "CreateFleet",
                "InvalidParameterValue".to_owned(),
                format!("the stored request can't be read: {error}"),
                None,
            ),
        })?;
        self.paces.launch.turn().await;
        let answer = match fleet(&self.clients.ec2, &plan).send().await {
            Ok(answer) => {
                self.paces.launch.passed();
                self.paces.launch.count("CreateFleet", None);
                answer
            }
            Err(error) => {
                let unknown = refusal::may_have_worked(&error);
                let fault = refusal::fault("CreateFleet", &error);
                self.paces.launch.count("CreateFleet", Some(fault.class));
                if fault.class == FaultClass::Throttled {
                    self.paces.launch.throttled();
                }
                self.give_back(&plan);
                return Err(self.refused_fleet(&plan, fault, unknown));
            }
        };
        let ids: Vec<String> =
            answer.instances().iter().flat_map(|i| i.instance_ids().iter().cloned()).collect();
        let mut faults: Vec<(OfferingKey, String, Fault)> = Vec::new();
        for error in answer.errors() {
            let code = error.error_code().unwrap_or_default().to_owned();
            let fault = refusal::of_code(
                "CreateFleet",
                code,
                error.error_message().unwrap_or_default().to_owned(),
                Some(400),
            );
            let o = error.launch_template_and_overrides().and_then(|l| l.overrides());
            let subnet = o.and_then(|o| o.subnet_id()).unwrap_or_default().to_owned();
            let name = o.and_then(|o| o.instance_type()).map(|t| t.as_str().to_owned()).unwrap_or_default();
            // The answer has the zone only if the request did.
            let zone = plan.zone_of(&subnet).unwrap_or_default();
            faults.push((
                OfferingKey { instance_type: name, zone, capacity_type: plan.capacity_type },
                subnet,
                fault,
            ));
        }
        self.learn(&plan, &answer, &faults);
        match ids.first() {
            Some(id) => {
                let launched = self.wait_until_shown(&plan, id).await?;
                self.memory().refusals.remove(plan.class());
                Ok(launched)
            }
            None => Err(self.nothing_launched(&plan, faults)),
        }
    }

    /// The same request will never be accepted, so the class's condition shows this until a launch of it is.
    fn refused(&self, plan: &Plan, fault: Fault) -> LaunchError {
        self.memory().refusals.insert(plan.class().to_owned(), fault.clone());
        LaunchError::Refused { claim: plan.claim.clone(), fault }
    }

    /// The launch error for a refusal of the whole call.
    fn refused_fleet(&self, plan: &Plan, fault: Fault, unknown: bool) -> LaunchError {
        let claim = plan.claim.clone();
        match fault.class {
            FaultClass::TokenReused => LaunchError::Unknown { claim, fault },
            FaultClass::Throttled => LaunchError::Later { claim, after: self.paces.launch.pause(), fault },
            FaultClass::Unauthenticated => {
                self.memory().refusals.insert(plan.class().to_owned(), fault.clone());
                LaunchError::Later { claim, after: self.paces.launch.pause(), fault }
            }
            FaultClass::Unavailable if unknown => LaunchError::Unknown { claim, fault },
            FaultClass::Unavailable => LaunchError::Later { claim, after: self.paces.launch.pause(), fault },
            FaultClass::NoCapacity | FaultClass::Quota => {
                let offerings = plan.keys();
                let now = self.now();
                let mut memory = self.memory();
                for key in &offerings {
                    memory.offerings.refused(key, now, &fault);
                }
                LaunchError::NoCapacity { claim, offerings, fault }
            }
            FaultClass::NotFound => {
                // Cached findings are stale: the next attempt looks everything up again.
                self.forget(plan);
                LaunchError::Refused { claim, fault }
            }
            _ => self.refused(plan, fault),
        }
    }

    fn forget(&self, plan: &Plan) {
        self.subnets.clear();
        self.groups.clear();
        self.images.clear();
        self.profiles.clear();
        let mut memory = self.memory();
        for (name, _) in &plan.configs {
            memory.templates.remove(name);
        }
    }

    /// Probes that were not sent are released for other launches.
    fn give_back(&self, plan: &Plan) {
        let mut memory = self.memory();
        for key in plan.keys() {
            memory.offerings.release(&key);
        }
    }

    /// Marks offerings without capacity unavailable, and available again if an instance was launched.
    fn learn(
        &self,
        plan: &Plan,
        answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput,
        faults: &[(OfferingKey, String, Fault)],
    ) {
        let now = self.now();
        self.give_back(plan);
        if plan.capacity_type == CapacityType::Reserved {
            // The rest of the reservations has changed, or wasn't what was cached.
            self.reservations.outdate();
        }
        let mut memory = self.memory();
        for (key, subnet, fault) in faults {
            match fault.class {
                FaultClass::NoCapacity if fault.code == "InsufficientFreeAddressesInSubnet" => {
                    memory.subnets.refused(subnet, now, fault);
                }
                FaultClass::NoCapacity | FaultClass::Quota => memory.offerings.refused(key, now, fault),
                _ => {}
            }
        }
        for launched in answer.instances() {
            let o = launched.launch_template_and_overrides().and_then(|l| l.overrides());
            let name = launched.instance_type().or_else(|| o.and_then(|o| o.instance_type()));
            let subnet = o.and_then(|o| o.subnet_id()).unwrap_or_default();
            if let (Some(name), Some(zone)) = (name, plan.zone_of(subnet)) {
                let instance_type = name.as_str().to_owned();
                memory.offerings.succeeded(&OfferingKey {
                    instance_type,
                    zone,
                    capacity_type: plan.capacity_type,
                });
                memory.subnets.succeeded(&subnet.to_owned());
            }
        }
    }

    /// The launch error for an answer without an instance.
    fn nothing_launched(&self, plan: &Plan, mut faults: Vec<(OfferingKey, String, Fault)>) -> LaunchError {
        let claim = plan.claim.clone();
        let profile_unknown = |f: &Fault| {
            f.code == "InvalidParameterValue" && f.message.to_ascii_lowercase().contains("instance profile")
        };
        let young = self.memory().new_profiles.values().any(|made| made.elapsed() < profile::SETTLES);
        if let Some((_, _, fault)) = faults.iter().find(|(_, _, f)| profile_unknown(f)) {
            if young {
                // A token keeps its answer, so this is a definite refusal, and the next attempt uses another token.
                let fault = Fault {
                    class: FaultClass::NotFound,
                    meaning: "EC2 doesn't know the new instance profile yet",
                    remedy: "Croft tries again; nothing to do",
                    ..fault.clone()
                };
                return LaunchError::Refused { claim, fault };
            }
            // It was deleted, or made in another account by credentials of before: the class makes it again.
            self.profiles.clear();
        }
        if faults.is_empty() {
            return empty_answer(claim);
        }
        let offerings: Vec<OfferingKey> =
            faults.iter().filter(|(_, _, f)| is_scarce(f)).map(|(key, _, _)| key.clone()).collect();
        faults.sort_by_key(|(_, _, fault)| rank(fault));
        let fault = together(faults.into_iter().map(|(_, _, fault)| fault));
        match fault.class {
            FaultClass::Unauthenticated | FaultClass::Forbidden => self.refused(plan, fault),
            FaultClass::NotFound => {
                self.forget(plan);
                LaunchError::Refused { claim, fault }
            }
            // If some offerings had no capacity and others were refused for good, the next attempt has others to try.
            _ if !offerings.is_empty() => LaunchError::NoCapacity { claim, offerings, fault },
            // The token keeps this answer, so even a transient refusal needs a new attempt.
            _ => self.refused(plan, fault),
        }
    }

    /// The instance from DescribeInstances, once it is visible there: CreateFleet's answer doesn't have its name.
    async fn wait_until_shown(&self, plan: &Plan, id: &str) -> Result<Launched, LaunchError> {
        let deadline = Instant::now() + SHOWS_WITHIN;
        let mut pause = Duration::from_millis(50);
        let unknown = |fault| LaunchError::Unknown { claim: plan.claim.clone(), fault };
        let ask =
            async |ids: Vec<String>| instances::by_id(&self.clients, &self.paces, &ids).await.map(Arc::new);
        loop {
            match self.batches.by_id.join(id.to_owned(), ask).await {
                Ok(seen) => match seen.iter().find(|s| s.instance.id == id) {
                    Some(seen) if !seen.instance.state.is_alive() => return Err(self.dead(plan, seen)),
                    Some(seen) if !seen.instance.node_name.is_empty() => {
                        return Ok(self.describe_launched(seen.clone()).await);
                    }
                    _ => {}
                },
                Err(fault) if fault.class.passes_by_itself() => {}
                Err(fault) => return Err(unknown(fault)),
            }
            if Instant::now() + pause > deadline {
                let message = format!("instance {id} was launched and is not visible yet");
                return Err(unknown(refusal::of_code(
                    "DescribeInstances",
                    "InvalidInstanceID.NotFound".to_owned(),
                    message,
                    None,
                )));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// The instance was launched and terminated at once: EC2 finds some faults only then.
    fn dead(&self, plan: &Plan, seen: &DescribedInstance) -> LaunchError {
        let instance = &seen.instance;
        let (code, words) = &seen.reason;
        let code = if code.is_empty() { "IdempotentInstanceTerminated" } else { code };
        let message = format!("instance {} is {:?}: {words}", instance.id, instance.state);
        let fault = refusal::of_code("CreateFleet", code.to_owned(), message, Some(400));
        if !is_scarce(&fault) {
            return self.refused(plan, fault);
        }
        let offering = OfferingKey {
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            capacity_type: plan.capacity_type,
        };
        let now = self.now();
        self.memory().offerings.refused(&offering, now, &fault);
        LaunchError::NoCapacity { claim: plan.claim.clone(), offerings: vec![offering], fault }
    }
}

fn is_scarce(fault: &Fault) -> bool {
    matches!(fault.class, FaultClass::NoCapacity | FaultClass::Quota)
}

/// Order in which refusals are reported: first what stops every launch, then what a user can change, then what is
/// transient.
fn rank(fault: &Fault) -> u8 {
    match fault.class {
        FaultClass::Unauthenticated => 0,
        FaultClass::Forbidden => 1,
        FaultClass::NotFound => 2,
        FaultClass::Quota => 3,
        FaultClass::NoCapacity => 4,
        FaultClass::Invalid | FaultClass::Exists | FaultClass::TokenReused => 5,
        FaultClass::Throttled | FaultClass::Unavailable => 6,
    }
}

/// The first of several refusals, with the codes of the others in its message.
fn together(faults: impl IntoIterator<Item = Fault>) -> Fault {
    let mut faults = faults.into_iter();
    let Some(mut first) = faults.next() else { return nothing() };
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for fault in faults.filter(|f| f.code != first.code) {
        *others.entry(fault.code).or_default() += 1;
    }
    for (code, times) in others {
        let again = if times > 1 { format!(" {times} times") } else { String::new() };
        first.message.push_str(&format!("; also {code}{again}"));
    }
    first
}

fn nothing() -> Fault {
    let message = "neither an instance nor an error was in the answer".to_owned();
    refusal::of_code("CreateFleet", "UnfulfillableCapacity".to_owned(), message, None)
}

fn empty_answer(claim: String) -> LaunchError {
    LaunchError::NoCapacity { claim, offerings: Vec::new(), fault: nothing() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: &str) -> Fault {
        refusal::of_code("CreateFleet", code.to_owned(), "words".to_owned(), Some(400))
    }

    #[test]
    fn fatal_refusal_is_reported_before_transient_ones() {
        let mut faults: Vec<Fault> = [
            "InvalidParameterValue",
            "InsufficientInstanceCapacity",
            "UnfulfillableCapacity",
            "InsufficientInstanceCapacity",
            "UnauthorizedOperation",
            "VcpuLimitExceeded",
        ]
        .map(fault)
        .into();
        faults.sort_by_key(rank);
        let told = together(faults);
        assert_eq!(told.class, FaultClass::Forbidden);
        assert_eq!(
            told.message,
            "words; also InsufficientInstanceCapacity 2 times; also InvalidParameterValue; also UnfulfillableCapacity; also VcpuLimitExceeded"
        );
        let scarce = together([fault("VcpuLimitExceeded"), fault("VcpuLimitExceeded")]);
        assert_eq!(scarce.message, "words", "the same again is no news");
    }
}
