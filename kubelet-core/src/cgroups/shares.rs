//! CPU in millicores as the kernel's shares and quotas (`helpers_linux.go`).

use std::ops::RangeInclusive;

/// The CPU shares that the kernel accepts (`MinShares`, `MaxShares`).
pub const SHARES: RangeInclusive<i64> = 2..=262_144;
/// `SharesPerCPU`
const SHARES_PER_CPU: i64 = 1024;
/// The least quota in microseconds (`MinQuotaPeriod`).
const MIN_QUOTA_PERIOD: i64 = 1000;

/// The CPU shares of a request in millicores (`MilliCPUToShares`).
pub fn milli_cpu_to_shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(SHARES_PER_CPU) / 1000).clamp(*SHARES.start(), *SHARES.end())
}

/// Converts back, rounded up; 0 for fewer shares than the kernel's minimum (`SharesToMilliCPU`).
pub fn shares_to_milli_cpu(shares: i64) -> i64 {
    if shares < *SHARES.start() {
        return 0;
    }
    let milli_shares = shares.saturating_mul(1000);
    milli_shares / SHARES_PER_CPU + i64::from(milli_shares % SHARES_PER_CPU != 0)
}

/// The quota of a limit in millicores, in microseconds per `period`; 0 for no limit (`MilliCPUToQuota`).
pub fn milli_cpu_to_quota(milli_cpu: i64, period: i64) -> i64 {
    match milli_cpu {
        0 => 0,
        _ => (milli_cpu.saturating_mul(period) / 1000).max(MIN_QUOTA_PERIOD),
    }
}
