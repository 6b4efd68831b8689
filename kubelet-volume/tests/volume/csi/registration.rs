//! Drivers that register over their sockets.

use std::sync::Arc;

use kubelet_plugins::{CSI_PLUGIN, PluginWatcher};
use kubelet_testing::csi_driver::{CsiFault, CsiMethod, CsiTrouble, MemoryCsi};
use kubelet_volume::csi::{CsiDrivers, CsiRegistration, NoCsiNodeInfo};
use tokio_util::sync::CancellationToken;

struct Watched {
    dir: tempfile::TempDir,
    drivers: CsiDrivers,
    shutdown: CancellationToken,
    run: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let drivers = CsiDrivers::new();
        let registration = Arc::new(CsiRegistration::new(drivers.clone(), Arc::new(NoCsiNodeInfo)));
        std::fs::create_dir(dir.path().join("registry")).unwrap();
        let watcher = PluginWatcher::builder(dir.path().join("registry"))
            .handler(CSI_PLUGIN, registration)
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let run = tokio::spawn(watcher.run(shutdown.clone()));
        Self {
            dir,
            drivers,
            shutdown,
            run,
        }
    }

    async fn wait_for(&self, names: &[&str]) {
        let mut changes = self.drivers.changes();
        while self.drivers.names() != names {
            changes.changed().await.unwrap();
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.run.await.unwrap();
    }
}

#[tokio::test]
async fn a_driver_registers_and_goes_with_its_socket() {
    let watched = Watched::start();
    let driver = MemoryCsi::new("disk.example.com");
    for round in 0..3 {
        let mut served = driver.serve(&watched.dir.path().join("csi.sock")).unwrap();
        let socket = watched.dir.path().join("registry/disk-reg.sock");
        served.register(&socket, &["1.0.0"]).unwrap();
        served.registered().await.unwrap();
        watched.wait_for(&["disk.example.com"]).await;
        served.stop().await;
        if round == 0 {
            watched.wait_for(&[]).await;
        }
    }
    watched.wait_for(&[]).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_driver_needs_version_1() {
    let watched = Watched::start();
    let driver = MemoryCsi::new("disk.example.com");
    let mut served = driver.serve(&watched.dir.path().join("csi.sock")).unwrap();
    served
        .register(&watched.dir.path().join("registry/r.sock"), &["0.3.0", "2.0.0"])
        .unwrap();
    let refused = served.registered().await.unwrap_err();
    let endpoint = watched.dir.path().join("csi.sock");
    assert_eq!(
        refused,
        format!(
            "RegisterPlugin error -- plugin validation failed with err: validation failed for CSI Driver disk.example.com at endpoint {}: kubernetes.io/csi: ValidatePlugin for CSI driver \"disk.example.com\" failed. None of the versions specified [\"0.3.0\" \"2.0.0\"] are supported. err=highest supported version reported is 0.3.0, must be v1.x",
            endpoint.display()
        )
    );
    watched.stop().await;
}

#[tokio::test]
async fn the_higher_version_of_a_driver_replaces_the_lower_one() {
    let watched = Watched::start();
    let serve = |name: &str, version: &str| {
        let driver = MemoryCsi::new("disk.example.com");
        let mut served = driver
            .serve(&watched.dir.path().join(format!("{name}.csi.sock")))
            .unwrap();
        let socket = watched.dir.path().join(format!("registry/{name}.sock"));
        served.register(&socket, &[version]).unwrap();
        (driver, served)
    };
    let (_, old) = serve("old", "1.1.0");
    old.registered().await.unwrap();
    let (_, same) = serve("same", "1.1.0");
    let refused = same.registered().await.unwrap_err();
    assert!(
        refused.contains("Another driver with the same name is already registered with a higher supported version: \"1.1.0\""),
        "{refused}"
    );
    let (_, new) = serve("new", "1.2.0");
    new.registered().await.unwrap();
    // The end of the old one does not take the new one away.
    let mut changes = watched.drivers.changes();
    changes.mark_unchanged();
    old.stop().await;
    let (_, probe) = serve("probe", "1.1.5");
    probe.registered().await.unwrap_err();
    assert_eq!(watched.drivers.names(), ["disk.example.com"]);
    assert!(!changes.has_changed().unwrap());
    watched.stop().await;
}

#[tokio::test]
async fn a_driver_whose_info_fails_is_refused_and_retried() {
    let watched = Watched::start();
    let driver = MemoryCsi::new("disk.example.com");
    let trouble = CsiTrouble::Fails(tonic::Code::Internal, "no id".into());
    driver.fault(CsiFault::on(CsiMethod::NodeGetInfo).times(1).then(trouble));
    let mut served = driver.serve(&watched.dir.path().join("csi.sock")).unwrap();
    served
        .register(&watched.dir.path().join("registry/r.sock"), &["1.0.0"])
        .unwrap();
    let refused = served.registered().await.unwrap_err();
    assert_eq!(
        refused,
        "RegisterPlugin error -- plugin registration failed with err: rpc error: code = Internal desc = no id"
    );
    watched.wait_for(&["disk.example.com"]).await;
    watched.stop().await;
}
