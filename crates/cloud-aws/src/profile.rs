//! Instance profiles: one per role and cluster, made from `spec.role`.

use std::time::Duration;

use croft_cloud::{Fault, FaultClass, tags};
use sha2::{Digest as _, Sha256};

use crate::{calls::iam::InstanceProfile, connect::Clients, pace::Paces};

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
    let answer = clients.iam.get(&name).await;
    let held = match paces.read.record("GetInstanceProfile", answer) {
        Ok(found) => found.roles.into_iter().next(),
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
            let answer = clients.iam.remove_role(&name, &held).await;
            paces.write.record("RemoveRoleFromInstanceProfile", answer)?;
        }
        None => {}
    }
    paces.write.turn().await;
    let answer = clients.iam.add_role(&name, role).await;
    paces.write.record("AddRoleToInstanceProfile", answer)?;
    Ok((name, true))
}

async fn create(clients: &Clients, paces: &Paces, cluster: &str, name: &str) -> Result<(), Fault> {
    paces.write.turn().await;
    let answer = clients.iam.create(name, &path(cluster), (tags::CLUSTER, cluster)).await;
    match paces.write.record("CreateInstanceProfile", answer) {
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
    let path = path(cluster);
    let mut idle = Vec::new();
    let mut marker: Option<String> = None;
    loop {
        paces.read.turn().await;
        let answer = clients.iam.list(&path, marker.as_deref()).await;
        let page = paces.read.record("ListInstanceProfiles", answer)?;
        idle.extend(page.profiles.into_iter().filter(|profile| !keep(&profile.name)));
        // The same marker again would be an endless list.
        if page.marker.is_none() || page.marker == marker {
            break;
        }
        marker = page.marker;
    }
    for InstanceProfile { name, roles } in &idle {
        for role in roles {
            paces.write.turn().await;
            let answer = clients.iam.remove_role(name, role).await;
            paces.write.record("RemoveRoleFromInstanceProfile", answer)?;
        }
        paces.write.turn().await;
        let answer = clients.iam.delete(name).await;
        match paces.write.record("DeleteInstanceProfile", answer) {
            Ok(_) => {}
            Err(fault) if fault.class == FaultClass::NotFound => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(idle.len())
}
