//! The feature gates: the recorded table, and what setting them does.

use std::collections::BTreeMap;

use kubelet_config::{FeatureGate, FeatureGates, FeatureStage};

/// What the logging library brings; the recorded binary was built without its registration.
const OF_LOGGING: [&str; 3] = ["ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions"];

/// `name`, stage, `default=…`, `locked=…`, between tabs.
#[test]
fn known_gates_are_the_recorded_ones() {
    let recorded = include_str!("../data/feature-gates.txt");
    let line = |gate: &FeatureGate| {
        let FeatureGate {
            name,
            stage,
            default,
            locked,
            ..
        } = gate;
        format!("{name}\t{stage}\tdefault={default}\tlocked={locked}")
    };
    let known: Vec<_> = FeatureGates::known()
        .filter(|gate| !OF_LOGGING.contains(&gate.name))
        .map(line)
        .collect();
    assert_eq!(known, recorded.lines().collect::<Vec<_>>());
    assert_eq!(FeatureGates::known().len(), known.len() + OF_LOGGING.len());
    let gates = FeatureGates::new();
    assert!(FeatureGates::known().all(|gate| gates.enabled(gate.name) == gate.default));
}

#[test]
fn what_is_set_counts_and_the_order_does_not() {
    let cases: [(&[&str], &str, bool); 16] = [
        (&[], "EventedPLEG", false),
        (&["EventedPLEG=true"], "EventedPLEG", true),
        (&["EventedPLEG=T"], "EventedPLEG", true),
        (&[" EventedPLEG = 1 ,,"], "EventedPLEG", true),
        (&["EventedPLEG=true,EventedPLEG=false"], "EventedPLEG", false),
        (&["EventedPLEG=true", "MemoryQoS=true"], "EventedPLEG", true),
        (&["EventedPLEG=true", "EventedPLEG=false"], "EventedPLEG", false),
        (&["AllAlpha=true"], "EventedPLEG", true),
        (&["AllAlpha=true"], "ComponentFlagz", true),
        (&["AllAlpha=true"], "AllBeta", false),
        (&["EventedPLEG=false", "AllAlpha=true"], "EventedPLEG", false),
        (&["AllAlpha=true", "EventedPLEG=false"], "EventedPLEG", false),
        (&["AllBeta=false"], "ComponentFlagz", false),
        (&["AllBeta=false,ComponentFlagz=true"], "ComponentFlagz", true),
        (&["AllBeta=false"], "NodeSwap", true),
        (&["NodeSwap=true"], "NodeSwap", true),
    ];
    for (set, name, on) in cases {
        let mut gates = FeatureGates::new();
        for one in set {
            gates.set(one).expect(one);
        }
        assert_eq!(gates.enabled(name), on, "{name} after {set:?}");
    }
}

#[test]
fn what_cannot_be_set_is_named_and_changes_nothing() {
    let cases = [
        ("Bogus=true", vec!["unrecognized feature gate: Bogus"]),
        ("eventedpleg=true", vec!["unrecognized feature gate: eventedpleg"]),
        ("EventedPLEG", vec!["missing bool value for EventedPLEG"]),
        (
            "EventedPLEG=",
            vec!["invalid value of EventedPLEG: \"\" is not a boolean"],
        ),
        (
            "EventedPLEG=yes",
            vec!["invalid value of EventedPLEG: \"yes\" is not a boolean"],
        ),
        (
            "NodeSwap=false,Bogus=true,MemoryQoS=true",
            vec![
                "unrecognized feature gate: Bogus",
                "cannot set feature gate NodeSwap to false, feature is locked to true",
            ],
        ),
        (
            "GracefulNodeShutdown=false",
            vec![
                "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: \
                 GracefulNodeShutdown",
                "WindowsGracefulNodeShutdown is enabled, but depends on features that are disabled: \
                 GracefulNodeShutdown",
            ],
        ),
        (
            "ClusterTrustBundleProjection=true",
            vec![
                "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: \
                 ClusterTrustBundle",
            ],
        ),
    ];
    for (set, expected) in cases {
        let mut gates = FeatureGates::new();
        let error = gates.set(set).expect_err(set);
        let kubelet_config::Error::FeatureGates { problems } = error else {
            panic!("{set}: {error}");
        };
        assert_eq!(problems, expected, "{set}");
        assert_eq!(gates, FeatureGates::new(), "{set}");
    }
}

#[test]
fn a_need_is_met_by_what_is_set_with_it_or_before() {
    let mut gates = FeatureGates::new();
    let both = BTreeMap::from([
        ("ClusterTrustBundle".to_owned(), true),
        ("ClusterTrustBundleProjection".to_owned(), true),
    ]);
    gates.set_from_map(&both).unwrap();
    gates.set("ClusterTrustBundle=false").unwrap_err();
    gates.set("ClusterTrustBundleProjection=false").unwrap();
    gates.set("ClusterTrustBundle=false").unwrap();
    let given: Vec<_> = gates.given().collect();
    assert_eq!(
        given,
        [
            ("ClusterTrustBundle", false),
            ("ClusterTrustBundleProjection", false)
        ]
    );
}

#[test]
fn gates_tell_what_they_are() {
    let gate = FeatureGates::find("ImageVolumeWithDigest").unwrap();
    assert_eq!(
        gate.to_string(),
        "ImageVolumeWithDigest=true|false (ALPHA - default=false)"
    );
    assert_eq!(gate.depends_on(), ["ImageVolume"]);
    assert!(FeatureGates::find("ImageVolume").unwrap().depends_on().is_empty());
    assert_eq!(FeatureGates::find("NoSuchGate"), None);
    use FeatureStage::{Alpha, Beta, Deprecated, Ga};
    assert!(Deprecated < Alpha && Alpha < Beta && Beta < Ga);
}
