//! The sandbox of a pod: the ids of its user namespace, and its resources when the pod is resized.

pub(crate) mod resources;
pub(crate) mod user_namespaces;
