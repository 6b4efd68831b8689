//! The cost of simulated time: an hour of an idle node with agent, runtime and API server, and ten minutes of pods
//! that come and go in a storm of faults.
//!
//! `cargo bench -p benches --bench simulation`
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a bench ends where it cannot go on")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use kubelet_testing::{FaultPlan, Simulation, Workload};

fn simulations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulation");
    group.sample_size(10);
    group.bench_function("an idle node's hour", |bencher| {
        bencher.iter(|| {
            Simulation::seed(1)
                .node("node-1")
                .run(Duration::from_secs(3600))
                .expect("it failed")
        });
    });
    group.bench_function("ten minutes of a storm", |bencher| {
        bencher.iter(|| {
            let simulation = Simulation::seed(1).node("node-1").workload(Workload::churn(5));
            simulation
                .faults(FaultPlan::storm())
                .run(Duration::from_secs(600))
                .expect("it failed")
        });
    });
    group.finish();
}

criterion_group!(benches, simulations);
criterion_main!(benches);
