//! The benches of the kubelet crates.
