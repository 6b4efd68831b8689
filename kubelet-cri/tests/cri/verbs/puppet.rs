//! A runtime in memory. A test can make each of the five verbs fail or hang. Its only capabilities are images and pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerRuntime, ContainerSpec, ImageInfo, Images, Pod, PodKey, PodSpec, Pods,
    RegistryLogin, Result, RuntimeError,
};

#[derive(Default)]
pub(crate) struct Puppet {
    pub(crate) containers: Mutex<BTreeMap<ContainerKey, Container>>,
    pub(crate) specs: Mutex<Vec<ContainerSpec>>,
    pub(crate) graces: Mutex<Vec<Duration>>,
    /// The scripted failure of each verb.
    pub(crate) orders: Mutex<BTreeMap<&'static str, Order>>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) shelf: Option<Shelf>,
    pub(crate) farm: Option<Arc<Farm>>,
    pub(crate) clock: Clock,
}

/// Images of these sizes, in their own folder.
pub(crate) struct Shelf {
    pub(crate) dir: PathBuf,
    pub(crate) sizes: Vec<u64>,
    /// The credentials of the pulls that had some.
    pub(crate) logins: Arc<Mutex<Vec<RegistryLogin>>>,
}

/// Pods in memory, whose begin and end a test can make fail or hang.
#[derive(Default)]
pub(crate) struct Farm {
    pub(crate) pods: Mutex<BTreeMap<PodKey, Pod>>,
    pub(crate) specs: Mutex<Vec<PodSpec>>,
    pub(crate) ends: Mutex<Vec<PodKey>>,
    pub(crate) addresses: Vec<std::net::IpAddr>,
    pub(crate) orders: Mutex<BTreeMap<&'static str, Order>>,
}

#[derive(Clone)]
pub(crate) enum Order {
    Fail(RuntimeError),
    Hang,
}

impl Puppet {
    pub(crate) fn order(&self, verb: &'static str, order: Order) {
        self.orders.lock().unwrap().insert(verb, order);
    }

    pub(crate) fn at_ease(&self) {
        self.orders.lock().unwrap().clear();
    }

    async fn obey(&self, verb: &'static str) -> Result<()> {
        obey(&self.orders, verb).await
    }
}

async fn obey(orders: &Mutex<BTreeMap<&'static str, Order>>, verb: &'static str) -> Result<()> {
    let order = orders.lock().unwrap().get(verb).cloned();
    match order {
        None => Ok(()),
        Some(Order::Fail(error)) => Err(error),
        Some(Order::Hang) => std::future::pending().await,
    }
}

/// A pod that hangs has begun already.
#[async_trait]
impl Pods for Farm {
    async fn list(&self) -> Result<Vec<Pod>> {
        obey(&self.orders, "list").await?;
        Ok(self.pods.lock().unwrap().values().cloned().collect())
    }

    async fn begin(&self, spec: &PodSpec) -> Result<Pod> {
        self.specs.lock().unwrap().push(spec.clone());
        let mut pod = Pod::new(spec.key.clone());
        pod.addresses = self.addresses.clone();
        self.pods.lock().unwrap().insert(spec.key.clone(), pod.clone());
        obey(&self.orders, "begin").await?;
        Ok(pod)
    }

    async fn end(&self, key: &PodKey) -> Result<()> {
        self.ends.lock().unwrap().push(key.clone());
        obey(&self.orders, "end").await?;
        self.pods.lock().unwrap().remove(key);
        Ok(())
    }
}

#[async_trait]
impl ContainerRuntime for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    async fn list(&self) -> Result<Vec<Container>> {
        self.obey("list").await?;
        Ok(self.containers.lock().unwrap().values().cloned().collect())
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        self.obey("start").await?;
        self.specs.lock().unwrap().push(spec.clone());
        let mut containers = self.containers.lock().unwrap();
        let fresh = || Container::running(spec.key.clone(), self.clock.now());
        Ok(containers.entry(spec.key.clone()).or_insert_with(fresh).clone())
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        self.graces.lock().unwrap().push(grace);
        self.obey("stop").await?;
        if let Some(container) = self.containers.lock().unwrap().get_mut(key) {
            container.exited(0, self.clock.now());
        }
        Ok(())
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        self.obey("remove").await?;
        self.containers.lock().unwrap().remove(key);
        Ok(())
    }

    fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(self.shelf.as_ref()?)
    }

    fn pods(&self) -> Option<&dyn Pods> {
        Some(&**self.farm.as_ref()?)
    }
}

#[async_trait]
impl Images for Shelf {
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        let image = |(number, size): (usize, &u64)| {
            let mut image = ImageInfo::named(format!("image-{number}"));
            image.size = *size;
            image
        };
        Ok(self.sizes.iter().enumerate().map(image).collect())
    }

    async fn status(&self, image: &str) -> Result<Option<ImageInfo>> {
        Ok(self.list().await?.into_iter().find(|known| known.id == image))
    }

    async fn pull(&self, image: &str) -> Result<ImageInfo> {
        let found = self.status(image).await?;
        found.ok_or_else(|| RuntimeError::gone(image, "no such image"))
    }

    async fn pull_with_login(&self, image: &str, login: &RegistryLogin) -> Result<ImageInfo> {
        self.logins.lock().unwrap().push(login.clone());
        self.pull(image).await
    }

    async fn remove(&self, _image: &str) -> Result<()> {
        Ok(())
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }
}
