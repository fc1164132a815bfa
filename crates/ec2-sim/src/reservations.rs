//! Capacity reservations.

use std::collections::BTreeMap;

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::{all, page},
    resources::Reservation,
    world::World,
    xml::Xml,
};

impl World {
    /// Reserves capacity.
    pub fn reserve(
        &mut self,
        instance_type: &str,
        zone: &str,
        count: u32,
        tags: BTreeMap<String, String>,
    ) -> String {
        let id = self.new_id("cr");
        let reservation = Reservation {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            total: count,
            free: count,
            active: true,
            tags,
        };
        self.reservations.insert(id.clone(), reservation);
        id
    }

    /// Ends a capacity reservation, as its date does.
    pub fn end_reservation(&mut self, id: &str) {
        if let Some(reservation) = self.reservations.get_mut(id) {
            reservation.active = false;
        }
    }

    pub(crate) fn describe_reservations(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let filters = call.params.filters();
        let ids = call.params.list("CapacityReservationId");
        if let Some(id) = ids.iter().find(|id| !self.reservations.contains_key(*id)) {
            return Err(Refusal::new(
                "InvalidCapacityReservationId.NotFound",
                format!("The capacity reservation ID '{id}' does not exist"),
            ));
        }
        let state = |r: &Reservation| if r.active { "active" } else { "expired" };
        let mut found = Vec::new();
        for (id, r) in self.reservations.iter().filter(|(id, _)| ids.is_empty() || ids.contains(id)) {
            let fits = all(&filters, |f| {
                f.matches_tags(&r.tags).or_else(|| match f.name.as_str() {
                    "state" => Some(f.matches([state(r)])),
                    "instance-type" => Some(f.matches([r.instance_type.as_str()])),
                    "availability-zone" => Some(f.matches([r.zone.as_str()])),
                    _ => None,
                })
            })?;
            if fits {
                found.push((id.clone(), r.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let account = self.settings.account.clone();
        let mut xml = Xml::new();
        xml.items("capacityReservationSet", found, |xml, (id, r)| {
            xml.leaf("capacityReservationId", &id)
                .leaf("ownerId", &account)
                .leaf("instanceType", &r.instance_type)
                .leaf("instancePlatform", "Linux/UNIX")
                .leaf("availabilityZone", &r.zone)
                .leaf("tenancy", "default")
                .leaf("totalInstanceCount", r.total)
                .leaf("availableInstanceCount", r.free)
                .leaf("state", state(&r))
                .leaf("endDateType", "unlimited")
                .leaf("instanceMatchCriteria", "open")
                .tags(&r.tags);
        });
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }
}
