//! A restart of the agent: the engines go on, and the next agent takes them over.

use std::time::Duration;

use kubelet_cri::verbs::{ContainerRuntime as _, ContainerState};

use crate::{ECHO, Stage, until};

#[tokio::test]
async fn the_next_agent_takes_over_a_running_vm() {
    let mut stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    let started = stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    stage.restart().await;
    assert_eq!(stage.pods().await, [0]);
    assert_eq!(stage.vms.list().await.unwrap(), std::slice::from_ref(&started));
    assert_eq!(stage.vms.start(&spec).await.unwrap(), started, "it is not started again");
    assert_eq!(stage.begin(0).await.unwrap().addresses.len(), 1);
    assert_ne!(stage.begin(1).await.unwrap().addresses, stage.begin(0).await.unwrap().addresses);

    stage.vms.stop(&spec.key, Duration::from_secs(60)).await.unwrap();
    assert_eq!(stage.exit(&spec).await.unwrap().code, 7);
    assert_eq!(stage.log(), ["stdout F booted", "stdout F bye"]);
    // And its successor knows how it ended.
    stage.restart().await;
    let ContainerState::Exited(exit) = stage.vms.inspect(&spec.key).await.unwrap().state else {
        panic!("it runs")
    };
    assert_eq!((exit.code, exit.reason.as_str()), (7, "Error"));
    stage.vms.shutdown().await;
}

/// Its exit code is not lost: it is on a disk.
#[tokio::test]
async fn a_vm_that_ends_without_an_agent() {
    for engine_too in [false, true] {
        let mut stage = Stage::with_pod(ECHO).await;
        let spec = stage.spec();
        stage.vms.start(&spec).await.unwrap();
        stage.says("booted").await;
        stage.stop_agent().await;
        stage.press_power_button().await;
        let disk = stage.dir.path().join("vm/containers/uid_main_0/exit");
        until("the exit code", async || std::fs::read(&disk).ok().filter(|code| code.starts_with(b"7\n")))
            .await;
        if engine_too {
            stage.kill_engine().await;
        }
        stage.restart().await;
        let exit = stage.ended(&spec).await;
        assert_eq!((exit.code, exit.reason.as_str()), (7, "Error"), "{engine_too}");
        assert_eq!(stage.pods().await.len(), usize::from(!engine_too));
        stage.end(0).await;
    }
}

#[tokio::test]
async fn a_start_or_a_begin_that_the_agent_did_not_finish_leaves_nothing() {
    let mut stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.vms.stop(&spec.key, Duration::ZERO).await.unwrap();
    // As if the agent had been killed before the VM was booted, and before the pod had begun.
    let record = stage.dir.path().join("vm/containers/uid_main_0/record.json");
    let mut unfinished: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    unfinished["booted"] = false.into();
    unfinished["exit"] = serde_json::Value::Null;
    std::fs::write(&record, unfinished.to_string()).unwrap();
    std::fs::remove_file(stage.pod_dir().join("record.json")).unwrap();
    stage.restart().await;
    assert!(stage.vms.list().await.unwrap().is_empty());
    assert_eq!(stage.pods().await, [0; 0]);
    let engine = stage.pod_dir().join("api.sock");
    assert!(tokio::net::UnixStream::connect(&engine).await.is_ok(), "the engine is still there");
    stage.end(0).await;
    assert!(!stage.pod_dir().exists());
}
