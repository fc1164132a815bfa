//! Dispatches each call to the service that answers it.

use crate::{
    answer::{Answer, Call, Outcome, Refusal, Service},
    faults::Cut,
    random::next,
    world::World,
};

impl World {
    /// Answers one call at `now`. Also returns the answer's latency in milliseconds.
    pub fn handle(&mut self, call: &Call, now: u64) -> (Answer, u64) {
        self.advance(now);
        *self.calls.entry(format!("{}:{}", call.service.prefix(), call.action)).or_default() += 1;
        let (faults, rng) = (&mut self.faults, &mut self.rng);
        let effect = faults.strike(&call.action, || u32::try_from(next(rng) % 1000).unwrap_or_default());
        let answer = match (effect.cut, effect.error) {
            (Some(Cut::Before), _) => Answer::Aborted,
            (Some(Cut::After), _) => {
                // The call takes effect; only the answer is lost.
                let _lost = self.act(call);
                Answer::Aborted
            }
            (None, Some(code)) => Answer::Refused(Refusal::new(&code, "simulated fault")),
            (None, None) => self.act(call).unwrap_or_else(Answer::Refused),
        };
        (answer, effect.latency_ms)
    }

    /// Answers a call that the server repeats itself, without counting it and without faults.
    pub(crate) fn handle_quietly(&mut self, call: &Call, now: u64) -> Answer {
        self.advance(now);
        self.act(call).unwrap_or_else(Answer::Refused)
    }

    fn act(&mut self, call: &Call) -> Outcome {
        self.authenticate(call)?;
        match call.service {
            Service::Ec2 => self.ec2(call),
            Service::Ssm => self.ssm(call),
            Service::Sqs => self.sqs(call),
            Service::Pricing => self.pricing(call),
            Service::Iam => self.iam(call),
            Service::Sts => self.sts(call),
            Service::Eks if call.action == "DescribeCluster" => self.eks(call),
            Service::Eks => self.eks_reads(call),
            Service::Events => self.events(call),
        }
    }

    fn ec2(&mut self, call: &Call) -> Outcome {
        match call.action.as_str() {
            "CreateFleet" => self.create_fleet(call),
            "RunInstances" => self.run_instances(call),
            "DescribeInstances" => self.describe_instances(call),
            "DescribeInstanceStatus" => self.describe_instance_status(call),
            "TerminateInstances" => self.terminate_instances(call),
            "CreateTags" => self.create_tags(call),
            "DescribeInstanceTypes" => self.describe_instance_types(call),
            "DescribeInstanceTypeOfferings" => self.describe_offerings(call),
            "DescribeSpotPriceHistory" => self.describe_spot_prices(call),
            "DescribeSubnets" => self.describe_subnets(call),
            "DescribeSecurityGroups" => self.describe_groups(call),
            "DescribeImages" => self.describe_images(call),
            "CreateLaunchTemplate" => self.create_template(call),
            "DescribeLaunchTemplates" => self.describe_templates(call),
            "DeleteLaunchTemplate" => self.delete_template(call),
            "DescribeRouteTables" => self.describe_route_tables(call),
            "DescribeVpcEndpoints" => self.describe_vpc_endpoints(call),
            "DescribeCapacityReservations" => self.describe_reservations(call),
            "GetConsoleOutput" => self.console_output(call),
            other => Err(Refusal::new(
                "InvalidAction",
                format!("The action {other} is not valid for this web service"),
            )),
        }
    }

    fn authenticate(&self, call: &Call) -> Result<(), Refusal> {
        let query = call.service == Service::Ec2;
        if call.access_key.is_empty() {
            let code = if query { "AuthFailure" } else { "MissingAuthenticationToken" };
            return Err(Refusal::new(code, "The request is not signed"));
        }
        if self.expired_keys.contains(&call.access_key) {
            let code = if query { "RequestExpired" } else { "ExpiredToken" };
            return Err(Refusal::new(code, "The security token included in the request is expired"));
        }
        Ok(())
    }
}
