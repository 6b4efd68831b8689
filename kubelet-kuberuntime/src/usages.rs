//! The usage that the runtime reports, as the stats of the node need it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::labels::POD_UID;
use kubelet_core::stats::{
    InterfaceStats, PsiData, PsiStats, RuntimeContainer, RuntimeContainerUsage, RuntimeCpu,
    RuntimeFileSystem, RuntimeFileSystems, RuntimeIo, RuntimeList, RuntimeMemory, RuntimeMetric,
    RuntimeMetricDescriptor, RuntimeNetwork, RuntimePodUsage, RuntimeSandbox, RuntimeSwap, RuntimeUsages,
};
use kubelet_core::{Error, Result};

use crate::read::timestamp;
use crate::runtime::CriRuntime;
use kubelet_cri::{ListedContainer, ListedSandbox, ListedStats, v1};

/// So many sandboxes are looked at at once: after a restart, all are new.
const STATUSES: usize = 8;

#[async_trait]
impl RuntimeUsages for CriRuntime {
    async fn list(&self) -> Result<RuntimeList> {
        let (sandboxes, containers) = self.list_all().await?;
        let sandboxes = sandboxes
            .iter()
            .filter(|sandbox| sandbox.label(POD_UID).is_some());
        let containers = containers
            .iter()
            .filter(|container| container.label(POD_UID).is_some());
        Ok(RuntimeList {
            sandboxes: sandboxes.map(sandbox).collect(),
            containers: containers.map(container).collect(),
        })
    }

    async fn container_usages(&self) -> Result<Vec<RuntimeContainerUsage>> {
        // Without a filter, containerd also measures each sandbox, and then leaves it out: that takes twice the time.
        let request = v1::ListContainerStatsRequest {
            filter: Some(v1::ContainerStatsFilter::default()),
        };
        let listed = self.runtime.listed_stats(request).await;
        let listed = listed.map_err(|error| Error::runtime("ListContainerStats", error))?;
        Ok(listed.into_iter().filter_map(container_usage).collect())
    }

    async fn pod_usages(&self) -> Result<Option<Vec<RuntimePodUsage>>> {
        const CALL: &str = "ListPodSandboxStats";
        let request = v1::ListPodSandboxStatsRequest::default();
        let answer = self
            .missing
            .offered(CALL, self.runtime.list_pod_sandbox_stats(request))
            .await;
        let answer = answer.map_err(|error| Error::runtime(CALL, error))?;
        Ok(answer.map(|answer| answer.stats.into_iter().filter_map(pod_usage).collect()))
    }

    async fn file_systems(&self) -> Result<RuntimeFileSystems> {
        let answer = self.image_service.image_fs_info(v1::ImageFsInfoRequest {}).await;
        let answer = answer.map_err(|error| Error::runtime("ImageFsInfo", error))?;
        Ok(RuntimeFileSystems {
            images: answer.image_filesystems.into_iter().map(file_system).collect(),
            containers: answer
                .container_filesystems
                .into_iter()
                .map(file_system)
                .collect(),
        })
    }

    /// Of a container, the first tag or digest of its image. Of a sandbox, the image is in the verbose status only.
    async fn image_names(
        &self,
        sandboxes: &[String],
        containers: &[RuntimeContainer],
    ) -> BTreeMap<String, String> {
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        if !containers.is_empty() {
            let listed = self
                .image_service
                .list_images(v1::ListImagesRequest::default())
                .await;
            let images = listed.map(|answer| answer.images).unwrap_or_default();
            let name = |container: &RuntimeContainer| {
                let image = images.iter().find(|image| image.id == container.image)?;
                let name = image.repo_tags.first().or(image.repo_digests.first())?;
                Some((container.id.clone(), name.clone()))
            };
            named.extend(containers.iter().filter_map(name));
        }
        let of_sandbox = |id: String| async move {
            let request = v1::PodSandboxStatusRequest {
                pod_sandbox_id: id.clone(),
                verbose: true,
            };
            let status = self.runtime.pod_sandbox_status(request).await.ok()?;
            let info: serde_json::Value = serde_json::from_str(status.info.get("info")?).ok()?;
            let image = info.get("image")?.as_str()?.to_owned();
            Some((id, image))
        };
        let images: Vec<_> = stream::iter(sandboxes.iter().cloned().map(of_sandbox))
            .buffer_unordered(STATUSES)
            .collect()
            .await;
        named.extend(images.into_iter().flatten());
        named
    }

    async fn metric_descriptors(&self) -> Result<Vec<RuntimeMetricDescriptor>> {
        const CALL: &str = "ListMetricDescriptors";
        let request = v1::ListMetricDescriptorsRequest {};
        let answer = self
            .missing
            .offered(CALL, self.runtime.list_metric_descriptors(request))
            .await;
        let answer = answer
            .map_err(|error| Error::runtime(CALL, error))?
            .unwrap_or_default();
        let descriptor = |descriptor: v1::MetricDescriptor| RuntimeMetricDescriptor {
            name: descriptor.name,
            help: descriptor.help,
            label_keys: descriptor.label_keys,
        };
        Ok(answer.descriptors.into_iter().map(descriptor).collect())
    }

    async fn metrics(&self) -> Result<Vec<RuntimeMetric>> {
        const CALL: &str = "ListPodSandboxMetrics";
        let request = v1::ListPodSandboxMetricsRequest {};
        let answer = self
            .missing
            .offered(CALL, self.runtime.list_pod_sandbox_metrics(request))
            .await;
        let answer = answer
            .map_err(|error| Error::runtime(CALL, error))?
            .unwrap_or_default();
        let mut metrics = Vec::new();
        for pod in answer.pod_metrics {
            metrics.extend(pod.metrics.into_iter().map(metric));
            let of_containers = pod
                .container_metrics
                .into_iter()
                .flat_map(|container| container.metrics);
            metrics.extend(of_containers.map(metric));
        }
        Ok(metrics)
    }
}

fn sandbox(sandbox: &ListedSandbox) -> RuntimeSandbox {
    RuntimeSandbox {
        id: sandbox.id().to_owned(),
        namespace: sandbox.namespace().to_owned(),
        pod: sandbox.name().to_owned(),
        uid: sandbox.uid().unwrap_or_default().to_owned(),
        created_at: timestamp(sandbox.created_at()),
        ready: sandbox.state() == v1::PodSandboxState::SandboxReady,
    }
}

fn container(container: &ListedContainer) -> RuntimeContainer {
    RuntimeContainer {
        id: container.id().to_owned(),
        sandbox_id: container.pod_sandbox_id().to_owned(),
        name: container.name().unwrap_or_default().to_owned(),
        // Its id, by which it is found in the list of images. Not the name in the pod's spec: cAdvisor shows the full one.
        image: container.image().unwrap_or_default().to_owned(),
        created_at: timestamp(container.created_at()),
        running: container.state() == v1::ContainerState::ContainerRunning,
    }
}

fn container_usage(stats: ListedStats) -> Option<RuntimeContainerUsage> {
    Some(RuntimeContainerUsage {
        id: stats.id()?.to_owned(),
        name: stats.name().unwrap_or_default().to_owned(),
        cpu: stats.cpu.map(cpu),
        memory: stats.memory.map(memory),
        swap: stats.swap.map(|swap| RuntimeSwap {
            timestamp: at(swap.timestamp),
            available: value(swap.swap_available_bytes),
            usage: value(swap.swap_usage_bytes),
        }),
        io: stats.io.map(io),
        writable_layer: stats.writable_layer.map(file_system),
    })
}

fn pod_usage(stats: v1::PodSandboxStats) -> Option<RuntimePodUsage> {
    let sandbox_id = stats.attributes?.id;
    let linux = stats.linux.unwrap_or_default();
    Some(RuntimePodUsage {
        sandbox_id,
        cpu: linux.cpu.map(cpu),
        memory: linux.memory.map(memory),
        io: linux.io.map(io),
        network: linux.network.map(|network| RuntimeNetwork {
            timestamp: at(network.timestamp),
            default_interface: network.default_interface.map(interface).unwrap_or_default(),
            interfaces: network.interfaces.into_iter().map(interface).collect(),
        }),
        processes: linux.process.and_then(|processes| value(processes.process_count)),
        containers: {
            let containers = linux.containers.into_iter().map(ListedStats::from);
            containers.filter_map(container_usage).collect()
        },
    })
}

fn cpu(usage: v1::CpuUsage) -> RuntimeCpu {
    RuntimeCpu {
        timestamp: at(usage.timestamp),
        usage_core_nano_seconds: value(usage.usage_core_nano_seconds),
        usage_nano_cores: value(usage.usage_nano_cores),
        psi: usage.psi.map(psi),
    }
}

fn memory(usage: v1::MemoryUsage) -> RuntimeMemory {
    RuntimeMemory {
        timestamp: at(usage.timestamp),
        working_set: value(usage.working_set_bytes),
        available: value(usage.available_bytes),
        usage: value(usage.usage_bytes),
        rss: value(usage.rss_bytes),
        page_faults: value(usage.page_faults),
        major_page_faults: value(usage.major_page_faults),
        psi: usage.psi.map(psi),
    }
}

fn io(usage: v1::IoUsage) -> RuntimeIo {
    RuntimeIo {
        timestamp: at(usage.timestamp),
        psi: usage.psi.map(psi),
    }
}

fn psi(stats: v1::PsiStats) -> PsiStats {
    let data = |data: Option<v1::PsiData>| {
        let data = data.unwrap_or_default();
        PsiData {
            total: data.total,
            avg10: data.avg10,
            avg60: data.avg60,
            avg300: data.avg300,
        }
    };
    PsiStats {
        full: data(stats.full),
        some: data(stats.some),
    }
}

fn interface(usage: v1::NetworkInterfaceUsage) -> InterfaceStats {
    InterfaceStats {
        name: usage.name,
        rx_bytes: value(usage.rx_bytes),
        rx_errors: value(usage.rx_errors),
        tx_bytes: value(usage.tx_bytes),
        tx_errors: value(usage.tx_errors),
    }
}

fn file_system(usage: v1::FilesystemUsage) -> RuntimeFileSystem {
    RuntimeFileSystem {
        timestamp: at(usage.timestamp),
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        used_bytes: value(usage.used_bytes),
        inodes_used: value(usage.inodes_used),
    }
}

fn metric(metric: v1::Metric) -> RuntimeMetric {
    let is_counter = metric.metric_type() == v1::MetricType::Counter;
    RuntimeMetric {
        // Without a time it was measured for this call.
        timestamp: timestamp(metric.timestamp),
        is_counter,
        label_values: metric.label_values,
        value: metric.value.unwrap_or_default().value,
        name: metric.name,
    }
}

fn value(value: Option<v1::UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}

/// Nanoseconds since 1970; a time that cannot be is 1970.
fn at(nanoseconds: i64) -> Timestamp {
    timestamp(nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_a_container_is_its_id() {
        for (of_runtime, of_spec, expected) in [
            ("sha256:b9ba", "busybox:1.36", "sha256:b9ba"),
            ("sha256:b9ba", "", "sha256:b9ba"),
            ("busybox:1.36", "", "busybox:1.36"),
        ] {
            let image = v1::ImageSpec {
                image: of_runtime.to_owned(),
                user_specified_image: of_spec.to_owned(),
                ..Default::default()
            };
            let listed = v1::Container {
                image: Some(image),
                ..Default::default()
            };
            let found = container(&listed.into());
            assert_eq!(found.image, expected);
        }
    }
}
