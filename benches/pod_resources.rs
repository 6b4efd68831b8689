//! The pod-resources API of a node agent under 110 `List` calls a second: how long a call takes, and the agent's CPU time. It runs
//! against any agent that serves the API, also a kubelet.
//!
//! `cargo bench -p benches --bench pod_resources -- SOCKET PID [SECONDS]`, e.g. with the socket
//! `/var/lib/kubelet/pod-resources/kubelet.sock` and the process id of the agent. Without them it does nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program by hand"
)]

#[allow(dead_code, reason = "each bench uses a part of it")]
mod process;

use std::error::Error;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};

use hyper_util::rt::TokioIo;
use kubelet_resources::pod_resources::v1::ListPodResourcesRequest;
use kubelet_resources::pod_resources::v1::pod_resources_lister_client::PodResourcesListerClient;
use tokio::net::UnixStream;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::transport::Endpoint;

use crate::process::cpu_seconds;

/// How many calls a second. Agents answer 100 of them, after a burst of 10.
const RATE: u32 = 110;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(socket), Some(pid)) = (arguments.next(), arguments.next()) else {
        println!("nothing measured: name a socket and the process id of its agent");
        return Ok(());
    };
    let pid: u32 = pid.parse()?;
    let seconds: u32 = arguments.next().map_or(Ok(20), |seconds| seconds.parse())?;
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let mut client = PodResourcesListerClient::new(endpoint.connect_with_connector(connector).await?);
    let pods = client
        .list(ListPodResourcesRequest {})
        .await?
        .into_inner()
        .pod_resources;
    println!("{} pods", pods.len());

    let (before, start) = (cpu_seconds(pid), Instant::now());
    sleep(Duration::from_secs(seconds.into())).await;
    let idle = (cpu_seconds(pid) - before) / start.elapsed().as_secs_f64();

    let (before, start) = (cpu_seconds(pid), Instant::now());
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    // A call does not wait for the one before it.
    let mut calls = FuturesUnordered::new();
    let (mut took, mut refused, mut begun) = (Vec::new(), 0, 0);
    while begun < RATE * seconds || !calls.is_empty() {
        tokio::select! {
            _ = ticks.tick(), if begun < RATE * seconds => {
                begun += 1;
                let mut client = client.clone();
                calls.push(async move {
                    let called = Instant::now();
                    client.list(ListPodResourcesRequest {}).await.map(|_| called.elapsed())
                });
            }
            Some(answer) = calls.next() => match answer {
                Ok(time) => took.push(time),
                Err(_) => refused += 1,
            },
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let used = (cpu_seconds(pid) - before) / elapsed;
    took.sort_unstable();
    let middle = took.get(took.len() / 2).copied().unwrap_or_default();
    println!(
        "{:.0} calls a second, {} answered, {refused} refused; median {middle:?}; CPU time {:.1} ms/s, idle {:.1} ms/s",
        f64::from(begun) / elapsed,
        took.len(),
        used * 1e3,
        idle * 1e3,
    );
    Ok(())
}
