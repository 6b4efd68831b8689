//! What of a log is wanted.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What of a container's log is wanted: the fields of the API's `PodLogOptions`, with its meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLogOptions {
    /// Go on with what the container writes, until it has ended.
    pub follow: bool,
    /// The instance before the present one; who knows the pod's status heeds it: [`container_of_logs`](super::container_of_logs).
    pub previous: bool,
    /// Nothing older than so many seconds.
    pub since_seconds: Option<i64>,
    /// Nothing older than this.
    pub since_time: Option<Timestamp>,
    /// Put the time before each line.
    pub timestamps: bool,
    /// So many lines of the end; with `follow`, to begin with. As in the kubelet the lines of the file are counted: one
    /// that the runtime wrote in parts counts for each.
    pub tail_lines: Option<i64>,
    /// End after so many bytes, times included.
    pub limit_bytes: Option<i64>,
    /// Of which stream.
    pub stream: LogStreams,
    /// Begin with what was rotated away and is still there. The kubelet never reads that, hence off by default.
    pub rotated: bool,
}

/// Which of a container's streams are wanted.
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
    /// What is wrong with them, in the API's words; nothing as a rule (`ValidatePodLogOptions`).
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

    /// Since when; the later one of both.
    pub(super) fn since(&self, now: Timestamp) -> Option<Timestamp> {
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
