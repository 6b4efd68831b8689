//! Volumes of in-tree plugins, as their CSI drivers get them.

use std::sync::Arc;

use kubelet_volume::VolumeSpec;
use kubelet_volume::csi::migration::translate;
use serde_json::{Value, json};

fn persistent(metadata: Value, source: Value) -> Result<Option<Value>, String> {
    let mut spec = json!({"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"});
    spec.as_object_mut()
        .unwrap()
        .extend(source.as_object().unwrap().clone());
    let mut metadata = metadata;
    metadata["name"] = json!("pv-1");
    let volume = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let spec = VolumeSpec::persistent(Arc::new(volume), true);
    let translated = translate(&spec, "default").map_err(|error| error.to_string())?;
    Ok(translated.map(|translated| {
        assert!(translated.migrated && !translated.migrated_inline && translated.read_only);
        assert_eq!(translated.name(), "pv-1");
        json!(translated.persistent_volume().unwrap())
    }))
}

fn inline(source: Value) -> Result<Option<(String, Value)>, String> {
    let mut volume = json!({"name": "data"});
    volume
        .as_object_mut()
        .unwrap()
        .extend(source.as_object().unwrap().clone());
    let spec = VolumeSpec::of_pod(Arc::new(serde_json::from_value(volume).unwrap()));
    let translated = translate(&spec, "team-a").map_err(|error| error.to_string())?;
    Ok(translated.map(|translated| {
        assert!(translated.migrated && translated.migrated_inline);
        (
            translated.name().to_owned(),
            json!(translated.persistent_volume().unwrap()),
        )
    }))
}

#[test]
fn persistent_volumes_become_csi_volumes() {
    let csi = |source: Value| source;
    for (source, expected) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1", "fsType": "ext4", "partition": 2}}),
            csi(
                json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4", "volumeAttributes": {"partition": "2"}}),
            ),
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": "vol-1", "readOnly": true}}),
            csi(
                json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "readOnly": true, "volumeAttributes": {"partition": "0"}}),
            ),
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/d", "kind": "managed", "cachingMode": "None", "fsType": "xfs"}}),
            csi(
                json!({"driver": "disk.csi.azure.com", "volumeHandle": "/subscriptions/s/d", "fsType": "xfs",
                "volumeAttributes": {"kind": "Managed", "cachingMode": "None", "fstype": "xfs"}}),
            ),
        ),
        (
            json!({"azureFile": {"secretName": "azure-storage-account-joe-secret", "shareName": "s", "secretNamespace": "vault"}}),
            csi(
                json!({"driver": "file.csi.azure.com", "volumeHandle": "#joe#s#pv-1#vault", "volumeAttributes": {"sharename": "s"},
                "nodeStageSecretRef": {"name": "azure-storage-account-joe-secret", "namespace": "vault"}}),
            ),
        ),
        (
            json!({"cinder": {"volumeID": "c-1", "fsType": "ext4"}}),
            csi(
                json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "c-1", "fsType": "ext4", "volumeAttributes": {}}),
            ),
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "d"}}),
            csi(
                json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "volumeAttributes": {"partition": ""}}),
            ),
        ),
        (
            json!({"portworxVolume": {"volumeID": "p-1"}}),
            csi(json!({"driver": "pxd.portworx.com", "volumeHandle": "p-1", "volumeAttributes": {}})),
        ),
        (
            json!({"vsphereVolume": {"volumePath": "[ds] a.vmdk", "storagePolicyName": "gold"}}),
            csi(
                json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "[ds] a.vmdk", "volumeAttributes": {"storagepolicyname": "gold"}}),
            ),
        ),
    ] {
        let mut expected = expected;
        if let Some(mode) = expected["volumeAttributes"]
            .as_object_mut()
            .unwrap()
            .remove("cachingMode")
        {
            expected["volumeAttributes"]["cachingmode"] = mode;
        }
        let translated = persistent(json!({}), source.clone()).unwrap().unwrap();
        assert_eq!(translated["csi"], expected, "{source}");
        for (name, _) in source.as_object().unwrap() {
            assert_eq!(translated[name], Value::Null);
        }
    }
}

#[test]
fn other_volumes_are_left_alone_and_malformed_ones_refused() {
    assert_eq!(
        persistent(json!({}), json!({"nfs": {"server": "s", "path": "/"}})),
        Ok(None)
    );
    assert_eq!(inline(json!({"emptyDir": {}})), Ok(None));
    for (source, expected) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://zone/disk-1"}}),
            "Invalid format for AWS volume",
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Dedicated"}}),
            "kind(Dedicated) is not supported in csi migration",
        ),
        (
            json!({"azureFile": {"secretName": "s", "shareName": "s"}}),
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        ),
    ] {
        let error = persistent(json!({}), source).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn volumes_of_pods_become_persistent_volumes_with_names_of_their_own() {
    for (source, name, mode, handle) in [
        (
            json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}),
            "ebs.csi.aws.com-vol-1",
            "ReadWriteOnce",
            "vol-1",
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "/uri"}}),
            "/uri",
            "ReadWriteOnce",
            "/uri",
        ),
        (
            json!({"azureFile": {"secretName": "joe", "shareName": "s"}}),
            "#joe#s#data#team-a",
            "ReadWriteMany",
            "#joe#s#data#team-a",
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "d", "readOnly": true}}),
            "pd.csi.storage.gke.io-d",
            "ReadOnlyMany",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        (
            json!({"portworxVolume": {"volumeID": "p"}}),
            "pxd.portworx.com-p",
            "ReadWriteOnce",
            "p",
        ),
    ] {
        let (found, spec) = inline(source.clone()).unwrap().unwrap();
        assert_eq!(found, name, "{source}");
        assert_eq!(spec["accessModes"], json!([mode]));
        assert_eq!(spec["volumeMode"], "Filesystem");
        assert_eq!(spec["csi"]["volumeHandle"], handle);
    }
}

#[test]
fn zones_are_those_of_the_driver() {
    let labels = |zones: &str| json!({"labels": {"failure-domain.beta.kubernetes.io/zone": zones}});
    let disk = json!({"gcePersistentDisk": {"pdName": "d"}});
    let zonal = persistent(labels("us-central1-a"), disk.clone())
        .unwrap()
        .unwrap();
    assert_eq!(
        zonal["csi"]["volumeHandle"],
        "projects/UNSPECIFIED/zones/us-central1-a/disks/d"
    );
    assert_eq!(zonal["accessModes"], json!(["ReadWriteOnce"]));
    let terms = |spec: &Value| spec["nodeAffinity"]["required"]["nodeSelectorTerms"].clone();
    let key = "topology.gke.io/zone";
    assert_eq!(
        terms(&zonal),
        json!([{"matchExpressions": [{"key": key, "operator": "In", "values": ["us-central1-a"]}]}])
    );
    let regional = persistent(labels("us-central1-b__us-central1-a"), disk.clone())
        .unwrap()
        .unwrap();
    assert_eq!(
        regional["csi"]["volumeHandle"],
        "projects/UNSPECIFIED/regions/us-central1/disks/d"
    );
    assert_eq!(
        terms(&regional)[0]["matchExpressions"][0]["values"],
        json!(["us-central1-a", "us-central1-b"])
    );
    let error = persistent(labels("us-central1-a__eu-west1-a"), disk).unwrap_err();
    assert!(error.starts_with("failed to get region from zones"), "{error}");

    let required = |key: &str| {
        json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}]}]}}})
    };
    let replaced = persistent(json!({}), required("topology.kubernetes.io/zone"))
        .unwrap()
        .unwrap();
    assert_eq!(
        terms(&replaced)[0]["matchExpressions"][0]["key"],
        "topology.ebs.csi.aws.com/zone"
    );
    let kept = persistent(json!({}), required("example.com/rack"))
        .unwrap()
        .unwrap();
    assert_eq!(terms(&kept)[0]["matchExpressions"][0]["key"], "example.com/rack");
}
