//! An OCI image layout, as `oras copy --to-oci-layout` makes it.

use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Makes a layout with an image of this module under the tag.
pub(crate) fn make(dir: &Path, tag: &str, wasm: &[u8]) {
    std::fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    std::fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let manifest = manifest(wasm);
    for blob in [wasm, b"{}", manifest.as_bytes()] {
        std::fs::write(dir.join("blobs/sha256").join(hex(blob)), blob).unwrap();
    }
    let (digest, size) = (hex(manifest.as_bytes()), manifest.len());
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json",
        "digest":"sha256:{digest}","size":{size},"annotations":{{"org.opencontainers.image.ref.name":"{tag}"}}}}]}}"#
    );
    std::fs::write(dir.join("index.json"), index).unwrap();
}

/// The manifest of an image of this module, whose configuration is `{}`.
pub(crate) fn manifest(wasm: &[u8]) -> String {
    let descriptor = |media_type: &str, blob: &[u8]| {
        format!(r#"{{"mediaType":"{media_type}","digest":"sha256:{}","size":{}}}"#, hex(blob), blob.len())
    };
    let config = descriptor("application/vnd.wasm.config.v0+json", b"{}");
    let layer = descriptor("application/wasm", wasm);
    format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{config},"layers":[{layer}]}}"#
    )
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
