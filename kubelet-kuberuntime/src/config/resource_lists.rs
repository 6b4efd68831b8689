//! Requests and limits as amounts, of containers and of whole pods (`PodRequests`, `PodLimits`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::PodExt;
use kubelet_core::quantity::Amount;
use kubelet_core::restart_rules::is_restartable_init_container;

use super::{ConfigError, Result};

/// Amounts by resource.
pub(super) type ResourceList = BTreeMap<String, Amount>;

/// The requests or limits of the pod without its overhead (`PodRequests`, `PodLimits`): the pod-level amount if there
/// is one, else the sum of its containers.
pub(super) fn pod_total(
    pod: &Pod,
    list: impl Fn(&ResourceLists) -> &ResourceList + Copy,
) -> Result<ResourceList> {
    let Some(spec) = &pod.spec else {
        return Ok(ResourceList::new());
    };
    let mut total = containers_total(spec, list)?;
    let of_pod = ResourceLists::of_pod(pod)?;
    total.extend(list(&of_pod).clone());
    Ok(total)
}

/// The larger one of two sums (`AggregateContainerRequests`, `AggregateContainerLimits`): all regular containers and
/// sidecars, or an init container and the sidecars that were started before it.
pub(super) fn containers_total(
    spec: &PodSpec,
    list: impl Fn(&ResourceLists) -> &ResourceList + Copy,
) -> Result<ResourceList> {
    let mut running = ResourceList::new();
    for container in &spec.containers {
        add(&mut running, list(&ResourceLists::of_container(container)?));
    }
    let mut sidecars = ResourceList::new();
    let mut peak = ResourceList::new();
    for container in spec.init_containers.iter().flatten() {
        let lists = ResourceLists::of_container(container)?;
        let mut now = sidecars.clone();
        add(&mut now, list(&lists));
        if is_restartable_init_container(container) {
            add(&mut running, list(&lists));
            sidecars.clone_from(&now);
        }
        raise(&mut peak, now);
    }
    raise(&mut running, peak);
    Ok(running)
}

pub(super) fn add(total: &mut ResourceList, list: &ResourceList) {
    for (name, amount) in list {
        let sum = total.entry(name.clone()).or_default();
        *sum = *sum + *amount;
    }
}

fn raise(total: &mut ResourceList, list: ResourceList) {
    for (name, amount) in list {
        let most = total.entry(name).or_default();
        *most = amount.max(*most);
    }
}

/// `requests` and `limits` as amounts.
#[derive(Default)]
pub(super) struct ResourceLists {
    pub(super) requests: ResourceList,
    pub(super) limits: ResourceList,
}

impl ResourceLists {
    pub(super) fn of_container(container: &Container) -> Result<Self> {
        Self::read(
            &format!("container {}", container.name),
            container.resources.as_ref(),
        )
    }

    /// The supported pod-level resources (`IsSupportedPodLevelResource`).
    pub(super) fn of_pod(pod: &Pod) -> Result<Self> {
        let resources = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let mut lists = Self::read(&pod_owner(pod), resources)?;
        let supported =
            |name: &String| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-");
        lists.requests.retain(|name, _| supported(name));
        lists.limits.retain(|name, _| supported(name));
        Ok(lists)
    }

    fn read(owner: &str, resources: Option<&ResourceRequirements>) -> Result<Self> {
        Ok(Self {
            requests: amounts(owner, "requests", resources.and_then(|r| r.requests.as_ref()))?,
            limits: amounts(owner, "limits", resources.and_then(|r| r.limits.as_ref()))?,
        })
    }
}

pub(super) fn amounts(
    owner: &str,
    list: &'static str,
    quantities: Option<&BTreeMap<String, Quantity>>,
) -> Result<ResourceList> {
    let quantities = quantities.into_iter().flatten();
    quantities
        .map(|(name, quantity)| match Amount::try_from(quantity) {
            Ok(amount) => Ok((name.clone(), amount)),
            Err(_) => Err(ConfigError::Quantity {
                owner: owner.to_owned(),
                list,
                resource: name.clone(),
                text: quantity.0.clone(),
            }),
        })
        .collect()
}

pub(super) fn get(list: &ResourceList, name: &str) -> Amount {
    list.get(name).copied().unwrap_or_default()
}

pub(super) fn pod_owner(pod: &Pod) -> String {
    format!("pod {}", pod.key())
}
