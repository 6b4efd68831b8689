//! Logs of real containers: rotated, followed across a rotation, and read; commands in the containers, and their
//! usage.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use kubelet_core::PodExt;
use kubelet_core::runtime::ContainerState;
use kubelet_cri::CriClient;
use kubelet_kuberuntime::logs::{ContainerLogManager, LogChunk, LogRotatePolicy, PodLogOptions};
use kubelet_kuberuntime::{CgroupDriver, StreamOptions};
use kubelet_testing::Containerd;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::manager::{AllBut, Manager, pod};
use crate::standalone::{GUARD, until};

/// Writes a line and, on each of three signals, more until there are 1,000, 2,000 and 3,000.
const WRITER: &str = "echo line 0; i=1; for go in 1 2 3; do until [ -e /tmp/go-$go ]; do usleep 10000; done; \
    while [ $i -lt ${go}000 ]; do echo line $i; i=$((i+1)); \
    [ $((i % 100)) = 0 ] && usleep 60000; done; done; exit 0";

fn text(chunks: Vec<LogChunk>) -> String {
    String::from_utf8(chunks.into_iter().flat_map(|chunk| chunk.bytes).collect()).unwrap()
}

/// Shows the first line that differs: all of them are too many.
fn assert_same(read: &str, written: &str) {
    let differ = read.lines().zip(written.lines()).position(|(read, written)| read != written);
    let at = differ.unwrap_or(read.lines().count().min(written.lines().count()));
    let near =
        |text: &str| text.lines().skip(at.saturating_sub(2)).take(6).map(str::to_owned).collect::<Vec<_>>();
    assert!(read == written, "line {at} differs: read {:?}, written {:?}", near(read), near(written));
}

#[tokio::test]
async fn a_log_is_rotated_and_who_follows_it_misses_nothing() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    let manager = Manager::on(client.clone(), client.clone()).await;
    let policy = LogRotatePolicy {
        max_size: Some(10_000),
        max_files: 100,
        monitor_interval: Duration::from_millis(100),
        ..LogRotatePolicy::default()
    };
    let shutdown = CancellationToken::new();
    let rotation = ContainerLogManager::new(client, policy).unwrap();

    let writer = pod("writer", WRITER, "Never");
    let status = manager.sync_until(&writer, |status| status.container("main").is_some()).await;
    let id = &status.container("main").unwrap().id;
    let follow = PodLogOptions { follow: true, ..PodLogOptions::default() };
    let mut following = manager.runtime.container_logs(id, follow).await.unwrap();
    let first = timeout(GUARD, following.try_next()).await.expect("it does not begin").unwrap();
    // Only new lines: a reader that comes after a rotation begins with the newest file.
    let rotating = tokio::spawn(rotation.run(shutdown.clone()));
    let rest = timeout(GUARD, following.try_collect::<Vec<_>>());
    let names = || -> Vec<String> {
        let files = std::fs::read_dir(manager.dir.path().join("logs/default_writer_writer/main")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    };
    // A slow machine may rotate late: more is written when the earlier lines were rotated.
    let writing = async {
        for go in 1..=3 {
            let command = ["touch", &format!("/tmp/go-{go}")].map(str::to_owned);
            manager.runtime.run_in_container(&writer.key(), "main", &command, Duration::ZERO).await.unwrap();
            let rotated = || match go {
                1 => (names().len() > 1).then_some(()),
                2 => names().iter().any(|name| name.ends_with(".gz")).then_some(()),
                _ => Some(()),
            };
            until("the log is rotated", async || rotated()).await;
        }
    };
    let (rest, ()) = tokio::join!(rest, writing);
    let rest = rest.expect("it does not end").unwrap();
    let followed: Vec<_> = first.into_iter().chain(rest).collect();
    let expected: String = (0..3000).map(|number| format!("line {number}\n")).collect();
    assert_same(&text(followed), &expected);
    shutdown.cancel();
    rotating.await.unwrap();

    let all = PodLogOptions { rotated: true, ..PodLogOptions::default() };
    let all = manager.runtime.container_logs(id, all).await.unwrap().try_collect().await.unwrap();
    assert_same(&text(all), &expected);
    manager.collect(&AllBut(Some("writer".into()))).await;
    manager.kill(&writer).await;
}

#[tokio::test]
async fn commands_streams_and_stats_of_a_container() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    // containerd reports a pod's usage only if it knows the pod's cgroup.
    let cgroups = CgroupDriver::Cgroupfs { root: "/kubelet-testing".to_owned() };
    let manager = Manager::with_cgroups(client.clone(), client, cgroups).await;
    let server = pod("server", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done", "Always");
    let running = |status: &kubelet_core::runtime::PodStatus| {
        status.container("main").is_some_and(|main| main.state == ContainerState::Running)
    };
    manager.sync_until(&server, running).await;
    let (runtime, key) = (&manager.runtime, server.key());
    let run = async |script: &str, seconds| {
        let command = ["sh", "-c", script].map(str::to_owned);
        runtime.run_in_container(&key, "main", &command, Duration::from_secs(seconds)).await
    };
    let output = run("echo out; echo err >&2; exit 3", 0).await.unwrap();
    assert_eq!((output.stdout, output.stderr, output.exit_code), (b"out\n".into(), b"err\n".into(), 3));
    let late = run("sleep 1000", 1).await.unwrap_err();
    assert!(late.is_timeout() && late.message().ends_with("timed out after 1s"), "{late}");
    let much = run("head -c 1000000 /dev/zero | tr '\\0' x", 0).await.unwrap();
    assert_eq!(much.stdout.len(), 1_000_000);

    let streams = StreamOptions { stdout: true, ..StreamOptions::default() };
    let url = runtime.exec_url(&key, "main", &["sh".to_owned()], streams).await.unwrap();
    assert!(url.contains("/exec/"), "{url}");
    let url = runtime.attach_url(&server, "main", streams).await.unwrap();
    assert!(url.contains("/attach/"), "{url}");
    let url = runtime.port_forward_url(&key, &[80]).await.unwrap();
    assert!(url.contains("/portforward/"), "{url}");
    let gone = runtime.exec_url(&key, "none", &["sh".to_owned()], streams).await.unwrap_err();
    assert_eq!(gone.message(), "container not found (\"none\")");

    let stats = runtime.pod_stats().await.unwrap();
    let [stats] = &stats[..] else { panic!("{stats:#?}") };
    assert_eq!(stats.key, key);
    let [main] = &stats.containers[..] else { panic!("{stats:#?}") };
    assert!(main.cpu.as_ref().and_then(|cpu| cpu.usage_core_nano_seconds.as_ref()).is_some(), "{main:#?}");
    assert!(main.memory.as_ref().and_then(|memory| memory.working_set_bytes.as_ref()).is_some(), "{main:#?}");
    let images = runtime.image_fs_info().await.unwrap();
    assert!(images.image_filesystems[0].used_bytes.is_some(), "{images:#?}");
    manager.kill(&server).await;
}
