//! The crash-loop back-off: how long a container that keeps exiting waits before its restart.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{BackOff, ContainerStatus};
use kubelet_core::{Clock, ContainerId, PodExt, PodUid};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The crash-loop back-off of all containers (`flowcontrol.Backoff` under `doBackOff`).
///
/// The runtime reports the end of a container as a wall clock time. It is converted to an instant once, when the end is
/// first seen. So a step of the wall clock does not change the wait.
pub(crate) struct CrashLoopBackOff {
    initial: Duration,
    max: Duration,
    clock: Clock,
    /// By back-off key: a container with another key has its own back-off.
    entries: Mutex<HashMap<PodUid, HashMap<String, Entry>>>,
}

struct Entry {
    wait: Duration,
    last_update: Instant,
    last_exit: (ContainerId, Instant),
}

/// The container must still wait.
#[derive(Debug)]
pub(crate) struct StillWaiting {
    /// The whole wait, not the remaining time.
    pub(crate) wait: Duration,
    /// When it ends.
    pub(crate) until: Instant,
}

impl CrashLoopBackOff {
    pub(crate) fn new(initial: Duration, max: Duration, clock: Clock) -> Self {
        Self {
            initial: initial.min(max),
            max,
            clock,
            entries: Mutex::default(),
        }
    }

    /// Checks whether a container whose last instance is `exited` may start. `Ok` counts as a start: the wait after the
    /// next exit is twice as long, or the initial one if this instance ran for twice the longest wait.
    pub(crate) fn try_start(
        &self,
        pod: &Pod,
        container: &Container,
        exited: &ContainerStatus,
    ) -> Result<(), StillWaiting> {
        let now = Instant::now();
        let key = key_of(container);
        let mut entries = self.entries.lock();
        let of_pod = entries.entry(pod.uid()).or_default();
        let Some(entry) = of_pod.get_mut(&key) else {
            of_pod.insert(
                key,
                Entry {
                    wait: self.initial,
                    last_update: now,
                    last_exit: (exited.id.clone(), self.instant_of_exit(exited, now)),
                },
            );
            return Ok(());
        };
        if entry.last_exit.0 != exited.id {
            entry.last_exit = (exited.id.clone(), self.instant_of_exit(exited, now));
        }
        let ended = entry.last_exit.1;
        let stable = ended.saturating_duration_since(entry.last_update) > self.max * 2;
        let until = ended + entry.wait;
        if !stable && now < until {
            return Err(StillWaiting {
                wait: entry.wait,
                until,
            });
        }
        entry.wait = match stable {
            true => self.initial,
            false => (entry.wait * 2).min(self.max),
        };
        entry.last_update = now;
        Ok(())
    }

    /// Removes all containers of a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.entries.lock().remove(uid);
    }

    /// The waits of a pod, in a fixed order.
    pub(crate) fn of_pod(&self, uid: &PodUid) -> Vec<BackOff> {
        let entries = self.entries.lock();
        let of_pod = entries.get(uid).into_iter().flatten();
        let mut back_offs: Vec<BackOff> = of_pod
            .map(|(key, entry)| BackOff {
                key: key.clone(),
                wait: entry.wait,
                since: entry.last_exit.1,
                set_at: entry.last_update,
                container: Some(entry.last_exit.0.clone()),
                message: String::new(),
            })
            .collect();
        back_offs.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        back_offs
    }

    /// Restores the waits that [`of_pod`](Self::of_pod) returned in an earlier agent. Skips waits that are not of
    /// containers.
    pub(crate) fn restore(&self, uid: &PodUid, back_offs: &[BackOff]) {
        let mut entries = self.entries.lock();
        for back_off in back_offs {
            if let Some(exited) = back_off.container.clone() {
                let entry = Entry {
                    wait: back_off.wait.min(self.max),
                    last_update: back_off.set_at,
                    last_exit: (exited, back_off.since),
                };
                let of_pod = entries.entry(uid.clone()).or_default();
                of_pod.entry(back_off.key.clone()).or_insert(entry);
            }
        }
    }

    fn instant_of_exit(&self, exited: &ContainerStatus, now: Instant) -> Instant {
        let age = exited
            .finished_at
            // The runtime does not report it.
            .filter(|finished| *finished != Timestamp::UNIX_EPOCH)
            .and_then(|finished| Duration::try_from(self.clock.now().duration_since(finished)).ok())
            .unwrap_or_default();
        now.checked_sub(age).unwrap_or(now)
    }
}

/// `GetBackoffKey`
fn key_of(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    format!("{}_{image}_{:?}", container.name, container.resources)
}

/// A duration in Go's format, in whole seconds: `10s`, `1m20s`, `5m0s`.
pub(crate) fn go_seconds(duration: Duration) -> String {
    let (hours, minutes, seconds) = (
        duration.as_secs() / 3600,
        duration.as_secs() / 60 % 60,
        duration.as_secs() % 60,
    );
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use kubelet_core::runtime::ContainerState;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn doubles_to_the_cap_and_starts_over_after_a_stable_run() {
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap());
        let back_off = CrashLoopBackOff::new(Duration::from_secs(10), Duration::from_secs(300), clock);
        let (pod, container) = (Pod::default(), Container::default());
        let mut attempt = 0;
        let mut exit = || {
            attempt += 1;
            let id = ContainerId::new("fake", format!("c{attempt}"));
            let mut status = ContainerStatus::new(id, "c", ContainerState::Exited);
            status.finished_at = Some(clock.now());
            status
        };

        assert!(back_off.try_start(&pod, &container, &exit()).is_ok());
        let mut waits = Vec::new();
        for _ in 0..7 {
            let exited = exit();
            let Err(waiting) = back_off.try_start(&pod, &container, &exited) else {
                panic!("started at once");
            };
            assert_eq!(waiting.until, Instant::now() + waiting.wait);
            waits.push(go_seconds(waiting.wait));
            tokio::time::advance(waiting.wait).await;
            assert!(back_off.try_start(&pod, &container, &exited).is_ok());
        }
        assert_eq!(waits, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"]);

        tokio::time::advance(Duration::from_secs(601)).await;
        assert!(back_off.try_start(&pod, &container, &exit()).is_ok());
        let Err(waiting) = back_off.try_start(&pod, &container, &exit()) else {
            panic!("started at once");
        };
        assert_eq!(waiting.wait, Duration::from_secs(10));

        let changed = Container {
            image: Some("other".to_owned()),
            ..Default::default()
        };
        assert!(back_off.try_start(&pod, &changed, &exit()).is_ok());
        back_off.forget(&pod.uid());
        assert!(back_off.entries.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_goes_on_where_an_agent_before_this_one_has_ended() {
        let clock = Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap());
        let seconds = Duration::from_secs;
        let new = || CrashLoopBackOff::new(seconds(10), seconds(300), clock);
        let (pod, container) = (Pod::default(), Container::default());
        let exit = |id: &'static str| {
            let mut status = ContainerStatus::new(ContainerId::new("fake", id), "c", ContainerState::Exited);
            status.finished_at = Some(clock.now());
            status
        };
        let before = new();
        assert!(before.try_start(&pod, &container, &exit("1")).is_ok());
        let ended = exit("2");
        let until = Instant::now() + seconds(10);
        assert!(before.try_start(&pod, &container, &ended).is_err());
        tokio::time::advance(seconds(4)).await;

        let after = new();
        after.restore(&pod.uid(), &before.of_pod(&pod.uid()));
        let waiting = after.try_start(&pod, &container, &ended).unwrap_err();
        assert_eq!((waiting.wait, waiting.until), (seconds(10), until));
        assert_eq!(after.of_pod(&pod.uid()), before.of_pod(&pod.uid()));
        tokio::time::advance(seconds(6)).await;
        assert!(after.try_start(&pod, &container, &ended).is_ok());
        assert_eq!(
            after.try_start(&pod, &container, &exit("3")).unwrap_err().wait,
            seconds(20)
        );
    }
}
