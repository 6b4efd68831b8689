//! The hash of a container's spec.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Container;
use kubelet_core::fnv32a;

use super::go_json;

/// The hash that shows whether a running container still matches its pod's spec (`HashContainer`).
///
/// It covers only the image and the name, because only the image may change while a container runs. On the API server,
/// the rest is immutable. A static pod with a changed spec gets another UID.
pub(crate) fn hash_container(container: &Container) -> u64 {
    let image = container.image.as_deref().unwrap_or_default();
    let json = format!(
        r#"{{"image":{},"name":{}}}"#,
        go_json::string(image),
        go_json::string(&container.name)
    );
    u64::from(fnv32a(deep_hash_text(json.as_bytes()).bytes()))
}

/// The text of a byte slice that `hash.DeepHashObject` hashes.
fn deep_hash_text(bytes: &[u8]) -> String {
    let mut text = String::from("([]uint8)[");
    for (index, byte) in bytes.iter().enumerate() {
        let separator = if index == 0 { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{byte}");
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_the_kubelets() {
        let cases = [
            // Recorded from kubelet v1.36.2.
            ("main", Some("docker.io/library/busybox:1.36"), 0xe3b3_a006),
            ("c0", Some("docker.io/library/busybox:1.36"), 0x4e79_1bfa),
            ("i2", Some("docker.io/library/busybox:1.36"), 0x0dec_ccf5),
            ("side", Some("docker.io/library/busybox:1.36"), 0x4401_a906),
            ("etcd", Some("registry.k8s.io/etcd:3.6.6-0"), 0xd484_20cb),
            ("c", None, 0x027e_233a),
            ("c", Some(""), 0x027e_233a),
            ("c", Some("a<b>&\u{2028}ü"), 0x9fbb_8840),
            ("c", Some("sha256:0123\"\\"), 0xf8ed_a4cd),
            // The kubelet's own test has had this value since v1.31.
            ("test_container", Some("foo/image:v1"), 0x8e45_cbd0),
        ];
        for (name, image, hash) in cases {
            let container = Container {
                name: name.into(),
                image: image.map(String::from),
                ..Default::default()
            };
            assert_eq!(hash_container(&container), hash, "{name}");
        }
    }
}
