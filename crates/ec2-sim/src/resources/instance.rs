//! Instances and their life-cycle states.

use std::collections::BTreeMap;

use croft_scheduler::CapacityType;

use super::{
    launch::TemplateData,
    status::{FailedChecks, ScheduledEvent},
};
use crate::{params::Filter, xml::Xml};

/// An instance.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet: String,
    /// Private IPv4 address.
    pub address: String,
    /// Image.
    pub image: String,
    /// Capacity type; a reserved instance is on-demand with a reservation.
    pub capacity_type: CapacityType,
    /// The capacity reservation that it uses, if any.
    pub reservation: Option<String>,
    /// State.
    pub state: State,
    /// Time of the last change of state, in milliseconds since 1970.
    pub since: u64,
    /// Launch time.
    pub launched: u64,
    /// Time at which it began to terminate.
    pub ended: Option<u64>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// Tags of its volumes, its network interfaces and, for spot, its request.
    pub parts: BTreeMap<String, BTreeMap<String, String>>,
    /// The data of its launch template.
    pub data: TemplateData,
    /// The token of the call that launched it.
    pub token: Option<String>,
    /// Its console output.
    pub console: String,
    /// Why it ends: EC2's code, a colon, and a message.
    pub reason: String,
    /// The reason with which it will end instead of running.
    pub fails: Option<String>,
    /// Time at which spot interrupts it, after its warning.
    pub doomed: Option<u64>,
    /// Its status checks that fail.
    pub failed_checks: FailedChecks,
    /// Changes that are scheduled for it.
    pub scheduled: Vec<ScheduledEvent>,
}

/// Life-cycle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// Terminating.
    ShuttingDown,
    /// Terminated, still visible.
    Terminated,
}

impl State {
    /// True until it terminates.
    #[must_use]
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }

    /// EC2's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.code().1
    }

    fn code(self) -> (u32, &'static str) {
        match self {
            Self::Pending => (0, "pending"),
            Self::Running => (16, "running"),
            Self::ShuttingDown => (32, "shutting-down"),
            Self::Terminated => (48, "terminated"),
        }
    }

    pub(crate) fn write(self, xml: &mut Xml, name: &str) {
        let (code, word) = self.code();
        xml.node(name, |xml| {
            xml.leaf("code", code).leaf("name", word);
        });
    }
}

impl Instance {
    /// The private DNS name in `region`.
    #[must_use]
    pub fn dns_name(&self, region: &str) -> String {
        let domain = if region == "us-east-1" { "ec2".to_owned() } else { format!("{region}.compute") };
        format!("ip-{}.{domain}.internal", self.address.replace('.', "-"))
    }

    pub(crate) fn matches(&self, id: &str, region: &str, filter: &Filter) -> Option<bool> {
        filter.matches_tags(&self.tags).or_else(|| match filter.name.as_str() {
            "instance-id" => Some(filter.matches([id])),
            "instance-state-name" => Some(filter.matches([self.state.as_str()])),
            "instance-type" => Some(filter.matches([self.instance_type.as_str()])),
            "availability-zone" => Some(filter.matches([self.zone.as_str()])),
            "client-token" => Some(filter.matches(self.token.as_deref())),
            "private-dns-name" => Some(filter.matches([self.dns_name(region).as_str()])),
            _ => None,
        })
    }
}
