use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use http::{HeaderMap, HeaderValue, header};
use metrics::{counter, gauge, histogram};

use super::definition::Kind;
use super::table::DEFINITIONS;
use super::{Format, Metrics, Selection, negotiate, registry};

fn rendered(metrics: &Metrics, selection: Selection, format: Format) -> String {
    let mut text = String::new();
    metrics.render(selection, format, &mut text);
    text
}

fn text_of(emit: impl FnOnce()) -> String {
    let metrics = Metrics::new();
    metrics::with_local_recorder(&metrics, emit);
    rendered(&metrics, Selection::Main, Format::Text)
}

#[track_caller]
fn assert_has(text: &str, lines: &str) {
    assert!(text.contains(lines), "{lines}\nis not in\n{text}");
}

/// What the kubelet showed: name, type, help and names of the labels.
fn recorded() -> BTreeMap<String, serde_json::Value> {
    serde_json::from_str(include_str!("../../tests/data/metrics.json")).unwrap()
}

#[test]
fn definitions_are_those_of_the_kubelet() {
    let recorded = recorded();
    let mut compared = 0;
    for definition in DEFINITIONS {
        let kind = match definition.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let Some(theirs) = recorded.get(definition.name) else {
            continue;
        };
        let mut labels: Vec<&str> = theirs["labels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l.as_str().unwrap())
            .collect();
        labels.retain(|&label| label != "le");
        assert_eq!(
            (
                theirs["type"].as_str().unwrap(),
                theirs["help"].as_str().unwrap(),
                labels
            ),
            (kind, definition.help, definition.labels.to_vec()),
            "{}",
            definition.name
        );
        compared += 1;
    }
    assert!(compared > 60, "{compared}");
}

#[test]
fn definitions_are_sorted_and_ascend() {
    assert!(DEFINITIONS.is_sorted_by(|a, b| a.name < b.name));
    for definition in DEFINITIONS {
        assert!(definition.labels.is_sorted(), "{}", definition.name);
        assert!(
            definition.buckets.is_sorted_by(|a, b| a < b),
            "{}",
            definition.name
        );
        assert_eq!(definition.buckets.is_empty(), definition.kind != Kind::Histogram);
    }
}

/// The crates emit no metric without a definition. This reads their source, where it is at hand.
#[test]
fn every_metric_that_the_crates_emit_is_defined() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let defined: Vec<&str> = DEFINITIONS.iter().map(|definition| definition.name).collect();
    let mut emitted = 0;
    for crate_name in [
        "core",
        "config",
        "cri",
        "kuberuntime",
        "node",
        "pleg",
        "plugins",
        "server",
        "status",
        "volume",
    ] {
        let source = workspace.join(format!("kubelet-{crate_name}/src"));
        for name in names_emitted_below(&source) {
            assert!(defined.contains(&name.as_str()), "{name} of kubelet-{crate_name}");
            emitted += 1;
        }
    }
    // A packaged crate has no siblings.
    assert!(
        emitted > 60 || !workspace.join("kubelet-core").exists(),
        "{emitted}"
    );
}

fn names_emitted_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("prometheus") {
                names.extend(names_emitted_below(&path));
            }
            continue;
        }
        let source = fs::read_to_string(&path).unwrap_or_default();
        for start in ["counter!(", "gauge!(", "histogram!(", ": &str ="] {
            for after in source.split(start).skip(1) {
                let name = after
                    .trim_start()
                    .strip_prefix('"')
                    .and_then(|name| name.split('"').next());
                let is_metric = |name: &&str| {
                    start != ": &str =" || (name.starts_with("kubelet_") && path.ends_with("metrics.rs"))
                };
                names.extend(name.filter(is_metric).map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn metrics_without_labels_are_shown_from_the_start() {
    let text = text_of(|| ());
    assert_has(
        &text,
        "# HELP kubelet_started_pods_total [ALPHA] Cumulative number of pods started\n\
         # TYPE kubelet_started_pods_total counter\nkubelet_started_pods_total 0\n",
    );
    assert_has(
        &text,
        "kubelet_containers_per_pod_count_bucket{le=\"1\"} 0\nkubelet_containers_per_pod_count_bucket{le=\"2\"} 0\n",
    );
    // The kubelet registers those of the managers whatever their policies are.
    for of_managers in [
        "cpu_manager_exclusive_cpu_allocation_count",
        "cpu_manager_pinning_errors_total",
        "cpu_manager_pinning_requests_total",
        "cpu_manager_shared_pool_size_millicores",
        "memory_manager_pinning_errors_total",
        "memory_manager_pinning_requests_total",
        "topology_manager_admission_duration_ms_count",
        "topology_manager_admission_errors_total",
        "topology_manager_admission_requests_total",
    ] {
        assert_has(&text, &format!("\nkubelet_{of_managers} 0\n"));
    }
    for absent in [
        "kubelet_started_containers_total",
        "ttl_seconds",
        "prober_",
        "kubernetes_healthcheck",
    ] {
        assert!(!text.contains(absent), "{absent}");
    }
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert!(families.map(|line| line.split(' ').next()).is_sorted());
}

#[test]
fn series_are_sorted_and_labels_escaped() {
    let text = text_of(|| {
        counter!("kubelet_started_containers_errors_total", "container_type" => "b", "code" => "x")
            .increment(2);
        counter!("kubelet_started_containers_errors_total", "code" => "x", "container_type" => "b")
            .increment(3);
        counter!("kubelet_started_containers_errors_total", "code" => "a\\b\"c\nd", "container_type" => "z")
            .increment(1);
    });
    assert_has(
        &text,
        "# TYPE kubelet_started_containers_errors_total counter\n\
         kubelet_started_containers_errors_total{code=\"a\\\\b\\\"c\\nd\",container_type=\"z\"} 1\n\
         kubelet_started_containers_errors_total{code=\"x\",container_type=\"b\"} 5\n#",
    );
}

#[test]
fn histogram_counts_up() {
    let text = text_of(|| {
        for value in [0.5, 1.0, 3.0, 100.0] {
            histogram!("kubelet_containers_per_pod_count").record(value);
        }
    });
    assert_has(
        &text,
        "kubelet_containers_per_pod_count_bucket{le=\"1\"} 2\n\
         kubelet_containers_per_pod_count_bucket{le=\"2\"} 2\n\
         kubelet_containers_per_pod_count_bucket{le=\"4\"} 3\n\
         kubelet_containers_per_pod_count_bucket{le=\"8\"} 3\n\
         kubelet_containers_per_pod_count_bucket{le=\"16\"} 3\n\
         kubelet_containers_per_pod_count_bucket{le=\"+Inf\"} 4\n\
         kubelet_containers_per_pod_count_sum 104.5\n\
         kubelet_containers_per_pod_count_count 4\n",
    );
}

#[test]
fn numbers_are_written_as_go_writes_them() {
    for (value, written) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (123456.0, "123456"),
        (1000000.0, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (1795410210.18, "1.79541021018e+09"),
        (u64::MAX as f64, "1.8446744073709552e+19"),
        (1e100, "1e+100"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        let text = text_of(|| gauge!("kubelet_cgroup_version").set(value));
        assert_has(&text, &format!("\nkubelet_cgroup_version {written}\n"));
    }
}

#[test]
fn a_gauge_with_labels_is_gone_while_it_is_nan() {
    let metrics = Metrics::new();
    let text = |value: f64| {
        metrics::with_local_recorder(&metrics, || {
            gauge!("dra_resource_claims_in_use", "driver_name" => "<any>").set(0.0);
            gauge!("dra_resource_claims_in_use", "driver_name" => "gpu").set(value);
            gauge!("of_an_embedder", "a" => "b").set(value);
        });
        let mut text = String::new();
        metrics.render(Selection::Main, Format::Text, &mut text);
        text
    };
    let gone = text(f64::NAN);
    assert_has(&gone, "\ndra_resource_claims_in_use{driver_name=\"<any>\"} 0\n");
    assert!(
        !gone.contains("\"gpu\"") && !gone.contains("of_an_embedder"),
        "{gone}"
    );
    let back = text(0.0);
    assert_has(&back, "\ndra_resource_claims_in_use{driver_name=\"gpu\"} 0\n");
    assert_has(&back, "\nof_an_embedder{a=\"b\"} 0\n");
}

#[test]
fn open_metrics_has_suffixes_and_an_end() {
    let metrics = Metrics::new();
    metrics::with_local_recorder(&metrics, || {
        counter!("kubelet_started_pods_total").increment(1_234_567);
        counter!("kubelet_preemptions", "preemption_signal" => "memory").increment(1);
        histogram!("kubelet_containers_per_pod_count").record(3.0);
    });
    let text = rendered(&metrics, Selection::Main, Format::OpenMetrics);
    assert_has(
        &text,
        "# HELP kubelet_started_pods [ALPHA] Cumulative number of pods started\n\
         # TYPE kubelet_started_pods counter\nkubelet_started_pods_total 1.234567e+06\n",
    );
    assert_has(
        &text,
        "# TYPE kubelet_preemptions unknown\nkubelet_preemptions{preemption_signal=\"memory\"} 1.0\n",
    );
    assert_has(&text, "kubelet_containers_per_pod_count_bucket{le=\"4.0\"} 1\n");
    assert_has(
        &text,
        "kubelet_containers_per_pod_count_sum 3.0\nkubelet_containers_per_pod_count_count 1\n",
    );
    assert!(text.ends_with("\n# EOF\n"));
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[test]
fn probes_and_health_checks_have_their_own_pages() {
    let metrics = Metrics::new();
    metrics.observe_health_check("ping", "healthz", true);
    metrics.observe_health_check("ping", "healthz", false);
    metrics::with_local_recorder(&metrics, || {
        for pod in ["a", "b"] {
            counter!("prober_probe_total", "probe_type" => "Liveness", "result" => "successful", "container" => "c",
                "pod" => pod, "namespace" => "default", "pod_uid" => "1")
            .increment(1);
            histogram!("prober_probe_duration_seconds", "probe_type" => "Liveness", "container" => "c",
                "pod" => pod, "namespace" => "default")
            .record(0.3);
        }
    });
    metrics.retain_pods(|namespace, pod, uid| {
        assert!(namespace == "default" && uid.is_none_or(|uid| uid == "1"));
        pod == "b"
    });
    let probes = rendered(&metrics, Selection::Probes, Format::Text);
    assert_has(
        &probes,
        "# TYPE prober_probe_total counter\nprober_probe_total{container=\"c\",namespace=\"default\",pod=\"b\",\
         pod_uid=\"1\",probe_type=\"Liveness\",result=\"successful\"} 1\n",
    );
    assert!(
        !probes.contains("pod=\"a\"") && !probes.contains("process_"),
        "{probes}"
    );
    let slis = rendered(&metrics, Selection::Slis, Format::Text);
    assert_has(
        &slis,
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
         # TYPE kubernetes_healthcheck gauge\nkubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 0\n",
    );
    assert_has(
        &slis,
        "kubernetes_healthchecks_total{name=\"ping\",status=\"error\",type=\"healthz\"} 1\n\
         kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1\n",
    );
    assert_eq!(slis.matches("# TYPE").count(), 3, "{slis}");
}

#[test]
fn process_is_shown_as_the_kubelet_shows_it() {
    let text = text_of(|| ());
    for (name, theirs) in recorded().iter().filter(|(name, _)| name.starts_with("process_")) {
        let (help, kind) = (theirs["help"].as_str().unwrap(), theirs["type"].as_str().unwrap());
        assert_has(
            &text,
            &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} "),
        );
    }
}

#[test]
fn build_and_features_are_shown() {
    let metrics = Metrics::new();
    metrics.set_build_info(&[("major", "1"), ("minor", "36"), ("git_version", "v1.36.0")]);
    metrics.set_feature("PodLevelResources", "BETA", true);
    let text = rendered(&metrics, Selection::Main, Format::Text);
    assert_has(
        &text,
        "kubernetes_build_info{git_version=\"v1.36.0\",major=\"1\",minor=\"36\"} 1\n",
    );
    assert_has(
        &text,
        "kubernetes_feature_enabled{name=\"PodLevelResources\",stage=\"BETA\"} 1\n",
    );
}

#[test]
fn metrics_of_an_embedder_are_shown() {
    let text = text_of(|| {
        metrics::describe_counter!("my.counter", "Mine");
        counter!("my.counter", "a-b" => "c").increment(1);
        histogram!("zz").record(0.2);
    });
    assert_has(
        &text,
        "# HELP my_counter Mine\n# TYPE my_counter counter\nmy_counter{a_b=\"c\"} 1\n",
    );
    assert_has(&text, "zz_bucket{le=\"0.1\"} 0\nzz_bucket{le=\"0.25\"} 1\n");
}

#[test]
fn a_metric_of_another_kind_is_ignored() {
    let text = text_of(|| gauge!("kubelet_started_pods_total").set(5.0));
    assert_has(&text, "\nkubelet_started_pods_total 0\n");
}

#[test]
fn series_of_a_metric_are_bounded() {
    let text = text_of(|| {
        for n in 0..registry::MAX_SERIES + 10 {
            counter!("kubelet_preemptions", "preemption_signal" => n.to_string()).increment(1);
        }
    });
    assert_eq!(
        text.matches("\nkubelet_preemptions{").count(),
        registry::MAX_SERIES
    );
}

#[test]
fn accept_is_negotiated() {
    for (accept, format) in [
        ("", Format::Text),
        ("*/*", Format::Text),
        ("text/plain", Format::Text),
        ("application/openmetrics-text", Format::OpenMetrics),
        ("application/openmetrics-text; version=2.0.0", Format::Text),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.7",
            Format::Text,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        ("application/openmetrics-text;q=0", Format::Text),
        (";;;=,,q=,", Format::Text),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(negotiate(&headers), format, "{accept}");
    }
}
