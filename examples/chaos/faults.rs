//! The faults: parts that are killed at random moments, and a network that is cut.
//!
//! Each kind has its own random numbers from the seed, so its schedule does not depend on how fast the host is.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::journal::Journal;
use crate::network::State;
use crate::runs::Downs;

/// The time between two faults of a kind, and how long a part stays down, in seconds.
struct Schedule {
    pause: [f64; 2],
    down: [f64; 2],
}

const AGENT: Schedule = Schedule { pause: [5.0, 70.0], down: [0.0, 10.0] };
const CONTAINERD: Schedule = Schedule { pause: [15.0, 120.0], down: [0.0, 8.0] };
const API_SERVER: Schedule = Schedule { pause: [30.0, 180.0], down: [0.0, 15.0] };
const CSI: Schedule = Schedule { pause: [10.0, 90.0], down: [0.0, 15.0] };
const NETWORK: Schedule = Schedule { pause: [15.0, 120.0], down: [1.0, 50.0] };

/// The kinds of faults, as the command line names them.
pub(crate) const KINDS: [&str; 5] = ["agent", "containerd", "api-server", "csi", "network"];

/// How often each kind happened. Clones share the data.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<[u32; KINDS.len()]>>);

impl Counts {
    fn count(&self, kind: usize) {
        if let Some(count) = self.0.lock().get_mut(kind) {
            *count += 1;
        }
    }

    pub(crate) fn summary(&self) -> String {
        let counts = *self.0.lock();
        let counts: Vec<_> =
            KINDS.iter().zip(counts).map(|(kind, count)| format!("{kind} {count}")).collect();
        counts.join(", ")
    }
}

/// Makes faults until it is dropped. Call [`heal`] then.
pub(crate) async fn make(
    cluster: &Cluster,
    rng: &mut Rng,
    spare: &[String],
    journal: &Journal,
    counts: &Counts,
    downs: &Downs,
) {
    let mut rngs = KINDS.map(|_| rng.fork());
    let [agent, containerd, api_server, csi, network] = &mut rngs;
    let is_on = |kind: usize| KINDS.get(kind).is_some_and(|kind| !spare.iter().any(|spared| spared == kind));
    tokio::join!(
        repeat(is_on(0), &AGENT, agent, async |down, _| {
            journal.note(format!("kill agent, for {down:.1?}"));
            counts.count(0);
            downs.agent.begin();
            cluster.agent.kill();
            sleep(down).await;
            cluster.agent.up();
            downs.agent.end();
        }),
        repeat(is_on(1), &CONTAINERD, containerd, async |down, _| {
            journal.note(format!("kill containerd, for {down:.1?}"));
            counts.count(1);
            let mut containerd = cluster.containerd.lock().await;
            downs.runtime.begin();
            containerd.kill();
            sleep(down).await;
            match containerd.restart().await {
                Ok(()) => downs.runtime.end(),
                // The outage lasts until a later restart.
                Err(error) => journal.fault(format!("containerd does not start: {error:.500}")),
            }
        }),
        repeat(is_on(2), &API_SERVER, api_server, async |down, _| {
            journal.note(format!("kill kube-apiserver, for {down:.1?}"));
            counts.count(2);
            cluster.api_server.kill();
            sleep(down).await;
            cluster.api_server.up();
        }),
        repeat(is_on(3) && cluster.csi.is_some(), &CSI, csi, async |down, rng| {
            let [driver, registrar] = cluster.csi.as_ref().unwrap();
            // The registrar ends with its driver's connection, or is killed, too.
            let both = rng.bool();
            journal
                .note(format!("kill CSI driver{}, for {down:.1?}", if both { " and registrar" } else { "" }));
            counts.count(3);
            driver.kill();
            if both {
                registrar.kill();
            }
            sleep(down).await;
            driver.up();
            registrar.up();
        }),
        repeat(is_on(4), &NETWORK, network, async |down, rng| {
            let state = if rng.bool() { State::Refusing } else { State::Silent };
            journal.note(format!("network {state:?}, for {down:.1?}"));
            counts.count(4);
            cluster.network.set(state);
            sleep(down).await;
            cluster.network.set(State::Up);
        }),
    );
}

/// Everything runs again, also when a fault was cut short.
pub(crate) async fn heal(cluster: &Cluster, journal: &Journal, downs: &Downs) {
    cluster.network.set(State::Up);
    cluster.api_server.up();
    cluster.csi.iter().flatten().for_each(crate::service::Service::up);
    cluster.agent.up();
    downs.agent.end();
    let mut containerd = cluster.containerd.lock().await;
    if containerd.ctr(["version"]).await.is_err()
        && let Err(error) = containerd.restart().await
    {
        journal.fault(format!("containerd does not start: {error:.500}"));
        return;
    }
    downs.runtime.end();
}

async fn repeat(
    is_on: bool,
    schedule: &Schedule,
    rng: &mut Rng,
    mut fault: impl AsyncFnMut(Duration, &mut Rng),
) {
    if !is_on {
        return;
    }
    loop {
        sleep(random(rng, schedule.pause)).await;
        let down = random(rng, schedule.down);
        fault(down, rng).await;
    }
}

/// Short times are likelier than long ones.
fn random(rng: &mut Rng, [from, to]: [f64; 2]) -> Duration {
    Duration::from_secs_f64(from + (to - from) * rng.f64().powi(2))
}
