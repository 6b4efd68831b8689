//! The rules that a configuration is held to, each broken on its own.

mod node;
mod values;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_config::FeatureGates;
use kubelet_config::kubelet_configuration::validation::{FieldError, Host, validate};
use kubelet_config::kubelet_configuration::{
    GoDuration, KubeletConfiguration, MemoryReservation, ShutdownGracePeriodByPodPriority,
    TracingConfiguration, UserNamespaces, VModuleItem,
};

type Config = KubeletConfiguration;
type Change = fn(&mut Config);

fn errors(change: Change, gates: &FeatureGates, host: &Host) -> Vec<FieldError> {
    let mut config = Config::default();
    change(&mut config);
    match validate(&config, gates, host) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_iter().collect(),
    }
}

/// Under default gates on a node with cgroup v2, these fields and no others are told.
#[track_caller]
fn told(cases: &[(Change, &[&str])]) {
    for (at, &(change, expected)) in cases.iter().enumerate() {
        let errors = errors(change, &FeatureGates::new(), &Host::default());
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected, "case {at}: {errors:?}");
    }
}

fn gates(given: &str) -> BTreeMap<String, bool> {
    let pairs = given.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, on)| (name.to_owned(), on == "true")).collect()
}

fn millis(millis: i64) -> GoDuration {
    GoDuration::from_millis(millis)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn defaults_are_valid() {
    told(&[(|_| {}, &[])]);
    let without_file = Config::without_file();
    validate(&without_file, &FeatureGates::new(), &Host::default()).unwrap();
}

#[test]
fn gates_come_first_and_those_given_count_too() {
    told(&[
        (
            |c| {
                c.feature_gates = gates("Bogus=true,NodeSwap=false");
                c.max_pods = -1;
            },
            &["featureGates.Bogus", "featureGates.NodeSwap"],
        ),
        (
            |c| c.feature_gates = gates("GracefulNodeShutdown=false"),
            &[
                "featureGates.GracefulNodeShutdownBasedOnPodPriority",
                "featureGates.WindowsGracefulNodeShutdown",
            ],
        ),
    ]);
    let mut given = FeatureGates::new();
    given.set("LoggingAlphaOptions=true").unwrap();
    let errors = errors(
        |c| c.logging.options.text.split_stream = true,
        &given,
        &Host::default(),
    );
    assert_eq!(errors, []);
}

#[test]
fn errors_read_well() {
    let config = Config {
        max_pods: -1,
        hairpin_mode: "bogus".into(),
        ..Config::default()
    };
    let errors = validate(&config, &FeatureGates::new(), &Host::default()).unwrap_err();
    assert_eq!(
        kubelet_config::Error::from(errors).to_string(),
        "invalid configuration: maxPods: Invalid value: -1: must be at least 0; \
         hairpinMode: Invalid value: \"bogus\": must be one of \"none\", \"hairpin-veth\", \"promiscuous-bridge\""
    );
}
