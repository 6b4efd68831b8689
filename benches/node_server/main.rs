//! The node's server: logs, followers, exec, `/metrics` and `/pods`, over TLS.
//!
//! `cargo bench -p benches --bench node_server -- PROGRAM…` needs root and a containerd 2, and prints a message if they are
//! missing. A program must accept a kubelet's command line; for example, a release build of the example `node-agent`.
//! Each program takes about four minutes. With two programs, the bench prints the ratio of the first to the second.
//!
//! Each program runs static pods (`sleep`) in its own process on its own containerd, without an API server. CPU is the user
//! and system time of its process, minus that of an idle program in the same time. Memory is the peak of the resident
//! memory above the memory before.
//!
//! `FOLLOWERS` sets how many clients follow a log at once. The Go kubelet needs an inotify instance for each. The system
//! allows a user few of them (`fs.inotify.max_user_instances`, 128 by default), and the other clients get an error.
//!
//! `PARTS=log,followers,commands,lists` chooses what is measured, for a profile of one part.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

mod client;
mod load;
#[allow(dead_code, reason = "there is no API server here")]
#[path = "../member.rs"]
mod member;
#[path = "../process.rs"]
mod process;
mod program;
mod report;

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{Method, StatusCode};
use kubelet_cri::{RuntimeService, v1};
use kubelet_testing::Containerd;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client::{Client, Lines};
use crate::load::{line, one_log, requests};
use crate::member::NODE;
use crate::program::{Program, Setup};
use crate::report::{Figure, Report, compare_programs};

const PODS: usize = 110;
const LOG_BYTES: usize = 1_000_000_000;
const FOLLOWERS: usize = 500;
const LINES_PER_SECOND: usize = 100;
const FOLLOWED_SECONDS: usize = 20;
const COMMANDS: usize = 50;
const REQUESTS: usize = 200;
/// How long followers may be late.
const LATE: Duration = Duration::from_secs(30);

/// Many clients that follow one log.
async fn followers(program: &Program, report: &mut Report) {
    let count = std::env::var("FOLLOWERS").map_or(FOLLOWERS, |count| count.parse().unwrap());
    let mut log = File::options()
        .append(true)
        .open(program.log_file(&format!("follow-{NODE}")))
        .unwrap();
    log.write_all(line(0).as_bytes()).unwrap();
    let path = format!("/containerLogs/default/follow-{NODE}/main?follow=true&tailLines=1");
    drop(
        follower(&program.client, &path)
            .await
            .expect("no log is followed"),
    );

    let meter = program.meter();
    let opened = join_all((0..count).map(|_| follower(&program.client, &path))).await;
    let begin = meter.used();
    let mut open = JoinSet::new();
    let lines = LINES_PER_SECOND * FOLLOWED_SECONDS;
    for follower in opened {
        match follower {
            Ok(mut follower) => drop(open.spawn(async move { follower.read(lines).await.0 == lines })),
            Err(why) => println!("a follower without its first line: {why}"),
        }
    }
    let followers = open.len();
    let (writing, mut ticks) = (
        program.meter_within(),
        interval(Duration::from_secs(1) / LINES_PER_SECOND as u32),
    );
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0..lines {
        ticks.tick().await;
        log.write_all(line(number).as_bytes()).unwrap();
    }
    let mut served = 0;
    let all = async {
        while let Some(complete) = open.join_next().await {
            served += usize::from(complete.unwrap());
        }
    };
    drop(timeout(LATE, all).await);
    let (written, used) = (writing.used(), meter.used());
    let what = format!("{count} followers");
    report.add(format!("{what}: got the first line"), followers as f64, "");
    report.add(format!("{what}: got all lines"), served as f64, "");
    report.add(format!("{what}: CPU to begin"), report.cpu(&begin), "s");
    report.add(
        format!("{what}: CPU for {lines} lines in {FOLLOWED_SECONDS} s"),
        report.cpu(&written),
        "s",
    );
    report.add(format!("{what}: time until all have them"), written.seconds, "s");
    report.add(format!("{what}: CPU of the clients"), written.clients_cpu, "s");
    report.add(format!("{what}: more memory"), used.growth, "MB");
}

/// A client that has the first line, or why it has not.
async fn follower(client: &Client, path: &str) -> Result<Lines, String> {
    let mut follower = client.open(path).await.map_err(|error| error.to_string())?;
    match timeout(LATE, follower.read(1)).await {
        Ok((1, _)) => Ok(follower),
        Ok((lines, bytes)) => Err(format!("the answer has {lines} lines in {bytes} bytes")),
        Err(_) => Err(format!("nothing came in {LATE:?}")),
    }
}

/// Commands in a container, in turns with the runtime's own calls.
async fn commands(program: &Program, report: &mut Report) {
    let container = program.container(&format!("exec-{NODE}")).await;
    let mut connection = program.client.connect().await;
    let run_path = format!("/run/default/exec-{NODE}/main?cmd=true");
    let exec_path = format!("/exec/default/exec-{NODE}/main?command=true&output=1&error=1");
    let mut run = async || {
        let (status, body) = connection.send(Method::POST, &run_path).await;
        assert_eq!(status, StatusCode::OK, "{body:?}");
    };
    let exec = async || program.client.exec(&exec_path).await;
    let run_by_hand = async || {
        let request = v1::ExecSyncRequest {
            container_id: container.clone(),
            cmd: vec!["true".to_owned()],
            timeout: 0,
        };
        assert_eq!(program.runtime.exec_sync(request).await.unwrap().exit_code, 0);
    };
    let exec_by_hand = async || {
        let request = v1::ExecRequest {
            container_id: container.clone(),
            cmd: vec!["true".to_owned()],
            stdout: true,
            stderr: true,
            ..v1::ExecRequest::default()
        };
        let url = program.runtime.exec(request).await.unwrap().url;
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let stream = TcpStream::connect(authority).await.unwrap();
        client::exec(stream, &format!("/{path}")).await;
    };
    in_turns("run", program, report, &mut run, run_by_hand).await;
    in_turns("exec", program, report, exec, exec_by_hand).await;
}

async fn in_turns(
    what: &str,
    program: &Program,
    report: &mut Report,
    mut through: impl AsyncFnMut(),
    mut by_hand: impl AsyncFnMut(),
) {
    through().await;
    by_hand().await;
    let (mut times, mut times_by_hand) = (Vec::new(), Vec::new());
    let meter = program.meter();
    for _ in 0..COMMANDS {
        times.push(timed(&mut through).await);
        times_by_hand.push(timed(&mut by_hand).await);
    }
    let used = meter.used();
    let (time, by_hand) = (middle(times), middle(times_by_hand));
    report.add(format!("{what}: median"), time, "ms");
    report.add(
        format!("{what}: beyond the runtime's own {by_hand:.1} ms"),
        time - by_hand,
        "ms",
    );
    report.add(
        format!("{what}: CPU of one"),
        report.cpu(&used) / COMMANDS as f64 * 1e3,
        "ms",
    );
    report.add(format!("{what}: more memory"), used.growth, "MB");
}

async fn timed(call: &mut impl AsyncFnMut()) -> Duration {
    let begun = Instant::now();
    call().await;
    begun.elapsed()
}

/// The median, in milliseconds.
fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

async fn measure(program: &str) -> Option<Vec<Figure>> {
    let containerd = Containerd::start_2().await.unwrap()?;
    println!("{program}:\n| measured | |\n|---|---|");
    let mut report = Report::default();
    let mut names: Vec<String> = ["log", "follow", "exec"].map(str::to_owned).into();
    let mut program = Program::start(program, containerd, &Setup::default()).await;
    program.run(&names, names.len()).await;
    report.rest(&program, names.len()).await;
    let parts = std::env::var("PARTS").ok();
    let measures = |part| {
        parts
            .as_ref()
            .is_none_or(|parts| parts.split(',').any(|it| it == part))
    };
    if measures("log") {
        one_log(&program, &format!("log-{NODE}"), LOG_BYTES, &mut report).await;
    }
    if measures("followers") {
        followers(&program, &mut report).await;
    }
    if measures("commands") {
        commands(&program, &mut report).await;
    }
    if !measures("lists") {
        program.end().await;
        return Some(report.figures);
    }
    names.extend((names.len()..PODS).map(|number| format!("pod-{number}")));
    program.run(&names, PODS).await;
    report.rest(&program, PODS).await;
    for path in ["/metrics", "/pods"] {
        requests(path, REQUESTS, &program, &mut report).await;
    }
    program.end().await;
    println!();
    Some(report.figures)
}

fn main() {
    compare_programs("node_server", measure);
}
