//! What is kept of a pod, and its form on disk.
//!
//! Instants are tokio's in memory and wall-clock time on disk. The wall clock may have been set before a record is
//! read. A past time that now lies in the future counts as now, so that no wait becomes longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::allocation::Allocation;
use crate::probe::ContainerProbe;
use crate::runtime::{ActuatedResources, BackOff, ContainerStart, SyncFailure};
use crate::{Clock, ContainerId, PodUid, ProbeKind, ProbeResult};

/// The version that is written, and the only one that can be read. Unknown fields are ignored.
const VERSION: u64 = 1;

/// All that is kept of one pod across restarts of the agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    /// The status reported last.
    pub(crate) status: Option<Arc<ApiPodStatus>>,
    /// The last start of each container that must not run twice.
    pub(crate) starts: Vec<ContainerStart>,
    /// The results of its probes.
    pub(crate) probes: Vec<ContainerProbe>,
    /// By container: how its last start failed.
    pub(crate) start_failures: Option<Arc<BTreeMap<String, SyncFailure>>>,
    /// The back-offs of its runtime.
    pub(crate) back_offs: Vec<BackOff>,
    /// What it was allocated.
    pub(crate) allocation: Option<Arc<Allocation>>,
    /// The resources that its containers were given last.
    pub(crate) actuated: Vec<ActuatedResources>,
}

impl Record {
    pub(super) fn to_json(&self, uid: &PodUid, clock: &Clock) -> Result<Vec<u8>, serde_json::Error> {
        let now = Now::of(clock);
        let start_failures = self.start_failures.iter().flat_map(|failures| failures.iter());
        serde_json::to_vec(&OnDisk {
            version: VERSION,
            uid: uid.as_str().to_owned(),
            status: self.status.clone(),
            starts: self.starts.iter().map(StartOnDisk::from).collect(),
            probes: self.probes.iter().map(ProbeOnDisk::from).collect(),
            start_failures: start_failures
                .map(|(name, failure)| (name.clone(), FailureOnDisk::of(failure, &now)))
                .collect(),
            back_offs: self
                .back_offs
                .iter()
                .map(|wait| BackOffOnDisk::of(wait, &now))
                .collect(),
            allocation: self.allocation.clone(),
            actuated: self.actuated.clone(),
        })
    }

    /// Reads a record of this pod.
    pub(super) fn from_json(json: &[u8], uid: &PodUid, clock: &Clock) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            version: u64,
            uid: String,
        }
        let problem = |error: serde_json::Error| error.to_string();
        let head: Head = serde_json::from_slice(json).map_err(problem)?;
        if head.version != VERSION {
            return Err(format!(
                "unsupported version {}, expected {VERSION}",
                head.version
            ));
        }
        if head.uid != uid.as_str() {
            return Err(format!("it belongs to pod {:?}", head.uid));
        }
        let read: OnDisk = serde_json::from_slice(json).map_err(problem)?;
        let now = Now::of(clock);
        let start_failures: BTreeMap<_, _> = read
            .start_failures
            .into_iter()
            .map(|(name, failure)| (name, failure.read(&now)))
            .collect();
        Ok(Self {
            status: read.status,
            starts: read.starts.into_iter().filter_map(StartOnDisk::read).collect(),
            probes: read.probes.into_iter().filter_map(ProbeOnDisk::read).collect(),
            start_failures: (!start_failures.is_empty()).then(|| Arc::new(start_failures)),
            back_offs: read.back_offs.into_iter().map(|wait| wait.read(&now)).collect(),
            allocation: read.allocation,
            actuated: read.actuated,
        })
    }
}

/// Both clocks at one moment.
struct Now {
    wall: Timestamp,
    instant: Instant,
}

impl Now {
    fn of(clock: &Clock) -> Self {
        Self {
            wall: clock.now(),
            instant: Instant::now(),
        }
    }

    fn to_wall(&self, at: Instant) -> Timestamp {
        let wall = match at.checked_duration_since(self.instant) {
            Some(left) => self.wall.checked_add(left),
            None => self.wall.checked_sub(self.instant.duration_since(at)),
        };
        wall.unwrap_or(self.wall)
    }

    /// A time in the past. One in the future, because the clock was set back, counts as now.
    fn passed(&self, wall: Timestamp) -> Instant {
        let age = Duration::try_from(self.wall.duration_since(wall)).unwrap_or_default();
        self.instant.checked_sub(age).unwrap_or(self.instant)
    }

    /// A time in the future, at most `longest` from now.
    fn to_come(&self, wall: Timestamp, longest: Duration) -> Instant {
        let left = Duration::try_from(wall.duration_since(self.wall)).unwrap_or_default();
        self.instant + left.min(longest)
    }
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    version: u64,
    uid: String,
    #[serde(with = "shared", skip_serializing_if = "Option::is_none", default)]
    status: Option<Arc<ApiPodStatus>>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    starts: Vec<StartOnDisk>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    probes: Vec<ProbeOnDisk>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    start_failures: BTreeMap<String, FailureOnDisk>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    back_offs: Vec<BackOffOnDisk>,
    #[serde(with = "shared", skip_serializing_if = "Option::is_none", default)]
    allocation: Option<Arc<Allocation>>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    actuated: Vec<ActuatedResources>,
}

/// Serde supports [`Arc`] through a feature; turning it on here would turn it on for all crates of a program.
mod shared {
    use super::{Arc, Deserialize, Serialize};

    pub(super) fn serialize<T: Serialize, S: serde::Serializer>(
        shared: &Option<Arc<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        shared.as_deref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::<T>::deserialize(deserializer)?.map(Arc::new))
    }
}

#[derive(Serialize, Deserialize)]
struct StartOnDisk {
    name: String,
    id: String,
    attempt: u32,
}

impl From<&ContainerStart> for StartOnDisk {
    fn from(start: &ContainerStart) -> Self {
        Self {
            name: start.name.clone(),
            id: start.id.to_string(),
            attempt: start.attempt,
        }
    }
}

impl StartOnDisk {
    fn read(self) -> Option<ContainerStart> {
        Some(ContainerStart {
            name: self.name,
            id: self.id.parse().ok()?,
            attempt: self.attempt,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct ProbeOnDisk {
    kind: String,
    name: String,
    id: String,
    result: String,
}

const RESULTS: [(ProbeResult, &str); 3] = [
    (ProbeResult::Success, "success"),
    (ProbeResult::Failure, "failure"),
    (ProbeResult::Unknown, "unknown"),
];

impl From<&ContainerProbe> for ProbeOnDisk {
    fn from(probe: &ContainerProbe) -> Self {
        let word = RESULTS.iter().find(|(result, _)| *result == probe.result);
        Self {
            kind: probe.kind.as_str().to_owned(),
            name: probe.name.clone(),
            id: probe.id.to_string(),
            result: word.map(|(_, word)| (*word).to_owned()).unwrap_or_default(),
        }
    }
}

impl ProbeOnDisk {
    fn read(self) -> Option<ContainerProbe> {
        let kind = ProbeKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == self.kind)?;
        let (result, _) = RESULTS.into_iter().find(|(_, word)| *word == self.result)?;
        Some(ContainerProbe {
            kind,
            name: self.name,
            id: self.id.parse::<ContainerId>().ok()?,
            result,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct FailureOnDisk {
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    back_off_until: Option<Timestamp>,
    /// The rest of the back-off when the record was written: an upper bound when it is read.
    #[serde(default)]
    left_ms: u64,
}

impl FailureOnDisk {
    fn of(failure: &SyncFailure, now: &Now) -> Self {
        let left = failure
            .back_off_until
            .map(|until| until.saturating_duration_since(now.instant));
        Self {
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            back_off_until: failure.back_off_until.map(|until| now.to_wall(until)),
            left_ms: millis(left.unwrap_or_default()),
        }
    }

    fn read(self, now: &Now) -> SyncFailure {
        let longest = Duration::from_millis(self.left_ms);
        SyncFailure {
            reason: self.reason,
            message: self.message,
            back_off_until: self.back_off_until.map(|until| now.to_come(until, longest)),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct BackOffOnDisk {
    key: String,
    wait_ms: u64,
    since: Timestamp,
    set_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    container: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    message: String,
}

impl BackOffOnDisk {
    fn of(wait: &BackOff, now: &Now) -> Self {
        Self {
            key: wait.key.clone(),
            wait_ms: millis(wait.wait),
            since: now.to_wall(wait.since),
            set_at: now.to_wall(wait.set_at),
            container: wait.container.as_ref().map(ToString::to_string),
            message: wait.message.clone(),
        }
    }

    fn read(self, now: &Now) -> BackOff {
        BackOff {
            key: self.key,
            wait: Duration::from_millis(self.wait_ms),
            since: now.passed(self.since),
            set_at: now.passed(self.set_at),
            container: self.container.and_then(|id| id.parse().ok()),
            message: self.message,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOON: Timestamp = Timestamp::constant(1_767_268_800, 0);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(now: Instant) -> Record {
        let id = || ContainerId::new("fake", "1");
        let failure = SyncFailure {
            reason: "CrashLoopBackOff".to_owned(),
            message: "back-off 40s".to_owned(),
            back_off_until: Some(now + seconds(30)),
        };
        Record {
            status: Some(Arc::default()),
            starts: vec![ContainerStart {
                name: "c".to_owned(),
                id: id(),
                attempt: 2,
            }],
            probes: vec![ContainerProbe {
                kind: ProbeKind::Readiness,
                name: "c".to_owned(),
                id: id(),
                result: ProbeResult::Success,
            }],
            start_failures: Some(Arc::new([("c".to_owned(), failure)].into())),
            back_offs: vec![BackOff {
                key: "c".to_owned(),
                wait: seconds(40),
                since: now - seconds(10),
                set_at: now - seconds(50),
                container: Some(id()),
                message: String::new(),
            }],
            allocation: serde_json::from_value::<Allocation>(json!({
                "pod": {"limits": {"memory": "1Gi"}},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}, {"name": "d"}],
            }))
            .map(Arc::new)
            .ok(),
            actuated: vec![ActuatedResources {
                container: "c".to_owned(),
                cpu_request: 1500,
                cpu_limit: 0,
                memory_request: 0,
                memory_limit: 1 << 30,
            }],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_is_read_and_waits_go_on_by_the_wall_clock() {
        let uid = PodUid::from("a");
        let written_at = Instant::now() + seconds(600);
        tokio::time::advance(seconds(600)).await;
        let json = record(written_at)
            .to_json(&uid, &Clock::starting_at(NOON))
            .unwrap();

        // Wall-clock seconds that have passed since, what is left of the waits, and their age.
        for (passed, left, age) in [
            (0, 30, 10),
            (10, 20, 20),
            (29, 1, 39),
            (3000, 0, 3010),
            (-3600, 30, 0),
        ] {
            let wall = NOON + k8s_openapi::jiff::SignedDuration::from_secs(passed);
            let read = Record::from_json(&json, &uid, &Clock::starting_at(wall)).unwrap();
            let now = Instant::now();
            let mut expected = record(now);
            let failures = Arc::get_mut(expected.start_failures.as_mut().unwrap()).unwrap();
            failures.get_mut("c").unwrap().back_off_until = Some(now + seconds(left));
            expected.back_offs[0].since = now - seconds(age);
            expected.back_offs[0].set_at = now - seconds(if age == 0 { 0 } else { age + 40 });
            assert_eq!(read, expected, "after {passed} s");
        }
    }

    #[test]
    fn what_another_version_wrote_or_is_of_another_pod_is_refused() {
        let uid = PodUid::from("a");
        let read = |json: &str| Record::from_json(json.as_bytes(), &uid, &Clock::system());
        assert!(read(r#"{"version": 1, "uid": "a"}"#).is_ok());
        assert!(read(r#"{"version": 1, "uid": "a", "later": [1], "status": {"phase": "Failed"}}"#).is_ok());
        for (json, problem) in [
            ("", "EOF"),
            ("[]", "invalid"),
            (r#"{"uid": "a"}"#, "version"),
            (
                r#"{"version": 2, "uid": "a", "starts": 7}"#,
                "unsupported version 2, expected 1",
            ),
            (r#"{"version": 1, "uid": "b"}"#, "it belongs to pod \"b\""),
            (r#"{"version": 1, "uid": "a", "status": {"phase": 7}}"#, "phase"),
            (r#"{"version": 1, "uid": "a", "starts": 7}"#, "starts"),
        ] {
            let error = read(json).unwrap_err();
            assert!(
                error.contains(problem) || error.contains("invalid type"),
                "{json}: {error}"
            );
        }
    }
}
