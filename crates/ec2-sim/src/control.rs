//! The control endpoint: what tests and users do to the cloud behind the provisioner's back.

use croft_scheduler::Price;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    faults::Rule,
    fleet::LaunchFailure,
    market::CapacityRule,
    params::wildcard,
    policy::{Policy, PolicyError},
    sqs::News,
    world::World,
};

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Control {
    /// Replace the fault rules.
    Faults {
        /// The new rules.
        rules: Vec<Rule>,
    },
    /// Replace the capacity rules; without any there is capacity for everything.
    Capacity {
        /// The new rules.
        rules: Vec<CapacityRule>,
    },
    /// Announce something about a machine, and do it in time.
    Interrupt {
        /// The machine.
        instance: String,
        /// What is announced.
        news: News,
    },
    /// End a machine without a word.
    End {
        /// The machine.
        instance: String,
    },
    /// Write tags onto an instance, as another tool of the account does.
    Tag {
        /// The instance.
        instance: String,
        /// The tags.
        tags: std::collections::BTreeMap<String, String>,
    },
    /// Let virtual time pass.
    Advance {
        /// How much, in milliseconds.
        ms: u64,
    },
    /// Fix a spot price.
    SpotPrice {
        /// Machine type.
        instance_type: String,
        /// Zone.
        zone: String,
        /// Dollars per hour.
        price: Price,
    },
    /// Let an access key (or `*`, every key) do only what a policy grants.
    Restrict {
        /// The key.
        key: String,
        /// The policy document.
        policy: Value,
    },
    /// Forbid machine types, with wildcards.
    Forbid {
        /// The types.
        instance_type: String,
    },
    /// Reserve capacity.
    Reserve {
        /// Machine type.
        instance_type: String,
        /// Zone.
        zone: String,
        /// How many machines.
        count: u32,
    },
    /// Decide whether instances that reach `running` from now on boot: without, no node ever registers.
    Boots {
        /// True if they do.
        works: bool,
    },
    /// Replace the rules on machines that end instead of running.
    LaunchFailures {
        /// The new rules.
        rules: Vec<LaunchFailure>,
    },
    /// Change quotas of the account; what is left out stays.
    Quota {
        /// vCPUs per capacity type.
        #[serde(default)]
        vcpus: Option<u32>,
        /// Launch templates.
        #[serde(default)]
        launch_templates: Option<usize>,
    },
    /// Let a subnet have so many free addresses.
    Addresses {
        /// The subnet's id, with wildcards.
        subnet: String,
        /// How many.
        free: u32,
    },
    /// Replace the tags of a security group.
    GroupTags {
        /// The security group.
        group: String,
        /// The new tags.
        tags: std::collections::BTreeMap<String, String>,
    },
    /// Let an access key be an expired one.
    Expire {
        /// The key.
        key: String,
    },
}

impl World {
    /// Does one thing. `Advance` is the clock's business and does nothing here.
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
            Control::Expire { key } => self.expire_key(&key),
        }
        Ok(())
    }

    /// What there is, for people and tests.
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
            "calls": self.calls(),
            "waitingNews": self.waiting_news(),
        })
    }
}
