//! To which container and pod a cgroup belongs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use kubelet_core::stats::{RuntimeContainer, RuntimeList, RuntimeUsages, StatsPods};
use kubelet_core::{PodExt, PodUid};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::CollectorConfig;
use crate::cgroup_name::{container_id, pod_uid};
use crate::reading::{ContainerRecord, PodRef};

/// So often the runtime is asked about a cgroup that it does not know: a container may have its cgroup before the runtime
/// lists it.
const TRIES: u8 = 3;

/// A reading waits this long for the runtime. Then it is shown with the labels that are known.
const PATIENCE: Duration = Duration::from_secs(2);
/// A call to the runtime that has not ended by then has failed.
const CALL: Duration = Duration::from_secs(30);
/// After a failure, the runtime is asked again after this time; each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The same for the names of images.
const FIRST_NAME_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_NAME_PAUSE: Duration = Duration::from_secs(600);

/// The containers of the runtime. It is asked only when a cgroup appears that may be a new container's.
#[derive(Default)]
pub(super) struct Containers {
    known: Arc<Mutex<Known>>,
    /// The call that is under way, which all readings share.
    listing: Mutex<Option<Shared<BoxFuture<'static, ()>>>>,
}

#[derive(Default)]
struct Known {
    /// By the id of the container or sandbox.
    containers: HashMap<String, Owner>,
    /// Pods by UID, from sandboxes.
    pods: HashMap<String, Arc<PodRef>>,
    /// How often the runtime did not know a cgroup.
    unknown: HashMap<Arc<str>, u8>,
    /// Sandboxes and containers whose image has no name yet: a call failed, or the runtime has none.
    unnamed: HashMap<String, Pause>,
    /// The last call failed.
    failed: Option<Pause>,
}

/// The runtime is not asked again so soon.
#[derive(Clone, Copy)]
struct Pause {
    length: Duration,
    until: Instant,
}

impl Pause {
    /// A pause of this length, or twice the one before.
    fn after(before: Option<Self>, first: Duration, longest: Duration) -> Self {
        let length = before.map_or(first, |before| (before.length * 2).min(longest));
        Self {
            length,
            until: Instant::now() + length,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// Whose cgroup it is.
#[derive(Clone, Default)]
pub(super) struct Owner {
    pub(super) container: Option<Arc<ContainerRecord>>,
    pub(super) pod: Option<Arc<PodRef>>,
}

impl Containers {
    /// The owner of each cgroup that has one. It waits for the runtime for 2 s at most.
    ///
    /// May be dropped: the next call goes on with what the runtime was asked.
    pub(super) async fn owners(
        &self,
        names: &[Arc<str>],
        config: &CollectorConfig,
    ) -> HashMap<Arc<str>, Owner> {
        if let Some(listing) = self.listing(names, config.runtime.clone())
            && timeout(PATIENCE, listing).await.is_err()
        {
            tracing::warn!(after = ?PATIENCE, "the runtime does not list its containers: new ones have no labels yet");
        }
        let known = self.known.lock();
        let owner = |name: &Arc<str>| known.owner(name, config.pods.as_deref());
        names
            .iter()
            .filter_map(|name| Some((name.clone(), owner(name)?)))
            .collect()
    }

    /// The call that is under way, or a new one if it is necessary.
    fn listing(
        &self,
        names: &[Arc<str>],
        runtime: Option<Arc<dyn RuntimeUsages>>,
    ) -> Option<Shared<BoxFuture<'static, ()>>> {
        let runtime = runtime?;
        let mut listing = self.listing.lock();
        if let Some(listing) = listing.as_ref().filter(|listing| listing.peek().is_none()) {
            return Some(listing.clone());
        }
        *listing = None;
        if !self.known.lock().must_list(names) {
            return None;
        }
        let (known, names) = (self.known.clone(), names.to_vec());
        let call = async move {
            match timeout(CALL, list(runtime.as_ref(), &known, &names)).await {
                Ok(Ok(())) => known.lock().failed = None,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "list the containers of the runtime: new ones have no labels yet");
                    known.lock().fail();
                }
                Err(_) => {
                    tracing::warn!(after = ?CALL, "the runtime does not list its containers");
                    known.lock().fail();
                }
            }
        };
        let call = call.boxed().shared();
        *listing = Some(call.clone());
        Some(call)
    }
}

async fn list(
    runtime: &dyn RuntimeUsages,
    known: &Mutex<Known>,
    names: &[Arc<str>],
) -> kubelet_core::Result<()> {
    let list = runtime.list().await?;
    let (sandboxes, containers) = known.lock().unnamed_in(&list);
    // Names and labels are known from now on. The names of images follow: if that fails, they are asked for again.
    {
        let mut known = known.lock();
        let new_sandboxes = sandboxes.iter().cloned();
        for id in new_sandboxes.chain(containers.iter().map(|container| container.id.clone())) {
            let before = known.unnamed.get(&id).copied();
            let pause = Pause::after(before, FIRST_NAME_PAUSE, LONGEST_NAME_PAUSE);
            known.unnamed.insert(id, pause);
        }
        known.replace(list.clone(), BTreeMap::new());
    }
    let images = runtime.image_names(&sandboxes, &containers).await;
    let mut known = known.lock();
    known.unnamed.retain(|id, _| !images.contains_key(id));
    known.replace(list, images);
    let mut unknown = std::mem::take(&mut known.unknown);
    for name in names.iter().filter(|name| is_in_pod(name)) {
        if !known.containers.contains_key(container_id(name)) {
            let tries = unknown.remove(name).unwrap_or(0).saturating_add(1);
            known.unknown.insert(name.clone(), tries);
        }
    }
    Ok(())
}

impl Known {
    /// A cgroup below that of a pod is unknown, and may be a container's; or the name of an image is unknown.
    fn must_list(&self, names: &[Arc<str>]) -> bool {
        if self.failed.is_some_and(|failed| !failed.is_over()) {
            return false;
        }
        let mut candidates = names.iter().filter(|name| is_in_pod(name));
        candidates.any(|name| {
            let id = container_id(name);
            match self.containers.contains_key(id) {
                true => self.unnamed.get(id).is_some_and(Pause::is_over),
                false => self.unknown.get(name).is_none_or(|tries| *tries < TRIES) && !id.is_empty(),
            }
        })
    }

    fn fail(&mut self) {
        self.failed = Some(Pause::after(self.failed, FIRST_PAUSE, LONGEST_PAUSE));
    }

    /// The sandboxes and containers whose image has no name yet: those that are new, and those that were asked for in vain.
    fn unnamed_in(&self, list: &RuntimeList) -> (Vec<String>, Vec<RuntimeContainer>) {
        let asks = |id: &String| match self.unnamed.get(id) {
            Some(pause) => pause.is_over(),
            None => !self.containers.contains_key(id),
        };
        let sandboxes = list.sandboxes.iter().map(|sandbox| &sandbox.id);
        let containers = list.containers.iter().filter(|container| asks(&container.id));
        (
            sandboxes.filter(|id| asks(id)).cloned().collect(),
            containers.cloned().collect(),
        )
    }

    /// `images` are the names of images of what is new.
    fn replace(&mut self, list: RuntimeList, mut images: BTreeMap<String, String>) {
        let before = std::mem::take(&mut self.containers);
        self.unnamed.retain(|id, _| {
            list.sandboxes.iter().any(|sandbox| sandbox.id == *id)
                || list.containers.iter().any(|container| container.id == *id)
        });
        self.pods.clear();
        let mut image_of = |id: &str| {
            let known = || Some(before.get(id)?.container.as_ref()?.image.clone());
            images.remove(id).or_else(known).filter(|image| !image.is_empty())
        };
        let mut pods: BTreeMap<String, Arc<PodRef>> = BTreeMap::new();
        for sandbox in list.sandboxes {
            let pod = Arc::new(PodRef {
                namespace: sandbox.namespace,
                name: sandbox.pod,
                uid: sandbox.uid.clone(),
            });
            self.pods.insert(sandbox.uid, pod.clone());
            pods.insert(sandbox.id.clone(), pod.clone());
            let record = ContainerRecord {
                image: image_of(&sandbox.id).unwrap_or_default(),
                id: sandbox.id.clone(),
                is_sandbox: true,
                ..Default::default()
            };
            let owner = Owner {
                container: Some(Arc::new(record)),
                pod: Some(pod),
            };
            self.containers.insert(sandbox.id, owner);
        }
        for container in list.containers {
            let record = ContainerRecord {
                image: image_of(&container.id).unwrap_or(container.image),
                id: container.id.clone(),
                is_sandbox: false,
                name: container.name,
            };
            let owner = Owner {
                container: Some(Arc::new(record)),
                pod: pods.get(&container.sandbox_id).cloned(),
            };
            self.containers.insert(container.id, owner);
        }
    }

    fn owner(&self, name: &str, pods: Option<&dyn StatsPods>) -> Option<Owner> {
        if let Some(owner) = self.containers.get(container_id(name)) {
            return Some(owner.clone());
        }
        let uid = pod_uid(name)?;
        let from_agent = pods.and_then(|pods| {
            let pod = pods.pod(&PodUid::from(uid.as_str()))?;
            let key = pod.key();
            Some(Arc::new(PodRef {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                uid: uid.clone(),
            }))
        });
        let pod = from_agent.or_else(|| self.pods.get(&uid).cloned())?;
        Some(Owner {
            container: None,
            pod: Some(pod),
        })
    }
}

/// The cgroup lies directly in that of a pod.
fn is_in_pod(name: &str) -> bool {
    name.rsplit_once('/')
        .is_some_and(|(parent, _)| pod_uid(parent).is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use kubelet_core::stats::{RuntimeContainerUsage, RuntimeFileSystems, RuntimePodUsage, RuntimeSandbox};

    use super::*;

    /// Fails until it works.
    #[derive(Default)]
    struct Flaky {
        lists: AtomicBool,
        names: AtomicBool,
        hangs: AtomicBool,
        listed: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl RuntimeUsages for Flaky {
        async fn list(&self) -> kubelet_core::Result<RuntimeList> {
            self.listed.fetch_add(1, Ordering::SeqCst);
            if self.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if !self.lists.load(Ordering::SeqCst) {
                return Err(kubelet_core::Error::runtime(
                    "ListContainers",
                    std::io::Error::other("down"),
                ));
            }
            Ok(RuntimeList {
                sandboxes: vec![RuntimeSandbox {
                    id: "1".to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            })
        }

        async fn container_usages(&self) -> kubelet_core::Result<Vec<RuntimeContainerUsage>> {
            Ok(Vec::new())
        }

        async fn pod_usages(&self) -> kubelet_core::Result<Option<Vec<RuntimePodUsage>>> {
            Ok(None)
        }

        async fn file_systems(&self) -> kubelet_core::Result<RuntimeFileSystems> {
            Ok(RuntimeFileSystems::default())
        }

        async fn image_names(&self, ids: &[String], _: &[RuntimeContainer]) -> BTreeMap<String, String> {
            match self.names.load(Ordering::SeqCst) {
                true => ids.iter().map(|id| (id.clone(), "pause".to_owned())).collect(),
                false => BTreeMap::new(),
            }
        }
    }

    struct Fixture {
        runtime: Arc<Flaky>,
        containers: Containers,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                runtime: Arc::default(),
                containers: Containers::default(),
            }
        }

        async fn image(&self) -> Option<String> {
            let names = ["/kubepods/poda/1".into()];
            if let Some(call) = self.containers.listing(&names, Some(self.runtime.clone() as _)) {
                let _ = timeout(PATIENCE, call).await;
            }
            let known = self.containers.known.lock();
            Some(known.owner(&names[0], None)?.container?.image.clone())
        }

        fn listed(&self) -> usize {
            self.runtime.listed.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_the_runtime_is_asked_again_later() {
        let fixture = Fixture::new();
        assert_eq!((fixture.image().await, fixture.image().await), (None, None));
        assert_eq!(fixture.listed(), 1);
        tokio::time::advance(FIRST_PAUSE).await;
        fixture.runtime.lists.store(true, Ordering::SeqCst);
        assert_eq!(fixture.image().await.as_deref(), Some(""));
        assert_eq!(fixture.listed(), 2);
        // The name of the image is asked for again, too.
        fixture.runtime.names.store(true, Ordering::SeqCst);
        assert_eq!(fixture.image().await.as_deref(), Some(""));
        tokio::time::advance(FIRST_NAME_PAUSE).await;
        assert_eq!(fixture.image().await.as_deref(), Some("pause"));
        tokio::time::advance(LONGEST_NAME_PAUSE).await;
        assert_eq!(fixture.image().await.as_deref(), Some("pause"));
        assert_eq!(fixture.listed(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn readings_share_a_call_that_hangs() {
        let fixture = Fixture::new();
        fixture.runtime.hangs.store(true, Ordering::SeqCst);
        let began = Instant::now();
        tokio::join!(fixture.image(), fixture.image());
        assert_eq!(began.elapsed(), PATIENCE);
        fixture.image().await;
        assert_eq!(fixture.listed(), 1);
        tokio::time::advance(CALL).await;
        fixture.image().await;
        fixture.runtime.hangs.store(false, Ordering::SeqCst);
        assert_eq!(fixture.listed(), 1, "it failed just now");
    }
}
