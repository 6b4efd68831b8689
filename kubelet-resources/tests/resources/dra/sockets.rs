//! Real sockets: the plugin watcher, both versions of the service, a plugin that restarts.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::DynamicResources as _;
use kubelet_plugins::{DRA_PLUGIN, PluginWatcher};
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::dra::DraManager;
use kubelet_testing::dra_driver::{DraFault, DraMethod, DraTrouble, MemoryDra};
use tokio_util::sync::CancellationToken;

use super::fixture::{DRIVER, World, claim, pod};

#[tokio::test]
async fn a_plugin_is_found_called_and_found_again() {
    for service in ["v1.DRAPlugin", "v1beta1.DRAPlugin"] {
        let dir = tempfile::tempdir().unwrap();
        let registry = dir.path().join("plugins_registry");
        let world = World::new();
        world.api.put(claim("a", &[DRIVER], &["p"]));
        let builder = DraManager::builder(Arc::new(StateFolder::new(dir.path())), world.api.clone());
        let manager = builder.start().await.unwrap();
        let watcher = PluginWatcher::builder(&registry)
            .handler(DRA_PLUGIN, Arc::new(manager.plugins()))
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let handle = manager.handle();
        let run = tokio::spawn({
            let (pods, shutdown) = (world.pods.clone(), shutdown.clone());
            async move { tokio::join!(watcher.run(shutdown.clone()), manager.run(pods, shutdown)) }
        });

        let driver = MemoryDra::new(DRIVER);
        std::fs::create_dir_all(&registry).unwrap();
        let socket = dir.path().join("dra.sock");
        let registration = registry.join("gpu-reg.sock");
        let mut served = driver.serve(&socket).unwrap();
        served.register(&registration, &[service]).unwrap();
        served.registered().await.unwrap();
        let pod = pod("p", &["a"]);
        world.pods.set(&[&pod]);
        handle.prepare(&pod).await.unwrap();
        assert_eq!(driver.prepared(), ["a"]);
        let share = handle.claims();
        let devices = share[0].driver_state[DRIVER].devices.as_ref().unwrap();
        assert_eq!(devices[0].device_name, "dev-a");

        // The plugin restarts during a call.
        driver.fault(
            DraFault::on(DraMethod::Unprepare)
                .times(1)
                .then(DraTrouble::Hangs),
        );
        let (result, ()) = tokio::join!(handle.unprepare(&pod), async {
            while driver.calls().len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            served.stop().await;
        });
        let text = result.unwrap_err().to_string();
        assert!(
            text.starts_with(
                "unprepare dynamic resources: NodeUnprepareResources: rpc error: code = Unavailable desc = "
            ),
            "{text}"
        );
        let mut served = driver.serve(&socket).unwrap();
        served.register(&registration, &[service]).unwrap();
        served.registered().await.unwrap();
        handle.unprepare(&pod).await.unwrap();
        assert!(driver.prepared().is_empty());
        served.stop().await;
        shutdown.cancel();
        run.await.unwrap();
    }
}
