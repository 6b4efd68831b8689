//! The kubelet's pod lifecycle event generator, for any container runtime
