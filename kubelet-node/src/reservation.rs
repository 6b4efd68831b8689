//! The resources that are reserved on a node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::{Amount, Format, ParseAmountError};

use crate::setters::machine::capacity;
use crate::{Error, MachineInfo, Result};

/// The resources that pods cannot use, for the kubelet's three reasons (`GetNodeAllocatableReservation`).
///
/// ```
/// use std::collections::BTreeMap;
/// use kubelet_node::Reservation;
///
/// let list = |name: &str, amount: &str| BTreeMap::from([(name.to_owned(), amount.to_owned())]);
/// let reserved = Reservation::new(
///     &list("cpu", "100m"),             // systemReserved
///     &list("memory", "512Mi"),         // kubeReserved
///     &list("memory.available", "1%"),  // evictionHard
/// )?;
/// assert!(Reservation::new(&list("cpu", "much"), &list("cpu", "1"), &list("memory.available", "1%")).is_err());
/// # Ok::<(), kubelet_node::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reservation {
    reserved: BTreeMap<String, Vec<Amount>>,
    eviction_hard: BTreeMap<&'static str, Threshold>,
}

/// The amount of a resource that must stay free.
#[derive(Clone, Copy, Debug)]
enum Threshold {
    Amount(Amount),
    /// A fraction of the capacity. The kubelet stores it in single precision, too.
    Part(f32),
}

impl Reservation {
    /// The kubelet's defaults: the eviction thresholds of 100 MiB of memory and 10 % of the file system
    /// (`DefaultEvictionHard`).
    pub fn of_defaults() -> Self {
        Self {
            reserved: BTreeMap::new(),
            eviction_hard: BTreeMap::from([
                (MEMORY, Threshold::Amount(Amount::from_units(100 * 1024 * 1024))),
                (EPHEMERAL_STORAGE, Threshold::Part(10.0 / 100.0)),
            ]),
        }
    }

    /// Reads the fields `systemReserved`, `kubeReserved` and `evictionHard` of a `KubeletConfiguration`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] names the first invalid amount, resource that cannot be reserved, or unknown signal.
    pub fn new(
        system_reserved: &BTreeMap<String, String>,
        kube_reserved: &BTreeMap<String, String>,
        eviction_hard: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut problems = Vec::new();
        let read = Self::read(system_reserved, kube_reserved, eviction_hard, &mut problems);
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(read),
        }
    }

    /// All that [`new`](Self::new) refuses in these fields, each an [`Error::Invalid`].
    pub fn problems(
        system_reserved: &BTreeMap<String, String>,
        kube_reserved: &BTreeMap<String, String>,
        eviction_hard: &BTreeMap<String, String>,
    ) -> Vec<Error> {
        let mut problems = Vec::new();
        Self::read(system_reserved, kube_reserved, eviction_hard, &mut problems);
        problems
    }

    /// What can be read of these fields. [`problems`](Self::problems) has the rest.
    pub fn of_valid(
        system_reserved: &BTreeMap<String, String>,
        kube_reserved: &BTreeMap<String, String>,
        eviction_hard: &BTreeMap<String, String>,
    ) -> Self {
        Self::read(system_reserved, kube_reserved, eviction_hard, &mut Vec::new())
    }

    /// Reads what can be read, and notes the rest.
    fn read(
        system_reserved: &BTreeMap<String, String>,
        kube_reserved: &BTreeMap<String, String>,
        eviction_hard: &BTreeMap<String, String>,
        problems: &mut Vec<Error>,
    ) -> Self {
        let mut reserved: BTreeMap<String, Vec<Amount>> = BTreeMap::new();
        for (field, list) in [
            ("systemReserved", system_reserved),
            ("kubeReserved", kube_reserved),
        ] {
            for (resource, text) in list {
                match reserved_amount(field, resource, text) {
                    Ok(amount) => reserved.entry(resource.clone()).or_default().push(amount),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        let mut thresholds = BTreeMap::new();
        for (signal, text) in eviction_hard {
            let threshold = parse_threshold(signal, text).unwrap_or_else(|problem| {
                problems.push(problem);
                None
            });
            // Only these two signals concern resources that the scheduler counts.
            let resource = match signal.as_str() {
                "memory.available" => MEMORY,
                "nodefs.available" => EPHEMERAL_STORAGE,
                _ => continue,
            };
            if let Some(threshold) = threshold {
                thresholds.insert(resource, threshold);
            }
        }
        Self {
            reserved,
            eviction_hard: thresholds,
        }
    }

    /// Reserves `cpus` CPUs (`reservedSystemCPUs`). They replace the `cpu` amounts of both lists.
    #[must_use]
    pub fn with_reserved_system_cpus(mut self, cpus: u32) -> Self {
        if cpus > 0 {
            self.reserved
                .insert("cpu".to_owned(), vec![Amount::from_units(cpus.into())]);
        }
        self
    }

    /// Checks that the reservations fit into the machine's capacity (`validateNodeAllocatable`). The kubelet
    /// does not start if they do not.
    ///
    /// # Errors
    ///
    /// [`Error::Reservation`] names each resource whose reservation is too large.
    pub fn check(&self, machine: &MachineInfo) -> Result<()> {
        let capacity: BTreeMap<String, Quantity> = capacity(machine).collect();
        let problems: Vec<String> = capacity
            .iter()
            .filter_map(|(resource, there)| {
                let all = Amount::try_from(there).ok()?;
                let kept = self.kept_back(resource, all);
                let format = Format::of(there);
                (kept > all).then(|| {
                    format!(
                        "Resource {resource:?} has a reservation of {} but capacity of {}. Expected capacity >= \
                         reservation.",
                        kept.write(format),
                        all.write(format)
                    )
                })
            })
            .collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error::Reservation {
                problems: problems.join(" "),
            }),
        }
    }

    /// What all pods of a machine may use together: the capacity, including process IDs (`pid`), without
    /// `systemReserved` and `kubeReserved` (`GetNodeAllocatableAbsolute`). Eviction thresholds are not
    /// subtracted.
    pub fn allocatable_absolute(&self, machine: &MachineInfo) -> BTreeMap<String, Quantity> {
        let pids = machine
            .max_pids
            .map(|pids| i64::try_from(pids).unwrap_or(i64::MAX));
        let pids = pids.map(|pids| Amount::from_units(pids).write(Format::DecimalSi));
        let all = capacity(machine).chain(pids.map(|pids| ("pid".to_owned(), Quantity(pids))));
        all.map(|(resource, there)| {
            let left = Amount::try_from(&there).map(|all| {
                let reserved = self.reserved.get(&resource).into_iter().flatten();
                let kept: Amount = reserved.copied().sum();
                Quantity(subtract(all, kept).write(Format::of(&there)))
            });
            (resource, left.unwrap_or(there))
        })
        .collect()
    }

    /// What is kept from pods on a machine, eviction thresholds included; without resources of which nothing is
    /// (`GetNodeAllocatableReservation`).
    pub fn of_node(&self, machine: &MachineInfo) -> BTreeMap<String, Quantity> {
        let kept = |(resource, there): (String, Quantity)| {
            let kept = self.kept_back(&resource, Amount::try_from(&there).ok()?);
            (!kept.is_zero()).then(|| (resource, Quantity(kept.write(Format::of(&there)))))
        };
        capacity(machine).filter_map(kept).collect()
    }

    /// The part of `capacity` that pods may use; never negative.
    pub(crate) fn allocatable(&self, resource: &str, capacity: &Quantity) -> Quantity {
        // Only the machine's own resources can be reserved.
        if !(matches!(resource, "cpu" | MEMORY | EPHEMERAL_STORAGE) || is_huge_pages(resource)) {
            return capacity.clone();
        }
        let Ok(all) = Amount::try_from(capacity) else {
            return capacity.clone();
        };
        let kept = self.kept_back(resource, all);
        if kept.is_zero() {
            return capacity.clone();
        }
        Quantity(subtract(all, kept).write(Format::of(capacity)))
    }

    /// The reserved part of a resource with the capacity `all` (`GetNodeAllocatableReservation`).
    fn kept_back(&self, resource: &str, all: Amount) -> Amount {
        let threshold = self
            .eviction_hard
            .get(resource)
            .map(|threshold| match *threshold {
                Threshold::Amount(amount) => amount,
                // Cut to whole units.
                Threshold::Part(part) => Amount::from_units((all.value() as f64 * f64::from(part)) as i64),
            });
        let reserved = self.reserved.get(resource).into_iter().flatten().copied();
        reserved.chain(threshold).sum()
    }
}

const MEMORY: &str = "memory";
pub(crate) const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// What can be reserved (`parseResourceList`).
const RESERVABLE: [&str; 4] = ["cpu", MEMORY, EPHEMERAL_STORAGE, "pid"];

/// The known eviction signals (`validSignal`).
const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Whether it is a resource such as `hugepages-2Mi` (`IsHugePageResourceName`).
pub(crate) fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// The difference; never negative. Amounts beyond 9 PB are computed in whole units.
pub(crate) fn subtract(from: Amount, amount: Amount) -> Amount {
    let left = if from.is_whole() && amount.is_whole() {
        Amount::from_units(from.value().saturating_sub(amount.value()))
    } else {
        Amount::from_milli(from.milli_value().saturating_sub(amount.milli_value()))
    };
    left.max(Amount::ZERO)
}

/// An amount of `systemReserved` or `kubeReserved` (`parseResourceList`).
fn reserved_amount(field: &str, resource: &str, text: &str) -> Result<Amount> {
    let what = format!("{field}[{resource}]");
    let invalid = |why: String| Error::Invalid {
        what: what.clone(),
        why,
    };
    if !RESERVABLE.contains(&resource) {
        let why = format!(
            "cannot reserve {resource:?}: only {} can be",
            RESERVABLE.join(", ")
        );
        return Err(invalid(why));
    }
    let amount = parse(&what, text)?;
    match amount.is_negative() {
        true => Err(invalid(format!("{text} is negative"))),
        false => Ok(amount),
    }
}

fn parse(what: &str, text: &str) -> Result<Amount> {
    text.parse().map_err(|error: ParseAmountError| Error::Invalid {
        what: what.to_owned(),
        why: error.to_string(),
    })
}

/// Parses `100Mi` or `10%`; `0%` and `100%` mean no threshold (`parseThresholdStatement`).
fn parse_threshold(signal: &str, text: &str) -> Result<Option<Threshold>> {
    let what = format!("evictionHard[{signal}]");
    let refuse = |why: String| Error::Invalid {
        what: what.clone(),
        why,
    };
    if !SIGNALS.contains(&signal) {
        return Err(refuse(format!("unsupported eviction signal {signal}")));
    }
    if matches!(text, "0%" | "100%") {
        return Ok(None);
    }
    let Some(percent) = text.strip_suffix('%') else {
        let amount = parse(&what, text)?;
        return match amount.is_positive() {
            true => Ok(Some(Threshold::Amount(amount))),
            false => Err(refuse(format!(
                "eviction threshold {signal} must be positive: {text}"
            ))),
        };
    };
    let percent: f32 = match percent.trim_end_matches('%').parse() {
        Ok(percent) if !f32::is_nan(percent) => percent,
        _ => return Err(refuse(format!("{text} is not a percentage"))),
    };
    if percent < 0.0 {
        let why = format!("eviction percentage threshold {signal} must be >= 0%: {text}");
        return Err(refuse(why));
    }
    if percent > 100.0 {
        let why = format!("eviction percentage threshold {signal} must be <= 100%: {text}");
        return Err(refuse(why));
    }
    Ok(Some(Threshold::Part(percent / 100.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries.iter();
        entries
            .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
            .collect()
    }

    #[test]
    fn allocatable_is_capacity_without_what_is_kept_back() {
        for (system, kube, eviction, resource, capacity, expected) in [
            ("", "", "100Mi", "memory", "24684100Ki", "24581700Ki"),
            ("", "", "", "memory", "24684100Ki", "24684100Ki"),
            ("1Gi", "1Gi", "100Mi", "memory", "4Gi", "1948Mi"),
            ("0.1Gi", "", "", "memory", "1Gi", "966367641600m"),
            ("3Gi", "3Gi", "", "memory", "4Gi", "0"),
            ("100m", "0.5", "", "cpu", "2", "1400m"),
            ("1", "", "", "cpu", "2", "1"),
            ("1Gi", "", "10%", "ephemeral-storage", "10Gi", "8589934576"),
            ("", "", "10%", "ephemeral-storage", "10485761Ki", "9663677322"),
            ("", "", "0%", "ephemeral-storage", "10Gi", "10Gi"),
            ("", "", "100%", "ephemeral-storage", "10Gi", "10Gi"),
            // Cannot be reserved.
            ("", "", "", "hugepages-2Mi", "10Mi", "10Mi"),
            ("", "", "", "pods", "110", "110"),
            ("", "", "", "example.com/x", "3", "3"),
        ] {
            let of = |amount| {
                if str::is_empty(amount) {
                    list(&[])
                } else {
                    list(&[(resource, amount)])
                }
            };
            let signal = if resource == "memory" {
                "memory.available"
            } else {
                "nodefs.available"
            };
            let eviction_hard = if eviction.is_empty() {
                list(&[])
            } else {
                list(&[(signal, eviction)])
            };
            let reservation = Reservation::new(&of(system), &of(kube), &eviction_hard).unwrap();
            let allocatable = reservation.allocatable(resource, &Quantity(capacity.into()));
            assert_eq!(
                allocatable.0, expected,
                "{resource} {capacity} - {system} - {kube} - {eviction}"
            );
        }
    }

    #[test]
    fn all_pods_together_have_what_is_not_reserved() {
        let mut machine = MachineInfo::new(2, 4 << 30);
        machine.max_pids = Some(32768);
        let all = |reservation: &Reservation| -> Vec<(String, String)> {
            let left = reservation.allocatable_absolute(&machine).into_iter();
            left.map(|(resource, amount)| (resource, amount.0)).collect()
        };
        let expected = |cpu: &str, memory: &str, pid: &str| {
            [("cpu", cpu), ("memory", memory), ("pid", pid)]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
        };
        assert_eq!(all(&Reservation::of_defaults()), expected("2", "4Gi", "32768"));
        let system = list(&[("cpu", "100m"), ("memory", "1Gi"), ("pid", "768")]);
        let kube = list(&[("cpu", "400m"), ("pid", "100000")]);
        let eviction = list(&[("memory.available", "100Mi")]);
        let reservation = Reservation::new(&system, &kube, &eviction).unwrap();
        assert_eq!(all(&reservation), expected("1500m", "3Gi", "0"));
    }

    #[test]
    fn all_that_cannot_be_reserved_is_named() {
        let system = list(&[("cpu", "-1"), ("memory", "much"), ("pid", "10")]);
        let kube = list(&[("hugepages-2Mi", "1Gi"), ("cpu", "0")]);
        let hard = list(&[("memory.available", "101%"), ("disk", "5%")]);
        let found = Reservation::problems(&system, &kube, &hard);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "systemReserved[cpu]: -1 is negative",
            "systemReserved[memory]: ",
            "kubeReserved[hugepages-2Mi]: cannot reserve",
            "evictionHard[disk]: unsupported eviction signal disk",
            "evictionHard[memory.available]: eviction percentage threshold",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} {expected}");
        }
        let first = Reservation::new(&system, &kube, &hard).unwrap_err();
        assert_eq!(first.to_string(), found[0]);
    }

    #[test]
    fn defaults_are_those_of_the_configuration() {
        let written = Reservation::new(
            &list(&[]),
            &list(&[]),
            &list(&[
                ("memory.available", "100Mi"),
                ("nodefs.available", "10%"),
                ("nodefs.inodesFree", "5%"),
                ("imagefs.available", "15%"),
            ]),
        );
        let (written, default) = (written.unwrap(), Reservation::of_defaults());
        for (resource, capacity) in [
            ("memory", "123456789Ki"),
            ("ephemeral-storage", "987654321Ki"),
            ("cpu", "3"),
        ] {
            let capacity = Quantity(capacity.into());
            assert_eq!(
                written.allocatable(resource, &capacity),
                default.allocatable(resource, &capacity)
            );
        }
    }

    #[test]
    fn reserved_cpus_stand_in_for_the_lists() {
        let list = list(&[("cpu", "100m"), ("memory", "1Gi")]);
        let reservation = Reservation::new(&list, &list, &BTreeMap::new()).unwrap();
        let of =
            |reservation: &Reservation, resource| reservation.allocatable(resource, &Quantity("4".into())).0;
        assert_eq!(of(&reservation, "cpu"), "3800m");
        assert_eq!(
            of(&reservation.clone().with_reserved_system_cpus(0), "cpu"),
            "3800m"
        );
        let reserved = reservation.with_reserved_system_cpus(1);
        assert_eq!(
            (of(&reserved, "cpu"), of(&reserved, "memory")),
            ("3".to_owned(), "0".to_owned())
        );
    }

    #[test]
    fn what_is_no_amount_is_named() {
        let none = list(&[]);
        let eviction = |signal: &str, text: &str| (none.clone(), list(&[(signal, text)]));
        for ((system, eviction), expected) in [
            (
                (list(&[("cpu", "much")]), none.clone()),
                "systemReserved[cpu]: \"much\" is not a quantity",
            ),
            (
                eviction("memory.available", "-1Mi"),
                "evictionHard[memory.available]: eviction threshold memory.available must be positive: -1Mi",
            ),
            (
                eviction("nodefs.available", "101%"),
                "evictionHard[nodefs.available]: eviction percentage threshold nodefs.available must be <= 100%: 101%",
            ),
            (
                eviction("nodefs.available", "-1%"),
                "evictionHard[nodefs.available]: eviction percentage threshold nodefs.available must be >= 0%: -1%",
            ),
            (
                eviction("nodefs.inodesFree", "x%"),
                "evictionHard[nodefs.inodesFree]: x% is not a percentage",
            ),
            (
                eviction("memory.availabel", "0%"),
                "evictionHard[memory.availabel]: unsupported eviction signal memory.availabel",
            ),
        ] {
            let error = Reservation::new(&system, &none, &eviction).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn no_more_is_kept_back_than_there_is() {
        let mut machine = MachineInfo::new(2, 4 << 30);
        machine.ephemeral_storage = Some(10 << 30);
        for (kube, eviction, expected) in [
            (list(&[]), "100Mi", None),
            (list(&[("cpu", "2"), ("memory", "3996Mi")]), "100Mi", None),
            // Reservations of resources that the machine does not have are ignored.
            (list(&[("pid", "1000")]), "100Mi", None),
            (
                list(&[("cpu", "2500m"), ("memory", "4Gi"), ("ephemeral-storage", "1Gi")]),
                "100Mi",
                Some(
                    "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 2500m but capacity of \
                     2. Expected capacity >= reservation. Resource \"memory\" has a reservation of 4196Mi but capacity of \
                     4Gi. Expected capacity >= reservation.",
                ),
            ),
        ] {
            let eviction = list(&[("memory.available", eviction)]);
            let reservation = Reservation::new(&list(&[]), &kube, &eviction).unwrap();
            let checked = reservation.check(&machine).map_err(|error| error.to_string());
            assert_eq!(checked.err().as_deref(), expected, "{kube:?}");
        }
    }
}
