//! Whole lives of pods: what an agent made of these pieces does with a pod, from the moment it is seen until nothing is
//! left of it, against what kubelet v1.36.2 did with the same pod.
//!
//! `data/lives.jsonl.gz` has, of each recorded pod that came to its node, the object, when it was deleted, how its
//! containers ended, and what the kubelet did: the CRI calls that change something, in their order, and its events.
//! The runtime in memory answers as the recorded one did. Compared are the calls, with their containers, attempts,
//! timeouts and commands, and the events, with their type, reason, message, field and how often each came.
//!
//! Left open, since it hangs on moments that no recording fixes: the order of containers that are stopped side by
//! side, when between other calls dead containers are removed, how often a probe ran, and how often what fails was
//! tried.

mod compare;
mod replay;

/// One test for each recording. After `differs`, why it is not equal yet: the test then sees to it that it is taken
/// off the list once it is.
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
    volume_config_map_missing differs "volumes are mounted by a later crate",
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
