//! `dra_manager_state`, held to the files of the kubelet's own tests.

use kubelet_resources::dra::{ClaimState, read_claims, write_claims};
use serde_json::{Value, from_value, json};

use super::fixture::World;

const POD: &str = "139cdb46-f989-4f17-9561-ca10cfb509a6";

fn device(name: &str, more: &Value) -> Value {
    let mut device = json!({"PoolName": "worker-1", "DeviceName": name});
    for (field, value) in more.as_object().unwrap() {
        device[field] = value.clone();
    }
    device
}

fn state(name: &str, uid: &str, devices: &[Value]) -> ClaimState {
    from_value(json!({
        "ClaimUID": uid, "ClaimName": name, "Namespace": "default", "PodUIDs": {POD: {}},
        "DriverState": {"test-driver.cdi.k8s.io": {"Devices": devices}},
    }))
    .unwrap()
}

fn full(name: &str) -> Value {
    device(
        name,
        &json!({"RequestNames": ["test request"], "CDIDeviceIDs": ["example.com/example=cdi-example"]}),
    )
}

/// `TestCheckpointStateStore`, and back.
#[test]
fn files_are_those_of_the_kubelet() {
    const FIRST: &str = "067798be-454e-4be4-9047-1aa06aea63f7";
    let shared = device(
        "dev-1",
        &json!({"ShareID": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "RequestNames": ["test request"],
            "CDIDeviceIDs": ["example.com/example=cdi-example"]}),
    );
    for (claims, checksum) in [
        (vec![state("example", FIRST, &[full("dev-1")])], 2_570_581_864_u32),
        (vec![state("example", FIRST, &[shared])], 736_302_156),
        (
            vec![state("example", FIRST, &[full("dev-1"), full("dev-2")])],
            1_223_221_469,
        ),
        (
            vec![
                state("example-1", FIRST, &[full("dev-1")]),
                state(
                    "example-2",
                    "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
                    &[device("dev-2", &json!({}))],
                ),
            ],
            2_820_117_767,
        ),
    ] {
        let contents = write_claims(Some(claims.clone())).unwrap();
        let json: Value = serde_json::from_slice(&contents).unwrap();
        assert_eq!(json["Checksum"], checksum);
        assert_eq!(read_claims(&contents).unwrap(), claims);
    }
}

/// `TestCheckpointGetOrCreate`: other versions, with fewer fields, are read.
#[test]
fn files_of_other_versions_are_read() {
    let contents = |version: &str, checksum: u32| {
        let data = format!(
            "{{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/{version}\",\
             \"ClaimInfoStateList\":[{{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\
             \"Namespace\":\"default\",\"PodUIDs\":{{\"{POD}\":{{}}}},\"DriverState\":{{\"test-driver.cdi.k8s.io\":\
             {{\"Devices\":[{{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\
             \"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}}]}}}}}}]}}"
        );
        json!({"Data": data, "Checksum": checksum}).to_string()
    };
    for (version, checksum) in [("v1", 1_137_250_765), ("v0", 1_284_376_732)] {
        let claims = read_claims(contents(version, checksum).as_bytes()).unwrap();
        assert_eq!(claims.len(), 1);
        let (driver, state) = claims[0].driver_state.first_key_value().unwrap();
        assert_eq!(driver, "test-driver.cdi.k8s.io");
        assert_eq!(state.devices.as_ref().unwrap()[0].request_names, None);
    }
    let null = json!({"Data": "{\"ClaimInfoStateList\":null}", "Checksum": 2_926_376_533_u32});
    let _ = read_claims(null.to_string().as_bytes());
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_the_kubelets_text() {
    for (contents, text) in [
        ("{", "unexpected end of JSON input"),
        (
            r#"{"Data":"{\"kind\":\"DRACheckpoint\"}","Checksum":1}"#,
            "checkpoint is corrupted",
        ),
    ] {
        let world = World::new();
        world.store.put(contents.as_bytes());
        let builder = kubelet_resources::dra::DraManager::builder(world.store.clone(), world.api.clone());
        let Err(error) = builder.start().await else {
            panic!("accepted")
        };
        assert_eq!(
            error.to_string(),
            format!(
                "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint dra_manager_state: {text}"
            )
        );
    }
}

#[test]
fn names_are_escaped_as_by_go() {
    let claims = vec![state("a<b>&c\u{2028}", "uid", &[])];
    let contents = write_claims(Some(claims.clone())).unwrap();
    let text = String::from_utf8(contents.clone()).unwrap();
    assert!(text.contains(r"a\\u003cb\\u003e\\u0026c\\u2028"), "{text}");
    assert_eq!(read_claims(&contents).unwrap(), claims);
}

/// A kubelet that starts for the first time writes a list that is `null`.
#[tokio::test]
async fn a_new_file_is_empty() {
    let world = World::new();
    world.manager().await;
    assert_eq!(world.store.writes(), 1);
    assert!(world.store.claims().is_empty());
    let text = String::from_utf8(write_claims(None).unwrap()).unwrap();
    assert!(text.contains(r#"\"ClaimInfoStateList\":null"#), "{text}");
}
