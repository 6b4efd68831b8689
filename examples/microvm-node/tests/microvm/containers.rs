//! Containers: a VM from its image to its end.

use std::time::Duration;

use kubelet_cri::verbs::{ContainerRuntime as _, EnvVar, ErrorClass, Mount};
use serde_json::json;

use crate::{DEAF, ECHO, INIT, Stage};

#[tokio::test]
async fn a_vm_is_made_of_its_image_and_booted() {
    let stage = Stage::with_pod(INIT).await;
    let mut spec = stage.shell("echo $GREETING");
    spec.pod.hostname = "web-0".into();
    spec.env.push(EnvVar { name: "GREETING".into(), value: b"hello".to_vec() });
    spec.limits.cpu_millis = Some(1500);
    spec.limits.memory_bytes = Some(100 << 20);
    let exit = stage.run(&spec).await;
    assert_eq!((exit.code, exit.reason.as_str()), (0, "Completed"));
    assert_eq!(stage.log(), ["stdout F hello"]);

    let requests = stage.requests();
    let actions: Vec<_> = requests.iter().map(|(action, _)| action.as_str()).collect();
    assert_eq!(actions[..3], ["vm.delete", "vm.create", "vm.boot"]);
    let config = &requests[1].1;
    let of_image = |file: &str| json!(stage.dir.path().join("images/guest/latest").join(file));
    assert_eq!(config["payload"]["kernel"], of_image("kernel"));
    assert_eq!(config["cpus"]["boot_vcpus"], 2);
    assert_eq!(config["memory"]["size"], 100 << 20);
    let cmdline = config["payload"]["cmdline"].as_str().unwrap();
    assert!(cmdline.contains("root=/dev/vda"), "{cmdline}");
    assert!(cmdline.ends_with("ip=127.88.0.2::127.88.0.1:255.255.255.252:web-0:eth0:off"), "{cmdline}");
    assert_eq!(config["net"][0]["tap"], "vm0");
    // The guest writes to a copy.
    let dir = stage.dir.path().join("vm/containers/uid_main_0");
    assert_eq!(config["disks"][0]["path"], json!(dir.join("rootfs")));
    assert_eq!(
        (&config["disks"][1]["readonly"], &config["disks"][2]["readonly"]),
        (&json!(true), &json!(false))
    );

    stage.vms.remove(&spec.key).await.unwrap();
    stage.vms.remove(&spec.key).await.unwrap();
    assert!(!dir.exists() && stage.vms.list().await.unwrap().is_empty());
    stage.end(0).await;
}

#[tokio::test]
async fn the_exit_code_is_what_the_guest_wrote() {
    let stage = Stage::with_pod(INIT).await;
    for (attempt, script, code, reason) in
        [(0, "exit 42", 42, "Error"), (1, "kill -9 $$", 137, "Error"), (2, "true", 0, "Completed")]
    {
        let mut spec = stage.shell(script);
        spec.key.attempt = attempt;
        let exit = stage.run(&spec).await;
        assert_eq!((exit.code, exit.reason.as_str()), (code, reason), "{script}");
        assert!(exit.finished_at >= exit.started_at);
    }
    stage.end(0).await;
    assert_eq!(stage.vms.list().await.unwrap().len(), 3, "they are listed until they are removed");
}

#[tokio::test]
async fn a_guest_that_powers_off_without_a_code_is_done() {
    let stage = Stage::with_pod("echo done").await;
    let exit = stage.run(&stage.spec()).await;
    assert_eq!((exit.code, exit.reason.as_str()), (0, "Completed"));
    stage.end(0).await;
}

#[tokio::test]
async fn a_stop_asks_the_guest_to_power_off() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    stage.vms.stop(&spec.key, Duration::from_secs(60)).await.unwrap();
    assert_eq!(stage.exit(&spec).await.unwrap().code, 7);
    assert_eq!(stage.log(), ["stdout F booted", "stdout F bye"]);
    assert!(!stage.requests().iter().any(|(action, _)| action == "vm.shutdown"));
    // It succeeds for one that has ended or never was.
    stage.vms.stop(&spec.key, Duration::ZERO).await.unwrap();
    stage.vms.remove(&spec.key).await.unwrap();
    stage.vms.stop(&spec.key, Duration::ZERO).await.unwrap();
    stage.end(0).await;
}

#[tokio::test]
async fn a_guest_that_does_not_power_off_is_killed_after_the_grace_period() {
    let stage = Stage::with_pod(DEAF).await;
    let mut spec = stage.spec();
    for (attempt, grace, asked) in [(0, Duration::from_millis(300), 1), (1, Duration::ZERO, 1)] {
        spec.key.attempt = attempt;
        spec.log_path = Some(stage.dir.path().join("log"));
        stage.vms.start(&spec).await.unwrap();
        stage.says("booted").await;
        stage.vms.stop(&spec.key, grace).await.unwrap();
        let exit = stage.exit(&spec).await.unwrap();
        assert_eq!((exit.code, exit.reason.as_str()), (137, "Error"));
        let buttons = stage.requests().iter().filter(|(action, _)| action == "vm.power-button").count();
        assert_eq!(buttons, asked, "a grace period of zero does not ask");
    }
    assert_eq!(stage.pods().await, [0], "the engine goes on");
    stage.end(0).await;
}

/// The kubelet stops a container with a grace period, and then deletes the pod by force.
#[tokio::test]
async fn a_shorter_grace_period_applies() {
    let stage = Stage::with_pod(DEAF).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    let (first, second) = tokio::join!(
        stage.vms.stop(&spec.key, Duration::from_secs(3600)),
        stage.vms.stop(&spec.key, Duration::ZERO),
    );
    for stopped in [first, second] {
        stopped.unwrap();
    }
    assert_eq!(stage.exit(&spec).await.unwrap().code, 137);
    stage.end(0).await;
}

#[tokio::test]
async fn a_start_can_be_repeated() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    let (one, two) = tokio::join!(stage.vms.start(&spec), stage.vms.start(&spec));
    assert_eq!(one.unwrap(), two.unwrap());
    // One that is cut short goes on, and its result is in the list.
    stage.vms.stop(&spec.key, Duration::ZERO).await.unwrap();
    let mut next = stage.spec();
    next.key.attempt = 1;
    let mut cut = Box::pin(stage.vms.start(&next));
    assert!(futures::poll!(&mut cut).is_pending());
    drop(cut);
    assert!(stage.vms.inspect(&next.key).await.unwrap().is_running());
    let boots = stage.requests().iter().filter(|(action, _)| action == "vm.boot").count();
    assert_eq!(boots, 2);
    stage.end(0).await;
}

#[tokio::test]
async fn what_a_vm_cannot_be_is_refused() {
    let stage = Stage::with_pod(ECHO).await;
    let mut volume = stage.spec();
    volume.mounts = vec![Mount::new("/pods/u/etc-hosts", "/etc/hosts"), Mount::new("/srv", "/data")];
    let mut variable = stage.spec();
    variable.env.push(EnvVar { name: "my.name".into(), value: Vec::new() });
    let mut image = stage.spec();
    image.image = "missing:v1".into();
    let mut pod = stage.spec();
    pod.pod_attempt = 1;
    for (spec, class, said) in [
        (volume, ErrorClass::Permanent, "mounts one at /data"),
        (variable, ErrorClass::Permanent, "my.name"),
        (image, ErrorClass::Gone, "missing/v1/kernel"),
        (pod, ErrorClass::Transient, "its pod has not begun"),
    ] {
        let error = stage.vms.start(&spec).await.unwrap_err();
        assert_eq!(error.class, class, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    // What the engine refuses leaves nothing behind.
    std::fs::write(stage.dir.path().join("images/guest/latest/kernel"), "").unwrap();
    let refused = stage.vms.start(&stage.spec()).await.unwrap_err();
    assert!(refused.message.contains("the kernel is empty"), "{refused}");
    assert_eq!(std::fs::read_dir(stage.dir.path().join("vm/containers")).unwrap().count(), 0);
    std::fs::write(stage.dir.path().join("images/guest/latest/kernel"), "better").unwrap();

    stage.vms.start(&stage.spec()).await.unwrap();
    let mut second = stage.spec();
    second.key.container = "sidecar".into();
    let refused = stage.vms.start(&second).await.unwrap_err();
    assert!(refused.message.contains(r#"one virtual machine at a time, and "main" is running"#), "{refused}");
    stage.end(0).await;
}

#[tokio::test]
async fn the_log_goes_on_in_a_new_file_after_a_rotation() {
    let stage = Stage::with_pod(ECHO).await;
    let spec = stage.spec();
    stage.vms.start(&spec).await.unwrap();
    stage.says("booted").await;
    std::fs::rename(stage.dir.path().join("log"), stage.dir.path().join("rotated")).unwrap();
    stage.vms.logs().unwrap().reopen(&spec.key).await.unwrap();
    stage.vms.stop(&spec.key, Duration::from_secs(60)).await.unwrap();
    assert_eq!(stage.log(), ["stdout F bye"]);
    stage.end(0).await;
}
