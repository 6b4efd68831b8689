//! Settings of a kubelet that this agent cannot follow. Each is a problem that names it, so that no setting is without effect.

use kubelet_config::KubeletConfiguration;
use kubelet_config::kubelet_configuration::OutputRoutingOptions;

use crate::problem::Problems;
use crate::settings::Settings;

/// Feature gates that have one value in this agent.
const FIXED_GATES: [(&str, bool); 16] = [
    ("AllowDNSOnlyNodeCSR", false),
    ("ChangeContainerStatusOnKubeletRestart", false),
    ("ContainerRestartRules", true),
    ("EnvFiles", true),
    ("HostnameOverride", true),
    ("ImageVolumeWithDigest", false),
    ("KubeletRegistrationGetOnExistsOnly", false),
    ("KubeletSeparateDiskGC", true),
    ("NativeHistograms", false),
    ("PLEGOnDemandRelist", true),
    ("PodReadyToStartContainersCondition", true),
    ("PreventStaticPodAPIReferences", true),
    ("ReloadKubeletClientCAFile", true),
    ("ReloadKubeletServerCertificateFile", true),
    ("SELinuxMount", false),
    ("TaintTolerationComparisonOperators", false),
];

/// Notes each setting that would have no effect.
pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    for (field, why) in without_effect(&settings.configuration) {
        problems.add(field, why);
    }
    let mounter = settings.flags.get("experimental-mounter-path");
    if mounter.is_some_and(|path| !path.is_empty()) {
        problems.add(
            "--experimental-mounter-path",
            "this agent mounts without a program of its own",
        );
    }
    gates(settings, problems);
}

/// Notes gates that somebody has set to a value that this agent does not have. Those that `AllAlpha` or `AllBeta` change are
/// logged only.
fn gates(settings: &Settings, problems: &mut Problems) {
    let gates = &settings.feature_gates;
    for (name, value) in FIXED_GATES {
        if gates.enabled(name) == value {
            continue;
        }
        let problem = format!("this agent has {value} only");
        match gates.given().any(|(given, _)| given == name) {
            true => problems.add(format!("featureGates.{name}"), problem),
            false => tracing::warn!("feature gate {name}: {problem}"),
        }
    }
}

fn without_effect(config: &KubeletConfiguration) -> Vec<(&'static str, &'static str)> {
    let mut fields = Vec::new();
    #[cfg(not(feature = "otlp"))]
    if config.tracing.is_some() {
        fields.push(("tracing", "it needs the feature `otlp` of kubelet-agent"));
    }
    if !config.logging.vmodule.is_empty() {
        let why = "it names files of the kubelet; use the variable RUST_LOG";
        fields.push(("logging.vmodule", why));
    }
    let options = &config.logging.options;
    for (field, options) in [
        ("logging.options.text", &options.text),
        ("logging.options.json", &options.json),
    ] {
        if *options != OutputRoutingOptions::default() {
            fields.push((field, "this agent logs to standard error only"));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use kubelet_config::FeatureGates;
    use kubelet_config::kubelet_configuration::VModuleItem;

    use super::*;

    fn problems(change: impl FnOnce(&mut Settings)) -> String {
        let (mut settings, mut problems) = (Settings::new("/agent"), Problems::default());
        change(&mut settings);
        check(&settings, &mut problems);
        problems
            .into_result()
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn the_defaults_of_a_kubelet_are_accepted() {
        let defaults = |settings: &mut Settings| settings.configuration = KubeletConfiguration::default();
        assert_eq!(problems(defaults), "");
    }

    #[test]
    fn a_setting_without_effect_is_named() {
        let found = problems(|settings| {
            let config = &mut settings.configuration;
            config.logging.options.json.split_stream = true;
            config.logging.vmodule = vec![VModuleItem {
                file_pattern: "kubelet".to_owned(),
                verbosity: 7,
            }];
            let flag = ("experimental-mounter-path".to_owned(), "/bin/mounter".to_owned());
            settings.flags.extend([flag]);
        });
        for name in [
            "logging.options.json",
            "logging.vmodule",
            "--experimental-mounter-path",
        ] {
            assert!(found.contains(name), "{name}: {found}");
        }
        assert!(!found.contains("logging.options.text"), "{found}");
    }

    #[test]
    fn gates_that_somebody_set_to_another_value_are_named() {
        for (name, value) in FIXED_GATES {
            let with = |value: bool| {
                let mut gates = format!("{name}={value}");
                // What depends on a gate goes off with it.
                let dependents = FeatureGates::known().filter(|gate| gate.depends_on().contains(&name));
                for dependent in dependents.filter(|_| !value) {
                    gates.push_str(&format!(",{}=false", dependent.name));
                }
                problems(|settings| settings.feature_gates.set(&gates).unwrap())
            };
            assert_eq!(with(value), "");
            assert!(with(!value).contains(name), "{name}");
        }
        assert_eq!(
            problems(|settings| settings.feature_gates.set("AllAlpha=true").unwrap()),
            ""
        );
    }
}
