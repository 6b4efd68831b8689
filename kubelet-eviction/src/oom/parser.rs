//! What the kernel logs of an OOM kill (cAdvisor's `oomparser`).

/// A process that the OOM killer has killed (`OomInstance`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Its process id; 0 if it is not known.
    pub pid: i32,
    /// Its name; empty if it is not known.
    pub process_name: String,
    /// The cgroup of the process (`ContainerName`); `/` if it is not known.
    pub container: String,
    /// The cgroup whose memory ran out (`VictimContainerName`); `/` if it is the whole host.
    pub out_of_memory: String,
    /// Which limit was reached, e.g. `CONSTRAINT_MEMCG`. Empty with kernels before 5.0, and if it is the whole host.
    pub constraint: String,
}

impl OomKill {
    fn unknown() -> Self {
        Self {
            pid: 0,
            process_name: String::new(),
            container: "/".to_owned(),
            out_of_memory: "/".to_owned(),
            constraint: String::new(),
        }
    }

    /// Whether the host ran out of memory, and not a cgroup.
    pub fn is_of_system(&self) -> bool {
        self.out_of_memory == "/"
    }
}

/// Finds OOM kills in the lines of the kernel's log. A kill is logged in several lines.
#[derive(Clone, Debug, Default)]
pub struct OomParser {
    current: Option<OomKill>,
}

impl OomParser {
    /// Reads the next line; returns the kill that it completes.
    pub fn read(&mut self, line: &str) -> Option<OomKill> {
        let Some(kill) = &mut self.current else {
            if line.contains("invoked oom-killer:") {
                self.current = Some(OomKill::unknown());
            }
            return None;
        };
        let is_complete = read_cgroups(line, kill) || read_process(line, kill);
        if is_complete { self.current.take() } else { None }
    }
}

/// Kernels from 5.0 log everything in one line; others the cgroups only (`getContainerName`).
fn read_cgroups(line: &str, kill: &mut OomKill) -> bool {
    let Some(fields) = Fields::parse(line) else {
        read_legacy_cgroups(line, kill);
        return false;
    };
    kill.container = fields.task_memcg.to_owned();
    kill.out_of_memory = fields.oom_memcg.to_owned();
    kill.constraint = fields.constraint.to_owned();
    let Ok(pid) = fields.pid.parse() else {
        return false;
    };
    kill.pid = pid;
    kill.process_name = fields.task.to_owned();
    true
}

/// The fields of `oom-kill:constraint=…,nodemask=…,…`. If the whole host is out of memory there is no `oom_memcg`, and the
/// line does not count.
struct Fields<'a> {
    constraint: &'a str,
    oom_memcg: &'a str,
    task_memcg: &'a str,
    task: &'a str,
    pid: &'a str,
}

impl<'a> Fields<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, fields) = line.split_once("oom-kill:constraint=")?;
        // From the end: the name of a task may contain anything but is not as long.
        let (fields, _uid) = fields.rsplit_once(",uid=")?;
        let (fields, pid) = fields.rsplit_once(",pid=")?;
        let (fields, task) = fields.rsplit_once(",task=")?;
        let (fields, task_memcg) = fields.rsplit_once(",task_memcg=")?;
        let (fields, oom_memcg) = fields.rsplit_once(",oom_memcg=")?;
        let (fields, _mems_allowed) = fields.rsplit_once(",mems_allowed=")?;
        let (fields, _cpuset) = fields.rsplit_once(",cpuset=")?;
        let (constraint, _nodemask) = fields.rsplit_once(",nodemask=")?;
        Some(Self {
            constraint,
            oom_memcg,
            task_memcg,
            task,
            pid,
        })
    }
}

/// `Task in A killed as a result of limit of B` (`getLegacyContainerName`)
fn read_legacy_cgroups(line: &str, kill: &mut OomKill) {
    let cgroups = line
        .split_once("Task in ")
        .and_then(|(_, rest)| rest.rsplit_once(" killed as a result of limit of "));
    if let Some((task, limit)) = cgroups {
        let absolute = |path: &str| format!("/{}", path.trim_matches('/'));
        kill.container = absolute(task);
        kill.out_of_memory = absolute(limit);
    }
}

/// `Killed process 17 (name)` (`getProcessNamePid`)
fn read_process(line: &str, kill: &mut OomKill) -> bool {
    let process = line.split_once("Killed process ").and_then(|(_, rest)| {
        let (pid, rest) = rest.split_once(" (")?;
        let (name, _) = rest.rsplit_once(')')?;
        Some((pid.parse().ok()?, name)).filter(|(_, name)| !name.is_empty())
    });
    if let Some((pid, name)) = process {
        kill.pid = pid;
        kill.process_name = name.to_owned();
    }
    process.is_some()
}
