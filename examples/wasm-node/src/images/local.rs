//! Images of this machine, without a registry: `file/NAME:TAG` is NAME in the folder of the modules. It is a module (`.wasm`, `.wat`) or
//! an OCI image layout, whose image has the name TAG.

use std::path::Path;

use kubelet_core::image_name::{ImageName, without_tag_and_digest};
use kubelet_cri::verbs::{Result, RuntimeError};

use super::layout;

/// The path of a local image in the folder; `None` if it is one of a registry. A name of an image has no `..`.
pub(crate) fn path(image: &str) -> Option<&str> {
    without_tag_and_digest(image).strip_prefix("file/")
}

/// The module. The folder of the modules is small, so this blocks.
pub(crate) fn read(image: &str, modules: Option<&Path>, path: &str) -> Result<Vec<u8>> {
    let modules = modules.ok_or_else(|| RuntimeError::gone(image, "this node has no folder of modules"))?;
    let name = ImageName::parse(image).map_err(|error| RuntimeError::permanent(image, error.to_string()))?;
    if name.digest().is_some() {
        return Err(RuntimeError::permanent(image, "a file has a tag, and no digest"));
    }
    let path = modules.join(path);
    if path.join(layout::MARKER).is_file() {
        return layout::read(&path, name.tag()).map_err(|error| RuntimeError::gone(image, error.to_string()));
    }
    std::fs::read(&path)
        .map_err(|error| RuntimeError::gone(image, format!("cannot read {}: {error}", path.display())))
}
