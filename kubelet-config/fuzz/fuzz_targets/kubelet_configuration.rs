//! The decoders of configuration files: no text makes them panic, what is accepted strictly is accepted leniently as
//! the same, and what is written is read again as it was.
#![no_main]

use kubelet_config::credential_provider::CredentialProviderConfig;
use kubelet_config::kubelet_configuration::validation::{Host, validate};
use kubelet_config::{FeatureGates, KubeletConfiguration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let gates = FeatureGates::new();
    if let Ok(providers) = CredentialProviderConfig::from_yaml(text) {
        _ = providers.validate(&gates);
    }
    let strict = KubeletConfiguration::from_yaml(text);
    let Ok((config, ignored)) = KubeletConfiguration::from_yaml_lenient(text) else {
        assert!(strict.is_err(), "the lenient way is the stricter one");
        return;
    };
    if let Ok(strict) = strict {
        assert_eq!(strict, config);
        // A further document is no error.
        assert!(ignored.len() <= 1, "{ignored:?}");
    }
    _ = validate(&config, &gates, &Host::default());
    _ = config.masked();
    read_again(&config);
});

fn read_again(config: &KubeletConfiguration) {
    let mut written = serde_json::to_value(config).expect("a configuration is JSON");
    written["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into();
    written["kind"] = "KubeletConfiguration".into();
    let read = KubeletConfiguration::from_yaml(&written.to_string()).expect("what is written is read");
    let mut expected = config.clone();
    // What is empty is left out, and has a default then.
    if expected.enforce_node_allocatable.is_empty() {
        expected.enforce_node_allocatable = read.enforce_node_allocatable.clone();
    }
    if expected.eviction_hard.is_empty() {
        expected.eviction_hard = read.eviction_hard.clone();
    }
    assert_eq!(read, expected);
}
