//! The control endpoint, by which tests and users change the cloud independently of the provisioner.

use croft_scheduler::Price;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    capacity_rule::CapacityRule,
    faults::Rule,
    params::wildcard,
    policy::{Policy, PolicyError},
    resources::{Check, Integration, LaunchFailure, ScheduledEvent},
    sqs::News,
    world::World,
};

/// One control request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Control {
    /// Replace the fault rules.
    Faults {
        /// The new rules.
        rules: Vec<Rule>,
    },
    /// Replace the capacity rules; without any, capacity is unlimited.
    Capacity {
        /// The new rules.
        rules: Vec<CapacityRule>,
    },
    /// Announce an interruption of an instance and carry it out in time.
    Interrupt {
        /// The instance.
        instance: String,
        /// The kind of interruption.
        news: News,
    },
    /// Fail a status check of an instance, or let it pass again.
    Check {
        /// The instance.
        instance: String,
        /// The check.
        check: Check,
        /// True if it passes.
        passes: bool,
    },
    /// Schedule a change of an instance, in place of those that were scheduled. It is announced and not carried out.
    Schedule {
        /// The instance.
        instance: String,
        /// EC2's code, such as `instance-retirement`.
        code: String,
        /// Its earliest time, in milliseconds since 1970.
        not_before: u64,
    },
    /// Terminate an instance without notice.
    End {
        /// The instance.
        instance: String,
    },
    /// Write tags on an instance, as another tool of the account does.
    Tag {
        /// The instance.
        instance: String,
        /// The tags.
        tags: std::collections::BTreeMap<String, String>,
    },
    /// Advance virtual time.
    Advance {
        /// Milliseconds.
        ms: u64,
    },
    /// Fix a spot price.
    SpotPrice {
        /// Instance type.
        instance_type: String,
        /// Zone.
        zone: String,
        /// Dollars per hour.
        price: Price,
    },
    /// Restrict an access key (or `*`, every key) to what a policy grants.
    Restrict {
        /// The key.
        key: String,
        /// The policy document.
        policy: Value,
    },
    /// Forbid instance types, with wildcards.
    Forbid {
        /// The types.
        instance_type: String,
    },
    /// Reserve capacity.
    Reserve {
        /// Instance type.
        instance_type: String,
        /// Zone.
        zone: String,
        /// Number of instances.
        count: u32,
    },
    /// Decide whether instances that reach `running` from now on boot; otherwise no node registers.
    Boots {
        /// True if they boot.
        works: bool,
    },
    /// Replace the rules on instances that end instead of running.
    LaunchFailures {
        /// The new rules.
        rules: Vec<LaunchFailure>,
    },
    /// Change quotas of the account; quotas left out are kept.
    Quota {
        /// vCPUs per capacity type.
        #[serde(default)]
        vcpus: Option<u32>,
        /// Launch templates.
        #[serde(default)]
        launch_templates: Option<usize>,
    },
    /// Set the free addresses of a subnet.
    Addresses {
        /// The subnet's id, with wildcards.
        subnet: String,
        /// Number of addresses.
        free: u32,
    },
    /// Replace the tags of a security group.
    GroupTags {
        /// The security group.
        group: String,
        /// The new tags.
        tags: std::collections::BTreeMap<String, String>,
    },
    /// Replace how the account serves the cluster.
    Integrate {
        /// The new state.
        integration: Integration,
    },
    /// Expire an access key.
    Expire {
        /// The key.
        key: String,
    },
}

impl World {
    /// Carries out one request. `Advance` is handled by the server's clock and has no effect here.
    ///
    /// # Errors
    /// A policy that can't be enforced.
    pub fn control(&mut self, control: Control) -> Result<(), PolicyError> {
        match control {
            Control::Faults { rules } => self.faults.set(rules),
            Control::Capacity { rules } => {
                self.market.clear();
                for rule in rules {
                    self.market.add(rule);
                }
            }
            Control::Interrupt { instance, news } => {
                self.interrupt(&instance, news);
            }
            Control::Check { instance, check, passes } => {
                self.set_check(&instance, check, passes);
            }
            Control::Schedule { instance, code, not_before } => {
                let description = "The instance is running on degraded hardware".to_owned();
                self.schedule(&instance, vec![ScheduledEvent { code, description, not_before }]);
            }
            Control::End { instance } => {
                self.end_instance(&instance, "Server.InternalError: the host failed");
            }
            Control::Tag { instance, tags } => {
                self.tag_instance(&instance, tags);
            }
            Control::Advance { .. } => {}
            Control::SpotPrice { instance_type, zone, price } => {
                self.market.set_spot(&instance_type, &zone, price)
            }
            Control::Restrict { key, policy } => self.restrict(&key, Policy::parse(&policy.to_string())?),
            Control::Forbid { instance_type } => self.forbid_type(&instance_type),
            Control::Reserve { instance_type, zone, count } => {
                self.reserve(&instance_type, &zone, count, std::collections::BTreeMap::new());
            }
            Control::Boots { works } => self.settings.boots = works,
            Control::LaunchFailures { rules } => self.launch_failures = rules,
            Control::Quota { vcpus, launch_templates } => {
                self.settings.vcpu_quota = vcpus.or(self.settings.vcpu_quota);
                self.settings.template_quota = launch_templates.unwrap_or(self.settings.template_quota);
            }
            Control::Addresses { subnet, free } => {
                for (_, found) in self.subnets.iter_mut().filter(|(id, _)| wildcard(&subnet, id)) {
                    found.free = free;
                }
            }
            Control::GroupTags { group, tags } => {
                if let Some(held) = self.groups.get_mut(&group) {
                    held.tags = tags;
                }
            }
            Control::Integrate { integration } => self.integration = integration,
            Control::Expire { key } => self.expire_key(&key),
        }
        Ok(())
    }

    /// All resources, for people and tests.
    #[must_use]
    pub fn report(&self) -> Value {
        let region = &self.settings.region;
        let instances: Vec<Value> = self
            .instances()
            .map(|(id, i)| {
                json!({
                    "id": id, "type": i.instance_type, "zone": i.zone, "capacityType": i.capacity_type,
                    "state": i.state.as_str(), "node": i.dns_name(region), "tags": i.tags,
                    "console": i.console,
                })
            })
            .collect();
        json!({
            "instances": instances,
            "launchTemplates": self.templates.keys().collect::<Vec<_>>(),
            "instanceProfiles": self.profiles.keys().collect::<Vec<_>>(),
            "integration": self.integration,
            "calls": self.calls(),
            "waitingNews": self.waiting_news(),
        })
    }
}
