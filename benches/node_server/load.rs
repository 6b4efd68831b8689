//! What a client asks of a node's server.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::client::Lines;
use crate::program::Program;
use crate::report::Report;

/// A line of a log in CRI's format, 120 bytes long.
pub(crate) fn line(number: usize) -> String {
    let mark = Lines::MARK as char;
    let text = "the quick brown fox jumps over the lazy dog again and";
    format!(
        "2026-01-02T03:04:05.678901234Z stdout F {mark} line {number:>12} {text} {:>6}\n",
        "end"
    )
}

/// The log of this pod, of this size in bytes.
pub(crate) async fn one_log(program: &Program, pod: &str, size: usize, report: &mut Report) {
    let mut log = BufWriter::new(File::options().append(true).open(program.log_file(pod)).unwrap());
    let lines = size / line(0).len();
    for number in 0..lines {
        log.write_all(line(number).as_bytes()).unwrap();
    }
    log.into_inner().unwrap().sync_all().unwrap();
    let path = format!("/containerLogs/default/{pod}/main");
    // What is needed for any log is there before.
    program
        .client
        .open(&format!("{path}?tailLines=10"))
        .await
        .unwrap()
        .read(10)
        .await;

    let meter = program.meter();
    let mut answer = program.client.open(&path).await.unwrap().fast();
    let (found, bytes) = answer.read(usize::MAX).await;
    let used = meter.used();
    assert_eq!(found, lines, "lines of the log");
    let what = format!("log of {} MB", size / 1_000_000);
    report.add(
        format!("{what}: read by the client"),
        bytes as f64 / used.seconds / 1e6,
        "MB/s",
    );
    report.add(format!("{what}: time"), used.seconds, "s");
    report.add(format!("{what}: CPU"), report.cpu(&used), "s");
    report.add(format!("{what}: CPU of the client"), used.clients_cpu, "s");
    report.add(format!("{what}: more memory"), used.growth, "MB");
}

/// Requests one after the other on one connection.
pub(crate) async fn requests(path: &str, count: usize, program: &Program, report: &mut Report) {
    let mut connection = program.client.connect().await;
    let size = connection.get(path).await.len();
    let meter = program.meter();
    for _ in 0..count {
        connection.get(path).await;
    }
    let used = meter.used();
    report.add(format!("{path}: size"), size as f64 / 1e3, "kB");
    report.add(format!("{path}: time"), used.seconds / count as f64 * 1e3, "ms");
    report.add(
        format!("{path}: CPU"),
        report.cpu(&used) / count as f64 * 1e3,
        "ms",
    );
    report.add(format!("{path}: more memory"), used.growth, "MB");
}
