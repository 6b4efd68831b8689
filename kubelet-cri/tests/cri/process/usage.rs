//! The usage of containers, as a kubelet reads it.

use kubelet_cri::{RuntimeService, v1};

use super::node::{Node, nap};

/// Uses some CPU time, at least one clock tick.
const BURN: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

impl Node {
    async fn stats(&self, id: &str) -> v1::ContainerStats {
        let request = v1::ContainerStatsRequest {
            container_id: id.to_owned(),
        };
        self.cri.container_stats(request).await.unwrap().stats.unwrap()
    }

    async fn all_stats(&self, filter: v1::ContainerStatsFilter) -> Vec<String> {
        let request = v1::ListContainerStatsRequest { filter: Some(filter) };
        let stats = self.cri.list_container_stats(request).await.unwrap().stats;
        stats
            .into_iter()
            .map(|stats| stats.attributes.unwrap().id)
            .collect()
    }
}

fn cpu(stats: &v1::ContainerStats) -> u64 {
    let cpu = stats.cpu.as_ref().unwrap();
    assert!(cpu.timestamp > 0);
    cpu.usage_core_nano_seconds.as_ref().unwrap().value
}

fn memory(stats: &v1::ContainerStats) -> u64 {
    let memory = stats.memory.as_ref().unwrap();
    assert!(memory.timestamp > 0);
    memory.working_set_bytes.as_ref().unwrap().value
}

#[tokio::test]
async fn cpu_time_and_memory_of_all_of_a_container() {
    let node = Node::new().await;
    let idle = node.run("idle", &format!("echo up; sleep {}", nap(987040))).await;
    // The second shell ends before it is measured: its time is added to the shell that waited for it.
    let script = format!("{BURN}; sh -c '{BURN}'; echo burned; sleep {}", nap(987041));
    let busy = node.run("busy", &script).await;
    node.log_says(&busy, "burned").await;
    node.log_says(&idle, "up").await;
    let (busy, idle) = (node.stats(&busy).await, node.stats(&idle).await);
    assert!(cpu(&busy) > cpu(&idle), "{busy:?} {idle:?}");
    assert!(memory(&busy) > 0 && memory(&idle) > 0);
    let of_busy = busy.memory.unwrap();
    let (rss, all) = (
        of_busy.rss_bytes.unwrap().value,
        of_busy.usage_bytes.unwrap().value,
    );
    assert!(rss > 0 && rss <= all, "with mapped files: {all}, without: {rss}");
}

#[tokio::test]
async fn only_what_runs_is_measured() {
    let node = Node::new().await;
    let ended = node.run("ended", "exit 0").await;
    node.exited(&ended).await;
    let mut ids = Vec::new();
    for pod in ["one", "two"] {
        ids.push(node.run(pod, &format!("sleep {}", nap(987044))).await);
    }
    let mut listed = node.all_stats(Default::default()).await;
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    let one = v1::ContainerStatsFilter {
        id: ids[0].clone(),
        ..Default::default()
    };
    assert_eq!(node.all_stats(one).await, ids[..1]);
    let request = v1::ContainerStatsRequest { container_id: ended };
    let refused = node.cri.container_stats(request).await.unwrap_err();
    assert!(refused.is_not_found(), "{refused}");
}
