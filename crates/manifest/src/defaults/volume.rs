//! Defaults of volumes and of the claims that a pod or a StatefulSet makes, and how a field gets its default.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, PersistentVolumeClaimSpec, Volume};

/// `rw-r--r--`, as the files of ConfigMaps and Secrets get it.
const FILE_MODE: i32 = 0o644;

pub(super) fn fill_volume(volume: &mut Volume) {
    if has_no_source(volume) {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(v) = &mut volume.secret {
        fill(&mut v.default_mode, FILE_MODE);
    }
    if let Some(v) = &mut volume.config_map {
        fill(&mut v.default_mode, FILE_MODE);
    }
    if let Some(v) = &mut volume.downward_api {
        fill(&mut v.default_mode, FILE_MODE);
        v.items.iter_mut().flatten().for_each(fill_file);
    }
    if let Some(v) = &mut volume.projected {
        fill(&mut v.default_mode, FILE_MODE);
        for source in v.sources.iter_mut().flatten() {
            if let Some(token) = &mut source.service_account_token {
                fill(&mut token.expiration_seconds, 3600);
            }
            if let Some(downward) = &mut source.downward_api {
                downward.items.iter_mut().flatten().for_each(fill_file);
            }
        }
    }
    if let Some(v) = &mut volume.host_path {
        fill(&mut v.type_, String::new());
    }
    if let Some(template) = volume.ephemeral.as_mut().and_then(|v| v.volume_claim_template.as_mut()) {
        fill_claim(&mut template.spec);
    }
    if let Some(v) = &mut volume.iscsi {
        fill_text(&mut v.iscsi_interface, "default");
    }
    if let Some(v) = &mut volume.rbd {
        fill_text(&mut v.pool, "rbd");
        fill_text(&mut v.user, "admin");
        fill_text(&mut v.keyring, "/etc/ceph/keyring");
    }
    if let Some(v) = &mut volume.azure_disk {
        fill_text(&mut v.caching_mode, "ReadWrite");
        fill_text(&mut v.kind, "Shared");
        fill_text(&mut v.fs_type, "ext4");
        fill(&mut v.read_only, false);
    }
    if let Some(v) = &mut volume.scale_io {
        fill_text(&mut v.storage_mode, "ThinProvisioned");
        fill_text(&mut v.fs_type, "xfs");
    }
}

pub(super) fn fill_claim(spec: &mut PersistentVolumeClaimSpec) {
    fill_text(&mut spec.volume_mode, "Filesystem");
}

fn fill_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        fill_text(&mut field.api_version, "v1");
    }
}

fn has_no_source(volume: &Volume) -> bool {
    *volume == Volume { name: volume.name.clone(), ..Volume::default() }
}

/// Sets an absent field.
pub(super) fn fill<T>(field: &mut Option<T>, value: T) {
    field.get_or_insert(value);
}

/// Sets an absent or empty field: Go doesn't distinguish them.
pub(super) fn fill_text(field: &mut Option<String>, text: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(text.to_owned());
    }
}
