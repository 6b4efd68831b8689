//! The command line, with a file and drop-ins, held to what the kubelet makes of the same.
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use kubelet_config::Error;
use kubelet_config::flags::{CommandLine, KubeletFlags, KubeletServer};
use kubelet_config::kubelet_configuration::validation::Host;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::kubelet_configuration_recorded::without_type;

/// Where the recorded files lay, as relative paths in them show: the file here, and drop-ins in `d`.
const RECORDED_FOLDER: &str = "/etc/kubernetes/x";

/// The recorded cases where we differ, and why. A case that no longer differs must leave the list.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];

#[derive(Deserialize)]
struct Case {
    name: String,
    args: Vec<String>,
    config_file: Option<String>,
    #[serde(default)]
    drop_ins: BTreeMap<String, String>,
    kubelet_flags: Option<Map<String, Value>>,
    kubeletconfig: Option<Value>,
    skipped_drop_ins: Option<Vec<String>>,
    rejected_at: Option<String>,
    error: Option<String>,
}

fn cases() -> Vec<Case> {
    // Each flag, and odd values of each type of flag, flags given twice, and drop-ins.
    let recordings: [&[u8]; 2] = [
        include_bytes!("../data/command-lines.jsonl.gz"),
        include_bytes!("../data/command-lines-odd.jsonl.gz"),
    ];
    let mut text = String::new();
    for packed in recordings {
        GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn starts_as_recorded() {
    let cases = cases();
    assert!(!cases.is_empty());
    let known: BTreeMap<_, _> = KNOWN_DIFFERENCES.iter().copied().collect();
    let mut wrong = Vec::new();
    for case in &cases {
        let folder = tempfile::tempdir().unwrap();
        let name = &case.name;
        match (differs(case, folder.path()), known.get(name.as_str())) {
            (None, None) | (Some(_), Some(_)) => {}
            (Some(difference), None) => wrong.push(format!("{name} {:?}: {difference}", case.args)),
            (None, Some(_)) => wrong.push(format!("{name}: is right now, take it off the list")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of the cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn differs(case: &Case, folder: &Path) -> Option<String> {
    match (start(case, folder), &case.kubeletconfig) {
        (Ok(server), Some(expected)) => differing_start(case, &server, expected, folder),
        (Ok(_), None) => Some(format!("should be rejected: {:?}", case.error)),
        (Err(error), Some(_)) => Some(format!("should be accepted, got: {error}")),
        (Err(error), None) => {
            let stage = error.stage().map(|stage| stage.to_string());
            let about = about(case);
            if stage != case.rejected_at {
                Some(format!(
                    "should be rejected at {:?}, got: {error}",
                    case.rejected_at
                ))
            } else if !error.to_string().contains(&about) {
                Some(format!("should tell of {about}, got: {error}"))
            } else {
                None
            }
        }
    }
}

/// What the recorded error names that ours should name too: the flag, the field or the file.
fn about(case: &Case) -> String {
    let error = case.error.as_deref().unwrap();
    if error.starts_with("invalid argument") {
        let (_, flag) = error.split_once("for \"").unwrap();
        let (flag, _) = flag.split_once('"').unwrap();
        return flag.rsplit("--").next().unwrap().to_owned();
    }
    let configuration = error.split_once("invalid configuration: ").map(|(_, rest)| rest);
    match configuration.and_then(|rest| {
        rest.split(' ')
            .find(|word| word.len() > 3 && *word != "unable" && *word != "parse")
    }) {
        // A rule's message begins with its field, or tells of the option of one.
        Some("option") => error
            .split("for ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned(),
        Some(field) => field.to_owned(),
        None => String::new(),
    }
}

/// Runs the command line with the files of the case. The recorded kubelet was given their paths by other means.
fn start(case: &Case, folder: &Path) -> Result<KubeletServer, Error> {
    let mut args = Vec::new();
    if let Some(text) = &case.config_file {
        let path = folder.join("config.yaml");
        std::fs::write(&path, text).unwrap();
        args.extend(["--config".into(), path.into_os_string()]);
    }
    if !case.drop_ins.is_empty() {
        let drop_ins = folder.join("d");
        for (name, text) in &case.drop_ins {
            let path = drop_ins.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        args.extend(["--config-dir".into(), drop_ins.into_os_string()]);
    }
    args.extend(case.args.iter().map(Into::into));
    // As the recorded kubelet: on cgroup v1, and without a log in JSON.
    let host = Host::default().with_cgroup_v1(true).with_json_log_format(false);
    CommandLine::parse(args)?.load(&host)
}

fn differing_start(case: &Case, server: &KubeletServer, expected: &Value, folder: &Path) -> Option<String> {
    let flags = as_recorded(&server.flags);
    for (field, expected) in case.kubelet_flags.as_ref().unwrap() {
        // Flags of Windows, and one that is gone.
        let absent = ["CloudConfigFile", "WindowsService", "WindowsPriorityClass"];
        let value = &flags[field];
        if value != expected && !absent.contains(&field.as_str()) {
            return Some(format!("{field} is {value}, should be {expected}"));
        }
    }
    let shown = serde_json::to_string(&server.configuration.configz()).unwrap();
    let shown = shown.replace(&folder.display().to_string(), RECORDED_FOLDER);
    let shown = without_type(serde_json::from_str(&shown).unwrap());
    if &shown["kubeletconfig"] != expected {
        let (shown, expected) = (
            shown["kubeletconfig"].as_object().unwrap(),
            expected.as_object().unwrap(),
        );
        let keys = shown.keys().chain(expected.keys());
        let differing = keys.filter(|key| shown.get(*key) != expected.get(*key));
        let differing: Vec<_> = differing
            .map(|key| format!("{key} is {:?}, should be {:?}", shown.get(key), expected.get(key)))
            .collect();
        return Some(differing.join("; "));
    }
    let skipped: Vec<_> = server
        .skipped_drop_ins
        .iter()
        .map(|path| {
            path.display()
                .to_string()
                .replace(&folder.display().to_string(), RECORDED_FOLDER)
        })
        .collect();
    let expected = case.skipped_drop_ins.clone().unwrap_or_default();
    (skipped != expected).then(|| format!("skipped {skipped:?}, should skip {expected:?}"))
}

/// By the names of the fields of the kubelet's `KubeletFlags`. The paths of the files are left out.
fn as_recorded(flags: &KubeletFlags) -> Value {
    json!({
        "KubeConfig": flags.kube_config,
        "BootstrapKubeconfig": flags.bootstrap_kubeconfig,
        "HostnameOverride": flags.hostname_override,
        "NodeIP": flags.node_ip,
        "RuntimeCgroups": flags.runtime_cgroups,
        "ImageCredentialProviderConfigPath": flags.image_credential_provider_config_path,
        "ImageCredentialProviderBinDir": flags.image_credential_provider_bin_dir,
        "CertDirectory": flags.cert_directory,
        "CloudProvider": flags.cloud_provider,
        "RootDirectory": flags.root_directory,
        "KubeletConfigFile": "",
        "KubeletDropinConfigDirectory": "",
        "ExperimentalMounterPath": flags.experimental_mounter_path,
        "ExperimentalNodeAllocatableIgnoreEvictionThreshold":
            flags.experimental_node_allocatable_ignore_eviction_threshold,
        "NodeLabels": flags.node_labels,
        "LockFilePath": flags.lock_file_path,
        "ExitOnLockContention": flags.exit_on_lock_contention,
        "MinimumGCAge": flags.minimum_gc_age,
        "MaxPerPodContainerCount": flags.max_per_pod_container_count,
        "MaxContainerCount": flags.max_container_count,
        "SeccompDefault": flags.seccomp_default,
    })
}
