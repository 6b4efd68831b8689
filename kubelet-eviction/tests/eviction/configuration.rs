//! Thresholds as `KubeletConfiguration` has them.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_eviction::{EvictionConfig, EvictionSettings, FileSystems, Result, Threshold, ThresholdValue};

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn parse(
    hard: Pairs<'_>,
    soft: Pairs<'_>,
    grace: Pairs<'_>,
    reclaim: Pairs<'_>,
    enforce: &str,
) -> Result<EvictionConfig> {
    EvictionConfig::parse(EvictionSettings {
        hard: &map(hard),
        soft: &map(soft),
        soft_grace_period: &map(grace),
        minimum_reclaim: &map(reclaim),
        enforce_node_allocatable: &[enforce.to_owned()],
    })
}

fn value(value: &ThresholdValue) -> String {
    match value {
        ThresholdValue::Quantity(quantity) => quantity.0.clone(),
        ThresholdValue::Share(share) => format!("{share}"),
    }
}

/// `signal<value`, then `+reclaim`, then `~grace`.
fn shown(thresholds: &[Threshold]) -> Vec<String> {
    let shown = thresholds.iter().map(|threshold| {
        let mut text = format!("{}<{}", threshold.signal, value(&threshold.value));
        if let Some(reclaim) = &threshold.min_reclaim {
            text += &format!("+{}", value(reclaim));
        }
        if !threshold.is_hard() {
            text += &format!("~{}", threshold.grace_period.as_secs());
        }
        text
    });
    shown.collect()
}

#[test]
fn thresholds_are_hard_then_soft() {
    // hard, soft, grace periods, reclaim, `enforceNodeAllocatable`, thresholds
    type Case<'a> = (Pairs<'a>, Pairs<'a>, Pairs<'a>, Pairs<'a>, &'a str, &'a [&'a str]);
    let cases: [Case<'_>; 9] = [
        (&[], &[], &[], &[], "", &[]),
        // No threshold of memory to copy.
        (
            &[("nodefs.available", "1Gi")],
            &[],
            &[],
            &[],
            "pods",
            &["nodefs.available<1Gi"],
        ),
        (
            &[("memory.available", "150Mi")],
            &[("memory.available", "300Mi")],
            &[("memory.available", "30s")],
            &[("memory.available", "0")],
            "pods",
            &[
                "memory.available<150Mi+0",
                "memory.available<300Mi+0~30",
                "allocatableMemory.available<150Mi+0",
            ],
        ),
        (
            &[("memory.available", "10%")],
            &[("memory.available", "30%")],
            &[("memory.available", "1m30s")],
            &[("memory.available", "5%")],
            "none",
            &["memory.available<0.1+0.05", "memory.available<0.3+0.05~90"],
        ),
        (
            &[("memory.available", "0%"), ("pid.available", "100%")],
            &[],
            &[],
            &[],
            "pods",
            &[],
        ),
        (
            &[("nodefs.inodesFree", "0.5%"), ("imagefs.available", "150Mi")],
            &[("imagefs.available", "300Mi"), ("containerfs.inodesFree", "5%")],
            &[("imagefs.available", "30s"), ("containerfs.inodesFree", "0")],
            &[("imagefs.available", "2Gi")],
            "",
            &[
                "nodefs.inodesFree<0.005",
                "imagefs.available<150Mi+2Gi",
                "imagefs.available<300Mi+2Gi~30",
                "containerfs.inodesFree<0.05",
            ],
        ),
        (
            &[("pid.available", "10%")],
            &[],
            &[],
            &[("memory.available", "1Gi")],
            "",
            &["pid.available<0.1"],
        ),
        // A grace period that no soft threshold needs.
        (&[], &[], &[("memory.available", "1s")], &[], "", &[]),
        (
            &[("allocatableMemory.available", "1Gi")],
            &[],
            &[],
            &[],
            "",
            &["allocatableMemory.available<1Gi"],
        ),
    ];
    for (hard, soft, grace, reclaim, enforce, expected) in cases {
        let config = parse(hard, soft, grace, reclaim, enforce).unwrap();
        assert_eq!(shown(&config.thresholds), expected, "{hard:?} {soft:?}");
    }
}

#[test]
fn what_cannot_be_a_threshold_is_refused_by_name() {
    let hard = |signal: &str, value: &str| {
        parse(&[(signal, value)], &[], &[], &[], "")
            .unwrap_err()
            .to_string()
    };
    let soft = |soft: Pairs<'_>, grace: Pairs<'_>| parse(&[], soft, grace, &[], "").unwrap_err().to_string();
    let reclaim = |signal: &str, value: &str| {
        parse(&[], &[], &[], &[(signal, value)], "")
            .unwrap_err()
            .to_string()
    };
    let memory = "memory.available";
    let cases = [
        (
            hard("mem.available", "1"),
            "evictionHard[mem.available]: unsupported eviction signal mem.available",
        ),
        (
            hard(memory, "-15%"),
            "eviction percentage threshold memory.available must be >= 0%: -15%",
        ),
        (
            hard(memory, "150%"),
            "eviction percentage threshold memory.available must be <= 100%: 150%",
        ),
        (hard(memory, "x%"), "x% is not a percentage"),
        (hard(memory, "NaN%"), "NaN% is not a percentage"),
        (
            hard(memory, "-150Mi"),
            "eviction threshold memory.available must be positive: -150Mi",
        ),
        (
            hard(memory, "0"),
            "eviction threshold memory.available must be positive: 0",
        ),
        (
            hard(memory, "much"),
            "evictionHard[memory.available]: \"much\" is not a quantity",
        ),
        (
            soft(&[(memory, "1Gi")], &[]),
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (
            soft(&[], &[(memory, "-30s")]),
            "evictionSoftGracePeriod[memory.available]: \"-30s\" is not a duration",
        ),
        (
            soft(&[], &[("imagefs.free", "1s")]),
            "unsupported eviction signal imagefs.free",
        ),
        (
            reclaim(memory, "-300Mi"),
            "negative eviction minimum reclaim specified for memory.available",
        ),
        (
            reclaim(memory, "-15%"),
            "eviction percentage minimum reclaim memory.available must be positive: -15%",
        ),
        (
            reclaim(memory, "0%"),
            "eviction percentage minimum reclaim memory.available must be positive: 0%",
        ),
        (reclaim("memory", "1"), "unsupported eviction signal memory"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn writable_layers_have_the_thresholds_of_their_file_system() {
    let both: Pairs<'_> = &[
        ("nodefs.available", "1Gi"),
        ("imagefs.available", "2Gi"),
        ("imagefs.inodesFree", "3%"),
    ];
    let own: Pairs<'_> = &[
        ("nodefs.available", "1Gi"),
        ("containerfs.available", "9Gi"),
        ("pid.available", "1"),
    ];
    let on = |dedicated_image_fs, split_container_fs| FileSystems {
        dedicated_image_fs,
        split_container_fs,
    };
    let cases: [(Pairs<'_>, FileSystems, &[&str]); 7] = [
        (both, on(false, false), &["containerfs.available<1Gi"]),
        (both, on(true, true), &["containerfs.available<1Gi"]),
        (
            both,
            on(true, false),
            &["containerfs.available<2Gi", "containerfs.inodesFree<0.03"],
        ),
        (both, on(false, true), &[]),
        (own, on(false, false), &["containerfs.available<1Gi"]),
        (own, on(true, false), &[]),
        (own, on(false, true), &["containerfs.available<9Gi"]),
    ];
    for (hard, file_systems, expected) in cases {
        let config = parse(hard, &[], &[], &[], "").unwrap().on(file_systems);
        let mut of_layers = shown(&config.thresholds);
        of_layers.retain(|threshold| threshold.starts_with("containerfs"));
        assert_eq!(of_layers, expected, "{hard:?} {file_systems:?}");
        assert_eq!(
            config.on(file_systems).thresholds,
            config.thresholds,
            "once is enough"
        );
    }
    // A replaced one keeps its place and grace period.
    let soft: Pairs<'_> = &[
        ("containerfs.available", "9Gi"),
        ("nodefs.available", "1Gi"),
        ("pid.available", "1"),
    ];
    let grace: Pairs<'_> = &[
        ("containerfs.available", "9s"),
        ("nodefs.available", "7s"),
        ("pid.available", "1s"),
    ];
    let config = parse(&[], soft, grace, &[("nodefs.available", "5Mi")], "").unwrap();
    assert_eq!(
        shown(&config.on(FileSystems::default()).thresholds),
        [
            "nodefs.available<1Gi+5Mi~7",
            "containerfs.available<1Gi+5Mi~7",
            "pid.available<1~1"
        ]
    );
    assert!(!config.is_off());
    assert!(EvictionConfig::default().is_off());
    assert_eq!(config.max_pod_grace_period, Duration::ZERO);
}
