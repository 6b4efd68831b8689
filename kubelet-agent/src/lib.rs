//! A whole Kubernetes node in one builder, each part of it replaceable.
