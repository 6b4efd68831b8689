//! OCI image layouts: folders with what a registry has.

use std::io;
use std::path::Path;

use oci_client::manifest::{OciImageIndex, OciImageManifest};

use super::record::digest;
use super::registry::MODULES;

/// The file that makes a folder a layout.
pub(crate) const MARKER: &str = "oci-layout";
/// The annotation with the tag of a manifest.
const NAME: &str = "org.opencontainers.image.ref.name";

/// The module of the image with this tag. If the layout has one image, it may have no tag.
pub(crate) fn read(dir: &Path, tag: Option<&str>) -> io::Result<Vec<u8>> {
    let index: OciImageIndex = serde_json::from_slice(&std::fs::read(dir.join("index.json"))?)?;
    let of_tag = |annotations: &Option<std::collections::BTreeMap<String, String>>| {
        annotations.as_ref().and_then(|it| it.get(NAME)).is_some_and(|name| Some(name.as_str()) == tag)
    };
    let entry = index.manifests.iter().find(|entry| of_tag(&entry.annotations));
    let entry = match (entry, &index.manifests[..]) {
        (Some(entry), _) => entry,
        (None, [only]) if only.annotations.as_ref().is_none_or(|it| !it.contains_key(NAME)) => only,
        _ => return Err(failed(format!("{} has no image with the tag {tag:?}", dir.display()))),
    };
    let manifest: OciImageManifest = serde_json::from_slice(&blob(dir, &entry.digest)?)?;
    let layer = manifest.layers.iter().find(|layer| MODULES.contains(&layer.media_type.as_str()));
    blob(dir, &layer.ok_or_else(|| failed("the image has no module".to_owned()))?.digest)
}

fn blob(dir: &Path, wanted: &str) -> io::Result<Vec<u8>> {
    let hex = wanted.strip_prefix("sha256:").filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| failed(format!("cannot verify the digest {wanted:?}")))?;
    let bytes = std::fs::read(dir.join("blobs/sha256").join(hex))?;
    match digest(&bytes) == wanted {
        true => Ok(bytes),
        false => Err(failed(format!("the content of {wanted} has another digest"))),
    }
}

fn failed(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
