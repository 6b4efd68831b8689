//! What the OOM watcher makes of the kernel's log.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::{EventType, NodeEventRecorder};
use kubelet_eviction::Result;
use kubelet_eviction::oom::{KernelLog, OomKill, OomParser, OomWatcher};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Logged by kernel 6.18 as a cgroup of version 1 reached its limit; much is left out.
const OF_CGROUP: &str = "\
tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 0 UID: 0 PID: 28312 Comm: tail Not tainted 6.18.44 #1 PREEMPT(none)
Call Trace:
 oom_kill_process.cold+0x8/0x8a
 out_of_memory+0x214/0x500
memory: usage 10240kB, limit 10240kB, failcnt 19
Memory cgroup stats for /kubepods/burstable/pod1:
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  28312]     0 28312     3243     2944     2528      416         0    65536        0             0 tail
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/burstable/pod1,\
task_memcg=/kubepods/burstable/pod1/c1,task=tail,pid=28312,uid=0
Memory cgroup out of memory: Killed process 28312 (tail) total-vm:12972kB, anon-rss:10112kB, file-rss:1664kB, \
shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0";

/// The host is out of memory.
const OF_HOST: &str = "\
kswapd0 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=-999
Mem-Info:
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
task_memcg=/kubepods/besteffort/pod2,task=my (odd) program,pid=532,uid=1000
Out of memory: Killed process 532 (my (odd) program) total-vm:1572864kB, anon-rss:1048576kB, file-rss:0kB, \
shmem-rss:0kB, UID:1000 pgtables:2100kB oom_score_adj:1000
oom_reaper: reaped process 532 (my (odd) program), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB";

/// A kernel before 5.0.
const LEGACY: &str = "\
ruby invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
Task in /mem2 killed as a result of limit of /mem3
memory: usage 980kB, limit 980kB, failcnt 4152239
Killed process 19667 (evilprogram2) total-vm:1460016kB, anon-rss:1414008kB, file-rss:4kB";

fn kill(pid: i32, name: &str, container: &str, out_of_memory: &str, constraint: &str) -> OomKill {
    OomKill {
        pid,
        process_name: name.to_owned(),
        container: container.to_owned(),
        out_of_memory: out_of_memory.to_owned(),
        constraint: constraint.to_owned(),
    }
}

#[test]
fn the_lines_of_a_kill_make_one() {
    let (pod, container) = ("/kubepods/burstable/pod1", "/kubepods/burstable/pod1/c1");
    let cases = [
        (
            OF_CGROUP,
            vec![kill(28312, "tail", container, pod, "CONSTRAINT_MEMCG")],
        ),
        (OF_HOST, vec![kill(532, "my (odd) program", "/", "/", "")]),
        (LEGACY, vec![kill(19667, "evilprogram2", "/mem2", "/mem3", "")]),
        ("usb 1-1: new device\nKilled process 1 (init)", vec![]),
    ];
    for (log, expected) in cases {
        let mut parser = OomParser::default();
        let kills: Vec<OomKill> = log.lines().filter_map(|line| parser.read(line)).collect();
        assert_eq!(kills, expected, "{log}");
    }
    let all = [OF_CGROUP, OF_HOST, LEGACY].join("\n");
    let mut parser = OomParser::default();
    assert_eq!(all.lines().filter_map(|line| parser.read(line)).count(), 3);
}

/// A log that ends.
struct Lines(std::vec::IntoIter<String>);

#[async_trait]
impl KernelLog for Lines {
    async fn next_message(&mut self) -> Result<Option<String>> {
        Ok(self.0.next())
    }
}

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl NodeEventRecorder for Events {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        self.0
            .lock()
            .push(format!("{} {reason} {message}", event_type.as_str()));
    }
}

#[tokio::test]
async fn only_a_host_out_of_memory_is_an_event_of_the_node() {
    let unnamed = "a invoked oom-killer: b\nTask in / killed as a result of limit of /\nKilled process 0 (x)";
    let log = [OF_CGROUP, OF_HOST, LEGACY, unnamed].join("\n");
    let lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let (events, heard) = (Arc::new(Events::default()), Arc::new(Mutex::new(Vec::new())));
    let hears = heard.clone();
    let watcher = OomWatcher::new(Lines(lines.into_iter()), events.clone())
        .listener(move |kill: &OomKill| hears.lock().push(kill.pid));
    watcher.run(CancellationToken::new()).await;
    assert_eq!(
        *events.0.lock(),
        [
            "Warning SystemOOM System OOM encountered, victim process: my (odd) program, pid: 532",
            "Warning SystemOOM System OOM encountered",
        ]
    );
    assert_eq!(*heard.lock(), [28312, 532, 19667, 0]);
}
