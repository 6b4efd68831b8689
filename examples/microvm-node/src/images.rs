//! Images of this machine: a folder for each, with the files `kernel` and `rootfs`.

use std::path::{Component, Path, PathBuf};

use kubelet_cri::verbs::{ImageInfo, Images, Result, RuntimeError};

/// The folder of all images. `web:v1` is its folder `web/v1`, `web` its folder `web/latest`.
pub(crate) struct ImageStore {
    dir: PathBuf,
}

/// What a VM boots.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) rootfs: PathBuf,
}

impl ImageStore {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn find(&self, name: &str) -> Result<Image> {
        let dir = self.dir.join(folder(name)?);
        let image = Image { kernel: dir.join("kernel"), rootfs: dir.join("rootfs") };
        let missing = [&image.kernel, &image.rootfs].into_iter().find(|file| !file.is_file());
        if let Some(file) = missing {
            return Err(RuntimeError::gone(name, format!("there is no file {}", file.display())));
        }
        Ok(image)
    }

    fn info(&self, name: &str) -> Result<ImageInfo> {
        let image = self.find(name)?;
        let size = |file: &Path| file.metadata().map_or(0, |metadata| metadata.len());
        let mut info = ImageInfo::named(name);
        info.size = size(&image.kernel) + size(&image.rootfs);
        // The kubelet does not collect what it cannot pull again.
        info.pinned = true;
        Ok(info)
    }
}

fn folder(name: &str) -> Result<PathBuf> {
    let (name_of, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (name, "latest"),
    };
    let folder = Path::new(name_of).join(tag);
    if folder.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(folder);
    }
    Err(RuntimeError::permanent(name, "is no name of an image"))
}

#[async_trait::async_trait]
impl Images for ImageStore {
    /// The node does not report them in its status: nobody asks for the whole list but the collector, and all are pinned.
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        let mut images = Vec::new();
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = path.strip_prefix(&self.dir).ok().and_then(Path::to_str);
                match name.and_then(|name| name.rsplit_once('/')) {
                    Some((name, tag)) if path.join("kernel").is_file() => {
                        images.extend(self.info(&format!("{name}:{tag}")).ok());
                    }
                    _ if path.is_dir() => folders.push(path),
                    _ => {}
                }
            }
        }
        images.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(images)
    }

    async fn status(&self, image: &str) -> Result<Option<ImageInfo>> {
        Ok(self.info(image).ok())
    }

    /// There is no registry: an image is there, or the error says what is missing.
    async fn pull(&self, image: &str) -> Result<ImageInfo> {
        self.info(image)
    }

    async fn remove(&self, image: &str) -> Result<()> {
        Err(RuntimeError::unsupported(image, "images are managed by who runs the node"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_image_is_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["web/v1", "team/db/latest"] {
            let folder = dir.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kernel"), "12").unwrap();
            std::fs::write(folder.join("rootfs"), "345").unwrap();
        }
        let images = ImageStore::new(dir.path().to_owned());
        let list = images.list().await.unwrap();
        let names: Vec<_> = list.iter().map(|image| (image.id.as_str(), image.size)).collect();
        assert_eq!(names, [("team/db:latest", 5), ("web:v1", 5)]);
        for (name, found) in [
            ("web:v1", true),
            ("web", false),
            ("team/db", true),
            ("team/db:latest", true),
            ("../web:v1", false),
        ] {
            assert_eq!(images.status(name).await.unwrap().is_some(), found, "{name}");
        }
        std::fs::remove_file(dir.path().join("web/v1/rootfs")).unwrap();
        let missing = images.pull("web:v1").await.unwrap_err();
        assert!(missing.message.contains("web/v1/rootfs"), "{missing}");
    }
}
