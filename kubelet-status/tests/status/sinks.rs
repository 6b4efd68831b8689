//! The sinks alone.
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, Error, PodExt, Result, StatusSink};
use kubelet_status::{FanOut, JsonLines, MemorySink};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::AsyncWrite;

fn pod() -> Arc<Pod> {
    Arc::new(
        serde_json::from_value(json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}})).unwrap(),
    )
}

fn status(phase: &str) -> ApiPodStatus {
    ApiPodStatus {
        phase: Some(phase.to_owned()),
        ..ApiPodStatus::default()
    }
}

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap())
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn json_lines_say_what_changed_and_who_is_gone() {
    let sink = JsonLines::blocking(Vec::new(), clock());
    sink.patch_status(&pod(), &status(""), &status("Running"))
        .await
        .unwrap();
    sink.forget(&pod()).await.unwrap();
    assert_eq!(
        lines(&sink.into_inner().0),
        [
            json!({"time": "2026-01-01T00:00:00Z", "namespace": "ns", "name": "p", "uid": "u", "status": {"phase": "Running"}}),
            json!({"time": "2026-01-01T00:00:00Z", "namespace": "ns", "name": "p", "uid": "u", "status": null}),
        ]
    );
}

/// Takes a few bytes at a time, and now and then none.
#[derive(Default)]
struct Slow {
    bytes: Vec<u8>,
    turn: usize,
}

impl AsyncWrite for Slow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = bytes.len().min(7);
        self.bytes.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_was_broken_off_is_completed() {
    let sink = JsonLines::new(Slow::default(), clock());
    {
        let pod = pod();
        let (old, new) = (status(""), status("Pending"));
        let mut call = sink.patch_status(&pod, &old, &new);
        assert!(futures::poll!(&mut call).is_pending());
    }
    sink.patch_status(&pod(), &status(""), &status("Running"))
        .await
        .unwrap();
    let phases: Vec<Value> = lines(&sink.into_inner().bytes)
        .iter()
        .map(|line| line["status"]["phase"].clone())
        .collect();
    assert_eq!(phases, ["Pending", "Running"]);
}

/// Refuses until told otherwise.
#[derive(Default)]
struct Moody {
    refuses: Mutex<bool>,
    took: Mutex<usize>,
}

#[async_trait]
impl StatusSink for Moody {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &ApiPodStatus,
        _: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        if *self.refuses.lock() {
            return Err(Error::StatusSink {
                pod: pod.key(),
                uid: pod.uid(),
                source: Arc::new(std::io::Error::other("refused")),
            });
        }
        *self.took.lock() += 1;
        Ok(None)
    }
}

#[tokio::test]
async fn a_fan_out_hands_a_status_again_only_to_those_that_did_not_take_it() {
    let (good, moody, memory) = (
        Arc::new(Moody::default()),
        Arc::new(Moody::default()),
        MemorySink::new(),
    );
    *moody.refuses.lock() = true;
    let all = FanOut::new(vec![good.clone(), moody.clone(), Arc::new(memory.clone())]);
    for _ in 0..3 {
        all.patch_status(&pod(), &status(""), &status("Running"))
            .await
            .unwrap_err();
    }
    *moody.refuses.lock() = false;
    all.patch_status(&pod(), &status(""), &status("Running"))
        .await
        .unwrap();
    assert_eq!((*good.took.lock(), *moody.took.lock()), (1, 1));
    all.patch_status(&pod(), &status("Running"), &status("Failed"))
        .await
        .unwrap();
    assert_eq!((*good.took.lock(), *moody.took.lock()), (2, 2));
    assert_eq!(memory.get(&pod().uid()).unwrap().phase.as_deref(), Some("Failed"));
    all.forget(&pod()).await.unwrap();
    assert!(memory.all().is_empty());
}
