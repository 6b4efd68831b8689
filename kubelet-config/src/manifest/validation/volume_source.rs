//! Volumes from storage of all kinds.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, ISCSIVolumeSource,
    QuobyteVolumeSource, StorageOSVolumeSource, Volume,
};

use super::{Field, Problems, names};

/// Validates what the volume is made of, if it is of a kind that needs a server or a disk.
pub(super) fn validate(volume: &Volume, field: &Field, problems: &mut Problems) {
    let mut needs = |source: &str, named: &[(&str, &str)]| {
        for (name, value) in named.iter().filter(|(_, value)| value.is_empty()) {
            let _ = value;
            problems.required(&field.child(source).child(name), "");
        }
    };
    if let Some(nfs) = &volume.nfs {
        needs("nfs", &[("server", &nfs.server), ("path", &nfs.path)]);
    }
    if let Some(repo) = &volume.git_repo {
        needs("gitRepo", &[("repository", &repo.repository)]);
    }
    if let Some(disk) = &volume.gce_persistent_disk {
        needs("persistentDisk", &[("pdName", &disk.pd_name)]);
    }
    if let Some(store) = &volume.aws_elastic_block_store {
        needs("awsElasticBlockStore", &[("volumeID", &store.volume_id)]);
    }
    if let Some(gluster) = &volume.glusterfs {
        let named = [("endpoints", &*gluster.endpoints), ("path", &gluster.path)];
        needs("glusterfs", &named);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        needs("persistentVolumeClaim", &[("claimName", &claim.claim_name)]);
    }
    if let Some(rbd) = &volume.rbd {
        let monitors = rbd.monitors.first().map_or("", |_| "some");
        needs("rbd", &[("monitors", monitors), ("image", &rbd.image)]);
    }
    if let Some(ceph) = &volume.cephfs {
        needs(
            "cephfs",
            &[("monitors", ceph.monitors.first().map_or("", |_| "some"))],
        );
    }
    if let Some(cinder) = &volume.cinder {
        needs("cinder", &[("volumeID", &cinder.volume_id)]);
    }
    if let Some(azure) = &volume.azure_file {
        let named = [
            ("secretName", &*azure.secret_name),
            ("shareName", &azure.share_name),
        ];
        needs("azureFile", &named);
    }
    if let Some(vsphere) = &volume.vsphere_volume {
        needs("vsphereVolume", &[("volumePath", &vsphere.volume_path)]);
    }
    if let Some(photon) = &volume.photon_persistent_disk {
        needs("photonPersistentDisk", &[("pdID", &photon.pd_id)]);
    }
    if let Some(portworx) = &volume.portworx_volume {
        needs("portworxVolume", &[("volumeID", &portworx.volume_id)]);
    }
    if let Some(scale_io) = &volume.scale_io {
        let name = scale_io.volume_name.as_deref().unwrap_or_default();
        let named = [
            ("gateway", &*scale_io.gateway),
            ("system", &scale_io.system),
            ("volumeName", name),
        ];
        needs("scaleIO", &named);
    }
    validate_forms(volume, field, problems);
}

fn validate_forms(volume: &Volume, field: &Field, problems: &mut Problems) {
    if let Some(nfs) = &volume.nfs
        && !nfs.path.starts_with('/')
    {
        let field = field.child("nfs").child("path");
        problems.invalid(&field, &nfs.path, "must be an absolute path");
    }
    if let Some(folder) = volume.git_repo.as_ref().and_then(|repo| repo.directory.as_ref()) {
        problems.unless_formed(
            &field.child("gitRepo").child("directory"),
            folder,
            names::local_path,
        );
    }
    let gce = volume
        .gce_persistent_disk
        .as_ref()
        .and_then(|disk| disk.partition);
    let aws = volume
        .aws_elastic_block_store
        .as_ref()
        .and_then(|disk| disk.partition);
    for (source, partition) in [("persistentDisk", gce), ("awsElasticBlockStore", aws)] {
        if let Some(partition) = partition.filter(|partition| !(0..=255).contains(partition)) {
            let why = "must be between 1 and 255, inclusive";
            problems.invalid(&field.child(source).child("partition"), partition, why);
        }
    }
    if let Some(iscsi) = &volume.iscsi {
        validate_iscsi(iscsi, &volume.name, field, problems);
    }
    if let Some(flocker) = &volume.flocker {
        validate_flocker(flocker, &field.child("flocker"), problems);
    }
    if let Some(quobyte) = &volume.quobyte {
        validate_quobyte(quobyte, &field.child("quobyte"), problems);
    }
    if let Some(fc) = &volume.fc {
        validate_fc(fc, &field.child("fc"), problems);
    }
    if let Some(flex) = &volume.flex_volume {
        validate_flex(flex, &field.child("flexVolume"), problems);
    }
    if let Some(disk) = &volume.azure_disk {
        validate_azure_disk(disk, &field.child("azureDisk"), problems);
    }
    if let Some(storage_os) = &volume.storageos {
        validate_storage_os(storage_os, &field.child("storageos"), problems);
    }
    let cinder = volume
        .cinder
        .as_ref()
        .and_then(|cinder| cinder.secret_ref.as_ref());
    if cinder.is_some_and(|secret| secret.name.is_empty()) {
        problems.required(&field.child("cinder").child("secretRef").child("name"), "");
    }
}

fn validate_iscsi(iscsi: &ISCSIVolumeSource, volume_name: &str, field: &Field, problems: &mut Problems) {
    let at = field.child("iscsi");
    if iscsi.target_portal.is_empty() {
        problems.required(&at.child("targetPortal"), "");
    }
    if iscsi.iqn.is_empty() {
        problems.required(&at.child("iqn"), "");
    } else {
        problems.unless_formed(&at.child("iqn"), &iscsi.iqn, iscsi_name);
    }
    problems.unless_within(&at.child("lun"), iscsi.lun.into(), 0, 255);
    let chap = [iscsi.chap_auth_discovery, iscsi.chap_auth_session].contains(&Some(true));
    if chap && iscsi.secret_ref.is_none() {
        problems.required(&at.child("secretRef"), "");
    }
    if let Some(initiator) = &iscsi.initiator_name {
        problems.unless_formed(&at.child("initiatorname"), initiator, iscsi_name);
        if volume_name.len() + 1 + iscsi.target_portal.len() > 64 {
            let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                iscsi.initiatorName is specified.";
            problems.invalid(&field.child("name"), volume_name, why);
        }
    }
}

/// `iqn.<year>-<month>.<authority>:<name>`, `eui.` and 16 characters, or `naa.` and 32.
fn iscsi_name(name: &str) -> Result<(), &'static str> {
    let fixed = |length: usize| {
        // The character in the place of the dot may be any.
        let mut rest = name.chars().skip(3);
        rest.next().is_some() && rest.clone().count() == length && rest.all(|c| c.is_ascii_alphanumeric())
    };
    let well_formed = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => fixed(16),
        Some("naa") => fixed(32),
        _ => return Err("must be valid format starting with iqn, eui, or naa"),
    };
    if well_formed {
        Ok(())
    } else {
        Err("must be valid format")
    }
}

/// The reference looks for the form anywhere in the text, as long as it reaches to the end.
fn is_iqn(name: &str) -> bool {
    name.match_indices("iqn.").any(|(start, prefix)| {
        let rest = &name[start + prefix.len()..];
        let date = rest.as_bytes().iter().take(8).enumerate();
        let is_date = rest.len() > 8
            && date.into_iter().all(|(at, byte)| match at {
                4 => *byte == b'-',
                7 => *byte == b'.',
                _ => byte.is_ascii_digit(),
            });
        is_date
            && rest[8..].match_indices(':').any(|(colon, _)| {
                let (authority, tail) = rest[8..].split_at(colon);
                let in_authority = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
                let in_tail = |c: char| !matches!(c, ',' | ';' | '*' | '&' | '$' | '|') && !is_go_space(c);
                !authority.is_empty()
                    && authority.chars().all(in_authority)
                    && tail.len() > 1
                    && tail[1..].chars().all(in_tail)
            })
    })
}

/// `\s` of Go's regular expressions.
fn is_go_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ')
}

fn validate_fc(fc: &FCVolumeSource, field: &Field, problems: &mut Problems) {
    let names = fc.target_wwns.as_deref().unwrap_or_default();
    let ids = fc.wwids.as_deref().unwrap_or_default();
    let at = field.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        problems.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        problems.invalid(
            &at,
            names,
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    if !names.is_empty() {
        match fc.lun {
            None => problems.required(&field.child("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) => problems.unless_within(&field.child("lun"), lun.into(), 0, 255),
        }
    }
}

fn validate_flocker(flocker: &FlockerVolumeSource, field: &Field, problems: &mut Problems) {
    let name = flocker.dataset_name.as_deref().unwrap_or_default();
    let uuid = flocker.dataset_uuid.as_deref().unwrap_or_default();
    if name.is_empty() && uuid.is_empty() {
        problems.required(field, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        problems.invalid(field, "resource", why);
    }
    if name.contains('/') {
        problems.invalid(&field.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(quobyte: &QuobyteVolumeSource, field: &Field, problems: &mut Problems) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = quobyte.registry.as_str();
    if registry.is_empty() {
        problems.required(&field.child("registry"), PAIRS);
    } else if quobyte.tenant.as_ref().is_some_and(|tenant| tenant.len() >= 65) {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        problems.required(&field.child("tenant"), why);
    } else if !registry.split(',').all(is_host_port) {
        problems.invalid(&field.child("registry"), registry, PAIRS);
    }
    if quobyte.volume.is_empty() {
        problems.required(&field.child("volume"), "");
    }
}

/// Whether there is one colon that parts host and port, brackets around any others (`net.SplitHostPort`).
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.strip_suffix(']') {
            Some(inner) => inner,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

fn validate_flex(flex: &FlexVolumeSource, field: &Field, problems: &mut Problems) {
    if flex.driver.is_empty() {
        problems.required(&field.child("driver"), "");
    }
    for key in flex.options.iter().flatten().map(|(key, _)| key) {
        let namespace = key
            .split_once('/')
            .map_or(key.as_str(), |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            problems.invalid(&field.child("options").key(key), key, why);
        }
    }
}

fn validate_azure_disk(disk: &AzureDiskVolumeSource, field: &Field, problems: &mut Problems) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    for (name, value) in [("diskName", &disk.disk_name), ("diskURI", &disk.disk_uri)] {
        if value.is_empty() {
            problems.required(&field.child(name), "");
        }
    }
    if let Some(mode) = &disk.caching_mode {
        let supported = ["None", "ReadOnly", "ReadWrite"];
        problems.unless_one_of(&field.child("cachingMode"), mode, &supported);
    }
    if let Some(kind) = &disk.kind {
        let supported = ["Dedicated", "Managed", "Shared"];
        problems.unless_one_of(&field.child("kind"), kind, &supported);
        let (prefix, form) = match kind.as_str() {
            "Managed" => ("/subscriptions/", MANAGED),
            _ => ("https://", BLOB),
        };
        if !disk.disk_uri.starts_with(prefix) {
            problems.unless_one_of(&field.child("diskURI"), &disk.disk_uri, &[form]);
        }
    }
}

fn validate_storage_os(storage_os: &StorageOSVolumeSource, field: &Field, problems: &mut Problems) {
    match storage_os.volume_name.as_deref().unwrap_or_default() {
        "" => problems.required(&field.child("volumeName"), ""),
        name => problems.unless_formed(&field.child("volumeName"), name, names::dns_label),
    }
    if let Some(namespace) = &storage_os.volume_namespace {
        problems.unless_formed(&field.child("volumeNamespace"), namespace, names::dns_label);
    }
    if storage_os
        .secret_ref
        .as_ref()
        .is_some_and(|secret| secret.name.is_empty())
    {
        problems.required(&field.child("secretRef").child("name"), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names() {
        for (name, good) in [
            ("iqn.2001-04.com.example:storage.kube.sys1.xyz", true),
            ("iqn.2001-04.com.example:a:b", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.2001-04.com.example:", false),
            ("iqn.201-04.com.example:x", false),
            ("iqn.2001-04.com.example:a b", false),
            ("iqn.2001-04.:x", false),
            ("eui.0123456789abcdef", true),
            ("eui.0123456789abcde", false),
            ("naa.0123456789abcdef0123456789abcdef", true),
            ("naa.é", false),
            ("é", false),
            ("disk", false),
        ] {
            assert_eq!(iscsi_name(name).is_ok(), good, "{name}");
        }
    }

    #[test]
    fn hosts_with_ports() {
        for (text, good) in [
            ("a:1", true),
            ("[::1]:1", true),
            ("a", false),
            ("a:b:1", false),
            ("[::1:1", false),
            (":", true),
        ] {
            assert_eq!(is_host_port(text), good, "{text}");
        }
    }
}
