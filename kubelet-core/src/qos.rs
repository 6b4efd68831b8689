//! A pod's quality of service class.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::pod::{PodExt, QosClass};
use crate::quantity::Amount;

/// The resources that determine the class (`supportedQoSComputeResources`).
const COMPUTE_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// The pod's class: the one in its status, or else the one of its spec (`qos.GetPodQOS`).
///
/// Once the API server has set it, it stays, even during a resize.
pub fn qos_class(pod: &Pod) -> QosClass {
    let told = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
    match told {
        Some("Guaranteed") => QosClass::Guaranteed,
        Some("Burstable") => QosClass::Burstable,
        Some("BestEffort") => QosClass::BestEffort,
        _ => compute_qos_class(pod),
    }
}

/// The class of the pod's spec (`qos.ComputePodQOS`): from the pod-level resources if it has any, otherwise from those
/// of its containers, init containers included.
///
/// A quantity that cannot be parsed counts as unset.
pub fn compute_qos_class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else {
        return QosClass::BestEffort;
    };
    let mut total = Total::default();
    match &spec.resources {
        Some(resources) => {
            // Requests alone do not make a pod Burstable here; the missing limits do.
            total.add(
                resources,
                resources.limits.as_ref().is_some_and(|l| !l.is_empty()),
            );
        }
        None => {
            let none = ResourceRequirements::default();
            for container in pod.all_containers() {
                total.add(container.resources.as_ref().unwrap_or(&none), true);
            }
        }
    }
    total.class()
}

/// The sums of all added resources, and whether each item had limits for every resource that counts.
#[derive(Default)]
struct Total {
    requests: BTreeMap<&'static str, Amount>,
    limits: BTreeMap<&'static str, Amount>,
    unbounded: bool,
}

impl Total {
    fn add(&mut self, resources: &ResourceRequirements, bounds_wanted: bool) {
        add_positive(&mut self.requests, resources.requests.as_ref());
        let bounds = add_positive(&mut self.limits, resources.limits.as_ref());
        self.unbounded |= bounds_wanted && bounds < COMPUTE_RESOURCES.len();
    }

    fn class(&self) -> QosClass {
        if self.requests.is_empty() && self.limits.is_empty() {
            QosClass::BestEffort
        } else if !self.unbounded && self.requests == self.limits {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }
}

/// Returns how many of the resources that count were set.
fn add_positive(
    sums: &mut BTreeMap<&'static str, Amount>,
    list: Option<&BTreeMap<String, Quantity>>,
) -> usize {
    let amounts = COMPUTE_RESOURCES.into_iter().filter_map(|name| {
        let amount = Amount::try_from(list?.get(name)?).ok()?;
        amount.is_positive().then_some((name, amount))
    });
    amounts
        .map(|(name, amount)| {
            let sum = sums.entry(name).or_default();
            *sum = *sum + amount;
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};

    fn list(items: &[(&str, &str)]) -> Option<BTreeMap<String, Quantity>> {
        let quantities = items
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Quantity((*v).into())));
        Some(quantities.collect())
    }

    fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
        ResourceRequirements {
            requests: list(requests),
            limits: list(limits),
            ..Default::default()
        }
    }

    fn pod(containers: Vec<ResourceRequirements>) -> Pod {
        let containers = containers.into_iter().map(|resources| Container {
            resources: Some(resources),
            ..Default::default()
        });
        Pod {
            spec: Some(PodSpec {
                containers: containers.collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn containers_make_the_class() {
        let whole = [("cpu", "1"), ("memory", "64Mi")];
        let none = || resources(&[], &[]);
        let full = || resources(&whole, &whole);
        let cases = [
            ("nothing", vec![none()], QosClass::BestEffort),
            (
                "zeros",
                vec![resources(&[("cpu", "0")], &[("memory", "0")])],
                QosClass::BestEffort,
            ),
            (
                "what does not count",
                vec![resources(&[("ephemeral-storage", "1Gi")], &[])],
                QosClass::BestEffort,
            ),
            ("equal", vec![full(), full()], QosClass::Guaranteed),
            (
                "equal but written otherwise",
                vec![resources(&[("cpu", "1000m"), ("memory", "64Mi")], &whole)],
                QosClass::Guaranteed,
            ),
            ("one without", vec![full(), none()], QosClass::Burstable),
            (
                "cpu alone",
                vec![resources(&[("cpu", "1")], &[("cpu", "1")])],
                QosClass::Burstable,
            ),
            (
                "requests alone",
                vec![resources(&whole, &[])],
                QosClass::Burstable,
            ),
            ("limits alone", vec![resources(&[], &whole)], QosClass::Burstable),
            (
                "requests below limits",
                vec![resources(&[("cpu", "500m"), ("memory", "64Mi")], &whole)],
                QosClass::Burstable,
            ),
        ];
        for (name, containers, class) in cases {
            assert_eq!(compute_qos_class(&pod(containers)), class, "{name}");
        }
    }

    #[test]
    fn the_pod_as_a_whole_goes_first_and_the_status_before_it() {
        let whole = [("cpu", "1"), ("memory", "64Mi")];
        let mut pod = pod(vec![resources(&[], &[])]);
        pod.spec.as_mut().unwrap().resources = Some(resources(&whole, &whole));
        assert_eq!(qos_class(&pod), QosClass::Guaranteed);
        pod.spec.as_mut().unwrap().resources = Some(resources(&whole, &[]));
        assert_eq!(qos_class(&pod), QosClass::Burstable);
        pod.status = Some(PodStatus {
            qos_class: Some("BestEffort".into()),
            ..Default::default()
        });
        assert_eq!(qos_class(&pod), QosClass::BestEffort);
    }
}
