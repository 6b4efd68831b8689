//! Reading a log file with each option.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::TryStreamExt;
use kubelet_core::Clock;
use kubelet_kuberuntime::Error;
use kubelet_kuberuntime::logs::{LogReader, LogStream, LogStreams, PodLogOptions};

const LOG: &str = "\
2024-01-01T00:00:01Z stdout F one
2024-01-01T00:00:02Z stderr F oops
2024-01-01T00:00:03Z stdout P tw
2024-01-01T00:00:04Z stdout P
2024-01-01T00:00:04Z stdout P 
not a line
2024-01-01T00:00:05.5+00:00 stdout F o
2024-01-01T00:00:06Z stdout F three
";

async fn try_read(path: &Path, options: PodLogOptions) -> Result<String, Error> {
    let clock = Clock::starting_at("2024-01-01T00:00:10Z".parse().unwrap());
    let chunks = LogReader::new(path).options(options).clock(clock).read();
    let all = chunks.try_fold(Vec::new(), |mut all, chunk| async move {
        all.extend(chunk.bytes);
        Ok(all)
    });
    Ok(String::from_utf8(all.await?).unwrap())
}

async fn read(path: &Path, options: PodLogOptions) -> String {
    try_read(path, options).await.unwrap()
}

fn with(change: impl Fn(&mut PodLogOptions)) -> PodLogOptions {
    let mut options = PodLogOptions::default();
    change(&mut options);
    options
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(&path, LOG).unwrap();
    let at = |text: &str| Some(text.parse().unwrap());
    for (options, expected) in [
        (with(|_| {}), "one\noops\ntwo\nthree\n"),
        (with(|o| o.tail_lines = Some(0)), ""),
        (with(|o| o.tail_lines = Some(1)), "three\n"),
        (with(|o| o.tail_lines = Some(2)), "o\nthree\n"),
        // A line that cannot be parsed counts as a line.
        (with(|o| o.tail_lines = Some(4)), "o\nthree\n"),
        (with(|o| o.tail_lines = Some(100)), "one\noops\ntwo\nthree\n"),
        (with(|o| o.since_time = at("2024-01-01T00:00:05Z")), "o\nthree\n"),
        (with(|o| o.since_time = at("2024-01-01T00:00:06Z")), "three\n"),
        (with(|o| o.since_seconds = Some(4)), "three\n"),
        (with(|o| o.since_seconds = Some(100)), "one\noops\ntwo\nthree\n"),
        (with(|o| o.limit_bytes = Some(6)), "one\noo"),
        (
            with(|o| (o.limit_bytes, o.stream) = (Some(6), LogStreams::Stdout)),
            "one\ntw",
        ),
        (
            with(|o| (o.limit_bytes, o.timestamps) = (Some(6), true)),
            "2024-0",
        ),
        (with(|o| o.stream = LogStreams::Stdout), "one\ntwo\nthree\n"),
        (with(|o| o.stream = LogStreams::Stderr), "oops\n"),
        (
            with(|o| o.timestamps = true),
            // As in the kubelet, the empty part ends a line if times are printed.
            "2024-01-01T00:00:01.000000000Z one\n2024-01-01T00:00:02.000000000Z oops\n\
             2024-01-01T00:00:03.000000000Z tw2024-01-01T00:00:05.500000000Z o\n\
             2024-01-01T00:00:06.000000000Z three\n",
        ),
    ] {
        assert_eq!(read(&path, options.clone()).await, expected, "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_streams_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(&path, LOG).unwrap();
    let chunks: Vec<_> = LogReader::new(&path).read().try_collect().await.unwrap();
    let stderr: Vec<_> = chunks
        .iter()
        .filter(|chunk| chunk.stream == LogStream::Stderr)
        .collect();
    assert_eq!(stderr.len(), 1);
    assert_eq!(stderr[0].bytes, b"oops\n");
}

#[tokio::test(start_paused = true)]
async fn docker_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x-json.log");
    let log = concat!(
        r#"{"log":"one\n","stream":"stdout","time":"2024-01-01T00:00:01.5Z"}"#,
        "\n",
        r#"{"log":"tw","stream":"stderr","time":"2024-01-01T00:00:02.5Z"}"#,
        "\nnot a line\n",
        r#"{"log":"o\n","stream":"stderr","time":"2024-01-01T00:00:03.5Z"}"#,
        "\n",
    );
    std::fs::write(&path, log).unwrap();
    assert_eq!(read(&path, with(|_| {})).await, "one\ntwo\n");
    assert_eq!(
        read(&path, with(|o| (o.timestamps, o.since_seconds) = (true, Some(8)))).await,
        "2024-01-01T00:00:02.500000000Z two\n"
    );
    std::fs::write(&path, r#"{"log":"one\n"}"#).unwrap();
    let error = try_read(&path, with(|_| {})).await.unwrap_err();
    assert_eq!(error.to_string(), r#"unexpected stream type """#);
}

#[tokio::test(start_paused = true)]
async fn a_last_line_without_an_end_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(
        &path,
        "2024-01-01T00:00:01Z stdout F one\n2024-01-01T00:00:01Z stdout F tw",
    )
    .unwrap();
    assert_eq!(read(&path, with(|_| {})).await, "one\ntw");
    // For a tail it does not count.
    assert_eq!(read(&path, with(|o| o.tail_lines = Some(1))).await, "one\n");
    std::fs::write(&path, "").unwrap();
    assert_eq!(read(&path, with(|_| {})).await, "");
}

#[tokio::test(start_paused = true)]
async fn long_lines_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let long = "x".repeat(700_000);
    let log = format!(
        "2024-01-01T00:00:01Z stdout F {long}\n2024-01-01T00:00:02Z stderr P {long}\n\
         2024-01-01T00:00:03Z stdout F end\n"
    );
    std::fs::write(&path, log).unwrap();
    assert!(read(&path, with(|_| {})).await == format!("{long}\n{long}end\n"));
    assert!(read(&path, with(|o| o.stream = LogStreams::Stderr)).await == long);
    assert!(read(&path, with(|o| o.since_seconds = Some(8))).await == format!("{long}end\n"));
    assert_eq!(read(&path, with(|o| o.tail_lines = Some(1))).await, "end\n");
    let chunks: Vec<_> = LogReader::new(&path).read().try_collect().await.unwrap();
    assert!(
        chunks.iter().all(|chunk| chunk.bytes.len() < 300_000),
        "in pieces"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_rotated_is_read_too_if_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let line = |number: u32| format!("2024-01-01T00:00:0{number}Z stdout F {number}\n");
    let write = |name: &str, numbers: [u32; 2]| {
        let text = numbers.map(line).concat();
        let path = dir.path().join(name);
        if !name.ends_with(".gz") {
            return std::fs::write(path, text).unwrap();
        }
        let mut gz = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::default());
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap();
    };
    write("0.log.20240101-000001.gz", [1, 2]);
    write("0.log.20240101-000002.gz", [3, 4]);
    write("0.log.20240101-000003", [5, 6]);
    write("0.log.20240101-000004.tmp", [0, 0]);
    write("0.log", [7, 8]);
    assert_eq!(read(&path, with(|_| {})).await, "7\n8\n", "as the kubelet");
    for (tail_lines, expected) in [
        (None, "12345678"),
        (Some(1), "8"),
        (Some(2), "78"),
        (Some(3), "678"),
        (Some(5), "45678"),
        (Some(6), "345678"),
        (Some(7), "2345678"),
        (Some(100), "12345678"),
        (Some(0), ""),
    ] {
        let options = with(|o| (o.rotated, o.tail_lines) = (true, tail_lines));
        assert_eq!(
            read(&path, options).await.replace('\n', ""),
            expected,
            "{tail_lines:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_said_in_the_kubelets_words() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let message = async |path: &Path| try_read(path, with(|_| {})).await.unwrap_err().to_string();
    let missing = dir.join("none/0.log");
    assert_eq!(
        message(&missing).await,
        format!(
            "failed to try resolving symlinks in path {missing:?}: lstat {}: no such file or directory",
            dir.join("none").display()
        )
    );
    let strange = dir.join("0.log");
    std::fs::write(&strange, "hello world\n").unwrap();
    assert_eq!(
        message(&strange).await,
        "failed to get parse function: unsupported log format: \"hello world\\n\""
    );
    std::fs::write(&strange, LOG).unwrap();
    let begins_there = try_read(&strange, with(|o| o.tail_lines = Some(3)))
        .await
        .unwrap_err();
    assert_eq!(
        begins_there.to_string(),
        "failed to get parse function: unsupported log format: \"not a line\\n\"",
        "the first line that is read tells the format"
    );
    assert_eq!(
        message(&dir).await,
        format!(
            "failed to read log file {dir:?}: read {}: is a directory",
            dir.display()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn links_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.log"), LOG).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("0.log", &link).unwrap();
    assert_eq!(read(&link, with(|o| o.tail_lines = Some(1))).await, "three\n");
}
