//! Pods come and go, drivers and disk fail, the agent crashes at any write: nothing prepared is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{DynamicResources as _, PodUid};
use kubelet_resources::dra::{DraManager, DraManagerHandle};
use kubelet_testing::dra_driver::{DraFault, DraMethod, DraTrouble, MemoryDra};
use proptest::prelude::*;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fixture::{World, claim, pod};

const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
/// Which drivers each claim is of, by its number.
const CLAIMS: [(&str, &[&str]); 4] = [
    ("own-0", &["a.example.com"]),
    ("own-1", &["b.example.com"]),
    ("own-2", &DRIVERS),
    ("shared", &DRIVERS),
];
const PODS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// These pods are prepared at once.
    Prepare(Vec<usize>),
    /// The containers of these pods have stopped.
    Unprepare(Vec<usize>),
    /// The pod is gone without a word, e.g. deleted by force while the agent was down.
    Vanish(usize),
    /// The agent crashes at the write after so many more. The file has been replaced by then, or not.
    CrashAtWrite(usize, bool),
    /// The agent ends now, also in the middle of a call that hangs.
    Restart,
    Fault(usize, DraMethod, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pods = || prop::collection::vec(0..PODS, 1..=PODS);
    let method = prop_oneof![Just(DraMethod::Prepare), Just(DraMethod::Unprepare)];
    let step = prop_oneof![
        4 => pods().prop_map(Step::Prepare),
        3 => pods().prop_map(Step::Unprepare),
        1 => (0..PODS).prop_map(Step::Vanish),
        2 => (0..4_usize, any::<bool>()).prop_map(|(after, replaced)| Step::CrashAtWrite(after, replaced)),
        1 => Just(Step::Restart),
        2 => (0..2_usize, method, 0..6_u8).prop_map(|(driver, method, trouble)| Step::Fault(driver, method, trouble)),
    ];
    prop::collection::vec(step, 1..24)
}

fn trouble(number: u8) -> DraTrouble {
    match number {
        0 => DraTrouble::ClaimsFail("no".to_owned()),
        1 => DraTrouble::LeavesOut,
        2 => DraTrouble::AnswerLost,
        3 => DraTrouble::Hangs,
        4 => DraTrouble::HangsAfterWork,
        _ => DraTrouble::Slow(Duration::from_secs(3)),
    }
}

fn pod_number(number: usize) -> Pod {
    pod(&format!("p{number}"), &[CLAIMS[number].0, "shared"])
}

fn uid(number: usize) -> PodUid {
    PodUid::new(format!("uid-p{number}"))
}

struct Node {
    world: World,
    drivers: Vec<MemoryDra>,
    handle: DraManagerHandle,
    manager: Option<DraManager>,
    /// The pods whose claims are prepared.
    running: BTreeSet<usize>,
}

impl Node {
    async fn start() -> Self {
        let world = World::new();
        for (name, drivers) in CLAIMS {
            world.api.put(claim(name, drivers, &["p0", "p1", "p2"]));
        }
        let manager = world.manager().await;
        let drivers = DRIVERS.map(MemoryDra::new).to_vec();
        for driver in &drivers {
            world.register(&manager, driver, "1").await;
        }
        Self {
            handle: manager.handle(),
            manager: Some(manager),
            world,
            drivers,
            running: BTreeSet::new(),
        }
    }

    /// The agent before is gone; the next one starts from the file.
    async fn restart(&mut self) {
        self.manager = None;
        self.world.store.repair();
        let manager = self.world.manager().await;
        for driver in &self.drivers {
            self.world.register(&manager, driver, "1").await;
        }
        self.handle = manager.handle();
        self.manager = Some(manager);
    }

    async fn step(&mut self, step: Step) {
        let handle = self.handle.clone();
        let handle = &handle;
        match step {
            Step::Prepare(numbers) => {
                let results = futures::future::join_all(numbers.iter().map(|number| async move {
                    let pod = pod_number(*number);
                    timeout(Duration::from_secs(400), handle.prepare(&pod))
                        .await
                        .unwrap()
                }));
                let results = results.await;
                for (number, result) in numbers.iter().zip(results) {
                    if result.is_ok() {
                        self.running.insert(*number);
                        let pod = pod_number(*number);
                        let container = &pod.spec.as_ref().unwrap().containers[0];
                        assert!(!self.handle.cdi_devices(&pod, container).unwrap().is_empty());
                    }
                }
            }
            Step::Unprepare(numbers) => {
                let results = futures::future::join_all(numbers.iter().map(|number| async move {
                    let pod = pod_number(*number);
                    timeout(Duration::from_secs(400), handle.unprepare(&pod))
                        .await
                        .unwrap()
                }));
                // The containers have stopped, whatever became of the claims.
                let results = results.await;
                for (number, result) in numbers.iter().zip(results) {
                    self.running.remove(number);
                    assert!(result.is_err() || !self.handle.might_need_unprepare(&uid(*number)));
                }
            }
            Step::Vanish(number) => drop(self.running.remove(&number)),
            Step::CrashAtWrite(after, replaced) => self.world.store.fail_after(after, replaced),
            Step::Restart => self.restart().await,
            Step::Fault(driver, method, number) => {
                let fault = DraFault::on(method).times(1).then(trouble(number));
                self.drivers[driver].fault(fault);
            }
        }
    }

    fn check(&self) {
        let on_disk = self.world.store.claims();
        for driver in &self.drivers {
            assert_eq!(driver.violations(), Vec::<String>::new());
            // What a driver may have prepared is on disk, with a pod. So a crash at this moment loses nothing.
            for name in driver.prepared() {
                let noted = on_disk.iter().find(|claim| claim.claim_name == name);
                let noted = noted.unwrap_or_else(|| panic!("{name} is prepared and not on disk"));
                assert!(noted.driver_state.contains_key(driver.name()) && !noted.pod_uids.is_empty());
            }
        }
        // The claims of a running pod stay prepared.
        for number in &self.running {
            for (name, drivers) in [CLAIMS[*number], CLAIMS[3]] {
                for driver in self
                    .drivers
                    .iter()
                    .filter(|driver| drivers.contains(&driver.name()))
                {
                    assert!(
                        driver.prepared().contains(&name.to_owned()),
                        "{name} of running pod {number} is not prepared by {}",
                        driver.name()
                    );
                }
            }
        }
    }

    /// The faults end, all pods are gone: the loop unprepares what is left.
    async fn end(mut self) {
        for driver in &self.drivers {
            driver.clear_faults();
        }
        self.restart().await;
        let shutdown = CancellationToken::new();
        let manager = self.manager.take().unwrap();
        let run = tokio::spawn(manager.run(self.world.pods.clone(), shutdown.clone()));
        tokio::time::sleep(Duration::from_secs(61)).await;
        for driver in &self.drivers {
            assert_eq!(driver.prepared(), Vec::<String>::new());
            assert_eq!(driver.violations(), Vec::<String>::new());
        }
        assert!(self.handle.claims().is_empty() && self.world.store.claims().is_empty());
        shutdown.cancel();
        run.await.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn what_is_prepared_is_unprepared(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut node = Node::start().await;
            for step in steps {
                node.step(step).await;
                node.check();
            }
            node.end().await;
        });
    }
}
