//! Days of a node in virtual time, many of them: each seed draws its pods, what users do with them, and what goes wrong.
//!
//! 1,000 seeds when built in the profile `sim`, two in a debug build, as many as `SIMULATION_SEEDS` says, from
//! `SIMULATION_FIRST_SEED` on; `SIMULATION_SEED=17` runs that one and prints all that happened:
//!
//! ```console
//! $ SIMULATION_SEEDS=10000 cargo test --profile sim -p kubelet-testing --features simulation --test simulation_seeds -- --nocapture
//! ```
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kubelet_testing::{FaultPlan, Simulation, Workload};

const DAY: Duration = Duration::from_secs(if cfg!(debug_assertions) { 3 } else { 24 } * 3600);
/// No more failures than these are told.
const TOLD: usize = 5;

/// Seeds that found something, which was mended since. They are run first.
const FOUND: &[(u64, &str)] = &[];

/// What the seeds are to meet, as it stands in a history.
const MET: [&str; 18] = [
    "user creates",
    "user deletes",
    "user labels",
    "static pod",
    "is removed",
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
];

/// A day that follows from its seed.
fn day(seed: u64) -> Simulation {
    let pods = 1 + usize::try_from(seed % 3).unwrap();
    let every = Duration::from_secs([600, 1200, 3600][usize::try_from(seed / 3 % 3).unwrap()]);
    Simulation::seed(seed)
        .node("node-1")
        .workload(Workload::churn(pods).every(every))
        .faults(FaultPlan::drawn(seed))
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
    if let Some(seed) = from_env("SIMULATION_SEED") {
        match day(seed).run(DAY) {
            Ok(history) => eprintln!("{history}"),
            Err(failure) => panic!("{}\n{failure}", failure.history),
        }
        return;
    }
    let count = from_env("SIMULATION_SEEDS").unwrap_or(if cfg!(debug_assertions) { 2 } else { 1000 });
    let first = from_env("SIMULATION_FIRST_SEED").unwrap_or(0);
    let found = FOUND.iter().map(|(seed, _)| *seed);
    let seeds: Vec<u64> = found.chain(first..first + count).collect();
    let (next, seen, start) = (AtomicU64::new(0), Mutex::new(Seen::default()), Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) =
                    seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap())
                {
                    live(*seed, &seen);
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
        "{days} days, {steps} steps, in {:.1?} on {threads} threads; the slowest, seed {}, took {:.1?}",
        start.elapsed(),
        slowest.1,
        slowest.0
    );
    eprintln!("they met {met:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    if count >= 100 {
        let unmet: Vec<_> = MET
            .iter()
            .filter(|text| met.get(*text).is_none_or(|count| *count == 0))
            .collect();
        assert!(unmet.is_empty(), "no seed met {unmet:?}");
    }
}

fn live(seed: u64, seen: &Mutex<Seen>) {
    if seen.lock().unwrap_or_else(PoisonError::into_inner).failures.len() >= TOLD {
        return;
    }
    let start = Instant::now();
    let lived = day(seed).run(DAY);
    let took = start.elapsed();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
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
            "seed {seed}: {failure}\nor, with all that happened: SIMULATION_SEED={seed} cargo test --profile sim \
             -p kubelet-testing --features simulation --test simulation_seeds"
        ));
    }
}
