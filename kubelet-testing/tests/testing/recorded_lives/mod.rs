//! Whole lives of pods: compares what an agent of these crates does with a pod, from its first update until nothing
//! is left of it, with what kubelet v1.36.2 did with the same pod.
//!
//! `data/lives.jsonl.gz` has for each recorded pod the object, the time of its deletion, how its containers ended,
//! and what the kubelet did: its events, and its CRI calls that change something, in order. The runtime in memory
//! answers as the recorded one did. The test compares the calls, with containers, attempts, timeouts and commands,
//! and the events, with type, reason, message, field and count.
//!
//! It does not compare what depends on timing: the order of containers that stop concurrently, when dead containers
//! are removed between other calls, how often a probe ran, and how often a failing call was retried.

mod compare;
mod replay;

/// One test for each recording. `differs` gives the reason why a recording is not equal yet; the test fails once it
/// is equal, so that it is taken off the list.
macro_rules! recordings {
    ($($name:ident $(differs $why:literal)?),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        mod pods {
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    let differs: &[&str] = &[$($why)?];
                    super::check(&stringify!($name).replace('_', "-"), differs.first().copied()).await;
                }
            )*
        }
    };
}

recordings! {
    active_deadline,
    apparmor_unconfined,
    capabilities,
    command_not_found,
    dns_cluster_first_host_net,
    dns_default,
    dns_none,
    eight_containers,
    env_config_map,
    env_config_map_missing,
    env_duplicate_names,
    env_from,
    env_resource_refs,
    env_resource_refs_unset,
    env_secret,
    env_secret_key_missing,
    hook_post_start_exec,
    hook_post_start_fails,
    hook_pre_stop_sleep,
    host_aliases,
    host_network_with_ports,
    host_pid_ipc,
    host_users_false,
    hostname_as_fqdn,
    hostname_override,
    hostname_subdomain,
    image_name_invalid,
    image_volume,
    init_fails_always,
    init_fails_never,
    init_two,
    liveness_fails,
    many_labels,
    minimal,
    ports,
    privileged,
    probes_all,
    proc_mount_default,
    qos_burstable_requests,
    qos_cpu_only,
    qos_guaranteed,
    qos_two_containers_mixed,
    readiness_gate,
    readiness_tcp_never,
    restart_always_crash,
    restart_never_failure,
    restart_never_success,
    restart_on_failure,
    run_as_non_root_ok,
    run_as_user_container,
    selinux_options,
    service_account_token_off,
    service_links_off,
    service_links_on,
    share_process_namespace,
    sidecar,
    sidecar_job differs "an end cancels the sync that is under way here, and stops anew what that was stopping",
    stdin_tty,
    supplemental_groups_policy,
    sysctl_forbidden,
    termination_message_from_logs,
    termination_message_path,
    two_containers,
    two_one_fails_never,
    volume_config_map_missing differs "volumes of config maps are not offered yet",
    volume_empty_dir,
    volume_host_path,
    volume_projected,
    volume_recursive_read_only,
    volume_secret,
    volume_sub_path,
    working_dir,
}

#[test]
fn every_recording_has_its_test() {
    let mut recorded: Vec<String> = replay::LIVES.keys().map(|name| name.replace('-', "_")).collect();
    recorded.sort();
    assert_eq!(NAMES, recorded);
}

async fn check(name: &str, differs: Option<&str>) {
    let life = &replay::LIVES[name];
    let differences = compare::differences(life, &replay::live(life).await);
    match differs {
        None => assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n")),
        Some(why) => assert!(!differences.is_empty(), "{name} is equal now: {why}"),
    }
}
