//! Environment variables from files that another container wrote.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodUid, Result, VolumeManager};
use serde_json::{Value, json};

use crate::rig::{Rig, pod};

/// One volume of each pod.
struct Shared(PathBuf);

#[async_trait]
impl VolumeManager for Shared {
    async fn wait_for_attach_and_mount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, kubelet_core::MountedVolume> {
        BTreeMap::from([("shared".to_owned(), kubelet_core::MountedVolume::new(&self.0))])
    }

    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_variable_may_come_from_a_file_of_a_volume() {
    let mut rig = Rig::new().await;
    let volume = tempfile::tempdir().unwrap();
    std::fs::write(
        volume.path().join("env"),
        "# of a job\nDATABASE='my db'\nEMPTY=''\n",
    )
    .unwrap();
    std::fs::write(volume.path().join("bad"), "DATABASE=mydb\n").unwrap();
    let volumes = Arc::new(Shared(volume.path().to_owned()));
    rig.manager = rig.builder().volumes(volumes).build().await.unwrap();
    let from = |volume: &str, path: &str, key: &str, optional: Value| json!({ "volumeName": volume, "path": path, "key": key, "optional": optional });
    let file = volume.path().join("env").display().to_string();
    let missing = |key: &str| format!("environment variable key {key:?} not found in file {file:?}");
    let unreadable = || "couldn't parse env file".to_owned();
    let yes = || json!(true);
    // the reference; the value, nothing, or the error
    let cases = [
        (from("shared", "env", "DATABASE", json!(null)), Ok(Some("my db"))),
        (from("shared", "env", "OTHER", yes()), Ok(None)),
        (
            from("shared", "env", "OTHER", json!(false)),
            Err(missing("OTHER")),
        ),
        (from("shared", "env", "EMPTY", yes()), Ok(None)),
        (from("shared", "env", "EMPTY", json!(null)), Err(missing("EMPTY"))),
        (from("shared", "none", "DATABASE", yes()), Err(unreadable())),
        (from("shared", "bad", "DATABASE", yes()), Err(unreadable())),
        (
            from("other", "env", "DATABASE", yes()),
            Err("cannot find the volume \"other\" referenced by FileKeyRef".to_owned()),
        ),
    ];
    for (number, (file_key_ref, expected)) in cases.into_iter().enumerate() {
        let name = format!("c{number}");
        let env = json!([
            { "name": "FROM_FILE", "valueFrom": { "fileKeyRef": file_key_ref } },
            { "name": "AFTER", "value": "<$(FROM_FILE)>" },
        ]);
        let container = json!({ "name": name, "image": "i", "imagePullPolicy": "IfNotPresent", "env": env });
        let pod = pod(
            &name,
            json!({ "containers": [container], "enableServiceLinks": false }),
        );
        let result = rig.sync(&pod).await;
        let failure = result.results.iter().find_map(|result| result.failure.clone());
        match expected {
            Ok(value) => {
                assert!(result.is_ok(), "{file_key_ref}: {:?}", result.summary());
                let config = rig.fake.config_of(&name);
                let of = |name: &str| {
                    let variable = config.envs.iter().find(|variable| variable.key == name)?;
                    Some(String::from_utf8(variable.value.clone()).unwrap())
                };
                assert_eq!(of("FROM_FILE").as_deref(), value, "{file_key_ref}");
                let after = value.map_or("<$(FROM_FILE)>".to_owned(), |value| format!("<{value}>"));
                assert_eq!(of("AFTER"), Some(after), "{file_key_ref}");
            }
            Err(why) => {
                let failure = failure.expect("it fails");
                assert_eq!(failure.reason, "CreateContainerConfigError", "{file_key_ref}");
                assert_eq!(failure.message, why, "{file_key_ref}");
            }
        }
    }
}
