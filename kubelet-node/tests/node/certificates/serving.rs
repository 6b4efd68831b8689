//! Certificates of a node's server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeAddress;
use kubelet_core::{Disk, Jitter};
use kubelet_node::Result;
use kubelet_node::certificate::{CertificateHandle, CertificateManager, CertificateStore};
use kubelet_testing::api_server::ApiServerBuilder;
use kubelet_testing::{User, eventually};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::rig::{NODE, Rig};

struct Serving {
    rig: Rig,
    addresses: watch::Sender<Vec<NodeAddress>>,
    certificates: CertificateHandle,
    shutdown: CancellationToken,
    task: JoinHandle<Result<()>>,
}

fn addresses(list: &[&str]) -> Vec<NodeAddress> {
    let address = |text: &&str| NodeAddress {
        type_: if text.parse::<IpAddr>().is_ok() {
            "InternalIP"
        } else {
            "Hostname"
        }
        .into(),
        address: (*text).into(),
    };
    list.iter().map(address).collect()
}

impl Serving {
    async fn start(first: &[&str]) -> Self {
        let rig = Rig::new(|server: ApiServerBuilder| {
            server
                .sign_approved_certificates()
                .signing_duration(Duration::from_secs(24 * 3600))
        });
        let addresses = watch::Sender::new(addresses(first));
        let store = CertificateStore::new(CertificateStore::SERVER, rig.pki());
        let manager = CertificateManager::serving(NODE, store, addresses.subscribe())
            .clock(rig.clock)
            .jitter(Jitter::from_seed(2))
            .disk(Disk::inline())
            .open()
            .await
            .unwrap()
            .request_by(rig.server.client_as(User::node(NODE)));
        let (certificates, shutdown) = (manager.handle(), CancellationToken::new());
        let task = tokio::spawn(manager.run(shutdown.clone()));
        Serving {
            rig,
            addresses,
            certificates,
            shutdown,
            task,
        }
    }

    /// Approves the newest request; returns how many there have been, and the names of the certificate.
    async fn approve(&self, nth: usize) -> String {
        eventually!(self.rig.requests().len(), |requests| *requests == nth);
        let mut requests = self.rig.requests();
        requests.sort_by_key(|request| {
            request
                .metadata
                .resource_version
                .as_ref()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        let request = requests.pop().unwrap();
        assert_eq!(request.spec.signer_name, "kubernetes.io/kubelet-serving");
        assert_eq!(
            request.spec.usages.as_deref().unwrap(),
            ["digital signature", "server auth"]
        );
        let mut newest = self.certificates.subscribe();
        self.rig.decide(&request, "Approved").await;
        newest.changed().await.unwrap();
        let certificate = newest.borrow().clone().unwrap();
        let ips = certificate.ip_addresses().iter().map(ToString::to_string);
        let names: Vec<String> = certificate.dns_names().iter().cloned().chain(ips).collect();
        names.join(" ")
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn follows_the_addresses_of_the_node() {
    let serving = Serving::start(&[]).await;
    let rig = &serving.rig;
    rig.sleep(600).await;
    assert!(
        rig.requests().is_empty(),
        "without addresses nothing is asked for"
    );
    serving.addresses.send_replace(addresses(&["node-1"]));
    rig.sleep(600).await;
    assert!(rig.requests().is_empty(), "a name is not enough");
    serving.addresses.send_replace(addresses(&["node-1", "10.0.0.1"]));
    assert_eq!(serving.approve(1).await, "node-1 10.0.0.1");

    // The same in other words, or less: good enough.
    serving.addresses.send_replace(addresses(&["10.0.0.1", "node-1"]));
    serving.addresses.send_replace(addresses(&["10.0.0.1"]));
    rig.sleep(600).await;
    assert_eq!(rig.requests().len(), 1);

    // One more, and while that is waited for yet another: what is not wanted any more is not waited for.
    serving
        .addresses
        .send_replace(addresses(&["node-1", "10.0.0.1", "10.0.0.2"]));
    eventually!(rig.requests().len(), |requests| *requests == 2);
    serving
        .addresses
        .send_replace(addresses(&["node-1", "10.0.0.1", "fd00::1"]));
    assert_eq!(serving.approve(3).await, "node-1 10.0.0.1 fd00::1");
    assert_eq!(rig.requests().len(), 3);

    // Its time comes too.
    while rig.requests().len() == 3 {
        rig.sleep(60).await;
    }
    assert_eq!(serving.approve(4).await, "node-1 10.0.0.1 fd00::1");
    let current = rig.pki().join("kubelet-server-current.pem");
    assert!(current.is_symlink());
    serving.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_in_vain_is_not_asked_for_again_when_it_is_not_wanted() {
    let serving = Serving::start(&["10.0.0.1"]).await;
    assert_eq!(serving.approve(1).await, "10.0.0.1");
    serving.addresses.send_replace(addresses(&["10.0.0.2"]));
    eventually!(serving.rig.requests().len(), |requests| *requests == 2);
    serving.addresses.send_replace(addresses(&["10.0.0.1"]));
    serving.rig.sleep(3600).await;
    assert_eq!(serving.rig.requests().len(), 2);
    assert_eq!(serving.certificates.pending(), None);
    serving.end().await;
}

/// What is recorded of how old certificates became.
#[derive(Clone, Default)]
struct Ages(Arc<Mutex<Vec<f64>>>);

impl HistogramFn for Ages {
    fn record(&self, age: f64) {
        self.0.lock().push(age);
    }
}

impl Recorder for Ages {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "kubelet_certificate_manager_server_rotation_seconds" => {
                Histogram::from_arc(Arc::new(self.clone()))
            }
            _ => Histogram::noop(),
        }
    }
}

#[test]
fn how_old_it_became_is_told_when_it_is_replaced() {
    let ages = Ages::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let lived = metrics::with_local_recorder(&ages, || {
        runtime.block_on(async {
            let serving = Serving::start(&["10.0.0.1"]).await;
            serving.approve(1).await;
            let first = serving.certificates.current().unwrap();
            serving.rig.sleep(2 * 3600).await;
            serving.addresses.send_replace(addresses(&["10.0.0.2"]));
            serving.approve(2).await;
            let lived = serving.rig.clock.now().duration_since(first.not_before());
            serving.end().await;
            lived.as_secs_f64()
        })
    });
    let ages = ages.0.lock().clone();
    assert_eq!(ages.len(), 1, "the first one replaces nothing: {ages:?}");
    assert!((ages[0] - lived).abs() < 1.0, "{ages:?} {lived}");
}
