//! Launch templates.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::{all, iso, page},
    params::Params,
    policy::Demand,
    resources::{Template, TemplateData},
    world::{World, end_dry_run},
    xml::Xml,
};

/// EC2's limit of user data, before encoding.
const USER_DATA_BYTES: usize = 16 * 1024;

impl World {
    /// Sets the creation time of every launch template to 1970.
    pub fn age_templates(&mut self) {
        for template in self.templates.values_mut() {
            template.made = 0;
        }
    }

    pub(crate) fn create_template(&mut self, call: &Call) -> Outcome {
        let name =
            call.params.get("LaunchTemplateName").ok_or_else(|| Refusal::missing("LaunchTemplateName"))?;
        let name = name.to_owned();
        let tags = tag_specifications(&call.params, "TagSpecification")
            .remove("launch-template")
            .unwrap_or_default();
        let arn = self.arn("launch-template", "*");
        self.require(
            call,
            &Demand::new("ec2:CreateLaunchTemplate", &arn).with_tags("aws:RequestTag", &tags),
        )?;
        if !tags.is_empty() {
            let demand = Demand::new("ec2:CreateTags", &arn)
                .with_tags("aws:RequestTag", &tags)
                .with("ec2:CreateAction", "CreateLaunchTemplate");
            self.require(call, &demand)?;
        }
        end_dry_run(call)?;
        if self.templates.contains_key(&name) {
            return Err(Refusal::new(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                format!("Launch template name already in use: {name}"),
            ));
        }
        if self.templates.len() >= self.settings.template_quota {
            return Err(Refusal::new(
                "LaunchTemplateLimitExceeded",
                "You have reached the maximum number of launch templates",
            ));
        }
        let data = read(&call.params.within("LaunchTemplateData"))?;
        let template = Template { id: self.new_id("lt"), made: self.now, data, tags };
        let mut xml = Xml::new();
        xml.node("launchTemplate", |xml| write(xml, &name, &template));
        self.templates.insert(name, template);
        Ok(xml.into())
    }

    pub(crate) fn describe_templates(&mut self, call: &Call) -> Outcome {
        self.require_plain(call)?;
        let names = call.params.list("LaunchTemplateName");
        let ids = call.params.list("LaunchTemplateId");
        if let Some(name) = names.iter().find(|name| !self.templates.contains_key(*name)) {
            return Err(Refusal::new(
                "InvalidLaunchTemplateName.NotFoundException",
                format!(
                    "At least one of the launch templates specified in the request does not exist: {name}"
                ),
            ));
        }
        let filters = call.params.filters();
        let visible = self.now.saturating_sub(self.settings.consistency_ms);
        let mut found = Vec::new();
        for (name, template) in self.templates.iter().filter(|(_, t)| t.made <= visible) {
            let named =
                (names.is_empty() || names.contains(name)) && (ids.is_empty() || ids.contains(&template.id));
            let fits = all(&filters, |f| {
                f.matches_tags(&template.tags).or_else(|| match f.name.as_str() {
                    "launch-template-name" => Some(f.matches([name.as_str()])),
                    _ => None,
                })
            })?;
            if named && fits {
                found.push((name.clone(), template.clone()));
            }
        }
        let (found, token) = page(call, found)?;
        let mut xml = Xml::new();
        xml.items("launchTemplates", found, |xml, (name, template)| write(xml, &name, &template));
        xml.maybe("nextToken", token);
        Ok(xml.into())
    }

    pub(crate) fn delete_template(&mut self, call: &Call) -> Outcome {
        let by_id = call.params.get("LaunchTemplateId");
        let by_name = call.params.get("LaunchTemplateName");
        let found = self
            .templates
            .iter()
            .find(|(name, t)| by_name == Some(name.as_str()) || by_id == Some(t.id.as_str()))
            .map(|(name, template)| (name.clone(), template.clone()));
        let Some((name, template)) = found else {
            let wanted = by_name.or(by_id).unwrap_or_default();
            return Err(Refusal::new(
                "InvalidLaunchTemplateName.NotFoundException",
                format!("The specified launch template, with template name {wanted}, does not exist."),
            ));
        };
        let arn = self.arn("launch-template", &template.id);
        let demand =
            Demand::new("ec2:DeleteLaunchTemplate", arn).with_tags("aws:ResourceTag", &template.tags);
        self.require(call, &demand)?;
        end_dry_run(call)?;
        self.templates.remove(&name);
        let mut xml = Xml::new();
        xml.node("launchTemplate", |xml| write(xml, &name, &template));
        Ok(xml.into())
    }

    /// The template that a fleet names by name or id.
    pub(crate) fn template(&self, specification: &Params) -> Result<(String, Template), Refusal> {
        let name = specification.get("LaunchTemplateName");
        let id = specification.get("LaunchTemplateId");
        let found =
            self.templates.iter().find(|(n, t)| name == Some(n.as_str()) || id == Some(t.id.as_str()));
        found.map(|(name, template)| (name.clone(), template.clone())).ok_or_else(|| {
            Refusal::new(
                "InvalidLaunchTemplateName.NotFoundException",
                format!("The specified launch template {} does not exist.", name.or(id).unwrap_or_default()),
            )
        })
    }
}

fn write(xml: &mut Xml, name: &str, template: &Template) {
    xml.leaf("launchTemplateId", &template.id)
        .leaf("launchTemplateName", name)
        .leaf("createTime", iso(template.made))
        .leaf("defaultVersionNumber", 1)
        .leaf("latestVersionNumber", 1)
        .tags(&template.tags);
}

fn read(data: &Params) -> Result<TemplateData, Refusal> {
    let user_data = match data.get("UserData") {
        None => Vec::new(),
        Some(text) => STANDARD.decode(text).map_err(|_| {
            Refusal::new("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
        })?,
    };
    if user_data.len() > USER_DATA_BYTES {
        return Err(Refusal::new("InvalidUserData.Malformed", "User data is limited to 16384 bytes"));
    }
    let interfaces = data.items("NetworkInterface");
    let mut groups = data.list("SecurityGroupId");
    if let (Some(first), true) = (interfaces.first(), groups.is_empty()) {
        groups = first.list("SecurityGroupId");
    } else if !interfaces.is_empty() {
        return Err(Refusal::new(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        ));
    }
    if interfaces.len() > 1 && interfaces.iter().any(|i| i.get("AssociatePublicIpAddress").is_some()) {
        return Err(Refusal::new(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
        ));
    }
    let efas = interfaces.iter().filter(|i| i.get("InterfaceType") == Some("efa")).count();
    let metadata = data.within("MetadataOptions");
    let profile = data.within("IamInstanceProfile");
    Ok(TemplateData {
        image: data.get("ImageId").map(str::to_owned),
        instance_type: data.get("InstanceType").map(str::to_owned),
        groups,
        profile: profile
            .get("Name")
            .or_else(|| profile.get("Arn").and_then(|arn| arn.rsplit('/').next()))
            .map(str::to_owned),
        user_data,
        http_tokens: metadata.get("HttpTokens").unwrap_or("optional").to_owned(),
        hop_limit: metadata.number("HttpPutResponseHopLimit").unwrap_or(1),
        volumes: data
            .items("BlockDeviceMapping")
            .iter()
            .filter_map(|m| Some((m.get("DeviceName")?.to_owned(), m.within("Ebs").number("VolumeSize")?)))
            .collect(),
        tags: tag_specifications(data, "TagSpecification"),
        reservation: data
            .within("CapacityReservationSpecification")
            .get("CapacityReservationPreference")
            .map(str::to_owned),
        efas: u32::try_from(efas).unwrap_or(u32::MAX),
    })
}

/// `TagSpecification.n`: tags by kind of resource.
pub(crate) fn tag_specifications(params: &Params, name: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    params
        .items(name)
        .into_iter()
        .filter_map(|s| Some((s.get("ResourceType")?.to_owned(), s.tags("Tag"))))
        .collect()
}
