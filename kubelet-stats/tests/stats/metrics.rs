//! The metrics as text, compared with the answers of a real kubelet.

use std::time::Duration;

use kubelet_core::stats::Summary;
use kubelet_stats::metrics::{cadvisor_text, resource_text};

use crate::recorded::{NOW, Recording};

/// The page cache of the pod that writes files shrank by at most this between the kubelet's reading and the recording.
const SHRUNK: f64 = 100.0 * 1024.0;

#[tokio::test]
async fn cadvisor_metrics_are_those_of_the_kubelet() {
    let recording = Recording::load();
    let host = recording.host();
    let collector = host.collector();
    let snapshot = collector.snapshot(Duration::ZERO).await.unwrap();
    let with_psi = collector.config().cgroups.has_psi();
    let text = String::from_utf8(cadvisor_text(&snapshot, with_psi, NOW)).unwrap();

    let recorded = lines(recording.answer("/metrics/cadvisor"));
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
    let recording = Recording::load();
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
