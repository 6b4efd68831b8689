//! The metrics as text, compared with the answers of a real kubelet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use kubelet_core::stats::{RuntimeList, RuntimeUsages, StatsPods, Summary};
use kubelet_stats::metrics::{cadvisor_text, resource_text};
use kubelet_stats::reading::FileSystem;
use kubelet_stats::source::{FileSystems, FileUsage};
use kubelet_stats::{Collector, Error, Result};

use crate::recorded::Recorded;

/// When the answers were written.
const NOW: Timestamp = Timestamp::constant(1_795_412_521, 0);
/// What was not recorded, but is in the answers. Process 1 was in another network namespace than the kubelet.
const NOT_RECORDED: [(&str, &str); 4] = [
    (
        "/proc/1/net/dev",
        "Inter-| Receive\n face |bytes\neth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
         ifb1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nlo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    ),
    ("/proc/sys/kernel/osrelease", "6.18.44-fc-v657\n"),
    (
        "/etc/os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
    ),
    (
        "/sys/class/dmi/id/product_uuid",
        "00000000-0000-0000-0000-000000000003\n",
    ),
];

/// The page cache of the pod that writes files shrank by at most this between the kubelet's reading and the recording.
const SHRUNK: f64 = 100.0 * 1024.0;

#[tokio::test]
async fn cadvisor_metrics_are_those_of_the_kubelet() {
    let recorded_host = Recorded::v1();
    for (path, text) in NOT_RECORDED {
        recorded_host.tree.write(path, text);
    }
    let mut config = recorded_host.tree.collector(&["/kubepods"]).config().clone();
    config.file_systems = Arc::new(NoFileSystems);
    config.pods = Some(Arc::new(Pods::of(&recorded_host.runtime().list().await.unwrap())));
    let collector = Collector::new(config);
    let snapshot = collector.snapshot(Duration::ZERO).await.unwrap();
    let with_psi = collector.config().cgroups.has_psi();
    let text = String::from_utf8(cadvisor_text(&snapshot, with_psi, NOW)).unwrap();

    let recorded = lines(recorded_host.answer("/metrics/cadvisor"));
    let found = lines(&text);
    for (found, recorded) in found.iter().zip(&recorded) {
        assert_eq!(found.series, recorded.series);
        let moved =
            recorded.series.contains("id=\"/\"") || recorded.series.starts_with("container_start_time");
        if found.value == recorded.value || moved {
            continue;
        }
        let shrunk = recorded.number() - found.number();
        let cache = recorded.series.starts_with("container_memory_") && (0.0..=SHRUNK).contains(&shrunk);
        assert!(
            cache,
            "{}: {}, recorded {}",
            found.series, found.value, recorded.value
        );
    }
    assert_eq!(found.len(), recorded.len());
    let differ = found
        .iter()
        .zip(&recorded)
        .filter(|(found, recorded)| found.value != recorded.value);
    assert!(differ.count() * 10 < found.len());
}

#[test]
fn resource_metrics_are_those_of_the_kubelet() {
    let recording = Recorded::v1();
    let summary = recording.answer("/stats/summary?only_cpu_and_memory=true");
    let summary: Summary = serde_json::from_str(summary).unwrap();
    let text = String::from_utf8(resource_text(&summary)).unwrap();
    let recorded = lines(recording.answer("/metrics/resource"));
    let found = lines(&text);
    for (found, recorded) in found.iter().zip(&recorded) {
        assert_eq!(found.series, recorded.series);
        // The summary as JSON has whole seconds.
        if found.series.starts_with("container_start_time") {
            assert_eq!(found.number(), recorded.number().floor());
        } else {
            assert_eq!(found.value, recorded.value, "{}", found.series);
        }
        assert_eq!(
            found.milliseconds.map(|time| time / 1000),
            recorded.milliseconds.map(|time| time / 1000),
            "{}",
            found.series
        );
    }
    assert_eq!(found.len(), recorded.len());
}

/// A line: a series with its value and time, or a comment.
struct Line<'a> {
    series: &'a str,
    value: &'a str,
    milliseconds: Option<i64>,
}

impl Line<'_> {
    fn number(&self) -> f64 {
        self.value.parse().unwrap()
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let line = |line| match line {
        comment if str::starts_with(comment, '#') => Line {
            series: comment,
            value: "",
            milliseconds: None,
        },
        line => {
            // Labels may contain spaces.
            let end = line
                .rfind('}')
                .map_or_else(|| line.find(' ').unwrap(), |at| at + 1);
            let mut numbers = line[end..].split_ascii_whitespace();
            Line {
                series: &line[..end],
                value: numbers.next().unwrap(),
                milliseconds: numbers.next().map(|time| time.parse().unwrap()),
            }
        }
    };
    text.lines().map(line).collect()
}

/// The recorded pods.
struct Pods(BTreeMap<PodUid, Arc<Pod>>);

impl Pods {
    fn of(list: &RuntimeList) -> Self {
        let pods = list.sandboxes.iter().map(|sandbox| {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some(sandbox.namespace.clone());
            pod.metadata.name = Some(sandbox.pod.clone());
            pod.metadata.uid = Some(sandbox.uid.clone());
            (PodUid::new(&sandbox.uid), Arc::new(pod))
        });
        Self(pods.collect())
    }
}

impl StatsPods for Pods {
    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.0.get(uid).cloned()
    }
}

/// The recorded kubelet saw no file system of its host.
struct NoFileSystems;

#[async_trait]
impl FileSystems for NoFileSystems {
    async fn of_path(&self, path: &Path) -> Result<FileSystem> {
        Err(Error::NoFileSystem {
            path: path.to_owned(),
        })
    }

    async fn all(&self) -> Arc<[FileSystem]> {
        Arc::default()
    }

    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>> {
        vec![None; paths.len()]
    }
}
