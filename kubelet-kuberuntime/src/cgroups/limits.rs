//! The limits of a pod's cgroup: a pure function of the pod (`ResourceConfigForPod`), and the files to write.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_core::{QosClass, qos_class};

use super::mounts::Version;
use crate::config::{
    NodeSettings, PodTotals, Result, SHARES, huge_page_size, milli_cpu_to_quota, milli_cpu_to_shares,
    pod_totals,
};

/// No limit, in the files of cgroup v1 and in computations.
pub(crate) const UNLIMITED: i64 = -1;
/// `hugetlb` of the QoS classes: more than any machine has.
const UNBOUNDED_PAGES: i64 = 1 << 62;

/// The present or desired limits of a cgroup (`ResourceConfig`). A field that is `None` is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) cpu_shares: Option<i64>,
    /// In microseconds per period; −1 for no limit.
    pub(crate) cpu_quota: Option<i64>,
    /// In microseconds.
    pub(crate) cpu_period: Option<i64>,
    /// In bytes; −1 for no limit.
    pub(crate) memory: Option<i64>,
    pub(crate) pids: Option<i64>,
    /// Bytes by page size, in the kernel's spelling.
    pub(crate) huge_pages: BTreeMap<String, i64>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) controller: &'static str,
    pub(super) file: String,
    pub(super) value: String,
    /// Whether the file may be missing: not every kernel has it.
    pub(super) optional: bool,
}

impl Limits {
    /// The limits of a pod (`ResourceConfigForPod`, `podPidsLimit`).
    pub(crate) fn of_pod(node: &NodeSettings, pod: &Pod) -> Result<Self> {
        let totals = pod_totals(pod)?;
        let shares = milli_cpu_to_shares(totals.cpu_request);
        let mut limits = Self {
            cpu_shares: Some(shares),
            pids: node.pod_pids_limit.filter(|limit| *limit > 0),
            huge_pages: huge_pages(node, &totals),
            ..Self::default()
        };
        let class = qos_class(pod);
        if class == QosClass::BestEffort {
            limits.cpu_shares = Some(*SHARES.start());
            return Ok(limits);
        }
        if class == QosClass::Guaranteed || totals.cpu_limits_declared {
            let period = i64::try_from(node.cpu_cfs_quota_period.as_micros()).unwrap_or(i64::MAX);
            limits.cpu_period = Some(period);
            limits.cpu_quota = Some(match node.cpu_cfs_quota {
                true => milli_cpu_to_quota(totals.cpu_limit, period),
                false => UNLIMITED,
            });
        }
        if class == QosClass::Guaranteed || totals.memory_limits_declared {
            limits.memory = Some(totals.memory_limit);
        }
        Ok(limits)
    }

    /// The limits of a QoS class: huge pages are limited only by pods (`setHugePagesUnbounded`).
    pub(super) fn of_class(node: &NodeSettings, cpu_shares: Option<i64>) -> Self {
        let sizes = node.huge_page_sizes.iter();
        Self {
            cpu_shares,
            huge_pages: sizes.map(|size| (size.clone(), UNBOUNDED_PAGES)).collect(),
            ..Self::default()
        }
    }

    /// The limits of all pods together (`getCgroupConfigInternal`).
    ///
    /// # Errors
    ///
    /// Names the amount that is not a quantity.
    pub(super) fn of_all_pods(
        node: &NodeSettings,
        resources: &BTreeMap<String, Quantity>,
    ) -> Result<Self, String> {
        let mut limits = Self {
            huge_pages: node
                .huge_page_sizes
                .iter()
                .map(|size| (size.clone(), 0))
                .collect(),
            ..Self::default()
        };
        for (name, amount) in resources {
            let amount = Amount::try_from(amount).map_err(|error| format!("{name}: {error}"))?;
            match name.as_str() {
                "cpu" => limits.cpu_shares = Some(milli_cpu_to_shares(amount.milli_value())),
                "memory" => limits.memory = Some(amount.value()),
                "pid" => limits.pids = Some(amount.value()),
                name => {
                    let pages = huge_page_size(name).and_then(|size| limits.huge_pages.get_mut(&size));
                    if let Some(bytes) = pages {
                        *bytes += amount.value();
                    }
                }
            }
        }
        Ok(limits)
    }

    /// The least CPU (`ReduceCPULimits`).
    pub(super) fn least_cpu() -> Self {
        Self {
            cpu_shares: Some(*SHARES.start()),
            ..Self::default()
        }
    }

    /// The writes, in order.
    pub(super) fn settings(&self, version: Version) -> Vec<Setting> {
        let mut settings = Vec::new();
        let mut set = |controller, file: String, value: String, optional| {
            settings.push(Setting {
                controller,
                file,
                value,
                optional,
            });
        };
        if let Some(pids) = self.pids {
            set("pids", "pids.max".to_owned(), pids.to_string(), false);
        }
        match version {
            Version::V1 => {
                if let Some(memory) = self.memory.filter(|bytes| *bytes != 0) {
                    set(
                        "memory",
                        "memory.limit_in_bytes".to_owned(),
                        memory.to_string(),
                        false,
                    );
                }
                if let Some(shares) = self.cpu_shares {
                    set("cpu", "cpu.shares".to_owned(), shares.to_string(), false);
                }
                if let Some(period) = self.cpu_period.filter(|period| *period != 0) {
                    set("cpu", "cpu.cfs_period_us".to_owned(), period.to_string(), false);
                }
                if let Some(quota) = self.cpu_quota.filter(|quota| *quota != 0) {
                    set("cpu", "cpu.cfs_quota_us".to_owned(), quota.to_string(), false);
                }
            }
            Version::V2 => {
                let or_max = |limit: i64| {
                    if limit < 0 {
                        "max".to_owned()
                    } else {
                        limit.to_string()
                    }
                };
                if let Some(memory) = self.memory.filter(|bytes| *bytes != 0) {
                    set("memory", "memory.max".to_owned(), or_max(memory), false);
                }
                if let Some(shares) = self.cpu_shares {
                    set(
                        "cpu",
                        "cpu.weight".to_owned(),
                        shares_to_weight(shares).to_string(),
                        false,
                    );
                }
                if let (Some(quota), Some(period)) = (self.cpu_quota, self.cpu_period) {
                    let quota = or_max(if quota == 0 { UNLIMITED } else { quota });
                    set("cpu", "cpu.max".to_owned(), format!("{quota} {period}"), false);
                }
            }
        }
        let (limit, reserved) = match version {
            Version::V1 => ("limit_in_bytes", "rsvd.limit_in_bytes"),
            Version::V2 => ("max", "rsvd.max"),
        };
        for (size, bytes) in &self.huge_pages {
            set(
                "hugetlb",
                format!("hugetlb.{size}.{limit}"),
                bytes.to_string(),
                false,
            );
            set(
                "hugetlb",
                format!("hugetlb.{size}.{reserved}"),
                bytes.to_string(),
                true,
            );
        }
        settings
    }
}

/// `HugePageLimits`: a pod may not use huge pages that it did not request.
fn huge_pages(node: &NodeSettings, totals: &PodTotals) -> BTreeMap<String, i64> {
    let asked = |size: &String| totals.huge_pages.get(size).copied().unwrap_or(0);
    let sizes = node.huge_page_sizes.iter();
    sizes.map(|size| (size.clone(), asked(size))).collect()
}

/// Converts `cpu.shares` to `cpu.weight` (`getCPUWeight`).
fn shares_to_weight(shares: i64) -> i64 {
    1 + ((shares.clamp(*SHARES.start(), *SHARES.end()) - SHARES.start()) * 9999)
        / (SHARES.end() - SHARES.start())
}

/// Converts back, as exactly as possible (`cpuWeightToCPUShares`).
pub(super) fn weight_to_shares(weight: i64) -> i64 {
    ((weight.clamp(1, 10_000) - 1) * (SHARES.end() - SHARES.start())) / 9999 + SHARES.start()
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

    fn node(period_ms: u64, quota: bool) -> NodeSettings {
        NodeSettings {
            cpu_cfs_quota: quota,
            cpu_cfs_quota_period: Duration::from_millis(period_ms),
            ..NodeSettings::default()
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
            let limits = Limits::of_pod(&node(period, quota), &pod(spec)).unwrap();
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
        let limits = Limits::of_pod(&node, &pod(json!({"containers": [asks, asks]}))).unwrap();
        assert_eq!(limits.pids, Some(1000));
        let expected = [("1GB".to_owned(), 0), ("2MB".to_owned(), 8 << 20)];
        assert_eq!(limits.huge_pages, expected.into());
        node.pod_pids_limit = Some(-1);
        let limits = Limits::of_pod(&node, &pod(json!({"containers": []}))).unwrap();
        assert_eq!(limits.pids, None, "-1 is no limit");
        let class = Limits::of_class(&node, Some(2));
        assert_eq!(class.huge_pages["2MB"], 1 << 62);
    }

    #[test]
    fn all_pods_together() {
        let mut node = node(100, true);
        node.huge_page_sizes = vec!["2MB".into(), "1GB".into()];
        let resources = |amounts: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            let amounts = amounts.iter();
            amounts
                .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
                .collect()
        };
        let left = resources(&[
            ("cpu", "1900m"),
            ("memory", "3Gi"),
            ("pid", "32768"),
            ("hugepages-2Mi", "8Mi"),
            ("hugepages-64Ki", "64Ki"),
            ("ephemeral-storage", "1Gi"),
        ]);
        let expected = Limits {
            cpu_shares: Some(1945),
            memory: Some(3 << 30),
            pids: Some(32768),
            huge_pages: [("1GB".to_owned(), 0), ("2MB".to_owned(), 8 << 20)].into(),
            ..Limits::default()
        };
        assert_eq!(Limits::of_all_pods(&node, &left).unwrap(), expected);
        let problem = Limits::of_all_pods(&node, &resources(&[("memory", "much")])).unwrap_err();
        assert!(problem.starts_with("memory: "), "{problem}");
    }

    #[test]
    fn what_is_written() {
        let limits = Limits {
            cpu_shares: Some(102),
            cpu_quota: Some(20_000),
            cpu_period: Some(100_000),
            memory: Some(1 << 20),
            pids: Some(7),
            huge_pages: [("2MB".to_owned(), 4096)].into(),
        };
        let written = |limits: &Limits, version| -> Vec<String> {
            let settings = limits.settings(version).into_iter();
            settings
                .map(|it| {
                    format!(
                        "{}: {}={}{}",
                        it.controller,
                        it.file,
                        it.value,
                        if it.optional { "?" } else { "" }
                    )
                })
                .collect()
        };
        let expected = [
            "pids: pids.max=7",
            "memory: memory.limit_in_bytes=1048576",
            "cpu: cpu.shares=102",
            "cpu: cpu.cfs_period_us=100000",
            "cpu: cpu.cfs_quota_us=20000",
            "hugetlb: hugetlb.2MB.limit_in_bytes=4096",
            "hugetlb: hugetlb.2MB.rsvd.limit_in_bytes=4096?",
        ];
        assert_eq!(written(&limits, Version::V1), expected);
        let expected = [
            "pids: pids.max=7",
            "memory: memory.max=1048576",
            "cpu: cpu.weight=4",
            "cpu: cpu.max=20000 100000",
            "hugetlb: hugetlb.2MB.max=4096",
            "hugetlb: hugetlb.2MB.rsvd.max=4096?",
        ];
        assert_eq!(written(&limits, Version::V2), expected);
        assert_eq!(written(&Limits::default(), Version::V2), [""; 0]);
        let unbound = Limits {
            cpu_quota: Some(-1),
            cpu_period: Some(100_000),
            memory: Some(-1),
            ..Limits::default()
        };
        assert_eq!(
            written(&unbound, Version::V2),
            ["memory: memory.max=max", "cpu: cpu.max=max 100000"]
        );
        // Bounds of nothing are none.
        let nothing = Limits {
            cpu_quota: Some(0),
            cpu_period: Some(100_000),
            memory: Some(0),
            ..Limits::default()
        };
        assert_eq!(written(&nothing, Version::V1), ["cpu: cpu.cfs_period_us=100000"]);
        assert_eq!(written(&nothing, Version::V2), ["cpu: cpu.max=max 100000"]);
    }

    #[test]
    fn shares_become_weights() {
        for (shares, weight) in [
            (2, 1),
            (102, 4),
            (1024, 39),
            (2048, 79),
            (262_144, 10_000),
            (300_000, 10_000),
        ] {
            assert_eq!(shares_to_weight(shares), weight, "{shares}");
        }
        for (weight, shares) in [(0, 2), (1, 2), (2, 28), (4, 80), (39, 998), (10_000, 262_144)] {
            assert_eq!(weight_to_shares(weight), shares, "{weight}");
        }
    }
}
