//! Status checks of instances, and the changes that are scheduled for them.

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::{all, iso, page},
    resources::{Check, ScheduledEvent, State},
    world::World,
    xml::Xml,
};

impl World {
    /// Has a status check of an instance fail from now on, or pass. Returns false if the instance doesn't exist.
    pub fn set_check(&mut self, id: &str, check: Check, passes: bool) -> bool {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id) else { return false };
        if passes {
            instance.failed_checks.remove(&check);
        } else {
            instance.failed_checks.entry(check).or_insert(now);
        }
        self.revision += 1;
        true
    }

    /// Replaces the scheduled changes of an instance. Returns false if it doesn't exist. None is carried out.
    pub fn schedule(&mut self, id: &str, events: Vec<ScheduledEvent>) -> bool {
        let Some(instance) = self.instances.get_mut(id) else { return false };
        instance.scheduled = events;
        self.revision += 1;
        true
    }

    /// Running instances alone, as EC2 does without `IncludeAllInstances`.
    pub(crate) fn describe_instance_status(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let ids = call.params.list("InstanceId");
        if !ids.is_empty() && call.params.get("MaxResults").is_some() {
            return Err(Refusal::new(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            ));
        }
        let filters = call.params.filters();
        let region = self.settings.region.clone();
        let visible = self.now.saturating_sub(self.settings.consistency_ms);
        let mut found = Vec::new();
        for (id, instance) in self.instances.iter().filter(|(_, i)| i.launched <= visible) {
            let asked = ids.is_empty() || ids.contains(id);
            let name = |name: &str| matches!(name, "instance-state-name" | "availability-zone");
            let fits = all(&filters, |f| instance.matches(id, &region, f).filter(|_| name(&f.name)))?;
            if asked && fits && instance.state == State::Running {
                found.push((id.clone(), instance.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let mut xml = Xml::new();
        xml.items("instanceStatusSet", found, |xml, (id, instance)| {
            xml.leaf("instanceId", &id).leaf("availabilityZone", &instance.zone);
            if !instance.scheduled.is_empty() {
                xml.items("eventsSet", &instance.scheduled, |xml, event| {
                    xml.leaf("code", &event.code)
                        .leaf("description", &event.description)
                        .leaf("notBefore", iso(event.not_before));
                });
            }
            instance.state.write(xml, "instanceState");
            for (check, name) in [
                (Check::System, "systemStatus"),
                (Check::Instance, "instanceStatus"),
                (Check::Ebs, "attachedEbsStatus"),
            ] {
                write_check(xml, name, instance.failed_checks.get(&check).copied());
            }
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }
}

fn write_check(xml: &mut Xml, name: &str, failed_since: Option<u64>) {
    let (summary, detail) = if failed_since.is_some() { ("impaired", "failed") } else { ("ok", "passed") };
    xml.node(name, |xml| {
        xml.leaf("status", summary).items("details", [()], |xml, ()| {
            xml.leaf("name", "reachability").leaf("status", detail);
            xml.maybe("impairedSince", failed_since.map(iso));
        });
    });
}
