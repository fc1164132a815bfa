//! Instance profiles: one per role and cluster, made from `spec.role`.

use std::time::Duration;

use aws_sdk_iam::types::Tag;
use croft_cloud::{Fault, FaultClass, tags};
use sha2::{Digest as _, Sha256};

use crate::{connect::Clients, pace::Paces};

/// Time within which IAM makes a new instance profile known to EC2.
pub(crate) const SETTLES: Duration = Duration::from_secs(60);

/// The path of a cluster's profiles, by which they are listed and others are left alone.
pub(crate) fn path(cluster: &str) -> String {
    format!("/croft/{cluster}/")
}

/// The profile's name for `role`: stable, and independent of the role's own path.
pub(crate) fn name(cluster: &str, role: &str) -> String {
    let digest = Sha256::digest(format!("{cluster}\n{role}"));
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("croft-{hex}")
}

/// Creates the profile for `role`, or adds the role to it, unless that is done already. Returns its name, and true if
/// it is new, so that EC2 may not know it yet.
pub(crate) async fn ensure(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    role: &str,
) -> Result<(String, bool), Fault> {
    let name = name(cluster, role);
    paces.read.turn().await;
    let answer = clients.iam.get_instance_profile().instance_profile_name(&name).send().await;
    let held = match paces.read.record("GetInstanceProfile", answer) {
        Ok(found) => found
            .instance_profile()
            .and_then(|profile| profile.roles().first())
            .map(|role| role.role_name().to_owned()),
        Err(fault) if fault.class == FaultClass::NotFound => {
            create(clients, paces, cluster, &name).await?;
            None
        }
        Err(fault) => return Err(fault),
    };
    match held {
        Some(held) if held == role => return Ok((name, false)),
        Some(held) => {
            paces.write.turn().await;
            let answer = clients
                .iam
                .remove_role_from_instance_profile()
                .instance_profile_name(&name)
                .role_name(held)
                .send()
                .await;
            paces.write.record("RemoveRoleFromInstanceProfile", answer)?;
        }
        None => {}
    }
    paces.write.turn().await;
    let answer =
        clients.iam.add_role_to_instance_profile().instance_profile_name(&name).role_name(role).send().await;
    paces.write.record("AddRoleToInstanceProfile", answer)?;
    Ok((name, true))
}

async fn create(clients: &Clients, paces: &Paces, cluster: &str, name: &str) -> Result<(), Fault> {
    paces.write.turn().await;
    let mut request = clients.iam.create_instance_profile().instance_profile_name(name).path(path(cluster));
    // Both required parts are set, so building can't fail.
    if let Ok(tag) = Tag::builder().key(tags::CLUSTER).value(cluster).build() {
        request = request.tags(tag);
    }
    match paces.write.record("CreateInstanceProfile", request.send().await) {
        Ok(_) => Ok(()),
        // Another replica was faster.
        Err(fault) if fault.class == FaultClass::Exists => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Deletes the cluster's profiles for which `keep` returns false. Returns their number.
pub(crate) async fn sweep(
    clients: &Clients,
    paces: &Paces,
    cluster: &str,
    keep: impl Fn(&str) -> bool,
) -> Result<usize, Fault> {
    let mut pages = clients.iam.list_instance_profiles().path_prefix(path(cluster)).into_paginator().send();
    let mut idle = Vec::new();
    loop {
        paces.read.turn().await;
        let Some(page) = pages.next().await else { break };
        for profile in paces.read.record("ListInstanceProfiles", page)?.instance_profiles() {
            if !keep(profile.instance_profile_name()) {
                let roles: Vec<String> = profile.roles().iter().map(|r| r.role_name().to_owned()).collect();
                idle.push((profile.instance_profile_name().to_owned(), roles));
            }
        }
    }
    for (name, roles) in &idle {
        for role in roles {
            paces.write.turn().await;
            let request = clients.iam.remove_role_from_instance_profile();
            let answer = request.instance_profile_name(name).role_name(role).send().await;
            paces.write.record("RemoveRoleFromInstanceProfile", answer)?;
        }
        paces.write.turn().await;
        let answer = clients.iam.delete_instance_profile().instance_profile_name(name).send().await;
        match paces.write.record("DeleteInstanceProfile", answer) {
            Ok(_) => {}
            Err(fault) if fault.class == FaultClass::NotFound => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(idle.len())
}
