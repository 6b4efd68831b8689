//! The metrics that the runtime reports (`criMetricsCollector`), shown in place of those of cgroups with the feature gate
//! `PodAndContainerStatsFromCRI`.

use std::collections::{BTreeMap, HashSet};

use kubelet_core::stats::{RuntimeMetric, RuntimeMetricDescriptor};

use super::text::Kind::{Counter, Gauge};
use super::text::Number::Whole;
use super::text::{Text, push_label};

/// Writes the metrics that have a descriptor, sorted by name. A metric whose labels do not fit its descriptor is left out.
pub(super) fn write(descriptors: &[RuntimeMetricDescriptor], metrics: &[RuntimeMetric], text: &mut Text) {
    let mut families: BTreeMap<&str, Vec<&RuntimeMetric>> = BTreeMap::new();
    for metric in metrics {
        families.entry(&metric.name).or_default().push(metric);
    }
    for (name, metrics) in families {
        let Some(descriptor) = descriptors.iter().find(|descriptor| descriptor.name == name) else {
            continue;
        };
        let keys = &descriptor.label_keys;
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|at| keys.get(*at));
        let mut begun = false;
        // A runtime may report two containers of one name: a text with the same series twice is not valid.
        let mut shown = HashSet::new();
        for metric in metrics {
            if metric.label_values.len() != keys.len() {
                tracing::debug!(metric = name, "labels do not fit the descriptor");
                continue;
            }
            if !shown.insert(&metric.label_values) {
                tracing::debug!(metric = name, labels = ?metric.label_values, "leave out a series that is there twice");
                continue;
            }
            if !std::mem::replace(&mut begun, true) {
                let kind = if metric.is_counter { Counter } else { Gauge };
                text.header(name, kind, &format!("[INTERNAL] {}", descriptor.help));
            }
            let mut labels = String::new();
            for at in &order {
                if let (Some(key), Some(value)) = (keys.get(*at), metric.label_values.get(*at)) {
                    if !labels.is_empty() {
                        labels.push(',');
                    }
                    push_label(&mut labels, key, value);
                }
            }
            let at = metric.timestamp.map(|time| time.as_millisecond());
            text.series(name, [&labels], Whole(metric.value), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_has_a_descriptor() {
        let descriptor = RuntimeMetricDescriptor {
            name: "container_memory_rss".into(),
            help: "Size of RSS in bytes.".into(),
            label_keys: vec!["pod".into(), "container".into()],
        };
        let metric = |name: &str, labels: &[&str]| RuntimeMetric {
            name: name.into(),
            timestamp: None,
            is_counter: false,
            label_values: labels.iter().map(|label| (*label).to_owned()).collect(),
            value: 7,
        };
        let metrics = [
            metric("unknown", &[]),
            metric("container_memory_rss", &["web", "main"]),
            metric("container_memory_rss", &["web", "main"]),
            metric("container_memory_rss", &["web"]),
        ];
        let mut text = Text::default();
        write(&[descriptor], &metrics, &mut text);
        assert_eq!(
            String::from_utf8_lossy(&text.into_bytes()),
            "# HELP container_memory_rss [INTERNAL] Size of RSS in bytes.\n# TYPE container_memory_rss gauge\n\
             container_memory_rss{container=\"main\",pod=\"web\"} 7\n"
        );
    }
}
