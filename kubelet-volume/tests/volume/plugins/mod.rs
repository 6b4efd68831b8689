//! The plugins of the kubelet itself, without a manager.

mod files;
mod fixture;
mod hostile;
mod mounts;
mod nfs_server;
mod quotas;
mod restarts;
