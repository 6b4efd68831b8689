//! NFS volumes of a real server, if there is one.

use std::fs;
use std::time::Duration;

use kubelet_volume::PodMount;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::fixture::{Fixture, of_pod, on_disk, persistent, pod};

/// Longer than a server that is gone may delay the unmount of its volume.
const PATIENCE: Duration = Duration::from_secs(300);

/// `KUBELET_TESTING_NFS` is an export (`server:/path`) that this host may mount and write to; `KUBELET_TESTING_NFS_STOP` is a
/// shell command that stops the server.
#[allow(clippy::print_stdout)]
#[tokio::test]
async fn a_real_server_serves_and_then_is_gone() {
    let Some((server, path)) = export() else {
        println!("SKIPPED: KUBELET_TESTING_NFS names no export of an NFS server");
        return;
    };
    let fixture = Fixture::on_host();
    let source = |read_only: bool| json!({"nfs": {"server": server, "path": path, "readOnly": read_only}});
    let with_options = |options: Value| {
        let mut spec = source(false);
        spec["mountOptions"] = options;
        spec
    };
    let writable = fixture.mount(
        &pod(json!({})),
        persistent(with_options(json!(["vers=4.2"])), false),
    );
    let mut readable = fixture.mount(&pod(json!({})), of_pod(source(true)));
    readable.dir.set_file_name("read-only");
    for mount in [&writable, &readable] {
        fixture.of(&mount.spec).set_up(mount).await.unwrap();
        // It is idempotent.
        fixture.of(&mount.spec).set_up(mount).await.unwrap();
    }
    fs::write(writable.dir.join("file"), "over the network").unwrap();
    assert_eq!(
        fs::read_to_string(readable.dir.join("file")).unwrap(),
        "over the network"
    );
    assert!(fs::write(readable.dir.join("file"), "x").is_err());
    let usage = fixture
        .of(&writable.spec)
        .usage(&on_disk(&writable), &writable.spec)
        .await;
    let usage = usage.unwrap().unwrap();
    println!("{usage:?}");
    assert!(usage.capacity_bytes > Some(0) && usage.used_bytes.is_some());
    fixture.tear_down(&readable).await;

    let Some(stop) = std::env::var_os("KUBELET_TESTING_NFS_STOP") else {
        fixture.tear_down(&writable).await;
        return;
    };
    let stopped = Command::new("sh").arg("-c").arg(stop).status().await.unwrap();
    assert!(stopped.success());
    let scratch = fixture.mount(&pod(json!({})), of_pod(json!({"emptyDir": {"medium": "Memory"}})));
    let begun = std::time::Instant::now();
    let hanging = async {
        tear_down_at_last(&fixture, &writable).await;
        println!(
            "the volume is unmounted {:.0?} after its server was gone",
            begun.elapsed()
        );
    };
    let others = async {
        fixture.of(&scratch.spec).set_up(&scratch).await.unwrap();
        fixture.tear_down(&scratch).await;
        println!(
            "another volume was mounted and unmounted after {:.2?}",
            begun.elapsed()
        );
    };
    timeout(PATIENCE, async { tokio::join!(hanging, others) })
        .await
        .unwrap();
}

/// As the manager does: an unmount that fails is tried again.
#[allow(clippy::print_stdout)]
async fn tear_down_at_last(fixture: &Fixture, mount: &PodMount) {
    let plugin = fixture.of(&mount.spec);
    while let Err(error) = plugin.tear_down(&on_disk(mount)).await {
        println!("{error}");
    }
    assert!(!mount.dir.exists());
}

fn export() -> Option<(String, String)> {
    let export = std::env::var("KUBELET_TESTING_NFS").ok()?;
    let (server, path) = export.split_once(':')?;
    Some((server.to_owned(), path.to_owned()))
}
