//! The limits of a pod's cgroup (`ResourceConfigForPod`).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::driver::CgroupDriver;
use super::shares::{SHARES, milli_cpu_to_quota, milli_cpu_to_shares, shares_to_milli_cpu};
use crate::admission::pod_requests;
use crate::quantity::Amount;
use crate::restart_rules::is_restartable_init_container;
use crate::runtime::AppliedResources;
use crate::{Error, PodExt, QosClass, Result, pod_limit, qos_class};

/// No limit, in the files of cgroup v1 and in computations.
pub const UNLIMITED: i64 = -1;

/// The present or desired limits of a cgroup (`ResourceConfig`). A field that is `None` is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupLimits {
    /// CPU shares, also with cgroup v2, where they become a weight.
    pub cpu_shares: Option<i64>,
    /// In microseconds per period; −1 for no limit.
    pub cpu_quota: Option<i64>,
    /// In microseconds.
    pub cpu_period: Option<i64>,
    /// In bytes; −1 for no limit.
    pub memory: Option<i64>,
    /// How many processes and threads there may be; −1 for no limit.
    pub pids: Option<i64>,
    /// The CPUs, e.g. `0-3,8`.
    pub cpus: Option<String>,
    /// Bytes by page size, in the kernel's spelling: `2MB`.
    pub huge_pages: BTreeMap<String, i64>,
    /// Memory that the kernel never reclaims, in bytes; cgroup v2 only (`memory.min`).
    pub memory_min: Option<i64>,
    /// Memory that the kernel reclaims last, in bytes; cgroup v2 only (`memory.low`).
    pub memory_low: Option<i64>,
}

/// The settings of the node that the names and limits of pods' cgroups depend on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PodCgroupSettings {
    /// Where the cgroups are.
    pub driver: CgroupDriver,
    /// `cpuCFSQuota`: whether CPU limits are enforced.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod`
    pub cpu_cfs_quota_period: Duration,
    /// `podPidsLimit`: how many processes a pod may have; `None` and −1 mean no limit.
    pub pod_pids_limit: Option<i64>,
    /// The sizes of huge pages that the kernel supports, in its spelling: `2MB`, `1GB`.
    pub huge_page_sizes: Vec<String>,
    /// Whether the memory that a pod requests is protected (the gate `MemoryQoS` with the `memoryReservationPolicy`
    /// `TieredReservation`): `memory.min` of guaranteed pods, `memory.low` of burstable ones. Only with cgroup v2.
    pub protect_memory: bool,
}

impl Default for PodCgroupSettings {
    fn default() -> Self {
        Self {
            driver: CgroupDriver::default(),
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            pod_pids_limit: None,
            huge_page_sizes: Vec::new(),
            protect_memory: false,
        }
    }
}

impl CgroupLimits {
    /// The limits of a pod (`ResourceConfigForPod`, `podPidsLimit`).
    ///
    /// # Errors
    ///
    /// Names the amount that is not a quantity.
    pub fn of_pod(settings: &PodCgroupSettings, pod: &Pod) -> Result<Self> {
        let totals = PodTotals::of(pod)?;
        let mut limits = Self {
            cpu_shares: Some(milli_cpu_to_shares(totals.cpu_request)),
            pids: settings.pod_pids_limit.filter(|limit| *limit > 0),
            huge_pages: huge_pages(settings, &totals),
            ..Self::default()
        };
        let class = qos_class(pod);
        if settings.protect_memory && totals.memory_request > 0 {
            match class {
                QosClass::Guaranteed => limits.memory_min = Some(totals.memory_request),
                QosClass::Burstable | QosClass::BestEffort => limits.memory_low = Some(totals.memory_request),
            }
        }
        if class == QosClass::BestEffort {
            limits.cpu_shares = Some(*SHARES.start());
            return Ok(limits);
        }
        if class == QosClass::Guaranteed || totals.cpu_limits_declared {
            let period = i64::try_from(settings.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
            limits.cpu_period = Some(period);
            limits.cpu_quota = Some(match settings.cpu_cfs_quota {
                true => milli_cpu_to_quota(totals.cpu_limit, period),
                false => UNLIMITED,
            });
        }
        if class == QosClass::Guaranteed || totals.memory_limits_declared {
            limits.memory = Some(totals.memory_limit);
        }
        Ok(limits)
    }

    /// CPU request and limit and memory limit as a status shows them; `None` if there are none (`CPURequestsFromConfig`,
    /// `CPULimitsFromConfig`, `MemoryLimitsFromConfig`).
    pub fn resources(&self) -> Option<AppliedResources> {
        let (quota, period) = (
            self.cpu_quota.unwrap_or_default(),
            self.cpu_period.unwrap_or_default(),
        );
        let cpu_limit = (period > 0 && quota > 0).then(|| quota.saturating_mul(1000) / period);
        let cpu_request = self.cpu_shares.map(shares_to_milli_cpu);
        let is_some = |amount: &i64| *amount > 0;
        let resources = AppliedResources {
            cpu_limit: cpu_limit.filter(is_some).map(decimal_milli),
            cpu_request: cpu_request.filter(is_some).map(decimal_milli),
            memory_limit: self.memory.filter(is_some).map(binary),
            memory_request: None,
        };
        (resources != AppliedResources::default()).then_some(resources)
    }
}

/// The requests and limits of a whole pod, with its overhead.
#[derive(Debug, Default)]
struct PodTotals {
    /// In thousandths.
    cpu_request: i64,
    /// In thousandths.
    cpu_limit: i64,
    /// In bytes.
    memory_request: i64,
    /// In bytes.
    memory_limit: i64,
    /// Requested bytes, by page size in the kernel's spelling.
    huge_pages: BTreeMap<String, i64>,
    /// Whether each container has a limit, or the pod as a whole.
    cpu_limits_declared: bool,
    /// Whether each container has a limit, or the pod as a whole.
    memory_limits_declared: bool,
}

impl PodTotals {
    /// `PodRequests` and `PodLimits` with the options of `ResourceConfigForPod`.
    fn of(pod: &Pod) -> Result<Self> {
        let requests = pod_requests(pod).map_err(|message| Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message,
        })?;
        let request = |name: &str| requests.get(name).copied().unwrap_or_default();
        let limit = |name: &str| pod_limit(pod, name).map_or(Amount::ZERO, |limit| limit.amount);
        let huge_pages = requests.iter();
        Ok(Self {
            cpu_request: request("cpu"),
            cpu_limit: limit("cpu").milli_value(),
            memory_request: request("memory"),
            memory_limit: limit("memory").value(),
            huge_pages: huge_pages
                .filter_map(|(name, bytes)| Some((huge_page_size(name)?, *bytes)))
                .collect(),
            cpu_limits_declared: is_limited(pod, "cpu"),
            memory_limits_declared: is_limited(pod, "memory"),
        })
    }
}

/// Whether the pod as a whole has a limit, or each of its containers. An init container counts together with the sidecars
/// that were started before it.
fn is_limited(pod: &Pod, resource: &str) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let has_limit = |resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| {
        let limit = resources
            .and_then(|resources| resources.limits.as_ref())
            .and_then(|limits| limits.get(resource))
            .and_then(|limit| Amount::try_from(limit).ok());
        limit.is_some_and(|limit| !limit.is_zero())
    };
    if has_limit(spec.resources.as_ref()) {
        return true;
    }
    let of = |container: &Container| has_limit(container.resources.as_ref());
    let mut has_sidecar_with_limit = false;
    let init_are = spec.init_containers.iter().flatten().all(|container| {
        let is_counted = of(container) || has_sidecar_with_limit;
        has_sidecar_with_limit |= of(container) && is_restartable_init_container(container);
        is_counted
    });
    init_are && spec.containers.iter().all(of)
}

/// `HugePageLimits`: a pod may not use huge pages that it did not request.
fn huge_pages(settings: &PodCgroupSettings, totals: &PodTotals) -> BTreeMap<String, i64> {
    let requested = |size: &String| totals.huge_pages.get(size).copied().unwrap_or(0);
    let sizes = settings.huge_page_sizes.iter();
    sizes.map(|size| (size.clone(), requested(size))).collect()
}

/// The page size of a resource in the kernel's spelling (`HugePageUnitSizeFromByteSize`): `2MB` for `hugepages-2Mi`. `None`
/// for other resources.
pub fn huge_page_size(resource: &str) -> Option<String> {
    let size: Amount = resource.strip_prefix("hugepages-")?.parse().ok()?;
    let mut size = size.value();
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut index = 0;
    while size >= 1024 && index + 1 < units.len() {
        size /= 1024;
        index += 1;
    }
    Some(format!("{size}{}", units[index]))
}

/// Millicores as a canonical quantity: `100m`, `2`.
pub(crate) fn decimal_milli(milli: i64) -> Quantity {
    scaled(milli, 1000, &["m", "", "k", "M", "G"])
}

/// Bytes as a canonical quantity: `64Mi`.
pub(crate) fn binary(bytes: i64) -> Quantity {
    scaled(bytes, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

fn scaled(mut value: i64, base: i64, suffixes: &[&str]) -> Quantity {
    let mut suffix = 0;
    while value % base == 0 && suffix + 1 < suffixes.len() {
        value /= base;
        suffix += 1;
    }
    Quantity(format!("{value}{}", suffixes.get(suffix).unwrap_or(&"")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "1"}, "spec": spec})).unwrap()
    }

    /// A container with these requests and limits, `-` for none: CPU, memory.
    fn container(requests: (&str, &str), limits: (&str, &str)) -> Value {
        let list = |(cpu, memory): (&str, &str)| {
            let mut list = json!({});
            for (name, amount) in [("cpu", cpu), ("memory", memory)] {
                if amount != "-" {
                    list[name] = json!(amount);
                }
            }
            list
        };
        json!({"name": "c", "resources": {"requests": list(requests), "limits": list(limits)}})
    }

    const NONE: (&str, &str) = ("-", "-");

    fn node(period_ms: u64, quota: bool) -> PodCgroupSettings {
        PodCgroupSettings {
            cpu_cfs_quota: quota,
            cpu_cfs_quota_period: Duration::from_millis(period_ms),
            ..PodCgroupSettings::default()
        }
    }

    #[test]
    fn limits_of_pods() {
        let some = ("100m", "100Mi");
        let twice = ("200m", "200Mi");
        let mib = |number: i64| Some(number << 20);
        let bound = container(some, twice);
        // spec, whether quotas are kept to, period in ms; shares, quota, period, memory
        let cases = [
            (
                "best effort",
                json!({"containers": [container(NONE, NONE)]}),
                true,
                100,
                (2, None, None, None),
            ),
            (
                "requests alone",
                json!({"containers": [container(some, NONE)]}),
                true,
                100,
                (102, None, None, None),
            ),
            (
                "bounds",
                json!({"containers": [bound]}),
                true,
                100,
                (102, Some(20_000), Some(100_000), mib(200)),
            ),
            (
                "no quotas",
                json!({"containers": [bound]}),
                false,
                100,
                (102, Some(-1), Some(100_000), mib(200)),
            ),
            (
                "a short period",
                json!({"containers": [bound]}),
                true,
                5,
                (102, Some(1000), Some(5000), mib(200)),
            ),
            (
                "one without bounds",
                json!({"containers": [bound, container(some, NONE)]}),
                true,
                100,
                (204, None, None, None),
            ),
            (
                "an init container without bounds",
                json!({"containers": [bound], "initContainers": [container(some, NONE)]}),
                true,
                100,
                (102, None, None, None),
            ),
            (
                "guaranteed",
                json!({"containers": [container(some, some)]}),
                true,
                100,
                (102, Some(10_000), Some(100_000), mib(100)),
            ),
            (
                "guaranteed, no quotas",
                json!({"containers": [container(some, some)]}),
                false,
                5,
                (102, Some(-1), Some(5000), mib(100)),
            ),
            (
                "overhead",
                json!({"containers": [container(some, some)], "overhead": {"cpu": "50m", "memory": "20Mi"}}),
                true,
                100,
                (153, Some(15_000), Some(100_000), mib(120)),
            ),
            (
                "overhead without bounds",
                json!({"containers": [container(some, NONE)], "overhead": {"cpu": "50m", "memory": "20Mi"}}),
                true,
                100,
                (153, None, None, None),
            ),
            (
                "of the pod as a whole",
                json!({"containers": [container(("10m", "50Mi"), NONE)],
                    "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "200Mi"}}}),
                true,
                100,
                (102, Some(20_000), Some(100_000), mib(200)),
            ),
            (
                "requests of the pod as a whole",
                json!({"containers": [container(NONE, NONE)], "resources": {"requests": {"cpu": "100m"}}}),
                true,
                100,
                (102, None, None, None),
            ),
        ];
        for (name, spec, quota, period, expected) in cases {
            let limits = CgroupLimits::of_pod(&node(period, quota), &pod(spec)).unwrap();
            let (shares, quota, period, memory) = expected;
            assert_eq!(limits.cpu_shares, Some(shares), "{name}");
            assert_eq!((limits.cpu_quota, limits.cpu_period), (quota, period), "{name}");
            assert_eq!(limits.memory, memory, "{name}");
            assert_eq!((limits.pids, limits.huge_pages.len()), (None, 0), "{name}");
        }
    }

    #[test]
    fn pids_and_huge_pages() {
        let mut node = node(100, true);
        node.pod_pids_limit = Some(1000);
        node.huge_page_sizes = vec!["2MB".into(), "1GB".into()];
        let asks = json!({"name": "c", "resources": {
            "requests": {"memory": "1Mi", "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}});
        let limits = CgroupLimits::of_pod(&node, &pod(json!({"containers": [asks, asks]}))).unwrap();
        assert_eq!(limits.pids, Some(1000));
        let expected = [("1GB".to_owned(), 0), ("2MB".to_owned(), 8 << 20)];
        assert_eq!(limits.huge_pages, expected.into());
        node.pod_pids_limit = Some(-1);
        let limits = CgroupLimits::of_pod(&node, &pod(json!({"containers": []}))).unwrap();
        assert_eq!(limits.pids, None, "-1 is no limit");
    }

    #[test]
    fn requested_memory_is_protected_by_class() {
        let mut protect = node(100, true);
        protect.protect_memory = true;
        let some = ("100m", "100Mi");
        let mib = |number: i64| Some(number << 20);
        for (name, container, expected) in [
            ("guaranteed", container(some, some), (mib(100), None)),
            ("burstable", container(some, NONE), (None, mib(100))),
            ("no memory", container(("100m", "-"), NONE), (None, None)),
            ("best effort", container(NONE, NONE), (None, None)),
        ] {
            let pod = pod(json!({"containers": [container]}));
            let limits = CgroupLimits::of_pod(&protect, &pod).unwrap();
            assert_eq!((limits.memory_min, limits.memory_low), expected, "{name}");
            let limits = CgroupLimits::of_pod(&node(100, true), &pod).unwrap();
            assert_eq!((limits.memory_min, limits.memory_low), (None, None), "{name}");
        }
    }

    #[test]
    fn page_sizes_in_the_kernels_spelling() {
        for (resource, size) in [
            ("hugepages-2Mi", Some("2MB")),
            ("hugepages-1Gi", Some("1GB")),
            ("hugepages-64Ki", Some("64KB")),
            ("hugepages-", None),
            ("memory", None),
        ] {
            assert_eq!(huge_page_size(resource).as_deref(), size, "{resource}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        let bad = pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}));
        let error = CgroupLimits::of_pod(&node(100, true), &bad).unwrap_err();
        assert!(error.to_string().contains("cpu of c: "), "{error}");
    }
}
