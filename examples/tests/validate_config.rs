//! The example `validate-config`, run as the program it is. What it says of many files is in `configurations.rs`.
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::program;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, fields) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{HEADER}{fields}")).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(program("validate-config")).arg(self.path("config.yaml")).args(args).output().unwrap()
    }
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8(text.to_vec()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn prints_what_would_be_in_force() {
    let files = Files::new(&[
        (
            "config.yaml",
            "maxPods: 50\nstaticPodPath: manifests\nstaticPodURLHeader: {Authorization: [secret]}",
        ),
        ("d/10.conf", "maxPods: 60"),
        ("d/readme.txt", ""),
    ]);
    let output = files.run(&["--config-dir", &files.path("d")]);
    assert!(output.status.success(), "{output:?}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let config = &shown["kubeletconfig"];
    assert_eq!(config["maxPods"], 60);
    assert_eq!(config["syncFrequency"], "1m0s");
    assert_eq!(config["staticPodPath"], files.path("manifests"));
    assert_eq!(config["staticPodURLHeader"]["Authorization"][0], "<masked>");
    assert_eq!(
        lines(&output.stderr),
        [format!("skipped: {}: does not end in .conf", files.path("d/readme.txt"))]
    );
}

#[test]
fn tells_all_that_is_wrong_and_in_which_file() {
    for (file, drop_in, args, expected) in [
        (
            "maxPods: -1\nport: 70000",
            "",
            &[][..],
            &[("config.yaml", "validate: maxPods: "), ("config.yaml", "validate: port: ")][..],
        ),
        (
            "nosuch: 1\nmaxpods: 2",
            "",
            &[],
            &[
                ("config.yaml", "load: line 3: unknown field \"nosuch\""),
                ("config.yaml", "load: line 4: unknown field \"maxpods\""),
            ],
        ),
        (
            "",
            "maxPods: ten",
            &[],
            &[("d/10.conf", "drop-ins: line 3: maxPods: expected a whole number, found the string \"ten\"")],
        ),
        (
            "featureGates: {NoSuchGate: true}",
            "",
            &["--lenient"],
            &[("config.yaml", "featureGates: unrecognized feature gate: NoSuchGate")],
        ),
    ] {
        let files = Files::new(&[("config.yaml", file), ("d/10.conf", drop_in)]);
        let folder = files.path("d");
        let output = files.run(&[&["--config-dir", &folder], args].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty());
        let told = lines(&output.stderr);
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (file, problem) in expected {
            let expected = format!("{}: {problem}", files.path(file));
            assert!(told.iter().any(|line| line.starts_with(&expected)), "{expected:?} is not in {told:?}");
        }
    }
}

#[test]
fn lenient_is_with_warnings() {
    let files = Files::new(&[("config.yaml", "nosuch: 1")]);
    let output = files.run(&["--lenient"]);
    assert!(output.status.success());
    assert_eq!(lines(&output.stderr), ["ignored: line 3: unknown field \"nosuch\""]);
}
