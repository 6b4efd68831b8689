//! The volume manager: which pods want which volumes, what is mounted, and the operations that bring the two together (the
//! kubelet's `pkg/kubelet/volumemanager`).
//!
//! `state` has a record of each volume. `handle` takes the wishes of pods, and `resolve` finds out what their volumes are.
//! `next_step` decides what to do next for one volume, and `engine` starts it. The other modules are the operations.

mod attach;
mod back_off;
mod block;
mod builder;
mod device;
mod engine;
mod expand;
mod handle;
mod metrics;
mod mount;
mod next_step;
mod node_affinity;
mod operation;
mod paths;
mod reconstruct;
mod record;
mod resolve;
mod selinux;
mod shared;
mod sources;
mod state;
mod superseded;
mod tear_down;
mod usages;

pub use builder::NodeVolumesBuilder;
pub use engine::NodeVolumes;
pub use handle::NodeVolumesHandle;
pub use selinux::SelinuxContexts;
