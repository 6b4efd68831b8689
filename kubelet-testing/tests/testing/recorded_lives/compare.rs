//! The differences between a replayed life and the recorded one.

use std::collections::BTreeSet;
use std::fmt::Debug;

use kubelet_core::EventType;

use super::replay::{Life, Lived};

/// The limit for a burst of a pod's events (`spamBurst`): the recording has the events that reached the API server.
const SPAM_BURST: usize = 25;

/// The events of a probe whose container ended meanwhile: these depend on timing.
const CUT_SHORT: &str = "probe errored and resulted in unknown state";

/// Events of retries. With any of these, the number of events depends on the jitter of the retries.
const OF_TRIES: [&str; 6] = [
    "BackOff",
    "Failed",
    "FailedCreatePodSandBox",
    "FailedMount",
    "InspectFailed",
    "Unhealthy",
];

pub(crate) fn differences(life: &Life, lived: &Lived) -> Vec<String> {
    let mut differences = Vec::new();
    let recorded = life.calls.iter().map(|it| {
        let line = line(
            &it.call,
            it.container.as_deref(),
            it.timeout.unwrap_or_default(),
            &it.cmd,
        );
        (line, it.error.is_some())
    });
    let ours = lived.calls.iter().map(|it| {
        (
            line(it.call, it.container.as_deref(), it.timeout, &it.cmd),
            it.failed,
        )
    });
    let (ours, recorded) = (Calls::of(ours), Calls::of(recorded));
    differ("calls", ours.order, recorded.order, &mut differences);
    differ("removals", ours.removals, recorded.removals, &mut differences);
    differ(
        "commands of probes",
        ours.probes,
        recorded.probes,
        &mut differences,
    );

    let ours = lived.events.iter().filter(|it| !it.message.contains(CUT_SHORT));
    // With more events than that, concurrent ones compete for the last place.
    let compared = match ours.clone().count() > SPAM_BURST {
        true => SPAM_BURST - 1,
        false => SPAM_BURST,
    };
    let ours = ours.take(compared).map(|it| {
        let kind = match it.event_type {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        (
            (
                kind,
                it.reason.as_str(),
                normal(&it.message),
                it.field_path.as_deref(),
            ),
            1,
        )
    });
    let recorded = life.events.iter().take(compared).map(|it| {
        let event = (
            it.event_type.as_str(),
            it.reason.as_str(),
            normal(&it.message),
            it.field.as_deref(),
        );
        (event, it.count)
    });
    let tries = life
        .events
        .iter()
        .any(|it| OF_TRIES.contains(&it.reason.as_str()));
    differ(
        "events",
        counted(ours, tries),
        counted(recorded, tries),
        &mut differences,
    );
    differences
}

/// The calls to compare.
struct Calls {
    /// All others in order; concurrent stops are ordered by name, and a failed one that was retried counts once.
    order: Vec<String>,
    /// The removals in order. They run concurrently with everything else, and two parts of the agent do them.
    removals: Vec<String>,
    /// Each one once.
    probes: BTreeSet<String>,
}

impl Calls {
    fn of(calls: impl Iterator<Item = (String, bool)>) -> Self {
        let (mut order, mut removals, mut probes) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut failed = false;
        for (line, fails) in calls {
            if line.starts_with("RemoveContainer") {
                if !removals.contains(&line) {
                    removals.push(line);
                }
            } else if line.starts_with("ExecSync") && line.contains("timeout=") {
                probes.insert(line);
            } else {
                if !(failed && order.last() == Some(&line)) {
                    order.push(line);
                }
                failed = fails;
            }
        }
        let is_stop = |line: &String| line.starts_with("StopContainer");
        for stops in order.chunk_by_mut(|one, other| is_stop(one) && is_stop(other)) {
            stops.sort();
        }
        Self {
            order,
            removals,
            probes,
        }
    }
}

fn line(call: &str, container: Option<&str>, timeout: i64, cmd: &[String]) -> String {
    let mut line = call.to_owned();
    if let Some(container) = container {
        line = format!("{line} {container}");
    }
    if timeout != 0 {
        line = format!("{line} timeout={timeout}");
    }
    if !cmd.is_empty() {
        line = format!("{line} {cmd:?}");
    }
    line
}

type Told<'a> = (&'a str, &'a str, String, Option<&'a str>);

/// Events in the order of their first occurrence, with counts; concurrent stops are ordered as in calls.
fn counted<'a>(events: impl Iterator<Item = (Told<'a>, usize)>, tries: bool) -> Vec<String> {
    let mut counted: Vec<(Told<'_>, usize)> = Vec::new();
    for (event, count) in events {
        match counted.iter_mut().find(|(told, _)| *told == event) {
            Some((_, counted)) => *counted += count,
            None => counted.push((event, count)),
        }
    }
    let is_stop = |(told, _): &(Told<'_>, usize)| told.1 == "Killing";
    for stops in counted.chunk_by_mut(|one, other| is_stop(one) && is_stop(other)) {
        stops.sort();
    }
    let line = |((kind, reason, message, field), count): (Told<'_>, usize)| {
        let count = if tries {
            String::new()
        } else {
            format!("{count} x ")
        };
        format!("{count}{kind} {reason} {}: {message}", field.unwrap_or("-"))
    };
    counted.into_iter().map(line).collect()
}

/// Without values of this run: ids of containers, addresses.
fn normal(message: &str) -> String {
    let words = message.split(' ').map(|word| {
        let bare = word.trim_matches(|it: char| !it.is_ascii_alphanumeric());
        let is_id = bare.len() == 64 && bare.bytes().all(|it| it.is_ascii_hexdigit());
        let is_address = word.trim_end_matches(':').parse::<std::net::SocketAddr>().is_ok();
        match (is_id, is_address) {
            (true, _) => "ID".to_owned(),
            (_, true) => "ADDRESS:".to_owned(),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn differ<T: PartialEq + Debug>(what: &str, ours: T, recorded: T, differences: &mut Vec<String>) {
    if ours != recorded {
        differences.push(format!("{what}\n  ours     {ours:#?}\n  recorded {recorded:#?}"));
    }
}
