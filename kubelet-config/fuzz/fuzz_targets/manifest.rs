//! Whatever a manifest holds, decoding it ends in pods or an error, within bounds.
#![no_main]

use std::path::Path;

use kubelet_config::manifest::{Location, decode, decode_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let file = Location::File(Path::new("/etc/kubernetes/manifests/pod.yaml"));
    let one = decode(text, "node-1", file);
    if let Ok(manifest) = &one {
        let again = decode(text, "node-1", file).ok();
        assert_eq!(again.as_ref(), Some(manifest), "it depends on nothing else");
        let metadata = &manifest.pod.metadata;
        assert!(metadata.uid.as_ref().is_some_and(|uid| !uid.is_empty()));
        assert!(metadata.name.as_ref().is_some_and(|name| name.ends_with("-node-1")));
    }
    let many = decode_list(text, "node-1", Location::Url("http://host/pods"));
    assert!(many.is_ok() || one.is_err(), "what is a pod is a list of one");
});
