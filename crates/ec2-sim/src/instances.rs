//! Life cycle of instances, and the calls that describe and terminate them.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_scheduler::CapacityType;

use crate::{
    answer::{Call, Outcome, Refusal},
    bill::Charge,
    describe::{all, iso, page},
    policy::Demand,
    resources::{Instance, State, VPC},
    world::{Happening, World, end_dry_run},
    xml::Xml,
};

/// Time that a terminated instance stays visible.
const VISIBLE_MS: u64 = 3_600_000;

/// Why the state changed last. EC2 says when, if a user asked for it.
fn transition_reason(instance: &Instance) -> String {
    match instance.ended.filter(|_| instance.reason.starts_with("Client.UserInitiatedShutdown")) {
        Some(at) => {
            let at = jiff::Timestamp::from_second(i64::try_from(at / 1000).unwrap_or_default())
                .unwrap_or_default();
            format!("User initiated ({} GMT)", at.strftime("%Y-%m-%d %H:%M:%S"))
        }
        None => instance.reason.clone(),
    }
}

impl World {
    /// The charges of every instance that has been launched, in the order of their launches.
    #[must_use]
    pub fn bill(&self) -> &[Charge] {
        self.bill.charges()
    }

    /// An instance.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// Every visible instance.
    pub fn instances(&self) -> impl Iterator<Item = (&String, &Instance)> {
        self.instances.iter()
    }

    /// Appends to an instance's console output.
    pub fn write_console(&mut self, id: &str, line: &str) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.console.push_str(line);
            instance.console.push('\n');
        }
    }

    pub(crate) fn advance_instances(&mut self) {
        let doomed: Vec<String> = self
            .instances
            .iter()
            .filter(|(_, i)| i.state.is_alive() && i.doomed.is_some_and(|at| self.now >= at))
            .map(|(id, _)| id.clone())
            .collect();
        for id in doomed {
            self.end_instance(&id, "Server.SpotInstanceTermination: Instance terminated by Spot");
        }
        let (now, settings) = (self.now, &self.settings);
        let mut freed = Vec::new();
        let mut failed = Vec::new();
        for (id, instance) in &mut self.instances {
            if instance.state == State::Pending
                && now >= instance.since + settings.running_after_ms
                && let Some(reason) = instance.fails.take()
            {
                instance.state = State::Terminated;
                instance.since += settings.running_after_ms;
                instance.reason = reason;
                self.revision += 1;
                freed.push((instance.subnet.clone(), instance.reservation.clone()));
                failed.push(id.clone());
            }
            if instance.state == State::Pending && now >= instance.since + settings.running_after_ms {
                instance.state = State::Running;
                instance.since += settings.running_after_ms;
                self.happenings.push(Happening::Running(id.clone()));
            }
            if instance.state == State::ShuttingDown && now >= instance.since + settings.terminated_after_ms {
                instance.state = State::Terminated;
                instance.since += settings.terminated_after_ms;
                freed.push((instance.subnet.clone(), instance.reservation.clone()));
            }
        }
        for id in failed {
            self.bill.cancel(&id);
            self.announce_state(&id, "terminated");
        }
        for (subnet, reservation) in freed {
            if let Some(subnet) = self.subnets.get_mut(&subnet) {
                subnet.free += 1;
            }
            if let Some(reservation) = reservation.and_then(|id| self.reservations.get_mut(&id)) {
                reservation.free += 1;
            }
        }
        self.instances.retain(|_, i| i.state != State::Terminated || now < i.since + VISIBLE_MS);
    }

    /// Time of the next change of an instance's state, at which the caller has to wake up.
    #[must_use]
    pub fn next_change(&self) -> Option<u64> {
        self.instances
            .values()
            .flat_map(|i| {
                let next = match i.state {
                    State::Pending => Some(i.since + self.settings.running_after_ms),
                    State::ShuttingDown => Some(i.since + self.settings.terminated_after_ms),
                    _ => None,
                };
                next.into_iter().chain(i.doomed.filter(|_| i.state.is_alive()))
            })
            .min()
    }

    /// Begins to terminate an instance, with the `reason` that DescribeInstances shows.
    pub fn end_instance(&mut self, id: &str, reason: &str) -> bool {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id).filter(|i| i.state.is_alive()) else { return false };
        instance.state = State::ShuttingDown;
        instance.since = now;
        instance.ended = Some(now);
        self.bill.end(id, now);
        self.revision += 1;
        reason.clone_into(&mut instance.reason);
        self.happenings.push(Happening::Gone(id.to_owned()));
        self.announce_state(id, "shutting-down");
        true
    }

    /// Writes tags on an instance, over existing ones. Returns false if it doesn't exist.
    pub fn tag_instance(&mut self, id: &str, tags: BTreeMap<String, String>) -> bool {
        let Some(instance) = self.instances.get_mut(id) else { return false };
        instance.tags.extend(tags);
        self.revision += 1;
        true
    }

    pub(crate) fn describe_instances(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let ids = call.params.list("InstanceId");
        let visible = self.now.saturating_sub(self.settings.consistency_ms);
        for id in &ids {
            if self.instances.get(id).is_none_or(|i| i.launched > visible) {
                return Err(not_found(id));
            }
        }
        let filters = call.params.filters();
        let region = self.settings.region.clone();
        let mut found = Vec::new();
        for (id, instance) in self.instances.iter().filter(|(_, i)| i.launched <= visible) {
            if (ids.is_empty() || ids.contains(id)) && all(&filters, |f| instance.matches(id, &region, f))? {
                found.push((id.clone(), instance.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let mut xml = Xml::new();
        xml.items("reservationSet", found, |xml, (id, instance)| {
            xml.leaf("reservationId", id.replacen("i-", "r-", 1)).leaf("ownerId", &self.settings.account);
            xml.items("instancesSet", [()], |xml, ()| self.write_instance(xml, &id, &instance));
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    fn write_instance(&self, xml: &mut Xml, id: &str, i: &Instance) {
        let dns = i.dns_name(&self.settings.region);
        let arch = self.market.entry(&i.instance_type).map_or("x86_64", |e| e.facts.arch.as_ec2());
        let gone = i.state == State::Terminated;
        xml.leaf("instanceId", id).leaf("imageId", &i.image);
        i.state.write(xml, "instanceState");
        // EC2 assigns a terminated instance's name and address to others.
        xml.leaf("privateDnsName", if gone { "" } else { &dns })
            .leaf("reason", transition_reason(i))
            .leaf("instanceType", &i.instance_type)
            .leaf("launchTime", iso(i.launched))
            .node("placement", |xml| {
                xml.leaf("availabilityZone", &i.zone).leaf("tenancy", "default");
            })
            .leaf("architecture", arch)
            .leaf("vpcId", VPC);
        if !gone {
            xml.leaf("subnetId", &i.subnet).leaf("privateIpAddress", &i.address);
        }
        xml.maybe("clientToken", i.token.as_deref());
        if !i.reason.is_empty() {
            let code = i.reason.split(':').next().unwrap_or_default();
            xml.node("stateReason", |xml| {
                xml.leaf("code", code).leaf("message", &i.reason);
            });
        }
        if !gone {
            xml.items("networkInterfaceSet", 0..i.data.efas.max(1), |xml, card| {
                xml.leaf("status", "in-use")
                    .leaf("interfaceType", if i.data.efas > 0 { "efa" } else { "interface" })
                    .node("attachment", |xml| {
                        xml.leaf("deviceIndex", u32::from(card > 0)).leaf("networkCardIndex", card);
                    });
            });
        }
        if i.capacity_type == CapacityType::Spot {
            xml.leaf("instanceLifecycle", "spot");
        }
        xml.maybe("capacityReservationId", i.reservation.as_deref());
        xml.node("capacityReservationSpecification", |xml| {
            xml.leaf("capacityReservationPreference", i.data.reservation.as_deref().unwrap_or("open"));
        });
        if let Some(profile) = &i.data.profile {
            let arn = format!("arn:aws:iam::{}:instance-profile/{profile}", self.settings.account);
            xml.node("iamInstanceProfile", |xml| {
                xml.leaf("arn", arn).leaf("id", "AIPA00000000000000000");
            });
        }
        xml.items("groupSet", &i.data.groups, |xml, group| {
            xml.leaf("groupId", group);
        });
        xml.node("metadataOptions", |xml| {
            xml.leaf("state", "applied")
                .leaf("httpTokens", &i.data.http_tokens)
                .leaf("httpPutResponseHopLimit", i.data.hop_limit)
                .leaf("httpEndpoint", "enabled");
        });
        xml.tags(&i.tags);
    }

    pub(crate) fn terminate_instances(&mut self, call: &Call) -> Outcome {
        let ids = call.params.list("InstanceId");
        if ids.is_empty() {
            return Err(Refusal::missing("InstanceId"));
        }
        if let Some(id) = ids.iter().find(|id| !self.instances.contains_key(*id)) {
            return Err(not_found(id));
        }
        for id in &ids {
            let tags = self.instances.get(id).map(|i| i.tags.clone()).unwrap_or_default();
            let demand = Demand::new("ec2:TerminateInstances", self.arn("instance", id))
                .with_tags("aws:ResourceTag", &tags);
            self.require(call, &demand)?;
        }
        end_dry_run(call)?;
        let before: Vec<(String, Option<State>)> =
            ids.iter().map(|id| (id.clone(), self.instances.get(id).map(|i| i.state))).collect();
        for id in &ids {
            self.end_instance(id, "Client.UserInitiatedShutdown: User initiated shutdown");
        }
        let mut xml = Xml::new();
        xml.items("instancesSet", before, |xml, (id, previous)| {
            let current = self.instances.get(&id).map(|i| i.state);
            xml.leaf("instanceId", &id);
            current.unwrap_or(State::Terminated).write(xml, "currentState");
            previous.unwrap_or(State::Terminated).write(xml, "previousState");
        });
        Ok(xml.into())
    }

    pub(crate) fn create_tags(&mut self, call: &Call) -> Outcome {
        let tags = call.params.tags("Tag");
        let ids = call.params.list("ResourceId");
        for id in &ids {
            let (kind, have) = if let Some(instance) = self.instances.get(id) {
                ("instance", instance.tags.clone())
            } else if let Some(template) = self.templates.values().find(|t| t.id == *id) {
                ("launch-template", template.tags.clone())
            } else {
                return Err(not_found(id));
            };
            if tags.keys().any(|key| key.starts_with("aws:")) {
                return Err(Refusal::new(
                    "InvalidParameterValue",
                    "Tag keys starting with 'aws:' are reserved",
                ));
            }
            let demand = Demand::new("ec2:CreateTags", self.arn(kind, id))
                .with_tags("aws:ResourceTag", &have)
                .with_tags("aws:RequestTag", &tags);
            self.require(call, &demand)?;
        }
        end_dry_run(call)?;
        for id in &ids {
            if let Some(instance) = self.instances.get_mut(id) {
                instance.tags.extend(tags.clone());
                self.revision += 1;
            } else if let Some(template) = self.templates.values_mut().find(|t| t.id == *id) {
                template.tags.extend(tags.clone());
            }
        }
        let mut xml = Xml::new();
        xml.leaf("return", true);
        Ok(xml.into())
    }

    pub(crate) fn console_output(&mut self, call: &Call) -> Outcome {
        let id = call.params.get("InstanceId").ok_or_else(|| Refusal::missing("InstanceId"))?.to_owned();
        self.require(call, &Demand::new("ec2:GetConsoleOutput", self.arn("instance", &id)))?;
        let instance = self.instances.get(&id).ok_or_else(|| not_found(&id))?;
        let mut xml = Xml::new();
        xml.leaf("instanceId", &id)
            .leaf("timestamp", iso(self.now))
            .leaf("output", STANDARD.encode(&instance.console));
        Ok(xml.into())
    }
}

fn not_found(id: &str) -> Refusal {
    Refusal::new("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
}
