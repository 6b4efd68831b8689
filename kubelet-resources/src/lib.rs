//! The container manager of a kubelet: CPUs, memory, NUMA topology, devices, claims and cgroups.
