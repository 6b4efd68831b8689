//! Converts the configuration to the settings of each part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_config::credential_provider::{
    CredentialProvider as Plugin, ServiceAccountTokenAttributes as Attributes,
};
use kubelet_config::kubelet_configuration::GoDuration;
use kubelet_config::{FeatureGates, KubeletConfiguration};
use kubelet_core::quantity::Amount;
use kubelet_core::{Disk, InPlaceResize};
use kubelet_kuberuntime::logs::LogRotatePolicy;
use kubelet_kuberuntime::{
    CgroupDriver, ContainerMemoryQos, CredentialProvider, ImageGcPolicy,
    ImagePullCredentialsVerificationPolicy, ImagePullSettings, NodeSettings, ServiceAccountTokenAttributes,
    ServiceAccountTokenCacheType, UserNamespaceIds,
};
use kubelet_node::Reservation;

use crate::error::{Result, invalid};
use crate::settings::Settings;

/// A negative duration becomes zero.
pub(crate) fn time(duration: GoDuration) -> Duration {
    duration.try_into().unwrap_or_default()
}

/// A negative number becomes zero.
pub(crate) fn count(number: i32) -> u32 {
    number.try_into().unwrap_or_default()
}

/// Folders, DNS, cgroups and facts about the host, and the facts about the node that containers can read.
pub(crate) fn node(config: &KubeletConfiguration, gates: &FeatureGates) -> NodeSettings {
    let mut node = NodeSettings::of_this_host();
    node.cluster_dns = config.cluster_dns_ips();
    node.cluster_domain = config.cluster_domain.trim_end_matches('.').to_owned();
    node.resolv_conf = Some(&config.resolv_conf)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    node.cgroup_driver =
        CgroupDriver::configured(config.cgroups_per_qos, &config.cgroup_driver, &config.cgroup_root);
    node.pod_pids_limit = Some(config.pod_pids_limit);
    node.cpu_cfs_quota = config.cpu_cfs_quota;
    node.cpu_cfs_quota_period = time(config.cpu_cfs_quota_period);
    node.seccomp_default = config.seccomp_default;
    node.limited_swap = config.memory_swap.swap_behavior == "LimitedSwap";
    node.memory_qos = gates.enabled("MemoryQoS").then(|| {
        let mut qos = ContainerMemoryQos::default();
        qos.protect_requests = config.memory_reservation_policy == "TieredReservation";
        qos.throttling_factor = config.memory_throttling_factor.unwrap_or(qos.throttling_factor);
        let lists = [&config.system_reserved, &config.kube_reserved];
        let reserved = lists.iter().filter_map(|list| {
            let amount = list.get("memory")?.clone();
            kubelet_core::quantity::Amount::try_from(&Quantity(amount)).ok()
        });
        let reserved = reserved.map(|amount| u64::try_from(amount.value()).unwrap_or_default());
        qos.all_pods = Some(node.memory_capacity.saturating_sub(reserved.sum()));
        qos
    });
    node.single_process_oom_kill = config.single_process_oom_kill.unwrap_or(!node.cgroup_v2);
    node
}

/// The ids that this host has for user namespaces, with so many for each pod (`userNamespaces.idsPerPod`).
pub(crate) async fn user_namespaces(config: &KubeletConfiguration, disk: Disk) -> Result<UserNamespaceIds> {
    let per_pod = config.user_namespaces.as_ref().and_then(|it| it.ids_per_pod);
    let per_pod = per_pod.map_or(65_536, |ids| u32::try_from(ids).unwrap_or(u32::MAX));
    Ok(UserNamespaceIds::of_this_host(per_pod, count(config.max_pods), disk).await?)
}

pub(crate) fn image_pulls(config: &KubeletConfiguration, gates: &FeatureGates) -> ImagePullSettings {
    let mut pulls = ImagePullSettings::default();
    pulls.serialize_image_pulls = config.serialize_image_pulls;
    pulls.max_parallel_image_pulls = config.max_parallel_image_pulls.map(count);
    pulls.registry_pull_qps = count(config.registry_pull_qps);
    pulls.registry_burst = count(config.registry_burst);
    pulls.runtime_class_in_image_cri_api = gates.enabled("RuntimeClassInImageCriApi");
    pulls.credentials_verification = match gates.enabled("KubeletEnsureSecretPulledImages") {
        false => ImagePullCredentialsVerificationPolicy::NeverVerify,
        true => ImagePullCredentialsVerificationPolicy::configured(
            &config.image_pull_credentials_verification_policy,
            &config.preloaded_images_verification_allowlist,
        ),
    };
    pulls
}

/// A plugin of `--image-credential-provider-config`, with its program.
pub(crate) fn credential_provider((program, plugin): (PathBuf, Plugin)) -> CredentialProvider {
    let mut provider = CredentialProvider::new(plugin.name, program, plugin.match_images);
    provider.default_cache_duration = plugin.default_cache_duration.map(time).unwrap_or_default();
    provider.api_version = plugin.api_version;
    provider.args = plugin.args;
    provider.env = plugin
        .env
        .into_iter()
        .map(|variable| (variable.name, variable.value))
        .collect();
    provider.token_attributes = plugin.token_attributes.map(token_attributes);
    provider
}

fn token_attributes(given: Attributes) -> ServiceAccountTokenAttributes {
    let cache_type = match given.cache_type.as_str() {
        "Token" => ServiceAccountTokenCacheType::Token,
        _ => ServiceAccountTokenCacheType::ServiceAccount,
    };
    let mut attributes = ServiceAccountTokenAttributes::new(given.service_account_token_audience, cache_type);
    attributes.require_service_account = given.require_service_account.unwrap_or_default();
    attributes.required_annotation_keys = given.required_service_account_annotation_keys;
    attributes.optional_annotation_keys = given.optional_service_account_annotation_keys;
    attributes
}

pub(crate) fn image_gc(config: &KubeletConfiguration) -> ImageGcPolicy {
    let percent = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    let mut policy = ImageGcPolicy::default();
    policy.high_threshold_percent = percent(config.image_gc_high_threshold_percent);
    policy.low_threshold_percent = percent(config.image_gc_low_threshold_percent);
    policy.min_age = time(config.image_minimum_gc_age);
    policy.max_age = time(config.image_maximum_gc_age);
    policy
}

pub(crate) fn log_rotation(config: &KubeletConfiguration) -> Result<LogRotatePolicy> {
    let size = &config.container_log_max_size;
    let parsed = Amount::try_from(&Quantity(size.clone()));
    let size = parsed.map_err(|error| invalid("containerLogMaxSize", size, error))?;
    Ok(LogRotatePolicy {
        max_size: u64::try_from(size.value()).ok(),
        max_files: count(config.container_log_max_files) as usize,
        max_workers: count(config.container_log_max_workers) as usize,
        monitor_interval: time(config.container_log_monitor_interval),
    })
}

/// Which resources of a running pod can be resized.
pub(crate) fn in_place_resize(config: &KubeletConfiguration, gates: &FeatureGates) -> InPlaceResize {
    let mut settings = InPlaceResize::default();
    settings.pod_level_resources = gates.enabled("InPlacePodLevelResourcesVerticalScaling");
    settings.init_containers = gates.enabled("InPlacePodVerticalScalingInitContainers");
    settings.static_cpu_manager =
        config.cpu_manager_policy == "static" && !gates.enabled("InPlacePodVerticalScalingExclusiveCPUs");
    settings.static_memory_manager = config.memory_manager_policy == "Static"
        && !gates.enabled("InPlacePodVerticalScalingExclusiveMemory");
    settings
}

/// What `systemReserved`, `kubeReserved`, `evictionHard` and `reservedSystemCPUs` keep from pods. Amounts that cannot be read keep
/// nothing: the check of the settings refuses them.
pub(crate) fn reservation(settings: &Settings) -> Reservation {
    let config = &settings.configuration;
    let eviction_hard = match settings.ignore_eviction_threshold {
        true => &BTreeMap::new(),
        false => &config.eviction_hard,
    };
    let reserved = Reservation::of_valid(&config.system_reserved, &config.kube_reserved, eviction_hard);
    reserved.with_reserved_system_cpus(config.reserved_system_cpus_count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_the_sum_of_all_reasons() {
        let mut settings = Settings::new("/var/lib/agent");
        let config = &mut settings.configuration;
        let list = |name: &str, amount: &str| [(name.to_owned(), amount.to_owned())].into();
        config.system_reserved = list("cpu", "500m");
        config.kube_reserved = list("memory", "1Gi");
        config.eviction_hard = list("memory.available", "100Mi");
        let machine = kubelet_node::MachineInfo::new(4, 8 << 30);
        let reserved = |settings: &Settings| reservation(settings).of_node(&machine);
        let amount = |text: &str| Quantity(text.to_owned());
        let expected = [("cpu", "500m"), ("memory", "1124Mi")];
        let expected = expected.map(|(name, text)| (name.to_owned(), amount(text)));
        assert_eq!(reserved(&settings), expected.into());
        settings.configuration.reserved_system_cpus = "0-2".to_owned();
        assert_eq!(reserved(&settings)["cpu"], amount("3"));
    }
}
