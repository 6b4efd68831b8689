//! Following a log that grows, is rotated, and ends.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kubelet_cri::{Code, Error};
use kubelet_kuberuntime::logs::{ContainerLogManager, LogChunks, LogReader, LogRotatePolicy, PodLogOptions};
use tokio_util::sync::CancellationToken;

use super::runtime::LogRuntime;

fn follow(runtime: &Arc<LogRuntime>, options: PodLogOptions) -> LogChunks {
    LogReader::new(runtime.log("c"))
        .options(PodLogOptions {
            follow: true,
            ..options
        })
        .container(runtime.clone(), "c")
        .read()
}

async fn next(chunks: &mut LogChunks) -> String {
    String::from_utf8(chunks.next().await.expect("it goes on").unwrap().bytes).unwrap()
}

async fn rest(chunks: LogChunks) -> String {
    let chunks: Vec<_> = chunks.try_collect().await.unwrap();
    String::from_utf8(chunks.into_iter().flat_map(|chunk| chunk.bytes).collect()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_until_the_container_has_ended() {
    let runtime = Arc::new(LogRuntime::running());
    runtime.line("c", "one");
    runtime.line("c", "two");
    let mut chunks = follow(
        &runtime,
        PodLogOptions {
            tail_lines: Some(1),
            ..Default::default()
        },
    );
    assert_eq!(next(&mut chunks).await, "two\n");
    let writer = runtime.clone();
    let writing = tokio::spawn(async move {
        for number in 0..20 {
            writer.line("c", &number.to_string());
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        // Half a line, and its other half.
        writer.write("c", "2024-01-01T00:00:00Z stdout ");
        tokio::time::sleep(Duration::from_secs(5)).await;
        writer.write("c", "F whole\n");
        writer.line("c", "last words");
        writer.write("c", "2024-01-01T00:00:00Z stdout F without end");
        writer.end("c");
    });
    // A chunk has all lines that were written since the last one.
    let (mut read, expected) = (
        String::new(),
        (0..20).map(|number| format!("{number}\n")).collect::<String>(),
    );
    while read.len() < expected.len() {
        read += &next(&mut chunks).await;
    }
    assert_eq!(read, expected);
    assert_eq!(rest(chunks).await, "whole\nlast words\n");
    writing.await.unwrap();
    let asked = runtime.take_calls().len();
    assert!(
        (15..25).contains(&asked),
        "asked {asked} times in 19 s whether it runs"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_has_ended_is_read_to_its_end() {
    let runtime = Arc::new(LogRuntime::running());
    runtime.line("c", "one");
    runtime.end("c");
    assert_eq!(rest(follow(&runtime, PodLogOptions::default())).await, "one\n");
    let limited = PodLogOptions {
        limit_bytes: Some(2),
        ..Default::default()
    };
    assert_eq!(rest(follow(&runtime, limited)).await, "on");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_ends_nothing_and_one_that_knows_it_not_does() {
    let runtime = Arc::new(LogRuntime::running());
    *runtime.status_error.lock().unwrap() =
        Some(Error::call(Code::Unavailable, "ContainerStatus", "c", "away"));
    let mut chunks = follow(&runtime, PodLogOptions::default());
    let writer = runtime.clone();
    let writing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        writer.line("c", "still here");
    });
    assert_eq!(next(&mut chunks).await, "still here\n");
    writing.await.unwrap();
    *runtime.status_error.lock().unwrap() = Some(Error::not_found("ContainerStatus", "c"));
    let error = chunks.next().await.unwrap().unwrap_err();
    assert!(
        matches!(&error, kubelet_kuberuntime::Error::Cri(error) if error.is_not_found()),
        "{error}"
    );
    assert!(chunks.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rotation_loses_nothing() {
    let runtime = Arc::new(LogRuntime::running());
    let policy = LogRotatePolicy {
        max_size: Some(1),
        max_files: 10,
        ..Default::default()
    };
    let shutdown = CancellationToken::new();
    let manager = ContainerLogManager::new(runtime.clone(), policy).unwrap();
    runtime.line("c", "0");
    let mut chunks = follow(&runtime, PodLogOptions::default());
    // Who opens the log after a rotation does not see what was written before it.
    assert_eq!(next(&mut chunks).await, "0\n");
    let rotating = tokio::spawn(manager.run(shutdown.clone()));
    let writer = runtime.clone();
    let writing = tokio::spawn(async move {
        for number in 1..300 {
            writer.line("c", &number.to_string());
            tokio::time::sleep(Duration::from_millis(130)).await;
        }
        writer.end("c");
    });
    let read = rest(chunks).await;
    writing.await.unwrap();
    let expected: String = (1..300).map(|number| format!("{number}\n")).collect();
    assert_eq!(read, expected);
    shutdown.cancel();
    rotating.await.unwrap();
    assert!(runtime.files().len() >= 4, "{:?}", runtime.files());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slower_than_rotations_finds_what_was_in_between() {
    let runtime = Arc::new(LogRuntime::running());
    let policy = LogRotatePolicy {
        max_size: Some(1),
        max_files: 10,
        ..Default::default()
    };
    let shutdown = CancellationToken::new();
    runtime.line("c", "0");
    let mut chunks = follow(&runtime, PodLogOptions::default());
    assert_eq!(next(&mut chunks).await, "0\n");
    let manager = ContainerLogManager::new(runtime.clone(), policy).unwrap();
    let rotating = tokio::spawn(manager.run(shutdown.clone()));
    // Four rotations while the reader sleeps; the first three are compressed in the end.
    for number in 1..=4 {
        runtime.line("c", &number.to_string());
        runtime.take_calls();
        while !runtime.take_calls().contains(&"ReopenContainerLog c".to_owned()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    shutdown.cancel();
    rotating.await.unwrap();
    let compressed = runtime
        .files()
        .into_iter()
        .filter(|name| name.ends_with(".gz"))
        .count();
    assert!(compressed >= 2, "{:?}", runtime.files());
    runtime.line("c", "5");
    runtime.end("c");
    assert_eq!(rest(chunks).await, "1\n2\n3\n4\n5\n");
}

#[tokio::test(start_paused = true)]
async fn the_last_lines_are_read_that_a_runtime_writes_late() {
    let runtime = Arc::new(LogRuntime::running());
    runtime.line("c", "before");
    let mut chunks = follow(&runtime, PodLogOptions::default());
    assert_eq!(next(&mut chunks).await, "before\n");
    let log = runtime.log("c");
    let rotated = log.with_file_name(format!(
        "{}.20240101-000000",
        log.file_name().unwrap().to_str().unwrap()
    ));
    let mut old = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    let mut late = |line: &str| {
        old.write_all(format!("2024-01-01T00:00:00Z stdout F {line}\n").as_bytes())
            .unwrap()
    };
    std::fs::rename(&log, rotated).unwrap();
    runtime.reopen("c");
    runtime.line("c", "in the next file");
    tokio::time::sleep(Duration::from_millis(50)).await;
    late("late");
    assert_eq!(next(&mut chunks).await, "late\n");
    assert_eq!(next(&mut chunks).await, "in the next file\n");
    runtime.end("c");
    assert_eq!(rest(chunks).await, "");
}
