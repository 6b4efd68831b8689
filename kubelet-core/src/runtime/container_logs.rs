//! The logs of containers, for a log request.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::streaming::StreamError;

/// Reads the logs of containers (`GetContainerLogs` of the kubelet's `container.Runtime`).
#[async_trait]
pub trait ContainerLogs: Send + Sync {
    /// The log of a container of the pod, in pieces of any size, already filtered and formatted. `status` is the pod's
    /// present API status: it decides which instance is read.
    ///
    /// The stream ends with the log. A log that is followed ends when its container has ended.
    ///
    /// # Errors
    ///
    /// If the container has no log: nothing was read yet, and the client receives the message. An error inside the stream
    /// ends it.
    ///
    /// # Cancel safety
    ///
    /// The call and the stream may be dropped at any time.
    async fn container_logs(
        &self,
        pod: &Pod,
        status: &PodStatus,
        container: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError>;
}

/// The options of a log request: the fields of the API's `PodLogOptions`, with the same meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLogOptions {
    /// Whether to follow the log until the container has ended.
    pub follow: bool,
    /// Whether to read the previous instance's log.
    pub previous: bool,
    /// Only entries of the last seconds.
    pub since_seconds: Option<i64>,
    /// Only entries since this time.
    pub since_time: Option<Timestamp>,
    /// Whether to print the time before each line.
    pub timestamps: bool,
    /// How many lines of the end to read; with `follow`, to begin with. As in the kubelet, this counts lines of the
    /// file: a line that the runtime wrote in parts counts once per part.
    pub tail_lines: Option<i64>,
    /// End after this many bytes, including times.
    pub limit_bytes: Option<i64>,
    /// The stream to read.
    pub stream: LogStreams,
    /// Whether to begin with the rotated files that still exist. Off by default, because the kubelet never reads them.
    pub rotated: bool,
}

/// The streams of a container to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStreams {
    /// `All`
    #[default]
    All,
    /// `Stdout`
    Stdout,
    /// `Stderr`
    Stderr,
}

impl PodLogOptions {
    /// The problems of the options, in the API's words; empty if they are valid (`ValidatePodLogOptions`).
    pub fn problems(&self) -> Vec<String> {
        const POSITIVE: &str = "must be greater than 0";
        let mut problems = Vec::new();
        let mut must = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let invalid = |field: &str, value: Option<i64>, rule: &str| {
            format!("{field}: Invalid value: {}: {rule}", value.unwrap_or_default())
        };
        must(
            self.tail_lines.is_none_or(|lines| lines >= 0),
            invalid("tailLines", self.tail_lines, "must be greater than or equal to 0"),
        );
        must(
            self.limit_bytes.is_none_or(|bytes| bytes >= 1),
            invalid("limitBytes", self.limit_bytes, POSITIVE),
        );
        if self.since_time.is_some() {
            must(
                self.since_seconds.is_none(),
                "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified".to_owned(),
            );
        } else {
            must(
                self.since_seconds.is_none_or(|seconds| seconds >= 1),
                invalid("sinceSeconds", self.since_seconds, POSITIVE),
            );
        }
        must(
            self.stream == LogStreams::All || self.tail_lines.is_none(),
            "Forbidden: `tailLines` and specific `stream` are mutually exclusive for now".to_owned(),
        );
        problems
    }

    /// The time from which entries are read: the later one of both start times.
    pub fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let seconds = self.since_seconds.map(SignedDuration::from_secs);
        let ago = seconds.map(|ago| now.checked_sub(ago).unwrap_or(Timestamp::MIN));
        ago.max(self.since_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_refuses() {
        let options = |change: fn(&mut PodLogOptions)| {
            let mut options = PodLogOptions::default();
            change(&mut options);
            options.problems().join("; ")
        };
        assert_eq!(options(|_| {}), "");
        assert_eq!(
            options(|o| (o.tail_lines, o.limit_bytes) = (Some(-1), Some(0))),
            "tailLines: Invalid value: -1: must be greater than or equal to 0; \
             limitBytes: Invalid value: 0: must be greater than 0"
        );
        assert_eq!(
            options(|o| o.since_seconds = Some(0)),
            "sinceSeconds: Invalid value: 0: must be greater than 0"
        );
        assert_eq!(
            options(|o| (o.since_seconds, o.since_time) = (Some(0), Some(Timestamp::UNIX_EPOCH))),
            "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        );
        assert_eq!(
            options(|o| (o.stream, o.tail_lines) = (LogStreams::Stderr, Some(1))),
            "Forbidden: `tailLines` and specific `stream` are mutually exclusive for now"
        );
    }

    #[test]
    fn the_later_one_counts() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2024-01-01T00:01:00Z");
        let since = |since_seconds, since_time: Option<&str>| {
            let since_time = since_time.map(at);
            PodLogOptions {
                since_seconds,
                since_time,
                ..Default::default()
            }
            .since(now)
        };
        assert_eq!(since(None, None), None);
        assert_eq!(since(Some(60), None), Some(at("2024-01-01T00:00:00Z")));
        assert_eq!(
            since(Some(60), Some("2024-01-01T00:00:30Z")),
            Some(at("2024-01-01T00:00:30Z"))
        );
        assert_eq!(
            since(Some(60), Some("2023-01-01T00:00:30Z")),
            Some(at("2024-01-01T00:00:00Z"))
        );
        assert_eq!(since(Some(i64::MAX), None), Some(Timestamp::MIN));
    }
}
