//! The plugins of the kubelet itself, without a manager.

mod files;
mod fixture;
mod hostile;
mod mounts;
mod quotas;
mod restarts;
