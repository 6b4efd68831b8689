//! Many simulated days of a node. Each seed draws its pods, the users' actions and the faults.
//!
//! By default: [`FOUND`], then [`Lives::FEW`]. `SIMULATION_ALL=1`, as in `.ci/run`, makes them [`Lives::ALL`].
//! `SIMULATION_SEEDS`, `SIMULATION_HOURS` and `SIMULATION_FIRST_SEED` change the days. `SIMULATION_BUSY=1` leaves out the quiet time, so
//! 24 times as much happens in a day; `SIMULATION_BUSY=2` is a storm all day, `SIMULATION_BUSY=3` one in which agents manage resources,
//! `SIMULATION_BUSY=4` one in which nodes run out of resources and shut down.
//! `SIMULATION_SEED=17` runs one seed and prints its history. To run many seeds:
//!
//! ```console
//! $ SIMULATION_SEEDS=10000 cargo test -p kubelet-testing --features simulation --test simulation_seeds -- --nocapture
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kubelet_testing::{FaultPlan, Simulation, Workload};

/// How many seeds there are of each kind of life.
struct Lives {
    /// Days of [`HOURS`].
    days: u64,
    /// Stormy hours.
    storms: u64,
    /// Stormy hours in which agents manage resources.
    allocating: u64,
    /// Hours in which nodes run out of resources, and shut down.
    short: u64,
}

impl Lives {
    /// Too few to meet everything in [`MET`].
    const FEW: Self = Self {
        days: 1,
        storms: 1,
        allocating: 1,
        short: 1,
    };
    const ALL: Self = Self {
        days: 1000,
        storms: 40,
        allocating: 20,
        short: 20,
    };
}

/// The hours of a day that is simulated.
const HOURS: u64 = 24;
/// The busy time of a day, in turns with quiet time: an hour in all, in six parts.
const BUSY: Duration = Duration::from_secs(600);
const QUIET: Duration = Duration::from_secs(13800);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The maximum number of failures to print.
const TOLD: usize = 5;

/// The meaning of a seed.
type Life = fn(u64) -> Simulation;

/// Hours and days that found bugs, which are fixed. They run first.
const FOUND: &[(Life, u64, Duration, &str)] = &[
    (busy, 1, HOUR, "gone pods were asked for again and again"),
    (busy, 3, HOUR, "a restart took the IPs of a pod that had ended"),
    (
        busy,
        17,
        HOUR,
        "the last status of a pod was made of one from before its end",
    ),
    (
        stormy,
        11,
        HOUR,
        "a container that a dead sandbox never started let others start too early",
    ),
    (
        day,
        1005,
        DAY,
        "a worker's older pod was taken for what the API server has, and a readiness was never sent",
    ),
    (
        day,
        910,
        DAY,
        "a container that was made and never ran was forgotten when it was removed",
    ),
    (
        day,
        1208,
        DAY,
        "the end of a sidecar that never started was taken back by a restart of the agent",
    ),
    (
        day,
        2351,
        DAY,
        "the mirror of a static pod that came back while it ended showed that end for ever",
    ),
    (
        day,
        6597,
        DAY,
        "a pod that had succeeded was failed by its deadline while what it had could not be given back",
    ),
];

/// What the seeds must meet, as texts of the history.
const MET: [&str; 41] = [
    "user creates",
    "user deletes",
    "user labels",
    "user changes the config maps",
    "static pod",
    "is removed",
    "is back at once",
    "the agent is killed",
    "the agent is asked to end",
    "loses power",
    "the runtime crashes",
    "the API server is away",
    "is not ready for",
    "the sandbox of",
    "is killed from outside",
    "event BackOff",
    "event Unhealthy",
    "event Killing",
    "event OutOfcpu",
    "StartContainer",
    "runs out of",
    "has the conditions [MemoryPressure]",
    "event EvictionThresholdMet",
    " evicts ",
    "shuts down",
    "is switched off",
    "CSI volumes attached-disk",
    "CSI volumes plain-disk",
    "CSI volumes csi-",
    "the agent crashes before the write of cpu_manager_state",
    "the agent crashes after the write of cpu_manager_state",
    "the agent crashes before the write of memory_manager_state",
    "the agent crashes after the write of memory_manager_state",
    "the agent crashes before the write of kubelet_internal_checkpoint",
    "the agent crashes after the write of kubelet_internal_checkpoint",
    "the agent crashes before the write of dra_manager_state",
    "the agent crashes after the write of dra_manager_state",
    "event TopologyAffinityError",
    "event UnexpectedAdmissionError",
    "the plugin of sim.example/gpu crashes",
    "event FailedPrepareDynamicResources",
];

/// A day that follows from its seed: the changes of an hour, spread over the day. On one day in twenty the nodes run short.
fn day(seed: u64) -> Simulation {
    let day = if seed % 20 == 13 { short(seed) } else { busy(seed) };
    day.by_turns(BUSY, QUIET)
}

/// A day of these. On two days in three the agents manage resources.
fn any_day(seed: u64) -> Simulation {
    match seed % 3 {
        0 => day(seed),
        _ => day(seed).managed_resources(),
    }
}

/// A storm with more pods than there are CPUs and devices for.
fn allocating_hour(seed: u64) -> Simulation {
    let pods = Workload::churn(6).every(Duration::from_secs(60));
    stormy(seed).workload(pods).managed_resources()
}

/// A day on which nodes run out of memory, disk and process ids, and shut down.
fn short(seed: u64) -> Simulation {
    let short = FaultPlan::drawn(seed);
    let short = short.shortages(
        Duration::from_secs(600),
        Duration::from_secs([90, 240, 900][usize::try_from(seed / 20 % 3).unwrap()]),
    );
    busy(seed).faults(short.shutdowns(Duration::from_secs(1500)))
}

/// The same in a storm, or in good weather, with more pods.
fn short_hour(seed: u64) -> Simulation {
    let faults = if seed.is_multiple_of(2) {
        FaultPlan::none()
    } else {
        FaultPlan::storm()
    };
    let short = faults.shortages(Duration::from_secs(500), Duration::from_secs(240));
    let pods = Workload::churn(6).every(Duration::from_secs(60));
    let faults = short.shutdowns(Duration::from_secs(1200));
    Simulation::seed(seed)
        .node("node-1")
        .workload(pods)
        .faults(faults)
}

/// A day without quiet time.
fn busy(seed: u64) -> Simulation {
    let pods = 1 + usize::try_from(seed % 3).unwrap();
    let every = Duration::from_secs([600, 1200, 3600][usize::try_from(seed / 3 % 3).unwrap()]);
    Simulation::seed(seed)
        .node("node-1")
        .workload(Workload::churn(pods).every(every))
        .faults(FaultPlan::drawn(seed))
}

/// A storm without quiet time: within these hours every fault happens.
fn stormy(seed: u64) -> Simulation {
    busy(seed).faults(FaultPlan::storm())
}

fn from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

#[derive(Default)]
struct Seen {
    days: u64,
    steps: usize,
    met: BTreeMap<&'static str, usize>,
    slowest: (Duration, u64),
    failures: Vec<String>,
}

#[test]
fn a_day_of_every_seed() {
    let time = Duration::from_secs(3600 * from_env("SIMULATION_HOURS").unwrap_or(HOURS));
    let life: Life = match from_env("SIMULATION_BUSY") {
        Some(4..) => short_hour,
        Some(3) => allocating_hour,
        Some(2) => stormy,
        Some(1) => busy,
        Some(0) | None => any_day,
    };
    if let Some(seed) = from_env("SIMULATION_SEED") {
        match life(seed).run(time) {
            Ok(history) => eprintln!("{history}"),
            Err(failure) => panic!("{}\n{failure}", failure.history),
        }
        return;
    }
    let all = from_env("SIMULATION_ALL").is_some_and(|all| all > 0);
    let wanted = if all { Lives::ALL } else { Lives::FEW };
    let count = from_env("SIMULATION_SEEDS").unwrap_or(wanted.days);
    let first = from_env("SIMULATION_FIRST_SEED").unwrap_or(0);
    let found = FOUND
        .iter()
        .map(|(life, seed, time, _)| (*seed, life(*seed), *time));
    let storms = (0..wanted.storms).map(|seed| (seed, stormy(seed), HOUR));
    let hours = found
        .chain(storms)
        .chain((0..wanted.short).map(|seed| (seed, short_hour(seed), HOUR)))
        .chain((0..wanted.allocating).map(|seed| (seed, allocating_hour(seed), HOUR)));
    let days = (first..first + count).map(|seed| (seed, life(seed), time));
    let lives = Mutex::new(hours.chain(days));
    let (seen, start) = (Mutex::new(Seen::default()), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = locked(&lives).next();
                    let Some((seed, simulation, time)) = next else {
                        break;
                    };
                    live(seed, simulation, time, &seen);
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Seen {
        days,
        steps,
        met,
        slowest,
        failures,
    } = seen;
    eprintln!(
        "{days} lives, the last of {} h, {steps} steps, in {:.1?} on {threads} threads; the slowest, seed {}, took {:.1?}",
        time.as_secs() / 3600,
        start.elapsed(),
        slowest.1,
        slowest.0
    );
    eprintln!("they met {met:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let unmet: Vec<_> = MET
        .iter()
        .filter(|text| met.get(*text).is_none_or(|count| *count == 0))
        .collect();
    assert!(!all || unmet.is_empty(), "nothing met {unmet:?}");
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live(seed: u64, simulation: Simulation, time: Duration, seen: &Mutex<Seen>) {
    if locked(seen).failures.len() >= TOLD {
        return;
    }
    let start = Instant::now();
    let lived = simulation.run(time);
    let took = start.elapsed();
    let mut seen = locked(seen);
    seen.days += 1;
    seen.slowest = seen.slowest.max((took, seed));
    let history = match &lived {
        Ok(history) => history,
        Err(failure) => &failure.history,
    };
    seen.steps += history.steps().len();
    for text in MET {
        *seen.met.entry(text).or_default() += history.count(text);
    }
    if let Err(failure) = lived {
        seen.failures.push(format!(
            "seed {seed}: {failure}\nor, with all that happened: SIMULATION_SEED={seed} cargo test \
             -p kubelet-testing --features simulation --test simulation_seeds"
        ));
    }
}
