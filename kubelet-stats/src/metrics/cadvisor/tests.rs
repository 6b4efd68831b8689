use std::sync::Arc;

use super::*;
use crate::reading::{
    ContainerRecord, CpuSpec, FileSystem, IoCounters, MemorySpec, NetworkUsage, PodRef, Spec, Ulimit,
};

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn reading(name: &str) -> Reading {
    let mut reading = Reading {
        name: name.into(),
        ..Default::default()
    };
    reading.usage.timestamp = NOW;
    reading
}

fn text(readings: Vec<Reading>, incomplete: bool, with_psi: bool) -> String {
    let cgroups = readings
        .into_iter()
        .map(|reading| (reading.name.clone(), Arc::new(reading)));
    let snapshot = Snapshot {
        cgroups: cgroups.collect(),
        incomplete,
        ..Default::default()
    };
    let machine = (snapshot.machine.clone(), snapshot.version.clone());
    String::from_utf8(Pieces::new(Some(machine), Some(&snapshot), with_psi, NOW).whole()).unwrap()
}

/// The lines of a metric, without its name and its header.
fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let series = text.lines().filter(|line| !line.starts_with('#'));
    series
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'))
        .collect()
}

#[test]
fn a_container_has_the_labels_of_its_pod() {
    let mut container = reading("/kubepods/poda/c1");
    container.container = Some(Arc::new(ContainerRecord {
        id: "c1".into(),
        image: "busybox:1.36".into(),
        name: "main".into(),
        ..Default::default()
    }));
    let mut pod = reading("/kubepods/poda");
    for reading in [&mut container, &mut pod] {
        reading.pod = Some(Arc::new(PodRef {
            namespace: "default".into(),
            name: "web".into(),
            uid: "a".into(),
        }));
    }
    container.usage.cpu.total = 1_500_000_000;
    let text = text(vec![reading("/"), pod, container], false, false);
    assert_eq!(
        lines(&text, "container_memory_rss"),
        [
            r#"container="",id="/",image="",name="",namespace="",pod=""} 0 1767225600000"#,
            r#"container="",id="/kubepods/poda",image="",name="",namespace="default",pod="web"} 0 1767225600000"#,
            r#"container="main",id="/kubepods/poda/c1",image="busybox:1.36",name="c1",namespace="default",pod="web"} 0 1767225600000"#,
        ]
    );
    // A cgroup that has used no CPU time is not shown.
    assert_eq!(
        lines(&text, "container_cpu_usage_seconds_total"),
        [
            r#"container="main",cpu="total",id="/kubepods/poda/c1",image="busybox:1.36",name="c1",namespace="default",pod="web"} 1.5 1767225600000"#
        ]
    );
}

#[test]
fn throttling_needs_a_quota_and_limits_a_spec() {
    let mut limited = reading("/kubepods/poda");
    limited.spec = Arc::new(Spec {
        cpu: Some(CpuSpec {
            shares: 512,
            quota: 50_000,
            period: 100_000,
        }),
        memory: Some(MemorySpec {
            limit: u64::MAX,
            ..Default::default()
        }),
        creation_time: Some(NOW),
        ..Default::default()
    });
    let text = text(vec![reading("/"), limited], false, false);
    for (name, value) in [
        ("container_cpu_cfs_periods_total", "0 1767225600000"),
        ("container_spec_cpu_quota", "50000"),
        ("container_spec_cpu_shares", "512"),
        ("container_spec_memory_limit_bytes", "0"),
    ] {
        let labels = r#"container="",id="/kubepods/poda",image="",name="",namespace="",pod=""} "#;
        assert_eq!(lines(&text, name), [format!("{labels}{value}")], "{name}");
    }
    assert_eq!(lines(&text, "container_start_time_seconds").len(), 2);
}

#[test]
fn devices_interfaces_and_limits_have_labels_of_their_own() {
    let device = |device: &str, operations: &[(&str, u64)]| DeviceIo {
        device: device.into(),
        major: 254,
        minor: 0,
        operations: operations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect(),
    };
    let mut root = reading("/");
    root.usage.disk_io.io_service_bytes = vec![device("/dev/vda", &[("Read", 512), ("Write", 1024)])];
    root.usage.disk_io.io_serviced = vec![device("/dev/vda", &[("Read", 1)])];
    let file_system = |device: &str| FileSystem {
        device: device.into(),
        capacity: 4096,
        free: 1024,
        io: IoCounters {
            reads_completed: 9,
            read_time: 5,
            ..Default::default()
        },
        ..Default::default()
    };
    root.usage.file_systems = vec![file_system("/dev/vda"), file_system("/dev/sda")];
    root.usage.processes.ulimits = vec![Ulimit {
        name: "max_open_files",
        soft: -1,
        hard: -1,
    }];
    let interface = |name: &str| Interface {
        name: name.into(),
        rx_bytes: 7,
        ..Default::default()
    };
    root.usage.network = NetworkUsage {
        interfaces: vec![interface("eth1"), interface("eth0")],
        ..Default::default()
    };
    let text = text(vec![root], false, false);
    let rest = r#"id="/",image="",name="",namespace="",pod=""}"#;
    assert_eq!(
        lines(&text, "container_fs_reads_total"),
        [
            format!(r#"container="",device="/dev/sda",{rest} 9 1767225600000"#),
            format!(r#"container="",device="/dev/vda",{rest} 1 1767225600000"#),
        ]
    );
    assert_eq!(
        lines(&text, "container_fs_usage_bytes")[0],
        format!(r#"container="",device="/dev/sda",{rest} 3072 1767225600000"#)
    );
    // The kubelet takes milliseconds for nanoseconds.
    assert_eq!(
        lines(&text, "container_fs_read_seconds_total")[0],
        format!(r#"container="",device="/dev/sda",{rest} 5e-09 1767225600000"#)
    );
    assert_eq!(
        lines(&text, "container_blkio_device_usage_total"),
        [
            r#"container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Read",pod=""} 512 1767225600000"#,
            r#"container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Write",pod=""} 1024 1767225600000"#,
        ]
    );
    let interfaces = lines(&text, "container_network_receive_bytes_total");
    assert_eq!(
        interfaces,
        ["eth0", "eth1"].map(|name| format!(
            r#"container="",id="/",image="",interface="{name}",name="",namespace="",pod=""}} 7 1767225600000"#
        ))
    );
    assert_eq!(
        lines(&text, "container_ulimits_soft"),
        [
            r#"container="",id="/",image="",name="",namespace="",pod="",ulimit="max_open_files"} -1 1767225600000"#
        ]
    );
}

#[test]
fn stalls_are_shown_where_the_kernel_reports_them() {
    let mut root = reading("/");
    root.usage.cpu.psi.some.total = 2_500_000;
    let shown = text(vec![root.clone()], false, true);
    assert_eq!(
        lines(&shown, "container_pressure_cpu_waiting_seconds_total"),
        [r#"container="",id="/",image="",name="",namespace="",pod=""} 2.5 1767225600000"#]
    );
    assert!(!text(vec![root], false, false).contains("pressure"));
}

#[test]
fn errors_are_shown_beside_what_could_be_read() {
    let shown = text(vec![reading("/")], true, false);
    assert!(shown.contains("container_scrape_error 1\n") && shown.contains("machine_scrape_error 0\n"));
    assert!(!lines(&shown, "container_memory_rss").is_empty());
    let nothing = String::from_utf8(Pieces::new(None, None, true, NOW).whole()).unwrap();
    let series: Vec<_> = nothing.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(series, ["container_scrape_error 1", "machine_scrape_error 1"]);
}

#[test]
fn metrics_are_sorted_by_name() {
    assert!(METRICS.is_sorted_by_key(|metric| metric.name));
}
