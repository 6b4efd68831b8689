//! Images: a module from a registry, an image layout or a file. The folder of the images has each module once.

mod layout;
mod local;
mod record;
mod registry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::image_name::with_default_tag;
use kubelet_cri::verbs::{ImageInfo, Images, RegistryLogin, Result, RuntimeError};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::record::Record;
use self::registry::Registry;
use crate::program::{Compiler, Program};

/// The images that are present, and their compiled code.
pub(crate) struct ImageStore {
    dir: PathBuf,
    modules: Option<PathBuf>,
    registry: Registry,
    images: Mutex<BTreeMap<String, Image>>,
}

struct Image {
    record: Record,
    /// Compiled by the first container.
    program: Arc<OnceCell<Program>>,
}

impl ImageStore {
    pub(crate) fn open(
        dir: PathBuf,
        modules: Option<PathBuf>,
        insecure: Vec<String>,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let images = record::all(&dir)?.into_iter().map(|record| (record.id.clone(), Image::new(record)));
        let images = Mutex::new(images.collect());
        Ok(Self { dir, modules, registry: Registry::new(insecure), images })
    }

    /// The compiled code of an image. Several containers that start at once wait for one compilation.
    pub(crate) async fn program(&self, image: &str, compiler: &Arc<Compiler>) -> Result<Program> {
        let found = self.find(image, |image| (image.record.path(&self.dir), image.program.clone()));
        let (path, program) = found.ok_or_else(|| no_such(image))?;
        let compile = async || {
            let compiler = compiler.clone();
            let compiled = tokio::task::spawn_blocking(move || {
                let wasm = std::fs::read(path).map_err(|error| error.to_string())?;
                compiler.compile(&wasm).map_err(|error| format!("{error:#}"))
            });
            let compiled =
                compiled.await.map_err(|error| RuntimeError::transient(image, error.to_string()))?;
            compiled.map_err(|error| RuntimeError::permanent(image, error))
        };
        program.get_or_try_init(compile).await.cloned()
    }

    /// The image of this name or id.
    fn find<T>(&self, image: &str, read: impl Fn(&Image) -> T) -> Option<T> {
        let images = self.images.lock();
        if let Some(image) = images.get(image) {
            return Some(read(image));
        }
        let name = with_default_tag(image).ok()?;
        images.values().find(|image| image.record.names.contains(&name)).map(read)
    }

    async fn pull(&self, image: &str, login: Option<&RegistryLogin>) -> Result<ImageInfo> {
        let name =
            with_default_tag(image).map_err(|error| RuntimeError::permanent(image, error.to_string()))?;
        let wasm = match local::path(&name) {
            Some(path) => local::read(image, self.modules.as_deref(), path)?,
            None => self.registry.pull(&name, login).await?,
        };
        let wasm =
            wat::parse_bytes(&wasm).map_err(|error| RuntimeError::permanent(image, error.to_string()))?;
        if !wasm.starts_with(b"\0asm") {
            return Err(RuntimeError::permanent(image, "is not WebAssembly"));
        }
        self.add(name, &wasm).map_err(|error| RuntimeError::transient(image, error.to_string()))
    }

    /// Keeps a module under this name, which an earlier one loses.
    fn add(&self, name: String, wasm: &[u8]) -> std::io::Result<ImageInfo> {
        let mut images = self.images.lock();
        let mut record = Record::of(wasm);
        if let Some(known) = images.get(&record.id) {
            record.names.clone_from(&known.record.names);
        }
        if !record.names.contains(&name) {
            record.names.push(name.clone());
        }
        record.write(&self.dir, wasm)?;
        for image in images.values_mut().filter(|image| image.record.id != record.id) {
            image.record.lose(&name, &self.dir)?;
        }
        let info = record.info();
        let program = images.remove(&record.id).map(|image| image.program).unwrap_or_default();
        images.insert(record.id.clone(), Image { record, program });
        Ok(info)
    }
}

impl Image {
    fn new(record: Record) -> Self {
        Self { record, program: Arc::default() }
    }
}

#[async_trait::async_trait]
impl Images for ImageStore {
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        Ok(self.images.lock().values().map(|image| image.record.info()).collect())
    }

    async fn status(&self, image: &str) -> Result<Option<ImageInfo>> {
        Ok(self.find(image, |image| image.record.info()))
    }

    async fn pull(&self, image: &str) -> Result<ImageInfo> {
        self.pull(image, None).await
    }

    async fn pull_with_login(&self, image: &str, login: &RegistryLogin) -> Result<ImageInfo> {
        self.pull(image, Some(login)).await
    }

    /// A container that runs keeps its code.
    async fn remove(&self, image: &str) -> Result<()> {
        if let Some(id) = self.find(image, |image| image.record.id.clone()) {
            let mut images = self.images.lock();
            if let Some(known) = images.get(&id) {
                let removed = known.record.remove(&self.dir);
                removed.map_err(|error| RuntimeError::transient(image, error.to_string()))?;
                images.remove(&id);
            }
        }
        Ok(())
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }
}

fn no_such(image: &str) -> RuntimeError {
    RuntimeError::gone(image, "no such image")
}
