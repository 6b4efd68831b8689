use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::*;
use crate::{Attributes, OnDisk, PodMount, Result, SetUp};

const LXC_CONTEXTS: &str = "# comment\nprocess = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\n\
    ; file = \"a:b:c\"\nfile = \"system_u:object_r:container_file_t:s0\"\nro_file=\"y\"\n";
const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";

#[test]
fn the_files_of_a_container_have_its_user_and_level() {
    let no_levels =
        "process = \"system_u:system_r:container_t\"\nfile = \"system_u:object_r:container_file_t\"";
    for (contexts, options, expected) in [
        (LXC_CONTEXTS, json!({}), ""),
        (LXC_CONTEXTS, json!({"level": ""}), ""),
        (LXC_CONTEXTS, json!({"level": "s0:c1,c2"}), LABEL),
        (
            LXC_CONTEXTS,
            json!({"level": "s0:c1,c2", "type": "spc_t", "role": "r"}),
            LABEL,
        ),
        (
            LXC_CONTEXTS,
            json!({"level": "s0", "user": "staff_u"}),
            "staff_u:object_r:container_file_t:s0",
        ),
        // The runtime chooses the level.
        (LXC_CONTEXTS, json!({"type": "spc_t"}), ""),
        (LXC_CONTEXTS, json!({"user": "staff_u"}), ""),
        (
            no_levels,
            json!({"type": "spc_t"}),
            "system_u:object_r:container_file_t",
        ),
        (no_levels, json!({"level": "s0:c1,c2"}), LABEL),
        ("", json!({"level": "s0"}), ""),
        ("file = \"a:b:c:s0\"", json!({"level": "s0"}), ""),
        ("process = \"a:b:c:s0\"", json!({"level": "s0"}), ""),
        (
            "process = \"a:b:c:s0\"\nfile = \"a:b\"",
            json!({"level": "s0"}),
            "",
        ),
    ] {
        let parsed = serde_json::from_value(options.clone()).unwrap();
        assert_eq!(
            SelinuxContexts::parse(contexts).label(&parsed),
            expected,
            "{options} on {contexts}"
        );
    }
}

#[test]
fn the_host_is_read() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(CONTEXTS, LXC_CONTEXTS);
    assert_eq!(SelinuxContexts::below(root.path()), None);
    write("sys/fs/selinux/enforce", "0");
    let parsed = Some(SelinuxContexts::parse(LXC_CONTEXTS));
    assert_eq!(SelinuxContexts::below(root.path()), parsed);
    fs::remove_file(root.path().join(CONTEXTS)).unwrap();
    let none = Some(SelinuxContexts::default());
    assert_eq!(SelinuxContexts::below(root.path()), none);
    write(
        "etc/selinux/config",
        "# SELINUXTYPE=mls\nSELINUXTYPE=\"targeted\"\n",
    );
    write("etc/selinux/targeted/contexts/lxc_contexts", LXC_CONTEXTS);
    assert_eq!(SelinuxContexts::below(root.path()), parsed);
}

/// A plugin of which only this is of interest.
struct Plugin {
    supports: bool,
}

#[async_trait]
impl VolumePlugin for Plugin {
    fn name(&self) -> &str {
        "test"
    }
    fn can_support(&self, _: &VolumeSpec) -> bool {
        true
    }
    fn path(&self, mount: &PodMount) -> PathBuf {
        mount.dir.clone()
    }
    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes::default()
    }
    async fn set_up(&self, _: &PodMount) -> Result<SetUp> {
        Ok(SetUp::default())
    }
    async fn tear_down(&self, _: &OnDisk) -> Result<()> {
        Ok(())
    }
    async fn supports_selinux_mount(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(self.supports)
    }
    async fn reconstruct(&self, _: &OnDisk) -> Result<VolumeSpec> {
        Err(crate::Error::failed("nothing is known"))
    }
}

async fn context(modes: &[&str], pod: &Value, supports: bool) -> std::result::Result<MountContext, String> {
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": modes}});
    let spec = VolumeSpec::persistent(Arc::new(serde_json::from_value(volume).unwrap()), false);
    let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": pod})).unwrap();
    let contexts = SelinuxContexts::parse(LXC_CONTEXTS);
    MountContext::of(&contexts, &Plugin { supports }, &spec, &pod, "data").await
}

/// A container that mounts the volume.
fn user(level: Option<&str>) -> Value {
    let options = level.map(|level| json!({"level": level}));
    json!({"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/x"}],
        "securityContext": {"seLinuxOptions": options}})
}

const ONE_POD: &[&str] = &["ReadWriteOncePod"];

#[tokio::test]
async fn the_label_is_that_of_all_containers_that_mount_the_volume() {
    let of_pod = |level: &str| json!({"seLinuxOptions": {"level": level}});
    let other = json!({"name": "o", "volumeMounts": [{"name": "tmp", "mountPath": "/x"}],
        "securityContext": {"seLinuxOptions": {"level": "s0:c9"}}});
    let device = json!({"name": "d", "volumeDevices": [{"name": "data", "devicePath": "/x"}],
        "securityContext": {"seLinuxOptions": {"level": "s0:c9"}}});
    let (main, level) = (user(None), Some("s0:c1,c2"));
    let two = "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,\
        system_u:object_r:container_file_t:s0:c7";
    for (pod, expected) in [
        (json!({"containers": [main]}), Ok(None)),
        (
            json!({"containers": [main], "securityContext": of_pod("s0:c1,c2")}),
            Ok(Some(LABEL)),
        ),
        (
            json!({"containers": [user(level)], "securityContext": of_pod("s0:c7")}),
            Ok(Some(LABEL)),
        ),
        (
            json!({"containers": [user(level), other, device, main]}),
            Ok(Some(LABEL)),
        ),
        (json!({"containers": [other, device]}), Ok(None)),
        (
            json!({"containers": [user(level), user(Some("s0:c7"))]}),
            Err(two.to_owned()),
        ),
        (
            json!({"containers": [user(level)], "initContainers": [user(Some("s0:c7"))]}),
            Err(two.to_owned()),
        ),
        (
            json!({"containers": [user(level)], "ephemeralContainers": [user(Some("s0:c7"))]}),
            Err(two.to_owned()),
        ),
        (
            json!({"containers": [main, user(Some("s0:c7"))], "securityContext": of_pod("s0:c1,c2")}),
            Err(two.to_owned()),
        ),
        (
            json!({"containers": [user(level), user(Some(""))]}),
            Err(format!("multiple SELinux labels found: ,{LABEL}")),
        ),
    ] {
        let found = context(ONE_POD, &pod, true).await;
        let found = found.map(|found| found.mounted_with().map(str::to_owned));
        assert_eq!(found, expected.map(|label| label.map(str::to_owned)), "{pod}");
    }
}

#[tokio::test]
async fn few_volumes_are_mounted_with_a_label() {
    let pod = json!({"containers": [user(Some("s0:c1,c2"))]});
    let differing = json!({"containers": [user(Some("s0:c1,c2")), user(Some("s0:c7"))]});
    for (modes, supports, label, mode) in [
        (ONE_POD, true, Some(LABEL), "RWOP"),
        (ONE_POD, false, None, "RWOP"),
        (&["ReadWriteOnce"], true, None, "RWO"),
        (&["ReadWriteOncePod", "ReadOnlyMany"], true, None, "ROX"),
        (&["ReadWriteOnce", "ReadWriteMany"], true, None, "RWX"),
        (&[], true, None, ""),
    ] {
        let found = context(modes, &pod, supports).await.unwrap();
        assert_eq!((found.mounted_with(), found.access_mode), (label, mode));
        assert_eq!(found.matters(), label.is_some());
        // Containers that differ are no error for other volumes.
        let found = context(modes, &differing, supports).await;
        assert_eq!(found.is_err(), modes == ONE_POD, "{found:?}");
    }
    for (policy, label) in [("Recursive", None), ("MountOption", Some(LABEL))] {
        let pod = json!({"containers": [user(Some("s0:c1,c2"))],
            "securityContext": {"seLinuxChangePolicy": policy}});
        let found = context(ONE_POD, &pod, true).await.unwrap();
        assert_eq!(found.mounted_with(), label);
    }
}

#[tokio::test]
async fn two_pods_with_different_labels_are_a_conflict() {
    let with = |level: &str| json!({"containers": [user(Some(level))]});
    let recursive = json!({"containers": [user(Some("s0:c1,c2"))],
        "securityContext": {"seLinuxChangePolicy": "Recursive"}});
    let first = context(ONE_POD, &with("s0:c1,c2"), true).await.unwrap();
    for (modes, pod, supports, why) in [
        (ONE_POD, with("s0:c1,c2"), true, None),
        (
            ONE_POD,
            with("s0:c7"),
            true,
            Some("\"system_u:object_r:container_file_t:s0:c7\""),
        ),
        (ONE_POD, recursive, true, Some("\"\"")),
        (ONE_POD, with("s0:c7"), false, None),
        (&["ReadWriteOnce"], with("s0:c7"), true, None),
    ] {
        let second = context(modes, &pod, supports).await.unwrap();
        let expected = match why {
            None => Ok(()),
            Some(wanted) => Err(format!(
                "conflicting SELinux labels of volume pv: {LABEL:?} and {wanted}"
            )),
        };
        assert_eq!(first.admit(&second, "pv", "test"), expected);
    }
}
