//! The kubelet's flags: the recorded table, and how arguments are read.
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read;

use flate2::read::GzDecoder;
use kubelet_config::flags::{CommandLine, Flag, Version};
use kubelet_config::kubelet_configuration::GoDuration;
use kubelet_config::{Error, KubeletConfiguration};
use proptest::prelude::*;
use serde::Deserialize;

/// Flags that the recorded binary was built without: it was not given the log format `json`, and shows its help
/// by other means.
const NOT_RECORDED: [&str; 3] = ["help", "log-json-info-buffer-size", "log-json-split-stream"];

#[derive(Debug, PartialEq, Deserialize)]
struct Recorded {
    flag: String,
    shorthand: String,
    #[serde(rename = "type")]
    kind: String,
    default: String,
    deprecated: bool,
    no_value_means: String,
}

#[test]
fn flags_are_the_recorded_ones() {
    let mut text = String::new();
    let packed: &[u8] = include_bytes!("../data/flags.jsonl.gz");
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let recorded = text
        .lines()
        .map(|line| serde_json::from_str::<Recorded>(line).unwrap());
    let recorded: BTreeMap<_, _> = recorded.map(|flag| (flag.flag.clone(), flag)).collect();

    let ours = Flag::all().filter(|flag| !NOT_RECORDED.contains(&flag.name()));
    let ours = ours.map(|flag| Recorded {
        flag: flag.name().to_owned(),
        shorthand: flag.shorthand().map(String::from).unwrap_or_default(),
        kind: flag.kind().to_owned(),
        default: flag.default_value(),
        deprecated: flag.deprecated().is_some(),
        no_value_means: flag.no_value_means().unwrap_or_default().to_owned(),
    });
    let ours: BTreeMap<_, _> = ours.map(|flag| (flag.flag.clone(), flag)).collect();
    assert_eq!(ours.len(), 147);
    assert_eq!(ours, recorded);
    let names: BTreeSet<_> = Flag::all().map(Flag::name).collect();
    assert_eq!((names.len(), Flag::all().count()), (150, 150));
}

fn parse(args: &[&str]) -> Result<CommandLine, Error> {
    CommandLine::parse(args)
}

/// The configuration that flags make of that of a kubelet without a file.
fn configured(args: &[&str]) -> KubeletConfiguration {
    let mut config = KubeletConfiguration::without_file();
    parse(args).unwrap().apply(&mut config).unwrap();
    config
}

fn given(args: &[&str]) -> Vec<String> {
    let line = parse(args).unwrap();
    line.given()
        .map(|(flag, value)| format!("{}={value}", flag.name()))
        .collect()
}

#[test]
fn forms_of_arguments() {
    let cases: [(&[&str], &[&str]); 22] = [
        (&[], &[]),
        (&["--max-pods=7"], &["max-pods=7"]),
        (&["--max-pods", "7"], &["max-pods=7"]),
        (&["--max_pods=7"], &["max-pods=7"]),
        (
            &["--max_pods", "7", "--kube_api-qps=1"],
            &["max-pods=7", "kube-api-qps=1"],
        ),
        (&["--max-pods=7", "--max-pods=8"], &["max-pods=7", "max-pods=8"]),
        (&["--register-node"], &["register-node=true"]),
        (&["--register-node=false"], &["register-node=false"]),
        (
            &["--register-node", "--max-pods=7"],
            &["register-node=true", "max-pods=7"],
        ),
        (&["--kubeconfig="], &["kubeconfig="]),
        (&["--kubeconfig", ""], &["kubeconfig="]),
        (&["--node-labels=a=b"], &["node-labels=a=b"]),
        // Whatever follows is the value, and is left as it is.
        (&["--kubeconfig", "--max_pods=7"], &["kubeconfig=--max_pods=7"]),
        (&["--kubeconfig", "--"], &["kubeconfig=--"]),
        (&["--oom-score-adj", "-7"], &["oom-score-adj=-7"]),
        (&["--oom-score-adj=-7"], &["oom-score-adj=-7"]),
        (&["-v=4"], &["v=4"]),
        (&["-v4"], &["v=4"]),
        (&["-v", "4"], &["v=4"]),
        (&["--v=4"], &["v=4"]),
        (&["--max-pods=7", "--"], &["max-pods=7"]),
        (&["--node-labels=a_b=c_d"], &["node-labels=a_b=c_d"]),
    ];
    for (args, expected) in cases {
        assert_eq!(given(args), expected, "{args:?}");
    }
}

#[test]
fn what_is_no_flag_or_has_no_value_is_named() {
    let unknown = [
        ("--bogus", "--bogus"),
        ("--bogus=1", "--bogus"),
        ("--bogus_flag=1", "--bogus-flag"),
        ("-max-pods=7", "-m"),
        ("--max", "--max"),
        ("---max-pods=7", "---max-pods"),
        ("--=7", "--"),
        ("-x", "-x"),
    ];
    for (arg, named) in unknown {
        match parse(&["--register-node", arg]) {
            Err(Error::Argument { argument, .. }) => {
                assert!(argument.starts_with(named), "{arg}: {argument}");
            }
            other => panic!("{arg}: {other:?}"),
        }
    }
    for args in [&["--max-pods"][..], &["-v"], &["--port=1", "--kubeconfig"]] {
        match parse(args) {
            Err(error @ Error::Argument { .. }) => {
                assert!(
                    error.to_string().contains("needs an argument"),
                    "{args:?}: {error}"
                );
            }
            other => panic!("{args:?}: {other:?}"),
        }
    }
    for (args, named) in [
        (&["run"][..], "run"),
        (&["--register-node", "false"], "false"),
        (&["a", "b"], "a"),
        (&["--", "--max-pods=7"], "--max-pods=7"),
        (&["--", "x"], "x"),
        (&["-"], "-"),
        (&[""], ""),
    ] {
        match parse(args) {
            Err(Error::UnknownCommand { command }) => assert_eq!(command, named),
            other => panic!("{args:?}: {other:?}"),
        }
    }
}

#[test]
fn wrong_values_are_named_the_first_first() {
    let cases = [
        (&["--max-pods=x"][..], "max-pods", "x"),
        (&["--max-pods="], "max-pods", ""),
        (&["--max-pods=2147483648"], "max-pods", "2147483648"),
        (&["--register-node=maybe"], "register-node", "maybe"),
        (&["--register-node="], "register-node", ""),
        (&["--sync-frequency=90"], "sync-frequency", "90"),
        (&["--housekeeping-interval=abc"], "housekeeping-interval", "abc"),
        (
            &["--application-metrics-count-limit=x"],
            "application-metrics-count-limit",
            "x",
        ),
        (&["--address=1.2.3"], "address", "1.2.3"),
        (&["--eviction-hard=a=b"], "eviction-hard", "a=b"),
        (&["--system-reserved=cpu"], "system-reserved", "cpu"),
        (
            &["--cpu-manager-policy-options="],
            "cpu-manager-policy-options",
            "",
        ),
        (&["--feature-gates=A"], "feature-gates", "A"),
        (&["--feature-gates=A=maybe"], "feature-gates", "A=maybe"),
        (&["--manifest-url-header=a"], "manifest-url-header", "a"),
        (
            &["--log-text-info-buffer-size=x"],
            "log-text-info-buffer-size",
            "x",
        ),
        (&["--reserved-memory=x"], "reserved-memory", "x"),
        (
            &["--register-with-taints=k=v:Bogus"],
            "register-with-taints",
            "k=v:Bogus",
        ),
        (&["--vmodule=x"], "vmodule", "x"),
        (&["--vmodule=a=1=2"], "vmodule", "a=1=2"),
        (&["-v=-1"], "v", "-1"),
        (&["--cluster-dns=\"a"], "cluster-dns", "\"a"),
        (&["--version=v2.0.0"], "version", "v2.0.0"),
        (&["--port=1", "--v=x", "--max-pods=y"], "v", "x"),
        (&["--max-pods=y", "--port=1", "--v=x"], "max-pods", "y"),
        (&["--help=maybe"], "help", "maybe"),
    ];
    for (args, expected_flag, expected_value) in cases {
        match parse(args) {
            Err(Error::Flag { flag, value, .. }) => {
                assert_eq!((flag.as_str(), value.as_str()), (expected_flag, expected_value));
            }
            other => panic!("{args:?}: {other:?}"),
        }
    }
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let value = OsString::from_vec(b"\xff".to_vec());
    match CommandLine::parse([OsString::from("--root-dir"), value]) {
        Err(Error::Flag { flag, .. }) => assert_eq!(flag, "root-dir"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_replace_or_add_up() {
    let config = configured(&[
        "--cluster-dns=a,b",
        "--cluster-dns=c",
        "--enforce-node-allocatable=none",
    ]);
    assert_eq!(config.cluster_dns, ["a", "b", "c"]);
    assert_eq!(config.enforce_node_allocatable, ["none"]);
    assert!(
        configured(&["--enforce-node-allocatable="])
            .enforce_node_allocatable
            .is_empty()
    );

    let map = |map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
    };
    let config = configured(&[
        "--system-reserved= cpu = 1 ,,memory=1Gi",
        "--system-reserved=pid=5",
        "--eviction-hard=memory.available<1Gi",
        "--eviction-hard=nodefs.available<10%",
        "--cpu-manager-policy-options=a=b,c=d",
        "--cpu-manager-policy-options=e=f",
    ]);
    assert_eq!(map(&config.system_reserved), ["cpu=1", "memory=1Gi", "pid=5"]);
    assert_eq!(
        map(&config.eviction_hard),
        ["memory.available=1Gi", "nodefs.available=10%"]
    );
    assert_eq!(map(&config.cpu_manager_policy_options), ["a=b,c=d", "e=f"]);

    let config = configured(&["--manifest-url-header=a:b:c,d:e", "--manifest-url-header=a:f"]);
    assert_eq!(config.static_pod_url_header["a"], ["b:c", "f"]);
    assert_eq!(config.static_pod_url_header["d"], ["e"]);

    let config = configured(&[
        "--register-with-taints=a:NoSchedule",
        "--register-with-taints=b:NoExecute",
    ]);
    assert_eq!(config.register_with_taints.len(), 1);
    assert!(
        configured(&["--register-with-taints=a:NoSchedule", "--register-with-taints="])
            .register_with_taints
            .is_empty()
    );

    let config = configured(&["--vmodule=a=1,b=2", "--vmodule=c=3", "--v=9"]);
    assert_eq!((config.logging.vmodule.len(), config.logging.verbosity), (3, 9));
    let config = configured(&[
        "--reserved-memory=0:memory=1Gi;1:memory=1Gi",
        "--reserved-memory=2:memory=1Gi",
    ]);
    assert_eq!(config.reserved_memory.len(), 3);

    let config = configured(&["--feature-gates=A=true,B=false", "--feature-gates=B=true"]);
    assert_eq!(
        config.feature_gates,
        BTreeMap::from([("A".into(), true), ("B".into(), true)])
    );
}

#[test]
fn values_of_a_file_give_way_to_the_first_of_a_flag() {
    let mut config = KubeletConfiguration {
        cluster_dns: vec!["of the file".into()],
        ..KubeletConfiguration::default()
    };
    config.system_reserved.insert("memory".into(), "1Gi".into());
    config
        .eviction_soft
        .insert("memory.available".into(), "1Gi".into());
    let line = parse(&[
        "--cluster-dns=a",
        "--cluster-dns=b",
        "--system-reserved=cpu=1",
        "--address=",
    ])
    .unwrap();
    line.apply(&mut config).unwrap();
    assert_eq!(config.cluster_dns, ["a", "b"]);
    assert_eq!(config.system_reserved.keys().collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(config.eviction_soft.len(), 1);
    assert_eq!(config.address, "0.0.0.0");
}

#[test]
fn flags_of_the_kubelet_alone() {
    let line = parse(&[
        "--node-labels=a,b=c",
        "--node-labels= d = e ",
        "--minimum-container-ttl-duration=1m30s",
        "--maximum-dead-containers=0x10",
        "--exit-on-lock-contention",
        "--config=c",
        "--config-dir=d",
        "--storage-driver-db=x",
    ])
    .unwrap();
    let flags = line.flags();
    let labels = [("a", ""), ("b", "c"), ("d", "e")];
    assert_eq!(
        flags.node_labels,
        labels.map(|(key, value)| (key.into(), value.into())).into()
    );
    assert_eq!(flags.minimum_gc_age, GoDuration::from_secs(90));
    assert_eq!(flags.max_container_count, 16);
    assert!(flags.exit_on_lock_contention);
    assert_eq!(
        (
            flags.kubelet_config_file.as_str(),
            flags.kubelet_dropin_config_directory.as_str()
        ),
        ("c", "d")
    );
    assert_eq!(flags.root_directory, "/var/lib/kubelet");
    let deprecated: Vec<_> = line.deprecated().map(Flag::name).collect();
    assert_eq!(
        deprecated,
        [
            "minimum-container-ttl-duration",
            "maximum-dead-containers",
            "storage-driver-db"
        ]
    );
    assert!(line.check().is_ok());
    let forbidden = parse(&["--node-labels=kubernetes.io/a=b,c=d e"]).unwrap().check();
    match forbidden {
        Err(Error::NodeLabels { problems }) => assert_eq!(problems.len(), 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn why_a_flag_is_deprecated() {
    let why = |name: &str| Flag::find(name).unwrap().deprecated().unwrap_or_default();
    assert_eq!(why("max-pods"), "in the file of --config, set the field maxPods");
    assert!(why("boot-id-file").contains("cAdvisor"));
    assert!(why("maximum-dead-containers").contains("--eviction-hard"));
    assert_eq!(why("v"), "");
    assert!(Flag::find("bogus").is_none());
    let twice = parse(&["--max-pods=1", "--max-pods=2"]).unwrap();
    assert_eq!(twice.deprecated().count(), 1);
}

#[test]
fn help_and_version_are_asked_for() {
    let line = parse(&["--version", "-h", "--max-pods=7"]).unwrap();
    assert!(line.help());
    assert_eq!(line.version(), &Version::True);
    assert_eq!(parse(&["--version=raw"]).unwrap().version(), &Version::Raw);
    assert_eq!(
        parse(&["--version=false", "--help=false"]).unwrap().version(),
        &Version::False
    );
    assert!(!parse(&["--help=false"]).unwrap().help());

    let help = CommandLine::command().render_help().to_string();
    for flag in Flag::all() {
        assert!(help.contains(&format!("--{}", flag.name())), "{}", flag.name());
    }
    assert!(help.contains("[default: /var/lib/kubelet]"), "{help}");
    assert!(
        help.contains("EventedPLEG=true|false (ALPHA - default=false)"),
        "{help}"
    );
    assert!(!help.contains("NodeSwap=true"), "{help}");
}

/// Every field that a flag stands for is set by it, and nothing else is.
#[test]
fn each_flag_sets_its_field() {
    let before = serde_json::to_value(KubeletConfiguration::without_file()).unwrap();
    for flag in Flag::all() {
        let Some(field) = flag.field() else {
            continue;
        };
        let value = match flag.kind() {
            "bool" => {
                if flag.default_value() == "true" {
                    "false"
                } else {
                    "true"
                }
            }
            "int32" | "int64" | "Level" => "77",
            "string" | "stringSlice" => "other",
            "duration" => "77s",
            "ip" => "1.2.3.4",
            "mapStringString"
                if flag.name().starts_with("eviction-")
                    && field != "evictionMinimumReclaim"
                    && field != "evictionSoftGracePeriod" =>
            {
                "a<b"
            }
            "mapStringString" => "a=b",
            "mapStringBool" => "A=true",
            "colonSeparatedMultimapStringString" => "a:b",
            "quantity" => "77Mi",
            "reserved-memory" => "0:memory=1Gi",
            "[]v1.Taint" => "a=b:NoSchedule",
            "pattern=N,..." => "a=1",
            other => panic!("{other}"),
        };
        let after = configured(&[&format!("--{}={value}", flag.name())]);
        let after = serde_json::to_value(after).unwrap();
        let pointer = format!("/{}", field.replace('.', "/"));
        assert_ne!(
            before.pointer(&pointer),
            after.pointer(&pointer),
            "{}: {field}",
            flag.name()
        );
        let mut restored = after.clone();
        copy(&before, &mut restored, &field.split('.').collect::<Vec<_>>());
        assert_eq!(restored, before, "{}: {field}", flag.name());
    }
}

fn copy(from: &serde_json::Value, to: &mut serde_json::Value, path: &[&str]) {
    let to = to.as_object_mut().unwrap();
    match path {
        [last] => match from.get(last) {
            Some(value) => _ = to.insert((*last).to_owned(), value.clone()),
            None => _ = to.remove(*last),
        },
        [first, rest @ ..] => copy(&from[first], &mut to[*first], rest),
        [] => {}
    }
}

/// An argument: a flag of ours or something like one, with or without a value.
fn argument() -> impl Strategy<Value = String> {
    let names: Vec<_> = Flag::all().map(Flag::name).collect();
    let value = prop_oneof![
        "[a-z0-9=,:<;\"_.-]{0,8}",
        Just("true".to_owned()),
        Just("1".to_owned()),
        Just("1m".to_owned())
    ];
    let flag = (
        prop::sample::select(names),
        prop::option::of(value.clone()),
        any::<bool>(),
    )
        .prop_map(|(name, value, underscores)| {
            let name = if underscores {
                name.replace('-', "_")
            } else {
                name.to_owned()
            };
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            format!("--{name}{value}")
        });
    prop_oneof![4 => flag, 1 => value, 1 => "-{0,3}[hvx=0-9]{0,3}", 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nothing breaks it, and what was read can be applied, once and again.
    #[test]
    fn any_arguments_are_read_or_refused(args in prop::collection::vec(argument(), 0..6)) {
        if let Ok(line) = CommandLine::parse(&args) {
            let mut config = KubeletConfiguration::default();
            line.apply(&mut config).unwrap();
            line.apply(&mut config).unwrap();
        }
    }

    /// A value may stand in the flag's argument or the next, whatever it looks like.
    #[test]
    fn both_places_of_a_value_are_one(
        flag in prop::sample::select(Flag::all().filter(|flag| flag.no_value_means().is_none()).collect::<Vec<_>>()),
        value in "[ -~]{0,12}",
        after in argument(),
    ) {
        let joined = CommandLine::parse([format!("--{}={value}", flag.name()), after.clone()]);
        let apart = CommandLine::parse([format!("--{}", flag.name()), value, after]);
        prop_assert_eq!(format!("{joined:?}"), format!("{apart:?}"));
    }
}

/// What a kubelet v1.36.2 answered to `/flagz`.
#[test]
fn all_values_are_those_of_the_kubelet() {
    let args = [
        "--config=/var/lib/kubelet.yaml",
        "--hostname-override=node1",
        "--kubeconfig=/srv/state/node1.kubeconfig",
        "--node-ip=10.99.0.1",
    ];
    let command_line = CommandLine::parse(args).unwrap();
    let found: String = command_line
        .values()
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    let differences: Vec<_> = include_str!("../data/flagz.txt")
        .lines()
        .filter(|line| !found.lines().any(|found| found == *line))
        .map(|line| {
            let name = line.split('=').next().unwrap();
            (line, command_line.values().get(name).cloned())
        })
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
}
