//! The engine, under paused time.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_pod_lives_and_is_deleted() {
    let mut bench = Bench::new();
    let uid = PodUid::from("a");
    assert!(
        bench.workers.could_have_running_containers(&uid),
        "before the first sync of known pods all may"
    );
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    // Nothing happens: it is looked at again after its resync interval, with up to half of it as jitter.
    let synced = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!(
        (60..=91).contains(&synced.elapsed().as_secs()),
        "{:?}",
        synced.elapsed()
    );

    bench.update(SyncPodType::Update, &deleting("a", 5));
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 5));
    assert!(bench.workers.is_pod_termination_requested(&uid));
    assert!(bench.workers.should_pod_containers_be_terminating(&uid));
    assert!(!bench.workers.is_pod_known_terminated(&uid));
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert!(bench.workers.is_pod_known_terminated(&uid));
    assert!(
        bench.workers.should_pod_content_be_removed(&uid),
        "deleted and terminated"
    );
    assert!(!bench.workers.should_pod_be_finished(&uid));
    answer.send(Ok(SyncOutcome::default())).unwrap();

    // What is finished is not begun again, however often it is asked for, until it was forgotten.
    bench.update(SyncPodType::Sync, &Arc::new(pod("b")));
    bench.expect(Sync(SyncPodType::Sync, "b".into())).await;
    bench.update(SyncPodType::Update, &Arc::new(pod("a")));
    assert!(bench.workers.should_pod_be_finished(&uid));
    assert!(
        bench
            .workers
            .sync_known_pods(&uids(["a", "b"]))
            .contains_key(&uid)
    );
    assert!(!bench.workers.sync_known_pods(&uids(["b"])).contains_key(&uid));
    assert!(
        bench.workers.should_pod_content_be_removed(&uid)
            && bench.workers.should_pod_runtime_be_removed(&uid)
    );
    assert!(!bench.workers.could_have_running_containers(&uid));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_pod_is_among_those_that_end_until_it_has_ended() {
    let mut bench = Bench::new();
    let removed = Arc::new(pod("a"));
    let terminating = |bench: &Bench| {
        let pods = bench.workers.terminating_pods();
        pods.iter().map(|pod| pod.uid().to_string()).collect::<Vec<_>>()
    };
    bench.update(SyncPodType::Create, &removed);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    assert_eq!(terminating(&bench), [""; 0]);
    bench
        .workers
        .update_pod(UpdatePod::kill(removed, KillPod::default()));
    assert_eq!(terminating(&bench), ["a"]);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    assert_eq!(terminating(&bench), ["a"]);
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert_eq!(terminating(&bench), [""; 0]);
    answer.send(Ok(SyncOutcome::default())).unwrap();
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_asks_for_the_next_gets_it_at_once() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    let (call, answer) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Create, "a".into()));
    let asked = Instant::now();
    let again = SyncOutcome {
        again: true,
        ..SyncOutcome::default()
    };
    answer.send(Ok(again)).unwrap();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    // With the next list, and not with the next resync.
    assert!(asked.elapsed() <= Duration::from_secs(2), "{:?}", asked.elapsed());
    let synced = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!(synced.elapsed() >= Duration::from_secs(60), "once is once");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_drops_a_running_sync_and_an_update_does_not() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Create, "a".into()));
    // A hundred updates while it runs are one sync after it.
    for _ in 0..100 {
        bench.update(SyncPodType::Update, &first);
    }
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let (call, _never_answered) = bench.next().await;
    assert_eq!(call, Sync(SyncPodType::Update, "a".into()));
    let (completed, done) = oneshot::channel();
    let kill = KillPod {
        grace_period: Some(Duration::from_secs(7)),
        completed: Some(completed),
        ..KillPod::default()
    };
    bench.workers.update_pod(UpdatePod::kill(first, kill));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    bench.expect(Terminating("a".into(), 7)).await;
    done.await.unwrap();
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn grace_periods_only_shrink() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.update(SyncPodType::Kill, &first);
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30), "the pod's own");
    let kill = |seconds| {
        let grace_period = Some(Duration::from_secs(seconds));
        UpdatePod::kill(
            first.clone(),
            KillPod {
                grace_period,
                ..KillPod::default()
            },
        )
    };
    bench.workers.update_pod(kill(4));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 4));
    bench.workers.update_pod(kill(60));
    bench.workers.update_pod(kill(0));
    assert_eq!(bench.next().await.0, Dropped("a".into()));
    bench.expect(Terminating("a".into(), 1)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn errors_wait_their_turn_and_end_well() {
    let uid = PodUid::from("a");
    let failed = || Error::SyncPod {
        pod: PodKey::new("ns", "a"),
        uid: uid.clone(),
        message: "no".into(),
    };
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench
        .expect_error(Sync(SyncPodType::Create, "a".into()), failed())
        .await;
    let at = Instant::now();
    let error = Error::NetworkNotReady {
        message: "cni".into(),
    };
    bench
        .expect_error(Sync(SyncPodType::Sync, "a".into()), error)
        .await;
    assert!((10..=16).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());
    let at = Instant::now();
    let until = Instant::now() + Duration::from_secs(20);
    let error = Error::BackOff {
        pod: PodKey::new("ns", "a"),
        uid: uid.clone(),
        until,
        message: "wait".into(),
    };
    bench
        .expect_error(Sync(SyncPodType::Sync, "a".into()), error)
        .await;
    assert!((1..=3).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());
    let at = Instant::now();
    bench.expect(Sync(SyncPodType::Sync, "a".into())).await;
    assert!((20..=31).contains(&at.elapsed().as_secs()), "{:?}", at.elapsed());

    bench.update(SyncPodType::Kill, &Arc::new(pod("a")));
    bench.expect_error(Terminating("a".into(), 30), failed()).await;
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect_error(Terminated("a".into()), failed()).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_completes_by_itself_is_ended_and_never_begun_again() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    let (_, answer) = bench.next().await;
    answer
        .send(Ok(SyncOutcome {
            terminal: true,
            ..SyncOutcome::default()
        }))
        .unwrap();
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    let known = bench.workers.sync_known_pods(&uids(["a", "z"]));
    assert_eq!(known[&PodUid::from("a")].state, PodWorkerState::Terminated);
    assert!(
        !bench.workers.should_pod_content_be_removed(&"a".into()),
        "it is not deleted"
    );
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_uid_starts_after_the_first_has_ended() {
    let mut bench = Bench::new();
    let (uid, first) = (PodUid::from("a"), Arc::new(pod("a")));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.update(SyncPodType::Kill, &first);
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    bench.update(SyncPodType::Create, &first);
    assert!(
        bench.workers.sync_known_pods(&uids(["a"])).contains_key(&uid),
        "it has not ended"
    );
    answer.send(Ok(SyncOutcome::default())).unwrap();
    bench.expect(Terminated("a".into())).await;
    // Wait for the worker to take that in: the next pod's call comes after.
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    assert!(
        !bench
            .workers
            .sync_known_pods(&uids(["a", "z"]))
            .contains_key(&uid),
        "the caller creates it anew"
    );
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    bench.end().await;
}

/// Nobody may have heard of its end: the API server was away when the node was shut down.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_ended_before_the_agent_started_is_reported() {
    let mut bench = Bench::new();
    let mut ended = Pod::clone(&static_pod("a", "web"));
    ended.status.get_or_insert_default().phase = Some("Failed".to_owned());
    bench.update(SyncPodType::Create, &Arc::new(ended));
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn static_pods_of_one_name_run_one_after_the_other() {
    let mut bench = Bench::new();
    let [first, gone, last] = ["1", "2", "3"].map(|uid| static_pod(uid, "web"));
    for pod in [&first, &gone, &last] {
        bench.update(SyncPodType::Create, pod);
    }
    bench.expect(Sync(SyncPodType::Create, "1".into())).await;
    bench.update(SyncPodType::Kill, &gone);
    bench.update(SyncPodType::Kill, &first);
    bench.expect(Terminating("1".into(), 30)).await;
    assert!(
        bench.workers.should_pod_be_finished(&"2".into()),
        "it never began and never will"
    );
    bench.expect(Terminated("1".into())).await;
    // At once, not after a back-off period.
    let freed = Instant::now();
    bench.expect(Sync(SyncPodType::Create, "3".into())).await;
    assert_eq!(freed.elapsed(), Duration::ZERO);
    bench.end().await;
}

/// The manifest changed while the agent was down: the runtime still runs the earlier pod.
async fn a_new_static_pod_behind_one_of_the_runtime() -> Bench {
    let bench = Bench::new();
    bench.cache_runs(&"old".into(), "web");
    bench.update(SyncPodType::Create, &static_pod("new", "web"));
    bench
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_starts_after_the_one_of_its_name_that_only_the_runtime_knows() {
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    // One of another name does not wait.
    bench.update(SyncPodType::Create, &static_pod("other", "other"));
    bench.expect(Sync(SyncPodType::Create, "other".into())).await;
    // Housekeeping finds it. Its end takes longer than a turn is lent.
    let key = PodKey::new("ns", "web");
    let old = runtime_pod_named("old", "web");
    bench.workers.update_pod(UpdatePod::kill_runtime_pod(old));
    let (call, answer) = bench.next().await;
    assert_eq!(call, TerminatingRuntime("old".into()));
    assert!(bench.workers.is_static_pod_terminating(&key));
    tokio::time::sleep(Duration::from_secs(30)).await;
    answer.send(Ok(SyncOutcome::default())).unwrap();
    let freed = Instant::now();
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(freed.elapsed(), Duration::ZERO);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_starts_once_the_pods_of_the_first_list_are_read() {
    let mut bench = Bench::before_the_first_list();
    let start = Instant::now();
    bench.update(SyncPodType::Create, &static_pod("new", "web"));
    bench.update(SyncPodType::Create, &Arc::new(pod("b")));
    // The runtime is away for a minute, and then takes a second for the status of the earlier pod.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let old = PodUid::from("old");
    bench.cache.update_time_except(Instant::now(), [old.clone()]);
    // Only static pods wait for the statuses of others.
    bench.expect(Sync(SyncPodType::Create, "b".into())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        bench.workers.explain(&"new".into()),
        [crate::Step::WaitsForStatus { newer_than: None }]
    );
    bench.cache_runs(&old, "web");
    bench
        .workers
        .update_pod(UpdatePod::kill_runtime_pod(runtime_pod_named("old", "web")));
    bench.expect(TerminatingRuntime("old".into())).await;
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(start.elapsed(), Duration::from_secs(61));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_earlier_pod_that_is_being_ended_when_the_first_list_is_read_ends_first() {
    let mut bench = Bench::before_the_first_list();
    bench.update(SyncPodType::Create, &static_pod("new", "web"));
    let (old, slow) = (PodUid::from("old"), PodUid::from("slow"));
    bench.cache_runs(&old, "web");
    bench.cache.update_time_except(Instant::now(), [slow.clone()]);
    bench
        .workers
        .update_pod(UpdatePod::kill_runtime_pod(runtime_pod_named("old", "web")));
    let (call, answer) = bench.next().await;
    assert_eq!(call, TerminatingRuntime("old".into()));
    bench.cache_runs(&slow, "slow");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.calls.try_recv().is_err());
    answer.send(Ok(SyncOutcome::default())).unwrap();
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_does_not_wait_for_long_for_a_status_that_does_not_come() {
    let mut bench = Bench::before_the_first_list();
    let start = Instant::now();
    bench.update(SyncPodType::Create, &static_pod("new", "web"));
    bench.cache.update_time_except(start, ["slow".into()]);
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_does_not_wait_for_long_for_what_nobody_ends() {
    // It may be the API server, without which the sources are never ready.
    let begun = Instant::now();
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    bench.end().await;

    // A pod of the API server has the same full name.
    let begun = Instant::now();
    let mut bench = a_new_static_pod_behind_one_of_the_runtime().await;
    let mut old = pod("old");
    old.metadata.name = Some("web".into());
    bench.update(SyncPodType::Create, &Arc::new(old));
    // Only the static pod awaits the first list.
    bench.expect(Sync(SyncPodType::Create, "old".into())).await;
    bench.expect(Sync(SyncPodType::Create, "new".into())).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_only_the_runtime_knows_is_terminated_and_forgotten() {
    let mut bench = Bench::new();
    bench
        .workers
        .update_pod(UpdatePod::kill_runtime_pod(runtime_pod("orphan")));
    let (call, answer) = bench.next().await;
    assert_eq!(call, TerminatingRuntime("orphan".into()));
    let known = bench.workers.sync_known_pods(&HashSet::new());
    assert!(!known[&PodUid::from("orphan")].has_config);
    answer.send(Err(Error::Cancelled)).unwrap();
    bench.expect(TerminatingRuntime("orphan".into())).await;
    bench.update(SyncPodType::Create, &Arc::new(pod("z")));
    bench.expect(Sync(SyncPodType::Create, "z".into())).await;
    assert!(!bench.workers.sync_known_pods(&uids(["z"])).contains_key("orphan"));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_desired_no_more_is_driven_to_its_end() {
    let mut bench = Bench::new();
    bench.update(SyncPodType::Create, &Arc::new(pod("a")));
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    let known = bench.workers.sync_known_pods(&HashSet::new());
    assert!(known[&PodUid::from("a")].orphan);
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_ended_before_the_agent_started_only_needs_its_clean_up() {
    let mut bench = Bench::new();
    bench.cache.get_observed(&"a".into()).await.unwrap();
    bench.update(SyncPodType::Create, &with_phase("a", "Succeeded"));
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_by_its_source_is_killed_if_the_runtime_was_not_asked_yet() {
    let mut bench = Bench::new();
    assert!(bench.cache.observed_at(&"a".into()).is_none());
    bench.update(SyncPodType::Create, &with_phase("a", "Failed"));
    bench.expect(Terminating("a".into(), 30)).await;
    bench.expect(Terminated("a".into())).await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_ended_within_the_shorter_grace_period() {
    let mut bench = Bench::new();
    let first = Arc::new(pod("a"));
    bench.update(SyncPodType::Create, &first);
    bench.expect(Sync(SyncPodType::Create, "a".into())).await;
    let (workers, pods) = (bench.workers.clone(), vec![first]);
    let ended = tokio::spawn(async move { workers.end_pods(pods, Some(Duration::from_secs(600))).await });
    bench.expect(Terminating("a".into(), 30)).await;
    let (call, answer) = bench.next().await;
    assert_eq!(call, Terminated("a".into()));
    assert!(!ended.is_finished(), "what the pod held is not given back yet");
    answer.send(Ok(SyncOutcome::default())).unwrap();
    ended.await.unwrap();
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_end_that_no_worker_brings() {
    let mut bench = Bench::new();
    let pods = vec![Arc::new(pod("a"))];
    let (workers, of_running) = (bench.workers.clone(), pods.clone());
    let waits = tokio::spawn(async move { workers.end_pods(of_running, None).await });
    let (call, _hangs) = bench.next().await;
    assert_eq!(call, Terminating("a".into(), 30));
    let workers = bench.workers.clone();
    bench.end().await;
    let hour = Duration::from_secs(3600);
    tokio::time::timeout(hour, waits).await.unwrap().unwrap();
    tokio::time::timeout(hour, workers.end_pods(pods, None))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_sync_is_its_pods_alone() {
    struct Panics(mpsc::UnboundedSender<String>);
    #[async_trait]
    impl PodSyncer for Panics {
        async fn sync_pod(
            &self,
            _: SyncPodType,
            pod: &Arc<Pod>,
            _: Option<&Arc<Pod>>,
            _: &Arc<PodStatus>,
        ) -> Result<SyncOutcome> {
            let _ = self.0.send(pod.uid().to_string());
            assert_ne!(pod.uid_str(), "bad", "a bug");
            Ok(SyncOutcome::default())
        }
        async fn sync_terminating_pod(
            &self,
            _: &Arc<Pod>,
            _: &Arc<PodStatus>,
            _: Option<Duration>,
            _: Option<&PodStatusFn>,
        ) -> Result<()> {
            Ok(())
        }
        async fn sync_terminating_runtime_pod(&self, _: &Arc<RuntimePod>) -> Result<()> {
            Ok(())
        }
        async fn sync_terminated_pod(&self, _: &Arc<Pod>, _: &Arc<PodStatus>) -> Result<()> {
            Ok(())
        }
    }
    let (calls, mut called) = mpsc::unbounded_channel();
    let cache = PodCache::new();
    cache.update_time(Instant::now());
    let workers = PodWorkers::new(
        Arc::new(Panics(calls)),
        cache.clone(),
        PodWorkersConfig::default(),
        Jitter::from_seed(1),
    );
    let (handle, shutdown) = (workers.handle(), CancellationToken::new());
    let running = tokio::spawn(workers.run(shutdown.clone()));
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("bad"))));
    assert_eq!(called.recv().await.unwrap(), "bad");
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("good"))));
    assert_eq!(called.recv().await.unwrap(), "good");
    cache.update_time(Instant::now() + Duration::from_secs(1));
    assert_eq!(called.recv().await.unwrap(), "bad", "it is tried again");
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_a_pod_that_cannot_be_read() {
    let (calls, mut called) = mpsc::unbounded_channel();
    let cache = PodCache::new();
    cache.set(
        &"a".into(),
        Err(Error::runtime(
            "PodSandboxStatus",
            std::io::Error::other("broken"),
        )),
        Instant::now(),
    );
    let config = PodWorkersConfig::default();
    let workers = PodWorkers::new(Arc::new(Script { calls }), cache, config, Jitter::from_seed(1));
    let (handle, shutdown) = (workers.handle(), CancellationToken::new());
    let running = tokio::spawn(workers.run(shutdown.clone()));
    handle.update_pod(UpdatePod::new(SyncPodType::Create, Arc::new(pod("a"))));
    handle.update_pod(UpdatePod::new(SyncPodType::Kill, Arc::new(pod("a"))));
    assert_eq!(called.recv().await.unwrap().0, Terminating("a".into(), 30));
    shutdown.cancel();
    running.await.unwrap();
}
