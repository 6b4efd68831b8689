//! Preemption: frees resources for critical pods (`pkg/kubelet/preemption`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};

use super::PodAdmitAttributes;
use super::failure::{InsufficientResource, PredicateFailure};
use super::predicates::AdmissionFailureHandler;
use super::requests::pod_requests;
use crate::{Event, EventRecorder, EventType, PodExt, PodStatusFn, PodWorkersHandle, QosClass, qos_class};

/// Ends less important pods so that a critical pod fits, if only resources are missing. It chooses as few as possible,
/// of the lowest QoS class, with the smallest requests. Answers to `preemption.CriticalPodAdmissionHandler`.
///
/// The sync loop waits while they end, for at most 1.5 times the grace period of each and at least 10 s, like the
/// kubelet's. Then the critical pod is admitted, even if some have not ended.
pub struct CriticalPodAdmissionHandler {
    workers: PodWorkersHandle,
    recorder: Arc<dyn EventRecorder>,
}

/// `events.PreemptContainer`
const REASON: &str = "Preempting";
const MESSAGE: &str = "Preempted in order to admit critical pod";

impl CriticalPodAdmissionHandler {
    /// Ends pods through these workers, and records events.
    pub fn new(workers: PodWorkersHandle, recorder: Arc<dyn EventRecorder>) -> Self {
        Self { workers, recorder }
    }

    async fn preempt(&self, pod: &Arc<Pod>, preemption_signal: &str) {
        self.recorder
            .record(Event::about(pod, EventType::Warning, REASON, MESSAGE));
        let killed = self
            .workers
            .kill_pod_now(pod, true, None, Some(preempted(pod)), &*self.recorder);
        match killed.await {
            Ok(()) => {
                let signal = preemption_signal.to_owned();
                metrics::counter!("kubelet_preemptions", "preemption_signal" => signal).increment(1);
            }
            Err(error) => {
                tracing::error!(pod = %pod.key(), uid = pod.uid_str(), %error, "Failed to evict pod");
            }
        }
    }
}

#[async_trait]
impl AdmissionFailureHandler for CriticalPodAdmissionHandler {
    async fn handle_admission_failure(
        &self,
        attributes: &PodAdmitAttributes<'_>,
        failures: Vec<PredicateFailure>,
    ) -> Result<Vec<PredicateFailure>, String> {
        if !attributes.pod.is_critical() {
            return Ok(failures);
        }
        let (mut missing, mut others) = (Vec::new(), Vec::new());
        for failure in failures {
            match failure {
                PredicateFailure::Insufficient(resource) => missing.push(Requirement::from(&resource)),
                PredicateFailure::Predicate { .. } => others.push(failure),
            }
        }
        if !others.is_empty() {
            return Ok(others);
        }
        let victims = pods_to_preempt(attributes.pod, attributes.other_pods, &missing)
            .map_err(|error| format!("preemption: error finding a set of pods to preempt: {error}"))?;
        let signal = missing.first().map_or("", |missing| &missing.resource);
        for victim in victims {
            tracing::info!(
                pod = %victim.key(), uid = victim.uid_str(), for_pod = %attributes.pod.key(), resource = signal,
                "Preempting pod to free up resources"
            );
            self.preempt(&victim, signal).await;
        }
        Ok(Vec::new())
    }
}

crate::impl_debug!(CriticalPodAdmissionHandler);

/// The status of a preempted pod.
fn preempted(pod: &Pod) -> PodStatusFn {
    let generation = pod.metadata.generation;
    Arc::new(move |status: &mut ApiPodStatus| {
        status.phase = Some("Failed".to_owned());
        status.reason = Some(REASON.to_owned());
        status.message = Some(MESSAGE.to_owned());
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != "DisruptionTarget");
        conditions.push(PodCondition {
            type_: "DisruptionTarget".to_owned(),
            observed_generation: generation,
            status: "True".to_owned(),
            reason: Some("TerminationByKubelet".to_owned()),
            message: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
            ..PodCondition::default()
        });
    })
}

fn priority(pod: &Pod) -> Option<i32> {
    pod.spec.as_ref()?.priority
}

/// `types.Preemptable`
fn may_preempt(preemptor: &Pod, pod: &Pod) -> bool {
    (preemptor.is_critical() && !pod.is_critical())
        || matches!((priority(preemptor), priority(pod)), (Some(a), Some(b)) if a > b)
}

/// How much of a resource is missing (`admissionRequirement`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    resource: String,
    quantity: i64,
}

impl From<&InsufficientResource> for Requirement {
    fn from(insufficient: &InsufficientResource) -> Self {
        Self {
            resource: insufficient.resource.clone(),
            quantity: insufficient.missing(),
        }
    }
}

/// The pods to end so that enough is free: of a higher class only those that the lower classes cannot replace
/// (`getPodsToPreempt`).
fn pods_to_preempt(
    preemptor: &Pod,
    pods: &[Arc<Pod>],
    missing: &[Requirement],
) -> Result<Vec<Arc<Pod>>, String> {
    let of_class = |class: QosClass| -> Vec<Arc<Pod>> {
        let candidates = pods.iter().filter(|pod| may_preempt(preemptor, pod));
        candidates
            .filter(|pod| qos_class(pod) == class)
            .cloned()
            .collect()
    };
    let best_effort = of_class(QosClass::BestEffort);
    let burstable = of_class(QosClass::Burstable);
    let guaranteed = of_class(QosClass::Guaranteed);

    let without_guaranteed = without(missing, best_effort.iter().chain(&burstable));
    let of_guaranteed = nearest(guaranteed, without_guaranteed)?;
    let without_burstable = without(missing, best_effort.iter().chain(&of_guaranteed));
    let of_burstable = nearest(burstable, without_burstable)?;
    let without_best_effort = without(missing, of_burstable.iter().chain(&of_guaranteed));
    let of_best_effort = nearest(best_effort, without_best_effort)?;
    Ok([of_best_effort, of_burstable, of_guaranteed].concat())
}

/// Repeatedly takes the pod that leaves the least missing; of two equal ones, the one with the smaller request
/// (`getPodsToPreemptByDistance`).
fn nearest(mut pods: Vec<Arc<Pod>>, mut missing: Vec<Requirement>) -> Result<Vec<Arc<Pod>>, String> {
    let mut taken = Vec::new();
    while !missing.is_empty() {
        let better = |a: &Pod, b: &Pod| {
            distance(&missing, a)
                .total_cmp(&distance(&missing, b))
                .then_with(|| demands(a).cmp(&demands(b)))
        };
        let best = (0..pods.len()).rev().min_by(|a, b| better(&pods[*a], &pods[*b]));
        let Some(best) = best else {
            return Err(format!(
                "no set of running pods found to reclaim resources: {}",
                list(&missing)
            ));
        };
        let pod = pods.swap_remove(best);
        missing = without(&missing, [&pod]);
        taken.push(pod);
    }
    Ok(taken)
}

/// What is missing after these pods have ended (`subtract`).
fn without<'a>(missing: &[Requirement], pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Vec<Requirement> {
    let pods: Vec<&Arc<Pod>> = pods.into_iter().collect();
    let left = missing.iter().map(|requirement| {
        let freed = pods.iter().map(|pod| request(pod, &requirement.resource));
        Requirement {
            resource: requirement.resource.clone(),
            quantity: freed.fold(requirement.quantity, i64::saturating_sub),
        }
    });
    left.filter(|requirement| requirement.quantity > 0).collect()
}

/// How far the pod is from freeing what is missing: the sum of the squared remaining fractions.
fn distance(missing: &[Requirement], pod: &Pod) -> f64 {
    let parts = missing.iter().map(|requirement| {
        let left = requirement
            .quantity
            .saturating_sub(request(pod, &requirement.resource))
            .max(0);
        (left as f64 / requirement.quantity as f64).powi(2)
    });
    parts.sum()
}

/// Memory first, then CPU (`smallerResourceRequest`).
fn demands(pod: &Pod) -> (i64, i64) {
    (request(pod, "memory"), request(pod, "cpu"))
}

/// `resource.GetResourceRequest`
fn request(pod: &Pod, resource: &str) -> i64 {
    match resource {
        "pods" => 1,
        _ => pod_requests(pod)
            .ok()
            .and_then(|all| all.get(resource).copied())
            .unwrap_or_default(),
    }
}

fn list(missing: &[Requirement]) -> String {
    let each = missing
        .iter()
        .map(|it| format!("(res: {}, q: {})", it.resource, it.quantity));
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A pod with requests in milli CPU and bytes, bounded where it is guaranteed.
    fn pod(name: &str, priority: Option<i32>, requests: Option<(i64, i64)>, guaranteed: bool) -> Arc<Pod> {
        let mut container = json!({"name": "c"});
        if let Some((cpu, memory)) = requests {
            let list = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
            container["resources"] = match guaranteed {
                true => json!({"requests": list, "limits": list}),
                false => json!({"requests": list}),
            };
        }
        let spec = json!({"containers": [container], "priority": priority});
        let pod = json!({"metadata": {"name": name, "uid": name, "namespace": "ns"}, "spec": spec});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn by_name(name: &str) -> Arc<Pod> {
        let none = None;
        match name {
            "cluster-critical" => pod(
                name,
                Some(crate::pod::SYSTEM_CRITICAL_PRIORITY),
                Some((100, 100)),
                false,
            ),
            "node-critical" => pod(
                name,
                Some(crate::pod::SYSTEM_CRITICAL_PRIORITY + 1000),
                Some((100, 100)),
                false,
            ),
            "best-effort" => pod(name, none, None, false),
            "burstable" => pod(name, none, Some((100, 100)), false),
            "high-burstable" => pod(name, none, Some((300, 300)), false),
            "guaranteed" => pod(name, none, Some((100, 100)), true),
            "high-guaranteed" => pod(name, none, Some((300, 300)), true),
            other => unreachable!("{other}"),
        }
    }

    fn missing(cpu: i64, memory: i64, pods: i64) -> Vec<Requirement> {
        let all = [("cpu", cpu), ("memory", memory), ("pods", pods)];
        let some = all.into_iter().filter(|(_, quantity)| *quantity > 0);
        let requirement = |(resource, quantity): (&str, i64)| Requirement {
            resource: resource.to_owned(),
            quantity,
        };
        some.map(requirement).collect()
    }

    #[test]
    fn the_fewest_and_least_of_the_lowest_class_go() {
        const CC: &str = "cluster-critical";
        const NC: &str = "node-critical";
        let all = [
            "best-effort",
            "burstable",
            "high-burstable",
            "guaranteed",
            "high-guaranteed",
        ];
        type Case<'a> = (&'a str, &'a [&'a str], (i64, i64, i64), Option<&'a [&'a str]>);
        let cases: [Case<'_>; 14] = [
            (CC, &[], (0, 0, 0), Some(&[])),
            (CC, &[], (0, 0, 1), None),
            (CC, &["burstable"], (100, 100, 1), Some(&["burstable"])),
            (CC, &["burstable"], (200, 200, 2), None),
            (
                CC,
                &["burstable", "best-effort"],
                (0, 0, 1),
                Some(&["best-effort"]),
            ),
            (CC, &["best-effort"], (0, 1, 0), None),
            (CC, &["burstable", "guaranteed"], (0, 0, 1), Some(&["burstable"])),
            (
                CC,
                &["best-effort", "high-burstable", "burstable"],
                (100, 100, 0),
                Some(&["burstable"]),
            ),
            (
                CC,
                &["best-effort", "burstable", "high-burstable"],
                (150, 150, 0),
                Some(&["high-burstable"]),
            ),
            (CC, &all, (350, 350, 0), Some(&["burstable", "high-burstable"])),
            (
                CC,
                &all,
                (0, 550, 0),
                Some(&["high-burstable", "high-guaranteed"]),
            ),
            (NC, &[CC], (100, 0, 0), Some(&[CC])),
            (CC, &[NC], (100, 0, 0), None),
            (CC, &[CC], (100, 0, 0), None),
        ];
        for case @ (preemptor, pods, (cpu, memory, count), expected) in cases {
            let pods: Vec<_> = pods.iter().map(|name| by_name(name)).collect();
            let found = pods_to_preempt(&by_name(preemptor), &pods, &missing(cpu, memory, count));
            let names = found.ok().map(|found| {
                let mut names: Vec<String> = found.iter().map(|pod| pod.uid().to_string()).collect();
                names.sort();
                names
            });
            let expected = expected.map(|names| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
            assert_eq!(names, expected, "{case:?}");
        }
    }

    #[test]
    fn who_may_preempt_whom() {
        let fixed = |name: &str| {
            let mut pod = Pod::clone(&by_name(name));
            pod.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
            pod
        };
        let plain = |priority| pod("p", Some(priority), None, false);
        assert!(
            may_preempt(&fixed("best-effort"), &by_name("guaranteed")),
            "static pods are critical"
        );
        assert!(!may_preempt(&by_name("guaranteed"), &fixed("best-effort")));
        assert!(may_preempt(&plain(2), &plain(1)) && !may_preempt(&plain(1), &plain(1)));
        assert!(!plain(crate::pod::SYSTEM_CRITICAL_PRIORITY - 1).is_critical());
    }

    proptest! {
        /// Whoever goes, it is enough; and where all together are enough, somebody is found.
        #[test]
        fn what_is_freed_is_enough(
            pods in prop::collection::vec((0_i64..400, 0_i64..400, any::<bool>()), 0..12),
            cpu in 0_i64..1500,
            memory in 0_i64..1500,
            count in 0_i64..8,
        ) {
            let pods: Vec<_> = pods
                .into_iter()
                .enumerate()
                .map(|(index, (cpu, memory, guaranteed))| {
                    pod(&index.to_string(), None, (cpu + memory > 0).then_some((cpu, memory)), guaranteed)
                })
                .collect();
            let missing = missing(cpu, memory, count);
            let enough = without(&missing, &pods).is_empty();
            match pods_to_preempt(&by_name("cluster-critical"), &pods, &missing) {
                Ok(victims) => prop_assert!(without(&missing, &victims).is_empty()),
                Err(error) => prop_assert!(!enough, "{error}"),
            }
        }
    }

    #[test]
    fn a_preempted_pod_says_so() {
        let mut status = ApiPodStatus::default();
        for _ in 0..2 {
            preempted(&by_name("burstable"))(&mut status);
        }
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.reason.as_deref(), Some("Preempting"));
        let conditions = status.conditions.unwrap();
        assert_eq!(conditions.len(), 1);
        assert_eq!(
            (&*conditions[0].type_, &*conditions[0].status),
            ("DisruptionTarget", "True")
        );
    }
}
