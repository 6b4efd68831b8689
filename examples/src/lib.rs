//! The examples of the kubelet crates.
