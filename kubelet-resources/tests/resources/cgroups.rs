//! The cgroups of pods: in the host's own hierarchies, and in plain folders that imitate those that this host does not
//! have.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::{CgroupDriver, CgroupLimits, ExclusiveCpus, PodCgroupSettings};
use kubelet_core::{Disk, EventType, NodeEventRecorder, PodContainerManager, PodUid};
use kubelet_resources::cgroups::{
    CgroupMounts, MemoryQos, PodCgroups, PodCgroupsBuilder, QosReserved, Reserved, ReservedFor,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn settings(root: &str) -> PodCgroupSettings {
    let mut settings = PodCgroupSettings::default();
    settings.driver = CgroupDriver::Cgroupfs {
        root: root.to_owned(),
    };
    settings.pod_pids_limit = Some(100);
    settings
}

/// In one hierarchy of version 2, which is a plain folder.
fn in_folder(root: &str, folder: &Path) -> PodCgroupsBuilder {
    PodCgroups::builder(settings(root))
        .mounts(CgroupMounts::v2(folder))
        .disk(Disk::inline())
}

/// A pod of one container with these resources.
pub(crate) fn pod_with(name: &str, requests: Value, limits: Value) -> Arc<Pod> {
    let resources = json!({ "requests": requests, "limits": limits });
    let containers = json!([{ "name": "main", "image": "i", "resources": resources }]);
    let pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": { "containers": containers },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn burstable(name: &str, memory: &str) -> Arc<Pod> {
    pod_with(
        name,
        json!({ "cpu": "500m" }),
        json!({ "cpu": "1", "memory": memory }),
    )
}

/// The files that the kernel would put into a cgroup.
pub(crate) fn kernels_files(dir: &Path, files: &[&str]) {
    fs::create_dir_all(dir).unwrap();
    files
        .iter()
        .for_each(|file| fs::write(dir.join(file), "").unwrap());
}

/// CPU request, CPU limit and memory limit.
async fn shown(cgroups: &PodCgroups, pod: &Pod) -> [String; 3] {
    let held = cgroups.resources(pod).await.unwrap();
    [held.cpu_request, held.cpu_limit, held.memory_limit]
        .map(|quantity| quantity.map_or_else(String::new, |Quantity(text)| text))
}

pub(crate) fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap()
}

#[tokio::test]
async fn limits_on_cgroup_v2() {
    const FILES: [&str; 5] = [
        "cgroup.subtree_control",
        "cpu.max",
        "cpu.weight",
        "memory.max",
        "pids.max",
    ];
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path();
    kernels_files(mount, &FILES);
    fs::write(mount.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
    let kubepods = mount.join("edge/kubepods");
    let (burst, best) = (kubepods.join("burstable"), kubepods.join("besteffort"));
    let (web, other) = (burst.join("podweb"), burst.join("podother"));
    for dir in [&mount.join("edge"), &kubepods, &burst, &best, &web, &other] {
        kernels_files(dir, &FILES);
    }
    let cgroups = in_folder("/edge", mount).build().await.unwrap();
    assert_eq!(read(&best, "cpu.weight"), "1");

    let small = burstable("web", "64Mi");
    assert!(!cgroups.exists(&small).await, "it has no controllers");
    cgroups.ensure_exists(&small).await.unwrap();
    assert!(
        read(&burst, "cgroup.subtree_control").starts_with('+'),
        "handed down"
    );
    let limits = |dir: &Path| ["cpu.weight", "cpu.max", "memory.max", "pids.max"].map(|file| read(dir, file));
    assert_eq!(limits(&web), ["20", "100000 100000", "67108864", "100"]);
    assert_eq!(read(&burst, "cpu.weight"), "20");
    // The values in a status: weights are coarser than shares.
    assert_eq!(shown(&cgroups, &small).await, ["489m", "1", "64Mi"]);
    fs::write(web.join("cgroup.controllers"), "cpuset cpu memory").unwrap();
    assert!(!cgroups.exists(&small).await, "it has no bound on processes");
    fs::write(web.join("cgroup.controllers"), "cpuset cpu memory pids").unwrap();
    assert!(cgroups.exists(&small).await);
    cgroups.ensure_exists(&small).await.unwrap();

    // A second pod, and the shares of all pods together.
    cgroups.ensure_exists(&burstable("other", "64Mi")).await.unwrap();
    assert_eq!(read(&burst, "cpu.weight"), "39");
    let mut pods = cgroups.pods().await.unwrap();
    pods.sort();
    assert_eq!(pods, ["other", "web"].map(PodUid::from));

    // An existing cgroup keeps its limits; the class gets the sum of the requests.
    fs::write(web.join("memory.max"), "").unwrap();
    cgroups.ensure_exists(&burstable("web", "128Mi")).await.unwrap();
    assert_eq!(read(&web, "memory.max"), "");
    let asks_for_more = pod_with("web", json!({ "cpu": "1500m" }), json!({}));
    cgroups.ensure_exists(&asks_for_more).await.unwrap();
    assert_eq!(read(&burst, "cpu.weight"), "79");
    fs::write(web.join("cpu.weight"), "").unwrap();
    cgroups.reduce_cpu_limits(&"web".into()).await.unwrap();
    assert_eq!(read(&web, "cpu.weight"), "1");

    // The kernel removes the files of a cgroup with it; here the test must.
    for (name, dir) in [("web", &web), ("other", &other)] {
        fs::read_dir(dir)
            .unwrap()
            .for_each(|file| fs::remove_file(file.unwrap().path()).unwrap());
        fs::write(burst.join("cpu.weight"), "").unwrap();
        cgroups.destroy(&name.into()).await.unwrap();
        assert!(!dir.exists());
    }
    assert_eq!(read(&burst, "cpu.weight"), "1");
    assert!(cgroups.pods().await.unwrap().is_empty());
    cgroups.destroy(&"web".into()).await.unwrap();
}

/// The events about the node.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl NodeEventRecorder for Told {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        let event = format!("{} {reason}: {message}", event_type.as_str());
        self.0.lock().push(event);
    }
}

#[tokio::test(start_paused = true)]
async fn all_pods_are_bound_together() {
    let (folder, told) = (tempfile::tempdir().unwrap(), Told::default());
    let kubepods = folder.path().join("edge/kubepods");
    kernels_files(&kubepods, &["cpu.weight", "pids.max"]);
    let cgroups = in_folder("/edge", folder.path()).build().await.unwrap();
    let resources = [("cpu", "2"), ("memory", "3Gi"), ("pid", "32768")];
    let resources = resources.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    let resources = BTreeMap::from(resources);

    // The kernel first refuses the memory limit.
    let mended = async {
        tokio::time::sleep(Duration::from_secs(90)).await;
        kernels_files(&kubepods, &["memory.max"]);
    };
    tokio::join!(mended, cgroups.enforce_node_allocatable(&resources, &told));
    let told = std::mem::take(&mut *told.0.lock());
    assert_eq!(told.len(), 3, "{told:?}");
    for failed in &told[..2] {
        let (refused, memory) = (
            "Warning FailedNodeAllocatableEnforcement: ",
            "memory.max=3221225472",
        );
        let what = "Failed to update Node Allocatable Limits [\"edge\" \"kubepods\"]: ";
        assert!(
            failed.starts_with(&format!("{refused}{what}")) && failed.contains(memory),
            "{failed}"
        );
    }
    let done = "Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods";
    assert_eq!(told[2], done);
    let limits = ["cpu.weight", "memory.max", "pids.max"].map(|file| read(&kubepods, file));
    assert_eq!(limits, ["79", "3221225472", "32768"]);
}

#[tokio::test]
async fn daemons_may_use_what_is_reserved_for_them() {
    let (folder, told) = (tempfile::tempdir().unwrap(), Told::default());
    let mount = folder.path();
    let files = [
        "cpu.weight",
        "cpuset.cpus",
        "memory.max",
        "memory.min",
        "pids.max",
    ];
    let (system, kube) = (mount.join("system"), mount.join("kube"));
    for dir in [&mount.to_owned(), &system, &kube] {
        kernels_files(dir, &files);
        fs::write(dir.join("cgroup.controllers"), "cpu cpuset memory pids").unwrap();
    }
    let resources = |list: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        let list = list.iter();
        list.map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
            .collect()
    };
    let all = resources(&[("cpu", "500m"), ("memory", "1Gi"), ("pid", "1000")]);
    let cgroups = in_folder("/", mount)
        .all_cpus("0-3")
        .memory_qos(MemoryQos::NoReservation);
    let cgroups = cgroups.build().await.unwrap();
    let of_system = Reserved::new(ReservedFor::System, "/system", all.clone());
    cgroups.enforce_reserved(&of_system, &told).await.unwrap();
    assert_eq!(
        files.map(|file| read(&system, file)),
        ["20", "0-3", "1073741824", "1073741824", "1000"]
    );
    let of_kube = Reserved::new(ReservedFor::Kube, "/kube", all.clone()).only_compressible();
    cgroups.enforce_reserved(&of_kube, &told).await.unwrap();
    assert_eq!(files.map(|file| read(&kube, file)), ["20", "0-3", "", "", ""]);

    fs::write(system.join("cgroup.controllers"), "cpuset memory").unwrap();
    let missing = Reserved::new(ReservedFor::System, "/system", all.clone());
    let empty = Reserved::new(ReservedFor::System, "/a/b", resources(&[])).only_compressible();
    let nowhere = Reserved::new(ReservedFor::Kube, "/none", all);
    for (reserved, problem) in [
        (
            missing,
            "Failed to enforce System Reserved Cgroup Limits on \"/system\": cgroup [\"system\"] has some missing \
             controllers: cpu, pids",
        ),
        (
            empty,
            "Failed to enforce System Reserved Compressible Cgroup Limits on \"/a/b\": [\"a\" \"b\"] cgroup is not \
             configured properly",
        ),
        (
            nowhere,
            "Failed to enforce Kube Reserved Cgroup Limits on \"/none\": could not read controllers for cgroup \
             [\"none\"]: ",
        ),
    ] {
        let error = cgroups.enforce_reserved(&reserved, &told).await.unwrap_err();
        assert!(error.to_string().starts_with(problem), "{error}");
    }
    let told = std::mem::take(&mut *told.0.lock());
    let enforced = [
        "Normal NodeAllocatableEnforced: Updated limits on system reserved cgroup /system",
        "Normal NodeAllocatableEnforced: Updated limits on kube reserved cgroup /kube",
    ];
    assert_eq!(told[..2], enforced);
    assert_eq!(told.len(), 5, "{told:?}");
    let failed = "Warning FailedNodeAllocatableEnforcement: Failed to enforce ";
    assert!(
        told[2..].iter().all(|event| event.starts_with(failed)),
        "{told:?}"
    );
}

/// The classes' folders with all files, in a hierarchy of version 2.
fn classes(mount: &Path) -> [PathBuf; 3] {
    let files = ["cpu.weight", "memory.low", "memory.max", "memory.min"];
    let classes = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
    classes.map(|class| {
        kernels_files(&mount.join(class), &files);
        mount.join(class)
    })
}

#[tokio::test(start_paused = true)]
async fn classes_get_what_their_pods_request() {
    let folder = tempfile::tempdir().unwrap();
    let [all, burstable, best_effort] = classes(folder.path());
    let reserved = QosReserved::memory(50, 1000 << 20);
    let cgroups = in_folder("/", folder.path())
        .memory_qos(MemoryQos::TieredReservation)
        .qos_reserved(reserved);
    let cgroups = Arc::new(cgroups.build().await.unwrap());
    for (name, requests, limits) in [
        (
            "g",
            json!({ "cpu": "1", "memory": "100Mi" }),
            json!({ "cpu": "1", "memory": "100Mi" }),
        ),
        ("b", json!({ "cpu": "500m", "memory": "60Mi" }), json!({})),
        ("n", json!({}), json!({})),
    ] {
        // Its own cgroup lacks the files.
        cgroups
            .ensure_exists(&pod_with(name, requests, limits))
            .await
            .unwrap();
    }
    let mib = |number: u64| (number << 20).to_string();
    let shown = || {
        [
            read(&all, "memory.min"),
            read(&burstable, "cpu.weight"),
            read(&burstable, "memory.low"),
            read(&burstable, "memory.max"),
            read(&best_effort, "memory.max"),
        ]
    };
    let expected = [mib(160), "20".to_owned(), mib(60), mib(950), mib(920)];
    assert_eq!(shown(), expected);

    // Each minute, what others wrote is set right.
    fs::write(burstable.join("cpu.weight"), "").unwrap();
    fs::write(burstable.join("memory.max"), "").unwrap();
    let shutdown = CancellationToken::new();
    let updates = tokio::spawn({
        let (cgroups, shutdown) = (cgroups.clone(), shutdown.clone());
        async move { cgroups.run_qos_updates(shutdown).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shown()[1..4], expected[1..4]);
    fs::write(burstable.join("memory.max"), "").unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(shown()[3], expected[3]);
    shutdown.cancel();
    updates.await.unwrap();

    // The sum changes with the pods.
    for file in ["memory.low", "cpu.weight"] {
        fs::write(burstable.join(file), "").unwrap();
    }
    fs::write(all.join("memory.min"), "").unwrap();
    cgroups.destroy(&"b".into()).await.unwrap();
    assert_eq!(
        [read(&all, "memory.min"), read(&burstable, "cpu.weight")],
        [mib(100), "1".to_owned()]
    );
}

/// All containers of this pod have CPUs of their own.
struct Exclusive(&'static str);

impl ExclusiveCpus for Exclusive {
    fn container_has_exclusive_cpus(&self, pod: &Pod, _: &Container) -> bool {
        pod.metadata.name.as_deref() == Some(self.0)
    }
}

#[tokio::test]
async fn a_pod_with_cpus_of_its_own_has_no_quota() {
    let folder = tempfile::tempdir().unwrap();
    let resources = || json!({ "cpu": "2", "memory": "1Mi" });
    let cgroups = in_folder("/", folder.path()).exclusive_cpus(Arc::new(Exclusive("a")));
    let cgroups = cgroups.build().await.unwrap();
    for (name, quota) in [("a", "max 100000"), ("b", "200000 100000")] {
        let dir = folder.path().join(format!("kubepods/pod{name}"));
        kernels_files(&dir, &["cpu.max"]);
        cgroups
            .ensure_exists(&pod_with(name, resources(), resources()))
            .await
            .unwrap();
        assert_eq!(read(&dir, "cpu.max"), quota);
    }
}

#[tokio::test]
async fn limits_on_cgroup_v1() {
    const FILES: [&str; 5] = [
        "cpu.shares",
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
    ];
    let folder = tempfile::tempdir().unwrap();
    let at = |hierarchy: &str| (hierarchy.to_owned(), folder.path().join(hierarchy));
    let cpuset = ["cpuset.cpus", "cpuset.mems", "cpuset.sched_load_balance"];
    let pod = burstable("web", "1000");
    for class in [
        "",
        "kubepods",
        "kubepods/burstable",
        "kubepods/besteffort",
        "kubepods/burstable/podweb",
    ] {
        kernels_files(&at("cpuset").1.join(class), &cpuset);
    }
    fs::write(at("cpuset").1.join("cpuset.cpus"), "0-3\n").unwrap();
    fs::write(at("cpuset").1.join("cpuset.mems"), "0\n").unwrap();
    let mounts = CgroupMounts::v1(["cpu", "cpuset", "memory", "systemd"].map(at));
    let cgroups = PodCgroups::builder(settings("/"))
        .mounts(mounts)
        .without_cpu_load_balance();
    let cgroups = cgroups.build().await.unwrap();
    assert!(!cgroups.exists(&pod).await);
    let (cpu, memory) = (
        at("cpu").1.join("kubepods/burstable/podweb"),
        at("memory").1.join("kubepods/burstable/podweb"),
    );
    kernels_files(&cpu, &FILES[..3]);
    kernels_files(&memory, &FILES[3..]);
    cgroups.ensure_exists(&pod).await.unwrap();
    assert!(cgroups.exists(&pod).await);
    assert!(at("systemd").1.join("kubepods/burstable/podweb").is_dir());
    assert_eq!(
        FILES[..3].iter().map(|file| read(&cpu, file)).collect::<Vec<_>>(),
        ["512", "100000", "100000"]
    );
    assert_eq!(read(&memory, FILES[3]), "1000");
    let of_pod = at("cpuset").1.join("kubepods/burstable/podweb");
    assert_eq!(cpuset.map(|file| read(&of_pod, file)), ["0-3", "0", "0"]);

    // A resize changes only what it is about.
    let mut change = CgroupLimits::default();
    change.memory = Some(3000);
    cgroups.set_limits(&pod, change.clone()).await.unwrap();
    let limits = cgroups.limits(&pod).await.unwrap().unwrap();
    assert_eq!(
        (limits.memory, limits.cpu_shares, limits.cpu_quota),
        (Some(3000), Some(512), Some(100_000))
    );
    fs::write(memory.join("memory.usage_in_bytes"), "900\n").unwrap();
    assert_eq!(cgroups.memory_usage(&pod).await, Some(900));
    // A number that the kernel refuses.
    fs::remove_file(memory.join(FILES[3])).unwrap();
    symlink("/proc/sys/kernel/ngroups_max", memory.join(FILES[3])).unwrap();
    change.memory = Some(70_000);
    let error = cgroups.set_limits(&pod, change).await.unwrap_err().to_string();
    assert!(error.starts_with("memory.limit_in_bytes=70000: "), "{error}");
}

#[tokio::test]
async fn without_cgroups_per_qos_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut settings = settings("/");
        settings.driver = CgroupDriver::None;
        let cgroups = PodCgroups::builder(settings).mounts(CgroupMounts::v2(folder.path()));
        let cgroups = cgroups.build().await.unwrap();
        let pod = burstable("web", "1Mi");
        assert!(cgroups.exists(&pod).await);
        cgroups.ensure_exists(&pod).await.unwrap();
        cgroups.destroy(&"web".into()).await.unwrap();
        assert!(cgroups.pods().await.unwrap().is_empty());
        let told = Told::default();
        cgroups.enforce_node_allocatable(&BTreeMap::new(), &told).await;
        assert!(told.0.lock().is_empty(), "nothing is enforced");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_root_that_cannot_be_made_is_told() {
    let folder = tempfile::NamedTempFile::new().unwrap();
    let mounts = CgroupMounts::v1([("cpu".to_owned(), folder.path().to_owned())]);
    let error = PodCgroups::builder(settings("/")).mounts(mounts).build().await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with(r#"failed to create the cgroup ["kubepods"]: "#),
        "{error}"
    );
}

/// The host's own hierarchies, below a root for the test.
struct Host {
    root: String,
    children: Vec<Child>,
}

impl Host {
    /// The folders of a cgroup in all hierarchies that have it.
    fn folders(&self, name: &str) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup")
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let all = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]);
        all.map(|at| at.join(&self.root).join(name))
            .filter(|dir| dir.is_dir())
            .collect()
    }

    /// A process in this cgroup, in all hierarchies that accept it: one without CPUs does not.
    fn run_in(&mut self, dirs: &[PathBuf]) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id().to_string();
        self.children.push(child);
        let taken = dirs
            .iter()
            .filter(|dir| fs::write(dir.join("cgroup.procs"), &id).is_ok());
        assert!(taken.count() > 0);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for name in ["kubepods/besteffort", "kubepods/burstable", "kubepods", ""] {
            self.folders(name).iter().for_each(|dir| _ = fs::remove_dir(dir));
        }
    }
}

#[tokio::test]
async fn a_pods_cgroup_on_this_host() {
    let root = format!("kubelet-test-{}", std::process::id());
    let mounts = CgroupMounts::of_this_host();
    let mut host = Host {
        root: root.clone(),
        children: Vec::new(),
    };
    let opened = match mounts {
        Ok(mounts) => {
            let cgroups = PodCgroups::builder(settings(&root)).mounts(mounts);
            cgroups.build().await.ok()
        }
        Err(_) => None,
    };
    let Some(cgroups) = opened else {
        assert!(std::env::var_os("CI").is_none(), "CI has cgroups, and root");
        eprintln!("SKIPPED: a_pods_cgroup_on_this_host: cgroups cannot be made here");
        return;
    };
    let web = burstable("web", "64Mi");
    assert!(!cgroups.exists(&web).await);
    cgroups.ensure_exists(&web).await.unwrap();
    assert!(cgroups.exists(&web).await);
    let dirs = host.folders("kubepods/burstable/podweb");
    let any = |file: &str| {
        dirs.iter()
            .find_map(|dir| fs::read_to_string(dir.join(file)).ok())
    };
    let memory = any("memory.limit_in_bytes").or(any("memory.max"));
    assert_eq!(memory.as_deref().map(str::trim), Some("67108864"));
    let shares = any("cpu.shares").or(any("cpu.weight"));
    assert!(
        matches!(shares.as_deref().map(str::trim), Some("512" | "20")),
        "{shares:?}"
    );
    let [cpu_request, cpu_limit, memory_limit] = shown(&cgroups, &web).await;
    assert!(matches!(cpu_request.as_str(), "500m" | "489m"), "{cpu_request}");
    assert_eq!([cpu_limit, memory_limit], ["1", "64Mi"]);
    let pids = any("pids.max");
    assert_eq!(pids.as_deref().map(str::trim), Some("100"));

    // If it is missing in one hierarchy, it counts as missing and is created again.
    let container: Vec<PathBuf> = dirs.iter().map(|dir| dir.join("container")).collect();
    fs::remove_dir(&dirs[0]).unwrap();
    assert!(
        dirs.len() == 1 || cgroups.pods().await.unwrap() == [PodUid::from("web")],
        "of the others"
    );
    cgroups.ensure_exists(&web).await.unwrap();
    assert!(cgroups.exists(&web).await);

    // Its processes are killed.
    for dir in &container {
        fs::create_dir_all(dir).unwrap();
    }
    host.run_in(&container);
    cgroups.destroy(&"web".into()).await.unwrap();
    assert!(!host.children[0].wait().unwrap().success());
    assert_eq!(
        host.folders("kubepods/burstable/podweb"),
        [""; 0].map(PathBuf::from)
    );
    assert!(cgroups.pods().await.unwrap().is_empty());
}
