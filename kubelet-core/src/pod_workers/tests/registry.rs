//! The state machine, as tables.

use super::*;

#[test]
fn who_may_have_what_in_which_state() {
    let config = PodWorkersConfig::default();
    let mut registry = Registry::new(config, Jitter::from_seed(1));
    let now = std::time::Instant::now().into();
    let uid = PodUid::from("a");
    registry.update(
        UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))),
        now,
        |_| None,
    );
    let work = registry.next(now).unwrap();
    assert_eq!((work.state, work.newer_than), (PodWorkerState::Sync, None));
    assert!(registry.next(now).is_none(), "one at a time");
    registry.complete(&uid, ended(work.state, Ok(SyncOutcome::default())), now);
    assert!(registry.next(now).is_none() && registry.next_timer().is_some());
    registry.fire_timers(registry.next_timer().unwrap());
    let work = registry.next(now).unwrap();
    assert_eq!(work.newer_than, Some(now), "the next sync needs a newer status");
    // An eviction marks the content for removal at once, a mere kill does not.
    let evict = KillPod {
        evict: true,
        ..KillPod::default()
    };
    registry.update(UpdatePod::kill(Arc::new(pod("a")), evict), now, |_| None);
    assert!(work.cancel.is_cancelled());
    let record = registry.record(&uid).unwrap();
    assert!(record.evicted && !record.deleted && !record.termination_started);
}

/// A registry in which this pod was created and its first sync has begun.
fn begun(pod: UpdatePod, now: Instant) -> (Registry, Work) {
    let mut registry = Registry::new(PodWorkersConfig::default(), Jitter::from_seed(1));
    registry.first_list_was_read(&[], now);
    registry.update(pod, now, |_| None);
    let work = registry.next(now).unwrap();
    (registry, work)
}

#[test]
fn a_syncer_that_gives_up_by_itself_is_not_called_again_at_once() {
    let now = std::time::Instant::now().into();
    let create = UpdatePod::new(SyncPodType::Create, Arc::new(pod("a")));
    let (mut registry, work) = begun(create, now);
    registry.complete(&work.uid, ended(work.state, Err(Error::Cancelled)), now);
    assert!(registry.next(now).is_none());
    assert!(registry.next_timer().unwrap() >= now + Duration::from_secs(10));
}

#[test]
fn a_mirror_that_went_is_not_shown_to_the_next_sync() {
    let now = std::time::Instant::now().into();
    let (first, mirror) = (static_pod("a", "web"), Arc::new(pod("mirror")));
    let create = UpdatePod::new(SyncPodType::Create, first.clone()).with_mirror(Some(mirror.clone()));
    let (mut registry, work) = begun(create, now);
    assert_eq!(work.request.mirror, Some(mirror));
    registry.complete(&work.uid, ended(work.state, Ok(SyncOutcome::default())), now);
    registry.update(UpdatePod::new(SyncPodType::Update, first), now, |_| None);
    assert_eq!(registry.next(now).unwrap().request.mirror, None);
}

#[test]
fn the_end_of_a_pod_that_nobody_lists_is_tried_again_with_every_look() {
    let now = std::time::Instant::now().into();
    let (mut registry, work) = begun(UpdatePod::kill_runtime_pod(runtime_pod("a")), now);
    registry.sync_known_pods(&HashSet::new());
    assert!(registry.next(now).is_none(), "it is being ended");
    let error = Error::runtime("StopPodSandbox", std::io::Error::other("busy"));
    registry.complete(&work.uid, ended(work.state, Err(error)), now);
    assert!(registry.next(now).is_none());
    registry.sync_known_pods(&HashSet::new());
    assert_eq!(registry.next(now).unwrap().uid, work.uid);
}

#[test]
fn when_a_pod_is_looked_at_again() {
    let now = Instant::from_std(std::time::Instant::now());
    let in_seconds = |seconds| now + Duration::from_secs(seconds);
    let (uid, key) = (PodUid::from("a"), PodKey::new("ns", "a"));
    let failed = |message: &str| Error::SyncPod {
        pod: key.clone(),
        uid: uid.clone(),
        message: message.to_owned(),
    };
    let back_off = |until| Error::BackOff {
        pod: key.clone(),
        uid: uid.clone(),
        until,
        message: "back-off".to_owned(),
    };
    let network = || Error::NetworkNotReady {
        message: "no cni".to_owned(),
    };
    let well = || Ok(SyncOutcome::default());
    type Case = (&'static str, Result<SyncOutcome>, Option<u64>, (f64, f64));
    let cases: [Case; 9] = [
        ("all is well", well(), None, (60.0, 90.0)),
        ("an error", Err(failed("no")), None, (10.0, 15.0)),
        ("a back-off", Err(back_off(in_seconds(40))), None, (40.0, 60.0)),
        ("a back-off that is over", Err(back_off(now)), None, (0.0, 0.0)),
        (
            "a long back-off",
            Err(back_off(in_seconds(600))),
            None,
            (60.0, 90.0),
        ),
        ("no network", Err(network()), None, (1.0, 1.5)),
        ("a deadline", well(), Some(20), (20.0, 20.0)),
        (
            "a deadline within a back-off",
            Err(back_off(in_seconds(40))),
            Some(5),
            (5.0, 5.0),
        ),
        ("a deadline that is over", well(), Some(0), (60.0, 90.0)),
    ];
    for (case, result, deadline, (from, to)) in cases {
        let (mut registry, work) = begun(UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))), now);
        let ended = Ended {
            look_again_at: deadline.map(in_seconds),
            ..ended(work.state, result)
        };
        registry.complete(&work.uid, ended, now);
        let after = (registry.next_timer().unwrap() - now).as_secs_f64();
        assert!((from..=to).contains(&after), "{case}: {after}");
    }
}

#[test]
fn a_resync_looks_at_the_pod_as_its_source_has_it_by_then() {
    let mut registry = Registry::new(PodWorkersConfig::default(), Jitter::from_seed(1));
    let (uid, now) = (PodUid::from("a"), Instant::now());
    let create = UpdatePod::new(SyncPodType::Create, Arc::new(pod("a")));
    registry.update(create, now, |_| None);
    assert!(registry.next(now).is_some());
    let shown = with_phase("a", "Running");
    registry.observe_pod(&shown);
    let end = ended(PodWorkerState::Sync, Ok(SyncOutcome::default()));
    registry.complete(&uid, end, now);
    assert!(registry.next(now).is_none(), "that is no reason to sync it");
    let later = now + Duration::from_secs(100);
    registry.fire_timers(later);
    let work = registry.next(later).unwrap();
    assert!(Arc::ptr_eq(work.request.target.pod().unwrap(), &shown));
}
