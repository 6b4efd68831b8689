//! Container logs and termination messages, in the files that the kubelet reads.

use std::fs;
use std::time::Duration;

use kubelet_cri::{RuntimeService, v1};
use kubelet_testing::memory_cri::Latency;
use kubelet_testing::{MemoryCri, Run};
use tempfile::TempDir;
use tokio::time::advance;

use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);

async fn with_log(runtime: &MemoryCri, folder: &TempDir, name: &str) -> String {
    let mut config = sandbox_config(name, 0);
    config.log_directory = folder.path().join("pod").display().to_string();
    let sandbox = run_config(runtime, config).await.unwrap();
    advance(SECOND).await;
    let mut config = container_config(name, 0);
    config.log_path = format!("{name}/0.log");
    create_config(runtime, &sandbox, config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn logs_are_written_as_cri_has_them() {
    let folder = TempDir::new().unwrap();
    let runtime = with_image(
        builder()
            .latency(Latency::none())
            .write_logs_below(folder.path())
            .build(),
    );
    let long = "ü".repeat(10_000);
    runtime.script(
        "main",
        [Run::exits(0)
            .after(60 * SECOND)
            .prints("hello\nworld")
            .complains("oh")
            .prints_after(2 * SECOND, long.as_str())
            .prints_after(30 * SECOND, "later")
            .prints_after(90 * SECOND, "never")],
    );
    let id = with_log(&runtime, &folder, "main").await;
    let log = folder.path().join("pod/main/0.log");
    assert_eq!(
        status(&runtime, &id).await.unwrap().log_path,
        log.display().to_string()
    );
    start(&runtime, &id).await.unwrap();
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "1970-01-12T13:46:41Z stdout F hello\n1970-01-12T13:46:41Z stdout F world\n1970-01-12T13:46:41Z stderr F oh\n"
    );
    advance(3 * SECOND).await;
    status(&runtime, &id).await.unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let parts: Vec<_> = text
        .lines()
        .skip(3)
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert!(parts.iter().all(|(time, _)| *time == "1970-01-12T13:46:43Z"));
    assert!(parts[0].1.starts_with("stdout P ü") && parts[1].1.starts_with("stdout F ü"));
    let whole: String = parts.iter().map(|(_, text)| &text[9..]).collect();
    assert_eq!(whole, long);

    // After a rotation the runtime writes to the old file until `ReopenContainerLog`.
    let old = folder.path().join("pod/main/0.log.old");
    fs::rename(&log, &old).unwrap();
    advance(57 * SECOND - Duration::from_millis(1)).await;
    let reopen = || {
        runtime.reopen_container_log(v1::ReopenContainerLogRequest {
            container_id: id.clone(),
        })
    };
    reopen().await.unwrap();
    assert!(
        fs::read_to_string(&old)
            .unwrap()
            .ends_with("1970-01-12T13:47:11Z stdout F later\n")
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    advance(3600 * SECOND).await;
    reopen().await.unwrap_err();
    assert_eq!(fs::read_to_string(&log).unwrap(), "", "it had ended");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_elsewhere() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for runtime in [
        builder().write_logs_below(folder.path()).build(),
        builder().build(),
    ] {
        let runtime = with_image(runtime);
        runtime.script("main", [Run::forever().prints("hello")]);
        let id = with_log(&runtime, &elsewhere, "main").await;
        start(&runtime, &id).await.unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_made_fails_the_start() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("pod"), "a file where a folder should be").unwrap();
    let runtime = with_image(builder().write_logs_below(folder.path()).build());
    let id = with_log(&runtime, &folder, "main").await;
    assert_refused(
        start(&runtime, &id).await,
        kubelet_cri::Code::Unknown,
        "failed to create container loggers",
    );
    assert_eq!(fate(&runtime, &id).await.2, "StartError");
}

#[tokio::test(start_paused = true)]
async fn a_termination_message_is_left_in_the_mounted_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("message");
    fs::write(&file, "").unwrap();
    let runtime = instant();
    runtime.script("main", [Run::exits(1).leaves_message("lost the plot")]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let mut config = container_config("main", 0);
    config.annotations.insert(
        "io.kubernetes.container.terminationMessagePath".to_owned(),
        "/dev/termination-log".to_owned(),
    );
    config.mounts = vec![v1::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: file.display().to_string(),
        ..Default::default()
    }];
    let id = create_config(&runtime, &sandbox, config).await.unwrap();
    start(&runtime, &id).await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "lost the plot");
}
