//! A guide from `cargo add` to a node in a cluster, for readers who have never seen the source of a kubelet. It is the folder
//! `docs/guide` of the repository.
//!
//! | chapter | what you build |
//! |---|---|
//! | [`watch_a_runtime`] | a program that reports when containers start and end |
//! | [`run_one_pod`] | a program that runs a pod to its end, without an agent |
//! | [`an_agent_from_files`] | a node agent that runs the pods of a folder |
//! | [`your_own_runtime`] | the same agent with a runtime that you write |
//! | [`join_a_cluster`] | a node of a cluster, with `kubectl logs` and `exec` |
//! | [`test_in_virtual_time`] | a test in which hours pass in a moment |
//! | [`webassembly`] | a node whose pods are WebAssembly modules |
//! | [`microvm`] | a node whose pods are virtual machines |

#[doc = include_str!("../guide/1-watch-a-runtime.md")]
pub mod watch_a_runtime {}

#[cfg_attr(target_os = "linux", doc = include_str!("../guide/2-run-one-pod.md"))]
#[cfg_attr(not(target_os = "linux"), doc = "A chapter that needs Linux.")]
pub mod run_one_pod {}

#[cfg_attr(target_os = "linux", doc = include_str!("../guide/3-an-agent-from-files.md"))]
#[cfg_attr(not(target_os = "linux"), doc = "A chapter that needs Linux.")]
pub mod an_agent_from_files {}

#[doc = include_str!("../guide/4-your-own-runtime.md")]
pub mod your_own_runtime {}

#[cfg_attr(feature = "apiserver", doc = include_str!("../guide/5-join-a-cluster.md"))]
#[cfg_attr(
    not(feature = "apiserver"),
    doc = "A chapter that needs more features of this crate."
)]
pub mod join_a_cluster {}

#[doc = include_str!("../guide/6-test-in-virtual-time.md")]
pub mod test_in_virtual_time {}

#[doc = include_str!("../guide/7-webassembly.md")]
pub mod webassembly {}

#[doc = include_str!("../guide/8-microvm.md")]
pub mod microvm {}
