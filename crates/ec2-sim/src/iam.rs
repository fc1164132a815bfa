//! Instance profiles, and the caller's identity.

use crate::{
    answer::{Call, Outcome, Refusal},
    describe::iso,
    policy::Demand,
    resources::Profile,
    world::World,
    xml::Xml,
};

impl World {
    pub(crate) fn iam(&mut self, call: &Call) -> Outcome {
        let p = &call.params;
        let name = p.get("InstanceProfileName").unwrap_or_default().to_owned();
        // The ARN has the path: that of the profile, or of the request that makes one. A name alone has none.
        let path = self.profiles.get(&name).map(|profile| profile.path.as_str()).or_else(|| p.get("Path"));
        let path = path.unwrap_or("/");
        let arn = format!("arn:aws:iam::{}:instance-profile{path}{name}", self.settings.account);
        let action = format!("iam:{}", call.action);
        let have = self.profiles.get(&name).map(|profile| profile.tags.clone()).unwrap_or_default();
        let about = Demand::new(&action, &arn).with_tags("aws:ResourceTag", &have);
        let absent = || Refusal::new("NoSuchEntity", format!("Instance Profile {name} cannot be found."));
        match call.action.as_str() {
            "GetInstanceProfile" => {
                self.require(call, &about)?;
                let profile = self.profiles.get(&name).ok_or_else(absent)?;
                let mut xml = Xml::new();
                xml.node("GetInstanceProfileResult", |xml| {
                    xml.node("InstanceProfile", |xml| self.write_profile(xml, &name, profile));
                });
                Ok(xml.into())
            }
            "CreateInstanceProfile" => self.create_profile(call, name, &arn),
            "AddRoleToInstanceProfile" => {
                self.require(call, &about)?;
                self.add_role(call, &name)
            }
            "RemoveRoleFromInstanceProfile" => {
                self.require(call, &about)?;
                self.profiles.get_mut(&name).ok_or_else(absent)?.role = None;
                Ok(Xml::new().into())
            }
            "DeleteInstanceProfile" => {
                self.require(call, &about)?;
                let profile = self.profiles.get(&name).ok_or_else(absent)?;
                if profile.role.is_some() {
                    return Err(Refusal::new(
                        "DeleteConflict",
                        "Cannot delete entity, must remove roles from instance profile first.",
                    ));
                }
                self.profiles.remove(&name);
                Ok(Xml::new().into())
            }
            "ListInstanceProfiles" => {
                self.require(call, &Demand::new(&action, "*"))?;
                let prefix = p.get("PathPrefix").unwrap_or("/").to_owned();
                let mut xml = Xml::new();
                xml.node("ListInstanceProfilesResult", |xml| {
                    let found = self.profiles.iter().filter(|(_, profile)| profile.path.starts_with(&prefix));
                    xml.members("InstanceProfiles", found, |xml, (name, profile)| {
                        self.write_profile(xml, name, profile);
                    });
                    xml.leaf("IsTruncated", false);
                });
                Ok(xml.into())
            }
            other => Err(Refusal::new("InvalidAction", format!("{other} is not simulated"))),
        }
    }

    fn create_profile(&mut self, call: &Call, name: String, arn: &str) -> Outcome {
        let tags = call.params.tags("Tags");
        let create = Demand::new("iam:CreateInstanceProfile", arn).with_tags("aws:RequestTag", &tags);
        self.require(call, &create)?;
        if !tags.is_empty() {
            let tag = Demand::new("iam:TagInstanceProfile", arn).with_tags("aws:RequestTag", &tags);
            self.require(call, &tag)?;
        }
        if self.profiles.contains_key(&name) {
            let message = format!("Instance Profile {name} already exists.");
            return Err(Refusal::new("EntityAlreadyExists", message));
        }
        let path = call.params.get("Path").unwrap_or("/").to_owned();
        let profile = Profile { path, role: None, tags, made: self.now };
        let mut xml = Xml::new();
        xml.node("CreateInstanceProfileResult", |xml| {
            xml.node("InstanceProfile", |xml| self.write_profile(xml, &name, &profile));
        });
        self.profiles.insert(name, profile);
        Ok(xml.into())
    }

    fn add_role(&mut self, call: &Call, profile: &str) -> Outcome {
        let role = call.params.get("RoleName").unwrap_or_default().to_owned();
        let arn = format!("arn:aws:iam::{}:role/{role}", self.settings.account);
        let pass = Demand::new("iam:PassRole", arn).with("iam:PassedToService", "ec2.amazonaws.com");
        self.require(call, &pass)?;
        if !self.settings.roles.contains(&role) {
            let message = format!("The role with name {role} cannot be found.");
            return Err(Refusal::new("NoSuchEntity", message));
        }
        let absent = || Refusal::new("NoSuchEntity", format!("Instance Profile {profile} cannot be found."));
        let profile = self.profiles.get_mut(profile).ok_or_else(absent)?;
        if profile.role.is_some() {
            let message = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1";
            return Err(Refusal::new("LimitExceeded", message));
        }
        profile.role = Some(role);
        Ok(Xml::new().into())
    }

    fn write_profile(&self, xml: &mut Xml, name: &str, profile: &Profile) {
        let account = &self.settings.account;
        xml.leaf("Path", &profile.path)
            .leaf("InstanceProfileName", name)
            .leaf("InstanceProfileId", "AIPA00000000000000000")
            .leaf("Arn", format!("arn:aws:iam::{account}:instance-profile{}{name}", profile.path))
            .leaf("CreateDate", iso(profile.made))
            .members("Roles", &profile.role, |xml, role| {
                xml.leaf("Path", "/")
                    .leaf("RoleName", role)
                    .leaf("RoleId", "AROA00000000000000000")
                    .leaf("Arn", format!("arn:aws:iam::{account}:role/{role}"))
                    .leaf("CreateDate", iso(0));
            })
            .members("Tags", &profile.tags, |xml, (key, value)| {
                xml.leaf("Key", key).leaf("Value", value);
            });
    }

    pub(crate) fn sts(&mut self, call: &Call) -> Outcome {
        match call.action.as_str() {
            // STS requires no permission for this call.
            "GetCallerIdentity" => {
                let account = &self.settings.account;
                let mut xml = Xml::new();
                xml.node("GetCallerIdentityResult", |xml| {
                    xml.leaf(
                        "Arn",
                        format!("arn:aws:sts::{account}:assumed-role/croft-controller/simulated"),
                    )
                    .leaf("UserId", "AROA00000000000000001:simulated")
                    .leaf("Account", account);
                });
                Ok(xml.into())
            }
            other => Err(Refusal::new("InvalidAction", format!("{other} is not simulated"))),
        }
    }
}
