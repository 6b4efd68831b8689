//! Pods: an engine from its begin to its end.

use kubelet_cri::verbs::{ContainerRuntime as _, ErrorClass, PodKey, PodSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{ECHO, Stage, until};

#[tokio::test]
async fn a_pod_has_an_engine_and_an_address() {
    let stage = Stage::new(ECHO).await;
    let first = stage.begin(0).await.unwrap();
    assert_eq!(first.addresses, ["127.88.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(stage.begin(0).await.unwrap(), first, "it can be repeated");
    let second = stage.begin(1).await.unwrap();
    assert_ne!(second.addresses, first.addresses);
    assert_eq!(stage.pods().await, [0, 1]);

    stage.end(0).await;
    assert!(!stage.pod_dir().exists());
    stage.end(0).await;
    assert_eq!(stage.pods().await, [1]);
    assert_eq!(stage.begin(2).await.unwrap().addresses, first.addresses, "its address is free again");
    stage.begin(3).await.unwrap();
    stage.begin(4).await.unwrap();
    assert_eq!(stage.begin(5).await.unwrap_err().class, ErrorClass::Throttled);
    stage.vms.shutdown().await;
    assert_eq!(stage.pods().await, [0; 0]);
}

#[tokio::test]
async fn the_network_of_the_host_is_refused() {
    let stage = Stage::new(ECHO).await;
    let spec = || PodSpec::new(PodKey::new("uid", 0));
    let (mut network, mut port) = (spec(), spec());
    network.host_network = true;
    port.host_ports = vec![80];
    for spec in [network, port] {
        let error = stage.vms.pods().unwrap().begin(&spec).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Permanent);
    }
}

#[tokio::test]
async fn an_engine_that_does_not_start_says_why() {
    let stage = Stage::new(ECHO).await;
    std::fs::write(stage.dir.path().join("vm/broken"), "/dev/kvm is missing").unwrap();
    let error = stage.begin(0).await.unwrap_err();
    assert!(error.class == ErrorClass::Transient && error.message.contains("/dev/kvm is missing"), "{error}");
    assert_eq!(stage.pods().await, [0; 0]);
    stage.end(0).await;
    std::fs::remove_file(stage.dir.path().join("vm/broken")).unwrap();
    stage.begin(0).await.unwrap();
    stage.end(0).await;
}

#[tokio::test]
async fn a_begin_that_is_dropped_is_ended() {
    let stage = Stage::new(ECHO).await;
    let mut cut = Box::pin(stage.begin(0));
    assert!(futures::poll!(&mut cut).is_pending());
    drop(cut);
    assert_eq!(stage.pods().await, [0; 0]);
    stage.end(0).await;
    assert!(!stage.pod_dir().exists());
    assert_eq!(stage.begin(0).await.unwrap().addresses.len(), 1);
    stage.end(0).await;
}

#[tokio::test]
async fn an_engine_that_dies_ends_its_pod_and_its_container() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    stage.kill_engine().await;
    let exit = stage.ended(&spec).await;
    assert_eq!((exit.code, exit.reason.as_str()), (137, "Error"));
    assert_eq!(exit.message, "the engine of the virtual machine ended");
    assert_eq!(stage.pods().await, [0; 0]);
    assert!(stage.vms.start(&spec).await.unwrap().exit().is_some(), "a start does not run it again");
    // The kubelet ends the pod, and begins it anew.
    stage.end(0).await;
    stage.begin(1).await.unwrap();
    stage.end(1).await;
}

#[tokio::test]
async fn the_end_of_a_pod_kills_its_guest() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.end(0).await;
    assert_eq!(stage.ended(&spec).await.code, 137);
}

#[tokio::test]
async fn a_port_of_the_pod_is_one_of_its_guest() {
    let stage = Stage::with_pod(ECHO).await;
    let listener = tokio::net::TcpListener::bind("127.88.0.2:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let forward = stage.vms.port_forward().unwrap();
    let mut client = forward.connect(&"uid".into(), port).await.unwrap();
    let (mut guest, _) = listener.accept().await.unwrap();
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut said = String::new();
    guest.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "hello");
    stage.end(0).await;
    let gone = until("the end", async || forward.connect(&"uid".into(), port).await.err()).await;
    assert!(gone.message.contains("has no address"), "{gone}");
}
