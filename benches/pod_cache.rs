//! The pod cache: the cost to wake one waiter among many.
//!
//! `cargo bench -p benches --bench pod_cache`
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use kubelet_core::runtime::PodStatus;
use kubelet_core::{PodCache, PodKey, PodUid};
use tokio::time::Instant;

fn wake_one(criterion: &mut Criterion) {
    let start = Instant::now();
    for waiting in [0, 10_000] {
        let cache = PodCache::new();
        let mut context = Context::from_waker(Waker::noop());
        let others: Vec<PodUid> = (0..waiting)
            .map(|index| PodUid::from(format!("other-{index}")))
            .collect();
        let mut waits: Vec<_> = others
            .iter()
            .map(|uid| Box::pin(cache.get_newer_than(uid, start + Duration::from_secs(1 << 40))))
            .collect();
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }

        let uid = PodUid::from("pod");
        let status = Arc::new(PodStatus::empty(uid.clone(), PodKey::new("ns", "pod"), start));
        let mut now = start;
        criterion.bench_function(&format!("set wakes one, {waiting} others wait"), |bencher| {
            bencher.iter(|| {
                let mut wait = pin!(cache.get_newer_than(&uid, now));
                assert!(wait.as_mut().poll(&mut context).is_pending());
                now += Duration::from_nanos(1);
                cache.set(&uid, Ok(status.clone()), now);
                black_box(wait.as_mut().poll(&mut context).is_ready())
            });
        });
    }
}

criterion_group!(benches, wake_one);
criterion_main!(benches);
