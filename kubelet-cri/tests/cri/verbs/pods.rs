//! Sandboxes of a runtime that begins and ends pods.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_cri::verbs::{ErrorClass, PodKey, RuntimeError};
use kubelet_cri::{Code, CriAdapter, Error, RuntimeService, v1};

use super::adapter::{run_sandbox, sandbox_config, sandbox_status};
use super::puppet::{Farm, Order, Puppet};

struct Stage {
    farm: Arc<Farm>,
    puppet: Arc<Puppet>,
    cri: CriAdapter,
}

impl Stage {
    fn new(farm: Farm) -> Self {
        let farm = Arc::new(farm);
        let puppet = Arc::new(Puppet {
            farm: Some(farm.clone()),
            ..Default::default()
        });
        let cri = CriAdapter::builder(puppet.clone())
            .deadline(Duration::from_secs(5))
            .build();
        Self { farm, puppet, cri }
    }

    /// The next adapter on the records of an earlier one.
    fn with_records(self, dir: &Path) -> Self {
        let cri = CriAdapter::builder(self.puppet.clone()).records_dir(dir).build();
        Self { cri, ..self }
    }

    async fn stop(&self, id: &str) -> Result<(), Error> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.cri.stop_pod_sandbox(request).await.map(drop)
    }

    async fn remove(&self, id: &str) -> Result<(), Error> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.cri.remove_pod_sandbox(request).await.map(drop)
    }

    /// Each sandbox: its attempt, and whether it is ready.
    async fn sandboxes(&self) -> Vec<(u32, bool)> {
        let list = self.cri.list_pod_sandbox(Default::default()).await.unwrap();
        let seen = |sandbox: &v1::PodSandbox| {
            let ready = sandbox.state() == v1::PodSandboxState::SandboxReady;
            (sandbox.metadata.as_ref().unwrap().attempt, ready)
        };
        let mut seen: Vec<_> = list.items.iter().map(seen).collect();
        seen.sort_unstable();
        seen
    }

    async fn only_id(&self) -> String {
        let list = self.cri.list_pod_sandbox(Default::default()).await.unwrap();
        let [sandbox] = &list.items[..] else {
            panic!("{list:?}");
        };
        sandbox.id.clone()
    }

    async fn network(&self, id: &str) -> v1::PodSandboxNetworkStatus {
        sandbox_status(&self.cri, id).await.network.unwrap()
    }

    fn pods(&self) -> Vec<u32> {
        self.farm
            .pods
            .lock()
            .unwrap()
            .keys()
            .map(|key| key.attempt)
            .collect()
    }

    fn order(&self, verb: &'static str, order: Order) {
        self.farm.orders.lock().unwrap().insert(verb, order);
    }

    fn at_ease(&self) {
        self.farm.orders.lock().unwrap().clear();
    }
}

fn attempt(attempt: u32) -> v1::PodSandboxConfig {
    let mut config = sandbox_config();
    config.metadata.as_mut().unwrap().attempt = attempt;
    config
}

#[tokio::test]
async fn the_runtime_gets_what_concerns_the_pod() {
    let stage = Stage::new(Farm::default());
    let mut config = attempt(2);
    config.hostname = "web-0".into();
    config.dns_config = Some(v1::DnsConfig {
        servers: vec!["10.0.0.10".into()],
        searches: vec!["cluster.local".into()],
        options: vec!["ndots:5".into()],
    });
    config.port_mappings = vec![v1::PortMapping {
        container_port: 80,
        host_port: 80,
        ..Default::default()
    }];
    let memory = |bytes| v1::LinuxContainerResources {
        memory_limit_in_bytes: bytes,
        ..Default::default()
    };
    config.linux = Some(v1::LinuxPodSandboxConfig {
        cgroup_parent: "/kubepods/pod8a3f".into(),
        overhead: Some(memory(64 << 20)),
        resources: Some(memory(128 << 20)),
        ..Default::default()
    });
    run_sandbox(&stage.cri, config).await.unwrap();
    let spec = stage.farm.specs.lock().unwrap()[0].clone();
    assert_eq!(spec.key, PodKey::new("8a3f", 2));
    assert_eq!(spec.key.to_string(), "pod 8a3f (attempt 2)");
    assert_eq!((&*spec.info.name, &*spec.info.hostname), ("web", "web-0"));
    assert_eq!(spec.info.annotations["colour"], "red");
    assert_eq!((spec.host_network, &spec.host_ports[..]), (false, &[80][..]));
    let resolv_conf = "nameserver 10.0.0.10\nsearch cluster.local\noptions ndots:5\n";
    assert_eq!(spec.dns.to_string(), resolv_conf);
    assert_eq!(
        (spec.limits.memory_bytes, spec.overhead.memory_bytes),
        (Some(128 << 20), Some(64 << 20))
    );
    assert_eq!(
        spec.cgroup_parent.as_deref(),
        Some(Path::new("/kubepods/pod8a3f"))
    );
}

#[tokio::test]
async fn the_addresses_are_those_of_the_pod() {
    for (addresses, ip, more) in [
        (&[][..], "127.0.0.1", &[][..]),
        (&["10.1.0.2"], "10.1.0.2", &[]),
        (&["10.1.0.2", "fd00::2"], "10.1.0.2", &["fd00::2"]),
    ] {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        let stage = Stage::new(Farm {
            addresses,
            ..Default::default()
        });
        let id = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
        let network = stage.network(&id).await;
        let found: Vec<_> = network.additional_ips.iter().map(|ip| ip.ip.as_str()).collect();
        assert_eq!((network.ip.as_str(), &found[..]), (ip, more));
        stage.stop(&id).await.unwrap();
        assert_eq!(stage.network(&id).await.ip, "");
    }
}

/// The kubelet tries again with the same attempt, because it sees no sandbox.
#[tokio::test]
async fn a_begin_that_fails_fails_the_sandbox_and_is_tried_again() {
    for (class, code) in [
        (ErrorClass::Transient, Code::Unavailable),
        (ErrorClass::Throttled, Code::ResourceExhausted),
        (ErrorClass::Permanent, Code::InvalidArgument),
        (ErrorClass::Unsupported, Code::Unimplemented),
    ] {
        let stage = Stage::new(Farm::default());
        let error = RuntimeError::new(class, "the farm", "no water");
        stage.order("begin", Order::Fail(error));
        let failed = run_sandbox(&stage.cri, attempt(0)).await.unwrap_err();
        assert_eq!((failed.code(), failed.call_name()), (code, Some("RunPodSandbox")));
        assert_eq!(failed.message(), "the farm: no water");
        assert_eq!(
            (stage.sandboxes().await, stage.pods()),
            (vec![], vec![]),
            "{class:?}"
        );
        stage.at_ease();
        run_sandbox(&stage.cri, attempt(0)).await.unwrap();
        assert_eq!(
            (stage.sandboxes().await, stage.pods()),
            (vec![(0, true)], vec![0])
        );
    }
}

#[tokio::test]
async fn a_pod_that_neither_begins_nor_ends_stays_for_the_kubelet() {
    let stage = Stage::new(Farm::default());
    let error = || Order::Fail(RuntimeError::transient("", "busy"));
    stage.order("begin", error());
    stage.order("end", error());
    run_sandbox(&stage.cri, attempt(0)).await.unwrap_err();
    assert_eq!(
        (stage.sandboxes().await, stage.pods()),
        (vec![(0, false)], vec![0])
    );
    let id = stage.only_id().await;
    stage.stop(&id).await.unwrap_err();
    stage.remove(&id).await.unwrap_err();
    stage.at_ease();
    stage.remove(&id).await.unwrap();
    assert_eq!((stage.sandboxes().await, stage.pods()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_begin_and_an_end_have_a_deadline() {
    let stage = Stage::new(Farm::default());
    stage.order("begin", Order::Hang);
    let late = run_sandbox(&stage.cri, attempt(0)).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert_eq!((stage.sandboxes().await, stage.pods()), (vec![], vec![]));
    stage.at_ease();
    let id = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    stage.order("end", Order::Hang);
    let late = stage.stop(&id).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert_eq!(stage.sandboxes().await, [(0, false)]);
}

/// The pod is deleted while it begins, or the agent ends: the call is dropped.
#[tokio::test]
async fn a_pod_that_ends_while_it_begins_is_ended() {
    for restarts in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut stage = Stage::new(Farm::default()).with_records(dir.path());
        stage.order("begin", Order::Hang);
        let mut cut = Box::pin(run_sandbox(&stage.cri, attempt(0)));
        assert!(futures::poll!(&mut cut).is_pending());
        assert_eq!(
            (stage.sandboxes().await, stage.pods()),
            (vec![], vec![0]),
            "nobody sees it"
        );
        let again = run_sandbox(&stage.cri, attempt(0)).await.unwrap_err();
        assert_eq!(again.code(), Code::AlreadyExists);
        if restarts {
            // The agent was killed: nothing was dropped.
            std::mem::forget(cut);
            stage = stage.with_records(dir.path());
        } else {
            drop(cut);
        }
        stage.at_ease();
        assert_eq!(
            stage.sandboxes().await,
            [(0, false)],
            "so that the kubelet ends it"
        );
        let id = stage.only_id().await;
        stage.stop(&id).await.unwrap();
        assert_eq!(stage.pods(), [0; 0]);
        stage.remove(&id).await.unwrap();
        assert_eq!(stage.sandboxes().await, []);
    }
}

#[tokio::test]
async fn an_end_can_be_repeated() {
    let stage = Stage::new(Farm::default());
    let id = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    for gone in [false, true, true] {
        if gone {
            let error = RuntimeError::gone("the pod", "no such pod");
            stage.order("end", Order::Fail(error));
        }
        stage.stop(&id).await.unwrap();
    }
    stage.remove(&id).await.unwrap();
    stage.remove(&id).await.unwrap();
    stage.stop(&id).await.unwrap();
    assert_eq!(*stage.farm.ends.lock().unwrap(), vec![PodKey::new("8a3f", 0); 4]);
}

#[tokio::test]
async fn the_same_pod_begins_anew() {
    let stage = Stage::new(Farm::default());
    let first = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    stage.stop(&first).await.unwrap();
    run_sandbox(&stage.cri, attempt(1)).await.unwrap();
    assert_eq!(stage.sandboxes().await, [(0, false), (1, true)]);
    // The earlier one is collected later, and the present one goes on.
    stage.remove(&first).await.unwrap();
    assert_eq!(
        (stage.sandboxes().await, stage.pods()),
        (vec![(1, true)], vec![1])
    );

    // A static pod is deleted and comes back with the same UID.
    stage.remove(&stage.only_id().await).await.unwrap();
    run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    assert_eq!(
        (stage.sandboxes().await, stage.pods()),
        (vec![(0, true)], vec![0])
    );
}

#[tokio::test]
async fn a_pod_that_ended_by_itself_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(Farm::default()).with_records(dir.path());
    let id = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    let error = RuntimeError::transient("", "busy");
    stage.order("list", Order::Fail(error));
    let busy = stage.cri.list_pod_sandbox(Default::default()).await.unwrap_err();
    assert_eq!(
        busy.code(),
        Code::Unavailable,
        "an error says nothing about the pod"
    );
    stage.at_ease();
    let pods = std::mem::take(&mut *stage.farm.pods.lock().unwrap());
    assert_eq!(stage.network(&id).await.ip, "");
    assert_eq!(stage.sandboxes().await, [(0, false)]);
    // It stays so, also for the next agent.
    *stage.farm.pods.lock().unwrap() = pods;
    stage = stage.with_records(dir.path());
    assert_eq!(stage.sandboxes().await, [(0, false)]);
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: id.clone(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "main".into(),
                attempt: 0,
            }),
            ..Default::default()
        }),
        sandbox_config: None,
    };
    let refused = stage.cri.create_container(create).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    stage.stop(&id).await.unwrap();
    assert_eq!(stage.pods(), [0; 0]);
}

#[tokio::test]
async fn the_next_agent_takes_over_the_pods() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = vec!["10.1.0.2".parse().unwrap()];
    let farm = Farm {
        addresses,
        ..Default::default()
    };
    let stage = Stage::new(farm).with_records(dir.path());
    let id = run_sandbox(&stage.cri, attempt(0)).await.unwrap();
    let stage = stage.with_records(dir.path());
    assert_eq!(stage.sandboxes().await, [(0, true)]);
    assert_eq!(stage.network(&id).await.ip, "10.1.0.2");
    assert_eq!(
        stage.farm.specs.lock().unwrap().len(),
        1,
        "it did not begin again"
    );
    stage.remove(&id).await.unwrap();
    assert_eq!(stage.pods(), [0; 0]);
}
