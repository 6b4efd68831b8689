//! From the command line to the configuration in force: what goes before what, and where it ends if it is wrong.
use std::ffi::OsString;

use kubelet_config::flags::{CommandLine, KubeletServer};
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::{ConfigurationStage, Error, KubeletConfiguration};

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Starts with a file and a drop-in of these fields, and these arguments after those that name them.
fn start(file: Option<&str>, drop_in: Option<&str>, args: &[&str]) -> Result<KubeletServer, Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut all: Vec<OsString> = Vec::new();
    if let Some(fields) = file {
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, format!("{HEADER}{fields}")).unwrap();
        all.extend(["--config".into(), path.into()]);
    }
    if let Some(fields) = drop_in {
        std::fs::write(folder.path().join("10.conf"), format!("{HEADER}{fields}")).unwrap();
        let mut arg = OsString::from("--config_dir=");
        arg.push(folder.path());
        all.push(arg);
    }
    all.extend(args.iter().map(Into::into));
    CommandLine::parse(all)?.load(&Host::default())
}

#[test]
fn flags_go_before_drop_ins_these_before_the_file_and_that_before_defaults() {
    let server = start(
        Some(
            "maxPods: 1\nport: 1\nhealthzPort: 1\nclusterDNS: [a]\nsystemReserved: {cpu: 1m, memory: 1Mi}\n",
        ),
        Some("maxPods: 2\nport: 2\nclusterDNS: [b]\nsystemReserved: {cpu: 2m}\n"),
        &["--max-pods=3", "--system-reserved=pid=3"],
    );
    let config = server.unwrap().configuration;
    let ports = (
        config.max_pods,
        config.port,
        config.healthz_port,
        config.registry_burst,
    );
    assert_eq!(ports, (3, 2, 1, 10));
    assert_eq!(config.cluster_dns, ["b"]);
    // A flag replaces a map as a whole, a drop-in only what it names.
    assert_eq!(
        config.system_reserved.into_iter().collect::<Vec<_>>(),
        [("pid".into(), "3".into())]
    );
    let config = start(
        Some("systemReserved: {cpu: 1m, memory: 1Mi}"),
        Some("systemReserved: {cpu: 2m}"),
        &[],
    );
    assert_eq!(config.unwrap().configuration.system_reserved.len(), 2);
}

#[test]
fn without_a_file_defaults_are_of_old() {
    let server = start(None, None, &["--max-pods=3"]).unwrap();
    let expected = KubeletConfiguration {
        max_pods: 3,
        ..KubeletConfiguration::without_file()
    };
    assert_eq!(server.configuration, expected);
    assert_eq!(
        (expected.read_only_port, expected.authorization.mode.as_str()),
        (10255, "AlwaysAllow")
    );
    // A file, be it empty, brings its own, and its drop-ins do not.
    assert_eq!(
        start(Some(""), None, &[]).unwrap().configuration.read_only_port,
        0
    );
    assert_eq!(
        start(None, Some(""), &[]).unwrap().configuration.read_only_port,
        10255
    );
}

#[test]
fn gates_of_all_count_flags_first() {
    let server = start(
        Some("featureGates: {MemoryQoS: true, EventedPLEG: true, QOSReserved: true}"),
        Some("featureGates: {QOSReserved: false}"),
        &[
            "--feature-gates=EventedPLEG=false",
            "--feature-gates=CRIListStreaming=true",
        ],
    );
    let server = server.unwrap();
    let given: Vec<_> = server.feature_gates.given().collect();
    let expected = [
        ("CRIListStreaming", true),
        ("EventedPLEG", false),
        ("MemoryQoS", true),
        ("QOSReserved", false),
    ];
    assert_eq!(given, expected);
    let of_configuration = server
        .configuration
        .feature_gates
        .iter()
        .map(|(name, &on)| (name.as_str(), on));
    assert_eq!(of_configuration.collect::<Vec<_>>(), expected);
}

#[test]
fn gates_of_flags_have_a_say_in_what_is_valid() {
    let fields = Some("logging: {options: {text: {splitStream: true}}}");
    let refused = start(fields, None, &[]).unwrap_err();
    assert_eq!(refused.stage(), Some(ConfigurationStage::Validate));
    start(fields, None, &["--feature-gates=LoggingAlphaOptions=true"]).unwrap();
}

#[test]
fn what_is_wrong_ends_it_at_its_stage() {
    use ConfigurationStage::{Arguments, DropIns, FeatureGates, Flags, Load, Validate, ValidateFlags};
    type Start<'a> = (Option<&'a str>, Option<&'a str>, &'a [&'a str]);
    let cases: [(Start<'_>, ConfigurationStage, &str); 14] = [
        ((None, None, &["--bogus"]), Flags, "--bogus"),
        ((None, None, &["--max-pods=x"]), Flags, "max-pods"),
        ((None, None, &["--max-pods=x", "run"]), Flags, "max-pods"),
        (
            (None, None, &["run", "--feature-gates=NodeSwap=false"]),
            Arguments,
            "run",
        ),
        (
            (
                None,
                None,
                &["--feature-gates=NodeSwap=false", "--node-labels=k8s.io/a=b"],
            ),
            FeatureGates,
            "NodeSwap",
        ),
        (
            (None, None, &["--feature-gates=Bogus=true"]),
            FeatureGates,
            "Bogus",
        ),
        // A flag's gates must fit by themselves, before a file is read.
        (
            (
                Some("featureGates: {ClusterTrustBundle: true}"),
                None,
                &["--feature-gates=ClusterTrustBundleProjection=true"],
            ),
            FeatureGates,
            "ClusterTrustBundleProjection",
        ),
        (
            (Some("maxPods: x"), None, &["--node-labels=k8s.io/a=b"]),
            ValidateFlags,
            "k8s.io/a",
        ),
        ((None, None, &["--config=/no/such/file"]), Load, "/no/such/file"),
        (
            (Some("maxPods: x"), Some("maxPods: y"), &["--max-pods=1"]),
            Load,
            "maxPods",
        ),
        (
            (None, None, &["--config-dir=/no/such/folder"]),
            DropIns,
            "/no/such/folder",
        ),
        ((Some("maxPods: -1"), Some("maxPods: y"), &[]), DropIns, "maxPods"),
        (
            (Some("featureGates: {NodeSwap: false}"), None, &[]),
            FeatureGates,
            "NodeSwap",
        ),
        (
            (Some("maxPods: 1"), Some("maxPods: 2"), &["--max-pods=-1"]),
            Validate,
            "maxPods",
        ),
    ];
    for ((file, drop_in, args), stage, about) in cases {
        match start(file, drop_in, args) {
            Err(error) => {
                assert_eq!(error.stage(), Some(stage), "{args:?}: {error}");
                assert!(error.to_string().contains(about), "{args:?}: {error}");
            }
            Ok(_) => panic!("{file:?} {drop_in:?} {args:?}"),
        }
    }
    // What a flag says is not asked of the file.
    start(Some("maxPods: -1"), None, &["--max-pods=1"]).unwrap();
}

#[test]
fn what_is_ignored_in_files_is_reported() {
    let server = start(
        Some("noSuchField: 1"),
        None,
        &["--log-cadvisor-usage", "--max-pods=7"],
    )
    .unwrap();
    assert_eq!(server.ignored.len(), 1, "{:?}", server.ignored);
    assert!(server.ignored[0].contains("noSuchField"));
    // The kubelet would take the next argument for cAdvisor's on its second reading.
    assert_eq!(server.configuration.max_pods, 7);
}
