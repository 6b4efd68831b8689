//! Settings that change while the agent runs: which fields, and how each is applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_config::kubelet_configuration::validation::{Host, validate};
use kubelet_config::{FeatureGates, KubeletConfiguration};
use kubelet_kuberuntime::ImageGcManager;
use kubelet_kuberuntime::logs::LogRotatePolicy;
use kubelet_status::EventRecorderHandle;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::configured;
use crate::error::{Error, Result};
use crate::problem::Problems;
use crate::settings::Settings;

/// The fields that take effect at once. The engines behind them can be changed between two steps of their work.
pub(crate) const DYNAMIC: [&str; 11] = [
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "eventBurst",
    "eventRecordQPS",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "logging.verbosity",
];

/// What became of a changed configuration. Both lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconfigured {
    /// The fields that changed and are in force now.
    pub applied: Vec<String>,
    /// The fields that differ from those in force. They take effect when the agent starts again.
    pub needs_restart: Vec<String>,
}

/// Sets the fields that the agent decides itself, whatever the configuration says.
pub(crate) type Adapt = fn(&mut KubeletConfiguration);

/// Applies changed fields to the engines of one agent.
pub(crate) struct Dynamic {
    in_force: Mutex<KubeletConfiguration>,
    gates: FeatureGates,
    adapt: Adapt,
    notice: watch::Sender<Reconfigured>,
    engines: Engines,
}

/// Sets how much is logged; an error says why it cannot.
pub(crate) type SetVerbosity = Box<dyn Fn(&str) -> std::result::Result<String, String> + Send + Sync>;

/// The engines that can change.
#[derive(Default)]
pub(crate) struct Engines {
    pub(crate) images: Option<ImageGcManager>,
    pub(crate) logs: Option<watch::Sender<LogRotatePolicy>>,
    pub(crate) events: Option<EventRecorderHandle>,
    pub(crate) verbosity: Option<SetVerbosity>,
}

impl Dynamic {
    /// `adapt` was applied to these settings.
    pub(crate) fn new(settings: &Settings, adapt: Adapt, engines: Engines) -> Arc<Self> {
        let (notice, _) = watch::channel(Reconfigured::default());
        let in_force = Mutex::new(settings.configuration.clone());
        let gates = settings.feature_gates.clone();
        Arc::new(Self {
            in_force,
            gates,
            adapt,
            notice,
            engines,
        })
    }

    pub(crate) fn notices(&self) -> watch::Receiver<Reconfigured> {
        self.notice.subscribe()
    }

    /// Applies what can be applied, and names the rest. If anything is not valid, it applies nothing.
    pub(crate) fn apply(&self, wanted: &KubeletConfiguration) -> Result<Reconfigured> {
        let mut wanted = wanted.clone();
        (self.adapt)(&mut wanted);
        let wanted = &wanted;
        let mut in_force = self.in_force.lock();
        self.check(&in_force, wanted)?;
        let differ = differences(&in_force, wanted)?;
        let (now, later): (Vec<String>, Vec<String>) = differ
            .into_iter()
            .partition(|field| DYNAMIC.contains(&field.as_str()));
        let changed = |prefix: &str| now.iter().any(|field| field.starts_with(prefix));
        let engines = &self.engines;
        let log_rotation = configured::log_rotation(wanted)?;
        let images = engines.images.as_ref().filter(|_| changed("image"));
        if let Some(images) = images {
            images.set_policy(configured::image_gc(wanted))?;
        }
        if changed("logging")
            && let Some(verbosity) = &engines.verbosity
            && let Err(error) = verbosity(&wanted.logging.verbosity.to_string())
        {
            if let Some(images) = images {
                images.set_policy(configured::image_gc(&in_force))?;
            }
            return Err(Error::Misconfigured {
                problems: vec![error],
            });
        }
        // Nothing fails from here on.
        if changed("containerLog")
            && let Some(logs) = &engines.logs
        {
            logs.send_replace(log_rotation);
        }
        if changed("event")
            && let Some(events) = &engines.events
        {
            events.set_rate(
                configured::count(wanted.event_record_qps),
                configured::count(wanted.event_burst),
            );
        }
        take_over(&mut in_force, wanted);
        let reconfigured = Reconfigured {
            applied: now,
            needs_restart: later,
        };
        self.notice.send_replace(reconfigured.clone());
        Ok(reconfigured)
    }

    /// Reports all that is not valid.
    fn check(&self, in_force: &KubeletConfiguration, wanted: &KubeletConfiguration) -> Result<()> {
        let mut problems = Problems::default();
        match self.gates_of(in_force, wanted) {
            // The host does not change while the agent runs.
            Ok(gates) => {
                if let Err(errors) = validate(wanted, &gates, &Host::default()) {
                    problems.add("", errors.to_string());
                }
            }
            Err(error) => problems.add("featureGates", error.to_string()),
        }
        problems.note("containerLogMaxSize", configured::log_rotation(wanted));
        problems.into_result()
    }

    /// The gates that the agent has when it starts again with the wanted configuration: other fields may need them.
    fn gates_of(
        &self,
        in_force: &KubeletConfiguration,
        wanted: &KubeletConfiguration,
    ) -> kubelet_config::Result<FeatureGates> {
        if in_force.feature_gates == wanted.feature_gates {
            return Ok(self.gates.clone());
        }
        let beside = self
            .gates
            .given()
            .filter(|(name, _)| !in_force.feature_gates.contains_key(*name));
        let mut given: BTreeMap<String, bool> =
            beside.map(|(name, value)| (name.to_owned(), value)).collect();
        given.extend(wanted.feature_gates.clone());
        let mut gates = FeatureGates::new();
        gates.set_from_map(&given)?;
        Ok(gates)
    }
}

/// Copies the fields that can change.
fn take_over(in_force: &mut KubeletConfiguration, wanted: &KubeletConfiguration) {
    in_force.container_log_max_files = wanted.container_log_max_files;
    in_force
        .container_log_max_size
        .clone_from(&wanted.container_log_max_size);
    in_force.container_log_max_workers = wanted.container_log_max_workers;
    in_force.container_log_monitor_interval = wanted.container_log_monitor_interval;
    in_force.event_burst = wanted.event_burst;
    in_force.event_record_qps = wanted.event_record_qps;
    in_force.image_gc_high_threshold_percent = wanted.image_gc_high_threshold_percent;
    in_force.image_gc_low_threshold_percent = wanted.image_gc_low_threshold_percent;
    in_force.image_maximum_gc_age = wanted.image_maximum_gc_age;
    in_force.image_minimum_gc_age = wanted.image_minimum_gc_age;
    in_force.logging.verbosity = wanted.logging.verbosity;
}

/// The fields that differ, sorted; of a section, the fields in it.
fn differences(one: &KubeletConfiguration, other: &KubeletConfiguration) -> Result<Vec<String>> {
    let value = |configuration: &KubeletConfiguration| {
        serde_json::to_value(configuration).map_err(|error| crate::error::invalid("configuration", "", error))
    };
    let mut fields = Vec::new();
    compare("", &value(one)?, &value(other)?, &mut fields);
    fields.sort_unstable();
    Ok(fields)
}

fn compare(path: &str, one: &Value, other: &Value, fields: &mut Vec<String>) {
    // The fields of a list or a map are no fields of the configuration.
    let is_section =
        path.is_empty() || path == "logging" || path == "authentication" || path == "authorization";
    let (Value::Object(ones), Value::Object(others), true) = (one, other, is_section) else {
        if one != other {
            fields.push(path.to_owned());
        }
        return;
    };
    let names: std::collections::BTreeSet<&String> = ones.keys().chain(others.keys()).collect();
    for name in names {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let field = |values: &serde_json::Map<String, Value>| values.get(name).cloned().unwrap_or_default();
        compare(&path, &field(ones), &field(others), fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_changed_field_is_applied_or_named() {
        let settings = Settings::new("/agent");
        let started = settings.configuration.clone();
        let agent = Dynamic::new(&settings, |_| (), Engines::default());
        let mut wanted = started.clone();
        wanted.image_gc_high_threshold_percent = 90;
        wanted.logging.verbosity = 5;
        wanted.max_pods = 7;
        wanted.authentication.anonymous.enabled = true;
        let expected = Reconfigured {
            applied: vec!["imageGCHighThresholdPercent".into(), "logging.verbosity".into()],
            needs_restart: vec!["authentication.anonymous".into(), "maxPods".into()],
        };
        assert_eq!(agent.apply(&wanted).unwrap(), expected);
        assert_eq!(*agent.notices().borrow(), expected);
        // Applied fields are in force; the others wait.
        let again = agent.apply(&wanted).unwrap();
        assert!(again.applied.is_empty(), "{again:?}");
        assert_eq!(again.needs_restart, expected.needs_restart);
        // An invalid configuration changes nothing.
        let mut invalid = wanted.clone();
        (
            invalid.image_gc_high_threshold_percent,
            invalid.container_log_max_files,
        ) = (50, 1);
        let error = agent.apply(&invalid).unwrap_err().to_string();
        assert!(error.contains("containerLogMaxFiles"), "{error}");
        assert_eq!(agent.apply(&wanted).unwrap(), again);
        // A change that is taken back waits no longer.
        wanted.max_pods = started.max_pods;
        wanted.authentication = started.authentication;
        assert_eq!(agent.apply(&wanted).unwrap(), Reconfigured::default());
    }

    #[test]
    fn a_configuration_of_which_a_part_cannot_be_applied_changes_nothing() {
        let settings = Settings::new("/agent");
        let present = configured::log_rotation(&settings.configuration).unwrap();
        let (logs, policies) = watch::channel(present);
        let engines = Engines {
            logs: Some(logs),
            verbosity: Some(Box::new(|_| Err("the log is fixed".to_owned()))),
            ..Engines::default()
        };
        let agent = Dynamic::new(&settings, |_| (), engines);
        let mut wanted = settings.configuration.clone();
        wanted.container_log_max_files = 9;
        for (size, verbosity, problem) in [("10X", 0, "containerLogMaxSize"), ("20Mi", 5, "the log is fixed")]
        {
            wanted.container_log_max_size = size.to_owned();
            wanted.logging.verbosity = verbosity;
            let error = agent.apply(&wanted).unwrap_err();
            assert!(matches!(error, Error::Misconfigured { .. }), "{error:?}");
            assert!(error.to_string().contains(problem), "{error}");
            assert!(!policies.has_changed().unwrap());
            assert_eq!(*agent.in_force.lock(), settings.configuration);
        }
    }

    #[test]
    fn fields_are_checked_with_the_gates_beside_them() {
        let mut settings = Settings::new("/agent");
        let gate = "CustomCPUCFSQuotaPeriod".to_owned();
        settings.configuration.feature_gates.insert(gate.clone(), false);
        settings
            .feature_gates
            .set("CustomCPUCFSQuotaPeriod=false")
            .unwrap();
        let agent = Dynamic::new(&settings, |_| (), Engines::default());
        let mut wanted = settings.configuration.clone();
        wanted.cpu_cfs_quota_period = "50ms".parse().unwrap();
        assert!(agent.apply(&wanted).is_err());
        wanted.feature_gates.insert(gate.clone(), true);
        let done = agent.apply(&wanted).unwrap();
        assert_eq!(done.needs_restart, ["cpuCFSQuotaPeriod", "featureGates"]);
        // By default, it is on.
        wanted.feature_gates.remove(&gate);
        assert_eq!(agent.apply(&wanted).unwrap(), done);
        wanted.feature_gates.insert("NoSuchGate".to_owned(), true);
        let error = agent.apply(&wanted).unwrap_err().to_string();
        assert!(error.contains("NoSuchGate"), "{error}");
    }

    #[test]
    fn all_dynamic_fields_are_taken_over() {
        let (mut one, mut other) = (KubeletConfiguration::default(), KubeletConfiguration::default());
        other.container_log_max_files += 1;
        other.container_log_max_size = "3Mi".into();
        other.container_log_max_workers += 1;
        other.container_log_monitor_interval = "7s".parse().unwrap();
        other.event_burst += 1;
        other.event_record_qps += 1;
        other.image_gc_high_threshold_percent += 1;
        other.image_gc_low_threshold_percent += 1;
        other.image_maximum_gc_age = "7h".parse().unwrap();
        other.image_minimum_gc_age = "7m".parse().unwrap();
        other.logging.verbosity += 1;
        assert_eq!(differences(&one, &other).unwrap(), DYNAMIC);
        take_over(&mut one, &other);
        assert!(differences(&one, &other).unwrap().is_empty());
    }
}
