//! The containers of a spec, each with its field.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::Field;

/// Init containers first, then the others.
pub(super) fn visit_containers(spec: &PodSpec, field: &Field, mut visit: impl FnMut(&Container, &Field)) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (name, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        for (index, container) in containers.iter().enumerate() {
            visit(container, &field.child(name).index(index));
        }
    }
}
