//! Cgroups whose processes have not run since they were read before.

use crate::reading::{Reading, Spec, Usage};
use crate::source::CgroupUsage;

/// What was read before, if no process of the cgroup has run since then: it is the same cgroup, it used no CPU time, and no
/// process was moved. This holds for the sandbox of most pods, and for each container that waits.
///
/// What only its own processes change is still the same then: CPU time in user and kernel mode, open files. The limits of
/// memory and CPU, memory itself and disk I/O may change without them.
///
/// `usage` needs its CPU time and its threads; `before` has all details.
pub(super) fn at_rest<'a>(before: &'a Reading, spec: &Spec, usage: &CgroupUsage) -> Option<&'a Usage> {
    let is_same = spec.creation_time.is_some() && spec.creation_time == before.spec.creation_time;
    // Without the controller of threads, nothing shows that a process was moved here.
    let counts_threads = spec.threads_max.is_some() && before.spec.threads_max.is_some();
    let before = &before.usage;
    let has_run = usage.cpu.total != before.cpu.total || usage.threads != before.processes.threads;
    (is_same && counts_threads && !has_run).then_some(before)
}
