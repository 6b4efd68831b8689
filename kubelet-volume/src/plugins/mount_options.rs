//! The options of mounts.

use std::collections::BTreeSet;

use crate::{VolumeSource, VolumeSpec};

/// Older than `mountOptions` (`MountOptionAnnotation`).
const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// The options of the persistent volume and those of the plugin, sorted, each once (`MountOptionFromSpec`).
pub(crate) fn with_own(spec: &VolumeSpec, own: &[&str]) -> Vec<String> {
    let annotation = match &spec.source {
        VolumeSource::Pod(_) => None,
        VolumeSource::Persistent(volume) => volume
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(ANNOTATION)),
    };
    let of_volume: Vec<&str> = match annotation {
        Some(annotation) => annotation.split(',').collect(),
        None => spec.mount_options().iter().map(String::as_str).collect(),
    };
    let all: BTreeSet<&str> = of_volume.into_iter().chain(own.iter().copied()).collect();
    let all = all.into_iter().filter(|option| !option.is_empty());
    all.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_joined() {
        for (volume, expected) in [
            (json!({"metadata": {}, "spec": {}}), &["ro"][..]),
            (
                json!({"metadata": {}, "spec": {"mountOptions": ["vers=4", "noatime", "ro"]}}),
                &["noatime", "ro", "vers=4"],
            ),
            (
                json!({"metadata": {"annotations": {ANNOTATION: "b,,a"}}, "spec": {"mountOptions": ["c"]}}),
                &["a", "b", "ro"],
            ),
        ] {
            let volume = Arc::new(serde_json::from_value(volume).unwrap());
            let spec = VolumeSpec::persistent(volume, false);
            assert_eq!(with_own(&spec, &["ro"]), expected);
        }
    }
}
