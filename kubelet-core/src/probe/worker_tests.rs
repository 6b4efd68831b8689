use std::cell::RefCell;

use serde_json::{Value, json};

use super::*;

/// Keeps results, and what was set in its order.
#[derive(Default)]
struct Sink {
    results: ProbeResultCache,
    set: RefCell<Vec<ProbeResult>>,
}

impl ResultSink for Sink {
    fn set(&self, kind: ProbeKind, _: &Pod, container: &ContainerId, result: ProbeResult) {
        self.results.set(kind, container, result);
        self.set.borrow_mut().push(result);
    }
    fn results(&self) -> &ProbeResultCache {
        &self.results
    }
}

const STARTED: &str = "2026-01-01T00:00:00Z";

fn pod(edit: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let probe = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 5, "failureThreshold": 3, "successThreshold": 2});
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", "livenessProbe": probe, "readinessProbe": probe, "startupProbe": probe}]},
    });
    edit(&mut pod);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn worker(kind: ProbeKind, pod: &Arc<Pod>) -> Worker {
    let (place, _) = Place::all(pod).next().unwrap();
    Worker::new(kind, pod.clone(), place)
}

fn status(edit: impl FnOnce(&mut Value)) -> ApiPodStatus {
    let mut status = json!({"phase": "Running", "containerStatuses": [{
        "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "started": true,
        "containerID": "fake://1", "state": {"running": {"startedAt": STARTED}},
    }]});
    edit(&mut status);
    serde_json::from_value(status).unwrap()
}

/// So many seconds after the container started, of an agent that is a minute older.
fn after(seconds: i64) -> Times {
    let started: Timestamp = STARTED.parse().unwrap();
    Times {
        now: started + SignedDuration::from_secs(seconds),
        agent_started: started - SignedDuration::from_secs(60),
    }
}

fn id(text: &str) -> ContainerId {
    text.parse().unwrap()
}

use Look::{End, Probe as Measure, Wait};
use ProbeKind::{Liveness, Readiness, Startup};
use ProbeResult::{Failure, Success, Unknown};

#[test]
fn what_a_look_leads_to() {
    type Edit = fn(&mut Value);
    let same: Edit = |_| {};
    let not_started: Edit = |s| s["containerStatuses"][0]["started"] = json!(false);
    let waiting: Edit = |s| s["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "x"}});
    let ended: Edit = |s| s["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
    let unmade: Edit = |s| {
        s["containerStatuses"][0]["containerID"] = json!("");
        s["containerStatuses"][0]["state"] = json!({"waiting": {}});
    };
    let restarting_all: Edit = |s| {
        s["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
        s["conditions"] = json!([{"type": "AllContainersRestarting", "status": "True"}]);
    };
    let never: Edit = |p| p["spec"]["restartPolicy"] = json!("Never");
    let on_failure: Edit = |p| p["spec"]["restartPolicy"] = json!("OnFailure");
    let own_always: Edit = |p| {
        p["spec"]["restartPolicy"] = json!("Never");
        p["spec"]["containers"][0]["restartPolicy"] = json!("Always");
    };
    let rules: Edit = |p| {
        p["spec"]["restartPolicy"] = json!("Never");
        p["spec"]["containers"][0]["restartPolicy"] = json!("Never");
        p["spec"]["containers"][0]["restartPolicyRules"] =
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    };
    let rules_of_another: Edit = |p| {
        p["spec"]["restartPolicy"] = json!("Never");
        p["spec"]["initContainers"] = json!([{"name": "i", "restartPolicy": "Never", "restartPolicyRules":
            [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]}]);
    };
    let ended_with_another: Edit = |s| {
        s["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
        s["initContainerStatuses"] = json!([{"name": "i", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 7}}}]);
    };
    let deleting: Edit = |p| p["metadata"]["deletionTimestamp"] = json!(STARTED);
    let sidecar: Edit = |p| {
        p["spec"]["restartPolicy"] = json!("Never");
        let mut container = p["spec"]["containers"][0].take();
        container["restartPolicy"] = json!("Always");
        p["spec"]["containers"] = json!([]);
        p["spec"]["initContainers"] = json!([container]);
    };
    let ended_sidecar: Edit = |s| {
        s["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 0}});
        s["initContainerStatuses"] = s["containerStatuses"].take();
    };
    let failed: Edit = |s| s["phase"] = json!("Failed");
    let succeeded: Edit = |s| s["phase"] = json!("Succeeded");
    let empty: Edit = |s| s["containerStatuses"] = json!([]);
    // kind, pod, status, seconds since the start → what is done, the result then
    type Row = (ProbeKind, Edit, Edit, i64, Look, Option<ProbeResult>);
    let table: &[Row] = &[
        (Liveness, same, same, 60, Measure, Some(Success)),
        (Readiness, same, same, 60, Measure, Some(Failure)),
        (Startup, same, not_started, 60, Measure, Some(Unknown)),
        // The startup probe goes first, and only then.
        (Liveness, same, not_started, 60, Wait, Some(Success)),
        (Readiness, same, not_started, 60, Wait, Some(Failure)),
        (Startup, same, same, 60, Wait, Some(Unknown)),
        // The initial delay, to the second.
        (Liveness, same, same, 4, Wait, Some(Success)),
        (Readiness, same, same, 0, Wait, Some(Failure)),
        (Startup, same, not_started, 4, Wait, Some(Unknown)),
        (Liveness, same, same, 5, Measure, Some(Success)),
        // Nothing to be probed, yet or any more.
        (Liveness, same, unmade, 60, Wait, None),
        (Liveness, same, empty, 60, Wait, None),
        (Liveness, same, failed, 60, End, None),
        (Readiness, same, succeeded, 60, End, None),
        (Liveness, same, waiting, 60, Wait, Some(Failure)),
        (Readiness, same, waiting, 60, Wait, Some(Failure)),
        // It has ended: does it come back?
        (Liveness, same, ended, 60, Wait, Some(Failure)),
        (Startup, same, ended, 60, Wait, Some(Failure)),
        (Readiness, on_failure, ended, 60, Wait, Some(Failure)),
        (Readiness, never, ended, 60, End, Some(Failure)),
        (Readiness, own_always, ended, 60, Wait, Some(Failure)),
        (Readiness, rules, ended, 60, Wait, Some(Failure)),
        (Readiness, never, restarting_all, 60, Wait, Some(Failure)),
        (
            Readiness,
            rules_of_another,
            ended_with_another,
            60,
            Wait,
            Some(Failure),
        ),
        (Readiness, rules_of_another, ended, 60, End, Some(Failure)),
        (Liveness, sidecar, ended_sidecar, 60, Wait, Some(Failure)),
        // A pod that is deleted ends quietly; traffic still is told whether it can go there.
        (Liveness, deleting, same, 60, End, Some(Success)),
        (Startup, deleting, not_started, 60, End, Some(Success)),
        (Readiness, deleting, same, 60, Measure, Some(Failure)),
    ];
    for (row, (kind, of_pod, of_status, seconds, expected, result)) in table.iter().enumerate() {
        let (pod, sink) = (pod(of_pod), Sink::default());
        let mut worker = worker(*kind, &pod);
        let look = worker.look(Some(&status(of_status)), after(*seconds), &sink);
        let found = sink.results.get(*kind, &id("fake://1"));
        assert_eq!((look, found), (*expected, *result), "row {row}, {kind}");
    }
    let (pod, sink) = (pod(same), Sink::default());
    assert_eq!(
        worker(Liveness, &pod).look(None, after(60), &sink),
        Wait,
        "nothing was reported"
    );
}

#[test]
fn results_count_when_measured_often_enough_in_a_row() {
    // kind, measured in a row → the result after each, and whether it is still measured
    type Step = (ProbeResult, ProbeResult, Look);
    let table: &[(ProbeKind, &[Step])] = &[
        (
            Readiness,
            &[
                (Success, Failure, Measure),
                (Success, Success, Measure),
                (Failure, Success, Measure),
                (Failure, Success, Measure),
                (Success, Success, Measure),
                (Failure, Success, Measure),
                (Failure, Success, Measure),
                (Failure, Failure, Measure),
                (Failure, Failure, Measure),
                (Success, Failure, Measure),
                (Success, Success, Measure),
            ],
        ),
        (
            Liveness,
            &[
                (Failure, Success, Measure),
                (Failure, Success, Measure),
                (Success, Success, Measure),
                (Failure, Success, Measure),
                (Failure, Success, Measure),
                (Failure, Failure, Wait),
            ],
        ),
        (Startup, &[(Success, Unknown, Measure), (Success, Success, Wait)]),
        (
            Startup,
            &[
                (Failure, Unknown, Measure),
                (Success, Unknown, Measure),
                (Failure, Unknown, Measure),
                (Failure, Unknown, Measure),
                (Failure, Failure, Wait),
            ],
        ),
    ];
    for (kind, steps) in table {
        let (pod, sink) = (pod(|_| {}), Sink::default());
        let status = status(|s| s["containerStatuses"][0]["started"] = json!(*kind != Startup));
        let mut worker = worker(*kind, &pod);
        assert_eq!(worker.look(Some(&status), after(60), &sink), Measure);
        for (step, (measured, result, next)) in steps.iter().enumerate() {
            worker.judge(*measured, &sink);
            let found = sink.results.get(*kind, &id("fake://1"));
            let look = worker.look(Some(&status), after(60), &sink);
            assert_eq!((found, look), (Some(*result), *next), "{kind}, step {step}");
        }
    }
}

#[test]
fn thresholds_that_nobody_set_are_the_apis() {
    let pod = pod(|p| p["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {}}));
    let (sink, mut worker) = (Sink::default(), worker(Readiness, &pod));
    assert_eq!(worker.look(Some(&status(|_| {})), after(0), &sink), Measure);
    for measured in [Success, Failure, Failure, Failure] {
        worker.judge(measured, &sink);
    }
    assert_eq!(*sink.set.borrow(), [Failure, Success, Failure]);
}

#[test]
fn another_container_is_measured_anew() {
    let second = |s: &mut Value| s["containerStatuses"][0]["containerID"] = json!("fake://2");
    for (kind, measured) in [(Liveness, Failure), (Startup, Failure), (Startup, Success)] {
        let started = |s: &mut Value| s["containerStatuses"][0]["started"] = json!(kind != Startup);
        let (pod, sink) = (pod(|_| {}), Sink::default());
        let mut worker = worker(kind, &pod);
        assert_eq!(worker.look(Some(&status(started)), after(60), &sink), Measure);
        for _ in 0..3 {
            worker.judge(measured, &sink);
        }
        assert_eq!(
            worker.look(Some(&status(started)), after(60), &sink),
            Wait,
            "on hold"
        );
        let other = status(|s| {
            started(s);
            second(s);
        });
        assert_eq!(worker.look(Some(&other), after(60), &sink), Measure);
        assert_eq!(sink.results.get(kind, &id("fake://1")), None);
        // The count of what was measured began anew with the hold.
        worker.judge(measured, &sink);
        assert_ne!(sink.results.get(kind, &id("fake://2")), Some(Failure), "{kind}");
    }
}

#[test]
fn who_ran_before_the_agent_keeps_its_readiness_until_measured() {
    // kind, sidecar, agent started so long after the container → the result before the first measurement
    let table = [
        (Readiness, false, 9, Some(Failure)),
        (Readiness, false, 11, None),
        (Liveness, false, 11, None),
        (Startup, false, 11, None),
        (Readiness, true, 11, None),
        (Liveness, true, 11, None),
        (Startup, true, 11, Some(Success)),
        (Startup, true, 9, Some(Unknown)),
    ];
    for (kind, sidecar, seconds, result) in table {
        let pod = pod(|p| {
            if sidecar {
                let mut container = p["spec"]["containers"][0].take();
                container["restartPolicy"] = json!("Always");
                p["spec"]["containers"] = json!([]);
                p["spec"]["initContainers"] = json!([container]);
            }
        });
        let sink = Sink::default();
        let mut times = after(60);
        times.agent_started = STARTED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds);
        worker(kind, &pod).look(Some(&status(|_| {})), times, &sink);
        let found = sink.results.get(kind, &id("fake://1"));
        assert_eq!(found, result, "{kind} {sidecar} {seconds}");
    }
}
