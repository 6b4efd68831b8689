//! The limits of the cgroups above pods, and the files to write.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::{CgroupLimits, SHARES, UNLIMITED, huge_page_size, milli_cpu_to_shares};
use kubelet_core::quantity::Amount;

use super::mounts::Version;

/// `hugetlb` of the QoS classes: more than any machine has.
const UNBOUNDED_PAGES: i64 = 1 << 62;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) controller: &'static str,
    pub(super) file: String,
    pub(super) value: String,
    /// Whether the file may be missing: not every kernel has it.
    pub(super) optional: bool,
}

/// The limits of a QoS class: huge pages are limited only by pods (`setHugePagesUnbounded`).
pub(super) fn of_class(page_sizes: &[String], cpu_shares: Option<i64>) -> CgroupLimits {
    let mut limits = CgroupLimits::default();
    limits.cpu_shares = cpu_shares;
    let sizes = page_sizes.iter();
    limits.huge_pages = sizes.map(|size| (size.clone(), UNBOUNDED_PAGES)).collect();
    limits
}

/// The limits of a cgroup that may use these resources, or of those only the CPU (`getCgroupConfigInternal`). Huge pages
/// that are not in the list may not be used.
///
/// # Errors
///
/// Names the amount that is not a quantity.
pub(super) fn of_resources(
    page_sizes: &[String],
    resources: &BTreeMap<String, Quantity>,
    only_cpu: bool,
) -> Result<CgroupLimits, String> {
    let mut limits = CgroupLimits::default();
    limits.huge_pages = page_sizes.iter().map(|size| (size.clone(), 0)).collect();
    for (name, amount) in resources {
        let amount = Amount::try_from(amount).map_err(|error| format!("{name}: {error}"))?;
        match name.as_str() {
            "cpu" => limits.cpu_shares = Some(milli_cpu_to_shares(amount.milli_value())),
            _ if only_cpu => {}
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
pub(super) fn least_cpu() -> CgroupLimits {
    let mut limits = CgroupLimits::default();
    limits.cpu_shares = Some(*SHARES.start());
    limits
}

/// The writes, in order.
pub(super) fn settings(limits: &CgroupLimits, version: Version) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |controller, file: String, value: String, optional| {
        settings.push(Setting {
            controller,
            file,
            value,
            optional,
        });
    };
    let or_max = |limit: i64| match limit < 0 {
        true => "max".to_owned(),
        false => limit.to_string(),
    };
    if let Some(pids) = limits.pids {
        // As with systemd, which accepts no 0.
        let pids = if pids == 0 { 1 } else { pids };
        set("pids", "pids.max".to_owned(), or_max(pids), false);
    }
    if let Some(cpus) = &limits.cpus {
        set("cpuset", "cpuset.cpus".to_owned(), cpus.clone(), false);
    }
    match version {
        Version::V1 => {
            if let Some(memory) = limits.memory.filter(|bytes| *bytes != 0) {
                set(
                    "memory",
                    "memory.limit_in_bytes".to_owned(),
                    memory.to_string(),
                    false,
                );
            }
            if let Some(shares) = limits.cpu_shares {
                set("cpu", "cpu.shares".to_owned(), shares.to_string(), false);
            }
            if let Some(period) = limits.cpu_period.filter(|period| *period != 0) {
                set("cpu", "cpu.cfs_period_us".to_owned(), period.to_string(), false);
            }
            if let Some(quota) = limits.cpu_quota.filter(|quota| *quota != 0) {
                set("cpu", "cpu.cfs_quota_us".to_owned(), quota.to_string(), false);
            }
        }
        Version::V2 => {
            if let Some(memory) = limits.memory.filter(|bytes| *bytes != 0) {
                set("memory", "memory.max".to_owned(), or_max(memory), false);
            }
            if let Some(shares) = limits.cpu_shares {
                set(
                    "cpu",
                    "cpu.weight".to_owned(),
                    shares_to_weight(shares).to_string(),
                    false,
                );
            }
            if let (Some(quota), Some(period)) = (limits.cpu_quota, limits.cpu_period) {
                let quota = or_max(if quota == 0 { UNLIMITED } else { quota });
                set("cpu", "cpu.max".to_owned(), format!("{quota} {period}"), false);
            }
            for (file, bytes) in [
                ("memory.min", limits.memory_min),
                ("memory.low", limits.memory_low),
            ] {
                if let Some(bytes) = bytes {
                    set("memory", file.to_owned(), bytes.to_string(), false);
                }
            }
        }
    }
    let (limit, reserved) = match version {
        Version::V1 => ("limit_in_bytes", "rsvd.limit_in_bytes"),
        Version::V2 => ("max", "rsvd.max"),
    };
    for (size, bytes) in &limits.huge_pages {
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

/// Converts `cpu.shares` to `cpu.weight` (`getCPUWeight`).
pub(super) fn shares_to_weight(shares: i64) -> i64 {
    1 + ((shares.clamp(*SHARES.start(), *SHARES.end()) - SHARES.start()) * 9999)
        / (SHARES.end() - SHARES.start())
}

/// Converts back, as exactly as possible (`cpuWeightToCPUShares`).
pub(super) fn weight_to_shares(weight: i64) -> i64 {
    ((weight.clamp(1, 10_000) - 1) * (SHARES.end() - SHARES.start())) / 9999 + SHARES.start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pods_together() {
        let sizes = ["2MB".to_owned(), "1GB".to_owned()];
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
        let mut expected = CgroupLimits::default();
        expected.cpu_shares = Some(1945);
        expected.memory = Some(3 << 30);
        expected.pids = Some(32768);
        expected.huge_pages = [("1GB".to_owned(), 0), ("2MB".to_owned(), 8 << 20)].into();
        assert_eq!(of_resources(&sizes, &left, false).unwrap(), expected);
        let mut expected = of_class(&[], Some(1945));
        expected.huge_pages = [("1GB".to_owned(), 0), ("2MB".to_owned(), 0)].into();
        assert_eq!(
            of_resources(&sizes, &left, true).unwrap(),
            expected,
            "the CPU alone"
        );
        assert_eq!(of_class(&sizes, None).huge_pages["2MB"], 1 << 62);
        let problem = of_resources(&sizes, &resources(&[("memory", "much")]), false).unwrap_err();
        assert!(problem.starts_with("memory: "), "{problem}");
    }

    #[test]
    fn what_is_written() {
        let mut limits = CgroupLimits::default();
        limits.cpu_shares = Some(102);
        limits.cpu_quota = Some(20_000);
        limits.cpu_period = Some(100_000);
        limits.memory = Some(1 << 20);
        limits.pids = Some(7);
        limits.huge_pages = [("2MB".to_owned(), 4096)].into();
        limits.cpus = Some("0-3".to_owned());
        (limits.memory_min, limits.memory_low) = (Some(0), Some(4096));
        let written = |limits: &CgroupLimits, version| -> Vec<String> {
            let settings = super::settings(limits, version).into_iter();
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
            "cpuset: cpuset.cpus=0-3",
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
            "cpuset: cpuset.cpus=0-3",
            "memory: memory.max=1048576",
            "cpu: cpu.weight=4",
            "cpu: cpu.max=20000 100000",
            "memory: memory.min=0",
            "memory: memory.low=4096",
            "hugetlb: hugetlb.2MB.max=4096",
            "hugetlb: hugetlb.2MB.rsvd.max=4096?",
        ];
        assert_eq!(written(&limits, Version::V2), expected);
        assert_eq!(written(&CgroupLimits::default(), Version::V2), [""; 0]);
        let mut unbound = CgroupLimits::default();
        unbound.cpu_quota = Some(-1);
        unbound.cpu_period = Some(100_000);
        unbound.memory = Some(-1);
        assert_eq!(
            written(&unbound, Version::V2),
            ["memory: memory.max=max", "cpu: cpu.max=max 100000"]
        );
        // Bounds of nothing are none.
        let mut nothing = CgroupLimits::default();
        nothing.cpu_quota = Some(0);
        nothing.cpu_period = Some(100_000);
        nothing.memory = Some(0);
        assert_eq!(written(&nothing, Version::V1), ["cpu: cpu.cfs_period_us=100000"]);
        assert_eq!(written(&nothing, Version::V2), ["cpu: cpu.max=max 100000"]);
        let mut pids = CgroupLimits::default();
        for (limit, text) in [(-1, "pids: pids.max=max"), (0, "pids: pids.max=1")] {
            pids.pids = Some(limit);
            assert_eq!(written(&pids, Version::V1), [text]);
        }
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
