//! The properties of a slice, as libcontainer sets them for the kubelet.

use kubelet_core::cgroups::{CgroupLimits, CgroupName};

use crate::CpuSet;
use crate::cgroups::limits::shares_to_weight;
use crate::cgroups::mounts::Version;

/// No limit (`USEC_INFINITY`, `CGROUP_LIMIT_MAX`).
const INFINITY: u64 = u64::MAX;
/// The kernel's default period of a quota, in microseconds (`defCPUQuotaPeriod`).
const DEFAULT_PERIOD: i64 = 100_000;
/// Systemd rounds quotas to whole percents of a CPU, in microseconds of a second.
const PERCENT: u64 = 10_000;

/// The first version of systemd with `CPUQuotaPeriodUSec`.
const WITH_QUOTA_PERIOD: u32 = 242;
/// The first version of systemd with `AllowedCPUs`.
const WITH_ALLOWED_CPUS: u32 = 244;

/// A property of a unit.
pub(super) type Property = (&'static str, Value);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Bool(bool),
    Number(u64),
    Text(String),
    Texts(Vec<String>),
    Bytes(Vec<u8>),
}

/// What a new slice is started with (`Apply`). Its limits follow.
pub(super) fn of_new_slice(name: &CgroupName, version: Version) -> Vec<Property> {
    let io = match version {
        Version::V1 => "BlockIOAccounting",
        Version::V2 => "IOAccounting",
    };
    let description = format!("libcontainer container {}", name.slice());
    vec![
        ("Description", Value::Text(description)),
        // The slice above starts with it.
        ("Wants", Value::Texts(vec![name.parent().slice()])),
        ("MemoryAccounting", Value::Bool(true)),
        ("CPUAccounting", Value::Bool(true)),
        (io, Value::Bool(true)),
        ("TasksAccounting", Value::Bool(true)),
        // Or a shutdown would stop the slice, with the pods in it, before the agent has ended them.
        ("DefaultDependencies", Value::Bool(false)),
    ]
}

/// Its limits. Rounds the quota as systemd does, so that the files get the same value (`genV1ResourcesProperties`,
/// `genV2ResourcesProperties`).
///
/// `systemd` is the version of systemd. Huge pages have no property.
pub(super) fn of_limits(limits: &mut CgroupLimits, version: Version, systemd: u32) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut set = |name, value| properties.push((name, Value::Number(value)));
    if let Some(memory) = limits.memory.filter(|bytes| *bytes != 0) {
        let name = match version {
            Version::V1 => "MemoryLimit",
            Version::V2 => "MemoryMax",
        };
        set(name, limit(memory));
    }
    match (limits.cpu_shares, version) {
        (Some(shares), Version::V1) => set("CPUShares", limit(shares)),
        (Some(shares), Version::V2) => set("CPUWeight", limit(shares_to_weight(shares))),
        (None, _) => {}
    }
    quota(limits, systemd, &mut set);
    if let Some(pids) = limits.pids {
        // Systemd accepts no 0.
        set("TasksMax", limit(pids).max(1));
    }
    let protected = [("MemoryMin", limits.memory_min), ("MemoryLow", limits.memory_low)];
    if version == Version::V2 {
        for (name, bytes) in protected {
            if let Some(bytes) = bytes {
                set(name, limit(bytes));
            }
        }
    }
    if let Some(cpus) = &limits.cpus
        && systemd >= WITH_ALLOWED_CPUS
        && let Ok(cpus) = cpus.parse::<CpuSet>()
        && !cpus.is_empty()
    {
        properties.push(("AllowedCPUs", Value::Bytes(bits(&cpus))));
    }
    properties
}

/// `addCPUQuota`
fn quota(limits: &mut CgroupLimits, systemd: u32, set: &mut impl FnMut(&'static str, u64)) {
    let (quota, period) = (
        limits.cpu_quota.unwrap_or_default(),
        limits.cpu_period.unwrap_or_default(),
    );
    if period != 0 && systemd >= WITH_QUOTA_PERIOD {
        set("CPUQuotaPeriodUSec", limit(period));
    }
    if quota == 0 && period == 0 {
        return;
    }
    let mut of_second = INFINITY;
    if quota > 0 {
        let period = if period == 0 { DEFAULT_PERIOD } else { period };
        let (quota, period) = (limit(quota), limit(period).max(1));
        of_second = quota.saturating_mul(1_000_000) / period;
        if !of_second.is_multiple_of(PERCENT) {
            of_second = (of_second / PERCENT + 1) * PERCENT;
            let rounded = of_second.saturating_mul(period) / 1_000_000;
            limits.cpu_quota = Some(i64::try_from(rounded).unwrap_or(i64::MAX));
        }
    }
    set("CPUQuotaPerSecUSec", of_second);
}

/// A negative limit is none.
fn limit(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(INFINITY)
}

/// CPUs as a mask, the lowest eight first (`RangeToBits`).
fn bits(cpus: &CpuSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cpu in cpus.iter() {
        if bytes.len() <= cpu / 8 {
            bytes.resize(cpu / 8 + 1, 0);
        }
        bytes[cpu / 8] |= 1 << (cpu % 8);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(properties: Vec<Property>) -> Vec<String> {
        let shown = properties.into_iter().map(|(name, value)| match value {
            Value::Bool(value) => format!("{name}={value}"),
            Value::Number(INFINITY) => format!("{name}=infinity"),
            Value::Number(value) => format!("{name}={value}"),
            Value::Text(text) => format!("{name}={text}"),
            Value::Texts(texts) => format!("{name}={texts:?}"),
            Value::Bytes(bytes) => format!("{name}={bytes:?}"),
        });
        shown.collect()
    }

    #[test]
    fn a_new_slice_wants_the_one_above() {
        let name = CgroupName::from_cgroupfs("/kubepods/burstable/poda-1");
        let expected = [
            "Description=libcontainer container kubepods-burstable-poda_1.slice",
            "Wants=[\"kubepods-burstable.slice\"]",
            "MemoryAccounting=true",
            "CPUAccounting=true",
            "IOAccounting=true",
            "TasksAccounting=true",
            "DefaultDependencies=false",
        ];
        assert_eq!(shown(of_new_slice(&name, Version::V2)), expected);
        let of_v1 = shown(of_new_slice(&CgroupName::from_cgroupfs("/kubepods"), Version::V1));
        assert_eq!(of_v1[0], "Description=libcontainer container kubepods.slice");
        assert_eq!(
            (of_v1[1].as_str(), of_v1[4].as_str()),
            ("Wants=[\"-.slice\"]", "BlockIOAccounting=true")
        );
    }

    fn limits(change: impl FnOnce(&mut CgroupLimits)) -> CgroupLimits {
        let mut limits = CgroupLimits::default();
        change(&mut limits);
        limits
    }

    #[test]
    fn limits_become_properties() {
        let all = limits(|limits| {
            limits.cpu_shares = Some(102);
            (limits.cpu_quota, limits.cpu_period) = (Some(20_000), Some(100_000));
            (limits.memory, limits.pids) = (Some(1 << 20), Some(7));
            limits.cpus = Some("0-3,9".to_owned());
            (limits.memory_min, limits.memory_low) = (Some(0), Some(4096));
            limits.huge_pages = [("2MB".to_owned(), 4096)].into();
        });
        let of_v2: &[&str] = &[
            "MemoryMax=1048576",
            "CPUWeight=4",
            "CPUQuotaPeriodUSec=100000",
            "CPUQuotaPerSecUSec=200000",
            "TasksMax=7",
            "MemoryMin=0",
            "MemoryLow=4096",
            "AllowedCPUs=[15, 2]",
        ];
        let of_v1: &[&str] = &[
            "MemoryLimit=1048576",
            "CPUShares=102",
            "CPUQuotaPeriodUSec=100000",
            "CPUQuotaPerSecUSec=200000",
            "TasksMax=7",
            "AllowedCPUs=[15, 2]",
        ];
        let of_old: &[&str] = &["MemoryMax=1048576", "CPUWeight=4", "CPUQuotaPerSecUSec=200000"];
        let unlimited = limits(|limits| {
            (limits.cpu_quota, limits.cpu_period) = (Some(-1), Some(100_000));
            (limits.memory, limits.pids) = (Some(-1), Some(-1));
        });
        let of_unlimited: &[&str] = &[
            "MemoryMax=infinity",
            "CPUQuotaPeriodUSec=100000",
            "CPUQuotaPerSecUSec=infinity",
            "TasksMax=infinity",
        ];
        let nothing = limits(|limits| (limits.memory, limits.pids) = (Some(0), Some(0)));
        for (limits, version, systemd, expected) in [
            (&all, Version::V2, 252, of_v2),
            (&all, Version::V1, 252, of_v1),
            (&unlimited, Version::V2, 252, of_unlimited),
            (&nothing, Version::V2, 252, &["TasksMax=1"]),
            (&CgroupLimits::default(), Version::V1, 252, &[]),
        ] {
            assert_eq!(shown(of_limits(&mut limits.clone(), version, systemd)), expected);
        }
        let old = shown(of_limits(&mut all.clone(), Version::V2, 241));
        assert_eq!(old[..3], *of_old);
        assert!(!old.iter().any(|property| property.starts_with("AllowedCPUs")));
    }

    #[test]
    fn quotas_are_whole_percents() {
        // quota, period: per second, the quota that the files get
        for (quota, period, per_second, written) in [
            (1000, 100_000, 10_000, 1000),
            (1100, 100_000, 20_000, 2000),
            (33_300, 100_000, 340_000, 34_000),
            (1000, 5000, 200_000, 1000),
            (1501, 5000, 310_000, 1550),
            (150_000, 100_000, 1_500_000, 150_000),
        ] {
            let mut limits = limits(|limits| {
                (limits.cpu_quota, limits.cpu_period) = (Some(quota), Some(period));
            });
            let properties = of_limits(&mut limits, Version::V2, 252);
            assert_eq!(
                properties[1],
                ("CPUQuotaPerSecUSec", Value::Number(per_second)),
                "{quota} {period}"
            );
            assert_eq!(limits.cpu_quota, Some(written), "{quota} {period}");
        }
        let mut alone = limits(|limits| limits.cpu_quota = Some(50_000));
        let expected = [("CPUQuotaPerSecUSec", Value::Number(500_000))];
        assert_eq!(of_limits(&mut alone, Version::V1, 252), expected);
    }
}
