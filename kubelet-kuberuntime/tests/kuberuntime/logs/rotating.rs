//! Rotation by size and count.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_cri::v1::ContainerState;
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::runtime::LogRuntime;

/// A running manager.
struct Rotating {
    runtime: Arc<LogRuntime>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Rotating {
    fn start(runtime: LogRuntime, change: impl Fn(&mut LogRotatePolicy)) -> Self {
        let runtime = Arc::new(runtime);
        let mut policy = LogRotatePolicy {
            max_size: Some(10),
            ..Default::default()
        };
        change(&mut policy);
        let clock = Clock::starting_at("2024-01-01T00:00:00Z".parse().unwrap());
        let manager = ContainerLogManager::new(runtime.clone(), policy)
            .unwrap()
            .clock(clock);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(manager.run(shutdown.clone()));
        Self {
            runtime,
            shutdown,
            task,
        }
    }

    /// Waits for one interval.
    async fn interval(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }

    async fn stop(self) -> Arc<LogRuntime> {
        self.shutdown.cancel();
        self.task.await.unwrap();
        self.runtime
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_log_is_rotated_compressed_and_in_the_end_removed() {
    let runtime = LogRuntime::running();
    runtime.add("small", ContainerState::ContainerRunning);
    runtime.add("ended", ContainerState::ContainerExited);
    runtime.write("c", "too large, the first\n");
    runtime.write("small", "small\n");
    runtime.write("ended", "too large, but nobody writes it\n");
    let rotating = Rotating::start(runtime, |policy| policy.max_files = 4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let c = |files: Vec<String>| -> Vec<String> {
        let of_c = |name: &String| name.starts_with("c.log");
        files.into_iter().filter(of_c).collect()
    };
    let files = || c(rotating.runtime.files());
    assert_eq!(files(), ["c.log", "c.log.20240101-000000"]);
    rotating.interval().await;
    assert_eq!(
        files(),
        ["c.log", "c.log.20240101-000000"],
        "an empty log is no large one"
    );
    let mut rotated = vec!["c.log.20240101-000000".to_owned()];
    for number in 2..=5 {
        rotating
            .runtime
            .write("c", &format!("too large, number {number}\n"));
        rotating.interval().await;
        let at = format!("c.log.20240101-0000{}", number * 10);
        // At most four files, with the log itself; all but the newest are compressed.
        rotated.push(at);
        let first = rotated.len().saturating_sub(3);
        let (youngest, older) = rotated[first..].split_last().unwrap();
        let mut expected = vec!["c.log".to_owned()];
        expected.extend(older.iter().map(|name| format!("{name}.gz")));
        expected.push(youngest.clone());
        assert_eq!(files(), expected);
    }
    let runtime = rotating.stop().await;
    let gz = std::fs::File::open(runtime.log("c").with_file_name("c.log.20240101-000030.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(gz)
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "too large, number 3\n");
    assert_eq!(std::fs::read_to_string(runtime.log("small")).unwrap(), "small\n");
    assert!(!runtime.files().iter().any(|name| name.starts_with("ended.log.")));
    let calls = runtime.take_calls();
    assert!(!calls.iter().any(|call| call.ends_with("ended")), "{calls:?}");
    assert!(
        !calls.contains(&"ReopenContainerLog small".to_owned()),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_runtime_reports_the_path_of_a_small_log_once() {
    let runtime = LogRuntime::running();
    runtime.write("c", "small\n");
    let rotating = Rotating::start(runtime, |_| {});
    for _ in 0..3 {
        rotating.interval().await;
    }
    assert_eq!(rotating.runtime.take_calls(), ["ContainerStatus c"]);
    rotating.runtime.write("c", "and now too large\n");
    rotating.interval().await;
    let runtime = rotating.stop().await;
    assert!(runtime.files().iter().any(|name| name.starts_with("c.log.2024")));
}

#[tokio::test(start_paused = true)]
async fn what_an_unfinished_rotation_left_is_removed() {
    let runtime = LogRuntime::running();
    runtime.write("c", "too large, by far\n");
    for name in [
        "c.log.20230101-000000",
        "c.log.20230101-000000.gz",
        "c.log.20230102-000000",
        "c.log.20230102-000000.tmp",
        "c.log.x.tmp",
    ] {
        runtime.put(name, name);
    }
    let rotating = Rotating::start(runtime, |_| {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runtime = rotating.stop().await;
    assert_eq!(
        runtime.files(),
        [
            "c.log",
            "c.log.20230101-000000.gz",
            "c.log.20230102-000000.gz",
            "c.log.20240101-000000"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn where_the_runtime_opens_no_new_log_the_old_one_keeps_its_name() {
    let runtime = LogRuntime::running();
    runtime.write("c", "too large, by far\n");
    *runtime.reopen_fails.lock().unwrap() = true;
    let rotating = Rotating::start(runtime, |_| {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rotating.runtime.files(), ["c.log"]);
    rotating.runtime.write("c", "and more\n");
    *rotating.runtime.reopen_fails.lock().unwrap() = false;
    rotating.interval().await;
    let runtime = rotating.stop().await;
    assert_eq!(runtime.files(), ["c.log", "c.log.20240101-000010"]);
    let rotated = std::fs::read_to_string(runtime.log("c").with_file_name("c.log.20240101-000010"));
    assert_eq!(rotated.unwrap(), "too large, by far\nand more\n");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_there_is_opened_anew() {
    let runtime = LogRuntime::running();
    // The state if the agent was killed between the rename and the call.
    std::fs::rename(
        runtime.log("c"),
        runtime.log("c").with_file_name("c.log.20230101-000000"),
    )
    .unwrap();
    let rotating = Rotating::start(runtime, |_| {});
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runtime = rotating.stop().await;
    assert_eq!(runtime.files(), ["c.log", "c.log.20230101-000000"]);
    assert!(runtime.take_calls().contains(&"ReopenContainerLog c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_hangs_holds_up_only_its_worker() {
    let runtime = LogRuntime::running();
    runtime.add("d", ContainerState::ContainerRunning);
    runtime.write("c", "too large, by far\n");
    *runtime.held.lock().unwrap() = Some("c".to_owned());
    let rotating = Rotating::start(runtime, |policy| policy.max_workers = 2);
    rotating.interval().await;
    for _ in 0..3 {
        rotating.runtime.write("d", "too large, by far\n");
        rotating.interval().await;
    }
    let calls = rotating.runtime.take_calls();
    let count = |call: &str| calls.iter().filter(|it| *it == call).count();
    assert_eq!(
        (count("ReopenContainerLog c"), count("ReopenContainerLog d")),
        (1, 3),
        "{calls:?}"
    );
    *rotating.runtime.held.lock().unwrap() = None;
    rotating.runtime.release.notify_one();
    let runtime = rotating.stop().await;
    assert!(
        runtime.files().contains(&"c.log".to_owned()),
        "what is under way is ended"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_must_make_sense() {
    let runtime = Arc::new(LogRuntime::running());
    let error = |change: fn(&mut LogRotatePolicy)| {
        let mut policy = LogRotatePolicy::default();
        change(&mut policy);
        ContainerLogManager::new(runtime.clone(), policy)
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        error(|policy| policy.max_files = 1),
        "invalid MaxFiles 1, must be > 1"
    );
    assert_eq!(
        error(|policy| policy.max_workers = 0),
        "invalid MaxWorkers 0, must be > 0"
    );

    let runtime = LogRuntime::running();
    runtime.write("c", "too large, by far\n");
    let rotating = Rotating::start(runtime, |policy| policy.max_size = None);
    rotating.interval().await;
    assert_eq!(rotating.stop().await.files(), ["c.log"], "switched off");
}
