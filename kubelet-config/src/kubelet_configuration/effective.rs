//! What settings come to for those that go by them.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::KubeletConfiguration;
use crate::FeatureGates;

/// The waits before a container that failed is started again (`MaxContainerBackOff`, `initialContainerBackOff`…).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The same with the gate `ReduceDefaultCrashLoopBackOffDecay`.
const REDUCED_FIRST_WAIT: Duration = Duration::from_secs(1);
const REDUCED_LONGEST_WAIT: Duration = Duration::from_secs(60);

impl KubeletConfiguration {
    /// The first and the longest wait before a container that failed is started again, as `crashLoopBackOff` and its gates
    /// say (`newCrashLoopBackOff`).
    pub fn restart_back_off(&self, gates: &FeatureGates) -> (Duration, Duration) {
        let (first, longest) = match gates.enabled("ReduceDefaultCrashLoopBackOffDecay") {
            true => (REDUCED_FIRST_WAIT, REDUCED_LONGEST_WAIT),
            false => (FIRST_WAIT, LONGEST_WAIT),
        };
        let given = self.crash_loop_back_off.max_container_restart_period;
        let given = given.filter(|_| gates.enabled("KubeletCrashLoopBackOffMax"));
        let longest = given.map_or(longest, |given| given.try_into().unwrap_or_default());
        (first.min(longest), longest)
    }

    /// How many CPUs `reservedSystemCPUs` names. What is neither a CPU nor a range of them was refused before, and counts as none.
    pub fn reserved_system_cpus_count(&self) -> u32 {
        let ranges = self.reserved_system_cpus.split(',').filter_map(cpu_range);
        let mut ranges: Vec<_> = ranges.map(RangeInclusive::into_inner).collect();
        ranges.sort_unstable();
        // One that two ranges name counts once.
        let (mut count, mut counted_to) = (0_i64, -1_i64);
        for (first, last) in ranges {
            let first = first.max(counted_to.saturating_add(1));
            count = count.saturating_add(last.saturating_sub(first).saturating_add(1).max(0));
            counted_to = counted_to.max(last);
        }
        count.try_into().unwrap_or(u32::MAX)
    }

    /// The addresses of `clusterDNS`. What is no address is logged and left out, as by the kubelet.
    pub fn cluster_dns_ips(&self) -> Vec<IpAddr> {
        let parsed = |address: &String| {
            let parsed = address.parse().ok();
            if parsed.is_none() {
                tracing::warn!(address, "clusterDNS: not an IP address");
            }
            parsed
        };
        self.cluster_dns.iter().filter_map(parsed).collect()
    }
}

/// `7` or `0-3`, each a number as Go's `strconv.Atoi` takes it.
pub(super) fn cpu_range(text: &str) -> Option<RangeInclusive<i64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    // `str::parse` differs from Go in nothing but what precedes the digits, and a minus cannot be there.
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet_configuration::GoDuration;

    #[test]
    fn gates_say_how_long_a_container_waits() {
        for (gates, given, first, longest) in [
            (vec![], None, 10, 300),
            (vec![("KubeletCrashLoopBackOffMax", true)], Some(5), 5, 5),
            (vec![("KubeletCrashLoopBackOffMax", true)], Some(20), 10, 20),
            (vec![("KubeletCrashLoopBackOffMax", false)], Some(5), 10, 300),
            (vec![("ReduceDefaultCrashLoopBackOffDecay", true)], None, 1, 60),
        ] {
            let mut config = KubeletConfiguration::default();
            config.crash_loop_back_off.max_container_restart_period = given.map(GoDuration::from_secs);
            let mut known = FeatureGates::new();
            let wanted = gates.iter().map(|(gate, on)| ((*gate).to_owned(), *on));
            known.set_from_map(&wanted.collect()).unwrap();
            let (found_first, found_longest) = config.restart_back_off(&known);
            assert_eq!(
                (found_first.as_secs(), found_longest.as_secs()),
                (first, longest),
                "{gates:?} {given:?}"
            );
        }
    }

    #[test]
    fn a_reserved_cpu_counts_once() {
        for (cpus, expected) in [
            ("", 0),
            ("3", 1),
            ("0-3", 4),
            ("0-3,8,10-11", 7),
            ("4-7,0-5,2", 8),
            ("x", 0),
            ("0-4294967295", u32::MAX),
            ("0-9223372036854775807,9223372036854775807", u32::MAX),
        ] {
            let config = KubeletConfiguration {
                reserved_system_cpus: cpus.into(),
                ..KubeletConfiguration::default()
            };
            assert_eq!(config.reserved_system_cpus_count(), expected, "{cpus}");
        }
    }

    #[test]
    fn what_is_no_address_is_left_out() {
        let config = KubeletConfiguration {
            cluster_dns: vec!["10.96.0.10".into(), "dns".into(), "fd00::a".into()],
            ..KubeletConfiguration::default()
        };
        let expected: [IpAddr; 2] = ["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()];
        assert_eq!(config.cluster_dns_ips(), expected);
    }
}
