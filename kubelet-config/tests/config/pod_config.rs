//! The mux over streams.
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::{
    Error, PodConfig, PodOperation, PodUpdate, PodUpdates, SourceStatus, SourceUpdate, StreamSource,
};
use kubelet_core::PodExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes.
const GUARD: Duration = Duration::from_secs(60);

fn pod(uid: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.into());
    pod.metadata.name = Some(format!("pod-{uid}"));
    Arc::new(pod)
}

async fn next(updates: &mut mpsc::Receiver<PodUpdate>) -> PodUpdate {
    tokio::time::timeout(GUARD, updates.recv())
        .await
        .expect("an update")
        .expect("no end")
}

#[tokio::test]
async fn sources_are_merged_and_keep_their_names() {
    let (say, said) = mpsc::channel(1);
    let config = PodConfig::builder()
        .source(StreamSource::new("one", ReceiverStream::new(said)))
        .source(StreamSource::new("two", stream::iter([vec![pod("2")]])))
        .build()
        .unwrap();
    assert_eq!(config.sources().len(), 2);
    let handle = config.handle();
    assert!(!handle.seen_all_sources());
    let (tx, mut updates) = mpsc::channel(1);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(config.run(tx, shutdown.clone()));

    let two = next(&mut updates).await;
    assert_eq!(
        (two.op, &*two.source, two.pods[0].uid_str()),
        (PodOperation::Add, "two", "2")
    );
    say.send(vec![]).await.unwrap();
    let one = next(&mut updates).await;
    assert_eq!(
        (one.op, &*one.source, one.pods.len()),
        (PodOperation::Add, "one", 0)
    );
    assert!(handle.seen_all_sources());
    assert_eq!(handle.source_status("one"), SourceStatus::Ready);
    // A source that has ended is not an empty one.
    assert!(matches!(handle.source_status("two"), SourceStatus::Stale { .. }));
    assert_eq!(handle.merged_state().len(), 1);

    // Sources may end, the config goes on until it is told to stop.
    drop(say);
    shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(updates.recv().await.is_none());
}

#[tokio::test]
async fn a_slow_consumer_loses_nothing_and_holds_the_source_back() {
    let (say, said) = mpsc::channel(1);
    let config = PodConfig::builder()
        .source(StreamSource::new("s", ReceiverStream::new(said)))
        .build()
        .unwrap();
    let (tx, mut updates) = mpsc::channel(1);
    let running = tokio::spawn(config.run(tx, CancellationToken::new()));
    let mut held_back = 0;
    let mut pods = Vec::new();
    let mut received = Vec::new();
    for uid in 0..50 {
        pods.push(pod(&uid.to_string()));
        let mut snapshot = pods.clone();
        // Read one update only when the source cannot say more.
        loop {
            match say.try_send(snapshot) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(back)) => {
                    snapshot = back;
                    if updates.is_empty() {
                        tokio::task::yield_now().await;
                    } else {
                        held_back += 1;
                        received.push(next(&mut updates).await);
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    while received.len() < 50 {
        received.push(next(&mut updates).await);
    }
    let uids: Vec<_> = received
        .iter()
        .map(|update| update.pods[0].uid_str().to_owned())
        .collect();
    let expected: Vec<_> = (0..50).map(|uid| uid.to_string()).collect();
    assert_eq!(uids, expected);
    assert!(held_back > 0);
    // Who listens no more ends it.
    drop(updates);
    tokio::time::timeout(GUARD, running)
        .await
        .expect("an end")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_channel_is_a_source_and_sync_sends_all_again() {
    let (config, one) = PodConfig::builder().channel("one");
    let (config, two) = config.channel("two");
    let (config, _silent) = config.channel("silent");
    let config = config.build().unwrap();
    let handle = config.handle();
    let (tx, mut updates) = mpsc::channel(1);
    let running = tokio::spawn(config.run(tx, CancellationToken::new()));
    let brief = |update: PodUpdate| {
        let uids: Vec<_> = update.pods.iter().map(|pod| pod.uid_str().to_owned()).collect();
        format!("{} {:?} {}", update.source, update.op, uids.join(","))
    };
    one.send(SourceUpdate::Snapshot(vec![pod("1")])).await.unwrap();
    assert_eq!(brief(next(&mut updates).await), "one Add 1");
    two.send(SourceUpdate::Snapshot(vec![])).await.unwrap();
    assert_eq!(brief(next(&mut updates).await), "two Add ");
    one.send(SourceUpdate::Applied(pod("2"))).await.unwrap();
    assert_eq!(brief(next(&mut updates).await), "one Add 2");

    handle.sync();
    assert_eq!(brief(next(&mut updates).await), "one Set 1,2");
    assert_eq!(brief(next(&mut updates).await), "two Set ");
    // Also when no source will say more.
    drop((one, two, _silent));
    handle.sync();
    assert_eq!(brief(next(&mut updates).await), "one Set 1,2");
    assert_eq!(brief(next(&mut updates).await), "two Set ");
    drop(updates);
    tokio::time::timeout(GUARD, running)
        .await
        .expect("an end")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn it_stops_though_nobody_reads() {
    let snapshots = stream::iter([vec![pod("1")], vec![pod("1"), pod("2")]]);
    let config = PodConfig::builder()
        .source(StreamSource::new("s", snapshots))
        .build()
        .unwrap();
    let (tx, _updates) = mpsc::channel(1);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(Box::new(config).run(tx, shutdown.clone()));
    shutdown.cancel();
    tokio::time::timeout(GUARD, running)
        .await
        .expect("an end")
        .unwrap()
        .unwrap();
}

#[test]
fn all_problems_of_a_builder_are_reported_at_once() {
    let source = |name: &str| StreamSource::new(name, stream::empty());
    let built = PodConfig::builder()
        .source(source("a"))
        .source(source(""))
        .source(source("a"))
        .build();
    let Err(Error::Misconfigured { problems }) = built else {
        panic!()
    };
    assert_eq!(problems.len(), 2, "{problems:?}");
}
