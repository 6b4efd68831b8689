//! The image store and the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubelet_cri::{Code, Error, v1};

use super::random::{hash, hex64};
use super::reference::Reference;

/// An image in the registry, for [`MemoryCri::publish`](super::MemoryCri::publish): what a pull of it does.
///
/// Its id, its digest and its default size follow from the name, so they are the same in each run.
///
/// ```
/// use std::time::Duration;
/// use kubelet_testing::memory_cri::RemoteImage;
///
/// RemoteImage::new("registry.example/shop/web:1").pull_takes(Duration::from_secs(20)).credentials("joe", "secret");
/// RemoteImage::new("gone:1").missing();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RemoteImage {
    name: String,
    content: String,
    size: Option<u64>,
    takes: Option<Duration>,
    uid: Option<i64>,
    username: String,
    credentials: Option<(String, String)>,
    missing: bool,
}

impl RemoteImage {
    /// An image that can be pulled without credentials.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            content: String::new(),
            size: None,
            takes: None,
            uid: None,
            username: String::new(),
            credentials: None,
            missing: false,
        }
    }

    /// Its content. With another content, the same name is another image: the tag has moved.
    pub fn content(mut self, content: impl Into<String>) -> Self {
        self.content = content.into();
        self
    }

    /// Its size in bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// How long a pull takes. The default is the runtime's latency of `PullImage`.
    pub fn pull_takes(mut self, time: Duration) -> Self {
        self.takes = Some(time);
        self
    }

    /// The numeric user that it runs as.
    pub fn uid(mut self, uid: i64) -> Self {
        self.uid = Some(uid);
        self
    }

    /// The name of the user that it runs as.
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = name.into();
        self
    }

    /// A pull needs these credentials.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// The registry does not have this image, even if every other image can be pulled.
    pub fn missing(mut self) -> Self {
        self.missing = true;
        self
    }
}

/// The image store and the registry.
#[derive(Debug)]
pub(super) struct Images {
    /// By full name.
    remote: BTreeMap<String, RemoteImage>,
    /// Whether images can be pulled that were not published.
    open: bool,
    /// By id.
    present: BTreeMap<String, Present>,
}

#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) id: String,
    tags: BTreeSet<String>,
    digests: BTreeSet<String>,
    size: u64,
    uid: Option<i64>,
    username: String,
    pinned: bool,
}

/// A pull that was accepted.
#[derive(Clone, Debug)]
pub(super) struct Pull {
    pub(super) takes: Option<Duration>,
    origin: RemoteImage,
    image: Present,
}

type Result<T> = std::result::Result<T, Error>;

const PAUSE: &str = "registry.k8s.io/pause:3.10";

impl Images {
    pub(super) fn new(open: bool) -> Self {
        let mut images = Self {
            remote: BTreeMap::new(),
            open,
            present: BTreeMap::new(),
        };
        images.add(RemoteImage::new(PAUSE).size(320_368));
        images.present.values_mut().for_each(|pause| pause.pinned = true);
        images
    }

    /// Publishes an image. An invalid name cannot be pulled.
    pub(super) fn publish(&mut self, image: RemoteImage) {
        if let Ok(reference) = Reference::parse(&image.name) {
            self.remote.insert(reference.full(), image);
        }
    }

    /// Adds an image to the store, and publishes it.
    pub(super) fn add(&mut self, image: RemoteImage) {
        if let Ok(reference) = Reference::parse(&image.name) {
            let present = present(&reference, &image);
            self.publish(image);
            self.store(present);
        }
    }

    /// Checks whether an image can be pulled, before the pull takes any time.
    pub(super) fn pull(&self, request: &v1::PullImageRequest) -> Result<Pull> {
        let name = request
            .image
            .as_ref()
            .map(|image| image.image.as_str())
            .unwrap_or_default();
        let error = |code, message: String| Error::call(code, "PullImage", name, message);
        let reference = Reference::parse(name).map_err(|why| {
            error(
                Code::Unknown,
                format!("failed to parse image reference {name:?}: {why}"),
            )
        })?;
        let full = reference.full();
        let refused = |code, why: String| {
            let message = format!(
                "failed to pull and unpack image {full:?}: failed to resolve reference {full:?}: {why}"
            );
            Err(error(code, message))
        };
        let published = self
            .remote
            .get(&full)
            .cloned()
            .or_else(|| self.by_digest(&reference));
        let image = match published {
            Some(image) => image,
            None if self.open => RemoteImage::new(&full),
            None => return refused(Code::NotFound, format!("{full}: not found")),
        };
        if image.missing {
            return refused(Code::NotFound, format!("{full}: not found"));
        }
        if let Some((user, password)) = &image.credentials {
            let auth = request.auth.clone().unwrap_or_default();
            if (&auth.username, &auth.password) != (user, password) {
                let why = "pull access denied, repository does not exist or may require authorization: \
                           server message: insufficient_scope: authorization failed";
                return refused(Code::Unknown, why.to_owned());
            }
        }
        let origin = Reference::parse(&image.name).unwrap_or_else(|_| reference.clone());
        let mut found = present(&origin, &image);
        if reference.digest.is_some() {
            found.tags.clear();
            found.digests = BTreeSet::from([full]);
        }
        Ok(Pull {
            takes: image.takes,
            origin: image,
            image: found,
        })
    }

    /// Completes a pull and returns the image's id. From now on the registry also has the image by digest.
    pub(super) fn pulled(&mut self, pull: Pull) -> String {
        if let Ok(reference) = Reference::parse(&pull.origin.name) {
            self.remote.entry(reference.full()).or_insert(pull.origin);
        }
        self.store(pull.image)
    }

    fn by_digest(&self, reference: &Reference) -> Option<RemoteImage> {
        let digest = reference.digest.as_ref()?;
        let same = self.remote.values().find(|image| {
            Reference::parse(&image.name).is_ok_and(|published| {
                published.repository == reference.repository && digest_of(&published, image) == *digest
            })
        });
        same.cloned()
    }

    fn store(&mut self, image: Present) -> String {
        let id = image.id.clone();
        // A tag names one image.
        for other in self.present.values_mut().filter(|other| other.id != id) {
            other.tags.retain(|tag| !image.tags.contains(tag));
        }
        match self.present.get_mut(&id) {
            Some(known) => {
                known.tags.extend(image.tags);
                known.digests.extend(image.digests);
            }
            None => {
                self.present.insert(id.clone(), image);
            }
        }
        id
    }

    /// The image with a name, an id or a prefix of an id.
    ///
    /// # Errors
    ///
    /// containerd's error for an invalid reference.
    pub(super) fn find(&self, call: &'static str, name: &str) -> Result<Option<&Present>> {
        if name.is_empty() {
            let message = "can not resolve \"\" locally: ambiguous digest string";
            return Err(Error::call(Code::Unknown, call, "", message));
        }
        if let Ok(reference) = Reference::parse(name) {
            let full = reference.full();
            let named = |image: &&Present| image.tags.contains(&full) || image.digests.contains(&full);
            if let Some(image) = self.present.values().find(named) {
                return Ok(Some(image));
            }
        }
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        let id = format!("sha256:{digits}");
        let mut alike = self
            .present
            .range(id.clone()..)
            .take_while(|(known, _)| known.starts_with(&id));
        Ok(match (alike.next(), alike.next()) {
            (Some((_, image)), None) if !digits.is_empty() => Some(image),
            _ => None,
        })
    }

    /// Removes an image with all its names. It is no error if no image has the name.
    pub(super) fn remove(&mut self, call: &'static str, name: &str) -> Result<()> {
        let id = self.find(call, name)?.map(|image| image.id.clone());
        if let Some(id) = id {
            self.present.remove(&id);
        }
        Ok(())
    }

    pub(super) fn list(&self) -> Vec<v1::Image> {
        self.present.values().map(Present::message).collect()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Present> {
        self.present.get(id)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.present.values().map(|image| image.size).sum()
    }

    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.present.len()).unwrap_or(u64::MAX)
    }
}

impl Present {
    pub(super) fn message(&self) -> v1::Image {
        v1::Image {
            id: self.id.clone(),
            repo_tags: self.tags.iter().cloned().collect(),
            repo_digests: self.digests.iter().cloned().collect(),
            size: self.size,
            uid: self.uid.map(|value| v1::Int64Value { value }),
            username: self.username.clone(),
            spec: None,
            pinned: self.pinned,
        }
    }

    pub(super) fn tag(&self) -> Option<&String> {
        self.tags.first()
    }

    pub(super) fn digest(&self) -> Option<&String> {
        self.digests.first()
    }
}

fn digest_of(reference: &Reference, image: &RemoteImage) -> String {
    match &reference.digest {
        Some(digest) => digest.clone(),
        None => format!(
            "sha256:{}",
            hex64(0, format_args!("manifest {} {}", reference.full(), image.content))
        ),
    }
}

fn present(reference: &Reference, image: &RemoteImage) -> Present {
    let (full, content) = (reference.full(), &image.content);
    let digest = digest_of(reference, image);
    let tags = reference.digest.is_none().then(|| full.clone());
    Present {
        id: format!("sha256:{}", hex64(0, format_args!("image {full} {content}"))),
        tags: tags.into_iter().collect(),
        digests: BTreeSet::from([format!("{}@{digest}", reference.repository)]),
        // From 1 to 100 MB.
        size: image
            .size
            .unwrap_or_else(|| 1_000_000 + hash(0, &full) % 99_000_000),
        uid: image.uid,
        username: image.username.clone(),
        pinned: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pull(images: &mut Images, name: &str) -> Result<String> {
        let image = v1::ImageSpec {
            image: name.to_owned(),
            ..Default::default()
        };
        let request = v1::PullImageRequest {
            image: Some(image),
            ..Default::default()
        };
        let pull = images.pull(&request)?;
        Ok(images.pulled(pull))
    }

    #[test]
    fn an_image_is_found_by_all_its_names() {
        let mut images = Images::new(true);
        let id = pull(&mut images, "busybox:1.36").unwrap();
        let digest = images.get(&id).unwrap().digest().unwrap().clone();
        for name in [
            "busybox:1.36",
            "docker.io/library/busybox:1.36",
            &digest,
            &id,
            &id[..20],
            &id[7..],
            &id[7..19],
        ] {
            let found = images.find("ImageStatus", name).unwrap();
            assert_eq!(found.map(|image| &image.id), Some(&id), "{name}");
        }
        for name in ["busybox", "busybox:1.37", "sha256:", "nope"] {
            assert!(images.find("ImageStatus", name).unwrap().is_none(), "{name}");
        }
        assert_eq!(pull(&mut images, &digest).unwrap(), id);
        images.remove("RemoveImage", &id[..19]).unwrap();
        assert!(images.find("ImageStatus", &digest).unwrap().is_none());
    }

    #[test]
    fn a_tag_moves() {
        let mut images = Images::new(false);
        images.publish(RemoteImage::new("app:1"));
        let old = pull(&mut images, "app:1").unwrap();
        images.publish(RemoteImage::new("app:1").content("fixed"));
        let new = pull(&mut images, "app:1").unwrap();
        assert_ne!(old, new);
        assert_eq!(images.get(&old).unwrap().tag(), None);
        assert_eq!(images.find("", "app:1").unwrap().unwrap().id, new);
        let error = pull(&mut images, "other:1").unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
    }
}
