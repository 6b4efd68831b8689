//! Plugins register, connect and go; the slices of drivers that are gone are deleted.

use std::time::Duration;

use kubelet_core::DynamicResources as _;
use kubelet_plugins::{DRA_PLUGIN, Plugin, PluginHandler as _};
use kubelet_resources::dra::{DraManagerHandle, DraPlugins, WIPING_DELAY};
use kubelet_testing::dra_driver::MemoryDra;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fixture::{DRIVER, World, claim, plugin, pod};

/// `TestValidatePlugin` and the like: which service is used, or why none.
#[tokio::test]
async fn a_plugin_is_validated_by_its_services() {
    let world = World::new();
    let plugins = world.manager().await.plugins();
    let with = |versions: &[&str]| Plugin::new(DRA_PLUGIN, "d", "/d.sock").versions(versions.iter().copied());
    for accepted in [
        &["v1.DRAPlugin"][..],
        &["v1beta1.DRAPlugin"],
        &["v9.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"],
    ] {
        plugins.validate(&with(accepted)).await.unwrap();
    }
    let prefix = "invalid supported gRPC versions of DRA driver plugin d at endpoint /d.sock: ";
    for (versions, text) in [
        (
            &[][..],
            "empty list of supported gRPC services (aka supported versions)",
        ),
        (
            &["v1alpha3.Node", "1.0.0"],
            "none of services supported by the plugin ([\"v1alpha3.Node\" \"1.0.0\"]) are supported by the kubelet \
             ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])",
        ),
    ] {
        let error = plugins.validate(&with(versions)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{prefix}{text}"));
        let error = plugins.register(&with(versions)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{prefix}{text}"));
    }
}

#[tokio::test]
async fn two_plugins_cannot_have_the_same_endpoint() {
    let world = World::new();
    let plugins = world.manager().await.plugins();
    plugins.register(&plugin(DRIVER, "1")).await.unwrap();
    let error = plugins.register(&plugin(DRIVER, "1")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "endpoint /gpu.example.com-1.sock already registered for DRA driver plugin gpu.example.com"
    );
}

struct Running {
    world: World,
    plugins: DraPlugins,
    handle: DraManagerHandle,
    shutdown: CancellationToken,
    run: JoinHandle<()>,
    begun: Instant,
}

impl Running {
    async fn start() -> Self {
        let world = World::new();
        let manager = world.manager().await;
        let shutdown = CancellationToken::new();
        Self {
            plugins: manager.plugins(),
            handle: manager.handle(),
            run: tokio::spawn(manager.run(world.pods.clone(), shutdown.clone())),
            shutdown,
            begun: Instant::now(),
            world,
        }
    }

    async fn at(&self, seconds: u64) {
        sleep_until(self.begun + Duration::from_secs(seconds)).await;
        // What happens at this very moment happens first.
        sleep(Duration::from_millis(100)).await;
    }

    async fn register(&self, driver: &MemoryDra, instance: &str) {
        self.world
            .drivers
            .serve(plugin(driver.name(), instance).endpoint, driver);
        self.plugins
            .register(&plugin(driver.name(), instance))
            .await
            .unwrap();
    }

    fn stop(&self, instance: &str) {
        self.world.drivers.stop(plugin(DRIVER, instance).endpoint);
    }

    fn wiped(&self) -> Vec<Option<String>> {
        self.world.api.wiped.borrow().clone()
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.run.await.unwrap();
    }
}

/// What happens to the only plugin of a driver at which second, and when its slices are deleted.
#[tokio::test(start_paused = true)]
async fn slices_are_deleted_when_a_driver_is_gone_for_long() {
    enum Step {
        Registers,
        /// Nobody serves at its endpoint.
        RegistersDead,
        Deregisters,
        Stops,
        Serves,
    }
    use Step::{Deregisters, Registers, RegistersDead, Serves, Stops};
    type Case = (&'static str, &'static [(u64, Step)], &'static [u64]);
    let table: &[Case] = &[
        ("it stays", &[(0, Registers)], &[]),
        ("it is gone", &[(0, Registers), (10, Deregisters)], &[40]),
        (
            "it is back in time",
            &[(0, Registers), (10, Deregisters), (39, Registers)],
            &[],
        ),
        (
            "its connection breaks and is made again",
            &[(0, Registers), (10, Stops), (15, Serves)],
            &[],
        ),
        ("its connection breaks", &[(0, Registers), (10, Stops)], &[40]),
        // The time goes on: nothing has changed.
        (
            "its connection breaks, then it is gone",
            &[(0, Registers), (10, Stops), (30, Deregisters)],
            &[40],
        ),
        (
            "it comes and goes",
            &[
                (0, Registers),
                (10, Deregisters),
                (50, Registers),
                (60, Deregisters),
            ],
            &[40, 90],
        ),
        // Once is enough.
        (
            "it is registered, but never connected",
            &[(0, RegistersDead), (1, Deregisters), (50, RegistersDead)],
            &[30],
        ),
    ];
    for (case, steps, deletions) in table {
        let running = Running::start().await;
        let driver = MemoryDra::new(DRIVER);
        for (second, step) in *steps {
            running.at(*second).await;
            match step {
                Registers => running.register(&driver, "1").await,
                RegistersDead => running.plugins.register(&plugin(DRIVER, "1")).await.unwrap(),
                Deregisters => running.plugins.deregister(&plugin(DRIVER, "1")).await,
                Stops => running.stop("1"),
                Serves => running.world.drivers.serve(plugin(DRIVER, "1").endpoint, &driver),
            }
        }
        // At the start, those of all drivers are deleted.
        for (index, second) in deletions.iter().enumerate() {
            if running.begun.elapsed() < Duration::from_secs(*second) {
                running.at(second - 1).await;
                assert_eq!(running.wiped().len(), 1 + index, "{case}: before {second}");
                running.at(second + 1).await;
                assert_eq!(running.wiped().len(), 2 + index, "{case}: after {second}");
            }
        }
        running.at(600).await;
        let wiped = running.wiped();
        assert_eq!(wiped[0], None, "{case}");
        assert_eq!(
            wiped[1..],
            vec![Some(DRIVER.to_owned()); deletions.len()],
            "{case}"
        );
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_repeated_unless_the_driver_is_back() {
    let running = Running::start().await;
    running.at(1).await;
    let driver = MemoryDra::new(DRIVER);
    running.register(&driver, "1").await;
    running.at(2).await;
    *running.world.api.failing_wipes.lock().unwrap() = 3;
    running.plugins.deregister(&plugin(DRIVER, "1")).await;
    running.at(60).await;
    assert_eq!(running.wiped(), [None, Some(DRIVER.to_owned())]);

    running.register(&driver, "1").await;
    running.at(61).await;
    *running.world.api.failing_wipes.lock().unwrap() = usize::MAX;
    running.plugins.deregister(&plugin(DRIVER, "1")).await;
    running.at(61 + WIPING_DELAY.as_secs() + 5).await;
    running.register(&driver, "1").await;
    running.at(100).await;
    *running.world.api.failing_wipes.lock().unwrap() = 0;
    running.at(1000).await;
    assert_eq!(running.wiped().len(), 2);
    running.end().await;
}

/// A rolling update: the new instance registers, then the old one goes.
#[tokio::test(start_paused = true)]
async fn the_latest_connected_instance_of_a_driver_is_called() {
    let running = Running::start().await;
    let (old, new) = (MemoryDra::new(DRIVER), MemoryDra::new(DRIVER));
    let mut number = 0;
    let mut prepare = async || {
        number += 1;
        let name = format!("claim-{number}");
        running.world.api.put(claim(&name, &[DRIVER], &["p"]));
        running.handle.prepare(&pod("p", &[&name])).await
    };
    let counts = || (old.calls().len(), new.calls().len());
    running.register(&old, "1").await;
    running.at(1).await;
    prepare().await.unwrap();
    assert_eq!(counts(), (1, 0));
    running.register(&new, "2").await;
    running.at(2).await;
    prepare().await.unwrap();
    assert_eq!(counts(), (1, 1));
    // The latest is not connected: the other one is called.
    running.stop("2");
    running.at(3).await;
    prepare().await.unwrap();
    assert_eq!(counts(), (2, 1));
    running.plugins.deregister(&plugin(DRIVER, "2")).await;
    prepare().await.unwrap();
    assert_eq!(counts(), (3, 1));
    // Nobody serves, but it is still registered: the error is that of the connection.
    running.stop("1");
    running.at(4).await;
    assert_eq!(
        prepare().await.unwrap_err().to_string(),
        "prepare dynamic resources: NodePrepareResources: rpc error: code = Unavailable desc = connection error: desc = \
         \"transport: Error while dialing: dial unix /gpu.example.com-1.sock: connect: no such file or directory\""
    );
    // And when it serves again, the next call reaches it, even before it is connected again.
    running.world.drivers.serve(plugin(DRIVER, "1").endpoint, &old);
    prepare().await.unwrap();
    assert_eq!(counts(), (4, 1));
    running.plugins.deregister(&plugin(DRIVER, "1")).await;
    assert_eq!(
        prepare().await.unwrap_err().to_string(),
        "prepare dynamic resources: DRA driver gpu.example.com is not registered"
    );
    running.end().await;
}
